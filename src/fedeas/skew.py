r"""How skewed label counts are, as plain functions of a matrix of counts.

Everywhere `n` has clients in rows and classes along the last axis, N_k is a row's sum,
q_k = n_k / N_k, p_k = N_k / sum_j N_j and u = 1/C. A client without samples counts as balanced
and weighs nothing.
"""

import math
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
_TINY = np.finfo(np.float64).tiny
_ABOVE = 1 + 1e-14  # a gain of zero must not look negative by rounding


class Split(NamedTuple):
    """The imbalance score in two parts, Eq. (5)."""

    cross_client: float
    overall: float


class Tally(NamedTuple):
    """Sums over clients from which all figures of a plan follow; tallies of parts add up."""

    clients: int
    empty: int
    real: float
    total: float
    before: float  # sum_k N_k ||q_k - u||^2, so that I = before / real
    after: float  # the same with the plan's samples
    harmful: float


class Concentration(NamedTuple):
    """Cumulative shares, adding clients in decreasing order of imbalance."""

    order: NDArray[np.intp]
    imbalance: Floats
    budget: Floats


def skewness(n: ArrayLike, sizes: Floats | None = None) -> Floats:
    r"""Return 1 - H_k / log C per client: 0 when balanced, 1 when all samples are of one class.

    H_k = -sum_c q_k^c log q_k^c, with 0 log 0 = 0 (Eq. 3). `sizes` are the N_k, if known.

    >>> skewness([[5, 5], [10, 0]])
    array([0., 1.])
    """
    x = _floats(n)
    C = x.shape[-1]
    N = x.sum(axis=-1) if sizes is None else sizes
    logs = np.maximum(x, _TINY)  # 0 log 0 = 0: the log of anything finite will do
    np.log(logs, out=logs)
    logs *= x
    size = _divisor(N)
    # sum q log q = (sum n log n) / N - log N: one logarithm a cell and no division.
    skew = (logs.sum(axis=-1) / size - np.log(size) + np.log(C)) / np.log(C)
    return np.where(N > 0, np.clip(skew, 0.0, 1.0), 0.0)


def normalised_entropy(n: ArrayLike) -> Floats:
    """Return H_k / log C per client (Eq. 3): 1 when balanced, 0 when there is only one class."""
    return 1.0 - skewness(n)


def deviation(n: ArrayLike) -> Floats:
    """Return ||q_k - u||^2 per client, the distance of its classes from balance."""
    x = _floats(n)
    N = x.sum(axis=-1)
    squares = (x * x).sum(axis=-1)
    distance = squares / _divisor(N) ** 2 - 1.0 / x.shape[-1]
    return np.where(N > 0, np.maximum(distance, 0.0), 0.0)


def imbalance(n: ArrayLike, added: ArrayLike = 0) -> float:
    """Return the score I = sum_k p_k ||q_k - u||^2 (Eq. 4), after adding synthetic samples.

    The weights p_k stay those of the real counts `n`.

    >>> imbalance([[10, 0], [5, 5]])
    0.25
    >>> imbalance([[10, 0], [5, 5]], added=[[0, 10], [0, 0]])
    0.0
    """
    x = _floats(n)
    return float(weights(x) @ deviation(x + _floats(added)))


def weights(n: ArrayLike) -> Floats:
    """Return p_k = N_k / sum_j N_j (Eq. 1)."""
    N = _floats(n).sum(axis=-1)
    total: Floats = N / N.sum()
    return total


def split(n: ArrayLike, added: ArrayLike = 0) -> Split:
    """Split the score: sum_k p_k ||q_k - q||^2 between clients, and ||q - u||^2 overall (Eq. 5).

    Here q = sum_k p_k q_k. A client without samples has p_k = 0.

    >>> split([[10, 0], [0, 10]])
    Split(cross_client=0.5, overall=0.0)
    """
    real, x = _floats(n), _floats(n) + _floats(added)
    p = weights(real)
    q = x / _divisor(x.sum(axis=-1, keepdims=True))
    mean = p @ q
    between = float(p @ ((q - mean) ** 2).sum(axis=-1))
    return Split(between, float(((mean - 1.0 / x.shape[-1]) ** 2).sum()))


