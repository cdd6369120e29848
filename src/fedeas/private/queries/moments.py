"""Count, mean and covariance of every class, from sums in a public basis.

For images the basis is the lowest frequencies of the discrete cosine transform; for rows of a
table see `table.py`.
"""

import math
from abc import abstractmethod
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedeas._internal.scalars import integer
from fedeas.errors import InputError
from fedeas.private.queries.query import Floats, Ints, SampleSum, towards_zero

FREQUENCIES = 14
SAFE = 1 + 1e-12  # far more than the error of one product in floating point
UNITS = 2**20  # in the norm of a row
_FINE = 2**14  # parts in which cosines are counted
_MOST = 16  # frequencies in either direction: words grow with the fourth power
_MOST_NUMBERS = 2**20  # of an image
_SQRT2 = math.sqrt(2) * (1 - 2**-40)  # not above it


class NoisyMoments(NamedTuple):
    """What noisy sums say of every class, on the scale on which a sample's norm is at most 1."""

    counts: Floats  # the samples of a class; at least 1
    means: Floats  # classes x coefficients
    seconds: Floats  # the mean of x x^T of every class, of the last coefficients: those multiplied
    mean_errors: Floats  # per class, the standard error of an entry
    second_errors: Floats  # the same of a diagonal entry; others have 1 / sqrt(2) of it

    def covariances(self) -> Floats:
        """Return the covariance of every class's multiplied coefficients, with its noise."""
        means = self.means[:, self.means.shape[1] - self.seconds.shape[1] :]
        raw: Floats = self.seconds - np.einsum("ci,cj->cij", means, means)
        # The noise of a mean adds its variance to the square of the mean, on the diagonal.
        raw += np.square(self.mean_errors)[:, np.newaxis, np.newaxis] * np.eye(raw.shape[1])
        return raw


@dataclass(frozen=True)
class MomentSum(SampleSum):
    """The count, the sum and the second moments of every class.

    A row is (count, x, the upper triangle of y y^T), each in its own unit, where y are those of the
    coefficients that are multiplied. The triangle's entries off the diagonal have a weight of
    sqrt(2), so that its norm is the square of y's.

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
    def multiplied(self) -> int:
        """How many coefficients, from the last one on, have second moments."""
        return self.dimensions

    @property
    def width(self) -> int:
        """A count, the coefficients, and the upper triangle of products."""
        return 1 + self.dimensions + self.multiplied * (self.multiplied + 1) // 2

    @property
    def units(self) -> tuple[int, int, int]:
        """Units of the count, of a coefficient, and of a product of two, at a norm of 1."""
        count, mean, second = (round(UNITS * math.sqrt(share)) for share in self.shares)
        return count, mean, second

    @property
    def sensitivity(self) -> float:
        """A row's norm at the largest norm of x and of y, 1; rounding is towards zero."""
        return math.sqrt(sum(unit**2 for unit in self.units)) * SAFE

    def rows(self, samples: NDArray[Any], labels: NDArray[np.int64]) -> Ints:
        """Return a row per sample."""
        x = clip_norms(self.coefficients(samples))
        return self.words(x, x)

    def words(self, x: Floats, y: Floats, variances: Floats | None = None) -> Ints:
        """Return a row per sample.

        Parameters
        ----------
        x
            Its coefficients, at most 1 in norm.
        y
            The coefficients that are multiplied, at most 1 in norm.
        variances
            Of values that stand for an interval: they add to the squares of y, and count in its
            norm with them.
        """
        count, mean, second = self.units
        rows, columns, _ = triangle(self.multiplied)
        words = np.empty((len(x), self.width), np.int64)
        words[:, 0] = count
        words[:, 1 : 1 + x.shape[1]] = towards_zero(x * mean)
        more = None if variances is None else (rows == columns, variances)
        words[:, 1 + x.shape[1] :] = products(y, second, more)
        return words

    def read(self, sums: Ints, sigma: float, sites: int) -> NoisyMoments:
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
        words, d = self.by_class(sums, sigma), self.dimensions
        count, mean, second = self.units
        counts = self.counts(words[:, 0], sigma, count)
        seconds = squares(words[:, 1 + d :] / counts[:, np.newaxis], self.multiplied, second)
        means = words[:, 1 : 1 + d] / (counts[:, np.newaxis] * mean)
        errors = sigma / (counts * mean), sigma / (counts * max(second, 1))  # 0: nothing is there
        return NoisyMoments(counts, means, seconds, *errors)


