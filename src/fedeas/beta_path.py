"""What every beta does: samples, score, and what samples cost, as step functions of beta."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedeas import skew
from fedeas.blocks import class_major, in_order, row_slices
from fedeas.counts import LabelCounts
from fedeas.overfill import matching_counts
from fedeas.plan import reduction
from fedeas.policies.fedeas import FedEAS
from fedeas.policies.policy import without_absent_classes
from fedeas.policy_settings import settle
from fedeas.targets import shares_of

Floats = NDArray[np.float64]
_MOST_CELLS = 5_000_000  # steps x classes above which a grid of betas is used instead
_GRID = 256


class BetaPath(NamedTuple):
    """What a range of betas does: samples, score, and from them the two quantities of selection."""

    betas: Floats
    totals: Floats
    scores: Floats
    score_before: float
    real: int
    exact: bool = False  # whether these are all the steps there are

    @property
    def reductions(self) -> Floats:
        """1 - I(B) / I(0) at every beta."""
        return np.array([reduction(self.score_before, score) for score in self.scores])

    @property
    def shares(self) -> Floats:
        """Synthetic samples as a part of all, at every beta."""
        return self.totals / (self.totals + self.real)


def path(
    counts: LabelCounts,
    betas: Floats,
    policy: FedEAS | None = None,
    costs: Floats | None = None,
) -> BetaPath:
    """Return the samples and the imbalance score at the given betas, reading the counts once.

    With the costs of a sample at each client, `totals` are what all samples cost.

    >>> path(LabelCounts([[90, 10, 0], [30, 40, 30]]), np.array([6.0, 12.0])).totals
    array([38., 86.])
    """
    real = counts.total
    counts, rule = _aimed(counts, policy)

    def sums(rows: slice) -> Floats:
        own, n = rule.for_rows(rows), class_major(counts.n[rows])
        N = n.sum(axis=-1)
        rate = rule.rate(n, N)
        result = np.empty((2, len(betas)))
        for i, beta in enumerate(betas):
            g = own.fill_within(n, N, np.floor(rate * beta))
            result[:, i] = (
                (g.sum() if costs is None else g.sum(axis=-1) @ costs[rows]),
                N @ skew.deviation(n + rule.worth(g), rule.target),
            )
        return result

    totals, scores = sum(in_order(sums, row_slices(counts.K, counts.C)), np.zeros((2, len(betas))))
    before = skew.imbalance(counts, target=rule.target)
    return BetaPath(betas, totals, scores / counts.total, before, real)


def steps(
    counts: LabelCounts, top: float, policy: FedEAS | None = None, costs: Floats | None = None
) -> BetaPath:
    """Return every step of the path up to `top`: what holds from each beta up to the next.

    Where there are millions of steps (many thousand clients) a grid of betas stands in for them.

    >>> steps(LabelCounts([[90, 10, 0], [30, 40, 30]]), 0.6).betas.round(3)
    array([0.246, 0.492])
    """
    whole = counts
    counts, rule = _aimed(counts, policy)
    n = class_major(counts.n)
    N = n.sum(axis=-1)
    rate = rule.rate(n, N)
    budgets = np.floor(rate * top)
    if budgets.sum() * counts.C > _MOST_CELLS:
        return path(whole, np.linspace(0.0, top, _GRID + 1), policy, costs)
    most = budgets.astype(np.int64)
    betas, samples, scores = [np.empty(0)], [np.empty(0)], [np.empty(0)]
    for k in np.flatnonzero(most):
        budget = np.arange(most[k] + 1, dtype=np.float64)
        rows = np.broadcast_to(n[k], (len(budget), counts.C))
        own = rule.for_rows(slice(k, k + 1))
        g = own.fill_within(rows, np.full(len(budget), N[k]), budget)
        betas.append(_starts(budget[1:], rate[k]))
        samples.append(np.diff(g.sum(axis=-1)) * (1.0 if costs is None else costs[k]))
        scores.append(np.diff(N[k] * skew.deviation(rows + rule.worth(g), rule.target)))
    order = np.argsort(np.concatenate(betas), kind="stable")
    at = np.concatenate(betas)[order]
    last = np.append(at[1:] != at[:-1], True) if at.size else np.empty(0, bool)
    before = skew.imbalance(counts, target=rule.target)
    after = before + np.cumsum(np.concatenate(scores)[order]) / counts.total
    totals = np.cumsum(np.concatenate(samples)[order])
    return BetaPath(at[last], totals[last], after[last], before, whole.total, exact=True)


def balancing_beta(counts: LabelCounts, policy: FedEAS | None = None) -> float:
    """Return the beta from which on some client is filled beyond its largest class.

    >>> balancing_beta(LabelCounts([[10, 2, 0], [40, 40, 30]]))
    9.3...
    """
    rule = settle(policy or FedEAS(), counts)
    t = shares_of(rule.target, counts.C)
    if t is not None and not t.all():
        counts, rule = _aimed(counts, rule)
        t = t[t > 0]
    n = class_major(counts.n)
    N = n.sum(axis=-1)
    with np.errstate(divide="ignore"):
        rate = rule.rate(n, N)
        if t is None:
            return float(np.min((n.max(axis=-1) + 1) / rate))
        scarce = n < N[:, np.newaxis] * t
        past = np.where(scarce, (matching_counts(n, t) + 1) / (counts.C * t), np.inf)
        return float(np.min(past.min(axis=1) / rate))


def _aimed(counts: LabelCounts, policy: FedEAS | None) -> tuple[LabelCounts, FedEAS]:
    """Return the rule with a settled target, and the counts of the classes that it has."""
    rule = settle(policy or FedEAS(), counts)
    t = shares_of(rule.target, counts.C)
    if t is None or t.all():
        return counts, rule
    return LabelCounts(counts.n[:, t > 0]), without_absent_classes(rule, counts.C)


def _starts(budgets: Floats, rate: float) -> Floats:
    """Return the smallest betas at which floor(rate beta) is each budget, in floating point."""
    betas = budgets / rate
    for _ in range(2):
        short = np.floor(rate * betas) < budgets
        betas = np.where(short, np.nextafter(betas, np.inf), betas)
    for _ in range(2):
        before = np.nextafter(betas, 0.0)
        betas = np.where(np.floor(rate * before) >= budgets, before, betas)
    return betas
