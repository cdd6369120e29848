"""`RowSpace`: rows of a table as vectors in which means and covariances say something.

Numbers become normal by their quantiles. A category, or whether a number is missing, is a *choice*
between levels, with a coordinate for every level but the first: one-hot. Missing values of a column
of categories are one more level.

A value that many rows share, as in a column of integers, stands for an interval of the normal
distribution. It is encoded as the mean of that interval, and the variance within the interval is
kept beside it: means and variances of encoded values are then as exact as if every row had drawn a
point in the interval, without drawing any.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedeas._internal.seeds import child_rng
from fedeas.data.kinds import Array
from fedeas.data.schema import Schema
from fedeas.errors import InputError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Rows = NDArray[np.float32]
_MANY = 256  # shares of a column above 1 / _MANY are kept as they are
_KNOTS = 512  # of a curve, besides those of shared values
_LEAST = 1e-9  # a share beyond which a normal is cut off, at six standard deviations
_CELLS = 4096  # of the grid that a place is looked up in
_NORMAL = NormalDist()
_BLOCK = 8192  # rows at a time
_FITTED = 100_000  # rows that quantiles are found from, if there are more


@dataclass(frozen=True, eq=False)
class Quantiles:
    """A column's quantile function, piecewise linear: `values` at `places` of a standard normal."""

    places: Floats  # do not decrease
    values: Floats  # do not decrease; equal neighbours are an interval of one value

    @classmethod
    def of(cls, values: NDArray[np.float32]) -> "Quantiles":
        """Find the quantiles of some values, none of them a gap."""
        distinct, counts = np.unique(values, return_counts=True)
        size = counts.sum()
        above = np.cumsum(counts) / size
        below = above - counts / size
        shared = (counts > 1) & (counts * _MANY >= size)
        if distinct.size <= _MANY and 2 * distinct.size <= size:
            shared[:] = True
        kept = shared | _spread(above, shared)
        distinct, shared, above, below = (a[kept] for a in (distinct, shared, above, below))
        first = np.where(shared, below, (above + below) / 2)
        order = np.repeat(np.arange(distinct.size), 1 + shared)
        second = np.zeros(order.size, bool)
        second[1:] = order[1:] == order[:-1]
        shares = np.where(second, above[order], first[order])
        clipped = np.clip(shares, _LEAST, 1 - _LEAST)
        places = np.array([_NORMAL.inv_cdf(share) for share in clipped.tolist()])
        return cls(np.maximum.accumulate(places), distinct[order].astype(np.float64))

    @cached_property
    def _shared(self) -> tuple[Floats, Floats, Floats]:
        """The values that stand for an interval, with the mean and variance of the interval."""
        at = np.flatnonzero((np.diff(self.values) == 0) & (np.diff(self.places) > 0))
        low, high = self.places[at], self.places[at + 1]
        mass = np.array([_NORMAL.cdf(b) - _NORMAL.cdf(a) for a, b in zip(low, high, strict=True)])
        at_low, at_high = _density(low), _density(high)
        mean = (at_low - at_high) / mass
        variance = 1 + (low * at_low - high * at_high) / mass - mean**2
        return self.values[at], mean, np.clip(variance, 0.0, 1.0)

    def encode(self, values: Floats) -> tuple[Floats, Floats]:
        """Return the places of values, and the variances of those that stand for an interval."""
        places: Floats = np.interp(values, self.values, self.places)
        variances = np.zeros_like(places)
        shared, mean, variance = self._shared
        if shared.size:
            at = np.minimum(np.searchsorted(shared, values), shared.size - 1)
            is_shared = shared[at] == values
            places[is_shared], variances[is_shared] = mean[at[is_shared]], variance[at[is_shared]]
        return places, variances

    def decode(self, places: NDArray[Any]) -> NDArray[Any]:
        """Return the values at places; beyond the outermost they stay the least and the largest.

        This is `np.interp`, several times as fast: a grid says near which knot a place is.
        """
        knots = self._knots(places.dtype)
        inside = np.clip(places, knots.places[0], knots.places[-3])
        near = ((inside - knots.places[0]) * knots.scale).astype(np.intp)
        at = knots.first.take(near)
        for _ in range(knots.steps):
            at += inside >= knots.places.take(at + 1)
        values: NDArray[Any] = knots.values.take(at)
        values += knots.slopes.take(at) * (inside - knots.places.take(at))
        return values

    def _knots(self, dtype: np.dtype[Any]) -> "_Knots":
        if dtype.char not in self._prepared:
            self._prepared[dtype.char] = _Knots.of(self.places.astype(dtype), self.values)
        return self._prepared[dtype.char]

    @cached_property
    def _prepared(self) -> "dict[str, _Knots]":
        return {}


