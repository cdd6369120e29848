"""`RowSpace`: rows of a table as vectors in which means and covariances say something.

Numbers become normal by their quantiles. A category, or whether a number is missing, is a *choice*
between levels, with a coordinate for every level but the first: one-hot. Gaps of a column of
categories are one more level.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedeas.data.kinds import Array
from fedeas.data.schema import Schema
from fedeas.errors import InputError
from fedeas.generators.quantiles import Floats, Quantiles
from fedeas.seeds import child_rng

Ints = NDArray[np.int64]
Rows = NDArray[np.float32]
_BLOCK = 8192  # rows at a time
_FITTED = 100_000  # rows that quantiles are found from, if there are more


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
    def fit(cls, schema: Schema, rows: Rows, places: Ints | None = None) -> "RowSpace":
        """Find quantiles and gaps in rows, or in those at some `places`.

        Quantiles come from 100,000 rows drawn at random if there are more.
        """
        at = np.arange(len(rows)) if places is None else places
        if not at.size:
            raise InputError("no rows to learn from", allowed="at least one")
        gaps = np.zeros(len(schema), bool)
        for part in blocks(rows, at):
            schema.check(part)
            gaps |= np.isnan(part).any(axis=0)
        if at.size > _FITTED:
            at = np.sort(child_rng(0, "row-space").choice(at, _FITTED, replace=False))
        columns = np.asarray(rows[at])[:, schema.numbers].T
        return cls(schema, tuple(gaps.tolist()), tuple(map(_quantiles, columns)))

    @cached_property
    def choices(self) -> tuple[Choice, ...]:
        """The choices of a row, in the order of the columns."""
        found: list[Choice] = []
        start = 0
        for column, (about, gaps) in enumerate(zip(self.schema.columns, self.gaps, strict=True)):
            levels = max(1, len(about.categories)) + gaps
            if levels > 1:
                found.append(Choice(column, levels, start))
                start += levels - 1
        return tuple(found)

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
        known = values if categories else np.zeros_like(values)
        return np.where(missing, max(1, categories), known).astype(np.int64)

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
    def from_dict(cls, given: Mapping[str, Any]) -> "RowSpace":
        """Make a space from what `to_dict` returned."""
        try:
            schema = Schema.from_list(given["columns"])
            gaps = tuple(bool(gap) for gap in given["gaps"])
            curves = tuple(_curve(one["places"], one["values"]) for one in given["quantiles"])
        except (KeyError, TypeError, ValueError):
            raise InputError("not the space of a table's rows") from None
        if (len(gaps), len(curves)) != (len(schema), len(schema.numbers)):
            raise InputError("not the space of this table's rows")
        return cls(schema, gaps, curves)


def blocks(rows: Array, places: Ints) -> Iterator[Rows]:
    """Read rows at places, a block at a time."""
    for start in range(0, len(places), _BLOCK):
        yield np.asarray(rows[places[start : start + _BLOCK]])


def _quantiles(values: Rows) -> Quantiles:
    present = values[~np.isnan(values)]
    return Quantiles.of(present if present.size else np.zeros(1, np.float32))


def _curve(places: object, values: object) -> Quantiles:
    """Read a curve, whose numbers may come from anybody's file."""
    made = Quantiles(np.asarray(places, np.float64), np.asarray(values, np.float64))
    both = np.stack([made.places, made.values])
    if both.ndim != 2 or not both.size or not np.isfinite(both).all() or (np.diff(both) < 0).any():
        raise ValueError("not a curve")
    return made
