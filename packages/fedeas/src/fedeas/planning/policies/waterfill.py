r"""Water-filling: the plan that lowers the imbalance score most, for any total.

It is exact before rounding to whole samples. Rounded it is the optimum for the uniform target; for
other targets, and where samples cost differently, it can miss the optimum by a few samples.

A client that spends its samples best raises its j smallest classes to one level L and leaves the
rest alone. With A the sum of squares and B the sum of the counts left alone, and M = B + j L its
samples afterwards, one more sample takes

    2 / (sum_i N_i) * price,    price = N_k (A - B L) / M^3

off the score. The price falls as M grows, so the score is convex in every client's M and a total
is best spent when all clients stop at one price. That price is a single number that a server can
broadcast; each client then finds its own M from its own counts: on a segment (fixed j) it is the
root of the cubic

    M^3 + (N_k B / (j price)) M - N_k (A + B^2 / j) / price = 0.

Before the first sample a client's price is ||q_k||^2 - min_c q_k^c, between 0 and 1.
"""

import math
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fedeas._util.blocks import class_major
from fedeas._util.scalars import LARGEST, number, set_frozen
from fedeas.errors import InputError
from fedeas.planning.counts import CountsLike, LabelCounts
from fedeas.planning.named_values import NamedValuesLike, make_named_values
from fedeas.planning.plan import Plan
from fedeas.planning.policies.levels import CHEAPEST, ConstrainedWaterFill, Levels, TargetLevels
from fedeas.planning.policies.policy import (
    Floats,
    Ints,
    LocalPolicy,
    check_total,
    without_absent_classes,
)
from fedeas.planning.resolve import OPTIONAL
from fedeas.planning.skew import imbalance, weights
from fedeas.planning.targets import TargetLike, aim_shares, shares_of

_DEAREST = 4.0  # a price that no sample is worth: ||q - t||^2 is at most 2, and falls by less
_HALVINGS = 100  # of the price's logarithm


@dataclass(frozen=True, repr=False)
class WaterFill(LocalPolicy):
    """Spend a total, or everything above a price, where it lowers the imbalance score most.

    The optimum is exact up to the rounding to whole samples, which is settled by exchanging
    single samples between clients, in a bounded number of rounds. It stops when all clients are
    balanced: past that no sample can lower the score. No client ends further from the target than
    it was. With costs, what is left of the total is too little for any sample that would help.

    Parameters
    ----------
    total : int, optional
        The samples of all clients together. Needs all counts in one place.
    price : float, optional
        Instead: what a sample has to lower the score by. Each client plans by itself.
    target : Target, str, path, mapping or sequence, optional
        The class distribution to aim at, uniform by default.
    quality : number, sequence, mapping, str or path, optional
        What a synthetic sample of each class is worth in real ones, above 0 and up to 1.
    costs : number, sequence, mapping, str or path, optional
        What a sample costs at each client. `total` is then what all of them spend, and `price` what
        a unit of cost has to lower the score by.
    limits : number, sequence, mapping, str or path, optional
        The most samples of each client.

    >>> WaterFill(total=100).plan(LabelCounts([[90, 10, 0], [30, 40, 30]])).samples
    array([[ 0, 45, 55],
           [ 0,  0,  0]])
    >>> WaterFill(price=0.2).local([90, 10, 0])
    array([ 0, 16, 27])
    """

    name: ClassVar[str] = "waterfill"
    total: float | None = None
    price: float | None = None
    target: TargetLike = field(default=None, metadata=OPTIONAL)
    quality: NamedValuesLike = field(default=None, metadata=OPTIONAL)
    costs: NamedValuesLike = field(default=None, metadata=OPTIONAL)
    limits: NamedValuesLike = field(default=None, metadata=OPTIONAL)

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.total is None) == (self.price is None):
            raise InputError(
                f"{self.name} takes a total or a price",
                got=f"total {self.total!r}, price {self.price!r}",
                fix="give one of them",
            )
        if self.price is not None:
            allowed, what = "at least 1e-40", "price out of range"
            price = number(self.price, what, allowed, lambda x: CHEAPEST <= x < math.inf)
            set_frozen(self, price=price)
        elif self.costs is None:
            set_frozen(self, total=check_total(self.total))  # type: ignore[arg-type]
        else:  # an amount of any size
            allowed, what = "a number from 0", "not a total"
            total = number(self.total, what, allowed, lambda x: 0 <= x < math.inf)
            set_frozen(self, total=total)

    def fill(self, n: Floats) -> Floats:
        """Return what each row takes at the policy's price."""
        if self.price is None:
            raise InputError(
                "one client cannot know its part of a total", fix="use a price instead"
            )
        if (sites := self._constrained(n)) is not None:
            return sites.integers(sites.at_price(self.price), price=self.price)
        levels = _levels(n, self.target)
        return levels.raise_by(np.ceil(levels.amount(self.price)))

    def plan(self, counts: CountsLike) -> Plan:
        """Return the plan of all clients."""
        counts = LabelCounts.of(counts)
        if self.total is None:
            return super().plan(counts)
        rule = self.resolve(counts)
        t = shares_of(rule.target, counts.C)
        kept = np.ones(counts.C, bool) if t is None else t > 0
        n, smaller = class_major(counts.n[:, kept]), without_absent_classes(rule, counts.C)
        samples = np.zeros(counts.n.shape)
        if (sites := smaller._constrained(n)) is not None:
            samples[:, kept] = sites.integers(sites.for_total(self.total), self.total)
        else:
            levels = _levels(n, smaller.target)
            samples[:, kept] = levels.raise_by(levels.amounts_for(int(self.total)))
        return Plan.of(counts, samples, rule)

    def _constrained(self, n: Floats) -> ConstrainedWaterFill | None:
        """Return the clients with their costs, limits and qualities, if there are any."""
        if self.quality is None and self.costs is None and self.limits is None:
            return None
        K, C = n.shape
        t = shares_of(self.target, C)

        def array(kind: str, size: int, default: float) -> Floats:
            values = make_named_values(getattr(self, kind), kind)
            return np.full(size, default) if values is None else values.array(size)

        return ConstrainedWaterFill(
            n,
            np.full(C, 1 / C) if t is None else t,
            array("quality", C, 1.0),
            array("costs", K, 1.0),
            array("limits", K, float(LARGEST)),
        )


