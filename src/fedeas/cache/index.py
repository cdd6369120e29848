"""The index of a cache: a SQLite database that says which samples there are, and where.

A transaction adds the samples of a whole batch or none of them. Whoever may write to the folder can
write anything into the database, so what it says is checked, and blocks say themselves what they
hold.
"""

import errno
import json
import os
import re
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from fedeas.cache.block import Block, DamagedError, Segment, parse_segment
from fedeas.errors import InputError
from fedeas.files import sealed, unsealed, unwritable

FILE = "index.sqlite"
SAMPLES = "samples.bin"
Request = tuple[str, Segment]
_SCHEMA = (
    "CREATE TABLE about (sealed TEXT)",
    "CREATE TABLE segment (client TEXT, label INTEGER, start INTEGER, stop INTEGER, file TEXT, "
    "offset INTEGER, place INTEGER, size INTEGER, PRIMARY KEY (client, label, start)) "
    "WITHOUT ROWID",
    "CREATE INDEX by_file ON segment (file, offset, place)",
    "CREATE TABLE fill (owner TEXT PRIMARY KEY, wanted TEXT, requests TEXT) WITHOUT ROWID",
    "CREATE TABLE work (made INTEGER, seconds REAL)",
)
_SAMPLES_FILE = re.compile(rf"(clients/[A-Za-z0-9_-]+/)?{re.escape(SAMPLES)}")
_PATIENCE = 60.0  # seconds to wait for another process's transaction
_READ_ONLY = {sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM}


@dataclass(frozen=True)
class Work:
    """How many samples were generated into a cache, and the seconds that this took."""

    made: int
    seconds: float


