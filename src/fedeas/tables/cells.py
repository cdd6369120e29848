"""One cell of a text file as a whole number, or one line that says how to go on."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import islice
from typing import Generic, NoReturn, Protocol, TypeVar

from fedeas import parquet
from fedeas.errors import InputError
from fedeas.tables.arguments import argument
from fedeas.tables.headings import names_attribute
from fedeas.tables.thousands import NONE, Separators, separator_of, typed, without_groups

LARGEST = parquet.LARGEST
_COUNT = f"whole numbers from 0 to 2**53 ({LARGEST:,})"
_DECIMAL = re.compile(r"([0-9]{1,17})(?:\.([0-9]*))?([eE][+-]?[0-9]{1,3})?")
_DECIMAL_COMMA = re.compile(r"([0-9]+),([0-9]+)")
_DASHES = frozenset("-.\u2013\u2014\u2212\u00b7")  # also those of typesetters
_MISSING = frozenset(("nan", "na", "n/a", "#n/a", "null", "none", "missing", "nil", "k.a.", "?"))
_BELOW = re.compile(r"(?:[nN]\s?)?(<=?|≤)\s*([0-9]{1,9})")
_RANGE = re.compile(r"([0-9]{1,9})\s*[-\u2013]\s*([0-9]{1,9})")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}( [0-9:]+)?")  # as a workbook's cell is written
_HIDDEN = re.compile(r"\*+|\[c\]")
SIZES = "add a column with the number of samples of each client, and pass its name as `size_column`"
Key = TypeVar("Key")


class Located(Protocol):
    """What tells which row was read last."""

    cells: list[str]  # of that row

    @property
    def where(self) -> str:
        """The file and the row."""


class Fixes(Protocol):
    """What to do about cells that are not counts, by what else the table holds."""

    def for_word(self, cell: str, name: str | None, row: Sequence[str]) -> str | None:
        """Say what to do about a word."""

    def for_share(self) -> str:
        """Say what to do about a percentage."""


@dataclass(frozen=True)
class CellRules:
    """How to read cells that are not plain whole numbers; what is not given is refused.

    `thousands` separates groups of three digits, or is 'none'; `blank` is the count in cells that
    are empty or hold a dash or 'NaN', `suppressed` that in cells such as '<5' and '*'.
    """

    thousands: str | None = None
    blank: int | None = None
    suppressed: int | None = None


class Cells(Generic[Key]):
    """Reads the cells of one file.

    A cell such as `1.200` is set aside until all cells are read, with the key that the caller gave:
    `settle` then yields its value.
    """

    def __init__(
        self,
        rows: Located,
        columns: Sequence[str] | None,
        rules: CellRules,
        fixes: Callable[[], Fixes] | None = None,
    ) -> None:
        self._rows, self._columns, self._rules = rows, columns, rules
        self._fixes = fixes
        self._separators = Separators()
        self._later: list[tuple[Key, str, str, int]] = []
        self._separator: str | None = None
        self._blank = 0
        self.hidden: list[tuple[Key, int]] = []  # suppressed cells, and how wrong they may be

    def count(self, cell: str, place: int, key: Key) -> int:
        """Return the count in a cell, or 0 if `settle` does; `place` counts the columns from 0."""
        if cell.isascii() and cell.isdigit() and len(cell) <= 17:
            if len(cell) < 4:
                self._separators.small.add(place)
            else:
                self._separators.large = True
            return self._small(int(cell), cell, place)
        if is_missing(cell) and self._rules.blank is not None:
            self._blank += 1
            return self._rules.blank
        if (limits := _limits(cell)) and self._rules.suppressed is not None:
            return self._hidden(cell, place, limits, key)
        if self._rules.thousands is not None:
            plain = without_groups(cell, self._rules.thousands)
            return self._refuse(cell, place) if plain is None else self._exact(plain, cell, place)
        if separator := separator_of(cell):
            self._separators.add(cell, separator, place)
            self._later.append((key, cell, self.where(place), place))
            return 0
        value = self._exact(cell, cell, place)
        self._separators.decimals |= "." in cell
        return value

    def settle(self) -> Iterator[tuple[Key, int]]:
        """Yield the counts that were set aside, or refuse them; call it once all cells are read."""
        if not self._later:
            return
        self._separator = self._separators.find()
        for key, cell, where, place in self._later:
            if self._separator is None:
                refuse_thousands(where, cell)
            plain = without_groups(cell, self._separator)
            if plain is None:
                self._refuse(cell, place, where)
            yield key, self._exact(plain, cell, place, where)

    @property
    def assumed(self) -> tuple[str, ...]:
        """What was assumed about the numbers."""
        if self._separator in (None, NONE):
            return ()
        return (f"thousands written as {self._later[0][1]!r}",)

    @property
    def notes(self) -> tuple[str, ...]:
        """What the given options did."""
        said = []
        if self._blank:
            said.append(f"{_cells(self._blank, 'empty')} read as {self._rules.blank}")
        if hidden := len(self.hidden):
            said.append(f"{_cells(hidden, 'suppressed')} read as {self._rules.suppressed}")
        return tuple(said)

    @property
    def row(self) -> str:
        """The last row."""
        return self._rows.where

    def column(self, place: int) -> str:
        """Return the name of a column, or its number."""
        return str(place + 1) if self._columns is None else shown(self._columns[place])

    def where(self, place: int) -> str:
        """Name a cell of the last row by its row and column."""
        return f"{self.row}, column {self.column(place)}"

    def _hidden(self, cell: str, place: int, limits: tuple[int, int | None], key: Key) -> int:
        value = self._rules.suppressed
        low, high = limits
        if value is None or not low <= value <= (LARGEST if high is None else high):
            raise InputError(
                f"{self.where(place)} holds {cell!r}",
                got=f"suppressed={value}",
                allowed=f"{low} to {high}",
            )
        slack = value if high is None else max(value - low, high - value)
        self.hidden.append((key, slack))
        return value

    def _exact(self, plain: str, cell: str, place: int, where: str = "") -> int:
        """Return a number as it is written; a float would round 0.999... to one."""
        if not _DECIMAL.fullmatch(plain):
            self._refuse(cell, place, where)
        exact = Decimal(plain)
        if exact > LARGEST or exact != exact.to_integral_value():
            self._refuse(cell, place, where)
        return int(exact)

    def _small(self, value: int, cell: str, place: int) -> int:
        return value if value <= LARGEST else self._refuse(cell, place)

    def _refuse(self, cell: str, place: int, where: str = "") -> NoReturn:
        name = None if self._columns is None else self._columns[place]
        where = where or self.where(place)
        if name is not None and names_attribute(name):
            fix = f"pass {argument('drop_columns', [name])}"
            raise InputError(f"{where} is not a count", got=cell, fix=fix)
        fixes = None if self._fixes is None else self._fixes()
        word = None if fixes is None else fixes.for_word(cell, name, self._rows.cells)
        share = SIZES if fixes is None else fixes.for_share()
        refuse(cell, where, word, share)


def refuse(cell: str, where: str, if_word: str | None, if_share: str) -> NoReturn:
    """Say in one line why a cell is not a count, and how to go on."""
    none = f"write 0 for none, or pass {argument('blank', 0)}"
    if not cell:
        raise InputError(f"{where} is empty", fix=none)
    if is_missing(cell):
        raise InputError(f"{where} holds {cell!r}", fix=none)
    if cell.endswith("%"):
        raise InputError(f"{where} holds a percentage", got=cell, fix=if_share)
    if _limits(cell):
        raise InputError(
            f"{where} holds a suppressed number, not a count",
            got=cell,
            fix=f"pass {argument('suppressed', 2)}, for example, to read such cells as 2",
        )
    if separator_of(cell):
        refuse_thousands(where, cell)
    if _DATE.fullmatch(cell):
        fix = "write the count; spreadsheets make dates of ranges such as 1-4"
        raise InputError(f"{where} holds a date", got=cell, fix=fix)
    if match := _DECIMAL_COMMA.fullmatch(cell):
        whole = f"pass {argument('thousands', '.')} if a comma marks decimals"
        fix = if_share if match[2].strip("0") else whole
        raise InputError(f"{where} holds a decimal number", got=cell, fix=fix)
    if any(c.isalpha() for c in cell) and not _DECIMAL.fullmatch(cell) and cell.lower() != "inf":
        raise InputError(
            f"{where} holds a word, not a count", got=cell, fix=if_word or "write the number"
        )
    share = f"if this is a share, {if_share}" if re.fullmatch(r"[0-9]*\.[0-9]+", cell) else None
    raise InputError(f"{where}: not a count", got=cell, allowed=_COUNT, fix=share)


def refuse_thousands(where: str, cell: str) -> NoReturn:
    """Refuse a number with a separator that may or may not be one of thousands."""
    separator = separator_of(cell) or ","
    digits = re.sub("[^0-9]", "", cell)
    first, _, rest = cell.partition(".")
    none = argument("thousands", NONE)
    decimal = f", or {none} if it is {first}" if rest and not rest.strip("0") else ""
    raise InputError(
        f"{where} holds {cell!r}: a thousands separator, or a decimal number?",
        fix=f"pass {argument('thousands', typed(separator))} if it is {digits}{decimal}",
    )


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
    """Tell whether a cell may be a count, however it is written.

    >>> is_whole("12"), is_whole("3.0"), is_whole("1,200"), is_whole("0.5"), is_whole("x")
    (True, True, True, False, False)
    """
    match = _DECIMAL.fullmatch(cell)
    plain = match is not None and not (match[2] or "").strip("0") and match[3] is None
    return plain or separator_of(cell) is not None


def may_stand_for_count(cell: str) -> bool:
    """Tell whether a cell is meant to be a count, even a wrong one: '<5', '-', 'NaN', '12 %'."""
    return is_whole(cell) or is_missing(cell) or not any(map(str.isalpha, cell))


def shown(name: str) -> str:
    """Return a name from a file in a form for messages: short, and without control codes."""
    return name if name.isprintable() and 0 < len(name) <= 40 else repr(name[:40])


def listed(names: Iterable[str]) -> str:
    """Return the first of some names in a form for messages."""
    return ", ".join(map(shown, islice(names, 20)))


def is_missing(cell: str) -> bool:
    """Tell whether a cell holds nothing, a dash, 'NaN' or the like."""
    return not cell or cell in _DASHES or cell.lower() in _MISSING


def _limits(cell: str) -> tuple[int, int | None] | None:
    """Return the smallest and the largest count that a suppressed cell may stand for."""
    if match := _BELOW.fullmatch(cell):
        return 0, max(0, int(match[2]) - (match[1] == "<"))
    if match := _RANGE.fullmatch(cell):
        return int(match[1]), int(match[2])
    return (0, None) if _HIDDEN.fullmatch(cell) else None


def _cells(number: int, what: str) -> str:
    return f"{number:,} {what} cell{'s' * (number != 1)}"