def gain(n: ArrayLike) -> Floats:
    """Return what one more sample takes off the score, to first order, per client and class.

    Delta_k^c = 2 p_k / N_k (||q_k||^2 - q_k^c), Eq. (7); negative where the class is large already.

    >>> gain([[10, 0], [5, 5]])
    array([[0. , 0.1],
           [0. , 0. ]])
    """
    x = _floats(n)
    N = x.sum(axis=-1, keepdims=True)
    q = x / _divisor(N)
    # p_k / N_k = 1 / sum_j N_j for every client that holds anything.
    factor = np.where(N > 0, 2.0 / N.sum(), 0.0)
    change: Floats = factor * ((q * q).sum(axis=-1, keepdims=True) - q)
    return change


def harmful(n: ArrayLike, added: ArrayLike) -> int:
    """Count the added samples at a negative gain: those of a class with q_k^c > ||q_k||^2.

    >>> harmful([[10, 0], [9, 1]], added=[[3, 3], [2, 2]])
    2
    """
    x, g = _floats(n), _floats(added)
    level = (x * x).sum(axis=-1, keepdims=True) / _divisor(x.sum(axis=-1, keepdims=True))
    return int((g * (x > level * _ABOVE)).sum())


def concentration(n: ArrayLike, added: ArrayLike) -> Concentration:
    """Return how few clients hold most of the imbalance, and which share of the samples they get.

    >>> concentration([[10, 0], [6, 4]], added=[[0, 8], [0, 2]]).budget
    array([0.8, 1. ])
    """
    x = _floats(n)
    parts = weights(x) * deviation(x)
    order = np.argsort(-parts, kind="stable")
    return Concentration(
        order,
        _cumulative_share(parts[order]),
        _cumulative_share(_floats(added).sum(axis=-1)[order]),
    )


def tally(n: Floats, added: Floats) -> Tally:
    """Count and score a block of clients in one go; see `deviation` and `harmful` for the formulas.

    >>> tally(np.array([[10.0, 0.0]]), np.array([[0.0, 10.0]])).after
    0.0
    """
    N = n.sum(axis=-1)
    filled = n + added
    M = filled.sum(axis=-1)
    filled *= filled
    far = np.where(N > 0, filled.sum(axis=-1) / _divisor(M) ** 2 - 1.0 / n.shape[-1], 0.0)
    np.multiply(n, n, out=filled)
    level = filled.sum(axis=-1) / _divisor(N)
    misplaced = n > (level * _ABOVE)[..., np.newaxis]
    misplaced &= added > 0
    return Tally(
        len(N),
        int((N == 0).sum()),
        float(N.sum()),
        float(M.sum() - N.sum()),
        float(np.maximum(level - N / n.shape[-1], 0.0).sum()),
        float(N @ np.maximum(far, 0.0)),
        float(added[misplaced].sum()) if misplaced.any() else 0.0,
    )


def add_tallies(parts: Iterable[Tally]) -> Tally:
    """Return the tally of all parts together."""
    clients, empty, real, total, before, after, harmful = zip(*parts, strict=True)
    return Tally(
        sum(clients),
        sum(empty),
        math.fsum(real),
        math.fsum(total),
        math.fsum(before),
        math.fsum(after),
        math.fsum(harmful),
    )


def _cumulative_share(parts: Floats) -> Floats:
    total = parts.sum()
    return np.cumsum(parts) / (total if total > 0 else 1.0)


def _divisor(x: Floats) -> Floats:
    """Return x with ones for zeros: what is divided by it, or multiplied with its log, is zero."""
    divisor: Floats = x + (x == 0)
    return divisor


def _floats(n: ArrayLike) -> Floats:
    return np.asarray(n, dtype=np.float64)
