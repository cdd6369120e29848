"""How far columns of generated rows are from those of real ones."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedeas.data.schema import Column, Schema

Values = NDArray[np.float32]


@dataclass(frozen=True)
class ColumnDistance:
    """One column: how far generated values are from real ones, 0 to 1, and how many are gaps."""

    name: str
    measure: str  # 'KS' for numbers, 'TV' for categories
    distance: float  # of generated rows from unseen real ones
    real_distance: float  # the same of real training rows: what chance alone makes
    gaps: float  # share of the generated rows
    real_gaps: float  # share of the unseen real rows


def kolmogorov_smirnov(a: Values, b: Values) -> float:
    """Return the largest difference between the shares of two samples below a value.

    >>> kolmogorov_smirnov(np.array([1, 2, 3, 4.0]), np.array([3, 4, 5, 6.0]))
    0.5
    """
    if not a.size or not b.size:
        return float(a.size != b.size)
    a, b = np.sort(a), np.sort(b)
    at = np.concatenate([a, b])
    below = [np.searchsorted(own, at, side="right") / own.size for own in (a, b)]
    return float(np.abs(below[0] - below[1]).max())


def total_variation(a: Values, b: Values, categories: int) -> float:
    """Return half of the summed differences between the shares of categories.

    >>> total_variation(np.array([0, 0, 0, 1.0]), np.array([0, 1, 1, 2.0]), 3)
    0.5
    """
    if not a.size or not b.size:
        return float(a.size != b.size)
    shares = [np.bincount(own.astype(np.int64), minlength=categories) / own.size for own in (a, b)]
    return float(np.abs(shares[0] - shares[1]).sum() / 2)


def column_distances(
    schema: Schema, drawn: Values, unseen: Values, training: Values
) -> list[ColumnDistance]:
    """Compare the columns of generated rows, and of training rows, with unseen real rows.

    All three should have classes as often as each other. Returns the most different column first.
    """
    found = []
    for at, column in enumerate(schema.columns):
        own, real, known = (rows[:, at] for rows in (drawn, unseen, training))
        found.append(
            ColumnDistance(
                column.name,
                "TV" if column.categories else "KS",
                _distance(column, own, real),
                _distance(column, known, real),
                float(np.isnan(own).mean()),
                float(np.isnan(real).mean()),
            )
        )
    return sorted(found, key=lambda one: -max(one.distance, abs(one.gaps - one.real_gaps)))


def _distance(column: Column, a: Values, b: Values) -> float:
    """Return the distance between the values that are there."""
    a, b = a[~np.isnan(a)], b[~np.isnan(b)]
    if column.categories:
        return total_variation(a, b, len(column.categories))
    return kolmogorov_smirnov(a, b)