@dataclass(frozen=True, eq=False)
class _Knots:
    """A curve prepared for looking up many places."""

    places: NDArray[Any]  # with infinity at the end, which no place reaches
    values: NDArray[Any]
    slopes: NDArray[Any]
    first: NDArray[np.intp]  # for every cell of a grid, the last knot that is not after it
    scale: float  # cells per unit
    steps: int  # the most knots in a cell

    @classmethod
    def of(cls, places: NDArray[Any], values: Floats) -> "_Knots":
        """Prepare a curve, in the precision of its places."""
        dtype = places.dtype
        width = np.diff(places.astype(np.float64))
        slopes = np.divide(np.diff(values), width, out=np.zeros_like(width), where=width > 0)
        span = float(places[-1]) - float(places[0])
        scale = (_CELLS - 1) / span if span > 0 else 0.0
        cell = ((places - places[0]) * dtype.type(scale)).astype(np.intp)
        # A place is rounded into a cell as its neighbours are, so that knots of earlier cells are
        # never after it.
        first = np.maximum(np.searchsorted(cell, np.arange(_CELLS + 1)) - 1, 0)
        steps = int(np.bincount(cell).max())
        return cls(
            np.append(places, np.full(2, np.inf, dtype)),
            values.astype(dtype),
            np.append(slopes, 0.0).astype(dtype),
            first,
            dtype.type(scale),
            steps,
        )


