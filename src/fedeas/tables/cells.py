"""One cell of a text file as a whole number, or one line that says what to write instead."""

import re
from collections.abc import Iterable, Sequence
from decimal import Decimal
from itertools import islice
from pathlib import Path
from typing import NoReturn

from fedeas import parquet
from fedeas.errors import InputError

LARGEST = parquet.LARGEST
_COUNT = f"whole numbers from 0 to 2**53 ({LARGEST:,})"
_DECIMAL = re.compile(r"([0-9]{1,17})(?:\.([0-9]*))?([eE][+-]?[0-9]{1,3})?")
# 1.000, 12.345.678, 1,200, 1'200, 1 200 (also with the spaces that typesetters use)
_THOUSANDS = re.compile(
    r"[1-9][0-9]{0,2}(?:([.,'\u2019_ \u00a0\u2009\u202f])[0-9]{3})(?:\1[0-9]{3})*"
)
_DECIMAL_COMMA = re.compile(r"([0-9]+),([0-9]+)")
_DASHES = frozenset("-.\u2013\u2014\u2212\u00b7")  # also those of typesetters
_MISSING = frozenset(("nan", "na", "n/a", "#n/a", "null", "none", "missing", "nil", "k.a.", "?"))
_SUPPRESSED = re.compile(r"[<≤>≥].*|\*+|[0-9]+\s*[-\u2013]\s*[0-9]+")


class Cells:
    """Reads the cells of one file, and remembers how its other cells use a point.

    `1.000` is one or a thousand. It is one where the file writes decimals elsewhere (3.0, 0.000,
    1200.000), and otherwise `check` refuses it.
    """

    def __init__(self, path: Path, columns: Sequence[str] | None, if_words: str | None) -> None:
        self._path, self._columns, self._if_words = path, columns, if_words
        self._doubtful: tuple[str, int, int] | None = None
        self._decimals = False

    def whole(self, cell: str, line: int, place: int) -> int:
        """Return the count in a cell; `place` counts the columns from 0."""
        if cell.isascii() and cell.isdigit() and len(cell) <= 17:
            return self._small(int(cell), cell, line, place)
        match = _DECIMAL.fullmatch(cell)
        if match is None:
            self._refuse(cell, line, place)
        fraction = match[2]
        # A float would round 0.999... to one.
        exact = Decimal(cell)
        if exact > LARGEST or exact != exact.to_integral_value():
            self._refuse(cell, line, place)
        if fraction is not None:
            if _THOUSANDS.fullmatch(cell):
                self._doubtful = self._doubtful or (cell, line, place)
            else:
                self._decimals = True
        return self._small(int(exact), cell, line, place)

    def check(self) -> None:
        """Refuse a point that may separate thousands, once all cells are read."""
        if self._doubtful is not None and not self._decimals:
            self._refuse(*self._doubtful)

    def where(self, line: int, place: int) -> str:
        """Name a cell by its line and column."""
        column = str(place + 1) if self._columns is None else shown(self._columns[place])
        return f"{self._path} line {line}, column {column}"

    def _small(self, value: int, cell: str, line: int, place: int) -> int:
        return value if value <= LARGEST else self._refuse(cell, line, place)

    def _refuse(self, cell: str, line: int, place: int) -> NoReturn:
        where = self.where(line, place)
        word = cell.lower()
        if not cell:
            raise InputError(f"{where} is empty", fix="write 0 for none")
        if cell in _DASHES:
            raise InputError(f"{where} holds {cell!r}", fix="write 0 for none")
        if word in _MISSING:
            raise InputError(f"{where} holds {cell!r}", fix="write 0 for none, or remove the row")
        if cell.endswith("%"):
            raise InputError(
                f"{where} holds a percentage", got=cell, fix="write the number of samples"
            )
        if _SUPPRESSED.fullmatch(cell):
            raise InputError(
                f"{where} holds a range, not a number",
                got=cell,
                fix="write one whole number for it, such as 2 for <5",
            )
        if _THOUSANDS.fullmatch(cell):
            digits = re.sub("[^0-9]", "", cell)
            first, _, rest = cell.partition(".")
            decimal = f" or {first}" if rest and not rest.strip("0") else ""
            raise InputError(
                f"{where} holds {cell!r}: a thousands separator, or a decimal number?",
                fix=f"write {digits}{decimal}",
            )
        if match := _DECIMAL_COMMA.fullmatch(cell):
            whole = not match[2].strip("0")
            fix = f"write {match[1]}" if whole else "write whole numbers, without a comma"
            raise InputError(f"{where} holds a decimal number", got=cell, fix=fix)
        if any(c.isalpha() for c in cell) and not _DECIMAL.fullmatch(cell) and word != "inf":
            raise InputError(
                f"{where} holds a word, not a count", got=cell, fix=self._if_words or _COUNT
            )
        raise InputError(f"{where}: not a count", got=cell, allowed=_COUNT)


def whole_number(value: object, where: str) -> int:
    """Return a count as an int, or refuse it: negative, fractional, not a number, too large."""
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or not 0 <= value <= LARGEST
        or value != int(value)
    ):
        raise InputError(f"{where}: not a count", got=value, allowed=_COUNT)
    return int(value)


def is_number(cell: str) -> bool:
    """Tell whether a cell of a heading or of a first column is a number; an empty one is too."""
    try:
        float(cell or "nan")
    except ValueError:
        return False
    return True


def is_whole(cell: str) -> bool:
    """Tell whether a cell may be a count.

    >>> is_whole("12"), is_whole("3.0"), is_whole("0.5"), is_whole("x")
    (True, True, False, False)
    """
    match = _DECIMAL.fullmatch(cell)
    return match is not None and not (match[2] or "").strip("0") and match[3] is None


def shown(name: str) -> str:
    """Return a name from a file in a form for messages: short, and without control codes."""
    return name if name.isprintable() and 0 < len(name) <= 40 else repr(name[:40])


def listed(names: Iterable[str]) -> str:
    """Return the first of some names in a form for messages."""
    return ", ".join(map(shown, islice(names, 20)))


def quoted(name: str) -> str:
    """Return a name from a file as one would type it at a terminal."""
    return name if name.isidentifier() else repr(name)
