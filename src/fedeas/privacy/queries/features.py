"""Public random features of images, in whole numbers: the same on every machine, in any block.

An image is seen as its pixels and, on request, as the strength of edges: of eight directions and
two sizes, added up around every 4 x 4 pixels. Each *view* v is projected on random directions w,
and a direction gives a point on a circle, at the angle w . v. Pixels and directions are whole
numbers and angles are counted in parts of a turn; floating point only adds what it holds exactly.
"""

import math
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedeas.privacy.queries.query import Floats, Ints
from fedeas.seeds import child_rng

Array = NDArray[Any]
RADIUS = 1024  # of the circles, in units of the words of a sum

_COINS = 256  # an entry of a direction is a sum of so many coins: a variance of 64
_SPREAD = math.sqrt(_COINS) / 2
_WHITE = 255
_EXACT_SINGLE = 2.0**24  # whole numbers up to here are exact in single precision
# Squared widths of the kernels, per number of a view (pixels from 0 to 1). With them an image has
# a similarity of about a half to the others of its class, in data sets of small images.
_PIXELS_WIDTH = 60 / 784
_EDGES_WIDTH = 390 / 784
_LARGEST_SIDE = 32  # edges of larger images are those of a smaller copy
_STEP = 2  # pixels between the places where edges are measured; four places are added up
ORIENTATIONS = 8
_FINE = 256  # a filter's weights are counted in these parts
# Size, radius, frequency (radians per pixel) of the filters, and the part of 512 that counts.
_FILTERS = ((5, 1.1, 2.2, 3), (9, 2.2, 1.1, 2))


class Circle(NamedTuple):
    """The random features of one view."""

    directions: Floats  # numbers of the view x features; whole numbers
    turn: int  # parts of a turn

    def angles(self, view: Array) -> Ints:
        """Project whole numbers on all directions; return parts of a turn, from 0."""
        largest = float(np.abs(view).max(initial=0)) * float(np.abs(self.directions).sum(0).max())
        exact = np.float32 if largest < _EXACT_SINGLE else np.float64
        angles = (view.astype(exact) @ self.directions.astype(exact)).astype(np.int64)
        found: Ints = np.remainder(angles, self.turn)
        return found


class Bank(NamedTuple):
    """Filters of one size as a matrix: pixels to two phases of every filter, at every place."""

    matrix: Floats  # pixels x (orientations x 2 x places); whole numbers
    places: tuple[int, int]
    part: int  # of 512, that a sum of strengths counts


