"""Moments of images, in the lowest frequencies of the discrete cosine transform."""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fedeas.errors import InputError
from fedeas.privacy.queries.moments import (
    SAFE,
    UNITS,
    MomentSum,
    clipped,
    products,
    squares,
)  # fmt: skip
from fedeas.privacy.queries.query import Floats, Ints
from fedeas.privacy.queries.sample_sum import SampleSum
from fedeas.scalars import integer

_FINE = 2**14  # parts in which cosines are counted
_MOST = 16  # frequencies in either direction: words grow with the fourth power
FREQUENCIES = 14


@dataclass(frozen=True)
class ImageMoments(MomentSum):
    """The count, the mean and the second moments of every class's images.

    Parameters
    ----------
    classes, shape
        The number of classes, and height x width x channels of an image of uint8.
    frequencies : int
        How many frequencies are kept in either direction.
    """

    name: ClassVar[str] = "image-moments"
    shares: ClassVar[tuple[float, float, float]] = (0.03, 0.30, 0.67)
    frequencies: int = FREQUENCIES

    def __post_init__(self) -> None:
        _check(self.shape, self.frequencies)
        super().__post_init__()

    @property
    def dimensions(self) -> int:
        """The frequencies of every channel."""
        return self.shape[2] * self.frequencies**2

    def coefficients(self, samples: NDArray[Any]) -> Floats:
        """Return the frequencies of images."""
        return frequencies_of(samples, self.frequencies)


@dataclass(frozen=True)
class ImageProducts(SampleSum):
    """Second moments of all images together, whatever their class.

    The noise in them is that of one class, and the images are those of all: so they show more than
    the second moments of classes do.

    Parameters
    ----------
    classes, shape, frequencies
        As for `ImageMoments`.
    """

    name: ClassVar[str] = "image-products"
    by_label: ClassVar[bool] = False
    frequencies: int = FREQUENCIES

    def __post_init__(self) -> None:
        _check(self.shape, self.frequencies)
        super().__post_init__()

    @property
    def dimensions(self) -> int:
        """The frequencies of every channel."""
        return self.shape[2] * self.frequencies**2

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
        return products(clipped(frequencies_of(samples, self.frequencies)), UNITS)

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
    found = np.tensordot(across, rows, (1, 1)).swapaxes(2, 3)  # n, channels, rows, columns
    unit = largest_norm(shape) * 2 * 255 * _FINE**2
    coefficients: Floats = found.reshape(len(images), -1) / unit
    return coefficients


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


def _check(shape: tuple[int, ...], frequencies: int) -> None:
    check_shape(shape)
    most = min(*shape[:2], _MOST)
    integer(frequencies, "frequencies out of range", f"1 to {most}", 1, most)


def check_shape(shape: tuple[int, ...]) -> None:
    """Refuse what is not height x width x channels of images."""
    if len(shape) != 3 or not all(type(n) is int and 1 <= n <= 256 for n in shape):
        raise InputError("not the shape of images", got=shape, allowed="28 x 28 x 1, ...")
