"""Moments of the rows of a table: categories one-hot, numbers as places of a normal distribution.

What a value becomes is looked up, never computed: it is in an interval of its column, and the
interval has a place and a variance, which whoever asks names. Both are arbitrary as far as privacy
goes, since rows are clipped.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fedeas.errors import InputError
from fedeas.privacy.queries.column_counts import increasing, interval_of, number_lists
from fedeas.privacy.queries.moments import MomentSum
from fedeas.privacy.queries.query import Floats, Ints
from fedeas.scalars import integer

_MOST_LEVELS = 2**14
_LARGEST = 1e6  # of a place: numbers beyond it would only be clipped


@dataclass(frozen=True)
class RowMoments(MomentSum):
    """The count, the sum and the second moments of every class's rows.

    Coordinates are those of `RowSpace`: of every choice between levels all but the first, then one
    for every column of numbers.

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
    radius : float
        Rows with a longer norm are shortened to it.
    """

    name: ClassVar[str] = "row-moments"
    levels: tuple[int, ...] = ()
    gaps: tuple[bool, ...] = ()
    cuts: tuple[tuple[float, ...], ...] = ()
    places: tuple[tuple[float, ...], ...] = ()
    variances: tuple[tuple[float, ...], ...] = ()
    radius: float = 1.0

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
        if type(self.radius) is not float or not 1e-6 < self.radius < _LARGEST:
            raise InputError("radius out of range", got=self.radius, allowed="above 0")
        super().__post_init__()

    def _read(self, given: object, least: float) -> tuple[tuple[float, ...], ...]:
        """Read numbers for every interval, which anybody may have sent."""
        made = number_lists(given)
        sizes = [len(own) + 1 for own in self.cuts]
        if [len(own) for own in made] != sizes:
            raise InputError("not a number for every interval", got=[len(own) for own in made])
        if any(not least <= x <= _LARGEST for own in made for x in own):
            raise InputError("a number of an interval is out of range")
        return made

    @property
    def first_number(self) -> int:
        """The first coordinate of a number."""
        return sum(self._choice(column) for column in range(len(self.levels)))

    @property
    def dimensions(self) -> int:
        """The number of coordinates."""
        return self.first_number + len(self.cuts)

    def _choice(self, column: int) -> int:
        """Return how many coordinates a column's choice has: one for every level but the first."""
        return max(1, self.levels[column]) + self.gaps[column] - 1

    def rows(self, samples: NDArray[Any], labels: NDArray[np.int64]) -> Ints:
        """Return a row per sample; the variance within an interval adds to the square."""
        x, variances = self._encoded(samples)
        lengths = np.sqrt((np.square(x) + variances).sum(axis=1, keepdims=True)) / self.radius
        # A shade shorter, since norm and quotient are rounded.
        scale = np.minimum(1.0, (1 - 2**-40) / np.maximum(lengths, 1e-300)) / self.radius
        return self.words(x * scale, variances * np.square(scale))

    def coefficients(self, samples: NDArray[Any]) -> Floats:
        """Return the coordinates of rows."""
        return self._encoded(samples)[0]

    def _encoded(self, samples: NDArray[Any]) -> tuple[Floats, Floats]:
        """Return the coordinates of rows, and the variances that intervals have."""
        x = np.zeros((len(samples), self.dimensions))
        variances = np.zeros_like(x)
        each, start, number = np.arange(len(samples)), 0, 0
        for column, count in enumerate(self.levels):
            values = samples[:, column]
            missing = np.isnan(values)
            width, last = self._choice(column), max(1, count)
            known = values if count else np.zeros_like(values)
            # A category that this site alone has counts as the first one.
            inside = (known >= 0) & (known < last)
            level = np.where(inside, known, 0).astype(np.int64)
            if self.gaps[column]:
                level = np.where(missing, last, level)
            chosen = each[level > 0]
            x[chosen, start + level[chosen] - 1] = 1.0
            start += width
            if count:
                continue
            at = interval_of(values, self.cuts[number])
            absent = 0.0 if self.gaps[column] else 1.0  # of the variance of a gap
            place = self.first_number + number
            x[:, place] = np.array((*self.places[number], 0.0))[at]
            variances[:, place] = np.array((*self.variances[number], absent))[at]
            number += 1
        return x, variances
