"""`Moments`: counts, sums and second moments of every class. They add up over clients."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedeas.data.kinds import Array
from fedeas.errors import InputError
from fedeas.generators.quantiles import Floats
from fedeas.generators.row_space import Ints, RowSpace, blocks

_MOST = 1 << 27  # numbers in all second moments: one gigabyte


@dataclass(frozen=True, eq=False)
class Moments:
    """How many samples every class has, their sum and the sum of their outer products.

    >>> one = Moments(np.array([1.0]), np.array([[2.0]]), np.array([[[4.0]]]))
    >>> (one + one).counts, (one + one).sums
    (array([2.]), array([[4.]]))
    """

    counts: Floats  # classes
    sums: Floats  # classes x coordinates
    squares: Floats  # classes x coordinates x coordinates

    @classmethod
    def zeros(cls, classes: int, dimensions: int) -> "Moments":
        """Return the moments of no samples."""
        if classes * dimensions**2 > _MOST:
            raise InputError(
                f"second moments of {classes:,} classes in {dimensions:,} dimensions do not fit "
                "in memory",
                allowed=f"at most {int((_MOST / classes) ** 0.5):,} dimensions: columns of numbers "
                "and categories",
                fix="leave out columns of many categories",
            )
        shape = (classes, dimensions)
        return cls(np.zeros(classes), np.zeros(shape), np.zeros((*shape, dimensions)))

    @classmethod
    def of(
        cls, space: RowSpace, rows: Array, labels: Ints, classes: int, places: Ints | None = None
    ) -> "Moments":
        """Add up the moments of rows in a space, or of those at some `places`, block by block."""
        at = np.arange(len(labels)) if places is None else places
        found = cls.zeros(classes, space.dimensions)
        done = 0
        for part in blocks(rows, at):
            found._add_block(space, part, np.asarray(labels[at[done : done + len(part)]]))
            done += len(part)
        return found

    def _add_block(self, space: RowSpace, rows: Array, labels: Ints) -> None:
        points, within = space.encode(rows)
        numbers = np.arange(space.first_number, space.dimensions)
        for label in np.unique(labels).tolist():
            own = labels == label
            part = points[own]
            self.counts[label] += len(part)
            self.sums[label] += part.sum(axis=0)
            self.squares[label] += part.T @ part
            self.squares[label][numbers, numbers] += within[own].sum(axis=0)

    def __add__(self, other: "Moments") -> "Moments":
        if self.squares.shape != other.squares.shape:
            raise InputError(
                "moments of other classes or columns",
                got=other.sums.shape,
                allowed=str(self.sums.shape),
            )
        return Moments(
            self.counts + other.counts, self.sums + other.sums, self.squares + other.squares
        )

    def complete(self, space: RowSpace) -> tuple[Floats, Floats]:
        """Return means and scatter, the sum of outer products about the mean, as without gaps.

        Means are those of the numbers that are there. The scatter of two numbers is that of the
        rows that have both, scaled to all rows of the class.
        """
        gaps = space.gap_coordinates
        numbers, missing = np.array(list(gaps), np.intp), np.array(list(gaps.values()), np.intp)
        means = self.sums / np.maximum(self.counts, 1.0)[:, np.newaxis]
        scatters = np.empty_like(self.squares)
        for label, count in enumerate(self.counts.tolist()):
            there = np.full(len(means[label]), max(count, 1.0))
            there[numbers] -= self.sums[label, missing]
            # Where a number is missing, the mean of the others is taken.
            means[label, numbers] = self.sums[label, numbers] / np.maximum(there[numbers], 0.5)
            filled = np.eye(len(there))
            filled[numbers, missing] = means[label, numbers]
            squares = filled @ self.squares[label] @ filled.T
            scatter = squares - count * np.outer(means[label], means[label])
            both = np.minimum(there[:, np.newaxis], there)
            neither = self.squares[label][np.ix_(missing, missing)]
            both[np.ix_(numbers, numbers)] = (
                there[numbers][:, np.newaxis] + there[numbers] - max(count, 1.0) + neither
            )
            scatters[label] = np.where(both >= 0.5, scatter * count / np.maximum(both, 0.5), 0.0)
        return means, scatters

    def packed(self) -> Floats:
        """Return all of it as one row per class: count, sum, and half of the second moments."""
        rows, columns = np.tril_indices(self.sums.shape[1])
        return np.column_stack([self.counts, self.sums, self.squares[:, rows, columns]])

    @classmethod
    def unpacked(cls, packed: NDArray[np.float64], dimensions: int) -> "Moments":
        """Return the moments from what `packed` returned."""
        rows, columns = np.tril_indices(dimensions)
        shape: Sequence[int] = packed.shape
        if len(shape) != 2 or shape[1] != 1 + dimensions + rows.size:
            raise InputError("not the moments of these columns", got=tuple(shape))
        made = cls.zeros(shape[0], dimensions)
        made.counts[:] = packed[:, 0]
        made.sums[:] = packed[:, 1 : dimensions + 1]
        made.squares[:, rows, columns] = packed[:, dimensions + 1 :]
        made.squares[:, columns, rows] = packed[:, dimensions + 1 :]
        return made
