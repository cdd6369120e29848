"""Covariances of classes of any size: those of few samples lean on all classes together.

The weight of the common covariance follows the rule of oracle approximating shrinkage (Chen,
Wiesel, Eldar and Hero, 2010), which needs only a covariance and how many samples it is from. It is
applied where the common covariance is the identity.
"""

import numpy as np

from fedeas.generators.quantiles import Floats

_LEAST_VARIANCE = 1e-6  # that every coordinate has, as those that never change would have none
_LEAST = 1e-4  # eigenvalue, as a part of the largest


def class_covariances(counts: Floats, scatters: Floats) -> Floats:
    """Return the covariance of every class: classes x coordinates x coordinates.

    Parameters
    ----------
    counts : array
        How many samples every class has.
    scatters : array
        For every class, the sum of outer products about its mean.
    """
    common = common_covariance(counts, scatters)
    root = np.linalg.cholesky(common)
    inverse = np.linalg.inv(root)
    found = np.empty_like(scatters)
    for label, count in enumerate(counts.tolist()):
        if count < 2:
            found[label] = common
            continue
        white = inverse @ (scatters[label] / (count - 1)) @ inverse.T
        weight = shrinkage(white, count)
        mixed = (1 - weight) * white + weight * np.eye(len(white))
        found[label] = root @ positive(mixed) @ root.T
    return found


def common_covariance(counts: Floats, scatters: Floats) -> Floats:
    """Return the covariance within classes, all together; few samples lean on no correlation."""
    scatter = scatters[counts > 0].sum(axis=0)
    freedom = max(float((counts - 1).clip(0).sum()), 1.0)
    variances = np.maximum(np.diag(scatter) / freedom, _LEAST_VARIANCE)
    spread = np.sqrt(variances)
    correlation = scatter / freedom / np.outer(spread, spread)
    np.fill_diagonal(correlation, 1.0)
    weight = shrinkage(correlation, freedom)
    mixed = (1 - weight) * correlation + weight * np.eye(len(spread))
    common: Floats = positive(mixed) * np.outer(spread, spread)
    return common


def shrinkage(covariance: Floats, samples: float) -> float:
    """Return the weight of the identity in a covariance that was found from some samples.

    >>> shrinkage(np.eye(3), 100)
    1.0
    """
    size = len(covariance)
    trace = float(np.trace(covariance))
    square = float((covariance**2).sum())
    above = (1 - 2 / size) * square + trace**2
    below = (samples + 1 - 2 / size) * (square - trace**2 / size)
    return 1.0 if below <= 0 else float(np.clip(above / below, 0.0, 1.0))


def positive(matrix: Floats) -> Floats:
    """Return a matrix with no eigenvalue below the least: sums may be rounded, or noisy."""
    values, vectors = np.linalg.eigh((matrix + matrix.T) / 2)
    made: Floats = (vectors * np.maximum(values, _LEAST * values.max(initial=1.0))) @ vectors.T
    return made
