"""Moments of rows with the noise taken out, as far as it can be told from the data.

Every class leans on all of them: its mean on the mean of all rows, its covariance on the covariance
within classes. How much follows from the noise, whose size is known, and from how far the class is
away (James and Stein, 1961).

The covariance within classes is one of common factors and a variance of every coordinate's own, as
in factor analysis. The noise's eigenvalues fill an interval up to an edge (Wigner). Factors beyond
it are kept, reduced to what minimises the squared error (Gavish and Donoho, 2017).
"""

import math

import numpy as np

from fedeas.generators.moments import Moments
from fedeas.generators.own.columns import kept_part
from fedeas.generators.quantiles import Floats
from fedeas.generators.row_space import RowSpace
from fedeas.privacy.queries import moments as noisy

_LEAST_VARIANCE = 0.01  # of any direction: a class that does not vary at all is the noise's work
_LEAST_SHARE = 1e-3  # of a level
_ROUNDS = 20  # of finding the factors' part in every variance


def clean_moments(space: RowSpace, found: noisy.Moments, radius: float) -> Moments:
    """Return moments as those of rows without noise.

    Parameters
    ----------
    space
        What the coordinates are.
    found
        Noisy moments of coordinates of rows, divided by `radius`.
    radius
        The norm that rows were clipped to.
    """
    counts, weights = found.counts, found.counts / found.counts.sum()
    raw, errors = found.covariances() * radius**2, found.second_errors * radius**2
    means = _clean_means(space, found.means * radius, found.mean_errors * radius, weights)
    common = within_classes(
        np.einsum("c,cij->ij", weights, raw),
        float(np.sqrt(np.square(weights * errors).sum())),
    )
    squares = np.empty_like(raw)
    for c, mean in enumerate(means):
        covariance = positive(_leaning(space, raw[c], common, float(errors[c])))
        squares[c] = _consistent(space, covariance + np.outer(mean, mean), mean)
    return Moments(
        counts, means * counts[:, np.newaxis], squares * counts[:, np.newaxis, np.newaxis]
    )


def within_classes(pooled: Floats, error: float) -> Floats:
    """Return a covariance whose correlations stand out from the noise.

    Parameters
    ----------
    pooled
        A symmetric matrix with noise.
    error
        The standard error of a diagonal entry; others have 1 / sqrt(2) of it.
    """
    if not error:
        return positive(pooled)
    edge = 2 * error / math.sqrt(2) * math.sqrt(len(pooled))
    variances = np.diag(np.maximum(np.diag(pooled), _LEAST_VARIANCE))
    between = pooled - np.diag(np.diag(pooled))
    shared = np.zeros_like(pooled)
    for _ in range(_ROUNDS):
        values, vectors = np.linalg.eigh(between + np.diag(np.diag(shared)))
        kept = np.sqrt(np.maximum(np.maximum(values, 0.0) ** 2 - edge**2, 0.0))
        shared = (vectors * kept) @ vectors.T
    return positive(shared - np.diag(np.diag(shared)) + variances)


def positive(covariance: Floats) -> Floats:
    """Return a covariance with a least variance in every direction."""
    values, vectors = np.linalg.eigh((covariance + covariance.T) / 2)
    found: Floats = (vectors * np.maximum(values, _LEAST_VARIANCE)) @ vectors.T
    return found


def _clean_means(space: RowSpace, means: Floats, errors: Floats, weights: Floats) -> Floats:
    """Return the mean of every class, leaning on that of all rows; shares of levels are shares."""
    everywhere = weights @ means
    found = np.empty_like(means)
    for part in (slice(space.first_number), slice(space.first_number, None)):
        for c, error in enumerate(errors.tolist()):
            apart = means[c, part] - everywhere[part]
            found[c, part] = everywhere[part] + kept_part(apart, apart.size * error**2) * apart
    for choice in space.choices:
        shares = np.maximum(found[:, choice.coordinates], _LEAST_SHARE)
        most = (1 - _LEAST_SHARE) / shares.sum(axis=1, keepdims=True)
        found[:, choice.coordinates] = shares * np.minimum(1.0, most)
    return found


def _leaning(space: RowSpace, raw: Floats, common: Floats, error: float) -> Floats:
    """Return a class's covariance, leaning on the common one wherever the noise is large.

    Variances, and covariances of numbers, of levels, and of one with the other, each have a weight
    of their own.
    """
    apart, number = raw - common, np.arange(len(raw)) >= space.first_number
    kinds = number[:, np.newaxis].astype(int) + number
    own = np.eye(len(raw), dtype=bool)
    found = common.copy()
    for kind in range(3):
        for part, square in (
            ((kinds == kind) & own, error**2),
            ((kinds == kind) & ~own, error**2 / 2),
        ):
            beyond = apart[part]
            found[part] += kept_part(beyond, beyond.size * square) * beyond
    return found


def _consistent(space: RowSpace, squares: Floats, mean: Floats) -> Floats:
    """Return second moments of which some follow from the means: a row has one level per choice."""
    for choice in space.choices:
        at = choice.coordinates
        squares[at, at] = np.diag(mean[at])
    for number, gap in space.gap_coordinates.items():
        squares[number, gap] = squares[gap, number] = 0.0  # a number that is missing is 0
    return squares
