"""What three layers of public random filters see in an image, in whole numbers.

Pixels, filters and what lies between the layers are whole numbers that floating point holds
exactly: an image has the same features on every machine, and among whatever other images.
"""

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from fedeas.privacy.queries.features import reduction
from fedeas.privacy.queries.query import Floats, Ints
from fedeas.seeds import child_rng

CHANNELS = (24, 32, 32)  # of the layers
CELLS = (4, 4, 3)  # in either direction, in which a layer is added up
LEAST_SIDE = 8
# Parts in which filters and what lies between the layers are counted. With them no number is above
# 2^24, up to which single precision is exact, for up to three colours: see the tests.
FINE = (64, 128, 64)
STEPS = (128, 1024)
FACTORS = (4, 1, 4)  # with them, the answers of all layers are in the same units
_LIGHT = 255
_ONES = (_LIGHT / 2, _LIGHT, _LIGHT / 2)  # what counts as 1 before each layer
_OFFSET = 0.2  # standard deviation of what is added to a filter's answer


class Layer(NamedTuple):
    """Filters of 3 x 3."""

    filters: NDArray[np.float32]  # channels x colours x 3 x 3; whole numbers
    offsets: NDArray[np.float32]


@lru_cache(maxsize=8)
def layers(colours: int) -> tuple[Layer, ...]:
    """Return the filters for images of so many colours; everybody draws the same ones."""
    rng = child_rng(0, "convolutions", colours)
    found = []
    for k, (channels, fine) in enumerate(zip(CHANNELS, FINE, strict=True)):
        filters = rng.standard_normal((channels, colours, 3, 3))
        if k == 0:
            filters -= filters.mean(axis=(1, 2, 3), keepdims=True)  # blind to brightness
        norms = np.sqrt(np.square(filters).sum(axis=(1, 2, 3), keepdims=True))
        filters = np.rint(fine * math.sqrt(2) * filters / norms)
        offsets = np.rint(fine * _ONES[k] * _OFFSET * rng.standard_normal(channels))
        found.append(Layer(filters.astype(np.float32), offsets.astype(np.float32)))
        colours = channels
    return tuple(found)


def feature_count(which: Sequence[int]) -> int:
    """Return how many features these layers have."""
    return sum(CHANNELS[k] * CELLS[k] ** 2 for k in which)


def conv_features(images: NDArray[Any], which: Sequence[int]) -> Ints:
    """Return the features of images: for every channel, its strength in every cell.

    Parameters
    ----------
    images
        N x height x width x colours, of uint8.
    which
        The layers whose features they are: 0, 1, 2 or some of them, in this order.
    """
    seen, found = _reduced(images).transpose(0, 3, 1, 2).astype(np.float32), []
    for k, layer in enumerate(layers(images.shape[3])[: max(which) + 1]):
        if k > 0:
            seen = np.floor(_fours(seen) / STEPS[k - 1]).astype(np.float32)
        seen = _answers(seen, layer)
        if k in which:
            down, across = (cells(n, CELLS[k]) for n in seen.shape[2:])
            added = FACTORS[k] * (down @ seen.astype(np.float64) @ across.T)
            found.append(added.astype(np.int64).reshape(len(images), -1))
    return np.concatenate(found, axis=1)


def _fours(seen: NDArray[np.float32]) -> Floats:
    """Return sums of blocks of 2 x 2, which are exact; a last odd row or column is left out."""
    height, width = (n // 2 * 2 for n in seen.shape[2:])
    wide = seen[:, :, :height, :width].astype(np.float64)
    wide = wide[:, :, ::2] + wide[:, :, 1::2]
    added: Floats = wide[..., ::2] + wide[..., 1::2]
    return added


def _answers(seen: NDArray[np.float32], layer: Layer) -> NDArray[np.float32]:
    """Apply the filters everywhere, black around the image, and drop what is below zero."""
    around = np.pad(seen, ((0, 0), (0, 0), (1, 1), (1, 1)))
    patches = sliding_window_view(around, (3, 3), axis=(2, 3)).transpose(0, 2, 3, 1, 4, 5)
    n, height, width = patches.shape[:3]
    flat = patches.reshape(n * height * width, -1) @ layer.filters.reshape(len(layer.filters), -1).T
    flat = np.maximum(flat + layer.offsets, 0)
    return np.ascontiguousarray(flat.reshape(n, height, width, -1).transpose(0, 3, 1, 2))


def _reduced(images: NDArray[Any]) -> NDArray[Any]:
    """Return a smaller copy of large images."""
    factor = reduction(*images.shape[1:3])
    if factor == 1:
        return images
    n, height, width, colours = images.shape
    down, across = height // factor, width // factor
    kept = images[:, : down * factor, : across * factor].astype(np.int64)
    blocks = kept.reshape(n, down, factor, across, factor, colours)
    return np.asarray(blocks.sum(axis=(2, 4)) // factor**2)


@lru_cache(maxsize=16)
def cells(size: int, count: int) -> Floats:
    """Return which pixels of a side are added up in each of its cells, cells x pixels.

    >>> cells(6, 4).astype(int).tolist()
    [[1, 1, 0, 0, 0, 0], [0, 1, 1, 0, 0, 0], [0, 0, 0, 1, 1, 0], [0, 0, 0, 0, 1, 1]]
    """
    found = np.zeros((count, size))
    for k in range(count):
        found[k, k * size // count : -(-(k + 1) * size // count)] = 1
    return found
