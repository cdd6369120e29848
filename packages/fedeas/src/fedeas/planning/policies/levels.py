"""Water-filling, client by client: which classes are raised to which level, by price.

`Levels` is for the uniform target, where a client raises its smallest classes to one level.

`TargetLevels` is for any target: raised classes share one q_c - t_c, the smallest of all. As M
grows a class only ever joins them, when tau = 1 / M has fallen to (t_c + T / j) / (n_c + B / j),
with T and B the sums of the shares and counts of the classes left alone and j the number of those
raised.

`ConstrainedWaterFill` is for samples that are worth less than real ones, and for sites that differ:
a sample of class c counts as rho_c of a real one; a sample of client k costs kappa_k, and there may
be a limit to its samples. At a price the best client has, in every class that it raises,

    q_c - t_c = mu - theta / rho_c,    mu = (q - t) . q,    theta = price kappa_k M / N_k,

and all other classes above that. For a given M the classes follow by sorting; M is then the root of
mu = (q - t) . q, found by Newton's method within a bracket. See docs/mathematics.md.
"""

import math
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedeas._util.scalars import LARGEST
from fedeas.errors import InfeasibleError
from fedeas.planning.policies.policy import Floats

CHEAPEST = 1e-40  # below the price of any whole sample: everything is balanced there
_HALVINGS = 120  # of the price's logarithm; 60 exhaust double precision
_EXCHANGES = 50  # rounds of moving single samples between clients; a few are enough
_NO_GAIN = 1e-12  # what moving a sample must gain, in samples: less is rounding
_ROUNDING = 1e-9  # of a level or an amount that would be a whole number, in samples
_RELATIVE = 4e-15  # the same, as a part of a client
_ROOT_STEPS = 80  # of the root in M; three are usual
_NEWTON = 2  # steps on a piece with the same classes raised
_PRICE_STEPS = 200  # of the search for a price; six are usual
_APART = 2.0  # logarithms of prices at first
_NEGLIGIBLE = 20.0  # the logarithm of a part of the total that counts as nothing
_NEAR = 0.5  # samples by which a total may be missed before rounding
_PRECISE = 1e-8  # of the last step to the root, relative: what is left is its square
_TOPPED_UP = 10_000  # rounds of one more sample for each client; one or two are usual


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
        samples: Floats = self.filled[:, -1]
        return samples

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
    better = one_more[takers[:apart]] > last_one[givers[:apart]] + _NO_GAIN
    pairs = apart if better.all() else int(np.argmin(better))
    return takers[:pairs], givers[:pairs]


