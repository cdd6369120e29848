"""The cells of wide tables as a matrix: counts, or shares of a column of sizes."""

import re
from array import array
from collections.abc import Sequence
from decimal import Decimal

import numpy as np
from numpy.typing import NDArray

from fedeas.errors import InputError
from fedeas.tables.cells import Cells, is_missing

_SHARE = re.compile(r"([0-9]{1,4})(?:[.,]([0-9]{1,15}))?\s*%?")


class Counts:
    """Cells that are counts."""

    assumed: tuple[str, ...] = ()

    def __init__(self, cells: Cells[int]) -> None:
        self._cells, self._values = cells, array("q")

    def add(self, row: Sequence[str], start: int) -> None:
        """Read the cells of a row from one column on."""
        for place in range(start, len(row)):
            self._values.append(self._cells.count(row[place], place, len(self._values)))

    def matrix(self, rows: int) -> np.ndarray:
        """Return all rows."""
        for at, value in self._cells.settle():
            self._values[at] = value
        if not self._values:
            return np.empty((0, 0), np.int64)
        return np.frombuffer(self._values, dtype=np.int64).reshape(rows, -1)


class Shares:
    """Cells that are shares of one column."""

    def __init__(self, cells: Cells[int], size: int) -> None:
        self._cells, self._size = cells, size
        self._sizes, self._shares = array("q"), array("d")

    def add(self, row: Sequence[str], start: int) -> None:
        """Read the cells of a row from one column on."""
        size = self._size
        self._sizes.append(self._cells.count(row[size], size, len(self._sizes)))
        places = [place for place in range(start, len(row)) if place != size]
        if not places:
            raise InputError(
                "there is no column of shares besides that of sizes",
                got=self._cells.column(size),
                allowed="a column of percentages per class",
            )
        texts = [self._text(row[place], place) for place in places]
        shares = [
            _parse_share(text, self._cells.where(place))
            for text, place in zip(texts, places, strict=True)
        ]
        _check_shares(shares, texts, self._cells.row)
        self._shares.extend(map(float, shares))

    def _text(self, cell: str, place: int) -> str:
        return str(self._cells.count(cell, place, -1)) if is_missing(cell) else cell

    def matrix(self, rows: int) -> np.ndarray:
        """Return all rows."""
        for at, value in self._cells.settle():
            self._sizes[at] = value
        if not self._shares:
            return np.empty((0, 0), np.int64)
        return apportion(
            np.frombuffer(self._shares).reshape(rows, -1), np.frombuffer(self._sizes, np.int64)
        )

    @property
    def assumed(self) -> tuple[str, ...]:
        """What the cells are."""
        return (f"shares of column {self._cells.column(self._size)}",)


def _parse_share(cell: str, where: str) -> Decimal:
    """Return the number in a cell such as '12.5 %' or '12,5', in its own unit."""
    match = _SHARE.fullmatch(cell)
    if match is None:
        raise InputError(f"{where}: not a percentage", got=cell, allowed="12.5 %, 12.5 or 0.125")
    return Decimal(f"{match[1]}.{match[2] or 0}")


def _check_shares(shares: Sequence[Decimal], cells: Sequence[str], where: str) -> None:
    """Refuse a row whose shares add up neither to 100 % nor to 1, but for rounding."""
    digits = max(-int(share.as_tuple().exponent) for share in shares)
    if all(not re.search("[.,]", cell) for cell in cells):
        digits = 0
    rounding = Decimal(len(shares)) * Decimal(10) ** -digits / 2
    total = sum(shares, Decimal(0))
    wholes = [Decimal(100)] if any("%" in cell for cell in cells) else [Decimal(100), Decimal(1)]
    # Without decimals, ones and zeros add up to 1 as well as to anything near it.
    if total and not any(abs(total - whole) <= min(rounding, whole / 10) for whole in wholes):
        raise InputError(
            f"the shares of {where} add up to {total:g}",
            allowed="100 % or 1, up to rounding",
            fix="leave out other columns with `drop_columns`",
        )


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
