"""Which beta: by the paper's two conditions, by a total, or by what a total costs.

The samples and the score of FedEAS are step functions of beta: they change only where b_k of some
client grows by one, at beta = m / rate_k. `steps` visits every one of these, so that answers are
exact. The score does not always fall from step to step, so there can be gaps between admissible
betas.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from fedeas import skew
from fedeas.beta_path import BetaPath, Floats, path, steps
from fedeas.counts import CountsLike, LabelCounts
from fedeas.errors import InfeasibleError, InputError
from fedeas.per_name import PerNameLike, described, make_per_name
from fedeas.policies.fedeas import FedEAS
from fedeas.policies.matched import check_total
from fedeas.policy_settings import settle

_PASSES, _POINTS = 11, 8  # of closing in on an edge between two betas of the grid
_DOUBLINGS = 100
_ENORMOUS = 1e12  # a beta at which every limit is reached
_ROUNDING = 1e-15  # of a score that would be 0


_Condition = Callable[[BetaPath], NDArray[np.bool_]]


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
    policy = settle(policy or FedEAS(), counts)
    found = steps(counts, top_beta(counts, max_share, policy), policy)

    def satisfied(at: BetaPath) -> NDArray[np.bool_]:
        # Sums over steps are rounded: what is exactly at the threshold must not fall below it.
        return (at.shares < max_share) & (at.reductions >= min_reduction - 1e-12)

    good = satisfied(found)
    if not good.any():
        raise nothing_admissible(found, max_share)
    # The last step is past the share, so every run of good steps ends at the start of a bad one.
    # With limits it may not be: they hold the share down, whatever beta is.
    ends = np.append(found.betas, 2 * found.betas[-1])
    runs = [(float(ends[i]), float(ends[j])) for i, j in runs_of(good)]
    if not found.exact:
        betas = found.betas
        runs = [
            (
                _edge(counts, policy, satisfied, good=betas[i], bad=betas[i - 1])[0],
                _edge(counts, policy, satisfied, good=betas[j - 1], bad=ends[j])[1],
            )
            for i, j in runs_of(good)
        ]
    return interval_of(runs, min_reduction, max_share)


def top_beta(counts: LabelCounts, max_share: float, policy: FedEAS | None = None) -> float:
    """Return a beta whose plan is past a synthetic share, and not far past it."""
    return _enough(counts, max_share / (1 - max_share) * counts.total, policy)


def check_conditions(min_reduction: float, max_share: float) -> None:
    """Refuse conditions that are not between 0 and 1."""
    for name, value in (("min_reduction", min_reduction), ("max_share", max_share)):
        if not 0 < value < 1:
            raise InputError(f"{name} out of range", got=value, allowed="between 0 and 1")


def runs_of(good: NDArray[np.bool_]) -> NDArray[np.intp]:
    """Return where each run of good ones begins, and where the next bad one is.

    >>> runs_of(np.array([False, True, True, False, True]))
    array([[1, 3],
           [4, 5]])
    """
    edges = np.flatnonzero(np.diff(good.astype(np.int8), prepend=0, append=0))
    return edges.reshape(-1, 2)


def interval_of(
    runs: Sequence[tuple[float, float]], min_reduction: float, max_share: float
) -> BetaInterval:
    """Return the widest run of admissible betas, with its roundest number chosen."""
    low, high = max(runs, key=lambda run: run[1] - run[0])
    others = tuple(run for run in runs if run != (low, high))
    choice = plainest_number(low, high)
    return BetaInterval(low, high, choice, min_reduction, max_share, others)


def nothing_admissible(found: BetaPath, max_share: float, none: str = "no beta") -> InfeasibleError:
    """Return the error if no beta satisfies both conditions: how much is possible."""
    best = float(np.max(found.reductions, where=found.shares < max_share, initial=0.0))
    return InfeasibleError(
        f"{none} satisfies both conditions: below a synthetic share of {max_share:.0%} "
        f"at most {best:.1%} of the imbalance is removed",
        fix=f"allow a larger share, or ask for a reduction of {math.floor(best * 100)} %",
    )


def beta_for_total(
    counts: CountsLike,
    total: float,
    policy: FedEAS | None = None,
    costs: PerNameLike | Floats = None,
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
    policy, each = settle(policy or FedEAS(), counts), _costs(costs, counts)
    past = total + 1 if each is None else total * (1 + 1e-12)
    found = steps(counts, _enough(counts, past, policy, each), policy, each)
    if not (found.totals > total).any():  # limits stop it before
        return float(found.betas[-1])
    above = int(np.argmax(found.totals > total))
    low, high = (float(found.betas[above - 1]) if above else 0.0), float(found.betas[above])
    if not found.exact:
        past_total = partial(_past, total=total)
        high, low = _edge(counts, policy, past_total, good=high, bad=low, costs=each)
    digits = 9 - math.ceil(math.log10(high))
    beta: float = math.floor(high * 10**digits) / 10**digits
    if not low <= beta < high:
        beta = math.nextafter(high, 0.0) if found.exact else low
    if path(counts, np.array([beta]), policy).totals[0] == 0:
        unit = "samples" if costs is None else "units of cost"
        raise InfeasibleError(
            f"the smallest non-empty plan takes more than {total:,} {unit}",
            fix="spend more, or use waterfill, which takes any total",
        )
    return beta


def _costs(given: PerNameLike | Floats, counts: LabelCounts) -> Floats | None:
    """Return the cost of a sample at each client, in the order of the counts."""
    costs = make_per_name(given, "costs")  # type: ignore[arg-type]
    if costs is None:
        return None
    what = described("costs")
    return costs.ordered(counts.client_names, what).array(counts.K, what)


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


def _past(at: BetaPath, total: float) -> NDArray[np.bool_]:
    return at.totals > total


def _enough(
    counts: LabelCounts, total: float, policy: FedEAS | None, costs: Floats | None = None
) -> float:
    """Return a beta whose plan takes at least `total` samples, and its half does not."""

    def enough(beta: float) -> bool:
        return bool(path(counts, np.array([beta]), policy, costs).totals[0] >= total)

    target = (policy or FedEAS()).target
    if skew.imbalance(counts, target=target) <= (0.0 if target is None else _ROUNDING):
        said = "balanced" if target is None else "at the target"
        raise InfeasibleError(f"every client is {said} already", fix="nothing needs generating")
    if (most := _limited(counts, policy, costs)) is not None:
        total = min(total, most)
    beta = 1.0
    for _ in range(_DOUBLINGS):
        if not enough(beta):
            beta *= 2
        elif beta > 1.0 or not enough(beta / 2):
            return beta
        else:
            beta /= 2
    raise InfeasibleError("no beta spends that much", got=total)


def _limited(counts: LabelCounts, policy: FedEAS | None, costs: Floats | None) -> float | None:
    """Return the most samples that limits allow, whatever beta is; None without limits."""
    if policy is None or policy.limits is None:
        return None
    return float(path(counts, np.array([_ENORMOUS]), policy, costs).totals[0])


def _edge(
    counts: LabelCounts,
    policy: FedEAS | None,
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
