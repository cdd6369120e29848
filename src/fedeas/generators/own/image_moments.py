"""Noisy moments of images with the noise taken out, as far as it can be told from the data.

The noise of a covariance is a symmetric matrix of independent entries, whose eigenvalues fill the
interval up to an edge, sqrt(2 d) times the error of a diagonal entry (Wigner). What the data add
beyond the edge is kept, corrected for how the noise enlarges it and turns its direction. The
variance that the noise hides is known in sum, and is spread as it is in images of all kinds: less
the higher the frequency.

The covariance within classes is that of all images without what lies between the classes' means.
Every class leans on it, and differs from it as far as that can be seen.
"""

import math
from typing import NamedTuple

import numpy as np

from fedeas.privacy.queries.moments import Moments
from fedeas.privacy.queries.query import Floats

_MUCH = 4.0  # a mean's noise in that of another, from which on it tells nothing
_FALLOFF = 3.0  # variances fall with this power of the frequency


class Normals(NamedTuple):
    """A normal distribution of every class's coefficients."""

    counts: Floats
    means: Floats
    covariances: Floats
    quality: tuple[float, ...]


def image_normals(moments: Moments, together: Floats, error: float, channels: int) -> Normals:
    """Return a normal distribution per class, without noise as far as can be.

    Parameters
    ----------
    moments
        Of the classes.
    together, error
        The sum of x x^T over all images, and the standard error of a diagonal entry.
    channels
        Of an image.
    """
    total = moments.counts.sum()
    weights = moments.counts / total
    means = moments.means
    within = together / total - np.einsum("c,ci,cj->ij", weights, means, means)
    # The noise of a mean adds its variance to the square of the mean, on the diagonal.
    within += weights @ np.square(moments.mean_errors) * np.eye(len(within))
    edge = error / total * math.sqrt(2 * len(within))
    common = _completed(cleaned(within, error / total), within, channels)
    found = np.empty((len(means), *common.shape))
    for c, (raw, noise) in enumerate(
        zip(moments.covariances(), moments.second_errors.tolist(), strict=True)
    ):
        # What makes a class differ from all of them, as far as it can be seen.
        beyond = raw - common
        values, vectors = np.linalg.eigh((beyond + beyond.T) / 2)
        kept = np.sign(values) * np.maximum(np.abs(values) - noise * math.sqrt(2 * len(raw)), 0.0)
        values, vectors = np.linalg.eigh(common + (vectors * kept) @ vectors.T)
        found[c] = (vectors * np.maximum(values, 0.0)) @ vectors.T
    return Normals(moments.counts, means, found, _quality(moments, common, edge))


def cleaned(covariance: Floats, error: float) -> Floats:
    """Return the part of a covariance that stands out from noise, as a positive matrix.

    Parameters
    ----------
    covariance
        A symmetric matrix with noise.
    error
        The standard error of a diagonal entry; others have 1 / sqrt(2) of it.

    >>> cleaned(np.diag([4.0, 0.1]), 0.0)
    array([[4. , 0. ],
           [0. , 0.1]])
    """
    values, vectors = np.linalg.eigh((covariance + covariance.T) / 2)
    spread = error / math.sqrt(2) * math.sqrt(len(values))  # the edge is at twice this
    above = values > 2 * spread
    # A true value t appears as t + spread^2 / t; solve for t. The part of its direction that is
    # right, 1 - spread^2 / t^2, is what may be drawn along it.
    seen = np.where(above, values, 1.0)
    true = (seen + np.sqrt(np.maximum(seen**2 - 4 * spread**2, 0.0))) / 2
    kept = np.where(above, np.maximum(true - spread**2 / np.maximum(true, 1e-300), 0.0), 0.0)
    found: Floats = (vectors * kept) @ vectors.T
    return found


def _completed(kept: Floats, whole: Floats, channels: int) -> Floats:
    """Add the variance that the noise hides, in the directions of which nothing is kept."""
    hidden = float(np.trace(whole) - np.trace(kept))  # a trace with noise is right on average
    values, vectors = np.linalg.eigh(kept)
    empty = vectors[:, values <= 1e-9 * max(float(values[-1]), 1e-300)]
    if hidden <= 0 or not empty.size:
        return kept
    side = math.isqrt(len(kept) // channels)
    frequency = np.tile(np.hypot(*np.indices((side, side))).ravel(), channels)
    spread = empty.T @ ((1 + frequency)[:, np.newaxis] ** -_FALLOFF * empty)
    found: Floats = kept + hidden / np.trace(spread) * (empty @ spread @ empty.T)
    return found


def _quality(moments: Moments, common: Floats, edge: float) -> tuple[float, ...]:
    """Return D / (D + E) for every class: 1 without noise, 0 if nothing tells it from another.

    D is the squared distance of the nearest other class's mean, E that which the noise of its own
    brings about, both in units of the spread within classes, of which less than the noise's edge is
    not seen. Others whose means are known much less well are not looked at: from a class of a few
    images, whose mean is all noise, nothing could be told apart.
    """
    values, vectors = np.linalg.eigh(common)
    scale = 1 / np.sqrt(np.maximum(values, 0.0) + edge + 1e-12)
    white = moments.means @ (vectors * scale)
    far = np.square(white[:, np.newaxis] - white).sum(axis=2)
    noise = np.square(moments.mean_errors) * np.square(scale).sum()
    # Distances with noise in them are longer by that noise.
    far = np.maximum(far - noise - noise[:, np.newaxis], 0.0)
    known = noise <= _MUCH * np.maximum(noise, np.sort(noise)[1])[:, np.newaxis]
    far[~known] = np.inf
    np.fill_diagonal(far, np.inf)
    nearest = far.min(axis=1)
    return tuple((nearest / np.maximum(nearest + noise, 1e-12)).round(5).tolist())
