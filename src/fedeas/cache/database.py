"""The file of a cache: a SQLite database with the samples in blocks, each with its hash.

    about   what the samples come from
    block   samples of one client, out of one batch; `head` says which, and the hash of their bytes
    fill    the requests of fills under way
    work    how many samples were generated, and the seconds that this took

A transaction adds the samples of a whole batch or none of them, so a process can be killed at any
moment. Whoever may write to the folder can write anything into the file: what it says is checked.
"""

import errno
import hashlib
import json
import math
import os
import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import msgspec
import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from fedeas._internal.files import sealed, unsealed, unwritable
from fedeas.data.kinds import Array
from fedeas.errors import InputError

Ints = NDArray[np.int64]
FILE = "samples.sqlite"
FORMAT = "cache/3"
REPAIR = "run `fedeas fill` or `augment` again: damaged or missing samples are generated again"
_SCHEMA = (
    "CREATE TABLE about (sealed TEXT)",
    "CREATE TABLE block (id INTEGER PRIMARY KEY, client TEXT, head TEXT, samples BLOB)",
    "CREATE INDEX by_client ON block (client)",
    "CREATE TABLE fill (owner TEXT PRIMARY KEY, wanted TEXT, requests TEXT) WITHOUT ROWID",
    "CREATE TABLE work (made INTEGER, seconds REAL)",
)
_ABOUT = {"format", "generator", "classes", "seed"}
_PAGE = 8192  # bytes; SQLite's own tests have larger blobs fastest at 8 or 16 KiB
_MAPPED = 1 << 30  # bytes of the file that are read without a copy into SQLite's own memory
_PATIENCE = 60.0  # seconds to wait for another process's transaction
_READ_ONLY = {sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM}
_LARGEST_BLOB = 999_000_000  # bytes; SQLite takes 10**9, with the head
# Blocks that this process has hashed, by file, and what the file looked like then.
_verified: dict[Path, tuple[tuple[int, ...], set[int]]] = {}
# A file may change twice within one tick of the clock that dates it: only older ones are trusted.
_SETTLED = 2_000_000_000  # nanoseconds


_Index = Annotated[int, Meta(ge=0, lt=2**53)]
_Size = Annotated[int, Meta(ge=1, lt=2**53)]


class Segment(NamedTuple):
    """Consecutive samples of one class: indices start to stop - 1."""

    label: _Index
    start: _Index
    stop: _Index

    @property
    def size(self) -> int:
        """The number of samples."""
        return self.stop - self.start


Request = tuple[str, Segment]  # samples of a client


