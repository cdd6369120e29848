"""Sums over blocks of clients, from which all figures of a plan follow."""

import math
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from fedeas.blocks import outer_sum
from fedeas.skew import ABOVE, Floats, divisor, settled, supported
from fedeas.targets import TargetLike


class Tally(NamedTuple):
    """Sums over clients from which all figures of a plan follow; tallies of parts add up."""

    clients: int
    empty: int
    real: float
    total: float
    before: float  # sum_k N_k ||q_k - t||^2, so that I = before / real
    after: float  # the same with the plan's samples
    harmful: float
    held: float  # as `real`, with the classes that the target leaves out


def make_tally(
    n: Floats, added: Floats, target: TargetLike = None, quality: Floats | None = None
) -> Tally:
    """Count and score a block of clients in one go; see `deviation` and `gain` for the formulas.

    >>> make_tally(np.array([[10.0, 0.0]]), np.array([[0.0, 10.0]])).after
    0.0
    """
    whole = n
    aim = settled(whole, target)
    n, t = supported(whole, aim)
    added = supported(added, aim)[0]
    if quality is not None:
        quality = supported(quality, aim)[0]
    N = n.sum(axis=-1)
    filled = n + (added if quality is None else added * quality)
    M = filled.sum(axis=-1)
    near = None if t is None else (n @ t, filled @ t)
    filled *= filled
    after = filled.sum(axis=-1) / divisor(M) ** 2
    np.multiply(n, n, out=filled)
    level = filled.sum(axis=-1) / divisor(N)
    if t is None or near is None:
        before, after = level - N / n.shape[-1], after - 1.0 / n.shape[-1]
        misplaced = n > (level * ABOVE)[..., np.newaxis]
    else:
        own = float(t @ t)
        before = level - 2.0 * near[0] + N * own
        after += own - 2.0 * near[1] / divisor(M)
        level -= near[0]  # a class is too large where n - N t is above it
        misplaced = n > outer_sum(N, t, level + N * (ABOVE - 1))
    misplaced &= added > 0
    total = M.sum() - N.sum() if quality is None else added.sum()
    return Tally(
        len(N),
        int((N == 0).sum()),
        float(N.sum()),
        float(total),
        float(np.maximum(before, 0.0).sum()),
        float(N @ np.maximum(np.where(N > 0, after, 0.0), 0.0)),
        float(added[misplaced].sum()) if misplaced.any() else 0.0,
        float(N.sum() if n is whole else whole.sum()),
    )


def add_tallies(parts: Iterable[Tally]) -> Tally:
    """Return the tally of all parts together."""
    clients, empty, *sums = zip(*parts, strict=True)
    return Tally(sum(clients), sum(empty), *map(math.fsum, sums))
