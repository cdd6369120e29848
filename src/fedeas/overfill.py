"""Where a plan goes beyond full balance: a scarce class ends above the client's largest one."""

from dataclasses import dataclass

import numpy as np

from fedeas.blocks import class_major
from fedeas.counts import LabelCounts
from fedeas.plan import Plan
from fedeas.policies.fedeas import FedEAS
from fedeas.tables import LARGEST


@dataclass(frozen=True)
class Overfill:
    """Clients that are given more of a scarce class than they hold of any, and the worst of them.

    Filling every class up to the largest one balances a client; what goes beyond unbalances it
    again.
    """

    clients: int  # how many there are
    client: str  # the one that goes furthest beyond full balance, and its numbers:
    largest: int  # samples of its largest class
    filled_to: int  # samples of a class after generation
    samples: int  # that it generates
    full: int  # that full balance would generate


def overfilled(counts: LabelCounts, plan: Plan) -> Overfill | None:
    """Return where a plan fills a scarce class beyond the client's largest one.

    >>> c = LabelCounts([[10, 2, 0], [40, 40, 30]], ["small", "large"])
    >>> overfilled(c, FedEAS(beta=12).plan(c))
    Overfill(clients=1, client='small', largest=10, filled_to=14, samples=26, full=18)
    """
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


def balancing_beta(counts: LabelCounts, policy: FedEAS | None = None) -> float:
    """Return the beta from which on some client is filled beyond its largest class.

    >>> balancing_beta(LabelCounts([[10, 2, 0], [40, 40, 30]]))
    9.3...
    """
    rule = policy or FedEAS()
    n = class_major(counts.n)
    rate = rule.rate(n, n.sum(axis=-1))
    with np.errstate(divide="ignore"):
        return float(np.min((n.max(axis=-1) + 1) / rate))