class TargetLevels(Levels):
    """The order in which the classes of every client are raised, and the price where each joins.

    The target is one for all clients, or one for each.
    """

    def __init__(self, n: Floats, t: Floats) -> None:
        self.n, self.t = n, t
        classes = n.shape[-1]
        self.N = n.sum(axis=1)
        self.order, self._sizes = _joining(n, t, self.N)
        self.sorted = np.take_along_axis(n, self.order, axis=1)
        self.shares = np.take_along_axis(np.broadcast_to(t, n.shape), self.order, axis=1)
        # Column j: what is left alone once j classes are raised; nothing in the last one.
        self.A, self.B, self.D, self.T = np.zeros((4, len(n), classes + 1))
        parts = (self.sorted**2, self.sorted, self.sorted * self.shares, self.shares)
        for sums, x in zip((self.A, self.B, self.D, self.T), parts, strict=True):
            sums[:, :-1] = sums_from(x)
        j = np.maximum(np.arange(classes + 1), 1)
        self.P, self.E = self.A + self.B**2 / j, self.D + self.B * self.T / j

    @cached_property
    def filled(self) -> Floats:
        """Samples of every client when the j-th class joins those raised."""
        N = self.N[:, np.newaxis]
        spent: Floats = np.where(N > 0, np.maximum(self._sizes - N, 0.0), 0.0)
        return spent

    @cached_property
    def prices(self) -> Floats:
        """The price of a sample when the j-th class joins those raised; falls along a row."""
        M = np.maximum(self._sizes, 1.0)
        gain = np.maximum(self.P[:, 1:] - self.E[:, 1:] * M, 0.0)
        worth: Floats = gain * (self.N[:, np.newaxis] / M**3)
        return np.minimum.accumulate(worth, axis=1)

    @cached_property
    def most(self) -> Floats:
        """Samples that bring each client to the target, as near as whole ones do."""
        last = self.filled[:, -1]
        samples: Floats = np.ceil(last - _ROUNDING - _RELATIVE * self.N)
        return samples

    def _cubic(
        self, active: NDArray[np.intp], at: NDArray[np.intp], N: Floats, price: Floats
    ) -> tuple[Floats, Floats]:
        scale = N / price
        return scale * self.E[active, at], scale * self.P[active, at]

    def _far(self, amounts: Floats) -> Floats:
        """Return N_k ||q_k - t||^2 once each client has spent its samples."""
        return self._distance(self.raise_by(amounts))

    def _distance(self, samples: Floats | float) -> Floats:
        """Return N_k ||q_k - t||^2 with these samples."""
        x = self.n + samples
        d = x / np.maximum(x.sum(axis=1, keepdims=True), 1.0) - self.t
        far: Floats = self.N * (d * d).sum(axis=1)
        return far

    @cached_property
    def _before(self) -> Floats:
        return self._distance(0.0)

    def raise_by(self, amounts: Floats) -> Floats:
        """Spend each client's samples on its raised classes, the remainder by largest fraction.

        A client that a few whole samples would take away from the target gets none.
        """
        amounts = np.minimum(amounts, self.most)
        j = np.maximum((self.filled <= amounts[:, np.newaxis]).sum(axis=1), 1)
        rows = np.arange(len(j))
        M = self.N + amounts
        common = (M * self.T[rows, j] - self.B[rows, j]) / j
        raised = np.arange(self.n.shape[1]) < j[:, np.newaxis]
        exact = M[:, np.newaxis] * self.shares + common[:, np.newaxis] - self.sorted
        slack = _ROUNDING + _RELATIVE * M[:, np.newaxis]
        added = np.where(raised, np.maximum(np.floor(exact + slack), 0.0), 0.0)
        rest = amounts - added.sum(axis=1)
        wanting = np.where(raised, added - exact, np.inf)
        rank = np.argsort(np.argsort(wanting, axis=1, kind="stable"), axis=1)
        added += rank < rest[:, np.newaxis]
        samples = np.empty_like(added)
        np.put_along_axis(samples, self.order, added, axis=1)
        samples[self._distance(samples) > self._before * (1 + _ROUNDING) + _ROUNDING] = 0.0
        return samples


def _joining(n: Floats, t: Floats, N: Floats) -> tuple[NDArray[np.intp], Floats]:
    """Return the order in which classes are raised, and the size M at which each joins."""
    K, C = n.shape
    order, sizes = np.empty((K, C), np.intp), np.empty((K, C))
    rows = np.arange(K)
    left = np.ones((K, C), bool)
    tau = 1.0 / np.maximum(N, 1.0)
    first = np.argmin(n * tau[:, np.newaxis] - t, axis=1)
    for j in range(C):
        if j:  # summed afresh: a difference would lose the digits of a small share
            B, T = np.where(left, n, 0.0).sum(axis=1), np.where(left, t, 0.0).sum(axis=1)
            counts, shares = n + (B / j)[:, np.newaxis], t + (T / j)[:, np.newaxis]
            with np.errstate(divide="ignore"):
                meets = np.where(left, shares / counts, -1.0)
            first = np.argmax(meets, axis=1)
            tau = np.minimum(tau, meets[rows, first])
        order[:, j], sizes[:, j] = first, 1.0 / tau
        left[rows, first] = False
    return order, sizes


class _Piece(NamedTuple):
    """Sums over the classes left alone, per client, while the same classes are raised."""

    P: Floats
    E: Floats
    rise: Floats
    spread: Floats
    added: Floats  # to q, in every class

    def worth(self, tau: Floats) -> tuple[Floats, Floats]:
        """Return tau^2 times what a sample is worth above its price, and the derivative."""
        square = tau * tau
        worth = square * (self.P * square - self.E * tau) - self.rise * tau + self.spread
        return worth, square * (4 * self.P * tau - 3 * self.E) - self.rise