def _spread(above: Floats, shared: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Choose which values that few rows share are knots: at even shares, and the outermost."""
    chosen = np.zeros(above.size, bool)
    chosen[[0, -1]] = True
    single = np.flatnonzero(~shared)
    if single.size:
        step = np.floor(above[single] * _KNOTS)
        chosen[single[np.append(True, np.diff(step) > 0)]] = True
    return chosen


def _density(places: Floats) -> Floats:
    density: Floats = np.exp(-(places**2) / 2) / np.sqrt(2 * np.pi)
    return density


@dataclass(frozen=True)
class Choice:
    """A choice between levels: the categories of a column, or whether it has a number."""

    column: int
    levels: int
    start: int  # its first coordinate; there is one for every level but the first

    @property
    def coordinates(self) -> slice:
        """Where its coordinates are."""
        return slice(self.start, self.start + self.levels - 1)


@dataclass(frozen=True, eq=False)
class RowSpace:
    """A space for the rows of one table: first the coordinates of choices, then of numbers."""

    schema: Schema
    gaps: tuple[bool, ...]  # which columns have any
    quantiles: tuple[Quantiles, ...]  # of the columns of numbers

    @classmethod
    def fit(cls, schema: Schema, rows: Rows, indices: Ints | None = None) -> "RowSpace":
        """Find quantiles and missing values in rows, or in those at some `indices`.

        Quantiles come from 100,000 rows drawn at random if there are more.
        """
        at = np.arange(len(rows)) if indices is None else indices
        if not at.size:
            raise InputError("no rows to learn from", allowed="at least one")
        gaps = np.zeros(len(schema), bool)
        for block in blocks(at):
            part = np.asarray(rows[block])
            schema.check(part)
            gaps |= np.isnan(part).any(axis=0)
        if at.size > _FITTED:
            at = np.sort(child_rng(0, "row-space").choice(at, _FITTED, replace=False))
        columns = np.asarray(rows[at])[:, schema.numbers].T
        return cls(schema, tuple(gaps.tolist()), tuple(map(_quantiles, columns)))

    @cached_property
    def choices(self) -> tuple[Choice, ...]:
        """The choices of a row, in the order of the columns."""
        choices: list[Choice] = []
        start = 0
        for column, (about, gaps) in enumerate(zip(self.schema.columns, self.gaps, strict=True)):
            levels = max(1, len(about.categories)) + gaps
            if levels > 1:
                choices.append(Choice(column, levels, start))
                start += levels - 1
        return tuple(choices)

    @property
    def first_number(self) -> int:
        """The first coordinate of a number."""
        return self.choices[-1].coordinates.stop if self.choices else 0

    @property
    def dimensions(self) -> int:
        """The number of coordinates."""
        return self.first_number + len(self.schema.numbers)

    @cached_property
    def gap_coordinates(self) -> dict[int, int]:
        """For the coordinate of every number with gaps, the one that says whether it is missing."""
        of_column = {choice.column: choice.start for choice in self.choices}
        return {
            self.first_number + at: of_column[column]
            for at, column in enumerate(self.schema.numbers.tolist())
            if column in of_column
        }

    def encode(self, rows: Array) -> tuple[Floats, Floats]:
        """Return the coordinates of rows, and the variances within those of their numbers.

        A number that is missing is 0, and so is its variance.
        """
        self.schema.check(rows)
        points = np.zeros((len(rows), self.dimensions))
        variances = np.zeros((len(rows), len(self.schema.numbers)))
        missing = np.isnan(rows)
        if wrong := np.flatnonzero(missing.any(axis=0) & ~np.array(self.gaps)).tolist():
            raise InputError(
                f"column {self.schema.names[wrong[0]]!r} has gaps, and had none before",
                fix="fit the generator to rows with gaps as well",
            )
        for choice in self.choices:
            levels = self._levels(choice, rows[:, choice.column], missing[:, choice.column])
            chosen = np.flatnonzero(levels)
            points[chosen, choice.start + levels[chosen] - 1] = 1.0
        for at, (column, curve) in enumerate(
            zip(self.schema.numbers.tolist(), self.quantiles, strict=True)
        ):
            values = rows[:, column].astype(np.float64)
            gap = missing[:, column]
            places, within = curve.encode(np.where(gap, curve.values[0], values))
            points[:, self.first_number + at] = np.where(gap, 0.0, places)
            variances[:, at] = np.where(gap, 0.0, within)
        return points, variances

    def decode(self, levels: Ints, numbers: Array) -> Rows:
        """Return rows with these levels of every choice and these coordinates of every number.

        Both are given by column: a row of `levels` for every choice, one of `numbers` for every
        number.
        """
        size = levels.shape[1] if self.choices else numbers.shape[1]
        rows = np.zeros((size, len(self.schema)), np.float32)
        whole = set(self.schema.whole.tolist())
        for column, curve, places in zip(
            self.schema.numbers.tolist(), self.quantiles, numbers, strict=True
        ):
            values = curve.decode(places)
            rows[:, column] = np.rint(values) if column in whole else values
        for choice, chosen in zip(self.choices, levels, strict=True):
            categories = len(self.schema.columns[choice.column].categories)
            if categories:
                rows[:, choice.column] = chosen
            if self.gaps[choice.column]:
                rows[chosen == max(1, categories), choice.column] = np.nan
        return rows

    def _levels(self, choice: Choice, values: Array, missing: NDArray[np.bool_]) -> Ints:
        categories = len(self.schema.columns[choice.column].categories)
        codes = values if categories else np.zeros_like(values)
        return np.where(missing, max(1, categories), codes).astype(np.int64)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values of JSON."""
        return {
            "columns": self.schema.to_list(),
            "gaps": list(self.gaps),
            "quantiles": [
                {"places": q.places.tolist(), "values": q.values.tolist()} for q in self.quantiles
            ],
        }

    @classmethod
    def from_dict(cls, body: Mapping[str, Any]) -> "RowSpace":
        """Make a space from what `to_dict` returned."""
        try:
            schema = Schema.from_list(body["columns"])
            gaps = tuple(bool(gap) for gap in body["gaps"])
            curves = tuple(_curve(curve["places"], curve["values"]) for curve in body["quantiles"])
        except (KeyError, TypeError, ValueError):
            raise InputError("not the space of a table's rows") from None
        if (len(gaps), len(curves)) != (len(schema), len(schema.numbers)):
            raise InputError("not the space of this table's rows")
        return cls(schema, gaps, curves)


def blocks(indices: Ints) -> Iterator[Ints]:
    """Yield these indices of rows, a block at a time."""
    for start in range(0, len(indices), _BLOCK):
        yield indices[start : start + _BLOCK]


def _quantiles(values: Rows) -> Quantiles:
    present = values[~np.isnan(values)]
    return Quantiles.of(present if present.size else np.zeros(1, np.float32))


def _curve(places: object, values: object) -> Quantiles:
    """Read a curve, whose numbers may come from anybody's file."""
    curve = Quantiles(np.asarray(places, np.float64), np.asarray(values, np.float64))
    both = np.stack([curve.places, curve.values])
    if both.ndim != 2 or not both.size or not np.isfinite(both).all() or (np.diff(both) < 0).any():
        raise ValueError("not a curve")
    return curve
