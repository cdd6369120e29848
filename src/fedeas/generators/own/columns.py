"""What private counts say of a table's columns: on which scale they are, and which have gaps.

Nobody has to state bounds, which a site may not know, or which would tell what it has. Two sums
find them, for a small part of the budget. The first counts values in intervals that grow with their
distance from zero, the same for every table: they show a column's scale. The second counts them in
intervals of that scale, and so finds its quantiles.
"""

import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from fedeas.data.schema import Column, Schema
from fedeas.generators.quantiles import Floats, Quantiles
from fedeas.generators.row_space import RowSpace
from fedeas.privacy.queries.column_counts import ColumnValues

_STEP = 0.35  # between the logarithms of the first intervals' ends
_WHOLE, _FINEST = 1.0, 1e-3  # about the smallest numbers that are told from zero
_LARGEST = 1e9  # a column's values beyond it count as it
_INTERVALS = 64  # of a column in the second count
_ALL_WHOLE = 64  # whole numbers up to which each has an interval of its own
_CLEAR = 4.0  # standard errors above which a column is believed to have gaps
_BEYOND = 2.0  # standard errors that an interval stands out above the largest of all noise
_BESIDE = 2.0  # the same of one beside an interval that has rows
_LEAST_SHARE = 1e-3  # of all intervals together, spread evenly; none has a share of zero
_TAIL = 1e-3  # beyond this share the outermost values are drawn
_NORMAL = NormalDist()

Edges = tuple[float, ...]  # both ends of every interval of a column


class Columns(NamedTuple):
    """How the columns of a table are told in numbers."""

    space: RowSpace
    cuts: tuple[Edges, ...]  # per column of numbers, between its intervals
    places: tuple[Edges, ...]  # of every interval in a standard normal distribution
    variances: tuple[Edges, ...]  # within it


def first_edges(column: Column) -> Edges:
    """Return intervals that fit any column of numbers.

    >>> [x for x in first_edges(Column("age", whole=True)) if 0 < x < 20]
    [0.5, 1.5, 2.5, 4.5, 5.5, 8.5, 11.5, 16.5]
    """
    unit = _WHOLE if column.whole else _FINEST
    steps = math.ceil(math.asinh(_LARGEST / unit) / _STEP)
    found = unit * np.sinh(_STEP * np.arange(-steps, steps + 1))
    if column.whole:
        found = np.floor(found) + 0.5
    return tuple(np.unique(found).tolist())


def finer_edges(
    column: Column, edges: Edges, counts: Floats, error: float, tried: int
) -> tuple[Edges, Floats]:
    """Return intervals on the scale of a column, and the shares that each should have.

    Parameters
    ----------
    column, edges
        The column, and its first intervals.
    counts
        How many rows are in each of them.
    error
        The standard error of these counts.
    tried
        Intervals of all columns: none of them should stand out by its noise alone.
    """
    first, last = _occupied(counts, error, tried)
    ends = np.array(edges[first : last + 2])
    mass = np.maximum(counts[first : last + 1], max(error / 2, 1e-6))
    below = np.concatenate([[0.0], np.cumsum(mass) / mass.sum()])
    if column.whole and ends[-1] - ends[0] <= _ALL_WHOLE:
        found = np.arange(ends[0], ends[-1] + 0.5)
    else:
        found = np.interp(np.linspace(0, 1, _INTERVALS + 1), below, ends)
        found = np.unique(np.floor(found) + 0.5 if column.whole else found)
    if len(found) < 2:
        found = ends
    return tuple(found.tolist()), np.diff(np.interp(found, ends, below))


def _occupied(counts: Floats, error: float, tried: int) -> tuple[int, int]:
    """Return the first and the last interval that has rows."""
    noise = error * (math.sqrt(2 * math.log(max(tried, 2))) + _BEYOND)
    clear = np.flatnonzero(counts > max(noise, 0.5)).tolist() or [int(counts.argmax())]
    first, last = clear[0], clear[-1]
    if error:
        while first > 0 and counts[first - 1] > _BESIDE * error:
            first -= 1
        while last < len(counts) - 1 and counts[last + 1] > _BESIDE * error:
            last += 1
        # One more on either side may hold fewer rows than the noise hides.
        first, last = max(first - 1, 0), min(last + 1, len(counts) - 1)
    return first, last


def smoothed_shares(counts: Floats, expected: Floats, error: float) -> Floats:
    """Return the shares of intervals: counted ones lean on expected ones, as the noise demands."""
    size = max(float(counts.sum()), 1.0)
    prior = expected / expected.sum() * size
    apart = counts - prior
    mixed = np.maximum(prior + kept_part(apart, len(counts) * error**2) * apart, 0.0)
    mixed += _LEAST_SHARE * size / len(mixed)
    found: Floats = mixed / mixed.sum()
    return found


def kept_part(apart: Floats, noise: float) -> float:
    """Return which part of a deviation to keep, given the square of its noise (James and Stein).

    >>> kept_part(np.array([3.0, 4.0]), 5.0)
    0.8
    """
    square = float(np.square(apart).sum())
    return max(0.0, 1 - noise / square) if square > 0 else 0.0


def columns_of(
    schema: Schema,
    gaps: Sequence[bool],
    edges: Sequence[Edges],
    shares: Sequence[Floats],
) -> Columns:
    """Return how the columns are told in numbers, given the shares of their intervals."""
    curves, places, variances = [], [], []
    for number, column in enumerate(schema.numbers.tolist()):
        below = np.concatenate([[0.0], np.cumsum(shares[number])]).clip(0, 1)
        whole = schema.columns[column].whole
        curves.append(_curve(np.array(edges[number]), below, whole))
        place, variance = _intervals(below)
        places.append(tuple(place.tolist()))
        variances.append(tuple(variance.tolist()))
    cuts = tuple(own[1:-1] for own in edges)
    space = RowSpace(schema, tuple(gaps), tuple(curves))
    return Columns(space, cuts, tuple(places), tuple(variances))


def believed_gaps(found: Sequence[ColumnValues], error: float) -> list[bool]:
    """Return which columns have gaps for certain."""
    return [one.gaps > max(_CLEAR * error, 0.5) for one in found]


def _curve(edges: Floats, below: Floats, whole: bool) -> Quantiles:
    """Return a column's quantile function."""
    places = np.array([_NORMAL.inv_cdf(p) for p in below.clip(_TAIL, 1 - _TAIL).tolist()])
    if not whole:
        return Quantiles(places, edges)
    # An interval from 2.5 to 4.5 holds 3 and 4.
    values = np.stack([edges[:-1] + 0.5, edges[1:] - 0.5], axis=1).reshape(-1)
    return Quantiles(np.repeat(places, 2)[1:-1], values)


def _intervals(below: Floats) -> tuple[Floats, Floats]:
    """Return mean and variance of a standard normal in intervals that begin at these shares."""
    ends = np.array([_NORMAL.inv_cdf(p) for p in below.clip(1e-9, 1 - 1e-9).tolist()])
    density = np.exp(-np.square(ends) / 2) / math.sqrt(2 * math.pi)
    mass = np.maximum(np.diff(below), 1e-12)
    mean = (density[:-1] - density[1:]) / mass
    moment = (ends * density)[:-1] - (ends * density)[1:]
    return mean, np.clip(1 + moment / mass - mean**2, 0.0, 1.0)
