"""Which beta: by the paper's two conditions, by a total, or by what a total costs.

The samples and the score of FedEAS are step functions of beta: they change only where b_k of some
client grows by one, at beta = m / rate_k. `steps` visits every one of these, so that answers are
exact. The score does not always fall from step to step, so there can be gaps between admissible
betas.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedeas._internal.blocks import class_major, in_order, row_slices
from fedeas._internal.frames import html_lines, record_frame
from fedeas._internal.scalars import share
from fedeas.counts.label_counts import CountsLike, LabelCounts
from fedeas.errors import InfeasibleError, InputError
from fedeas.planning import skew
from fedeas.planning.named_values import NamedValuesLike, make_named_values
from fedeas.planning.plan import Plan, reduction
from fedeas.planning.policies import FedEAS, check_total
from fedeas.planning.policies.policy import without_absent_classes
from fedeas.planning.targets import shares_of

Floats = NDArray[np.float64]
CONDITIONS, SHARE, TOTAL = "conditions", "share", "total"
NOTHING, WORTHLESS = "nothing to gain", "worth too little"
CLOSE = 0.01  # imbalance score below which clients count as at the target
LEAST = 0.1  # minimum reduction for samples of low quality to pay off
_MOST_CELLS = 5_000_000  # steps x classes above which a grid of betas is used instead
_GRID = 256
_PASSES, _POINTS = 11, 8  # of closing in on an edge between two betas of the grid
_DOUBLINGS = 100
_ENORMOUS = 1e12  # a beta at which every limit is reached
_ROUNDING = 1e-15  # of a score that would be 0


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


_Condition = Callable[[BetaPath], NDArray[np.bool_]]


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
        part, n = rule.for_rows(rows), class_major(counts.n[rows])
        N = n.sum(axis=-1)
        rate = rule.rate(n, N)
        result = np.empty((2, len(betas)))
        for i, beta in enumerate(betas):
            g = part.fill_within(n, N, np.floor(rate * beta))
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
    real, given = counts.total, counts
    counts, rule = _aimed(counts, policy)
    n = class_major(counts.n)
    N = n.sum(axis=-1)
    rate = rule.rate(n, N)
    budgets = np.floor(rate * top)
    if budgets.sum() * counts.C > _MOST_CELLS:
        return path(given, np.linspace(0.0, top, _GRID + 1), policy, costs)
    most = budgets.astype(np.int64)
    betas, samples, scores = [np.empty(0)], [np.empty(0)], [np.empty(0)]
    for k in np.flatnonzero(most):
        budget = np.arange(most[k] + 1, dtype=np.float64)
        rows = np.broadcast_to(n[k], (len(budget), counts.C))
        client = rule.for_rows(slice(k, k + 1))
        g = client.fill_within(rows, np.full(len(budget), N[k]), budget)
        betas.append(_starts(budget[1:], rate[k]))
        samples.append(np.diff(g.sum(axis=-1)) * (1.0 if costs is None else costs[k]))
        scores.append(np.diff(N[k] * skew.deviation(rows + rule.worth(g), rule.target)))
    order = np.argsort(np.concatenate(betas), kind="stable")
    at = np.concatenate(betas)[order]
    last = np.append(at[1:] != at[:-1], True) if at.size else np.empty(0, bool)
    before = skew.imbalance(counts, target=rule.target)
    after = before + np.cumsum(np.concatenate(scores)[order]) / counts.total
    totals = np.cumsum(np.concatenate(samples)[order])
    return BetaPath(at[last], totals[last], after[last], before, real, exact=True)


def _aimed(counts: LabelCounts, policy: FedEAS | None) -> tuple[LabelCounts, FedEAS]:
    """Return the rule for these counts, and the counts of the classes that its target has."""
    rule = (policy or FedEAS()).resolve(counts)
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


@dataclass(frozen=True)
class BetaInterval:
    """All betas from `low` up to but not including `high` satisfy both conditions of selection.

    `others` are shorter intervals with the same property, if the score left gaps. `choice` is the
    roundest number between `low` and `high`: the fewest digits, then the smallest.

    Parameters
    ----------
    low, high : float
        The interval, from `low` up to but not including `high`.
    choice : float
        The roundest number in it.
    min_reduction, max_share : float
        The two conditions that it satisfies.
    others : tuple of (float, float)
        Shorter intervals with the same property.
    """

    low: float
    high: float
    choice: float
    min_reduction: float
    max_share: float
    others: tuple[tuple[float, float], ...] = ()

    def rounded(self) -> tuple[float, float]:
        """Return both ends with five digits, rounded inwards so that what is read off holds.

        >>> BetaInterval(11.37338983, 13.28692271, 12.0, 0.5, 0.25).rounded()
        (11.374, 13.286)
        """
        scale = 10.0 ** (4 - math.floor(math.log10(self.high)))
        low, high = math.ceil(self.low * scale) / scale, math.floor(self.high * scale) / scale
        return (low, high) if self.low <= low < high < self.high else (self.low, self.high)


def admissible_betas(
    counts: CountsLike,
    min_reduction: float = 0.5,
    max_share: float = 0.25,
    policy: FedEAS | None = None,
) -> BetaInterval:
    """Return every beta that removes enough imbalance while real samples stay the majority.

    The paper asks for 1 - I(B)/I(0) >= 50 % and a synthetic share below 25 %.

    Parameters
    ----------
    counts : LabelCounts or array_like
        Whole numbers, clients x classes.
    min_reduction : float
        The smallest share of the imbalance to remove.
    max_share : float
        The synthetic share of all samples stays below it.
    policy : FedEAS, optional
        A variant of the rule; its beta is not used.

    >>> admissible_betas(LabelCounts([[90, 10, 0], [30, 40, 30]])).choice
    5.0
    """
    check_conditions(min_reduction, max_share)
    counts = LabelCounts.of(counts)
    policy = (policy or FedEAS()).resolve(counts)
    betas = steps(counts, _past_share(counts, max_share, policy), policy)

    def satisfied(at: BetaPath) -> NDArray[np.bool_]:
        # Sums over steps are rounded: what is exactly at the threshold must not fall below it.
        return (at.shares < max_share) & (at.reductions >= min_reduction - 1e-12)

    good = satisfied(betas)
    if not good.any():
        best = float(np.max(betas.reductions, where=betas.shares < max_share, initial=0.0))
        raise InfeasibleError(
            f"no beta satisfies both conditions: below a synthetic share of {max_share:.0%} "
            f"at most {best:.1%} of the imbalance is removed",
            fix=f"allow a larger share, or ask for a reduction of {math.floor(best * 100)} %",
        )
    # The last step is past the share, so every run of good steps ends at the start of a bad one.
    # With limits it may not be: they hold the share down, whatever beta is.
    at = np.append(betas.betas, 2 * betas.betas[-1])
    edges = np.flatnonzero(np.diff(good.astype(np.int8), prepend=0, append=0)).reshape(-1, 2)
    runs = [(float(at[i]), float(at[j])) for i, j in edges]
    if not betas.exact:
        runs = [
            (
                _edge(counts, policy, satisfied, good=at[i], bad=at[i - 1])[0],
                _edge(counts, policy, satisfied, good=at[j - 1], bad=at[j])[1],
            )
            for i, j in edges
        ]
    low, high = max(runs, key=lambda run: run[1] - run[0])
    others = tuple(run for run in runs if run != (low, high))
    choice = plainest_number(low, high)
    return BetaInterval(low, high, choice, min_reduction, max_share, others)


def _past_share(counts: LabelCounts, max_share: float, policy: FedEAS) -> float:
    """Return a beta whose plan is past a synthetic share, and not far past it."""
    return _enough(counts, max_share / (1 - max_share) * counts.total, policy)


def check_conditions(min_reduction: float, max_share: float) -> None:
    """Refuse conditions that are not between 0 and 1."""
    for name, value in (("min_reduction", min_reduction), ("max_share", max_share)):
        share(value, name)


def beta_for_total(
    counts: CountsLike,
    total: float,
    policy: FedEAS | None = None,
    costs: NamedValuesLike | Floats = None,
) -> float:
    """Return the largest beta, to nine digits where they do, whose plan stays within `total`.

    Parameters
    ----------
    counts : LabelCounts or array_like
        Whole numbers, clients x classes.
    total : int
        The most samples to generate; with `costs` the most to spend.
    policy : FedEAS, optional
        A variant of the rule; its beta is not used.
    costs : number, sequence, mapping, str or path, optional
        The cost of a sample at each client.

    >>> beta_for_total(LabelCounts([[90, 10, 0], [30, 40, 30]]), 86)
    12.0538...
    """
    if costs is None:
        check_total(total)  # type: ignore[arg-type]
        if total < 1:
            raise InputError("no samples to spend", got=total, allowed="a total of at least 1")
    counts = LabelCounts.of(counts)
    policy, each = (policy or FedEAS()).resolve(counts), _costs(costs, counts)
    past = total + 1 if each is None else total * (1 + 1e-12)
    betas = steps(counts, _enough(counts, past, policy, each), policy, each)
    if not (betas.totals > total).any():  # limits stop it before
        return float(betas.betas[-1])
    above = int(np.argmax(betas.totals > total))
    low, high = (float(betas.betas[above - 1]) if above else 0.0), float(betas.betas[above])
    if not betas.exact:
        high, low = _edge(
            counts, policy, lambda at: at.totals > total, good=high, bad=low, costs=each
        )
    digits = 9 - math.ceil(math.log10(high))
    beta: float = math.floor(high * 10**digits) / 10**digits
    if not low <= beta < high:
        beta = math.nextafter(high, 0.0) if betas.exact else low
    if path(counts, np.array([beta]), policy).totals[0] == 0:
        unit = "samples" if costs is None else "units of cost"
        raise InfeasibleError(
            f"the smallest non-empty plan takes more than {total:,} {unit}",
            fix="spend more, or use waterfill, which takes any total",
        )
    return beta


def _costs(given: NamedValuesLike | Floats, counts: LabelCounts) -> Floats | None:
    """Return the cost of a sample at each client, in the order of the counts."""
    costs = make_named_values(given, "costs")  # type: ignore[arg-type]
    return None if costs is None else costs.ordered(counts.client_names).array(counts.K)


def plainest_number(low: float, high: float) -> float:
    """Return the number in [low, high) with the fewest decimals, then the smallest.

    >>> plainest_number(11.42, 13.27), plainest_number(0.912, 0.958), plainest_number(31.0, 87.2)
    (12.0, 0.92, 40.0)
    """
    for decimals in range(-15, 16):
        step = 10.0**-decimals
        candidate = round(math.ceil(low / step) * step, max(decimals, 0))
        if 0 < low <= candidate < high:
            return candidate
    return low


def _enough(
    counts: LabelCounts, total: float, policy: FedEAS, costs: Floats | None = None
) -> float:
    """Return a beta whose plan takes at least `total` samples, and its half does not."""

    def spent(beta: float) -> float:
        return float(path(counts, np.array([beta]), policy, costs).totals[0])

    target = policy.target
    if skew.imbalance(counts, target=target) <= (0.0 if target is None else _ROUNDING):
        where = "balanced" if target is None else "at the target"
        raise InfeasibleError(f"every client is {where} already", fix="nothing needs generating")
    if policy.limits is not None:  # then no beta takes more than they allow
        total = min(total, spent(_ENORMOUS))
    beta = 1.0
    for _ in range(_DOUBLINGS):
        if spent(beta) < total:
            beta *= 2
        elif beta > 1.0 or spent(beta / 2) < total:
            return beta
        else:
            beta /= 2
    raise InfeasibleError("no beta spends that much", got=total)


def _edge(
    counts: LabelCounts,
    policy: FedEAS,
    condition: _Condition,
    *,
    good: float,
    bad: float,
    costs: Floats | None = None,
) -> tuple[float, float]:
    """Close in on the edge between a beta where a condition holds and one where it does not."""
    for _ in range(_PASSES):
        betas = np.linspace(bad, good, _POINTS + 1)[1:]
        first = int(np.argmax(condition(path(counts, betas, policy, costs))))
        bad, good = (float(betas[first - 1]) if first else bad), float(betas[first])
    return good, bad


@dataclass(frozen=True)
class BetaChoice:
    """A beta, and why.

    Parameters
    ----------
    beta : float
        The beta that was chosen.
    chosen_by : str
        'total' for the largest within a total; 'conditions' where both hold; 'share' where no beta
        meets both and this one removes most below the share; 'nothing to gain' where clients are so
        close to the target (a score below 0.01) that half of the rest is not worth a search: beta
        is 12 there; 'worth too little' where the rule has a quality, and no beta below the share
        removes a tenth of the imbalance: the best budget is nothing then.
    min_reduction, max_share : float
        The two conditions.
    reduction, synthetic_share : float
        What the plan of this beta does.
    plan : Plan
        The plan of this beta.
    interval : BetaInterval or None
        All betas that meet both conditions.
    """

    beta: float
    chosen_by: str
    min_reduction: float
    max_share: float
    reduction: float
    synthetic_share: float
    plan: Plan = field(repr=False)
    interval: BetaInterval | None = None

    @property
    def nothing(self) -> bool:
        """Whether the best budget is nothing."""
        return self.chosen_by in (NOTHING, WORTHLESS)

    @property
    def reason(self) -> str:
        """Why the best budget is nothing; empty where it is not."""
        if self.chosen_by == NOTHING:
            return "the clients are close to the target already"
        if self.chosen_by == WORTHLESS:
            return (
                f"samples of this quality remove at most {100 * self.reduction:.1f} % of the "
                f"imbalance while fewer than {100 * self.max_share:g} % of all are synthetic"
            )
        return ""

    def to_pandas(self) -> Any:
        """Return a pandas data frame of one row, without the plan and the interval."""
        return record_frame(
            [{k: v for k, v in vars(self).items() if k not in ("plan", "interval")}]
        )

    def _repr_html_(self) -> str:
        return html_lines("BetaChoice", [("beta", f"{self.beta:.9g}"), ("why", str(self))])

    def __str__(self) -> str:
        share, removed = f"{100 * self.max_share:g} %", f"{100 * self.min_reduction:g} %"
        got, used = f"{100 * self.reduction:.1f} %", f"{100 * self.synthetic_share:.1f} %"
        if self.nothing:
            return self.reason
        if self.chosen_by == TOTAL:
            return f"the largest within the total; removes {got} at {used} synthetic"
        if self.chosen_by == CONDITIONS:
            return f"removes {got} (>= {removed}) at {used} synthetic (< {share})"
        return f"removes most below {share} synthetic, {got} at {used}; no beta removes {removed}"


def choose_beta(
    counts: CountsLike,
    min_reduction: float = 0.5,
    max_share: float = 0.25,
    policy: FedEAS | None = None,
    total: float | None = None,
    costs: NamedValuesLike | Floats = None,
) -> BetaChoice:
    """Choose beta by the paper's two conditions; if none meets both, the best within the share.

    With a total, it is the largest beta whose plan stays within that.

    Parameters
    ----------
    counts : LabelCounts or array_like
        Whole numbers, clients x classes.
    min_reduction : float
        The smallest share of the imbalance to remove.
    max_share : float
        The synthetic share of all samples stays below it.
    policy : FedEAS, optional
        A variant of the rule, such as one with a target; its beta is not used.
    total : int, optional
        The most samples to generate; with `costs` the most to spend.
    costs : number, sequence, mapping, str or path, optional
        The cost of a sample at each client.

    >>> choose_beta([[90, 10, 0], [30, 40, 30]]).beta
    5.0
    >>> print(choose_beta([[9, 1, 0], [0, 3, 0]]))
    removes most below 25 % synthetic, ... % at ... %; no beta removes 50 %
    """
    check_conditions(min_reduction, max_share)
    table = LabelCounts.of(counts)
    rule = (policy or FedEAS()).resolve(table)
    interval = None
    if total is not None:
        beta, chosen_by = beta_for_total(table, total, rule, costs), TOTAL
    elif skew.imbalance(table, target=rule.target) < CLOSE:
        beta, chosen_by = FedEAS().beta, NOTHING
    else:
        try:
            interval = admissible_betas(table, min_reduction, max_share, rule)
            beta, chosen_by = interval.choice, CONDITIONS
        except InfeasibleError:
            beta, chosen_by = _best_within(table, max_share, rule), SHARE
    plan = replace(rule, beta=beta).plan(table)
    if rule.quality is not None and chosen_by == SHARE and plan.reduction < LEAST:
        chosen_by = WORTHLESS
    return BetaChoice(
        beta, chosen_by, min_reduction, max_share, plan.reduction, plan.synthetic_share, plan,
        interval,
    )  # fmt: skip


def _best_within(counts: LabelCounts, max_share: float, rule: FedEAS) -> float:
    """Return the roundest beta of the step that removes most while the share stays below."""
    at = steps(counts, _past_share(counts, max_share, rule), rule)
    within = (at.shares < max_share) & (at.totals > 0)
    if not within.any():  # the smallest plan is too large already: the one before it is empty
        first = float(at.betas[np.argmax(at.totals > 0)])
        return plainest_number(first / 2, first)
    best = int(np.argmax(np.where(within, at.reductions, -np.inf)))
    low = float(at.betas[best])
    high = float(at.betas[best + 1]) if best + 1 < len(at.betas) else np.nextafter(low, 2e9)
    beta = plainest_number(low, high)
    if at.exact:
        return beta
    # Between two betas of a grid anything may happen.
    good = path(counts, np.array([beta]), rule).shares[0] < max_share
    return beta if good else low
