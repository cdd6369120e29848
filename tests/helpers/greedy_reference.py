"""The paper's reference for the best plan: one sample at a time, where the gain is largest."""

import heapq
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fedeas._internal.scalars import set_frozen
from fedeas.counts.label_counts import CountsLike, LabelCounts
from fedeas.planning.plan import Plan
from fedeas.planning.policies.policy import BasePolicy, check_total
from fedeas.planning.resolve import OPTIONAL
from fedeas.planning.targets import TargetLike, make_target, shares_of


@dataclass(frozen=True, repr=False)
class Greedy(BasePolicy):
    """Place one sample at a time where Eq. (7) is largest.

    Takes time in proportion to the total. It is a reference for `WaterFill`, which finds the same
    plan directly.

    Parameters
    ----------
    total : int
        The samples of all clients together.
    target : Target, str, path, mapping or sequence, optional
        The class distribution to aim at, uniform by default.

    >>> Greedy(total=100).plan(LabelCounts([[90, 10, 0], [30, 40, 30]])).samples
    array([[ 0, 45, 55],
           [ 0,  0,  0]])
    """

    name: ClassVar[str] = "greedy"
    total: int
    target: TargetLike = field(default=None, metadata=OPTIONAL)

    def __post_init__(self) -> None:
        set_frozen(self, total=check_total(self.total), target=make_target(self.target))

    def plan(self, counts: CountsLike) -> Plan:
        """Return the plan of all clients."""
        counts = LabelCounts.of(counts)
        rule = self.resolve(counts)
        if (t := shares_of(rule.target, counts.C)) is not None:
            return Plan.of(counts, _spend(counts.n, t, self.total), rule)
        samples = np.zeros(counts.n.shape, np.int64)
        # Per client a heap of (count, class), its size N, sum M and sum of squares S: the gain of
        # its smallest class is N / M (S / M^2 - min / M), up to a factor that all share.
        heaps = [[(int(x), c) for c, x in enumerate(row)] for row in counts.n]
        sizes = [int(N) for N in counts.sizes]
        sums = list(sizes)
        squares = [sum(x * x for x, _ in heap) for heap in heaps]
        best: list[tuple[float, int]] = []
        for k, heap in enumerate(heaps):
            heapq.heapify(heap)
            if sizes[k]:
                best.append((-(squares[k] - sums[k] * heap[0][0]) / sums[k] ** 2, k))
        heapq.heapify(best)
        for _ in range(self.total):
            worth, k = best[0]
            if worth >= 0:
                break  # everything is balanced
            heap = heaps[k]
            count, c = heap[0]
            heapq.heapreplace(heap, (count + 1, c))
            samples[k, c] += 1
            squares[k] += 2 * count + 1
            sums[k] += 1
            M = sums[k]
            heapq.heapreplace(best, (-sizes[k] * (squares[k] - M * heap[0][0]) / M**3, k))
        return Plan.of(counts, samples, rule)


def _spend(n: NDArray[np.int64], t: NDArray[np.float64], total: int) -> NDArray[np.int64]:
    """Place one sample at a time for a target: the order of a client's classes changes with M."""
    x, N = n.astype(np.float64), n[:, t > 0].sum(axis=1)
    x[:, t == 0] = 0.0
    samples = np.zeros(n.shape, np.int64)

    def best(k: int) -> tuple[float, int, int]:
        M = x[k].sum()
        d = np.where(t > 0, x[k] / M - t, np.inf)
        c = int(np.argmin(d))
        return -N[k] / M * (float(x[k] @ (x[k] / M - t)) / M - float(d[c])), k, c

    heap = [best(int(k)) for k in np.flatnonzero(N)]
    heapq.heapify(heap)
    for _ in range(total):
        worth, k, c = heap[0]
        if worth >= -1e-15:
            break  # every client is at the target
        x[k, c] += 1
        samples[k, c] += 1
        heapq.heapreplace(heap, best(k))
    return samples
