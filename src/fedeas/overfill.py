"""Where a plan goes beyond full balance: a scarce class ends above the client's largest one."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from fedeas.counts import LabelCounts
from fedeas.tables import LARGEST
from fedeas.targets import Target


class PlanLike(Protocol):
    """What is looked at of a plan."""

    @property
    def samples(self) -> NDArray[np.int64]:
        """Samples to generate, clients x classes."""
        ...

    @property
    def per_client(self) -> NDArray[np.int64]:
        """Their sums."""
        ...

    @property
    def target(self) -> Target | None:
        """What the plan aims at."""
        ...


@dataclass(frozen=True)
class Overfill:
    """Clients that are given more of a scarce class than they hold of any, and the worst of them.

    Filling every class up to the largest one balances a client; what goes beyond unbalances it
    again. For a target, `largest` is what would match it in the class that goes furthest beyond.
    """

    clients: int  # how many there are
    client: str  # the one that goes furthest beyond full balance, and its numbers:
    largest: int  # samples of its largest class
    filled_to: int  # samples of a class after generation
    samples: int  # that it generates
    full: int  # that full balance would generate


def overfilled(counts: LabelCounts, plan: PlanLike) -> Overfill | None:
    """Return where a plan fills a scarce class beyond the client's largest one.

    >>> from fedeas import FedEAS
    >>> c = LabelCounts([[10, 2, 0], [40, 40, 30]], ["small", "large"])
    >>> overfilled(c, FedEAS(beta=12).plan(c))
    Overfill(clients=1, client='small', largest=10, filled_to=14, samples=26, full=18)
    """
    if plan.target is not None:
        return _beyond_target(counts, plan, plan.target.array)
    n, g = counts.n, plan.samples
    largest = n.max(axis=1)
    scarce = (g > 0) & (n * counts.C < counts.sizes[:, np.newaxis])
    filled = np.where(scarce, n + g, 0).max(axis=1)
    if not (beyond := filled > largest).any():
        return None
    full = largest * counts.C - counts.sizes
    k = int(np.argmax(np.where(beyond, plan.per_client - full, -LARGEST)))
    return Overfill(
        int(beyond.sum()),
        counts.client_names[k],
        int(largest[k]),
        int(filled[k]),
        int(plan.per_client[k]),
        int(full[k]),
    )


def _beyond_target(counts: LabelCounts, plan: PlanLike, t: NDArray[np.float64]) -> Overfill | None:
    """Return where a scarce class ends above what matches the target."""
    n, g = counts.n[:, t > 0].astype(np.float64), plan.samples[:, t > 0]
    t = t[t > 0]
    full = matching_counts(n, t)
    scarce = (g > 0) & (n < n.sum(axis=1, keepdims=True) * t)
    excess = np.where(scarce, n + g - full, 0.0)
    if not (beyond := excess.max(axis=1) > 0).any():
        return None
    needed = np.maximum(full - n, 0.0).sum(axis=1)
    k = int(np.argmax(np.where(beyond, plan.per_client - needed, -LARGEST)))
    c = int(np.argmax(excess[k]))
    return Overfill(
        int(beyond.sum()),
        counts.client_names[k],
        int(full[k, c]),
        int(n[k, c] + g[k, c]),
        int(plan.per_client[k]),
        int(needed[k]),
    )


def matching_counts(n: NDArray[np.float64], t: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the smallest counts that are not below `n` and match the target, rounded."""
    counts: NDArray[np.float64] = np.rint((n / t).max(axis=1, keepdims=True) * t)
    return counts
