"""Locks on folders: one process at a time, on Linux, macOS and Windows.

The system frees the lock of a process that dies, so there is nothing to clean up after a crash.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from fedeas.errors import InputError

_POLL = 0.02  # seconds between two attempts
_ATTEMPTS = 100


def _make(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)


@contextmanager
def locked(
    folder: Path,
    waiting: Callable[[], None] | None = None,
    make: Callable[[Path], None] = _make,
) -> Iterator[None]:
    """Hold a folder's lock, waiting until it is free.

    Parameters
    ----------
    folder : Path
        What is locked; the lock is the file `lock` in it.
    waiting : callable, optional
        Called once before waiting. It may raise, to give up instead.
    make : callable, optional
        Makes the folder if it is not there; also called once the lock is held.

    """
    release = _acquire(folder, waiting, make)
    try:
        yield
    finally:
        release()


def _acquire(
    folder: Path, waiting: Callable[[], None] | None, make: Callable[[Path], None]
) -> Callable[[], None]:
    """Return what frees the lock again."""
    from filelock import FileLock, Timeout

    path = folder / "lock"
    for _ in range(_ATTEMPTS):
        make(folder)
        lock = FileLock(path, thread_local=False)
        try:
            try:
                lock.acquire(timeout=0)
            except Timeout:
                if waiting is not None:
                    waiting()
                    waiting = None
                lock.acquire(poll_interval=_POLL)
            make(folder)
        except FileNotFoundError:  # the folder was removed at this moment
            lock.release()
            continue
        except BaseException:
            lock.release()
            raise
        if path.exists():
            return lock.release
        lock.release()  # the folder was removed while we waited: no other process uses this lock
    raise InputError(
        f"{folder} keeps being removed", fix="stop the other process, or use another folder"
    )
