"""Copies: the plan that lowers the imbalance score most without classes that a client lacks.

Copies of a client's own samples cost nothing, and there are none of a class that it does not have.
With q^c = 0 for those, ||q - u||^2 is the sum of the squares of the others' shares, less a
constant: the optimum is water-filling over the classes that the client has. Once these are level,
a client with m of C classes is left with 1/m - 1/C.
"""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fedeas.blocks import class_major
from fedeas.counts import CountsLike, LabelCounts
from fedeas.errors import InputError
from fedeas.plan import Plan
from fedeas.policies.policy import Floats, Ints, LocalPolicy
from fedeas.policies.waterfill import WaterFill
from fedeas.skew import imbalance

_DEAREST, _CHEAPEST = 1.0, 1e-40  # prices: no sample is worth more, and any whole one is worth more
_STEPS = 100  # halvings of the price's logarithm


@dataclass(frozen=True)
class OwnClasses(LocalPolicy):
    """Spend a total, or everything above a price, on classes that each client has samples of.

    It may stay a few samples below the total: clients stop at one price, in whole samples.

    Parameters
    ----------
    total : int, optional
        The most samples of all clients together. Needs all counts in one place.
    price : float, optional
        Instead: what a sample has to lower the score by. Each client plans by itself.

    >>> OwnClasses(total=50).plan(LabelCounts([[90, 10, 0], [30, 40, 30]])).samples
    array([[ 0, 50,  0],
           [ 0,  0,  0]])
    """

    name: ClassVar[str] = "copies"
    total: int | None = None
    price: float | None = None

    def __post_init__(self) -> None:
        if (self.total is None) == (self.price is None):
            raise InputError("copies take a total or a price", got=(self.total, self.price))
        WaterFill(self.total, self.price)  # refuses what is out of range

    def fill(self, n: Floats) -> Floats:
        """Return what each row takes at the policy's price."""
        if self.price is None:
            raise InputError(
                "one client cannot know its part of a total", fix="use a price instead"
            )
        return _Held(n).at(self.price)

    def plan(self, counts: CountsLike) -> Plan:
        """Return the plan of all clients."""
        counts = LabelCounts.of(counts)
        if self.total is None:
            return super().plan(counts)
        held = _Held(class_major(counts.n))
        return Plan.of(counts, held.within(self.total), self)


class _Held:
    """The classes that each client has, clients of the same number of them together."""

    def __init__(self, n: Floats) -> None:
        self.shape = n.shape
        number = (n > 0).sum(axis=1)
        self.groups: list[tuple[NDArray[np.intp], NDArray[np.intp], Floats]] = []
        for size in np.unique(number[number > 1]).tolist():
            rows = np.flatnonzero(number == size)
            columns = np.nonzero(n[rows] > 0)[1].reshape(-1, size)
            own = np.take_along_axis(n[rows], columns, axis=1)
            self.groups.append((rows, columns, own))

    def at(self, price: float) -> Floats:
        """Return what each client takes at a price, and nothing of what it lacks."""
        samples, rule = np.zeros(self.shape), WaterFill(price=price)
        for rows, columns, own in self.groups:
            samples[rows[:, np.newaxis], columns] = rule.fill(own)
        return samples

    def within(self, total: int) -> Floats:
        """Return the samples of the lowest price at which clients take no more than a total."""
        if (found := self.at(_CHEAPEST)).sum() <= total:
            return found
        found = np.zeros(self.shape)
        high, low = _DEAREST, _CHEAPEST
        for _ in range(_STEPS):
            price = math.sqrt(high * low)
            if found.sum() == total or not low < price < high:
                break
            samples = self.at(price)
            if samples.sum() > total:
                low = price
            else:
                high, found = price, samples
        return found


def copyable(samples: Ints, n: Ints) -> Ints:
    """Return the part of a plan that copies can make: samples of classes that the client has.

    >>> copyable(np.array([[0, 38, 48]]), np.array([[90, 10, 0]]))
    array([[ 0, 38,  0]])
    """
    return np.where(n > 0, samples, 0)


def reachable_reduction(counts: CountsLike) -> float:
    """Return the part of the imbalance that levelling the classes that clients have would remove.

    Neither copies nor class weights go beyond it: the rest lies in classes that clients lack.

    >>> round(reachable_reduction([[90, 10, 0], [30, 40, 30]]), 3)
    0.657
    """
    counts = LabelCounts.of(counts)
    held = (counts.n > 0).sum(axis=1)
    left = np.divide(1.0, held, out=np.zeros(len(held)), where=held > 0) - 1 / counts.C
    before = imbalance(counts)
    after = float(counts.sizes @ left) / float(counts.sizes.sum())
    return 1 - after / before if before > 0 else 0.0
