"""Water-filling where synthetic samples are worth less than real ones, and sites differ.

A sample of class c counts as rho_c of a real one; a sample of client k costs kappa_k, and there may
be a limit to its samples. At a price the best client has, in every class that it raises,

    q_c - t_c = mu - theta / rho_c,    mu = (q - t) . q,    theta = price kappa_k M / N_k,

and all other classes above that. For a given M the classes follow by sorting; M is then the root of
mu = (q - t) . q, found by Newton's method within a bracket. See docs/mathematics.md.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedeas.policies.policy import Floats

_ITERATIONS = 80  # of the root in M; three are usual
_NEWTON = 2  # steps on a piece with the same classes raised
_SEARCH = 200  # of the price; six are usual
_APART = 2.0  # logarithms of prices at first
_NOTHING = 20.0  # the logarithm of a part of the total that counts as nothing
_NEAR = 0.5  # samples by which a total may be missed before rounding
_PRECISE = 1e-8  # of the last step to the root, relative: what is left is its square
_TOPPED_UP = 10_000  # rounds of one more sample for each client; one or two are usual
_ROUNDING = 1e-9  # of an amount that would be a whole number


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


class Effective:
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
        for _ in range(_ITERATIONS):
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

    def _piece(self, tau: Floats, nu: Floats) -> "_Piece":
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
        for _ in range(_SEARCH):
            made = self.at_price(math.exp(at))
            off = self._excess(made, total)
            # Never above the total; what is left below it is spent in whole samples.
            if -_NEAR * self.costs.min() <= off * total <= 0 or high - low < 1e-14:
                break
            low, high = (at, high) if off > 0 else (low, at)
            if off > -_NOTHING and abs(at - last[0]) > 0:
                slope = (off - last[1]) / (at - last[0])
            last = (at, off) if off > -_NOTHING else last
            step = at - off / slope if slope < 0 else math.nan
            edge = high - 4 * _APART if low == -math.inf else (low + high) / 2
            at = step if max(low, high - 50) < step < high else edge
        return self._limited(made, math.exp(at))

    def _excess(self, made: Floats, total: float) -> float:
        """Return by how much a plan is above the total, as a logarithm."""
        return math.log(max(self._spent(made), math.exp(-_NOTHING) * total) / total)

    def _spent(self, made: Floats) -> float:
        return float(self.costs @ np.minimum(made.sum(axis=1), self.limits))

    def _limited(self, made: Floats, price: float) -> Floats:
        """Return the same for clients within their limits; others stop at a price of their own."""
        over = made.sum(axis=1) > self.limits
        if not over.any():
            return made
        low = np.full(len(over), math.log(max(price, 1e-40)))
        high = np.log(np.maximum(self.first_prices, 1e-39))
        for _ in range(60):
            middle = (low + high) / 2
            found = self.at_price(np.exp(middle))
            fits = found.sum(axis=1) <= self.limits
            high, low = np.where(fits, middle, high), np.where(fits, low, middle)
        return np.where(over[:, np.newaxis], self.at_price(np.exp(high)), made)

    def whole(self, made: Floats, total: float = math.inf, price: float = 0.0) -> Floats:
        """Return whole samples: rounded down, then one at a time where one lowers the score most.

        It stops when the total is spent, or where a sample is not worth its price.
        """
        samples = np.floor(made + _ROUNDING)
        rows = np.arange(len(samples))
        wanting = np.floor(made.sum(axis=1) + _ROUNDING) - samples.sum(axis=1)
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
