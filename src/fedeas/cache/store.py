"""`Cache`: a folder of generated samples, known by generator, classes and seed.

    <base>/<key>/samples.sqlite                the samples
    <base>/<key>/lock, clients/<client>/lock   held by the process that fills

Only the user who made a cache may look into it: how many samples of a class there are tells about
the labels.
"""

import functools
import hashlib
import json
import re
import shutil
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedeas._internal import defaults
from fedeas._internal.files import locked, private_folder, refuse_links
from fedeas.cache.database import (
    FILE,
    FORMAT,
    Block,
    DamagedError,
    Database,
    Ints,
    Segment,
    Work,
    create_database,
    missing_segments,
    open_database,
    replace_damaged,
)
from fedeas.data.kinds import Array
from fedeas.errors import InputError
from fedeas.generators import Classes, Generator, check_classes, count_classes

NAME = re.compile(r"[0-9a-f]{16}")  # of a cache's folder


class Cache:
    """The samples of one generator and seed, for all clients on this machine.

    Parameters
    ----------
    base : Path or str
        The folder of caches.
    generator : Generator
        What draws the samples; known by its fingerprint.
    classes : sequence of str or int
        The names of the classes, or how many there are. A generator's own names go before them,
        since data sets spell them differently.
    seed : int
        Another seed gives other samples.

    """

    def __init__(
        self, base: Path | str, generator: Generator, classes: Classes, seed: int = defaults.SEED
    ) -> None:
        check_classes(classes, generator)
        names = getattr(generator, "classes", None)
        identity = count_classes(classes) if names is None else [*names]
        self._open(Path(base), generator.fingerprint, _hash(json.dumps(identity)), seed)

    @classmethod
    def at(cls, folder: Path | str) -> "Cache":
        """Open a cache by its own folder."""
        folder = Path(folder)
        with open_database(folder / FILE) as database:
            about = database.about()
        if not re.fullmatch("[0-9]{1,19}", about["seed"]):
            raise DamagedError(folder / FILE, "its seed is not a number")
        cache = cls.__new__(cls)
        cache._open(folder.parent, about["generator"], about["classes"], int(about["seed"]))
        if cache.folder.name != folder.name:
            raise InputError(f"{folder} was renamed", fix=f"call it {cache.folder.name}")
        return cache

    def _open(self, base: Path, generator: str, classes: str, seed: int) -> None:
        if not isinstance(generator, str) or not generator.isprintable():  # `cache list` shows it
            raise InputError("a generator's fingerprint must be printable text", got=generator)
        if (base / FILE).exists():
            raise InputError(
                f"{base} is a cache, not a folder of caches",
                fix=f"pass the folder above, {base.parent}",
            )
        self._identity = [generator, classes, seed]
        # The first version named folders so; that of every version since is the same.
        key = {"format": "cache/1", "generator": generator, "data": classes, "seed": seed}
        self.folder = base / _hash(json.dumps(key))[:16]
        self.about = {
            "format": FORMAT, "generator": generator, "classes": classes, "seed": str(seed),
        }  # fmt: skip

    def nearly_the_same(self) -> list[str]:
        """Say which caches in the same folder differ from this one in the seed or classes alone.

        Whoever is about to generate everything again may have meant one of them.
        """
        said = []
        for folder in caches(self.folder.parent):
            with suppress(InputError, OSError):
                other = Cache.at(folder).about
                differing = [what for what, ours in self.about.items() if other[what] != ours]
                if differing == ["seed"]:
                    said.append(f"{folder} has this generator's samples for seed {other['seed']}")
                elif differing == ["classes"]:
                    said.append(f"{folder} has this generator's samples for other classes")
        return [f"all samples are generated, although {other}" for other in said]

    def clients_by_table(self, client: str) -> tuple[str, ...]:
        """Return the clients of this cache if they have names as in a table, and `client` a number.

        `fedeas fill` takes names from the plan, and an app may number the same clients.
        """
        if not client.isdecimal() or not self._exists():
            return ()
        with self.open() as database:
            names = dict.fromkeys(block.client for block in database.blocks())
        return () if any(name.isdecimal() for name in names) else tuple(names)

    @property
    def file(self) -> Path:
        """The database of samples."""
        return self.folder / FILE

    def client_folder(self, client: str) -> Path:
        """Return where a client has its lock."""
        return self.folder / "clients" / _hash(client)[:16]

    def seeds(self, client: str, segment: Segment) -> NDArray[np.uint64]:
        """Return the seeds of samples: the hash of all that a sample is known by."""
        head = hashlib.sha256(json.dumps([*self._identity, client, segment.label]).encode())
        digests = []
        for index in range(segment.start, segment.stop):
            digest = head.copy()
            digest.update(b"/%d" % index)
            digests.append(digest.digest()[:8])
        return np.frombuffer(b"".join(digests), "<u8").astype(np.uint64)

    def missing(self, client: str, wanted: Sequence[int]) -> list[Segment]:
        """Return the samples that are wanted and not there, class by class."""
        check_client(client)
        if not self._exists():
            return missing_segments([], wanted)
        with self.open() as database:
            return missing_segments(_segments(database.blocks(client)), wanted)

    def samples(self, client: str, wanted: Sequence[int]) -> tuple[Array, Ints]:
        """Return a client's first `wanted[c]` samples of every class c, and their labels.

        A smaller plan is a prefix of a larger one. Samples that are not as they were written are
        refused.
        """
        check_client(client)
        samples: Array = np.empty((0, 0))
        missing = missing_segments([], wanted)
        if self._exists():
            with self.open() as database:
                blocks = database.blocks(client)
                if not (missing := missing_segments(_segments(blocks), wanted)):
                    samples = self._read(database, blocks, wanted)
        if missing:
            first = missing[0]
            raise InputError(
                f"client {client!r} lacks samples of class {first.label}",
                got=f"{first.start} of {wanted[first.label]}",
                fix="run `fedeas fill` with this plan",
            )
        return samples, np.repeat(np.arange(len(wanted), dtype=np.int64), wanted)

    def _read(self, database: Database, blocks: list[Block], wanted: Sequence[int]) -> Array:
        """Return the samples of blocks that are wanted, class by class."""
        offsets = np.cumsum([0, *wanted])  # where each class begins
        samples: Array | None = None
        for block in blocks:
            if not any(_wanted(segment, wanted) for segment in block.segments):
                continue
            values = database.read(block)
            if samples is None:
                samples = np.empty((int(offsets[-1]), *values.shape[1:]), values.dtype)
            elif (samples.shape[1:], samples.dtype) != (values.shape[1:], values.dtype):
                raise InputError(
                    f"{self.folder} holds samples of several shapes",
                    got=f"{samples.shape[1:]} and {values.shape[1:]}",
                    fix="delete that folder: its samples are then generated again",
                )
            at = 0
            for segment in block.segments:
                if size := _wanted(segment, wanted):
                    begin = offsets[segment.label] + segment.start
                    samples[begin : begin + size] = values[at : at + size]
                at += segment.size
        return np.empty((0, 0)) if samples is None else samples

    def _exists(self) -> bool:
        return self.file.exists()

    @contextmanager
    def open(self) -> Iterator[Database]:
        """Open the file; that of another cache, moved here, is refused: its samples are wrong."""
        with open_database(self.file) as database:
            about = database.about()
            for what, ours in self.about.items():
                if about[what] != ours:
                    raise InputError(
                        f"{self.folder} holds samples of another {what}",
                        got=about[what],
                        allowed=ours,
                        fix="move it back to where it was, or choose another folder of caches",
                    )
            yield database

    def prepare(self) -> None:
        """Create the file where there is none; call it while the cache is locked."""
        private_folder(self.folder)
        private_folder(self.folder / "clients")
        refuse_links(self.file)
        if not self._exists():
            create_database(self.file, self.about)

    def mend(self, client: str | None = None) -> list[str]:
        """Remove damaged samples, and say what was wrong.

        Call it while the cache is locked, or, to mend the samples of one client, while that is.
        """
        reasons = []
        refuse_links(self.file)
        if client is None:
            try:
                self.prepare()
                with self.open() as database:
                    database.check(to_write=True)
            except DamagedError as error:  # the structure of the file
                replace_damaged(self.file, self.about)
                reasons.append(error.what)
        with self.open() as database:
            if problems := list(database.problems(client)):
                database.remove(number for number, _ in problems)
        return list(dict.fromkeys([*reasons, *(why for _, why in problems)]))