class Block(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A client's segments, in this order, and what their samples look like."""

    number: int
    client: str
    segments: tuple[Segment, ...]
    shape: Annotated[tuple[_Size, ...], Meta(min_length=2)]
    # Integers or floating-point numbers, little-endian.
    dtype: Annotated[str, Meta(pattern=r"^(\|[ui]1|<[ui][248]|<f[248])\Z")]
    samples: str  # the hash of their bytes

    def __post_init__(self) -> None:
        if any(segment.size < 1 for segment in self.segments):
            raise ValueError("an empty segment")
        if sum(segment.size for segment in self.segments) != self.shape[0]:
            raise ValueError("its segments are not its samples")

    @property
    def size(self) -> int:
        """The number of bytes."""
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize


@dataclass(frozen=True)
class Work:
    """How many samples were generated into a cache, and the seconds that this took."""

    made: int
    seconds: float


class DamagedError(InputError):
    """The file of a cache is not as it was written."""

    def __init__(self, path: Path, why: str = "") -> None:
        super().__init__(f"{path} is damaged{': ' if why else ''}{why}", fix=REPAIR)


def missing_segments(held: Iterable[Segment], wanted: Sequence[int]) -> list[Segment]:
    """Return what of 0 .. wanted[c] - 1 is in no segment, in order.

    >>> missing_segments([Segment(0, 0, 2), Segment(0, 5, 9)], [7])
    [Segment(label=0, start=2, stop=5)]
    """
    by_label: dict[int, list[tuple[int, int]]] = {}
    for label, start, stop in held:
        by_label.setdefault(label, []).append((start, stop))
    missing = []
    for label, end in enumerate(int(w) for w in wanted):
        at = 0
        for start, stop in sorted(by_label.get(label, ())):
            if at < min(start, end):
                missing.append(Segment(label, at, min(start, end)))
            at = max(at, stop)
        if at < end:
            missing.append(Segment(label, at, end))
    return missing


class Database:
    """An open file of samples."""

    def __init__(
        self, path: Path, connection: sqlite3.Connection, looks: tuple[int, ...] = ()
    ) -> None:
        self._path, self._connection = path, connection
        self._looks = looks  # what tells the file from a changed one: its time first

    def about(self) -> dict[str, str]:
        """Return what the samples come from: the generator, the classes and the seed."""
        for (line,) in self._rows("SELECT sealed FROM about", str):
            with suppress(InputError, msgspec.ValidationError):
                about = msgspec.convert(unsealed(line, ""), dict[str, str])
                if about.keys() == _ABOUT and about["format"] == FORMAT:
                    return about
        raise DamagedError(self._path, f"its format is not {FORMAT}")

    def blocks(self, client: str | None = None) -> list[Block]:
        """Return the blocks of a client, or of all of them, without their samples."""
        return [self._block(row) for row in self._heads(client)]

    def read(self, block: Block, again: bool = False) -> Array:
        """Return the samples of a block, and refuse those that are not as they were written.

        They are hashed when this process first reads them, whenever the file has changed, and where
        they are to be hashed `again`.
        """
        # Each block by itself, so that no other process waits for long to write.
        place = ("block", "samples", block.number)
        with _errors(self._path), self._connection.blobopen(*place, readonly=True) as blob:
            values = blob.read()
        looks, numbers = _verified.get(self._path, ((), set()))
        trusted = looks == self._looks and block.number in numbers and not again
        whole = trusted or _digest(values) == block.samples
        if not whole or len(values) != block.size:
            raise DamagedError(self._path, f"samples of client {block.client!a}")
        if not trusted and time.time_ns() - self._looks[0] > _SETTLED:
            if looks != self._looks:
                _verified[self._path] = (self._looks, numbers := set())
            numbers.add(block.number)
        return np.frombuffer(values, block.dtype).reshape(block.shape)

    def problems(self, client: str | None = None) -> Iterator[tuple[int, str]]:
        """Read every block of a client, or of all, and yield those that are damaged, and why."""
        spans: dict[tuple[str, int], list[tuple[int, int, int]]] = {}
        for row in self._heads(client):
            try:
                block = self._block(row)
                self.read(block, again=True)
            except InputError as error:
                yield row[0], error.what
                continue
            for label, start, stop in block.segments:
                spans.setdefault((block.client, label), []).append((start, stop, block.number))
        twice = set()
        for of_class in spans.values():
            end = 0
            for start, stop, number in sorted(of_class):
                if start < end:
                    twice.add(number)
                end = max(end, stop)
        yield from ((n, f"{self._path} is damaged: it holds samples twice") for n in sorted(twice))

    def add(self, parts: Sequence[tuple[str, Sequence[Segment], Array]], seconds: float) -> None:
        """Enter the samples of a batch, all or none, and the work that they took."""
        rows = [
            (client, *_encode(client, segments, samples)) for client, segments, samples in parts
        ]
        if max(len(content) for *_, content in rows) > _LARGEST_BLOB:
            raise InputError("a batch of samples is too large", fix="use a smaller batch size")
        size = sum(len(samples) for _, _, samples in parts)
        with self._connection:
            self._connection.executemany(
                "INSERT INTO block (client, head, samples) VALUES (?, ?, ?)", rows
            )
            self._connection.execute(
                "UPDATE work SET made = made + ?, seconds = seconds + ?", (size, seconds)
            )

    def remove(self, numbers: Iterable[int]) -> None:
        """Forget blocks."""
        with self._connection:
            self._connection.executemany(
                "DELETE FROM block WHERE id = ?", ((number,) for number in numbers)
            )

    def begin_fill(self, owner: str, wanted: str, requests: Sequence[Request]) -> None:
        """Note the requests of a fill, so that it goes on with the same batches once killed."""
        with self._connection:
            self._connection.execute(
                "INSERT OR REPLACE INTO fill VALUES (?, ?, ?)",
                (owner, wanted, json.dumps(requests)),
            )

    def fill_under_way(
        self, owner: str, wanted: str, limits: Mapping[str, Sequence[int]]
    ) -> list[Request] | None:
        """Return the requests of the fill for what is `wanted`, if one was begun and not ended."""
        query = "SELECT wanted, requests FROM fill WHERE owner = ?"
        for noted, requests in self._rows(query, str, str, values=(owner,)):
            with suppress(ValueError, RecursionError, msgspec.ValidationError):
                entries = msgspec.convert(json.loads(requests), list[Request])
                # A fill never notes what is not wanted.
                if noted == wanted and all(_within(entry, limits) for entry in entries):
                    return entries
        return None

    def end_fill(self, owner: str) -> None:
        """Forget the requests of a fill that is complete."""
        with self._connection:
            self._connection.execute("DELETE FROM fill WHERE owner = ?", (owner,))

    def work(self) -> Work:
        """Return the work that all samples took so far."""
        for made, seconds in self._rows("SELECT made, seconds FROM work", int, float):
            return Work(made, seconds)
        return Work(0, 0.0)

    def check(self, to_write: bool = False) -> None:
        """Refuse a database whose structure is damaged, or which cannot be written to."""
        if to_write:
            self._connection.execute("UPDATE work SET made = made")
            self._connection.rollback()
        answer = self._connection.execute("PRAGMA integrity_check(1)").fetchone()
        if answer != ("ok",):
            raise DamagedError(self._path, str(answer[0]).splitlines()[-1])
        self.work()
        for _ in self._rows("SELECT owner, wanted, requests FROM fill", str, str, str):
            pass

    def copy_blocks(self, source: Path) -> None:
        """Copy all blocks that can still be read of a damaged database."""
        numbers: set[int] = set()
        with closing(_connect(source, "ro")) as damaged:
            query = "SELECT sql FROM sqlite_master WHERE name = 'block'"
            with suppress(sqlite3.Error):
                if damaged.execute(query).fetchall() != [(_SCHEMA[1],)]:
                    return  # a view, for example, which may never end
            for order in ("ASC", "DESC"):  # up to a damaged page, from both of its sides
                with suppress(sqlite3.Error):
                    for (number,) in damaged.execute(f"SELECT id FROM block ORDER BY id {order}"):  # noqa: S608
                        numbers.add(number)
            query = "SELECT id, client, head, samples FROM block WHERE id = ?"
            for number in sorted(numbers):
                with suppress(sqlite3.Error), self._connection:
                    row = damaged.execute(query, (number,)).fetchone()
                    self._connection.execute("INSERT INTO block VALUES (?, ?, ?, ?)", row)

    def _heads(self, client: str | None) -> list[tuple[int, object, object]]:
        """Return number, client and head of blocks, which are not checked yet."""
        where, values = ("", ()) if client is None else ("WHERE client = ? ", (client,))
        query = f"SELECT id, client, head FROM block {where}ORDER BY id"  # noqa: S608
        return self._connection.execute(query, values).fetchall()

    def _block(self, row: tuple[int, object, object]) -> Block:
        number, client, head = row
        try:
            values = unsealed(head, "") if isinstance(head, str) else {}
            block = msgspec.convert({**values, "number": number}, Block)
        except (TypeError, InputError, msgspec.ValidationError):
            block = None
        if block is None or block.client != client:
            raise DamagedError(self._path, "samples of unknown origin")
        return block

    def _rows(
        self, query: str, *kinds: type, values: tuple[object, ...] = ()
    ) -> Iterator[tuple[Any, ...]]:
        """Yield rows whose values are of these types: SQLite stores any type in any column."""
        for row in self._connection.execute(query, values):
            if [type(value) for value in row] != list(kinds):
                raise DamagedError(self._path, "a value of a wrong type")
            yield row


@contextmanager
def open_database(path: Path) -> Iterator[Database]:
    """Open the file of a cache."""
    if path.is_dir():
        raise InputError(
            f"{path} is a folder, and must be a file of samples",
            fix="move it away: samples are then generated again",
        )
    if not path.is_file():  # opening a pipe would wait for its other end
        raise DamagedError(path, "it is not a file" if path.exists() else "it is gone")
    with _errors(path):
        info = path.stat()
        looks = (info.st_mtime_ns, info.st_ctime_ns, info.st_size, info.st_ino, info.st_dev)
        # Not `ro`: what a killed process left half-done is rolled back first.
        with closing(_connect(path, "rw")) as connection:
            connection.execute(f"PRAGMA mmap_size = {_MAPPED}")
            statements = connection.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL")
            if {sql for (sql,) in statements} != set(_SCHEMA):
                raise DamagedError(path, "it has other tables")
            yield Database(path, connection, looks)


def _connect(path: Path, mode: str) -> sqlite3.Connection:
    uri = f"{path.absolute().as_uri()}?mode={mode}"
    connection = sqlite3.connect(uri, timeout=_PATIENCE, uri=True, isolation_level="IMMEDIATE")
    # What is not text is found by its hash.
    connection.text_factory = lambda text: text.decode(errors="replace")
    return connection


def create_database(path: Path, about: Mapping[str, str]) -> None:
    """Create the file of a cache, for the present user alone; call it while the cache is locked."""
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    with _errors(path), closing(_connect(path, "rw")) as connection:
        connection.execute(f"PRAGMA page_size = {_PAGE}")
        with connection:
            connection.execute("BEGIN EXCLUSIVE")
            for statement in _SCHEMA:
                connection.execute(statement)
            connection.execute("INSERT INTO about VALUES (?)", (sealed(about),))
            connection.execute("INSERT INTO work VALUES (0, 0.0)")


def replace_damaged(path: Path, about: Mapping[str, str]) -> None:
    """Replace a damaged file by one with all blocks that can still be read."""
    new = path.with_name(f"{path.name}.mended")
    for leftover in path.parent.glob(f"{new.name}*"):
        leftover.unlink()
    create_database(new, about)
    if path.is_file():
        with open_database(new) as database:
            database.copy_blocks(path)
    # A journal of the damaged file would be played back into the new one.
    for journal in path.parent.glob(f"{path.name}-*"):
        journal.unlink()
    new.replace(path)


@contextmanager
def _errors(path: Path) -> Iterator[None]:
    """Turn SQLite's errors into ours and the operating system's."""
    try:
        yield
    except UnicodeDecodeError:  # names in the file, which SQLite repeats in its message
        raise DamagedError(path, "names in it are not text") from None
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        refused = not (os.access(path.parent, os.W_OK) and os.access(path, os.W_OK))
        if code in _READ_ONLY and refused:  # if not, the file says so itself
            raise PermissionError(errno.EACCES, "Permission denied", str(path)) from None
        if code in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR):
            number = errno.ENOSPC if code == sqlite3.SQLITE_FULL else errno.EIO
            raise unwritable(path, OSError(number, os.strerror(number))) from None
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            raise InputError(
                f"{path} has been in use by another process for {_PATIENCE:.0f} s",
                fix="try again when that is done",
            ) from None
        raise DamagedError(path, str(error)) from None


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _encode(client: str, segments: Sequence[Segment], samples: Array) -> tuple[str, bytes]:
    """Return the head of a block and its samples; the same samples give the same bytes."""
    values = np.ascontiguousarray(samples, samples.dtype.newbyteorder("<"))
    content = values.tobytes()
    head = {
        "client": client,
        "segments": segments,
        "shape": values.shape,
        "dtype": values.dtype.str,
        "samples": _digest(content),
    }
    return sealed(head), content


def _within(request: Request, limits: Mapping[str, Sequence[int]]) -> bool:
    client, segment = request
    counts = limits.get(client, ())
    return (
        segment.size > 0 and segment.label < len(counts) and segment.stop <= counts[segment.label]
    )
