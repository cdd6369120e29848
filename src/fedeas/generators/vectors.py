"""Samples as vectors whose distances mean something, one way for each kind of data."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedeas.data import Dataset
from fedeas.data.kinds import Array
from fedeas.generators.row_space import Ints, Rows, RowSpace

Vectors = Callable[[Array], NDArray[Any]]


def pixels(images: Array) -> NDArray[np.float32]:
    """Return images as vectors: their distance is the root of the mean squared difference.

    >>> black, white = pixels(np.array([[[[0]] * 2] * 2, [[[255]] * 2] * 2], np.uint8))
    >>> float(np.linalg.norm(white - black))
    255.0
    """
    flat = images.reshape(len(images), -1).astype(np.float32)
    return flat / np.float32(np.sqrt(flat.shape[1]))


@dataclass(frozen=True, eq=False)
class RowVectors:
    """Rows as vectors: their distance is the root of the mean squared difference of columns.

    Two numbers differ by their places in a normal distribution, so that columns with long tails
    count as much as others. Two categories differ by 1, a value and a gap by 1 or more.
    """

    space: RowSpace

    @classmethod
    def fit(cls, space: RowSpace) -> "RowVectors":
        """Compare rows in a space; any column may have gaps."""
        return cls(replace(space, gaps=(True,) * len(space.schema)))

    def __call__(self, rows: Rows) -> NDArray[np.float64]:
        """Return a vector for every row."""
        points, _ = self.space.encode(rows)
        parts = [points[:, self.space.first_number :]]
        for choice in self.space.choices:
            # The space leaves the first level out, which would make it the nearest to all others.
            levels = points[:, choice.coordinates]
            first = 1 - levels.sum(axis=1, keepdims=True)
            parts += [levels * np.sqrt(0.5), first * np.sqrt(0.5)]
        vectors: NDArray[np.float64] = np.concatenate(parts, axis=1) / np.sqrt(
            len(self.space.schema)
        )
        return vectors


def vectors_of(data: Dataset, places: Ints) -> Vectors:
    """Return how samples of a data set are compared; columns are scaled by the rows at `places`."""
    if data.schema is None:
        return pixels
    return RowVectors.fit(RowSpace.fit(data.schema, data.samples, places))
