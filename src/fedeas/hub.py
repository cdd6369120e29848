"""Files of the Hugging Face hub, and only of the kinds that are asked for."""

from collections.abc import Sequence
from pathlib import Path

from fedeas.errors import InputError, MissingExtraError, first_line


def fetch(name: str, kind: str, patterns: Sequence[str], looked: str | None = None) -> Path:
    """Fetch the files of a repository and return their folder.

    Parameters
    ----------
    name, kind : str
        The repository, and what it is: 'dataset' or 'model'.
    patterns : sequence of str
        The files that are wanted.
    looked : str, optional
        Where it was looked for on this machine before, for the error.
    """
    try:
        from huggingface_hub import snapshot_download
    except ImportError:
        raise MissingExtraError(f"the {kind} {name!r} of the hub", "data") from None
    try:
        return Path(snapshot_download(name, repo_type=kind, allow_patterns=list(patterns)))
    except Exception as error:  # of the hub, its network library, and whatever comes next release
        raise InputError(
            f"no {kind} {name!r}: not on this machine, and the hub says {type(error).__name__} "
            f"({first_line(error)[:100]})",
            fix=f"{f'{looked}; ' if looked else ''}"
            "check the name and the network and run it again, or give a folder",
        ) from None