# Locks. That of a cache is a gate. Whoever fills one client passes it: holds the cache only until
# the client's own lock is held, and generates behind it, while others pass. Whoever wants the whole
# cache holds the gate, so that no other process passes, and waits for those behind it.


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


# Maintenance: what caches there are, what they hold, what is damaged, and removing them.


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
    """Return the folders of all caches below a folder, also those whose file is lost."""
    folders = {path.parent for name in (FILE, "clients") for path in base.glob(f"*/{name}")}
    return sorted(path for path in folders if NAME.fullmatch(path.name))


def verify(folder: Path) -> Iterator[str]:
    """Read everything in a cache and yield what is damaged; nothing is changed."""
    try:
        with Cache.at(folder).open() as database:
            database.check()
            for _, why in database.problems():
                yield why
    except InputError as error:
        yield error.what


def summary(folder: Path) -> Summary:
    """Count what a cache holds."""
    size = sum(map(file_size, folder.rglob("*")))
    try:
        cache = Cache.at(folder)
        with cache.open() as database:
            blocks = database.blocks()
    except (InputError, OSError) as error:
        return Summary(folder, "?", None, 0, 0, size, str(error))
    clients = len({block.client for block in blocks})
    samples = sum(block.shape[0] for block in blocks)
    about = cache.about
    return Summary(folder, about["generator"], int(about["seed"]), clients, samples, size)


def file_size(path: Path) -> int:
    """Return the size of a file; a fill under way makes some and removes them again."""
    try:
        info = path.stat()
    except OSError:
        return 0
    return info.st_size if stat.S_ISREG(info.st_mode) else 0


def work(folder: Path) -> Work:
    """Return how many samples were generated into a cache, and how long that took."""
    with suppress(InputError, OSError), open_database(folder / FILE) as database:
        return database.work()
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


def check_client(name: str) -> None:
    """Refuse what cannot be stored as a client's name."""
    try:
        name.encode()
    except UnicodeEncodeError:
        raise InputError("not the name of a client", got=ascii(name)) from None


def _segments(blocks: Sequence[Block]) -> Iterator[Segment]:
    return (segment for block in blocks for segment in block.segments)


def _wanted(segment: Segment, wanted: Sequence[int]) -> int:
    """Return how many samples of a segment are wanted: its first ones."""
    if segment.label >= len(wanted):
        return 0
    return max(0, min(segment.stop, wanted[segment.label]) - segment.start)


def _hash(text: str) -> str:
    # `surrogatepass`: the text may come from a hostile file.
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()
