r"""Water-filling: the plan that lowers the imbalance score most, for any total, exactly.

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
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fedeas.blocks import class_major
from fedeas.counts import CountsLike, LabelCounts
from fedeas.errors import InfeasibleError, InputError
from fedeas.plan import Plan
from fedeas.policies.matched import check_total
from fedeas.policies.policy import Floats, LocalPolicy
from fedeas.scalars import keep, number
from fedeas.tables import LARGEST

_CHEAPEST = 1e-40  # below the price of any whole sample: everything is balanced there
_STEPS = 120  # halvings of the price's logarithm; 60 exhaust double precision
_ROUNDS = 50  # of moving single samples between clients; a few settle
_NOTHING = 1e-12  # what moving a sample must gain, in samples: less is rounding


@dataclass(frozen=True)
class WaterFill(LocalPolicy):
    """Spend a total, or everything above a price, where it lowers the imbalance score most.

    The optimum is exact up to the rounding to whole samples, which is settled by exchanging
    single samples between clients, in a bounded number of rounds. It stops when all clients are
    balanced: past that no sample can lower the score.

    Parameters
    ----------
    total : int, optional
        The samples of all clients together. Needs all counts in one place.
    price : float, optional
        Instead: what a sample has to lower the score by. Each client plans by itself.

    >>> WaterFill(total=100).plan(LabelCounts([[90, 10, 0], [30, 40, 30]])).samples
    array([[ 0, 45, 55],
           [ 0,  0,  0]])
    >>> WaterFill(price=0.2).local([90, 10, 0])
    array([ 0, 16, 27])
    """

    name: ClassVar[str] = "waterfill"
    total: int | None = None
    price: float | None = None

    def __post_init__(self) -> None:
        if self.total is None and self.price is None:
            raise InputError("waterfill needs a budget", fix="give a total or a price")
        if self.total is not None and self.price is not None:
            raise InputError(
                "waterfill takes a total or a price, not both",
                got=f"total {self.total!r}, price {self.price!r}",
            )
        if self.total is not None:
            keep(self, total=check_total(self.total))
        else:
            price = number(
                self.price,
                "price out of range",
                "at least 1e-40",
                lambda x: _CHEAPEST <= x < math.inf,
            )
            keep(self, price=price)

    def fill(self, n: Floats) -> Floats:
        """Return what each row takes at the policy's price."""
        if self.price is None:
            raise InputError(
                "one client cannot know its part of a total", fix="use a price instead"
            )
        levels = _Levels(n)
        return levels.raise_by(np.ceil(levels.amount(self.price)))

    def plan(self, counts: CountsLike) -> Plan:
        """Return the plan of all clients."""
        counts = LabelCounts.of(counts)
        if self.total is None:
            return super().plan(counts)
        levels = _Levels(class_major(counts.n))
        samples = levels.raise_by(levels.amounts_for(self.total))
        return Plan.of(counts, samples, self)


def price_for_total(counts: LabelCounts, total: int) -> float:
    """Return the price at which all clients together take about `total` samples.

    >>> round(price_for_total(LabelCounts([[90, 10, 0], [30, 40, 30]]), 64), 3)
    0.108
    """
    check_total(total)
    return _Levels(class_major(counts.n)).price_for(total)[1]


def effects_at(n: Floats, prices: Floats) -> tuple[Floats, Floats]:
    """Return what each client takes at each price, before rounding, and N_k ||q_k - u||^2 with it.

    Clients are rows, prices columns.

    >>> [x.round(1) for x in effects_at(np.array([[90.0, 10.0, 0.0]]), np.array([0.2, 0.5]))]
    [array([[42.2, 12.4]]), array([[13.5, 32.8]])]
    """
    levels = _Levels(n)
    found = [levels.effect(price) for price in prices.tolist()]
    amounts, scores = (np.stack(columns, axis=-1) for columns in zip(*found, strict=True))
    return amounts, scores


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

    def amount(self, price: float | Floats) -> Floats:
        """Return what each client takes at a price, or at its own one, before rounding."""
        each = np.broadcast_to(price, len(self.n))
        j = (self.prices > each[:, np.newaxis]).sum(axis=1)
        active = np.flatnonzero(j)
        amounts = np.zeros(len(j))
        at = j[active]
        A, B, N, price = self.A[active, at], self.B[active, at], self.N[active], each[active]
        # The one real root of the cubic, in the form that keeps its precision for every price.
        p, q = N * B / (at * price), N * (A + B * B / at) / price
        root = 2 * np.sqrt(p / 3) * np.sinh(np.arcsinh(1.5 * q / p * np.sqrt(3 / p)) / 3)
        low, high = self.filled[active, at - 1], self.filled[active, at]
        amounts[active] = np.clip(root - N, low, high)
        return amounts

    def effect(self, price: float) -> tuple[Floats, Floats]:
        """Return what each client takes at a price, before rounding, and N_k ||q_k - u||^2."""
        amounts = self.amount(price)
        j = (self.prices > price).sum(axis=1)
        left, M = self._left(self.B, j), np.maximum(self.N + amounts, 1.0)
        squares = self._left(self.A, j) + (self.N + amounts - left) ** 2 / np.maximum(j, 1)
        scores: Floats = self.N * np.maximum(squares / M**2 - 1.0 / self.n.shape[1], 0.0)
        return amounts, scores

    def price_for(self, total: int) -> tuple[float, float]:
        """Bracket the price of a total: at the first not too much is taken, at the second more."""
        high, low = float(self.prices.max()) + _CHEAPEST, _CHEAPEST
        for _ in range(_STEPS):
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
        full = self.filled[:, -1]
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
        return self._settle(amounts)

    def _settle(self, amounts: Floats) -> Floats:
        """Move single samples between clients as long as that lowers the score.

        The price is for small amounts; for a client with few samples a whole one is not small.
        """
        for _ in range(_ROUNDS):
            now = self._far(amounts)
            room = amounts < self.filled[:, -1]
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
    better = one_more[takers[:apart]] > last_one[givers[:apart]] + _NOTHING
    pairs = apart if better.all() else int(np.argmin(better))
    return takers[:pairs], givers[:pairs]
