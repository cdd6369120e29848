"""Files of the Hugging Face hub, and only of the kinds that are asked for."""

from collections.abc import Sequence
from pathlib import Path

from fedeas.errors import InputError, MissingExtraError


def fetch(name: str, kind: str, patterns: Sequence[str]) -> Path:
    """Fetch the files of a repository (`kind` is 'dataset' or 'model') and return their folder."""
    try:
        from huggingface_hub import snapshot_download
        from huggingface_hub.errors import (
            HfHubHTTPError,
            HFValidationError,
            LocalEntryNotFoundError,
        )
    except ImportError:
        raise MissingExtraError(f"the {kind} {name!r} of the hub", "data") from None
    try:
        return Path(snapshot_download(name, repo_type=kind, allow_patterns=list(patterns)))
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as error:
        raise InputError(
            f"no {kind} {name!r}: not on this machine, and the hub says {type(error).__name__}",
            fix="check the name, or give a folder",
        ) from None
