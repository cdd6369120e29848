"""What the samples of a cache took to make: a line for every stretch of work, in one file.

Runs that find their samples in a cache can so say what these cost, whoever made them.
"""

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from fedeas.errors import InputError
from fedeas.files import sealed, unsealed

FILE = "spent.jsonl"
_EVERY = 5.0  # seconds of work after which a line is written: a kill loses no more


@dataclass(frozen=True)
class Spent:
    """Images, and the seconds of generating and writing them."""

    made: int
    seconds: float


class Meter:
    """Notes what a fill spends; lines of several processes do not disturb each other."""

    def __init__(self, cache: Path) -> None:
        self._file = cache / FILE
        self._made, self._seconds = 0, 0.0

    def add(self, made: int, seconds: float) -> None:
        """Note the samples of a batch."""
        self._made += made
        self._seconds += seconds
        if self._seconds >= _EVERY:
            self.write()

    def write(self) -> None:
        """Write down what is not written yet."""
        if not self._made:
            return
        line = sealed({"made": self._made, "seconds": round(self._seconds, 6)})
        handle = os.open(self._file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(handle, line.encode())
        finally:
            os.close(handle)
        self._made, self._seconds = 0, 0.0


def spent(cache: Path) -> Spent:
    """Return what a cache's samples took in all; lines that are damaged are left out."""
    made, seconds = 0, 0.0
    with suppress(OSError):  # there is none: nothing is known
        text = (cache / FILE).read_text(encoding="utf-8", errors="replace")
        for line in text.splitlines(keepends=True):
            with suppress(InputError, KeyError, TypeError, ValueError):
                body = unsealed(line, FILE)
                made, seconds = made + int(body["made"]), seconds + float(body["seconds"])
    return Spent(made, seconds)
