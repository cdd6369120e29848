"""One cell of a table as a whole number, or the error that says why it is not one."""

import re
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from fedeas.countfiles.read import Rows
from fedeas.countfiles.table import (
    COUNT,
    LARGEST,
    SEPARATORS,
    THEN,
    Options,
    TableError,
    Way,
    names_clients,
    names_counts,
    names_labels,
    shown,
)
from fedeas.countfiles.validate import ADD_SIZES, is_missing, names_attribute
from fedeas.errors import InputError

_SPACES = " \u00a0\u2009\u202f"  # also those of typesetters
_GROUPED = re.compile(
    rf"[1-9][0-9]{{0,2}}(?:([.,'\u2019{_SPACES}])[0-9]{{3}})(?:\1[0-9]{{3}})*(?:(?!\1)[.,]0+)?"
)
_BELOW = re.compile(r"(?:[nN]\s?)?(<=?|≤)\s*([0-9]{1,9})")
_RANGE = re.compile(r"([0-9]{1,9})\s*[-\u2013]\s*([0-9]{1,9})")
_HIDDEN = re.compile(r"\*+|\[c\]")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}( [0-9:]+)?")  # as a workbook's cell is written
_SHARE = re.compile(r"([0-9]{1,4})(?:[.,]([0-9]{1,15}))?\s*%?")


class CountReader:
    """Reads the cells of one file by the rules that somebody gave; without rules, plain digits.

    `survey` looks at the whole table, once it is refused, for what it may be.
    """

    def __init__(
        self, rows: Rows, head: Sequence[str], options: Options, survey: "Callable[[], Survey]"
    ) -> None:
        self._rows, self._head, self._options, self._survey = rows, head, options, survey
        self._blank = self._suppressed = 0
        self.slack = 0  # by how much the last cell may be wrong

    def count(self, cell: str, place: int) -> int:
        """Return the count in a cell of the last row; `place` counts the columns from 0."""
        self.slack = 0
        options = self._options
        if cell.isascii() and cell.isdigit() and len(cell) <= 17 and int(cell) <= LARGEST:
            return int(cell)
        if is_missing(cell) and options.blank is not None:
            self._blank += 1
            return options.blank
        if options.suppressed is not None and (limits := _limits(cell)):
            return self._replaced(cell, place, limits, options.suppressed)
        if options.thousands is not None:
            number = _whole(cell, SEPARATORS[options.thousands])
        else:
            number = int(cell[:-2]) if re.fullmatch(r"[0-9]{1,15}\.0", cell) else None
        return self._refuse(cell, place) if number is None else number

    @property
    def notes(self) -> tuple[str, ...]:
        """What the given options did."""
        done = ((self._blank, "empty", self._options.blank),
                (self._suppressed, "suppressed", self._options.suppressed))  # fmt: skip
        return tuple(
            f"{number:,} {what} cell{'s' * (number != 1)} read as {value}"
            for number, what, value in done
            if number
        )

    def samples_ways(self) -> list[Way]:
        """Return how to read the table if it has a row per sample."""
        return self._survey().samples_ways()

    def where(self, place: int) -> str:
        """Name a cell of the last row by its row and column."""
        return f"{self._rows.where}, column {shown(self._head[place])}"

    def _replaced(self, cell: str, place: int, limits: tuple[int, int | None], value: int) -> int:
        low, high = limits
        if not low <= value <= (LARGEST if high is None else high):
            raise InputError(
                f"{self.where(place)} holds {cell!r}",
                got=f"suppressed={value}",
                allowed=f"{low} to {high}",
            )
        self._suppressed += 1
        self.slack = value if high is None else max(value - low, high - value)
        return value

    def _refuse(self, cell: str, place: int) -> NoReturn:
        where, name = self.where(place), self._head[place]
        if names_attribute(name):
            way: Way = {"drop_columns": [name]}, "to leave it out"
            raise TableError(f"{where} is not a count", way, got=cell)
        if names_labels(name) and (samples := self.samples_ways()):
            raise TableError(f"{where} holds a label, not a count", *samples, got=cell)
        if is_missing(cell):
            what = f"holds {cell!r}" if cell else "is empty"
            raise TableError(f"{where} {what}", ({"blank": 0}, "if it means none"))
        if limits := _limits(cell):
            low, high = limits
            value = 2 if low <= 2 <= (high or 2) else low
            raise TableError(
                f"{where} holds a suppressed number, not a count",
                ({"suppressed": value}, f"to read such cells as {value}"),
                got=cell,
            )
        if cell.endswith("%"):
            raise TableError(f"{where} holds a percentage", *self._sizes(), got=cell, fix=self._fix)
        if _DATE.fullmatch(cell):
            fix = "write the count; spreadsheets make dates of ranges such as 1-4"
            raise InputError(f"{where} holds a date", got=cell, fix=fix)
        if (match := re.fullmatch(r"([0-9.]+)\s*[kK]", cell)) and match[1].count(".") < 2:
            raise InputError(f"{where} holds a word", got=cell, fix=f"write {_thousand(match[1])}")
        if re.search("[^\\W\\d_]", cell) and not re.fullmatch("[0-9.]+[eE][0-9+-]+|inf", cell):
            self._refuse_word(cell, place)
        self._refuse_number(cell, where)

    def _refuse_word(self, cell: str, place: int) -> NoReturn:
        where, name = self.where(place), self._head[place]
        survey = self._survey()
        words_only = not any(c.isdigit() for c in "".join(self._rows.cells))
        if survey.rows > 1 and words_only and name not in survey.texts:
            raise InputError(
                f"{where} holds a word, not a count",
                got=cell,
                fix="put every table in a file of its own if this row heads a second one",
            )
        ways: list[Way] = survey.samples_ways()
        if name in survey.texts:
            ways.append(({"drop_columns": [name]}, "to leave the column out"))
        raise TableError(
            f"{where} holds a word, not a count",
            *ways,
            got=cell,
            fix=None if ways else "write the number",
        )

    def _refuse_number(self, cell: str, where: str) -> NoReturn:
        """Refuse a number that is not written as plain digits."""
        thousands = self._options.thousands
        grouped = _GROUPED.fullmatch(cell)
        decimal = re.fullmatch(r"[0-9]+[.,]([0-9]+)", cell)
        zeros = decimal is not None and not decimal[1].strip("0")
        if thousands is not None and (grouped or zeros):
            raise InputError(
                f"{where} holds {cell!r}, where {thousands!r} separates thousands: this cannot be "
                "read as counts, because numbers are written in two ways",
                fix="write all of them as plain digits",
            )
        if grouped:
            sign = {"\u2019": "apostrophe", "'": "apostrophe"}.get(grouped[1], grouped[1])
            sign = "space" if sign in _SPACES else sign
            ways: list[Way] = [({"thousands": sign}, f"if it is {re.sub('[^0-9]', '', cell)}")]
            if zeros and "." in cell:
                ways.append(({"thousands": "none"}, f"if it is {cell.partition('.')[0]}"))
            raise TableError(f"{where} holds {cell!r}, which is not plain digits", *ways)
        if zeros:
            sign = "." if "," in cell else "none"
            way: Way = {"thousands": sign}, f"if it is {re.split('[.,]', cell)[0]}"
            raise TableError(f"{where} holds a decimal number", way, got=cell)
        if decimal:
            raise TableError(
                f"{where} holds a decimal number, not a count",
                *self._sizes(),
                got=cell,
                fix=f"if this is a share, {self._fix}" if self._fix else None,
            )
        raise InputError(
            f"{where}: this cannot be read as counts, because {cell!r} is not one",
            allowed=COUNT,
            fix="write the number of samples that it stands for, or remove the row",
        )

    def _sizes(self) -> list[Way]:
        sizes = self._survey().sizes
        return [({"sizes": sizes[0]}, "")] if sizes else [({"sizes": "n"}, THEN)]

    @property
    def _fix(self) -> str | None:
        return None if self._survey().sizes else ADD_SIZES


