"""The fewest samples that hold at least so many of each label: an integer program over label sets.

    minimise sum_S m_S   subject to   sum_{S with l} m_S >= d_l for every label l,  m_S = 0, 1, ...

A site has some ten labels, so the program has few rows and up to some thousand columns: a dense
dual simplex takes milliseconds, and its optimum, rounded up, bounds the samples from below.
Rounding usually reaches that bound; where it does not, branch and bound looks for it, and what
remains after `_NODES` nodes is in `Cover.bound`.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedeas.errors import InfeasibleError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
_ZERO = 1e-9  # of a tableau's entry, which is a ratio of small whole numbers
_WHOLE = 1e-6  # of an amount that would be a whole number
_PIVOTS = 5_000  # ten to a hundred are usual
_CAREFUL = 500  # pivots from which on the first candidate is taken, which cannot cycle
_BLOCK = 1024  # label sets that are compared with all others at a time
_NODES = 200  # of branch and bound, once rounding has missed the bound


class Cover(NamedTuple):
    """How many samples of each label set, and a number of samples that no other choice is below."""

    samples: Ints
    bound: int


def least_cover(holds: Bools, demand: Ints) -> Cover:
    """Return the fewest samples of each label set that hold the demanded number of every label.

    Parameters
    ----------
    holds : array of bool
        Labels x label sets: whether a set has a label. Every label that is in demand is in a set.
    demand : array of int
        The number of samples wanted of every label.

    >>> sets = np.array([[1, 0, 1], [1, 1, 0], [0, 1, 1]], bool)
    >>> least_cover(sets, np.array([3, 3, 3])).samples.sum()
    np.int64(5)
    """
    rows = demand > 0
    samples = np.zeros(holds.shape[1], np.int64)
    if not rows.any():
        return Cover(samples, 0)
    used = np.flatnonzero(_largest(holds[rows]))
    search = _Search(holds[np.ix_(rows, used)].astype(np.float64), demand[rows])
    search.run()
    samples[used] = search.best
    return Cover(samples, search.bound)


def _largest(holds: Bools) -> Bools:
    """Tell which sets are not a part of another one; of equal ones the first."""
    _, first = np.unique(holds.T, axis=0, return_index=True)
    first = np.sort(first)
    columns = holds[:, first].astype(np.float32)
    sizes = columns.sum(axis=0)
    kept = np.zeros(holds.shape[1], bool)
    for start in range(0, len(first), _BLOCK):
        block = slice(start, start + _BLOCK)
        within = columns[:, block].T @ columns == sizes[block, np.newaxis]
        # Every set is a part of itself.
        kept[first[block]] = (within.sum(axis=1) == 1) & (sizes[block] > 0)
    return kept


class _NotSolvedError(Exception):
    """A program took too many pivots."""


class _Search:
    """Branch and bound: `best` is the best choice so far, `bound` what none can be below."""

    def __init__(self, holds: Floats, demand: Ints) -> None:
        self.holds, self.demand = holds, demand
        self.best = self._rounded(np.zeros(holds.shape[1]))
        self.bound = 0

    def run(self) -> None:
        """Solve the relaxed program, then split it in two where an amount is not whole."""
        start = np.zeros(self.holds.shape[1]), np.full(self.holds.shape[1], np.inf)
        self.bound = int(self.demand.max())  # a sample holds a label at most once
        try:
            self._branch(*start)
        except _NotSolvedError:
            return  # what was found until then is a choice, and the bound holds

    def _branch(self, *start: Floats) -> None:
        relaxed = self._solve(*start)
        if relaxed is None:
            raise InfeasibleError("a label that is wanted occurs in no label set")
        self.bound = max(self.bound, _least(relaxed))
        nodes = [(relaxed, *start)]
        for _ in range(_NODES):
            if not nodes:
                self.bound = int(self.best.sum())
            if self.best.sum() <= self.bound:
                return
            amounts, low, high = nodes.pop()
            if _least(amounts) >= self.best.sum():
                continue
            parts = np.abs(amounts - np.rint(amounts))
            j = int(np.argmax(parts))
            down, up = high.copy(), low.copy()
            down[j], up[j] = math.floor(amounts[j]), math.ceil(amounts[j])
            for bounds in ((low, down), (up, high)):
                found = self._solve(*bounds)
                if found is not None and _least(found) < self.best.sum():
                    nodes.append((found, *bounds))

    def _solve(self, low: Floats, high: Floats) -> Floats | None:
        """Return the relaxed optimum within bounds, and keep what it is when rounded."""
        capped = np.flatnonzero(np.isfinite(high))
        caps = np.zeros((len(capped), len(low)))
        caps[np.arange(len(capped)), capped] = 1.0
        matrix = np.vstack([-self.holds, caps])
        right = np.concatenate([self.holds @ low - self.demand, (high - low)[capped]])
        above = dual_simplex(matrix, right)
        if above is None:
            return None
        amounts = low + above
        whole = self._rounded(np.floor(amounts + _WHOLE))
        if whole.sum() < self.best.sum():
            self.best = whole
        return amounts

    def _rounded(self, amounts: Floats) -> Ints:
        """Return whole numbers: those given, then sets that hold most of what is still missing."""
        samples = amounts.astype(np.int64)
        missing = self.demand - (self.holds @ samples).astype(np.int64)
        while (missing > 0).any():
            worth = (missing > 0) @ self.holds
            j = int(np.argmax(worth))
            # As many as leave no label of the set behind, so that the choice stays the best one.
            times = int(missing[(missing > 0) & (self.holds[:, j] > 0)].min())
            samples[j] += times
            missing -= times * (self.holds[:, j] > 0)
        return samples


def _least(amounts: Floats) -> int:
    """Return the smallest whole number of samples that is not below these amounts together."""
    total = float(amounts.sum())
    return math.ceil(total - _WHOLE * max(1.0, total * 1e-6))


def dual_simplex(matrix: Floats, right: Floats) -> Floats | None:
    """Minimise sum(x) subject to matrix x <= right and x >= 0; None if there is no such x.

    >>> dual_simplex(np.array([[-1.0, -1.0, 0.0], [0.0, -1.0, -1.0]]), np.array([-2.0, -3.0]))
    array([0., 3., 0.])
    """
    rows, columns = matrix.shape
    table = np.hstack([matrix, np.eye(rows), right[:, np.newaxis]])
    cost = np.concatenate([np.ones(columns), np.zeros(rows)])
    basis = np.arange(columns, columns + rows)
    scale = max(1.0, float(np.abs(right).max()))
    for pivot in range(_PIVOTS):
        short = np.flatnonzero(table[:, -1] < -_ZERO * scale)
        if not short.size:
            solution = np.zeros(columns + rows)
            solution[basis] = np.maximum(table[:, -1], 0.0)
            return solution[:columns]
        careful = pivot > _CAREFUL
        r = short[np.argmin(basis[short] if careful else table[short, -1])]
        candidates = np.flatnonzero(table[r, :-1] < -_ZERO)
        if not candidates.size:
            return None
        ratios = cost[candidates] / -table[r, candidates]
        j = candidates[np.argmax(ratios <= ratios.min() + _ZERO)]
        table[r] /= table[r, j]
        others = table[:, j].copy()
        others[r] = 0.0
        table -= np.outer(others, table[r])
        cost -= cost[j] * table[r, :-1]
        basis[r] = j
    raise _NotSolvedError