class ConstrainedWaterFill:
    """Clients with counts n, a target t, qualities rho, costs and limits, all as arrays."""

    def __init__(self, n: Floats, t: Floats, rho: Floats, costs: Floats, limits: Floats) -> None:
        self.n, self.t, self.rho, self.costs = n, t, rho, costs
        self.N = n.sum(axis=1)
        self.limits = np.where(self.N > 0, np.floor(limits), 0.0)
        self.a = 1.0 / rho
        self._first = 1.0 / np.maximum(self.N, 1.0)
        with np.errstate(divide="ignore"):
            self._last = np.minimum((t / n).min(axis=1), self._first)  # at the target
        d = n * self._first[:, np.newaxis] - t
        gains = (d * n).sum(axis=1, keepdims=True) * self._first[:, np.newaxis] - d
        # What the first sample of each client is worth, per unit of cost.
        self.first_prices = np.where(self.N > 0, (gains * rho).max(axis=1) / costs, 0.0)
        self._tau = self._first
        self._columns = np.stack([np.ones_like(t), t, self.a, self.a**2, self.a * t], axis=1)

    def at_price(self, price: float | Floats) -> Floats:
        """Return the samples of every client and class at a price, before rounding."""
        nu = price * self.costs / np.maximum(self.N, 1.0)
        done = idle = self.first_prices <= price
        low, high = self._last, self._first
        tau = np.where((self._tau > low) & (self._tau < high), self._tau, (low + high) / 2)
        for _ in range(_ROOT_STEPS):
            piece = self._piece(tau, nu)
            worth, slope = piece.worth(tau)
            # One more sample is worth its price: M may grow, tau fall.
            high, low = np.where(worth > 0, tau, high), np.where(worth > 0, low, tau)
            step = tau - worth / slope
            for _ in range(_NEWTON):
                value, slope = piece.worth(step)
                step = step - value / slope
            close = np.abs(step - tau) <= _PRECISE * tau
            good = close | ((step > low) & (step < high))
            moved = np.where(good, step, (low + high) / 2)
            tau = np.where(done, tau, moved)
            done = done | close
            if done.all():
                break
        self._tau = tau  # where the next price starts
        added = self._piece(tau, nu).added * (self.a / tau[:, np.newaxis])
        return np.where(idle[:, np.newaxis], 0.0, added)

    def _piece(self, tau: Floats, nu: Floats) -> _Piece:
        """Return which classes are raised when clients hold 1 / tau, and the sums over the rest."""
        n, t, a = self.n, self.t, self.a
        keys = n * tau[:, np.newaxis] - t + (nu / tau)[:, np.newaxis] * a
        ordered = np.sort(keys, axis=1)
        slack = (1.0 - self.N * tau)[:, np.newaxis]
        levels = (slack + np.cumsum(ordered, axis=1)) / np.arange(1, n.shape[1] + 1)
        j = np.maximum((ordered < levels).sum(axis=1), 1)
        mu = levels[np.arange(len(j)), j - 1][:, np.newaxis]
        added = np.maximum(mu - keys, 0.0)
        raised = keys <= np.maximum(mu, ordered[:, :1])
        left, up = np.where(raised, 0.0, n), raised.astype(np.float64)
        B, sums = left.sum(axis=1), up @ self._columns  # of 1, t, a, a^2 and a t
        j, T, mean = sums[:, 0], 1.0 - sums[:, 1], sums[:, 2] / sums[:, 0]
        return _Piece(
            (left * left).sum(axis=1) + B * B / j,
            left @ t + B * T / j,
            nu * (mean * T + sums[:, 4]),
            nu * nu * (sums[:, 3] - j * mean * mean),
            added,
        )

    def for_total(self, total: float) -> Floats:
        """Return the samples that spend a total best, before rounding."""
        most = np.maximum(self.t / self._last[:, np.newaxis] - self.n, 0.0) * self.a
        most[self.N == 0] = 0.0
        if self._spent(most) <= total:
            return self._limited(most, 0.0)
        high = float(self.first_prices.max())
        if total <= 0 or high <= 0:
            return np.zeros_like(self.n)
        # What is spent is nearly a power of the price: secants are taken between logarithms.
        low, high = -math.inf, math.log(high)
        at, last, slope = high - _APART, (math.nan, math.nan), -0.4
        for _ in range(_PRICE_STEPS):
            amounts = self.at_price(math.exp(at))
            off = self._excess(amounts, total)
            # Never above the total; what is left below it is spent in whole samples.
            if -_NEAR * self.costs.min() <= off * total <= 0 or high - low < 1e-14:
                break
            low, high = (at, high) if off > 0 else (low, at)
            if off > -_NEGLIGIBLE and abs(at - last[0]) > 0:
                slope = (off - last[1]) / (at - last[0])
            last = (at, off) if off > -_NEGLIGIBLE else last
            step = at - off / slope if slope < 0 else math.nan
            edge = high - 4 * _APART if low == -math.inf else (low + high) / 2
            at = step if max(low, high - 50) < step < high else edge
        return self._limited(amounts, math.exp(at))

    def _excess(self, amounts: Floats, total: float) -> float:
        """Return by how much a plan is above the total, as a logarithm."""
        return math.log(max(self._spent(amounts), math.exp(-_NEGLIGIBLE) * total) / total)

    def _spent(self, amounts: Floats) -> float:
        return float(self.costs @ np.minimum(amounts.sum(axis=1), self.limits))

    def _limited(self, amounts: Floats, price: float) -> Floats:
        """Return the same for clients within their limits; others stop at a price of their own."""
        over = amounts.sum(axis=1) > self.limits
        if not over.any():
            return amounts
        low = np.full(len(over), math.log(max(price, 1e-40)))
        high = np.log(np.maximum(self.first_prices, 1e-39))
        for _ in range(60):
            middle = (low + high) / 2
            fits = self.at_price(np.exp(middle)).sum(axis=1) <= self.limits
            high, low = np.where(fits, middle, high), np.where(fits, low, middle)
        return np.where(over[:, np.newaxis], self.at_price(np.exp(high)), amounts)

    def integers(self, amounts: Floats, total: float = math.inf, price: float = 0.0) -> Floats:
        """Return whole samples: rounded down, then one at a time where one lowers the score most.

        It stops when the total is spent, or where a sample is not worth its price.
        """
        samples = np.floor(amounts + _ROUNDING)
        rows = np.arange(len(samples))
        wanting = np.floor(amounts.sum(axis=1) + _ROUNDING) - samples.sum(axis=1)
        while (wanting > 0).any():  # the fractions of a client's own classes, fewer than C
            short = np.flatnonzero(wanting > 0)
            samples[short, self._gains(samples, short).argmax(axis=1)] += 1
            wanting[short] -= 1
        samples[self._far(samples) > self._far(np.zeros_like(samples)) + _ROUNDING] = 0.0
        room = self.limits - samples.sum(axis=1)
        left = total - float(self.costs @ samples.sum(axis=1))
        for _ in range(_TOPPED_UP):
            # Who is too dear for what is left must not keep the others from it.
            rows = rows[(room[rows] > 0) & (self.costs[rows] <= left * (1 + 1e-12))]
            gains = self._gains(samples, rows)
            best = gains.argmax(axis=1)
            worth = gains[np.arange(len(rows)), best] / self.costs[rows]
            order = np.argsort(-worth, kind="stable")
            order = order[(worth[order] > 2 * price) & (worth[order] > 1e-12)]
            order = order[np.cumsum(self.costs[rows[order]]) <= left * (1 + 1e-12)]
            if not order.size:
                break
            samples[rows[order], best[order]] += 1
            room[rows[order]] -= 1
            left -= float(self.costs[rows[order]].sum())
        return samples

    def _far(self, samples: Floats) -> Floats:
        """Return N_k ||q_k - t||^2 with these samples."""
        x = self.n + samples * self.rho
        d = x / np.maximum(x.sum(axis=1, keepdims=True), 1.0) - self.t
        far: Floats = self.N * (d * d).sum(axis=1)
        return far

    def _gains(self, samples: Floats, rows: NDArray[np.intp]) -> Floats:
        """Return by how much one more sample of these clients lowers N_k ||q_k - t||^2, exactly."""
        x = self.n[rows] + samples[rows] * self.rho
        M = x.sum(axis=1, keepdims=True)
        M = np.where(M > 0, M, 1.0)
        squares, near = (x * x).sum(axis=1, keepdims=True), x @ self.t[:, np.newaxis]
        now = squares / M**2 - 2 * near / M
        N = M + self.rho
        then = (squares + (2 * x + self.rho) * self.rho) / N**2 - 2 * (near + self.rho * self.t) / N
        gains: Floats = self.N[rows, np.newaxis] * (now - then)
        return gains
