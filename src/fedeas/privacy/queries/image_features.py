"""Sums of features of images, measured from a place that is known: near it, little noise suffices.

The features are those of `convolutions.py`. Every class has a centre, from which a sample's
features are measured, and every feature a scale. Both come from whoever asks, made of sums that
were released before; they say nothing about a site's samples, and no choice of them moves an answer
further than the bound.
"""

import math
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedeas.errors import InputError
from fedeas.privacy.queries.convolutions import CHANNELS, LEAST_SIDE, conv_features, feature_count
from fedeas.privacy.queries.image_moments import check_shape
from fedeas.privacy.queries.moments import SAFE, UNITS, clipped, triangle
from fedeas.privacy.queries.query import Floats, Ints
from fedeas.privacy.queries.sample_sum import SampleSum, towards_zero

_COUNT_SHARE = 0.02  # of a row's squared norm, for counting samples
_MOST = 2**40  # of a centre and of a scale
_ENTRY = 0.25  # the most of a sample's norm of 1 that a single feature may have in products
_FINE = 2**12  # units of a feature in products


class FeatureSum(NamedTuple):
    """What noisy sums say, in the units of the scales."""

    counts: Floats  # the samples; at least 1
    means: Floats  # of features or of products, per sample
    errors: Floats  # the standard error of an entry


@dataclass(frozen=True)
class _Centred(SampleSum):
    """Features from the centre of a sample's class.

    Parameters
    ----------
    classes, shape
        The number of classes, and height x width x channels of an image of uint8.
    centre : classes x features
        From where the features of a class are measured.
    scale : features
        How far from it a feature counts as 1; samples of a norm above 1 are shortened to it.
    layers
        The layers of filters whose features they are.
    """

    centre: tuple[tuple[int, ...], ...]
    scale: tuple[int, ...]
    layers: tuple[int, ...]

    def __post_init__(self) -> None:
        shape = self.shape
        check_shape(shape)
        if min(shape[:2]) < LEAST_SIDE or shape[2] > 3:
            raise InputError("no features of such images", got=shape, allowed="8 x 8 and more")
        object.__setattr__(self, "layers", tuple(self.layers))
        in_order = tuple(k for k in range(len(CHANNELS)) if k in self.layers)
        if not in_order or self.layers != in_order or {type(k) for k in self.layers} != {int}:
            raise InputError("no such layers", got=self.layers, allowed="some of 0, 1, 2 in order")
        super().__post_init__()
        object.__setattr__(self, "centre", tuple(tuple(row) for row in self.centre))
        object.__setattr__(self, "scale", tuple(self.scale))
        size = self.size
        if len(self.centre) != self.classes or {len(row) for row in self.centre} != {size}:
            raise InputError("not a centre per class", allowed=f"{self.classes} x {size} numbers")
        if not all(type(n) is int and abs(n) <= _MOST for row in self.centre for n in row):
            raise InputError("not a centre", allowed="whole numbers up to 2**40")
        if len(self.scale) != size or not all(
            type(n) is int and 1 <= n <= _MOST for n in self.scale
        ):
            raise InputError("not a scale per feature", allowed="whole numbers from 1 to 2**40")

    @property
    def size(self) -> int:
        """The number of features."""
        return feature_count(self.layers)

    def centred(self, samples: NDArray[Any], labels: NDArray[np.int64]) -> Floats:
        """Return the features of samples from the centres of their classes, in scales."""
        centre = np.array(self.centre, np.int64)
        seen = conv_features(samples, self.layers) - centre[labels]
        found: Floats = seen / np.array(self.scale, float)
        return found


