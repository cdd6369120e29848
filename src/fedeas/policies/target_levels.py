"""Water-filling for any target: which classes a client raises, in which order, by price.

Raised classes share one q_c - t_c, the smallest of all. As M grows a class only ever joins them,
when tau = 1 / M has fallen to (t_c + T / j) / (n_c + B / j), with T and B the sums of the shares
and counts of the classes left alone and j the number of those raised. See docs/mathematics.md.
"""

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from fedeas.policies.levels import Levels, sums_from
from fedeas.policies.policy import Floats

_ROUNDING = 1e-9  # of a level that would be a whole number, in samples
_RELATIVE = 4e-15  # the same, as a part of a client


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
        whole: Floats = np.ceil(last - _ROUNDING - _RELATIVE * self.N)
        return whole

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
