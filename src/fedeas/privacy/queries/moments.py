"""Count, mean and covariance of every class, from sums in a public basis.

For images the basis are the lowest frequencies of the discrete cosine transform; for rows of a
table see `row_moments.py`.
"""

import math
from abc import abstractmethod
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedeas.privacy.queries.query import Floats, Ints
from fedeas.privacy.queries.sample_sum import SampleSum, towards_zero

SAFE = 1 + 1e-12  # far more than the error of one product in floating point
UNITS = 2**20  # in the norm of a row
_SQRT2 = math.sqrt(2) * (1 - 2**-40)  # not above it


class Moments(NamedTuple):
    """What noisy sums say of every class, on the scale on which a sample's norm is at most 1."""

    counts: Floats  # the samples of a class; at least 1
    means: Floats  # classes x coefficients
    seconds: Floats  # classes x coefficients x coefficients: the mean of x x^T
    mean_errors: Floats  # per class, the standard error of an entry
    second_errors: Floats  # the same of a diagonal entry; others have 1 / sqrt(2) of it

    def covariances(self) -> Floats:
        """Return the covariance of every class, with its noise."""
        raw: Floats = self.seconds - np.einsum("ci,cj->cij", self.means, self.means)
        # The noise of a mean adds its variance to the square of the mean, on the diagonal.
        raw += np.square(self.mean_errors)[:, np.newaxis, np.newaxis] * np.eye(raw.shape[1])
        return raw


@dataclass(frozen=True)
class MomentSum(SampleSum):
    """The count, the sum and the second moments of every class.

    A row is (count, x, the upper triangle of x x^T), each in its own unit. The triangle's entries
    off the diagonal have a weight of sqrt(2), so that its norm is the square of x's.

    Parameters
    ----------
    classes, shape
        The number of classes, and the shape of a sample.
    """

    # Parts of a row's squared norm: what the count, the sum and the second moments may move. Second
    # moments are many, and need most of it.
    shares: ClassVar[tuple[float, float, float]] = (0.02, 0.28, 0.70)

    @property
    @abstractmethod
    def dimensions(self) -> int:
        """How many coefficients a sample has."""

    @abstractmethod
    def coefficients(self, samples: NDArray[Any]) -> Floats:
        """Return a row per sample, each a function of that sample alone; clipped afterwards."""

    @property
    def width(self) -> int:
        """A count, the coefficients, and the upper triangle of their products."""
        d = self.dimensions
        return 1 + d + d * (d + 1) // 2

    @property
    def units(self) -> tuple[int, int, int]:
        """Units of the count, of a coefficient, and of a product of two, at a norm of 1."""
        count, mean, second = (round(UNITS * math.sqrt(share)) for share in self.shares)
        return count, mean, second

    @property
    def sensitivity(self) -> float:
        """A row's norm at the largest norm of x, 1; rounding is towards zero."""
        return math.sqrt(sum(unit**2 for unit in self.units)) * SAFE

    def rows(self, samples: NDArray[Any], labels: NDArray[np.int64]) -> Ints:
        """Return a row per sample."""
        return self.words(clipped(self.coefficients(samples)))

    def words(self, x: Floats, variances: Floats | None = None) -> Ints:
        """Return a row per sample, given its coefficients, at most 1 in norm.

        Parameters
        ----------
        x
            The coefficients.
        variances
            Of values that stand for an interval: they add to the squares of their coefficients, and
            count in the norm with them.
        """
        count, mean, second = self.units
        rows, columns, _ = triangle(self.dimensions)
        found = np.empty((len(x), self.width), np.int64)
        found[:, 0] = count
        found[:, 1 : 1 + x.shape[1]] = towards_zero(x * mean)
        more = None if variances is None else (rows == columns, variances)
        found[:, 1 + x.shape[1] :] = products(x, second, more)
        return found

    def read(self, sums: Ints, sigma: float, sites: int) -> Moments:
        """Return the moments of every class.

        Parameters
        ----------
        sums
            The noisy sums over all sites.
        sigma
            The standard deviation of their noise, in units of the words.
        sites
            The number of sites in the sums; not needed here.
        """
        found, d = self.by_class(sums, sigma), self.dimensions
        count, mean, second = self.units
        counts = self.counts(found[:, 0], sigma, count)
        seconds = squares(found[:, 1 + d :] / counts[:, np.newaxis], d, second)
        means = found[:, 1 : 1 + d] / (counts[:, np.newaxis] * mean)
        return Moments(counts, means, seconds, sigma / (counts * mean), sigma / (counts * second))


def clipped(x: Floats) -> Floats:
    """Shorten rows with a norm above 1 to 1."""
    norms = np.linalg.norm(x, axis=1, keepdims=True)
    # A shade shorter, since norm and quotient are rounded.
    found: Floats = x * np.minimum(1.0, (1 - 2**-40) / np.maximum(norms, 1e-300))
    return found


@lru_cache(maxsize=8)
def triangle(size: int) -> tuple[NDArray[np.intp], NDArray[np.intp], Floats]:
    """Return the rows, columns and weights of the upper triangle of a square matrix."""
    rows, columns = np.triu_indices(size)
    return rows, columns, np.where(rows == columns, 1.0, _SQRT2)


def products(x: Floats, unit: int, more: tuple[NDArray[np.bool_], Floats] | None = None) -> Ints:
    """Return the upper triangle of x x^T of every row, weighted, in whole units.

    Parameters
    ----------
    x, unit
        Rows, and the units of a product of 1.
    more
        Where the diagonal is in a triangle, and what is added to it.
    """
    rows, columns, weights = triangle(x.shape[1])
    found = x[:, rows] * x[:, columns]
    if more is not None:
        found[:, more[0]] += more[1]
    return towards_zero(found * (weights * unit))


def squares(words: Floats, size: int, unit: int) -> Floats:
    """Return the symmetric matrices that upper triangles are of, the inverse of `products`."""
    rows, columns, weights = triangle(size)
    found = np.empty((len(words), size, size))
    found[:, rows, columns] = found[:, columns, rows] = words / (weights * unit)
    return found
