"""Copies: the plan that lowers the imbalance score most without classes that a client lacks.

Copies of a client's own samples cost nothing, and there are none of a class that it does not have.
With q^c = 0 for those, ||q - t||^2 is, up to a constant, the squared distance of the others' shares
from t^c + r / m, with r the target's share of what the client lacks and m the number of classes
that it has: the optimum is water-filling towards that. For the uniform target it is level, and a
client with m of C classes is left with 1/m - 1/C.
"""

import math
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fedeas.blocks import class_major
from fedeas.counts import CountsLike, LabelCounts
from fedeas.errors import InputError
from fedeas.plan import Plan
from fedeas.policies.levels import CHEAPEST, Levels
from fedeas.policies.policy import Floats, Ints, LocalPolicy
from fedeas.policies.target_levels import TargetLevels
from fedeas.policies.waterfill import WaterFill
from fedeas.policy_settings import OPTIONAL, settle
from fedeas.scalars import keep
from fedeas.skew import imbalance, weights
from fedeas.targets import TargetLike, aim_shares, make_target

_DEAREST = 4.0  # a price that no sample is worth: ||q - t||^2 is at most 2, and falls by less
_STEPS = 100  # halvings of the price's logarithm


@dataclass(frozen=True, repr=False)
class OwnClasses(LocalPolicy):
    """Spend a total, or everything above a price, on classes that each client has samples of.

    It may stay a few samples below the total: clients stop at one price, in whole samples.

    Parameters
    ----------
    total : int, optional
        The most samples of all clients together. Needs all counts in one place.
    price : float, optional
        Instead: what a sample has to lower the score by. Each client plans by itself.
    target : Target, str, path, mapping or sequence, optional
        The class distribution to aim at, uniform by default.

    >>> OwnClasses(total=50).plan(LabelCounts([[90, 10, 0], [30, 40, 30]])).samples
    array([[ 0, 50,  0],
           [ 0,  0,  0]])
    """

    name: ClassVar[str] = "copies"
    total: int | None = None
    price: float | None = None
    target: TargetLike = field(default=None, metadata=OPTIONAL)

    def __post_init__(self) -> None:
        if (self.total is None) == (self.price is None):
            raise InputError("copies take a total or a price", got=(self.total, self.price))
        WaterFill(self.total, self.price)  # refuses what is out of range
        keep(self, target=make_target(self.target))

    def fill(self, n: Floats) -> Floats:
        """Return what each row takes at the policy's price."""
        if self.price is None:
            raise InputError(
                "one client cannot know its part of a total", fix="use a price instead"
            )
        return _Held(n, self.shares(n.shape[-1])).at(self.price)

    def plan(self, counts: CountsLike) -> Plan:
        """Return the plan of all clients."""
        counts = LabelCounts.of(counts)
        if self.total is None:
            return super().plan(counts)
        rule = settle(self, counts)
        held = _Held(class_major(counts.n), rule.shares(counts.C))
        return Plan.of(counts, held.within(self.total), rule)


class _Held:
    """The classes that each client has, clients of the same number of them together."""

    def __init__(self, n: Floats, t: Floats | None) -> None:
        self.shape = n.shape
        has = n > 0 if t is None else (n > 0) & (t > 0)
        number = has.sum(axis=1)
        self.groups: list[tuple[NDArray[np.intp], NDArray[np.intp], Levels]] = []
        for size in np.unique(number[number > 1]).tolist():
            rows = np.flatnonzero(number == size)
            columns = np.nonzero(has[rows])[1].reshape(-1, size)
            own = np.take_along_axis(n[rows], columns, axis=1)
            self.groups.append((rows, columns, _towards(own, None if t is None else t[columns])))

    def at(self, price: float) -> Floats:
        """Return what each client takes at a price, and nothing of what it lacks."""
        samples = np.zeros(self.shape)
        for rows, columns, levels in self.groups:
            filled = levels.raise_by(np.ceil(levels.amount(price)))
            samples[rows[:, np.newaxis], columns] = filled
        return samples

    def within(self, total: int) -> Floats:
        """Return the samples of the lowest price at which clients take no more than a total."""
        if (found := self.at(CHEAPEST)).sum() <= total:
            return found
        found = np.zeros(self.shape)
        high, low = _DEAREST, CHEAPEST
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


def _towards(own: Floats, t: Floats | None) -> Levels:
    """Return how counts are raised, with the share of what is lacking spread over what is there."""
    if t is None:
        return Levels(own)
    return TargetLevels(own, t + (1 - t.sum(axis=1, keepdims=True)) / t.shape[1])


def copyable(samples: Ints, n: Ints) -> Ints:
    """Return the part of a plan that copies can make: samples of classes that the client has.

    >>> copyable(np.array([[0, 38, 48]]), np.array([[90, 10, 0]]))
    array([[ 0, 38,  0]])
    """
    return np.where(n > 0, samples, 0)


def reachable_reduction(counts: CountsLike, target: TargetLike = None) -> float:
    """Return the part of the imbalance that balancing the classes that clients have would remove.

    Neither copies nor class weights go beyond it: the rest lies in classes that clients lack.

    Parameters
    ----------
    counts : LabelCounts or array_like
        Whole numbers, clients x classes.
    target : Target, str, path, mapping or sequence, optional
        The class distribution to aim at, uniform by default.

    >>> round(reachable_reduction([[90, 10, 0], [30, 40, 30]]), 3)
    0.662
    """
    counts = LabelCounts.of(counts)
    t = aim_shares(target, counts)
    has = (counts.n > 0) & (t > 0)
    lacking = 1 - has @ t
    spread = lacking**2 / np.maximum(has.sum(axis=1), 1)
    left = spread + ~has @ t**2
    before = imbalance(counts, target=t.tolist())
    after = float(weights(np.where(t > 0, counts.n, 0)) @ left)
    return 1 - after / before if before > 0 else 0.0
