"""Who may change a cache: one process all of it, or one process each client.

The lock of a cache is a gate. Whoever fills one client passes it: holds the cache only until the
client's own lock is held, and generates behind it, while others pass. Whoever wants the whole cache
holds the gate, so that no other process passes, and waits for those behind it.
"""

import functools
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from fedeas.cache.private import private_folder
from fedeas.cache.store import Cache
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
def lock_client(cache: Cache, client: str) -> Iterator[None]:
    """Hold one client's part of a cache, while others hold theirs."""
    folder = cache.client_folder(client)
    with ExitStack() as held:
        while True:
            with locked(cache.folder, make=private_folder):
                cache.prepare()
                try:
                    held.enter_context(locked(folder, _busy, private_folder))
                    break
                except _BusyError:
                    pass
            # Another process fills the same client. Wait outside the gate: others may pass.
            with locked(folder, make=private_folder):
                pass
        yield


def _busy() -> None:
    raise _BusyError