@dataclass(frozen=True)
class FeatureMeans(_Centred):
    """The count and the sum of every class's features."""

    name: ClassVar[str] = "feature-means"

    @property
    def width(self) -> int:
        """A count, then the features."""
        return 1 + self.size

    @property
    def units(self) -> tuple[int, int]:
        """Units of the count, and of a feature at a norm of 1."""
        count, mean = (math.sqrt(share) for share in (_COUNT_SHARE, 1 - _COUNT_SHARE))
        return round(UNITS * count), round(UNITS * mean)

    @property
    def sensitivity(self) -> float:
        """A row's norm at the largest norm of x, 1; rounding is towards zero."""
        return math.hypot(*self.units) * SAFE

    def rows(self, samples: NDArray[Any], labels: NDArray[np.int64]) -> Ints:
        """Return a row per image."""
        count, mean = self.units
        x = towards_zero(clipped(self.centred(samples, labels)) * mean)
        return np.concatenate([np.full((len(x), 1), count), x], axis=1)

    def read(self, sums: Ints, sigma: float, sites: int) -> FeatureSum:
        """Return the mean of every class's features, from its centre.

        Parameters
        ----------
        sums
            The noisy sums over all sites.
        sigma
            The standard deviation of their noise, in units of the words.
        sites
            The number of sites in the sums; not needed here.
        """
        found, (count, mean) = self.by_class(sums, sigma), self.units
        counts = np.maximum(found[:, 0] / count, max(1.0, sigma / count))
        means = found[:, 1:] / (counts[:, np.newaxis] * mean)
        return FeatureSum(counts, means, sigma / (counts * mean))


@dataclass(frozen=True)
class FeatureProducts(_Centred):
    """The count, and the products of features, of all images together."""

    name: ClassVar[str] = "feature-products"
    by_label: ClassVar[bool] = False

    @property
    def width(self) -> int:
        """A count, then the upper triangle of the products."""
        return 1 + self.size * (self.size + 1) // 2

    @property
    def units(self) -> tuple[int, int]:
        """Units of the count, and of a product of two features of 1."""
        return round(math.sqrt(_COUNT_SHARE) * _FINE**2), _FINE**2

    @property
    def sensitivity(self) -> float:
        """A row's norm at the largest norm of x, 1, and the largest feature."""
        count, product = self.units
        return math.hypot(count, product * math.sqrt((1 + _ENTRY**2) / 2)) * SAFE

    def rows(self, samples: NDArray[Any], labels: NDArray[np.int64]) -> Ints:
        """Return a row per image."""
        x = self._factors(samples, labels)
        rows, columns, _ = triangle(self.size)
        count = np.full((len(x), 1), self.units[0])
        return np.concatenate([count, (x[:, rows] * x[:, columns]).astype(np.int64)], axis=1)

    def add(self, found: Ints, samples: NDArray[Any], labels: NDArray[np.int64]) -> None:
        """Add the rows of samples, all products at once: they are exact, and rows are long."""
        x = self._factors(samples, labels)
        found[0, 0] += len(x) * self.units[0]
        rows, columns, _ = triangle(self.size)
        found[0, 1:] += (x.T @ x)[rows, columns].astype(np.int64)

    def _factors(self, samples: NDArray[Any], labels: NDArray[np.int64]) -> Floats:
        """Return whole numbers whose products are summed."""
        cut = np.clip(self.centred(samples, labels), -_ENTRY, _ENTRY)
        factors: Floats = np.trunc(clipped(cut) * _FINE)
        return factors

    def read(self, sums: Ints, sigma: float, sites: int) -> FeatureSum:
        """Return the mean of x x^T over all images; all its entries have the same error.

        Parameters
        ----------
        sums, sigma, sites
            As for `FeatureMeans`.
        """
        (count, product), words = self.units, self.by_class(sums, sigma)[0]
        counts = np.maximum(words[:1] / count, max(1.0, sigma / count))
        rows, columns, _ = triangle(self.size)
        means = np.empty((self.size, self.size))
        means[rows, columns] = means[columns, rows] = words[1:] / (counts * product)
        return FeatureSum(counts, means, sigma / (counts * product))
