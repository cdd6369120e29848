"""Water-filling for a uniform target: the level of each client's smallest classes, by price."""

import math
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from fedeas.errors import InfeasibleError
from fedeas.policies.policy import Floats
from fedeas.tables import LARGEST

CHEAPEST = 1e-40  # below the price of any whole sample: everything is balanced there
_STEPS = 120  # halvings of the price's logarithm; 60 exhaust double precision
_ROUNDS = 50  # of moving single samples between clients; a few settle
_NOTHING = 1e-12  # what moving a sample must gain, in samples: less is rounding


class Levels:
    """The sorted counts of every client and the price of a sample when the level stands at each."""

    def __init__(self, n: Floats) -> None:
        self.n = n
        self.order = np.argsort(n, axis=1, kind="stable")
        self.sorted = np.take_along_axis(n, self.order, axis=1)
        self.N = n.sum(axis=1)
        # Column j: what is left alone once the level has reached the j-th smallest count.
        self.A = sums_from(self.sorted**2)
        self.B = sums_from(self.sorted)

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
        whole: Floats = self.filled[:, -1]
        return whole

    @property
    def first_price(self) -> float:
        """The price of the first sample of all clients together."""
        return float(self.prices.max())

    def amount(self, price: float | Floats) -> Floats:
        """Return what each client takes at a price, or at its own one, before rounding."""
        each = np.broadcast_to(price, len(self.n))
        j = (self.prices > each[:, np.newaxis]).sum(axis=1)
        active = np.flatnonzero(j)
        amounts = np.zeros(len(j))
        at = j[active]
        N, price = self.N[active], each[active]
        root = _root(*self._cubic(active, at, N, price))
        low, high = self.filled[active, at - 1], self.filled[active, at]
        amounts[active] = np.clip(root - N, low, high)
        return amounts

    def _cubic(
        self, active: NDArray[np.intp], at: NDArray[np.intp], N: Floats, price: Floats
    ) -> tuple[Floats, Floats]:
        """Return p and q of M^3 + p M - q = 0, which holds where a sample has the price."""
        A, B = self.A[active, at], self.B[active, at]
        return N * B / (at * price), N * (A + B * B / at) / price

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
        high, low = self.first_price + CHEAPEST, CHEAPEST
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
        return self._settle(amounts)

    def _settle(self, amounts: Floats) -> Floats:
        """Move single samples between clients as long as that lowers the score.

        The price is for small amounts; for a client with few samples a whole one is not small.
        """
        for _ in range(_ROUNDS):
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


def sums_from(x: Floats) -> Floats:
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