class Survey:
    """What the first rows of a table say about its columns; only a refused table is looked at."""

    def __init__(self, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        self.rows = len(rows)
        self._columns = dict(zip(head, zip(*rows, strict=True), strict=True)) if rows else {}
        columns = self._columns.items()
        self.texts = [n for n, cells in columns if _are_words(cells)]
        self._numbers = [n for n, cells in columns if all(map(_is_digits, cells))]
        self.sizes = [name for name in self._numbers if names_counts(name)]
        repeated = [n for n, cells in columns if n and len(set(cells)) < self.rows]
        texts = [name for name in repeated if name in self.texts]
        clients = [name for name in repeated if names_clients(name)] or texts
        labels = [name for name in repeated if names_labels(name)] or texts
        self.clients = [name for name in head if names_clients(name)]
        client = clients[0] if clients else None
        label = next((n for n in labels if n != client), None)
        self._pairs: list[tuple[str, str]] = []
        if client is not None and label is not None:
            self._pairs.append((client, label))
            if not names_clients(client) and not names_labels(label):  # it may be as well
                self._pairs.append((label, client))

    def may_be_wide(self, head: Sequence[str]) -> bool:
        """Tell whether a table headed client, label, count may hold two classes of these names."""
        client, *others = (self._columns.get(name, ()) for name in head)
        numbers = all(_is_digits(cell) for cells in others for cell in cells)
        return numbers and len(set(client)) == self.rows

    def samples_ways(self) -> list[Way]:
        """Return how to read a row per sample, or a count per row, if the table may be one."""
        if len(self._pairs) == 2:
            return [
                ({"client": client, "label": label}, f"if rows are samples of clients in {client}")
                for client, label in self._pairs
            ]
        if not self._pairs:
            return []
        columns = dict(zip(("client", "label"), self._pairs[0], strict=True))
        samples: Way = columns, "if every row is a sample"
        numbers = [name for name in self._numbers if name not in columns.values()]
        sizes = [name for name in self.sizes if name in numbers]
        if len(sizes) == 1:
            return [({**columns, "count": sizes[0]}, "if rows hold counts"), samples]
        # What is different in every row names it: an identifier is no count.
        counts = [name for name in numbers if len(set(self._columns[name])) < self.rows]
        if sizes or len(counts) != 1:
            return [samples]
        return [samples, ({**columns, "count": counts[0]}, "if rows hold counts")]


def _is_word(cell: str) -> bool:
    return bool(re.search("[^\\W\\d_]", cell)) and not is_missing(cell) and not _limits(cell)


def _are_words(cells: Sequence[str]) -> bool:
    return 2 * sum(map(_is_word, cells)) > sum(map(bool, cells))


def _is_digits(cell: str) -> bool:
    return cell.isascii() and cell.isdigit()


def _thousand(number: str) -> str:
    return f"{float(number) * 1000:.0f}"


def _limits(cell: str) -> tuple[int, int | None] | None:
    """Return the smallest and the largest count that a suppressed cell may stand for."""
    if match := _BELOW.fullmatch(cell):
        return 0, max(0, int(match[2]) - (match[1] == "<"))
    if match := _RANGE.fullmatch(cell):
        return int(match[1]), int(match[2])
    return (0, None) if _HIDDEN.fullmatch(cell) else None


def _whole(cell: str, separator: str) -> int | None:
    """Return a number whose thousands are separated, None if it is not a whole one.

    >>> _whole("1.200,0", "."), _whole("1.20", "."), _whole("12,300", "."), _whole("3.000", "")
    (1200, None, None, 3)
    """
    signs = _SPACES if separator == " " else separator + ("\u2019" if separator == "'" else "")
    groups = rf"[1-9][0-9]{{0,2}}(?:[{re.escape(signs)}][0-9]{{3}})+|" if signs else ""
    decimal = "," if separator == "." else "[.,]" if separator == " " else r"\."
    match = re.fullmatch(rf"({groups}[0-9]{{1,17}})(?:{decimal}(0*))?", cell)
    if match is None or (separator and len(match[2] or "") == 3):
        return None
    number = int(re.sub("[^0-9]", "", match[1]))
    return number if number <= LARGEST else None


# Shares of a column of sizes


def read_shares(cells: Sequence[str], where: str) -> list[float]:
    """Return the percentages of a row, checked to add up."""
    shares = []
    for cell in cells:
        match = _SHARE.fullmatch(cell)
        if match is None:
            raise InputError(
                f"{where}: not a percentage", got=cell, allowed="12.5 %, 12.5 or 0.125"
            )
        shares.append(Decimal(f"{match[1]}.{match[2] or 0}"))
    # Without decimals, ones and zeros add up to 1 as well as to anything near it.
    exact = any(re.search("[.,]", cell) for cell in cells)
    digits = max(-int(share.as_tuple().exponent) for share in shares) if exact else 0
    rounding = Decimal(len(shares)) * Decimal(10) ** -digits / 2
    total = sum(shares, Decimal(0))
    wholes = [Decimal(100)] if any("%" in cell for cell in cells) else [Decimal(100), Decimal(1)]
    if total and not any(abs(total - whole) <= min(rounding, whole / 10) for whole in wholes):
        raise InputError(
            f"the shares of {where} add up to {total:g}",
            allowed="100 % or 1, up to rounding",
            fix="leave out other columns with `drop_columns`",
        )
    return list(map(float, shares))


def apportion(shares: NDArray[np.float64], sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return whole numbers that add up to the sizes, as close to the shares as they can be.

    What rounding down leaves goes to the largest remainders.

    >>> apportion(np.array([[50.0, 33.3, 16.7]]), np.array([7]))
    array([[4, 2, 1]])
    """
    totals = shares.sum(axis=1, keepdims=True)
    exact = shares / np.where(totals > 0, totals, 1.0) * sizes[:, np.newaxis]
    counts = np.floor(exact + 1e-9).astype(np.int64)
    left = np.where(totals[:, 0] > 0, sizes - counts.sum(axis=1), 0)
    order = np.argsort(-(exact - counts), axis=1, kind="stable")
    rank = np.argsort(order, axis=1, kind="stable")
    return counts + (rank < left[:, np.newaxis])