@lru_cache(maxsize=8)
def circles(shape: tuple[int, ...], pixels: int, edges: int, seed: int) -> tuple[Circle, ...]:
    """Return the features of the views: so many directions for pixels, and so many for edges."""
    made = [_circle("pixels", math.prod(shape), _PIXELS_WIDTH, pixels, seed)]
    if edges:
        size = sum(ORIENTATIONS * (h // 2) * (w // 2) for _, (h, w), _ in banks(shape))
        made.append(_circle("edges", size, _EDGES_WIDTH, edges, seed))
    return tuple(made)


def _circle(view: str, size: int, width: float, count: int, seed: int) -> Circle:
    turn = round(2 * math.pi * _SPREAD * _WHITE * math.sqrt(width * size))
    return Circle(_directions(size, count, seed, view), turn)


@lru_cache(maxsize=8)
def circle_points(turn: int) -> NDArray[np.int32]:
    """Return the point (cos, sin) of every part of a turn, rounded, on a circle of RADIUS."""
    angles = 2 * math.pi * np.arange(turn) / turn
    points: NDArray[np.int32] = np.rint(
        RADIUS * np.stack([np.cos(angles), np.sin(angles)], axis=1)
    ).astype(np.int32)
    points.setflags(write=False)
    return points


def pixels_of(images: Array) -> Ints:
    """Return the pixels of images, a row each."""
    return images.reshape(len(images), -1).astype(np.int64)


def edges_of(images: Array) -> Ints:
    """Return the strength of edges, a row per image.

    Parameters
    ----------
    images
        N x height x width x channels of uint8.
    """
    shape = images.shape[1:]
    grey = reduced(images.astype(np.int64).sum(axis=3)).reshape(len(images), -1)
    parts = []
    for bank in banks(shape):
        phases = (grey.astype(np.float64) @ bank.matrix).reshape(
            len(images), ORIENTATIONS, 2, *bank.places
        )
        # A square root is rounded correctly everywhere, so its whole part is exact.
        strength = np.floor(np.sqrt(np.square(phases).sum(axis=2)))
        height, width = (n // 2 * 2 for n in bank.places)
        strength = strength[..., :height, :width]
        pooled = strength.reshape(len(images), ORIENTATIONS, height // 2, 2, width // 2, 2)
        added = pooled.sum(axis=(3, 5)).reshape(len(images), -1).astype(np.int64)
        parts.append(added * bank.part // (2 * _FINE))
    return np.concatenate(parts, axis=1)


def reduced(grey: Ints) -> Ints:
    """Reduce large images: add up squares of pixels, so that no side is longer than 32."""
    count, height, width = grey.shape
    factor = reduction(height, width)
    if factor == 1:
        return grey
    grey = grey[:, : height // factor * factor, : width // factor * factor]
    squares = grey.reshape(count, height // factor, factor, width // factor, factor)
    added: Ints = squares.sum(axis=(2, 4))
    return added // factor**2


def reduction(height: int, width: int) -> int:
    """Return the side of the squares of pixels that become one."""
    return -(-max(height, width) // _LARGEST_SIDE)


@lru_cache(maxsize=8)
def banks(shape: tuple[int, ...]) -> tuple[Bank, ...]:
    """Return the filters for images of a shape."""
    _, height, width = reduced(np.zeros((1, *shape[:2]), np.int64)).shape
    return tuple(_bank(height, width, *settings) for settings in _FILTERS)


def _bank(height: int, width: int, size: int, radius: float, frequency: float, part: int) -> Bank:
    """Place every filter at every other pixel, up to the edge of the image."""
    half = size // 2
    rows, columns = range(0, height, _STEP), range(0, width, _STEP)
    padded = np.zeros((ORIENTATIONS, 2, len(rows), len(columns), height + size, width + size))
    for orientation, kernel in enumerate(_kernels(size, radius, frequency)):
        for i, y in enumerate(rows):
            for j, x in enumerate(columns):
                padded[orientation, :, i, j, y : y + size, x : x + size] = kernel
    inside = padded[..., half : half + height, half : half + width]
    matrix = inside.reshape(-1, height * width).T.copy()
    return Bank(matrix, (len(rows), len(columns)), part)


def _kernels(size: int, radius: float, frequency: float) -> list[Floats]:
    """Return Gabor filters, two phases each, in whole parts of _FINE; blank areas give zero."""
    y, x = np.mgrid[:size, :size] - size // 2
    window = np.exp(-(x**2 + y**2) / (2 * radius**2))
    found = []
    for orientation in range(ORIENTATIONS):
        angle = math.pi * orientation / ORIENTATIONS
        along = frequency * (x * math.cos(angle) + y * math.sin(angle))
        even, odd = window * np.cos(along), window * np.sin(along)
        even -= window * even.sum() / window.sum()
        pair = np.stack([even, odd])
        found.append(np.rint(_FINE * pair / np.linalg.norm(pair)))
    return found


def _directions(size: int, count: int, seed: int, view: str) -> Floats:
    """Draw sums of coins, whose bits are the same with every version of NumPy."""
    bits = child_rng(seed, "features", view).bit_generator.random_raw(size * count * _COINS // 64)
    heads = np.bitwise_count(bits.reshape(size, count, -1)).sum(axis=2, dtype=np.int64)
    found: Floats = (heads - _COINS // 2).astype(np.float64)
    return found
