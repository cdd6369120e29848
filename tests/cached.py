"""What a cache holds, for tests that compare caches or damage them."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path


def contents(folder: Path) -> dict[str, object]:
    """Every file of samples, byte by byte, and what the index says; not how long it took."""
    held: dict[str, object] = {
        str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*.bin")
    }
    with closing(sqlite3.connect(folder / "index.sqlite")) as index:
        for table in ("about", "segment", "fill"):
            held[table] = sorted(index.execute(f"SELECT * FROM {table}"))
    return held


@contextmanager
def changing(folder: Path) -> Iterator[sqlite3.Connection]:
    """Let an attacker write to the index."""
    with closing(sqlite3.connect(folder / "index.sqlite")) as index, index:
        yield index


def flip(path: Path, at: int, mask: int = 0x10) -> None:
    """Flip bits of one byte."""
    content = bytearray(path.read_bytes())
    content[at] ^= mask
    path.write_bytes(content)
