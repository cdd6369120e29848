"""How the values of a table's columns are distributed: counts of rows in public intervals.

The server learns from them on which scale a column is, and which columns have gaps.
"""

import math
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedeas.errors import InputError
from fedeas.privacy.queries.query import SCALE, Floats, Ints
from fedeas.privacy.queries.sample_sum import SampleSum

_UNIT = int(SCALE)


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
        found = np.zeros((len(samples), self.width), np.int64)
        each, start = np.arange(len(samples)), 0
        for column, cuts in enumerate(self.cuts):
            found[each, start + interval_of(samples[:, column], cuts)] = _UNIT
            start += len(cuts) + 2
        return found

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
        return [ColumnValues(own[:-1], float(own[-1])) for own in np.split(words, ends[:-1])]

    def error(self, sigma: float) -> float:
        """Return the standard error of a count."""
        return sigma / _UNIT


def increasing(given: object) -> tuple[tuple[float, ...], ...]:
    """Read the cuts of columns, which anybody may have sent."""
    made = number_lists(given)
    for own in made:
        if not np.isfinite(own).all() or not (np.diff(own) > 0).all():
            raise InputError("the cuts of a column do not increase")
    return made


def number_lists(given: object) -> tuple[tuple[float, ...], ...]:
    """Read lists of numbers, which anybody may have sent."""
    try:
        return tuple(tuple(float(x) for x in own) for own in given)  # type: ignore[attr-defined]
    except (TypeError, ValueError):
        raise InputError("not lists of numbers") from None


def interval_of(values: NDArray[Any], cuts: tuple[float, ...]) -> NDArray[np.intp]:
    """Return in which interval each value is; a gap is in one of its own, after the others.

    >>> interval_of(np.array([-1.0, 0.0, 7.0, np.nan]), (0.0, 5.0))
    array([0, 1, 2, 3])
    """
    found = np.searchsorted(np.array(cuts), values.astype(np.float64), side="right")
    return np.where(np.isnan(values), len(cuts) + 1, found)
