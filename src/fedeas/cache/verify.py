"""Maintenance of caches: what is damaged, what they hold, and removing them."""

import re
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from fedeas.cache.block import Block
from fedeas.cache.index import FILE, SAMPLES, Work, open_index
from fedeas.cache.locking import lock_cache
from fedeas.cache.mend import problems
from fedeas.cache.store import NAME, Cache
from fedeas.errors import InputError

_OURS = re.compile(rf"lock|{FILE}(-journal)?|(clients/[\w-]+/)?{SAMPLES}|clients/[\w-]+/lock")


@dataclass(frozen=True)
class Problem:
    """A file of a cache that is not as it was written, and what is wrong with it."""

    path: Path
    what: str


@dataclass(frozen=True)
class Summary:
    """What a cache holds; `wrong` says why it cannot be told."""

    folder: Path
    generator: str
    seed: int | None
    clients: int
    samples: int
    size: int  # bytes
    wrong: str | None = None


def caches(base: Path) -> list[Path]:
    """Return the folders of all caches below a folder, also those whose index is lost."""
    names = (FILE, SAMPLES, "clients", "cache.json")  # the last is of the first version
    found = {path.parent for name in names for path in base.glob(f"*/{name}")}
    return sorted(path for path in found if NAME.fullmatch(path.name))


def verify(folder: Path) -> Iterator[Problem]:
    """Read every file of a cache and yield what is damaged; nothing is changed."""
    path = folder / FILE
    found: list[tuple[str, Block]] = []
    try:
        cache = Cache.at(folder)
        with cache.open() as index:
            index.check()
            found = list(index.blocks())
    except InputError as error:
        yield Problem(path, error.what)
    for file, whys in groupby(problems(folder, found), key=lambda problem: problem[0]):
        yield Problem(folder / file, next(whys)[2])
    for path in sorted(folder.rglob("*")):
        if not path.is_dir() and not _OURS.fullmatch(path.relative_to(folder).as_posix()):
            yield Problem(path, "does not belong to the cache")


def summary(folder: Path) -> Summary:
    """Count what a cache holds."""
    size = sum(map(_size, folder.rglob("*")))
    try:
        about = Cache.at(folder).about
        with open_index(folder / FILE) as index:
            clients, samples = index.totals()
    except (InputError, OSError) as error:
        return Summary(folder, "?", None, 0, 0, size, str(error))
    return Summary(folder, about["generator"], int(about["seed"]), clients, samples, size)


def _size(path: Path) -> int:
    """Return the size of a file; a fill under way makes some and removes them again."""
    try:
        info = path.stat()
    except OSError:
        return 0
    return info.st_size if stat.S_ISREG(info.st_mode) else 0


def work(folder: Path) -> Work:
    """Return how many samples were generated into a cache, and how long that took."""
    with suppress(InputError, OSError), open_index(folder / FILE) as index:
        return index.work()
    return Work(0, 0.0)


def remove(folder: Path, waiting: Callable[[], None]) -> None:
    """Remove a cache; `waiting` is called if it is being filled, and raises."""
    if folder.is_symlink():
        raise InputError(f"{folder} is a link", fix="remove it by hand, and what it leads to")
    with lock_cache(folder, waiting):
        # The lock goes last. Windows refuses to remove it while it is held: it stays, alone.
        for entry in [path for path in folder.iterdir() if path.name != "lock"]:
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry)
            else:
                entry.unlink()
        with suppress(PermissionError):
            shutil.rmtree(folder)
