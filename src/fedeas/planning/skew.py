r"""How skewed label counts are, as plain functions of a matrix of counts.

Everywhere `n` has clients in rows and classes along the last axis, N_k is a row's sum,
q_k = n_k / N_k, p_k = N_k / sum_j N_j and u = 1/C. A client without samples counts as balanced
and weighs nothing.

`target` is the class distribution t that counts are measured against, u by default (see
`fedeas.Target`). A class with share 0 is left out of `n`. `quality` says what a synthetic sample of
each class is worth in real ones, 1 by default: n + rho m is what a client effectively holds.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedeas._internal.frames import is_frame
from fedeas.counts.label_counts import LabelCounts
from fedeas.planning.targets import FEDERATION, Target, TargetLike, make_target, shares_of

Floats = NDArray[np.float64]
_TINY = np.finfo(np.float64).tiny
ABOVE = 1 + 1e-14  # a gain of zero must not look negative by rounding


class Split(NamedTuple):
    """The imbalance score in two parts, Eq. (5)."""

    cross_client: float
    overall: float


class Concentration(NamedTuple):
    """Cumulative shares, adding clients in decreasing order of imbalance."""

    order: NDArray[np.intp]
    imbalance: Floats
    budget: Floats


def skewness(n: ArrayLike, sizes: Floats | None = None, target: TargetLike = None) -> Floats:
    r"""Return 1 - H_k / log C per client: 0 when balanced, 1 when all samples are of one class.

    H_k = -sum_c q_k^c log q_k^c, with 0 log 0 = 0 (Eq. 3). `sizes` are the N_k, if known. For a
    target it is KL(q_k || t) / log(1 / min_c t_c): 1 when all samples are of the rarest class of t.

    >>> skewness([[5, 5], [10, 0]])
    array([0., 1.])
    >>> skewness([[5, 5], [3, 1], [0, 4]], target=[0.75, 0.25]).round(3)
    array([0.104, 0.   , 1.   ])
    """
    x, t = supported(_floats(n), resolve_target(n, target))
    C = x.shape[-1]
    N = x.sum(axis=-1) if sizes is None or x.shape != np.shape(n) else sizes
    logs = np.maximum(x, _TINY)  # 0 log 0 = 0: the log of anything finite will do
    np.log(logs, out=logs)
    logs *= x
    size = divisor(N)
    # sum q log q = (sum n log n) / N - log N: one logarithm a cell and no division.
    if t is not None:
        far = (logs.sum(axis=-1) - x @ np.log(t)) / size - np.log(size)
        return np.where(N > 0, np.clip(far / -np.log(t.min()), 0.0, 1.0), 0.0)
    skew = (logs.sum(axis=-1) / size - np.log(size) + np.log(C)) / np.log(C)
    return np.where(N > 0, np.clip(skew, 0.0, 1.0), 0.0)


def deviation(n: ArrayLike, target: TargetLike = None) -> Floats:
    """Return ||q_k - u||^2 per client, the distance of its classes from balance, or from a target.

    >>> deviation([[10, 0], [3, 1]], target=[0.75, 0.25])
    array([0.125, 0.   ])
    """
    x, t = supported(_floats(n), resolve_target(n, target))
    N = x.sum(axis=-1)
    if t is not None:
        far = x / divisor(N)[..., np.newaxis] - t
        return np.where(N > 0, (far * far).sum(axis=-1), 0.0)
    squares = (x * x).sum(axis=-1)
    distance = squares / divisor(N) ** 2 - 1.0 / x.shape[-1]
    return np.where(N > 0, np.maximum(distance, 0.0), 0.0)


def imbalance(
    n: ArrayLike, added: ArrayLike = 0, target: TargetLike = None, quality: ArrayLike | None = None
) -> float:
    """Return the score I = sum_k p_k ||q_k - u||^2 (Eq. 4), after adding synthetic samples.

    The weights p_k stay those of the real counts `n`.

    Parameters
    ----------
    n : array_like
        Counts, clients x classes.
    added : array_like
        Synthetic samples, clients x classes.
    target : Target, str, path, mapping or sequence, optional
        What takes the place of u.
    quality : array_like, optional
        The worth of a synthetic sample of each class.

    >>> imbalance([[10, 0], [5, 5]])
    0.25
    >>> imbalance([[10, 0], [5, 5]], added=[[0, 10], [0, 0]])
    0.0
    """
    x, g = _floats(n), _floats(added)
    filled = x + (g if quality is None else g * _floats(quality))
    aim = resolve_target(n, target)
    return float(weights(supported(x, aim)[0]) @ deviation(filled, aim))


def weights(n: ArrayLike) -> Floats:
    """Return p_k = N_k / sum_j N_j (Eq. 1)."""
    N = _floats(n).sum(axis=-1)
    parts: Floats = N / (N.sum() or 1.0)
    return parts


def split(n: ArrayLike, added: ArrayLike = 0, target: TargetLike = None) -> Split:
    """Split the score: sum_k p_k ||q_k - q||^2 between clients, and ||q - u||^2 overall (Eq. 5).

    Here q = sum_k p_k q_k. A client without samples has p_k = 0.

    >>> split([[10, 0], [0, 10]])
    Split(cross_client=0.5, overall=0.0)
    """
    aim = resolve_target(n, target)
    real, t = supported(_floats(n), aim)
    x = supported(_floats(n) + _floats(added), aim)[0]
    p = weights(real)
    q = x / divisor(x.sum(axis=-1, keepdims=True))
    mean = p @ q
    between = float(p @ ((q - mean) ** 2).sum(axis=-1))
    level = 1.0 / x.shape[-1] if t is None else t
    return Split(between, float(((mean - level) ** 2).sum()))


def gain(n: ArrayLike, target: TargetLike = None) -> Floats:
    """Return what one more sample takes off the score, to first order, per client and class.

    Delta_k^c = 2 p_k / N_k (||q_k||^2 - q_k^c), Eq. (7); negative where the class is large already.
    For a target, with d = q_k - t, it is 2 p_k / N_k (d . q_k - d_c), and 0 for a class left out.

    >>> gain([[10, 0], [5, 5]])
    array([[0. , 0.1],
           [0. , 0. ]])
    """
    real = _floats(n)
    aim = resolve_target(n, target)
    x, t = supported(real, aim)
    N = x.sum(axis=-1, keepdims=True)
    q = x / divisor(N)
    # p_k / N_k = 1 / sum_j N_j for every client that holds anything.
    factor = np.where(N > 0, 2.0 / (N.sum() or 1.0), 0.0)
    d = q if t is None else q - t
    change: Floats = factor * ((q * d).sum(axis=-1, keepdims=True) - d)
    if change.shape == real.shape:
        return change
    full = np.zeros_like(real)
    full[..., np.asarray(shares_of(aim, real.shape[-1])) > 0] = change
    return full


def negative_gain(n: ArrayLike, added: ArrayLike, target: TargetLike = None) -> int:
    """Count the added samples at a negative gain: those of a class with q_k^c > ||q_k||^2.

    >>> negative_gain([[10, 0], [9, 1]], added=[[3, 3], [2, 2]])
    2
    """
    aim = resolve_target(n, target)
    (x, t), g = supported(_floats(n), aim), supported(_floats(added), aim)[0]
    N = x.sum(axis=-1, keepdims=True)
    level = (x * x).sum(axis=-1, keepdims=True) / divisor(N)
    if t is None:
        return int((g * (x > level * ABOVE)).sum())
    level = level + N * (t + (ABOVE - 1)) - (x * t).sum(axis=-1, keepdims=True)
    return int((g * (x > level)).sum())


def mutual_information(n: ArrayLike) -> float:
    """Return how much of the label a client's name gives away: sum_k p_k KL(q_k || q) / log C.

    >>> mutual_information([[5, 5], [10, 10]]), mutual_information([[10, 0], [0, 10]])
    (0.0, 1.0)
    """
    x = _floats(n)
    q = x / divisor(x.sum(axis=-1, keepdims=True))
    p = weights(x)
    return max(0.0, float(p @ _relative_entropy(q, p @ q)) / math.log(x.shape[-1]))


def concentration(n: ArrayLike, added: ArrayLike, target: TargetLike = None) -> Concentration:
    """Return how few clients hold most of the imbalance, and which share of the samples they get.

    >>> concentration([[10, 0], [6, 4]], added=[[0, 8], [0, 2]]).budget
    array([0.8, 1. ])
    """
    x = _floats(n)
    aim = resolve_target(n, target)
    parts = weights(supported(x, aim)[0]) * deviation(x, aim)
    order = np.argsort(-parts, kind="stable")
    return Concentration(
        order,
        _cumulative_share(parts[order]),
        _cumulative_share(_floats(added).sum(axis=-1)[order]),
    )


def _cumulative_share(parts: Floats) -> Floats:
    total = parts.sum()
    return np.cumsum(parts) / (total if total > 0 else 1.0)


def divisor(x: Floats) -> Floats:
    """Return x with ones for zeros: what is divided by it, or multiplied with its log, is zero."""
    divisor: Floats = x + (x == 0)
    return divisor


def _floats(n: ArrayLike) -> Floats:
    return np.asarray(n, dtype=np.float64)


def _relative_entropy(q: Floats, t: Floats) -> Floats:
    """Return sum_c q_c log(q_c / t_c), where t is not 0 if q is not."""
    logs = np.log(np.maximum(q, _TINY)) - np.log(np.maximum(t, _TINY))
    sums: Floats = (q * logs).sum(axis=-1)
    return sums


def resolve_target(n: ArrayLike, target: TargetLike) -> Target | None:
    """Return a target whose shares are known, and in the order of the classes of `n`.

    The federation's own are those of `n`; shares by name need counts with names.
    """
    aim = make_target(target)
    if aim is None:
        return None
    if aim.classes is not None and (isinstance(n, LabelCounts) or is_frame(n)):
        return aim.for_classes(LabelCounts.of(n).class_names)
    if aim.shares is not None:
        return aim
    x = _floats(n)
    return Target(x.reshape(-1, x.shape[-1]).sum(axis=0).tolist(), name=FEDERATION)


def supported(x: Floats, target: TargetLike) -> tuple[Floats, Floats | None]:
    """Return the columns of the classes that a target has, and its shares, None if all equal."""
    t = shares_of(target, x.shape[-1])
    if t is None or t.all():
        return x, t
    t, x = t[t > 0], x[..., t > 0]
    return x, None if t.max() == t.min() else t
