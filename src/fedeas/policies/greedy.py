"""The paper's reference for the best plan: one sample at a time, where the gain is largest."""

import heapq
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fedeas.counts import CountsLike, LabelCounts
from fedeas.plan import Plan
from fedeas.policies.matched import check_total
from fedeas.scalars import keep


@dataclass(frozen=True)
class Greedy:
    """Place one sample at a time where Eq. (7) is largest.

    Takes time in proportion to the total. It is a reference for `WaterFill`, which finds the same
    plan directly.

    Parameters
    ----------
    total : int
        The samples of all clients together.

    >>> Greedy(total=100).plan(LabelCounts([[90, 10, 0], [30, 40, 30]])).samples
    array([[ 0, 45, 55],
           [ 0,  0,  0]])
    """

    name: ClassVar[str] = "greedy"
    total: int

    def __post_init__(self) -> None:
        keep(self, total=check_total(self.total))

    def plan(self, counts: CountsLike) -> Plan:
        """Return the plan of all clients."""
        counts = LabelCounts.of(counts)
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
        return Plan.of(counts, samples, self)