def clip_norms(x: Floats) -> Floats:
    """Shorten rows with a norm above 1 to 1."""
    norms = np.linalg.norm(x, axis=1, keepdims=True)
    # A shade shorter, since norm and quotient are rounded.
    short: Floats = x * np.minimum(1.0, (1 - 2**-40) / np.maximum(norms, 1e-300))
    return short


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
    upper = x[:, rows] * x[:, columns]
    if more is not None:
        upper[:, more[0]] += more[1]
    return towards_zero(upper * (weights * unit))


def squares(words: Floats, size: int, unit: int) -> Floats:
    """Return the symmetric matrices that upper triangles are of, the inverse of `products`."""
    rows, columns, weights = triangle(size)
    matrices = np.empty((len(words), size, size))
    matrices[:, rows, columns] = matrices[:, columns, rows] = words / (weights * unit)
    return matrices


@dataclass(frozen=True)
class _ImageFrequencies(SampleSum):
    """A sum over the lowest frequencies of images.

    Parameters
    ----------
    classes, shape
        The number of classes, and height x width x channels of an image of uint8.
    frequencies : int
        How many frequencies are kept in either direction.
    """

    frequencies: int = FREQUENCIES

    def __post_init__(self) -> None:
        check_shape(self.shape)
        most = min(*self.shape[:2], _MOST)
        integer(self.frequencies, "frequencies out of range", f"1 to {most}", 1, most)
        super().__post_init__()

    @property
    def dimensions(self) -> int:
        """The frequencies of every channel."""
        return self.shape[2] * self.frequencies**2


@dataclass(frozen=True)
class ImageMoments(_ImageFrequencies, MomentSum):
    """The count, the mean and the second moments of every class's images."""

    name: ClassVar[str] = "image-moments"
    shares: ClassVar[tuple[float, float, float]] = (0.03, 0.30, 0.67)

    def coefficients(self, samples: NDArray[Any]) -> Floats:
        """Return the frequencies of images."""
        return frequencies_of(samples, self.frequencies)


@dataclass(frozen=True)
class ImageProducts(_ImageFrequencies):
    """Second moments of all images together, whatever their class.

    The noise in them is that of one class, and the images are those of all: so they show more than
    the second moments of classes do.
    """

    name: ClassVar[str] = "image-products"
    by_label: ClassVar[bool] = False

    @property
    def width(self) -> int:
        """The upper triangle of their products."""
        return self.dimensions * (self.dimensions + 1) // 2

    @property
    def sensitivity(self) -> float:
        """The triangle's norm at the largest norm of x, 1; rounding is towards zero."""
        return UNITS * SAFE

    def rows(self, samples: NDArray[Any], labels: NDArray[np.int64]) -> Ints:
        """Return a row per image."""
        return products(clip_norms(frequencies_of(samples, self.frequencies)), UNITS)

    def read(self, sums: Ints, sigma: float, sites: int) -> tuple[Floats, float]:
        """Return the sum of x x^T over all images, and the standard error of a diagonal entry.

        Parameters
        ----------
        sums
            The noisy sums over all sites.
        sigma
            The standard deviation of their noise, in units of the words.
        sites
            The number of sites in the sums; not needed here.
        """
        return squares(self.by_class(sums, sigma), self.dimensions, UNITS)[0], sigma / UNITS


def largest_norm(shape: tuple[int, ...]) -> float:
    """Return the norm that is 1 in the moments, in pixels from -0.5 to 0.5: more is clipped.

    The norm of an image whose pixels are all as far as can be from grey.
    """
    return 0.5 * math.sqrt(math.prod(shape))


def frequencies_of(images: NDArray[Any], frequencies: int) -> Floats:
    """Return the lowest frequencies of images, from grey, at most about 1 in norm.

    Pixels and cosines are whole numbers, so that the sums of products are exact.
    """
    shape = images.shape[1:]
    centred = 2.0 * images.astype(np.float64) - 255.0
    rows, columns = (np.rint(_FINE * cosines(n, frequencies)) for n in shape[:2])
    across = np.tensordot(centred, columns, (2, 1))
    both = np.tensordot(across, rows, (1, 1)).swapaxes(2, 3)  # n, channels, rows, columns
    unit = largest_norm(shape) * 2 * 255 * _FINE**2
    return both.reshape(len(images), -1) / unit


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


def check_shape(shape: tuple[int, ...]) -> None:
    """Refuse what is not height x width x channels of images."""
    if len(shape) != 3 or not all(type(n) is int and 1 <= n <= 256 for n in shape):
        raise InputError("not the shape of images", got=shape, allowed="28 x 28 x 1, ...")
    if math.prod(shape) > _MOST_NUMBERS:
        raise InputError("images are too large", got=shape, allowed=f"{_MOST_NUMBERS:,} numbers")
