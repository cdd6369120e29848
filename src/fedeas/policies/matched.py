"""The two policies of the matched-budget protocol: they spend exactly the total they are given."""

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fedeas.counts import CountsLike, LabelCounts
from fedeas.errors import InfeasibleError
from fedeas.plan import Plan
from fedeas.policies.policy import Shown
from fedeas.policy_settings import OPTIONAL, settle
from fedeas.scalars import integer, keep
from fedeas.tables import LARGEST
from fedeas.targets import TargetLike, make_target, shares_of


def check_total(total: int) -> int:
    """Return a total that is a whole number of samples, or refuse it."""
    return integer(total, "not a total", "a whole number from 0 to 2**53", low=0, high=LARGEST)


@dataclass(frozen=True, repr=False)
class Uniform(Shown):
    """Give every client-class pair the same number of samples, the remainder to the first pairs.

    Pairs are counted client by client: (0, 0), (0, 1), ... A client without samples gets nothing.

    Parameters
    ----------
    total : int
        The samples of all clients together.
    target : Target, str, path, mapping or sequence, optional
        The class distribution that the plan is scored with, uniform by default.

    >>> Uniform(total=5).plan(LabelCounts([[3, 0], [1, 1]])).samples
    array([[2, 1],
           [1, 1]])
    """

    name: ClassVar[str] = "uniform"
    total: int
    target: TargetLike = field(default=None, metadata=OPTIONAL)

    def __post_init__(self) -> None:
        keep(self, total=check_total(self.total), target=make_target(self.target))

    def plan(self, counts: CountsLike) -> Plan:
        """Return the plan of all clients."""
        counts = LabelCounts.of(counts)
        rule = settle(self, counts)
        t = shares_of(rule.target, counts.C)
        pairs = np.broadcast_to((counts.sizes > 0)[:, np.newaxis], counts.n.shape)
        pairs = pairs if t is None else pairs & (t > 0)
        return Plan.of(counts, spread(self.total, pairs), rule)


@dataclass(frozen=True, repr=False)
class MissingOnly(Shown):
    """Spread the total as `Uniform` does, over the absent pairs (n_k^c = 0) only.

    For a target t, in proportion to t_c.

    Parameters
    ----------
    total : int
        The samples of all clients together.
    target : Target, str, path, mapping or sequence, optional
        The class distribution that the plan is scored with, uniform by default.

    >>> MissingOnly(total=5).plan(LabelCounts([[3, 0], [1, 1]])).samples
    array([[0, 5],
           [0, 0]])
    """

    name: ClassVar[str] = "missing-only"
    total: int
    target: TargetLike = field(default=None, metadata=OPTIONAL)

    def __post_init__(self) -> None:
        keep(self, total=check_total(self.total), target=make_target(self.target))

    def plan(self, counts: CountsLike) -> Plan:
        """Return the plan of all clients."""
        counts = LabelCounts.of(counts)
        rule = settle(self, counts)
        t = shares_of(rule.target, counts.C)
        pairs = (counts.n == 0) & (counts.sizes > 0)[:, np.newaxis]
        pairs = pairs if t is None else pairs & (t > 0)
        if self.total and not pairs.any():
            raise InfeasibleError(
                "no client lacks a class, so missing-only has nowhere to put its samples",
                fix="leave this policy out",
            )
        return Plan.of(counts, spread(self.total, pairs, t), rule)


def spread(
    total: int, pairs: NDArray[np.bool_], shares: NDArray[np.float64] | None = None
) -> NDArray[np.int64]:
    """Share `total` equally among the chosen pairs, the remainder one at a time in row order.

    With shares of classes it is in proportion to them, the remainder to the largest fractions.
    """
    samples = np.zeros(pairs.shape, np.int64)
    if total and shares is not None:
        parts = np.broadcast_to(shares, pairs.shape)[pairs]
        exact = total * (parts / parts.sum())
        whole = np.floor(exact)
        first = np.argsort(whole - exact, kind="stable")[: round(total - whole.sum())]
        whole[first] += 1
        samples[pairs] = whole
    elif total:
        each, rest = divmod(int(total), int(pairs.sum()))
        samples[pairs] = each
        samples.reshape(-1)[np.flatnonzero(pairs)[:rest]] += 1
    return samples
