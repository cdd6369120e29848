"""What a cache holds, for tests that compare caches or damage them."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path


def contents(folder: Path) -> dict[str, object]:
    """All that a cache holds, byte by byte; not how long it took, nor the order of its blocks."""
    with closing(sqlite3.connect(folder / "samples.sqlite")) as database:
        return {
            "about": list(database.execute("SELECT * FROM about")),
            "block": sorted(database.execute("SELECT client, head, samples FROM block")),
            "fill": sorted(database.execute("SELECT * FROM fill")),
        }


@contextmanager
def changing(folder: Path) -> Iterator[sqlite3.Connection]:
    """Let an attacker write to the database."""
    with closing(sqlite3.connect(folder / "samples.sqlite")) as database, database:
        yield database


def flip_samples(folder: Path) -> None:
    """Flip a bit in the last block's samples."""
    with closing(sqlite3.connect(folder / "samples.sqlite")) as database:
        ((values,),) = database.execute("SELECT samples FROM block ORDER BY id DESC LIMIT 1")
    path = folder / "samples.sqlite"
    flip(path, path.read_bytes().index(values) + len(values) - 1)


def flip(path: Path, at: int, mask: int = 0x10) -> None:
    """Flip bits of one byte."""
    content = bytearray(path.read_bytes())
    content[at] ^= mask
    path.write_bytes(content)
