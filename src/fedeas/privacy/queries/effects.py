"""The effect of every number of a grid on all sites together, and the number that is chosen.

Sums carry noise, so each figure has a standard error, and whether a condition holds is a matter of
how sure one can be.
"""

import math
from abc import abstractmethod
from dataclasses import dataclass
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from fedeas.errors import InfeasibleError
from fedeas.policies.fedeas import FedEAS
from fedeas.policies.matched import check_total
from fedeas.policies.waterfill import WaterFill
from fedeas.privacy.queries.query import SCALE, Floats, Ints, Query
from fedeas.select import check_conditions

_ROUNDING = 1.25  # units: rounding two values to whole ones, and an eighth of an error in each
_CLEAR = 3.0  # standard errors by which a sum must exceed zero
_SURE = 0.95
_PREFERRED = (1.0, 1.2, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0)


class Estimate(NamedTuple):
    """A number, and the standard error that the noise gives it.

    >>> print(Estimate(13712.3, 160.0))
    13,712 ± 160
    """

    value: float
    error: float

    def __str__(self) -> str:
        digits = 0 if abs(self.value) >= 100 else 3
        return f"{self.value:,.{digits}f} ± {self.error:,.{digits}f}"

    def sure_below(self, limit: float) -> float:
        """Return how sure it is that the number without noise is below a limit, 0 to 1."""
        if self.error == 0:
            return float(self.value < limit)
        return NormalDist(self.value, self.error).cdf(limit)

    def sure_from(self, limit: float) -> float:
        """Return how sure it is that the number without noise is a limit or more, 0 to 1."""
        return 1.0 - self.sure_below(limit)


@dataclass(frozen=True)
class Effects:
    """What every number of the grid does, upwards in samples; errors are standard errors."""

    numbers: Floats
    samples: Floats
    samples_errors: Floats
    scores: Floats  # sum_k N_k ||q_k - u||^2 with the samples
    scores_errors: Floats
    score_before: Estimate
    real: Estimate
    sites: int

    def share(self, at: int) -> Estimate:
        """Return the synthetic samples as a part of all."""
        S, N = float(self.samples[at]), self.real.value
        error = math.hypot(N * float(self.samples_errors[at]), S * self.real.error) / (S + N) ** 2
        return Estimate(S / (S + N), error)

    def reduction(self, at: int) -> Estimate:
        """Return the part of the imbalance that is removed."""
        before = self.score_before
        left = float(self.scores[at]) / before.value
        error = math.hypot(float(self.scores_errors[at]), left * before.error) / before.value
        return Estimate(1.0 - left, error)

    def check_visible(self) -> None:
        """Refuse sums that the noise hides."""
        for what, found in (("samples", self.real), ("imbalance", self.score_before)):
            if found.value > _CLEAR * found.error:
                continue
            if found.error == 0:
                reason = "no site has samples" if what == "samples" else "every site is balanced"
                raise InfeasibleError(reason, fix="nothing needs generating")
            raise InfeasibleError(
                f"the noise hides the {what} of these sites",
                got=str(found),
                fix="fix beta beforehand, ask more sites, or spend a larger epsilon",
            )


@dataclass(frozen=True)
class Choice:
    """What was chosen, what it is estimated to do, and how sure it is that it does.

    `sure` speaks of the noise alone: the queries' figures are those of a smoothed rule.
    """

    policy: FedEAS | WaterFill  # `policy.local(counts)` is a site's own row
    samples: Estimate
    reduction: Estimate
    share: Estimate
    real: Estimate
    sites: int
    sure: dict[str, float]  # per condition, 0 to 1

    @property
    def met(self) -> bool | None:
        """Whether all conditions hold; None where the noise hides it."""
        if all(p >= _SURE for p in self.sure.values()):
            return True
        return False if any(p <= 1 - _SURE for p in self.sure.values()) else None


@dataclass(frozen=True)
class EffectQuery(Query):
    """For every number of a grid, the samples of a policy and the score that they leave.

    An answer is N_k, N_k ||q_k - u||^2, then the samples of every number, then the scores. Each
    word has a unit of its own, so that one sample moves it by at most about `SCALE` units.
    """

    @property
    @abstractmethod
    def numbers(self) -> Floats:
        """The numbers of the grid, in the order in which samples grow."""

    @property
    @abstractmethod
    def bounds(self) -> Floats:
        """The most that one sample moves each word (rows), for sites of some sizes (columns)."""

    @property
    def rounding(self) -> float:
        """The most samples per site by which rounding to whole samples exceeds the estimate."""
        return 0.0

    @abstractmethod
    def policy(self, number: float) -> FedEAS | WaterFill:
        """Return the policy of a number."""

    @property
    def length(self) -> int:
        """Two words for a site as it is, and two for every number."""
        return 2 + 2 * len(self.numbers)

    @property
    def units(self) -> Floats:
        """Units per sample, or per unit of the score, of every word."""
        units: Floats = SCALE / self.bounds.max(axis=1)
        return units

    @property
    def sensitivity(self) -> float:
        """The largest norm, over the sizes that a site can have, of what one sample moves."""
        moved = self.units[:, np.newaxis] * self.bounds + _ROUNDING
        return float(np.linalg.norm(moved, axis=0).max())

    def read_plain(self, histograms: ArrayLike) -> Effects:
        """Return the effects without noise, where all counts may be seen: one site per row."""
        answers = self.answers(histograms)
        return self.read(answers.sum(axis=0), 0.0, len(answers))

    def read(self, sums: Ints, sigma: float, sites: int) -> Effects:
        """Return the effect of every number.

        Samples grow along the grid and scores fall; the nearest sums that do are taken.

        Parameters
        ----------
        sums
            The noisy sums over all sites.
        sigma
            The standard deviation of their noise, in units of the words.
        sites
            The number of sites in the sums.
        """
        found, errors = self.check_sums(sums, sigma) / self.units, sigma / self.units
        samples, scores = found[2:].reshape(2, -1)
        samples_errors, scores_errors = errors[2:].reshape(2, -1)
        before = Estimate(float(found[1]), float(errors[1]))
        weights = self.units[2:].reshape(2, -1) ** 2
        return Effects(
            self.numbers,
            np.maximum(nondecreasing(samples, weights[0]), 0.0),
            samples_errors,
            np.clip(-nondecreasing(-scores, weights[1]), 0.0, max(before.value, 0.0)),
            scores_errors,
            before,
            Estimate(float(found[0]), float(errors[0])),
            sites,
        )


