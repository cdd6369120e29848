"""Sums over the rows of a table: counts of values in public intervals, and moments.

Counts of rows in intervals show on which scale a column is, and which columns have missing values.
For moments, categories are one-hot and numbers are places of a normal distribution. What a value
becomes is looked up, never computed: it is in an interval of its column, and the interval has a
place and a variance, which whoever asks names. Both are arbitrary as far as privacy goes, since
rows are clipped.
"""

import math
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedeas._internal.scalars import integer
from fedeas.errors import InputError
from fedeas.private.queries.moments import MomentSum, NoisyMoments
from fedeas.private.queries.query import SCALE, Floats, Ints, SampleSum

_UNIT = int(SCALE)
_MOST_LEVELS = 2**14
# A row's time grows with its words: a longer question takes a site seconds for a thousand rows.
_MOST_CUTS, _MOST_MEAN_CUTS = 2**12, 2**8  # of one column, and of a column on average
_LARGEST = 1e6  # of a place: numbers beyond it would only be clipped


class ColumnValues(NamedTuple):
    """What noisy sums say of one column."""

    counts: Floats  # rows in every interval
    gaps: float  # rows without a value


@dataclass(frozen=True)
class ColumnCounts(SampleSum):
    """How many rows, of all classes together, have a value in each of a column's intervals.

    A row counts once per column: in one of the intervals, or as a gap.

    Parameters
    ----------
    classes, shape
        The number of classes, and (columns,).
    cuts : tuple of tuples of float
        For every column the values between its intervals, increasing; the value itself belongs to
        the interval above it. A column without any has one interval: it has a value, or a gap.
    """

    name: ClassVar[str] = "column-counts"
    by_label: ClassVar[bool] = False
    cuts: tuple[tuple[float, ...], ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "cuts", increasing(self.cuts))
        if tuple(self.shape) != (len(self.cuts),) or not self.cuts:
            raise InputError("not the cuts of these columns", got=len(self.cuts))
        super().__post_init__()

    @property
    def width(self) -> int:
        """For every column its intervals, then its gaps."""
        return sum(len(cuts) + 2 for cuts in self.cuts)

    @property
    def sensitivity(self) -> float:
        """A row counts once in every column."""
        return _UNIT * math.sqrt(len(self.cuts)) * (1 + 1e-12)

    def rows(self, samples: NDArray[Any], labels: NDArray[np.int64]) -> Ints:
        """Return a row per sample."""
        rows = np.zeros((len(samples), self.width), np.int64)
        each, start = np.arange(len(samples)), 0
        for column, cuts in enumerate(self.cuts):
            rows[each, start + interval_of(samples[:, column], cuts)] = _UNIT
            start += len(cuts) + 2
        return rows

    def read(self, sums: Ints, sigma: float, sites: int) -> list[ColumnValues]:
        """Return what the sums say of every column.

        Parameters
        ----------
        sums
            The noisy sums over all sites.
        sigma
            The standard deviation of their noise, in units of the words.
        sites
            The number of sites in the sums; not needed here.
        """
        words = self.by_class(sums, sigma)[0] / _UNIT
        ends = np.cumsum([len(cuts) + 2 for cuts in self.cuts])
        return [ColumnValues(part[:-1], float(part[-1])) for part in np.split(words, ends[:-1])]

    def error(self, sigma: float) -> float:
        """Return the standard error of a count."""
        return sigma / _UNIT


