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

from fedeas.errors import InputError
from fedeas.privacy.queries.query import Floats, Ints
from fedeas.privacy.queries.sample_sum import SampleSum, towards_zero
from fedeas.scalars import integer

_FINE = 2**14  # parts in which cosines are counted
_SAFE = 1 + 1e-12  # far more than the error of one product in floating point
# Parts of a row's squared norm: what the count, the sum and the second moments may move. Second
# moments are many, and need most of it.
_SHARES = (0.02, 0.28, 0.70)
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
        count, mean, second = (round(2**20 * math.sqrt(share)) for share in _SHARES)
        return count, mean, second

    @property
    def sensitivity(self) -> float:
        """A row's norm at the largest norm of x, 1; rounding is towards zero."""
        return math.sqrt(sum(unit**2 for unit in self.units)) * _SAFE

    def rows(self, samples: NDArray[Any]) -> Ints:
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
        rows, columns, weights = triangle(self.dimensions)
        found = np.empty((len(x), self.width), np.int64)
        found[:, 0] = count
        found[:, 1 : 1 + x.shape[1]] = towards_zero(x * mean)
        products = x[:, rows] * x[:, columns]
        if variances is not None:
            products[:, rows == columns] += variances
        found[:, 1 + x.shape[1] :] = towards_zero(products * (weights * second))
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
        rows, columns, weights = triangle(d)
        seconds = np.empty((self.classes, d, d))
        products = found[:, 1 + d :] / (weights * second) / counts[:, np.newaxis]
        seconds[:, rows, columns] = seconds[:, columns, rows] = products
        means = found[:, 1 : 1 + d] / (counts[:, np.newaxis] * mean)
        return Moments(counts, means, seconds, sigma / (counts * mean), sigma / (counts * second))


@dataclass(frozen=True)
class ImageMoments(MomentSum):
    """Moments of the lowest frequencies of images.

    Parameters
    ----------
    classes, shape
        The number of classes, and height x width x channels of an image of uint8.
    frequencies : int
        How many frequencies are kept in either direction.
    """

    name: ClassVar[str] = "image-moments"
    frequencies: int = 10

    def __post_init__(self) -> None:
        if len(self.shape) != 3 or not all(type(n) is int and 1 <= n <= 256 for n in self.shape):
            raise InputError("not the shape of images", got=self.shape, allowed="28 x 28 x 1, ...")
        most = min(*self.shape[:2], 32)
        integer(self.frequencies, "frequencies out of range", f"1 to {most}", 1, most)
        super().__post_init__()

    @property
    def dimensions(self) -> int:
        """The frequencies of every channel."""
        return self.shape[2] * self.frequencies**2

    @property
    def largest(self) -> float:
        """The norm that is 1 in the moments, in pixels from -0.5 to 0.5: longer ones are clipped.

        The norm of an image whose pixels are all as far as can be from grey.
        """
        return 0.5 * math.sqrt(math.prod(self.shape))

    def coefficients(self, samples: NDArray[Any]) -> Floats:
        """Return the frequencies of images, from grey, at most about 1 in norm.

        Pixels and cosines are whole numbers, so that the sums of products are exact.
        """
        centred = 2.0 * samples.astype(np.float64) - 255.0
        rows, columns = (np.rint(_FINE * cosines(n, self.frequencies)) for n in self.shape[:2])
        across = np.tensordot(centred, columns, (2, 1))
        found = np.tensordot(across, rows, (1, 1)).swapaxes(2, 3)  # n, channels, rows, columns
        unit = self.largest * 2 * 255 * _FINE**2
        coefficients: Floats = found.reshape(len(samples), -1) / unit
        return coefficients


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


@lru_cache(maxsize=8)
def cosines(size: int, frequencies: int) -> Floats:
    """Return the first rows of the orthonormal cosine transform, frequencies x size.

    >>> cosines(4, 2).round(3).tolist()
    [[0.5, 0.5, 0.5, 0.5], [0.653, 0.271, -0.271, -0.653]]
    """
    places, which = np.arange(size) + 0.5, np.arange(frequencies)[:, np.newaxis]
    rows: Floats = np.cos(math.pi / size * which * places) * math.sqrt(2 / size)
    rows[0] /= math.sqrt(2)
    return rows
