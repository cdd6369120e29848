"""From a column's values to a standard normal and back, by their quantiles.

A value that many rows share, as in a column of whole numbers, stands for an interval of the normal
distribution. It is encoded as the mean of that interval, and the variance within the interval is
kept beside it: means and variances of encoded values are then as exact as if every row had drawn a
place in the interval, without drawing any.
"""

from dataclasses import dataclass
from functools import cached_property
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
_MANY = 256  # shares of a column above 1 / _MANY are kept as they are
_KNOTS = 512  # of a curve, besides those of shared values
_LEAST = 1e-9  # a share beyond which a normal is cut off, at six standard deviations
_CELLS = 4096  # of the grid that a place is looked up in
_NORMAL = NormalDist()


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
            found = shared[at] == values
            places[found], variances[found] = mean[at[found]], variance[at[found]]
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
