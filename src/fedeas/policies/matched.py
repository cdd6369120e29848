"""The two policies of the matched-budget protocol: they spend exactly the total they are given."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fedeas.counts import CountsLike, LabelCounts
from fedeas.errors import InfeasibleError
from fedeas.plan import Plan
from fedeas.scalars import integer, keep
from fedeas.tables import LARGEST


def check_total(total: int) -> int:
    """Return a total that is a whole number of samples, or refuse it."""
    return integer(total, "not a total", "a whole number from 0 to 2**53", low=0, high=LARGEST)


@dataclass(frozen=True)
class Uniform:
    """Give every client-class pair the same number of samples, the remainder to the first pairs.

    Pairs are counted client by client: (0, 0), (0, 1), ... A client without samples gets nothing.

    Parameters
    ----------
    total : int
        The samples of all clients together.

    >>> Uniform(total=5).plan(LabelCounts([[3, 0], [1, 1]])).samples
    array([[2, 1],
           [1, 1]])
    """

    name: ClassVar[str] = "uniform"
    total: int

    def __post_init__(self) -> None:
        keep(self, total=check_total(self.total))

    def plan(self, counts: CountsLike) -> Plan:
        """Return the plan of all clients."""
        counts = LabelCounts.of(counts)
        pairs = np.broadcast_to((counts.sizes > 0)[:, np.newaxis], counts.n.shape)
        return Plan.of(counts, spread(self.total, pairs), self)


@dataclass(frozen=True)
class MissingOnly:
    """Spread the total as `Uniform` does, over the absent pairs (n_k^c = 0) only.

    Parameters
    ----------
    total : int
        The samples of all clients together.

    >>> MissingOnly(total=5).plan(LabelCounts([[3, 0], [1, 1]])).samples
    array([[0, 5],
           [0, 0]])
    """

    name: ClassVar[str] = "missing-only"
    total: int

    def __post_init__(self) -> None:
        keep(self, total=check_total(self.total))

    def plan(self, counts: CountsLike) -> Plan:
        """Return the plan of all clients."""
        counts = LabelCounts.of(counts)
        pairs = (counts.n == 0) & (counts.sizes > 0)[:, np.newaxis]
        if self.total and not pairs.any():
            raise InfeasibleError(
                "no client lacks a class, so missing-only has nowhere to put its samples",
                fix="leave this policy out",
            )
        return Plan.of(counts, spread(self.total, pairs), self)


def spread(total: int, pairs: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Share `total` equally among the chosen pairs, the remainder one at a time in row order."""
    samples = np.zeros(pairs.shape, np.int64)
    if total:
        each, rest = divmod(int(total), int(pairs.sum()))
        samples[pairs] = each
        samples.reshape(-1)[np.flatnonzero(pairs)[:rest]] += 1
    return samples
