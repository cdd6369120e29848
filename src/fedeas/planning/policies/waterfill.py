r"""Water-filling: the plan that lowers the imbalance score most, for any total.

It is the optimum that every policy is compared with; it needs all counts in one place.

A client that spends its samples best raises its j smallest classes to one level L and leaves the
rest alone. With A the sum of squares and B the sum of the counts left alone, and M = B + j L its
samples afterwards, one more sample takes

    2 / (sum_i N_i) * price,    price = N_k (A - B L) / M^3

off the score. The price falls as M grows, so the score is convex in every client's M and a total
is best spent when all clients stop at one price, which bisection finds. Each client's M is then,
on a segment with j classes raised, the root of the cubic

    M^3 + (N_k B / (j price)) M - N_k (A + B^2 / j) / price = 0.

Before the first sample a client's price is ||q_k||^2 - min_c q_k^c, between 0 and 1.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fedeas._internal.blocks import class_major
from fedeas._internal.scalars import LARGEST, set_frozen
from fedeas.counts.label_counts import CountsLike, LabelCounts
from fedeas.errors import InfeasibleError
from fedeas.planning.plan import Plan
from fedeas.planning.policies.policy import BasePolicy, Floats, Ints, check_total
from fedeas.planning.skew import imbalance, weights
from fedeas.planning.targets import TargetLike, aim_shares

_CHEAPEST = 1e-40  # below the price of any whole sample: everything is balanced there
_DEAREST = 4.0  # a price that no sample is worth
_HALVINGS = 120  # of the price's logarithm; 60 exhaust double precision
_EXCHANGES = 50  # rounds of moving single samples between clients; a few are enough
_NO_GAIN = 1e-12  # what moving a sample must gain, in samples: less is rounding


@dataclass(frozen=True, repr=False)
class WaterFill(BasePolicy):
    """Spend a total where it lowers the imbalance score most.

    The optimum for the uniform target, exact up to the rounding to whole samples, which is settled
    by exchanging single samples between clients. It stops when all clients are balanced: past that
    no sample can lower the score.

    Parameters
    ----------
    total : int
        The samples of all clients together.

    >>> WaterFill(total=100).plan(LabelCounts([[90, 10, 0], [30, 40, 30]])).samples
    array([[ 0, 45, 55],
           [ 0,  0,  0]])
    """

    name: ClassVar[str] = "waterfill"
    total: int

    def __post_init__(self) -> None:
        super().__post_init__()
        set_frozen(self, total=check_total(self.total))

    def plan(self, counts: CountsLike) -> Plan:
        """Return the plan of all clients."""
        counts = LabelCounts.of(counts)
        levels = _Levels(class_major(counts.n))
        return Plan.of(counts, levels.raise_by(levels.amounts_for(self.total)), self)


class _Levels:
    """The sorted counts of every client and the price of a sample when the level stands at each."""

    def __init__(self, n: Floats) -> None:
        self.n = n
        self.order = np.argsort(n, axis=1, kind="stable")
        self.sorted = np.take_along_axis(n, self.order, axis=1)
        self.N = n.sum(axis=1)
        # Column j: what is left alone once the level has reached the j-th smallest count.
        self.A = _sums_from(self.sorted**2)
        self.B = _sums_from(self.sorted)

    @cached_property
    def filled(self) -> Floats:
        """Samples that raise the j smallest classes to the j-th count, for every j."""
        spent: Floats = np.arange(self.n.shape[1]) * self.sorted - (self.N[:, np.newaxis] - self.B)
        return spent

    @cached_property
    def prices(self) -> Floats:
        """The price of a sample when the level stands at the j-th count; falls along a row."""
        N = self.N[:, np.newaxis]
        M = np.maximum(N + self.filled, 1.0)
        worth: Floats = np.maximum(self.A - self.B * self.sorted, 0.0) * (N / M**3)
        return worth

    @property
    def most(self) -> Floats:
        """Samples that bring each client to the target, as near as whole ones do."""
        samples: Floats = self.filled[:, -1]
        return samples

    @property
    def first_price(self) -> float:
        """The price of the first sample of all clients together."""
        return float(self.prices.max())

    def amount(self, price: float) -> Floats:
        """Return what each client takes at a price, before rounding."""
        j = (self.prices > price).sum(axis=1)
        active = np.flatnonzero(j)
        amounts = np.zeros(len(j))
        at = j[active]
        N, A, B = self.N[active], self.A[active, at], self.B[active, at]
        root = _root(N * B / (at * price), N * (A + B * B / at) / price)
        low, high = self.filled[active, at - 1], self.filled[active, at]
        amounts[active] = np.clip(root - N, low, high)
        return amounts

    def price_for(self, total: int) -> tuple[float, float]:
        """Bracket the price of a total: at the first not too much is taken, at the second more."""
        high, low = self.first_price + _CHEAPEST, _CHEAPEST
        for _ in range(_HALVINGS):
            middle = math.sqrt(high * low)
            if not low < middle < high:
                break
            if np.ceil(self.amount(middle)).sum() > total:
                low = middle
            else:
                high = middle
        return high, low

    def amounts_for(self, total: int) -> Floats:
        """Return whole numbers of samples per client that add up to the total."""
        full = self.most
        if not full.sum() <= LARGEST:
            raise InfeasibleError("balancing these counts takes more than 2**53 samples")
        if total >= full.sum():
            return full
        high, low = self.price_for(total)
        amounts = np.ceil(self.amount(high))
        more = np.ceil(self.amount(low)) - amounts
        # Clients that part only within the bracket are tied: one each, in their own order.
        tied = np.flatnonzero(more > 0)
        taken = np.clip(total - amounts.sum() - (np.cumsum(more[tied]) - more[tied]), 0, more[tied])
        amounts[tied] += taken
        return self._exchange_samples(amounts)

    def _exchange_samples(self, amounts: Floats) -> Floats:
        """Move single samples between clients as long as that lowers the score.

        The price is for small amounts; for a client with few samples a whole one is not small.
        """
        for _ in range(_EXCHANGES):
            now = self._far(amounts)
            room = amounts < self.most
            one_more = np.where(room, now - self._far(amounts + room), -np.inf)
            last_one = np.where(amounts > 0, self._far(np.maximum(amounts - 1, 0)) - now, np.inf)
            takers, givers = _exchange(one_more, last_one)
            if not takers.size:
                break
            amounts[takers] += 1
            amounts[givers] -= 1
        return amounts

    def _far(self, amounts: Floats) -> Floats:
        """Return N_k ||q_k - u||^2, less a constant, once each client has spent its samples."""
        j, level, rest = self._reach(amounts)
        squares = self._left(self.A, j) + j * level**2 + rest * (2 * level + 1)
        M = np.maximum(self.N + amounts, 1.0)
        far: Floats = self.N * squares / M**2
        return far

    def _reach(self, amounts: Floats) -> tuple[NDArray[np.intp], Floats, Floats]:
        """Return how many classes are raised, to which level, and how many one higher."""
        j = (self.filled <= amounts[:, np.newaxis]).sum(axis=1)
        level, rest = np.divmod(amounts + self.N - self._left(self.B, j), j)
        return j, level, rest

    def raise_by(self, amounts: Floats) -> Floats:
        """Spend each client's samples on its smallest classes, as level as whole numbers allow."""
        j, level, rest = self._reach(amounts)
        place = np.arange(self.n.shape[1])
        target = level[:, np.newaxis] + (place < rest[:, np.newaxis])
        added = np.where(place < j[:, np.newaxis], target - self.sorted, 0.0)
        samples = np.empty_like(added)
        np.put_along_axis(samples, self.order, added, axis=1)
        return samples

    def _left(self, sums: Floats, j: NDArray[np.intp]) -> Floats:
        """Return the sum over the classes that are not raised, none of them when all are."""
        C = self.n.shape[1]
        left: Floats = np.where(j < C, sums[np.arange(len(j)), np.minimum(j, C - 1)], 0.0)
        return left


