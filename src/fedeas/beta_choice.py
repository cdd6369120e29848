"""Choose beta where none is given: by the paper's two conditions, or the best within the share."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedeas import skew
from fedeas.beta_path import path, steps
from fedeas.counts import CountsLike, LabelCounts
from fedeas.errors import InfeasibleError
from fedeas.notebook import html_lines, record_frame
from fedeas.policies.fedeas import FedEAS
from fedeas.policy_settings import settle
from fedeas.select import (
    BetaInterval,
    admissible_betas,
    check_conditions,
    plainest_number,
    top_beta,
)

CONDITIONS, SHARE = "conditions", "share"
NOTHING, WORTHLESS = "nothing to gain", "worth too little"
CLOSE = 0.01  # imbalance score below which clients count as at the target
LEAST = 0.1  # share of the imbalance that samples of little worth have to remove to be worth it


@dataclass(frozen=True)
class BetaChoice:
    """A beta, and why.

    Parameters
    ----------
    beta : float
        The beta that was chosen.
    chosen_by : str
        'conditions' where both hold; 'share' where no beta meets both and this one removes most
        below the share; 'nothing to gain' where clients are so close to the target (a score below
        0.01) that half of the rest is not worth a search: beta is 12 there; 'worth too little'
        where the rule has a quality, and no beta below the share removes a tenth of the imbalance:
        the best budget is nothing then.
    min_reduction, max_share : float
        The two conditions.
    reduction, synthetic_share : float
        What the plan of this beta does.
    interval : BetaInterval or None
        All betas that meet both conditions.
    """

    beta: float
    chosen_by: str
    min_reduction: float
    max_share: float
    reduction: float
    synthetic_share: float
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
        """Return a pandas data frame of one row, without the interval."""
        return record_frame([{k: v for k, v in vars(self).items() if k != "interval"}])

    def _repr_html_(self) -> str:
        return html_lines("BetaChoice", [("beta", f"{self.beta:.9g}"), ("why", str(self))])

    def __str__(self) -> str:
        share, removed = f"{100 * self.max_share:g} %", f"{100 * self.min_reduction:g} %"
        got, used = f"{100 * self.reduction:.1f} %", f"{100 * self.synthetic_share:.1f} %"
        if self.nothing:
            return self.reason
        if self.chosen_by == CONDITIONS:
            return f"removes {got} (>= {removed}) at {used} synthetic (< {share})"
        return f"removes most below {share} synthetic, {got} at {used}; no beta removes {removed}"


def choose_beta(
    counts: CountsLike,
    min_reduction: float = 0.5,
    max_share: float = 0.25,
    policy: FedEAS | None = None,
) -> BetaChoice:
    """Choose beta by the paper's two conditions; if none meets both, the best within the share.

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

    >>> choose_beta([[90, 10, 0], [30, 40, 30]]).beta
    5.0
    >>> print(choose_beta([[9, 1, 0], [0, 3, 0]]))
    removes most below 25 % synthetic, ... % at ... %; no beta removes 50 %
    """
    check_conditions(min_reduction, max_share)
    table = LabelCounts.of(counts)
    rule = settle(policy or FedEAS(), table)
    interval = None
    if skew.imbalance(table, target=rule.target) < CLOSE:
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
        beta, chosen_by, min_reduction, max_share, plan.reduction, plan.synthetic_share, interval
    )


def _best_within(counts: LabelCounts, max_share: float, rule: FedEAS) -> float:
    """Return the roundest beta of the step that removes most while the share stays below."""
    found = steps(counts, top_beta(counts, max_share, rule), rule)
    within = (found.shares < max_share) & (found.totals > 0)
    if not within.any():  # the smallest plan is too large already: the one before it is empty
        first = float(found.betas[np.argmax(found.totals > 0)])
        return plainest_number(first / 2, first)
    best = int(np.argmax(np.where(within, found.reductions, -np.inf)))
    low = float(found.betas[best])
    high = float(found.betas[best + 1]) if best + 1 < len(found.betas) else np.nextafter(low, 2e9)
    beta = plainest_number(low, high)
    if found.exact:
        return beta
    # Between two betas of a grid anything may happen.
    good = path(counts, np.array([beta]), rule).shares[0] < max_share
    return beta if good else low
