"""Sums of public features of images, measured from a centre that is known.

The strengths of an image's edges are its features. Pixels, filters and strengths are whole numbers
that floating point holds exactly: an image has the same features on every machine, and among
whatever other images.

Every class has a centre, from which a sample's features are measured, and every feature a scale.
Both come from whoever asks, made of sums that were released before; they say nothing about a site's
samples, and no choice of them moves an answer further than the bound.
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from fedeas.errors import InputError
from fedeas.private.queries.moments import SAFE, UNITS, check_shape, clip_norms, triangle
from fedeas.private.queries.query import Floats, Ints, SampleSum, towards_zero

EDGE_UNIT = 2**20  # the norm of an image's edge features
EDGE_SCALES = ((1, 0.7), (2, 1.2), (2, 2.4))  # steps in pixels; standard deviations of filters
DIRECTIONS = 8
EDGE_CELLS, LIGHT_CELLS = 5, 7  # in either direction
EDGE_FINE = 64  # parts in which a filter of norm 1 is counted
_WAVE = 4.4  # the length of a filter's wave, and
_ALONG = 0.7  # its extent across the wave, both in standard deviations
_DARK = 1e-3  # added to strengths: the root of a strength near 0 is mostly noise
_LIGHT_WEIGHT = 0.3
_EDGE_STEPS = 2**12  # parts in which roots of strengths are counted
LEAST_SIDE = 8
_LIGHT = 255
_LARGEST_SIDE = 32  # features of larger images are those of a smaller copy
_COUNT_SHARE = 0.02  # of a row's squared norm, for counting samples
_MOST = 2**40  # of a centre and of a scale
_ENTRY = 0.25  # the most of a sample's norm of 1 that a single feature may have in products
_PRODUCT_FINE = 2**12  # units of a feature in products


def feature_count(colours: int = 1) -> int:
    """Return how many features images of so many colours have."""
    return len(EDGE_SCALES) * DIRECTIONS * EDGE_CELLS**2 + colours * LIGHT_CELLS**2


def _filtered(
    maps: NDArray[np.float32], filters: NDArray[np.float32], step: int = 1
) -> NDArray[np.float32]:
    """Return N x height x width x filters of N x colours x height x width, black around it."""
    side = filters.shape[-1]
    edge = (side // 2, side // 2)
    around = np.pad(maps, ((0, 0), (0, 0), edge, edge))
    patches = sliding_window_view(around, (side, side), axis=(2, 3))[:, :, ::step, ::step]
    n, _, height, width = patches.shape[:4]
    flat = patches.transpose(0, 2, 3, 1, 4, 5).reshape(n * height * width, -1)
    return (flat @ filters.reshape(len(filters), -1).T).reshape(n, height, width, -1)


def edge_features(images: NDArray[Any]) -> Ints:
    """Return roots of the strengths of edges in cells, and the light in cells, at a norm of 1.

    An edge's strength is the modulus of a pair of waves under a Gaussian (Gabor filters), an even
    and an odd one, in its direction. Light is that of every colour.
    """
    small = _shrink(images).astype(np.int64)
    grey = (small.sum(axis=3) // small.shape[3])[:, np.newaxis].astype(np.float32)
    parts = []
    for step, scale in EDGE_SCALES:
        waves = _filtered(grey, edge_filters(scale), step)
        strength = np.floor(np.sqrt(np.square(waves[..., ::2]) + np.square(waves[..., 1::2])))
        mean = _cell_means(strength, EDGE_CELLS) / (EDGE_FINE * _LIGHT)
        parts.append(np.sqrt(mean + _DARK))
    light = _cell_means(small.astype(np.float32), LIGHT_CELLS)
    parts.append(_LIGHT_WEIGHT / _LIGHT * light)
    # Whole numbers again, so that the norm is exact in any order of adding up.
    whole = np.rint(np.concatenate(parts, axis=1) * _EDGE_STEPS)
    norms = np.sqrt(np.square(whole).sum(axis=1, keepdims=True))
    features: Ints = np.rint(whole / norms * EDGE_UNIT).astype(np.int64)
    return features


@lru_cache(maxsize=4)
def edge_filters(scale: float) -> NDArray[np.float32]:
    """Return a pair of waves for every direction: the even one, then the odd one."""
    reach = math.ceil(2.5 * scale)
    y, x = np.mgrid[-reach : reach + 1, -reach : reach + 1].astype(np.float64)
    filters = []
    for angle in np.pi * np.arange(DIRECTIONS) / DIRECTIONS:
        across = x * np.cos(angle) + y * np.sin(angle)
        along = y * np.cos(angle) - x * np.sin(angle)
        window = np.exp(-(across**2 + (_ALONG * along) ** 2) / (2 * scale**2))
        for wave in (np.cos, np.sin):
            filter_ = window * wave(2 * np.pi * across / (_WAVE * scale))
            filter_ -= window * filter_.sum() / window.sum()  # blind to brightness
            filters.append(np.rint(EDGE_FINE * filter_ / np.linalg.norm(filter_)))
    return np.stack(filters)[:, np.newaxis].astype(np.float32)


def _cell_means(maps: NDArray[np.float32], count: int) -> Floats:
    """Return the means in cells of N x height x width x channels, a row each: sums are exact."""
    n, height, width, channels = maps.shape
    down, across = (cells(size, count).astype(np.float32) for size in (height, width))
    sums = across @ (down @ maps.reshape(n, height, -1)).reshape(n * count, width, channels)
    areas = np.outer(down.sum(axis=1), across.sum(axis=1)).reshape(-1, 1)
    means: Floats = sums.reshape(n, count**2, channels).astype(np.float64) / areas
    return means.reshape(n, -1)


def _shrink(images: NDArray[Any]) -> NDArray[Any]:
    """Return a smaller copy of large images."""
    factor = reduction(*images.shape[1:3])
    if factor == 1:
        return images
    n, height, width, colours = images.shape
    down, across = height // factor, width // factor
    inside = images[:, : down * factor, : across * factor].astype(np.int64)
    blocks = inside.reshape(n, down, factor, across, factor, colours)
    return np.asarray(blocks.sum(axis=(2, 4)) // factor**2)


def reduction(height: int, width: int) -> int:
    """Return the side of the squares of pixels that become one."""
    return -(-max(height, width) // _LARGEST_SIDE)


@lru_cache(maxsize=16)
def cells(size: int, count: int) -> Floats:
    """Return which pixels of a side are added up in each of its cells, cells x pixels.

    >>> cells(6, 4).astype(int).tolist()
    [[1, 1, 0, 0, 0, 0], [0, 1, 1, 0, 0, 0], [0, 0, 0, 1, 1, 0], [0, 0, 0, 0, 1, 1]]
    """
    inside = np.zeros((count, size))
    for k in range(count):
        inside[k, k * size // count : -(-(k + 1) * size // count)] = 1
    return inside


class FeatureSum(NamedTuple):
    """What noisy sums say, in the units of the scales."""

    counts: Floats  # the samples; at least 1
    means: Floats  # of features or of products, per sample
    errors: Floats  # the standard error of an entry


@dataclass(frozen=True)
class _CentredFeatures(SampleSum):
    """Features from the centre of a sample's class.

    Parameters
    ----------
    classes, shape
        The number of classes, and height x width x channels of an image of uint8.
    centre : classes x features
        From where the features of a class are measured.
    scale : features
        How far from it a feature counts as 1; samples of a norm above 1 are shortened to it.
    """

    centre: tuple[tuple[int, ...], ...]
    scale: tuple[int, ...]

    def __post_init__(self) -> None:
        shape = self.shape
        check_shape(shape)
        if min(shape[:2]) < LEAST_SIDE or shape[2] > 3:
            raise InputError("no features of such images", got=shape, allowed="8 x 8 and more")
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
        return feature_count(self.shape[2])

    def centred(self, samples: NDArray[Any], labels: NDArray[np.int64]) -> Floats:
        """Return the features of samples from the centres of their classes, in scales."""
        centre = np.array(self.centre, np.int64)
        features = edge_features(samples) - centre[labels]
        scaled: Floats = features / np.array(self.scale, float)
        return scaled


@dataclass(frozen=True)
class FeatureMeans(_CentredFeatures):
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
        x = towards_zero(clip_norms(self.centred(samples, labels)) * mean)
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
        words, (count, mean) = self.by_class(sums, sigma), self.units
        counts = self.counts(words[:, 0], sigma, count)
        means = words[:, 1:] / (counts[:, np.newaxis] * mean)
        return FeatureSum(counts, means, sigma / (counts * mean))


@dataclass(frozen=True)
class FeatureProducts(_CentredFeatures):
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
        return round(math.sqrt(_COUNT_SHARE) * _PRODUCT_FINE**2), _PRODUCT_FINE**2

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

    def add(self, sums: Ints, samples: NDArray[Any], labels: NDArray[np.int64]) -> None:
        """Add the rows of samples, all products at once: they are exact, and rows are long."""
        x = self._factors(samples, labels)
        sums[0, 0] += len(x) * self.units[0]
        rows, columns, _ = triangle(self.size)
        sums[0, 1:] += (x.T @ x)[rows, columns].astype(np.int64)

    def _factors(self, samples: NDArray[Any], labels: NDArray[np.int64]) -> Floats:
        """Return whole numbers whose products are summed."""
        cut = np.clip(self.centred(samples, labels), -_ENTRY, _ENTRY)
        return np.trunc(clip_norms(cut) * _PRODUCT_FINE)

    def read(self, sums: Ints, sigma: float, sites: int) -> FeatureSum:
        """Return the mean of x x^T over all images; all its entries have the same error.

        Parameters
        ----------
        sums, sigma, sites
            As for `FeatureMeans`.
        """
        (count, product), words = self.units, self.by_class(sums, sigma)[0]
        counts = self.counts(words[:1], sigma, count)
        rows, columns, _ = triangle(self.size)
        means = np.empty((self.size, self.size))
        means[rows, columns] = means[columns, rows] = words[1:] / (counts * product)
        return FeatureSum(counts, means, sigma / (counts * product))
