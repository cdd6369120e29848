"""Who is at work in a cache: a marker for each fill and compaction, by which others hold back.

A marker stands from before the first file until after the last one.
"""

import contextlib
import json
import os
import platform
import secrets
import time
from collections.abc import Iterator

from fedeas.cache.storage import Storage
from fedeas.errors import FedeasError

FOLDER = ".fedeas/filling"
FILL, COMPACT = "fill", "compact"
_STALE = 86_400.0  # seconds, of a marker of another machine
_PATIENCE = 600.0  # seconds that a fill waits for a compaction


@contextlib.contextmanager
def marked(storage: Storage, kind: str) -> Iterator[str]:
    """Say while something is under way that rows may stand twice; yield the marker's name."""
    name = f"{kind}-{secrets.token_hex(8)}"
    about = {"host": platform.node(), "process": os.getpid(), "since": time.time()}
    storage.write(f"{FOLDER}/{name}", json.dumps(about).encode())
    try:
        yield name
    finally:
        storage.remove(f"{FOLDER}/{name}")
        for other in storage.names(FOLDER):
            if _is_over(storage, other):
                storage.remove(f"{FOLDER}/{other}")


def others(storage: Storage, own: str) -> list[str]:
    """Return the markers of everybody else who is at work."""
    names = [name for name in storage.names(FOLDER) if name != own and not name.startswith(".")]
    return [name for name in names if not _is_over(storage, name)]


def wait_for_compaction(storage: Storage, own: str) -> None:
    """Return once nobody compacts: the old and the new shards would look like doubled ones."""
    begun = time.monotonic()
    while any(name.startswith(COMPACT) for name in others(storage, own)):
        if time.monotonic() - begun > _PATIENCE:
            raise FedeasError(
                f"{storage} is being compacted by somebody else",
                fix="run this again when that has ended, or remove .fedeas/filling/compact-*",
            )
        time.sleep(0.2)


def _is_over(storage: Storage, name: str) -> bool:
    """Tell whether the one who set a marker has died: its process is gone, or it is a day old."""
    try:
        about = json.loads(storage.read(f"{FOLDER}/{name}"))
        if about["host"] != platform.node():
            return bool(time.time() - about["since"] > _STALE)
        os.kill(int(about["process"]), 0)
    except (ProcessLookupError, FileNotFoundError):
        return True
    except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return False
    return False
