"""Kinds of data: what a sample is, how it is scaled, and which model learns it by default.

A new kind is a class like these two, listed in `KINDS`.
"""

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fedeas._internal.names import choice
from fedeas.errors import InputError

Array = NDArray[Any]  # samples, in the dtype of their kind
Statistics = tuple[tuple[float, ...], tuple[float, ...]]
_BLOCK = 4096  # samples that are read at a time
_LEAST_SPREAD = 1e-3


class Kind:
    """What all samples of a kind have in common; statistics are of their last axis."""

    name: ClassVar[str]
    noun: ClassVar[str]  # what people call one sample
    model: ClassVar[str]  # the default model
    limits: ClassVar[tuple[float, float]]  # of the values of a sample
    axes: ClassVar[tuple[str, ...]]  # of a sample
    dtype: ClassVar[type[np.generic]]

    def fits(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> bool:
        """Tell whether a sample of this shape and dtype is of this kind."""
        return len(shape) == len(self.axes) and dtype == self.dtype

    def check(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        """Refuse samples of another shape or dtype."""
        if not self.fits(shape, dtype):
            raise InputError(
                f"samples must be {self.noun}s",
                got=f"{shape} of {dtype}",
                allowed=f"{' x '.join(self.axes)} of {self.dtype.__name__}",
            )

    def statistics(self, samples: Array) -> Statistics:
        """Return the mean and the spread that samples are normalised by."""
        raise NotImplementedError


class Image(Kind):
    """Pictures: height x width x channels of uint8."""

    name = noun = "image"
    model = "cnn"
    limits = (0.0, 255.0)
    axes = ("height", "width", "channels")
    dtype = np.uint8

    def statistics(self, samples: Array) -> Statistics:
        """Return mean and spread of each channel, from 0 to 1.

        They are computed from whole-number histograms, so they do not depend on order or blocks.
        """
        channels = samples.shape[3]
        counts = np.zeros((channels, 256), np.int64)
        for start in range(0, len(samples), _BLOCK):
            part = samples[start : start + _BLOCK]
            for c in range(channels):
                counts[c] += np.bincount(part[..., c].ravel(), minlength=256)
        values = np.arange(256) / 255
        mean = counts @ values / counts.sum(axis=1)
        spread = np.sqrt(counts @ values**2 / counts.sum(axis=1) - mean**2)
        return tuple(mean.tolist()), tuple(np.maximum(spread, _LEAST_SPREAD).tolist())


class Tabular(Kind):
    """Rows of a table: a float32 per column, a number or the code of a category; NaN if missing."""

    name = "table"
    noun = "row"
    model = "mlp"
    limits = (-3.5e38, 3.5e38)  # all of float32 but infinity
    axes = ("columns",)
    dtype = np.float32

    def statistics(self, samples: Array) -> Statistics:
        """Return mean and spread of each column over the values that are there.

        A column without any, or with a single value, has a spread of one.
        """
        count, total = np.zeros((2, samples.shape[1]))
        for start in range(0, len(samples), _BLOCK):
            part = samples[start : start + _BLOCK].astype(np.float64)
            count += (~np.isnan(part)).sum(axis=0)
            total += np.nansum(part, axis=0)
        count = np.maximum(count, 1)
        mean = total / count
        # In a second pass: the squares of large numbers would hide a small spread.
        squares = np.zeros_like(mean)
        for start in range(0, len(samples), _BLOCK):
            part = samples[start : start + _BLOCK].astype(np.float64)
            squares += np.nansum((part - mean) ** 2, axis=0)
        spread = np.sqrt(squares / count)
        return tuple(mean.tolist()), tuple(np.where(spread > 0, spread, 1.0).tolist())


KINDS: dict[str, Kind] = {kind.name: kind for kind in (Image(), Tabular())}


def find_kind(name: str) -> Kind:
    """Return a kind of data by its name."""
    return KINDS[choice(name, "kind of data", KINDS)]
