"""What two layers of public random filters see in an image, in whole numbers.

Pixels, filters and what lies between the layers are whole numbers that floating point holds
exactly: an image has the same features on every machine, and among whatever other images.
"""

import math
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from fedeas.privacy.queries.features import reduction
from fedeas.privacy.queries.query import Floats, Ints
from fedeas.seeds import child_rng

CHANNELS = (24, 32)  # of the layers
CELLS = 4  # in either direction, in which a layer is added up
WIDTH = sum(CHANNELS) * CELLS**2
LEAST_SIDE = 8
# Parts in which filters and what lies between the layers are counted. With them no number is above
# 2^24, up to which single precision is exact, for up to three colours: see the tests.
FINE = (64, 128)
STEP = 128
_LIGHT = 255
_OFFSET = 0.2  # standard deviation of what is added to a filter's answer


class Layer(NamedTuple):
    """Filters of 3 x 3."""

    filters: NDArray[np.float32]  # channels x colours x 3 x 3; whole numbers
    offsets: NDArray[np.float32]


@lru_cache(maxsize=8)
def layers(colours: int) -> tuple[Layer, Layer]:
    """Return the filters for images of so many colours; everybody draws the same ones."""
    rng = child_rng(0, "convolutions", colours)
    first = rng.standard_normal((CHANNELS[0], colours, 3, 3))
    first -= first.mean(axis=(1, 2, 3), keepdims=True)  # blind to brightness
    second = rng.standard_normal((CHANNELS[1], CHANNELS[0], 3, 3))
    return (
        _layer(first, rng.standard_normal(CHANNELS[0]), FINE[0], _LIGHT / 2),
        _layer(second, rng.standard_normal(CHANNELS[1]), FINE[1], _LIGHT),
    )


def _layer(filters: Floats, offsets: Floats, fine: int, one: float) -> Layer:
    norms = np.sqrt(np.square(filters).sum(axis=(1, 2, 3), keepdims=True))
    filters = np.rint(fine * math.sqrt(2) * filters / norms)
    offsets = np.rint(fine * one * _OFFSET * offsets)
    return Layer(filters.astype(np.float32), offsets.astype(np.float32))


def conv_features(images: NDArray[Any]) -> Ints:
    """Return the features of images: for every channel, its strength in 4 x 4 cells.

    Parameters
    ----------
    images
        N x height x width x colours, of uint8.
    """
    first, second = layers(images.shape[3])
    seen = _answers(_reduced(images).transpose(0, 3, 1, 2).astype(np.float32), first)
    height, width = (n // 2 * 2 for n in seen.shape[2:])
    seen = seen[:, :, :height, :width]
    seen = seen[:, :, ::2] + seen[:, :, 1::2]
    seen = np.floor((seen[..., ::2] + seen[..., 1::2]) / STEP)
    # In the same units.
    both = np.concatenate([FINE[1] * seen, _answers(seen, second)], axis=1).astype(np.float64)
    down, across = (cells(n) for n in both.shape[2:])
    found: Ints = (down @ both @ across.T).astype(np.int64).reshape(len(images), -1)
    return found


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
def cells(size: int) -> Floats:
    """Return which pixels of a side are added up in each of its cells, cells x pixels.

    >>> cells(6).astype(int).tolist()
    [[1, 1, 0, 0, 0, 0], [0, 1, 1, 0, 0, 0], [0, 0, 0, 1, 1, 0], [0, 0, 0, 0, 1, 1]]
    """
    found = np.zeros((CELLS, size))
    for k in range(CELLS):
        found[k, k * size // CELLS : -(-(k + 1) * size // CELLS)] = 1
    return found