def price_for_total(counts: LabelCounts, total: int, target: TargetLike = None) -> float:
    """Return the price at which all clients together take about `total` samples.

    >>> round(price_for_total(LabelCounts([[90, 10, 0], [30, 40, 30]]), 64), 3)
    0.108
    """
    check_total(total)
    rule = WaterFill(total=total, target=target).resolve(counts)
    t = shares_of(rule.target, counts.C)
    kept = counts.n if t is None else counts.n[:, t > 0]
    aimed = without_absent_classes(rule, counts.C).target
    return _levels(class_major(kept), aimed).price_for(total)[1]


def effects_at(n: Floats, prices: Floats) -> tuple[Floats, Floats]:
    """Return what each client takes at each price, before rounding, and N_k ||q_k - u||^2 with it.

    Clients are rows, prices columns.

    >>> [x.round(1) for x in effects_at(np.array([[90.0, 10.0, 0.0]]), np.array([0.2, 0.5]))]
    [array([[42.2, 12.4]]), array([[13.5, 32.8]])]
    """
    levels = Levels(n)
    effects = [levels.effect(price) for price in prices.tolist()]
    amounts, scores = (np.stack(columns, axis=-1) for columns in zip(*effects, strict=True))
    return amounts, scores


def _levels(n: Floats, target: TargetLike) -> Levels:
    t = shares_of(target, n.shape[-1])
    return Levels(n) if t is None else TargetLevels(n, t)


@dataclass(frozen=True, repr=False)
class HeldClassesOnly(LocalPolicy):
    """Spend a total, or everything above a price, on classes that each client has samples of.

    This is what copies of a client's own samples can do: there are none of a class that it lacks.
    With q^c = 0 for those, ||q - t||^2 is, up to a constant, the squared distance of the others'
    shares from t^c + r / m, with r the target's share of what the client lacks and m the number of
    classes that it has: the optimum is water-filling towards that. For the uniform target it is
    level, and a client with m of C classes is left with 1/m - 1/C.

    It may stay a few samples below the total: clients stop at one price, in whole samples.

    Parameters
    ----------
    total : int, optional
        The most samples of all clients together. Needs all counts in one place.
    price : float, optional
        Instead: what a sample has to lower the score by. Each client plans by itself.
    target : Target, str, path, mapping or sequence, optional
        The class distribution to aim at, uniform by default.

    >>> HeldClassesOnly(total=50).plan(LabelCounts([[90, 10, 0], [30, 40, 30]])).samples
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
        super().__post_init__()

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
        rule = self.resolve(counts)
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
            held = np.take_along_axis(n[rows], columns, axis=1)
            self.groups.append((rows, columns, _towards(held, None if t is None else t[columns])))

    def at(self, price: float) -> Floats:
        """Return what each client takes at a price, and nothing of what it lacks."""
        samples = np.zeros(self.shape)
        for rows, columns, levels in self.groups:
            filled = levels.raise_by(np.ceil(levels.amount(price)))
            samples[rows[:, np.newaxis], columns] = filled
        return samples

    def within(self, total: int) -> Floats:
        """Return the samples of the lowest price at which clients take no more than a total."""
        if (best := self.at(CHEAPEST)).sum() <= total:
            return best
        best = np.zeros(self.shape)
        high, low = _DEAREST, CHEAPEST
        for _ in range(_HALVINGS):
            price = math.sqrt(high * low)
            if best.sum() == total or not low < price < high:
                break
            samples = self.at(price)
            if samples.sum() > total:
                low = price
            else:
                high, best = price, samples
        return best


def _towards(held: Floats, t: Floats | None) -> Levels:
    """Return how counts are raised, with the share of what is lacking spread over what is there."""
    if t is None:
        return Levels(held)
    return TargetLevels(held, t + (1 - t.sum(axis=1, keepdims=True)) / t.shape[1])


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
