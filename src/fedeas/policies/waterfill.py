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

from fedeas.blocks import class_major
from fedeas.counts import CountsLike, LabelCounts
from fedeas.errors import InputError
from fedeas.per_name import PerNameLike, described, make_per_name
from fedeas.plan import Plan
from fedeas.policies.effective import Effective
from fedeas.policies.levels import CHEAPEST, Levels
from fedeas.policies.matched import check_total
from fedeas.policies.policy import Floats, LocalPolicy, without_absent_classes
from fedeas.policies.target_levels import TargetLevels
from fedeas.policy_settings import OPTIONAL, settle
from fedeas.scalars import keep, number
from fedeas.tables import LARGEST
from fedeas.targets import TargetLike, make_target, shares_of


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
    quality: PerNameLike = field(default=None, metadata=OPTIONAL)
    costs: PerNameLike = field(default=None, metadata=OPTIONAL)
    limits: PerNameLike = field(default=None, metadata=OPTIONAL)

    def __post_init__(self) -> None:
        if self.total is None and self.price is None:
            raise InputError("waterfill needs a budget", fix="give a total or a price")
        if self.total is not None and self.price is not None:
            raise InputError(
                "waterfill takes a total or a price, not both",
                got=f"total {self.total!r}, price {self.price!r}",
            )
        keep(self, target=make_target(self.target))
        for kind in ("quality", "costs", "limits"):
            keep(self, **{kind: make_per_name(getattr(self, kind), kind)})
        if self.total is not None:
            keep(self, total=self._checked_total(self.total))
        else:
            price = number(
                self.price,
                "price out of range",
                "at least 1e-40",
                lambda x: CHEAPEST <= x < math.inf,
            )
            keep(self, price=price)

    def _checked_total(self, total: float) -> float:
        """Return a number of samples, or an amount of any size where samples have costs."""
        if self.costs is None:
            return check_total(total)  # type: ignore[arg-type]
        return number(total, "not a total", "a number from 0", lambda x: 0 <= x < math.inf)

    def fill(self, n: Floats) -> Floats:
        """Return what each row takes at the policy's price."""
        if self.price is None:
            raise InputError(
                "one client cannot know its part of a total", fix="use a price instead"
            )
        if (sites := self._effective(n)) is not None:
            return sites.whole(sites.at_price(self.price), price=self.price)
        levels = _levels(n, self.target)
        return levels.raise_by(np.ceil(levels.amount(self.price)))

    def plan(self, counts: CountsLike) -> Plan:
        """Return the plan of all clients."""
        counts = LabelCounts.of(counts)
        if self.total is None:
            return super().plan(counts)
        rule = settle(self, counts)
        t = shares_of(rule.target, counts.C)
        kept = np.ones(counts.C, bool) if t is None else t > 0
        n, smaller = class_major(counts.n[:, kept]), without_absent_classes(rule, counts.C)
        samples = np.zeros(counts.n.shape)
        if (sites := smaller._effective(n)) is not None:
            samples[:, kept] = sites.whole(sites.for_total(self.total), self.total)
        else:
            levels = _levels(n, smaller.target)
            samples[:, kept] = levels.raise_by(levels.amounts_for(int(self.total)))
        return Plan.of(counts, samples, rule)

    def _effective(self, n: Floats) -> Effective | None:
        """Return the clients with their costs, limits and qualities, if there are any."""
        given = {kind: getattr(self, kind) for kind in ("quality", "costs", "limits")}
        if all(each is None for each in given.values()):
            return None
        K, C = n.shape
        t = shares_of(self.target, C)

        def array(kind: str, size: int, otherwise: float) -> Floats:
            each = given[kind]
            return np.full(size, otherwise) if each is None else each.array(size, described(kind))

        return Effective(
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
    rule = settle(WaterFill(total=total, target=target), counts)
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
    found = [levels.effect(price) for price in prices.tolist()]
    amounts, scores = (np.stack(columns, axis=-1) for columns in zip(*found, strict=True))
    return amounts, scores


def _levels(n: Floats, target: TargetLike) -> Levels:
    t = shares_of(target, n.shape[-1])
    return Levels(n) if t is None else TargetLevels(n, t)
