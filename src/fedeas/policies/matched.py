"""The two policies of the matched-budget protocol: they spend exactly the total they are given."""

from dataclasses import dataclass
from numbers import Integral
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fedeas.counts import LabelCounts
from fedeas.errors import InfeasibleError, InputError
from fedeas.plan import Plan
from fedeas.tables import LARGEST


def check_total(total: int) -> None:
    """Refuse a total that is not a whole number of samples."""
    if isinstance(total, bool) or not isinstance(total, Integral) or not 0 <= total <= LARGEST:
        raise InputError("not a total", got=total, allowed="a whole number from 0 to 2**53")


@dataclass(frozen=True)
class Uniform:
    """Give every client-class pair the same number of samples, the remainder to the first pairs.

    Pairs are counted client by client: (0, 0), (0, 1), ... A client without samples gets nothing.

    >>> Uniform(total=5).plan(LabelCounts([[3, 0], [1, 1]])).samples
    array([[2, 1],
           [1, 1]])
    """

    name: ClassVar[str] = "uniform"
    total: int

    def __post_init__(self) -> None:
        check_total(self.total)

    def plan(self, counts: LabelCounts) -> Plan:
        """Return the plan of all clients."""
        pairs = np.broadcast_to((counts.sizes > 0)[:, np.newaxis], counts.n.shape)
        return Plan.of(counts, spread(self.total, pairs), self)


@dataclass(frozen=True)
class MissingOnly:
    """Spread the total as `Uniform` does, over the absent pairs (n_k^c = 0) only.

    >>> MissingOnly(total=5).plan(LabelCounts([[3, 0], [1, 1]])).samples
    array([[0, 5],
           [0, 0]])
    """

    name: ClassVar[str] = "missing-only"
    total: int

    def __post_init__(self) -> None:
        check_total(self.total)

    def plan(self, counts: LabelCounts) -> Plan:
        """Return the plan of all clients."""
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
