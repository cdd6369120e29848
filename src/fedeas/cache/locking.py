"""Who may change a cache: one process all of it, or one process each client.

The lock of a cache is a gate. Whoever fills one client passes it: holds the cache only until the
client's own lock is held, and generates behind it, while others pass. Whoever wants the whole cache
holds the gate, so that nobody passes any more, and waits for those who are behind it.
"""

import functools
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from fedeas.cache.private import private_folder
from fedeas.cache.store import ClientCache
from fedeas.locks import locked


class _BusyError(Exception):
    pass


@contextmanager
def lock_cache(folder: Path, waiting: Callable[[], None] | None = None) -> Iterator[None]:
    """Hold a whole cache; `waiting` is called once before waiting for others, and may raise."""
    waiting = functools.cache(waiting) if waiting is not None else None
    with locked(folder, waiting, private_folder):
        # A client's folder has a lock only if it was once filled by itself.
        for lock in sorted(folder.glob("clients/*/lock")):
            with locked(lock.parent, waiting, private_folder):
                pass
        yield


@contextmanager
def lock_client(own: ClientCache) -> Iterator[list[str]]:
    """Hold one client's part, while others hold theirs; yield what was mended of the cache."""

    def make(_: Path) -> None:
        own.make_folder()

    mended: list[str] = []
    with ExitStack() as held:
        while True:
            with locked(own.cache.folder, make=private_folder):
                mended += own.cache.check()
                try:
                    held.enter_context(locked(own.folder, _busy, make))
                    break
                except _BusyError:
                    pass
            # Another process fills the same client. Wait outside the gate: others may pass.
            with locked(own.folder, make=make):
                pass
        yield mended


def _busy() -> None:
    raise _BusyError
