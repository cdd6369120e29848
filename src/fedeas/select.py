"""Which beta: by the paper's two conditions, by a total, or by what a total costs.

Everything here reads three sums over clients per beta (see `path`), so it also works where nobody
holds all histograms.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedeas import skew
from fedeas.blocks import class_major, in_order, row_slices
from fedeas.counts import LabelCounts
from fedeas.errors import InfeasibleError, InputError
from fedeas.plan import reduction
from fedeas.policies.fedeas import FedEAS

Floats = NDArray[np.float64]

_GRID = 64  # betas at which the whole path is looked at
_POINTS = 8  # betas tried at once when a bracket is refined
_PRECISION = 1e-9  # relative width at which a bracket is an answer
_DOUBLINGS = 60


class Path(NamedTuple):
    """What a range of betas does: samples, score, and from them the two quantities of selection."""

    betas: Floats
    totals: Floats
    scores: Floats
    score_before: float
    real: int

    @property
    def reductions(self) -> Floats:
        """1 - I(B) / I(0) at every beta."""
        return np.array([reduction(self.score_before, score) for score in self.scores])

    @property
    def shares(self) -> Floats:
        """Synthetic samples as a part of all, at every beta."""
        return self.totals / (self.totals + self.real)


_Condition = Callable[[Path], NDArray[np.bool_]]


@dataclass(frozen=True)
class BetaInterval:
    """All betas from `low` up to but not including `high` satisfy both conditions of selection.

    `choice` is the plainest number among them: the fewest digits, then the smallest.
    """

    low: float
    high: float
    choice: float
    min_reduction: float
    max_share: float


def path(counts: LabelCounts, betas: Floats, policy: FedEAS | None = None) -> Path:
    """Return the samples and the imbalance score at every beta, reading the counts once.

    >>> path(LabelCounts([[90, 10, 0], [30, 40, 30]]), np.array([6.0, 12.0])).totals
    array([38., 86.])
    """
    rule = policy or FedEAS()

    def sums(rows: slice) -> Floats:
        n = class_major(counts.n[rows])
        N = n.sum(axis=-1)
        rate = rule.rate(n, N)
        result = np.empty((2, len(betas)))
        for i, beta in enumerate(betas):
            g = rule.fill_to(n, N, np.floor(rate * beta))
            result[:, i] = g.sum(), N @ skew.deviation(n + g)
        return result

    totals, scores = sum(in_order(sums, row_slices(counts.K, counts.C)), np.zeros((2, len(betas))))
    return Path(betas, totals, scores / counts.total, skew.imbalance(counts), counts.total)


def admissible_betas(
    counts: LabelCounts,
    min_reduction: float = 0.5,
    max_share: float = 0.25,
    policy: FedEAS | None = None,
) -> BetaInterval:
    """Return every beta that removes enough imbalance while real samples stay the majority.

    The paper asks for 1 - I(B)/I(0) >= 50 % and a synthetic share below 25 %.

    >>> admissible_betas(LabelCounts([[90, 10, 0], [30, 40, 30]])).choice
    5.0
    """
    for name, value in (("min_reduction", min_reduction), ("max_share", max_share)):
        if not 0 < value < 1:
            raise InputError(f"{name} out of range", got=value, allowed="between 0 and 1")
    if skew.imbalance(counts) == 0:
        raise InfeasibleError("every client is balanced already", fix="nothing needs generating")
    limit = max_share / (1 - max_share) * counts.total
    high = _first_beta(counts, policy, lambda found: found.totals >= limit * (1 - 1e-12))
    top = high if high is not None else 2.0**_DOUBLINGS
    grid = np.linspace(top / _GRID, top * (1 - _PRECISION), _GRID)
    reductions = path(counts, grid, policy).reductions
    reached = reductions >= min_reduction
    if not reached.any():
        best = float(reductions.max())
        raise InfeasibleError(
            f"no beta satisfies both conditions: below a synthetic share of {max_share:.0%} "
            f"at most {best:.1%} of the imbalance is removed",
            fix=f"allow a larger share, or ask for a reduction of {math.floor(best * 100)} %",
        )
    first = int(np.argmax(reached))
    low = _refine(
        counts,
        policy,
        lambda found: found.reductions >= min_reduction,
        grid[first - 1] if first else 0.0,
        grid[first],
    )
    # Far past the mean a larger beta can undo what a smaller one gained: stop at the first such.
    end = first + int(np.argmin(reached[first:])) if not reached[first:].all() else None
    if end is not None:
        top = _refine(
            counts,
            policy,
            lambda found: found.reductions < min_reduction,
            grid[end - 1],
            grid[end],
        )
    return BetaInterval(low, top, plainest_number(low, top), min_reduction, max_share)


def beta_for_total(counts: LabelCounts, total: int, policy: FedEAS | None = None) -> float:
    """Return the largest beta (to nine digits) whose plan takes at most `total` samples.

    >>> beta_for_total(LabelCounts([[90, 10, 0], [30, 40, 30]]), 86)
    12.0538...
    """
    if total < 1:
        raise InputError("no samples to spend", got=total, allowed="a total of at least 1")
    above = _first_beta(counts, policy, lambda found: found.totals > total)
    if above is None:
        raise InfeasibleError(
            "the total is never reached: every client is balanced before", got=total
        )
    # Just below the jump: the digits that are cut off keep it on the affordable side.
    digits = 9 - math.ceil(math.log10(above))
    beta: float = math.floor(above * (1 - 2 * _PRECISION) * 10**digits) / 10**digits
    if path(counts, np.array([beta]), policy).totals[0] == 0:
        raise InfeasibleError(
            f"the smallest plan that is not empty takes more than {total:,} samples",
            fix="spend more, or use waterfill, which takes any total",
        )
    return beta


def plainest_number(low: float, high: float) -> float:
    """Return the number in [low, high) with the fewest decimals, then the smallest.

    >>> plainest_number(11.42, 13.27), plainest_number(0.912, 0.958), plainest_number(31.0, 87.2)
    (12.0, 0.92, 40.0)
    """
    for decimals in range(-15, 16):
        step = 10.0**-decimals
        candidate = math.ceil(low / step - 1e-9) * step
        if candidate > 0 and low <= candidate < high:
            return round(candidate, max(decimals, 0))
    return low


def _first_beta(counts: LabelCounts, policy: FedEAS | None, reached: _Condition) -> float | None:
    """Return the smallest beta at which a condition that stays true once reached is true."""
    high = 1.0
    for _ in range(_DOUBLINGS):
        if reached(path(counts, np.array([high]), policy))[0]:
            return _refine(counts, policy, reached, 0.0, high)
        high *= 2
    return None


def _refine(
    counts: LabelCounts, policy: FedEAS | None, reached: _Condition, low: float, high: float
) -> float:
    """Narrow a bracket (false at `low`, true at `high`) and return its upper end."""
    for _ in range(_DOUBLINGS):
        if high - low <= _PRECISION * high:
            break
        grid = np.linspace(low, high, _POINTS + 1)
        first = int(np.argmax(reached(path(counts, grid[1:], policy))))
        low, high = float(grid[first]), float(grid[first + 1])
    return high
