"""Normals that, clipped to [0, 1], have a given mean and spread."""

import math

import numpy as np
import torch

from fedeas.privacy.queries.query import Floats

_LEAST = 1e-4  # a mean's distance from 0 and 1
_WIDEST = 0.95  # of the spread that a number in [0, 1] can have at a mean
_STEPS = 26  # of halving an interval
_ROOT = math.sqrt(2 * math.pi)


def clipped_normal(means: Floats, spreads: Floats) -> tuple[Floats, Floats]:
    """Return the mean and the standard deviation of normals before they are clipped to [0, 1].

    Parameters
    ----------
    means, spreads
        Mean and standard deviation after clipping, as near as these can be reached.

    >>> middle, width = clipped_normal(np.array([0.5, 0.05]), np.array([0.1, 0.1]))
    >>> [round(float(x), 2) for x in (*middle, *width)]
    [0.5, -0.1, 0.1, 0.23]
    """
    means = np.clip(means, _LEAST, 1 - _LEAST)
    spreads = np.minimum(spreads, _WIDEST * np.sqrt(means * (1 - means)))
    # At a given mean a wider normal is wider when clipped, too: halve, in logarithms.
    low, high = np.log(spreads), np.full_like(spreads, math.log(50.0))
    for _ in range(_STEPS):
        width = np.exp((low + high) / 2)
        narrow = _clipped(_middle(means, width), width)[1] < spreads
        low, high = (
            np.where(narrow, (low + high) / 2, low),
            np.where(narrow, high, (low + high) / 2),
        )
    width = np.exp((low + high) / 2)
    return _middle(means, width), width


def _middle(means: Floats, widths: Floats) -> Floats:
    """Return the means of normals of given widths that have these means when clipped."""
    low, high = -4 * widths, 1 + 4 * widths  # a mean of 1e-4 is not further out
    for _ in range(_STEPS):
        middle = (low + high) / 2
        dark = _clipped(middle, widths)[0] < means
        low, high = np.where(dark, middle, low), np.where(dark, high, middle)
    found: Floats = (low + high) / 2
    return found


def _clipped(middle: Floats, width: Floats) -> tuple[Floats, Floats]:
    """Return the mean and the standard deviation of clipped normals."""
    black, white = -middle / width, (1 - middle) / width
    below, above = (torch.special.ndtr(torch.from_numpy(x)).numpy() for x in (black, -white))
    at_black, at_white = (
        np.exp(-np.square(x) / 2) / math.sqrt(2 * math.pi) for x in (black, white)
    )
    inside = 1 - below - above
    mean = middle * inside + width * (at_black - at_white) + above
    square = (
        (np.square(middle) + np.square(width)) * inside
        + width * (middle * at_black - (1 + middle) * at_white)
        + above
    )
    return mean, np.sqrt(np.maximum(square - np.square(mean), 0.0))