def choose_by_conditions(
    query: EffectQuery, effects: Effects, min_reduction: float = 0.5, max_share: float = 0.25
) -> Choice:
    """Choose the fewest samples that meet both conditions, or else the most within the share.

    Parameters
    ----------
    query, effects
        A query, and what it read from the sums.
    min_reduction
        The smallest part of the imbalance to remove.
    max_share
        The synthetic share of all samples stays below it.
    """
    check_conditions(min_reduction, max_share)
    effects.check_visible()
    every = range(len(effects.numbers))
    within = [at for at in every if effects.share(at).value < max_share]
    if not within or not effects.samples[within[-1]] > 0:
        raise InfeasibleError(
            f"no number of the grid stays below a synthetic share of {max_share:.0%} "
            "and generates anything",
            fix="allow a larger share, or set the policy yourself",
        )
    enough = (at for at in within if effects.reduction(at).value >= min_reduction)
    at = next(enough, within[-1])
    sure = {
        "share": effects.share(at).sure_below(max_share),
        "reduction": effects.reduction(at).sure_from(min_reduction),
    }
    return _choice(query, effects, at, sure)


def choose_within(query: EffectQuery, effects: Effects, total: int, sure: float = _SURE) -> Choice:
    """Choose the number that spends most while it is sure enough to stay within a total.

    Parameters
    ----------
    query, effects
        A query, and what it read from the sums.
    total
        The most samples of all sites together.
    sure
        How sure, between 0 and 1, the choice has to be in spite of the noise.
    """
    check_total(total)
    effects.check_visible()
    room = total - query.rounding * effects.sites
    chances = [_samples(effects, at).sure_below(room + 0.5) for at in range(len(effects.numbers))]
    fits = [at for at, p in enumerate(chances) if p >= sure and effects.samples[at] > 0]
    if not fits:
        raise InfeasibleError(
            f"no plan of the grid is sure to stay within {total:,} samples",
            fix="spend more samples, ask more sites, or spend a larger epsilon",
        )
    return _choice(query, effects, fits[-1], {"total": chances[fits[-1]]})


def nondecreasing(values: Floats, weights: Floats) -> Floats:
    """Return the nondecreasing numbers nearest to the values, by pooling those out of order.

    >>> nondecreasing(np.array([1.0, 4.0, 2.0, 5.0]), np.ones(4))
    array([1., 3., 3., 5.])
    """
    pools: list[tuple[float, float, int]] = []
    for value, weight in zip(values.tolist(), weights.tolist(), strict=True):
        pool = (value, weight, 1)
        while pools and pools[-1][0] > pool[0]:
            before = pools.pop()
            w = before[1] + pool[1]
            pool = ((before[0] * before[1] + pool[0] * pool[1]) / w, w, before[2] + pool[2])
        pools.append(pool)
    return np.repeat([pool[0] for pool in pools], [pool[2] for pool in pools])


def preferred_numbers(first: int, last: int) -> Floats:
    """Return ten round numbers per decade, from 10**first to below 10**last, in even steps.

    >>> preferred_numbers(0, 1)
    array([1. , 1.2, 1.5, 2. , 2.5, 3. , 4. , 5. , 6. , 8. ])
    """
    # From text, so that 0.3 is the number that a user would type.
    return np.array([float(f"{x}e{power}") for power in range(first, last) for x in _PREFERRED])


def _samples(effects: Effects, at: int) -> Estimate:
    return Estimate(float(effects.samples[at]), float(effects.samples_errors[at]))


def _choice(query: EffectQuery, effects: Effects, at: int, sure: dict[str, float]) -> Choice:
    samples = _samples(effects, at)
    expected = samples.value + query.rounding * effects.sites / 2
    return Choice(
        query.policy(float(effects.numbers[at])),
        Estimate(expected, samples.error),
        effects.reduction(at),
        effects.share(at),
        effects.real,
        effects.sites,
        sure,
    )
