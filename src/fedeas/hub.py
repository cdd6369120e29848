"""Files from the Hugging Face hub, only of the requested kinds."""

from collections.abc import Sequence
from pathlib import Path

from fedeas.errors import InputError, MissingExtraError, first_line


def fetch(name: str, kind: str, patterns: Sequence[str], looked: str | None = None) -> Path:
    """Download files of a repository and return their folder.

    Parameters
    ----------
    name, kind : str
        The repository, and what it is: 'dataset' or 'model'.
    patterns : sequence of str
        The files to download.
    looked : str, optional
        Where it was searched for on this machine, for the error.
    """
    try:
        from huggingface_hub import snapshot_download
    except ModuleNotFoundError:
        raise MissingExtraError(f"the {kind} {name!r} of the hub", "data") from None
    try:
        return Path(snapshot_download(name, repo_type=kind, allow_patterns=list(patterns)))
    except Exception as error:  # of the hub, its network library, and whatever comes next release
        raise InputError(
            f"no {kind} {name!r}: not on this machine, and the hub raised {type(error).__name__} "
            f"({first_line(error)[:100]})",
            fix=f"{f'{looked}; ' if looked else ''}"
            "check the name and the network and run it again, or give a folder",
        ) from None
