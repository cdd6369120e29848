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
from fedeas.counts import LabelCounts
from fedeas.errors import InputError
from fedeas.plan import Plan
from fedeas.policies.matched import check_total
from fedeas.policies.policy import Floats, LocalPolicy

_CHEAPEST = 1e-40  # below the price of any whole sample: everything is balanced there
_STEPS = 120  # halvings of the price's logarithm; 60 exhaust double precision


@dataclass(frozen=True)
class WaterFill(LocalPolicy):
    """Spend a total, or everything above a price, where it lowers the imbalance score most.

    It stops when all clients are balanced: past that no sample can lower the score.

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
        if (self.total is None) == (self.price is None):
            raise InputError("water-filling takes a total or a price", got=(self.total, self.price))
        if self.total is not None:
            check_total(self.total)
        elif not (isinstance(self.price, int | float) and _CHEAPEST <= self.price < math.inf):
            raise InputError("price out of range", got=self.price, allowed="a number above 0")

    def fill(self, n: Floats) -> Floats:
        """Return what each row takes at the policy's price."""
        if self.price is None:
            raise InputError(
                "one client cannot tell its part of a total", fix="give a price instead"
            )
        levels = _Levels(n)
        return levels.raise_by(np.ceil(levels.amount(self.price)))

    def plan(self, counts: LabelCounts) -> Plan:
        """Return the plan of all clients."""
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

    def amount(self, price: float) -> Floats:
        """Return the real-valued number of samples that each client takes at a price."""
        j = (self.prices > price).sum(axis=1)
        active = np.flatnonzero(j)
        amounts = np.zeros(len(j))
        at = j[active]
        A, B, N = self.A[active, at], self.B[active, at], self.N[active]
        # The one real root of the cubic, in the form that keeps its precision for every price.
        p, q = N * B / (at * price), N * (A + B * B / at) / price
        root = 2 * np.sqrt(p / 3) * np.sinh(np.arcsinh(1.5 * q / p * np.sqrt(3 / p)) / 3)
        low, high = self.filled[active, at - 1], self.filled[active, at]
        amounts[active] = np.clip(root - N, low, high)
        return amounts

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
        if total >= self.filled[:, -1].sum():
            return self.filled[:, -1]
        high, low = self.price_for(total)
        amounts = np.ceil(self.amount(high))
        more = np.ceil(self.amount(low)) - amounts
        # Clients that part only within the bracket are tied: one each, in their own order.
        tied = np.flatnonzero(more > 0)
        taken = np.clip(total - amounts.sum() - (np.cumsum(more[tied]) - more[tied]), 0, more[tied])
        amounts[tied] += taken
        return amounts

    def raise_by(self, amounts: Floats) -> Floats:
        """Spend each client's samples on its smallest classes, as level as whole numbers allow."""
        j = (self.filled <= amounts[:, np.newaxis]).sum(axis=1)
        rows = np.arange(len(j))
        level, rest = np.divmod(
            amounts + self.N - np.where(j < self.n.shape[1], self._left(j), 0.0), j
        )
        place = np.arange(self.n.shape[1])
        target = level[:, np.newaxis] + (place < rest[:, np.newaxis])
        added = np.where(place < j[:, np.newaxis], target - self.sorted, 0.0)
        samples = np.empty_like(added)
        samples[rows[:, np.newaxis], self.order] = added
        return samples

    def _left(self, j: NDArray[np.intp]) -> Floats:
        left: Floats = self.B[np.arange(len(j)), np.minimum(j, self.n.shape[1] - 1)]
        return left


def _sums_from(x: Floats) -> Floats:
    """Return, in column j, the sum of the columns from j on."""
    return np.cumsum(x[:, ::-1], axis=1)[:, ::-1]