class Index:
    """An open index."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self._path, self._connection = path, connection

    def about(self) -> dict[str, str]:
        """Return what the samples come from; it has a hash, since no block tells."""
        for (line,) in self._rows("SELECT sealed FROM about", str):
            with suppress(InputError):
                found = unsealed(line, str(self._path))
                if isinstance(found, dict) and all(isinstance(v, str) for v in found.values()):
                    return found
        raise DamagedError(self._path)

    def blocks(self, client: str | None = None) -> Iterator[tuple[str, Block]]:
        """Yield the blocks of a client, or of all of them, with the file that each is in."""
        where = "" if client is None else "WHERE client = ? "
        rows = self._rows(
            "SELECT client, label, start, stop, file, offset, size FROM segment "  # noqa: S608
            f"{where}ORDER BY file, offset, place",
            str, int, int, int, str, int, int,
            values=() if client is None else (client,),
        )  # fmt: skip
        for (name, file, offset, size), group in groupby(rows, lambda r: (r[0], *r[4:])):
            if not _SAMPLES_FILE.fullmatch(file) or offset < 0 or size < 1:
                raise DamagedError(self._path, "not a file of samples")
            yield file, Block(name, tuple(self._segment(row[1:4]) for row in group), offset, size)

    def segments(self, client: str) -> list[Segment]:
        """Return the samples that there are of a client, class by class."""
        query = "SELECT label, start, stop FROM segment WHERE client = ? ORDER BY label, start"
        return [self._segment(r) for r in self._rows(query, int, int, int, values=(client,))]

    def holds(self, requests: Sequence[Request]) -> bool:
        """Tell whether all of these segments are there, each in one piece."""
        query = "SELECT 1 FROM segment WHERE client = ? AND label = ? AND start = ? AND stop = ?"
        return all(
            self._connection.execute(query, (client, *segment)).fetchone()
            for client, segment in requests
        )

    def add(self, file: str, blocks: Sequence[Block], work: Work | None = None) -> None:
        """Enter blocks of a file, all or none, and the work that they took."""
        rows = []
        for block in blocks:
            place = 0
            for segment in block.segments:
                rows.append((block.client, *segment, file, block.offset, place, block.size))
                place += segment.size
        with self._connection:
            self._connection.executemany(
                "INSERT OR REPLACE INTO segment VALUES (?, ?, ?, ?, ?, ?, ?, ?)", rows
            )
            if work is not None:
                self._connection.execute(
                    "UPDATE work SET made = made + ?, seconds = seconds + ?",
                    (work.made, work.seconds),
                )

    def remove(self, file: str, offset: int) -> None:
        """Forget a block."""
        with self._connection:
            self._connection.execute(
                "DELETE FROM segment WHERE file = ? AND offset = ?", (file, offset)
            )

    def end_of(self, file: str) -> int:
        """Return where the last block of a file ends."""
        query = "SELECT COALESCE(MAX(offset + size), 0) FROM segment WHERE file = ?"
        ((end,),) = self._rows(query, int, values=(file,))
        return int(end)

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
            with suppress(ValueError, TypeError, RecursionError):
                if noted == wanted:
                    return [_parse_request(entry, limits) for entry in json.loads(requests)]
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

    def totals(self) -> tuple[int, int]:
        """Return the number of clients and of samples."""
        query = "SELECT COUNT(DISTINCT client), COALESCE(SUM(stop - start), 0) FROM segment"
        ((clients, samples),) = self._rows(query, int, int)
        return clients, samples

    def check(self, to_write: bool = False) -> None:
        """Read all of the database, and refuse one that is damaged, or cannot be written to."""
        if to_write:
            self._connection.execute("UPDATE work SET made = made")
            self._connection.rollback()
        if (said := self._connection.execute("PRAGMA integrity_check(1)").fetchone()) != ("ok",):
            raise DamagedError(self._path, str(said[0]).splitlines()[-1])
        for _ in self.blocks():
            pass
        self.work()

    def _rows(
        self, query: str, *kinds: type, values: tuple[object, ...] = ()
    ) -> Iterator[tuple[Any, ...]]:
        """Yield rows whose values are of these types: SQLite stores any type in any column."""
        for row in self._connection.execute(query, values):
            if [type(value) for value in row] != list(kinds):
                raise DamagedError(self._path, "a value of a wrong type")
            yield row

    def _segment(self, row: Sequence[object]) -> Segment:
        try:
            return parse_segment(tuple(row))
        except ValueError as error:
            raise DamagedError(self._path, str(error)) from None


@contextmanager
def open_index(path: Path) -> Iterator[Index]:
    """Open an index that exists."""
    if not path.is_file():
        raise DamagedError(path, "it is not a file" if path.exists() else "it is gone")
    with _errors(path):
        # Not `mode=ro`: what a killed process left half-done is rolled back first.
        uri = f"{path.absolute().as_uri()}?mode=rw"
        connection = sqlite3.connect(uri, timeout=_PATIENCE, uri=True)
        try:
            found = connection.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL")
            if {sql for (sql,) in found} != set(_SCHEMA):
                raise DamagedError(path, "it has other tables")
            yield Index(path, connection)
        finally:
            connection.close()


def create_index(path: Path, about: Mapping[str, str]) -> None:
    """Create an empty index; call it while the cache is locked."""
    with _errors(path):
        connection = sqlite3.connect(path, timeout=_PATIENCE, isolation_level=None)
        try:
            connection.execute("BEGIN EXCLUSIVE")
            for statement in _SCHEMA:
                connection.execute(statement)
            connection.execute("INSERT INTO about VALUES (?)", (sealed(about),))
            connection.execute("INSERT INTO work VALUES (0, 0.0)")
            connection.execute("COMMIT")
        finally:
            connection.close()


@contextmanager
def _errors(path: Path) -> Iterator[None]:
    """Turn SQLite's errors into ours and the operating system's."""
    try:
        yield
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
    except UnicodeDecodeError:
        raise DamagedError(path) from None


def _parse_request(entry: object, limits: Mapping[str, Sequence[int]]) -> Request:
    """Return one request; a fill never notes what is not wanted."""
    if not isinstance(entry, list) or len(entry) != 2 or not isinstance(entry[0], str):
        raise ValueError("not a request")
    client, segment = entry[0], parse_segment(entry[1])
    own = limits.get(client, ())
    if segment.label >= len(own) or segment.stop > own[segment.label]:
        raise ValueError("samples that are not wanted")
    return client, segment