def _root(p: Floats, q: Floats) -> Floats:
    """Return the one real root of M^3 + p M - q, in the form that keeps its precision."""
    root: Floats = 2 * np.sqrt(p / 3) * np.sinh(np.arcsinh(1.5 * q / p * np.sqrt(3 / p)) / 3)
    return root


def _sums_from(x: Floats) -> Floats:
    """Return, in column j, the sum of the columns from j on."""
    return np.cumsum(x[:, ::-1], axis=1)[:, ::-1]


def _exchange(one_more: Floats, last_one: Floats) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Pair clients that gain most by one sample with those that lose least, none twice."""
    takers = np.argsort(-one_more, kind="stable")
    givers = np.argsort(last_one, kind="stable")
    places = np.empty((2, len(takers)), np.intp)
    places[0, takers] = places[1, givers] = np.arange(len(takers))
    # Down to here the two lists share no client.
    apart = int(places.max(axis=0).min())
    if apart == 0 and len(takers) > 1:  # one client leads both: it gives or takes, not both
        first = [(takers[0], givers[1]), (takers[1], givers[0])]
        best = max(first, key=lambda pair: one_more[pair[0]] - last_one[pair[1]])
        takers, givers, apart = np.array([best[0]]), np.array([best[1]]), 1
    better = one_more[takers[:apart]] > last_one[givers[:apart]] + _NO_GAIN
    pairs = apart if better.all() else int(np.argmin(better))
    return takers[:pairs], givers[:pairs]


@dataclass(frozen=True, repr=False)
class HeldClassesOnly(BasePolicy):
    """Spend a total on classes that each client has samples of: what copies of them can do.

    A client without some classes ends nearest to the uniform target, 1/m - 1/C away, with its
    m classes level: the optimum is water-filling among those.

    It may stay a few samples below the total: clients stop at one price, in whole samples.

    Parameters
    ----------
    total : int
        The most samples of all clients together.

    >>> HeldClassesOnly(total=50).plan(LabelCounts([[90, 10, 0], [30, 40, 30]])).samples
    array([[ 0, 50,  0],
           [ 0,  0,  0]])
    """

    name: ClassVar[str] = "copies"
    total: int

    def __post_init__(self) -> None:
        super().__post_init__()
        set_frozen(self, total=check_total(self.total))

    def plan(self, counts: CountsLike) -> Plan:
        """Return the plan of all clients."""
        counts = LabelCounts.of(counts)
        return Plan.of(counts, _Held(class_major(counts.n)).within(self.total), self)


class _Held:
    """The classes that each client has, clients of the same number of them together."""

    def __init__(self, n: Floats) -> None:
        self.shape = n.shape
        has = n > 0
        number = has.sum(axis=1)
        self.groups: list[tuple[NDArray[np.intp], NDArray[np.intp], _Levels]] = []
        for size in np.unique(number[number > 1]).tolist():
            rows = np.flatnonzero(number == size)
            columns = np.nonzero(has[rows])[1].reshape(-1, size)
            held = np.take_along_axis(n[rows], columns, axis=1)
            self.groups.append((rows, columns, _Levels(held)))

    def at(self, price: float) -> Floats:
        """Return what each client takes at a price, and nothing of what it lacks."""
        samples = np.zeros(self.shape)
        for rows, columns, levels in self.groups:
            filled = levels.raise_by(np.ceil(levels.amount(price)))
            samples[rows[:, np.newaxis], columns] = filled
        return samples

    def within(self, total: int) -> Floats:
        """Return the samples of the lowest price at which clients take no more than a total."""
        if (best := self.at(_CHEAPEST)).sum() <= total:
            return best
        best = np.zeros(self.shape)
        high, low = _DEAREST, _CHEAPEST
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