@dataclass(frozen=True)
class RowMoments(MomentSum):
    """The count and the sum of every class's rows, and the second moments of their numbers.

    Coordinates are those of `RowSpace`: of every choice between levels all but the first, then one
    for every column of numbers. Products with levels, of which rare ones vary little, would say
    less than their noise, and cost the others most of the budget.

    Parameters
    ----------
    classes, shape
        The number of classes, and (columns,).
    levels : tuple of int
        The categories of every column; 0 for a column of numbers.
    gaps : tuple of bool
        Whether gaps are a level of their own. Where they are not, they count as a typical value.
    cuts : tuple of tuples of float
        The values between the intervals of every column of numbers.
    places, variances : tuples of tuples of float
        Where each of these intervals is in a standard normal distribution, and how wide.
    radius, number_radius : float
        Rows with a longer norm are shortened to the first; so are their numbers, where they are
        multiplied, to the second.
    """

    name: ClassVar[str] = "row-moments"
    levels: tuple[int, ...] = ()
    gaps: tuple[bool, ...] = ()
    cuts: tuple[tuple[float, ...], ...] = ()
    places: tuple[tuple[float, ...], ...] = ()
    variances: tuple[tuple[float, ...], ...] = ()
    radius: float = 1.0
    number_radius: float = 0.0  # is always given: earlier versions had none, and another meaning

    def __post_init__(self) -> None:
        for name in ("levels", "gaps"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        object.__setattr__(self, "cuts", increasing(self.cuts))
        object.__setattr__(self, "places", self._read(self.places, -_LARGEST))
        object.__setattr__(self, "variances", self._read(self.variances, 0.0))
        for count in self.levels:
            integer(count, "categories out of range", f"0 to {_MOST_LEVELS}", 0, _MOST_LEVELS)
        numbers = sum(count == 0 for count in self.levels)
        if not all(type(gap) is bool for gap in self.gaps) or not (
            tuple(self.shape) == (len(self.levels),) == (len(self.gaps),)
            and self.levels
            and len(self.cuts) == numbers
        ):
            raise InputError("not a description of these columns", got=tuple(self.shape))
        for radius in (self.radius, self.number_radius):
            if type(radius) is not float or not 1e-6 < radius < _LARGEST:
                raise InputError("radius out of range", got=radius, allowed="above 0")
        super().__post_init__()

    def _read(self, given: object, least: float) -> tuple[tuple[float, ...], ...]:
        """Read numbers for every interval, which anybody may have sent."""
        numbers = number_lists(given)
        sizes = [len(column) for column in numbers]
        if sizes != [len(cuts) + 1 for cuts in self.cuts]:
            raise InputError("not a number for every interval", got=sizes)
        if any(not least <= x <= _LARGEST for column in numbers for x in column):
            raise InputError("a number of an interval is out of range")
        return numbers

    @property
    def first_number(self) -> int:
        """The first coordinate of a number."""
        return sum(self._choice(column) for column in range(len(self.levels)))

    @property
    def dimensions(self) -> int:
        """The number of coordinates."""
        return self.first_number + len(self.cuts)

    @property
    def multiplied(self) -> int:
        """Numbers alone have second moments."""
        return len(self.cuts)

    @property
    def units(self) -> tuple[int, int, int]:
        """As of all moments; without numbers nothing is multiplied, and the rest has more."""
        count, mean, second = super().units
        return (count, mean, second) if self.cuts else (count, math.isqrt(mean**2 + second**2), 0)

    def _choice(self, column: int) -> int:
        """Return how many coordinates a column's choice has: one for every level but the first."""
        return max(1, self.levels[column]) + self.gaps[column] - 1

    def rows(self, samples: NDArray[Any], labels: NDArray[np.int64]) -> Ints:
        """Return a row per sample; the variance within an interval adds to the square."""
        x, variances = self._encoded(samples)
        y, own = x[:, self.first_number :], variances[:, self.first_number :]
        scale = _shortening(y, own, self.number_radius)
        whole = x * _shortening(x, variances, self.radius)
        return self.words(whole, y * scale, own * np.square(scale))

    def read(self, sums: Ints, sigma: float, sites: int) -> NoisyMoments:
        """Return the moments of every class, in units of `number_radius`.

        Parameters
        ----------
        sums, sigma, sites
            As for every sum of moments.
        """
        moments = super().read(sums, sigma, sites)
        unit = self.radius / self.number_radius
        means, errors = moments.means * unit, moments.mean_errors * unit
        return moments._replace(means=means, mean_errors=errors)

    def coefficients(self, samples: NDArray[Any]) -> Floats:
        """Return the coordinates of rows."""
        return self._encoded(samples)[0]

    def _encoded(self, samples: NDArray[Any]) -> tuple[Floats, Floats]:
        """Return the coordinates of rows, and the variances that intervals have."""
        x = np.zeros((len(samples), self.dimensions))
        variances = np.zeros_like(x)
        each, start, number, first = np.arange(len(samples)), 0, 0, self.first_number
        for column, count in enumerate(self.levels):
            values = samples[:, column]
            missing = np.isnan(values)
            width, last = self._choice(column), max(1, count)
            codes = values if count else np.zeros_like(values)
            # A category that this site alone has counts as the first one.
            inside = (codes >= 0) & (codes < last)
            level = np.where(inside, codes, 0).astype(np.int64)
            if self.gaps[column]:
                level = np.where(missing, last, level)
            one_hot = each[level > 0]
            x[one_hot, start + level[one_hot] - 1] = 1.0
            start += width
            if count:
                continue
            at = interval_of(values, self.cuts[number])
            absent = 0.0 if self.gaps[column] else 1.0  # of the variance of a gap
            place = first + number
            x[:, place] = np.array((*self.places[number], 0.0))[at]
            variances[:, place] = np.array((*self.variances[number], absent))[at]
            number += 1
        return x, variances


def _shortening(x: Floats, variances: Floats, radius: float) -> Floats:
    """Return what to multiply rows by for a norm of 1 at most, with their variances."""
    lengths = np.sqrt((np.square(x) + variances).sum(axis=1, keepdims=True)) / radius
    # A shade shorter, since norm and quotient are rounded.
    scale: Floats = np.minimum(1.0, (1 - 2**-40) / np.maximum(lengths, 1e-300)) / radius
    return scale


def increasing(given: object) -> tuple[tuple[float, ...], ...]:
    """Read the cuts of columns, which anybody may have sent."""
    cuts = number_lists(given)
    most, total = max(map(len, cuts), default=0), sum(map(len, cuts))
    most_in_all = max(_MOST_CUTS, _MOST_MEAN_CUTS * len(cuts))
    if most > _MOST_CUTS or total > most_in_all:
        raise InputError(
            "too many cuts",
            got=f"{most:,} in one column, {total:,} in all",
            allowed=f"up to {_MOST_CUTS:,}, and {most_in_all:,}",
        )
    for column in cuts:
        if not np.isfinite(column).all() or not (np.diff(column) > 0).all():
            raise InputError("the cuts of a column do not increase")
    return cuts


def number_lists(given: object) -> tuple[tuple[float, ...], ...]:
    """Read lists of numbers, which anybody may have sent."""
    try:
        return tuple(tuple(float(x) for x in column) for column in given)  # type: ignore[attr-defined]
    except (TypeError, ValueError, OverflowError):
        raise InputError("not lists of numbers") from None


def interval_of(values: NDArray[Any], cuts: tuple[float, ...]) -> NDArray[np.intp]:
    """Return in which interval each value is; a gap is in one of its own, after the others.

    >>> interval_of(np.array([-1.0, 0.0, 7.0, np.nan]), (0.0, 5.0))
    array([0, 1, 2, 3])
    """
    interval = np.searchsorted(np.array(cuts), values.astype(np.float64), side="right")
    return np.where(np.isnan(values), len(cuts) + 1, interval)
