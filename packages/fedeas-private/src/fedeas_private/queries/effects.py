r"""A policy's number (beta, or the price of water-filling) chosen from noisy sums over the sites.

A site answers for every number of a grid: how many samples the policy would generate there, and
the score that they leave. Sums carry noise, so each figure has a standard error, and whether a
condition holds is a matter of how sure one can be.

Beta is that of the FedEAS rule with its default settings. The rule fills the classes below both b_k
and the mean mu_k = N_k / C up to b_k. Two of its steps let one sample move a site's total by
hundreds: a class that crosses the mean, and sites of a few samples whose b_k is far above it. A
site therefore answers for a rule without steps:

    level l = max(0, r_k beta - 1/2), r_k = sqrt(mu_k) (1 - H_k / log C),
    samples = sum_c min(max(0, l - n_c), RAMP max(0, mu_k - n_c)),
    score = N_k ||q - u||^2 with every class raised to min(l, mu_k).

1/2 is what rounding b_k down takes off on average. While l stays below the mean, all three are
what the rule does; above it, samples approach the mean on a ramp instead of falling off a cliff.

A site's best amount at a price of water-filling is already a continuous function of its counts,
homogeneous of degree one, so nothing has to be smoothed but the rounding up to whole samples.

The bounds on what one sample moves are those of docs/proofs.md. Each bound for beta is a
product of factors that only grow, or only shrink, with the site's size N. All sizes are covered by
ranges, and each factor is taken at the worse end of its range.
"""

import math
from abc import abstractmethod
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from fedeas.errors import InfeasibleError
from fedeas.planning import skew
from fedeas.planning.beta import check_conditions
from fedeas.planning.policies import check_total
from fedeas.planning.policies.fedeas import FedEAS
from fedeas.planning.policies.waterfill import WaterFill, effects_at
from fedeas_private.queries.query import CLEAR, SCALE, Floats, Ints, Query

RAMP = 4.0
_ROUNDING = 1.25  # units: rounding two values to whole ones, and an eighth of an error in each
_SURE = 0.95
_PREFERRED = (1.0, 1.2, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0)
_SINGLE = 128  # sizes up to here are ranges of their own
_GROWTH = 1.02
_HALVINGS = 60
_SAFE = 1 + 1e-9  # far more than the floating point error of the bounds


class NoisyEstimate(NamedTuple):
    """A number, and the standard error that the noise gives it.

    >>> print(NoisyEstimate(13712.3, 160.0))
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
    score_before: NoisyEstimate
    real: NoisyEstimate
    sites: int

    def share(self, at: int) -> NoisyEstimate:
        """Return the synthetic samples as a part of all."""
        S, N = float(self.samples[at]), self.real.value
        error = math.hypot(N * float(self.samples_errors[at]), S * self.real.error) / (S + N) ** 2
        return NoisyEstimate(S / (S + N), error)

    def reduction(self, at: int) -> NoisyEstimate:
        """Return the part of the imbalance that is removed."""
        before = self.score_before
        left = float(self.scores[at]) / before.value
        error = math.hypot(float(self.scores_errors[at]), left * before.error) / before.value
        return NoisyEstimate(1.0 - left, error)

    def check_visible(self) -> None:
        """Refuse sums that the noise hides."""
        for what, amount in (("samples", self.real), ("imbalance", self.score_before)):
            if amount.value > CLEAR * amount.error:
                continue
            if amount.error == 0:
                reason = "no site has samples" if what == "samples" else "every site is balanced"
                raise InfeasibleError(reason, fix="nothing needs generating")
            raise InfeasibleError(
                f"the noise hides the {what} of these sites",
                got=str(amount),
                fix="fix beta beforehand, ask more sites, or spend a larger epsilon",
            )


@dataclass(frozen=True)
class PolicyChoice:
    """What was chosen, what it is estimated to do, and how sure it is that it does.

    `sure` speaks of the noise alone: the queries' figures are those of a smoothed rule.
    """

    policy: FedEAS | WaterFill  # `policy.local(counts)` is a site's own row
    samples: NoisyEstimate
    reduction: NoisyEstimate
    share: NoisyEstimate
    real: NoisyEstimate
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
        words, errors = self.check_sums(sums, sigma) / self.units, sigma / self.units
        samples, scores = words[2:].reshape(2, -1)
        samples_errors, scores_errors = errors[2:].reshape(2, -1)
        before = NoisyEstimate(float(words[1]), float(errors[1]))
        weights = self.units[2:].reshape(2, -1) ** 2
        return Effects(
            self.numbers,
            np.maximum(nondecreasing(samples, weights[0]), 0.0),
            samples_errors,
            np.clip(-nondecreasing(-scores, weights[1]), 0.0, max(before.value, 0.0)),
            scores_errors,
            before,
            NoisyEstimate(float(words[0]), float(errors[0])),
            sites,
        )


@dataclass(frozen=True)
class BetaQuery(EffectQuery):
    """The effect of ten round betas per decade, from 1 to 80.

    >>> BetaQuery(10).numbers[9:13]
    array([ 8., 10., 12., 15.])
    """

    name: ClassVar[str] = "beta"

    @property
    def numbers(self) -> Floats:
        """The betas."""
        return preferred_numbers(0, 2)

    @property
    def bounds(self) -> Floats:
        """The most that one sample moves each word, for sites of some sizes."""
        return _beta_bounds(self.classes)

    def policy(self, number: float) -> FedEAS:
        """Return the policy of a beta."""
        return FedEAS(number)

    def words(self, n: Floats) -> Floats:
        """Return the answers before rounding."""
        N = n.sum(axis=-1)
        rate = FedEAS().rate(n, N)
        mean = N / self.classes
        room = RAMP * np.maximum(mean[:, np.newaxis] - n, 0.0)
        samples, scores = [], []
        for beta in self.numbers:
            level = np.maximum(rate * beta - 0.5, 0.0)
            added = np.maximum(level[:, np.newaxis] - n, 0.0)
            samples.append(np.minimum(added, room).sum(axis=-1))
            raised = np.maximum(n, np.minimum(level, mean)[:, np.newaxis])
            scores.append(N * skew.deviation(raised))
        words: Floats = np.stack([N, N * skew.deviation(n), *samples, *scores], axis=-1)
        return words * self.units


@dataclass(frozen=True)
class PriceQuery(EffectQuery):
    """The effect of ten round prices per decade, from 0.8 down to 0.001.

    >>> PriceQuery(10).numbers[:4]
    array([0.8, 0.6, 0.5, 0.4])
    """

    name: ClassVar[str] = "price"

    @property
    def numbers(self) -> Floats:
        """The prices, downwards, so that samples go upwards."""
        return preferred_numbers(-3, 0)[::-1]

    @property
    def bounds(self) -> Floats:
        """The most that one sample moves each word, whatever the size of the site."""
        return _price_bounds(self.classes)

    @property
    def rounding(self) -> float:
        """A site rounds its amount up to a whole number of samples."""
        return 1.0

    def policy(self, number: float) -> WaterFill:
        """Return the policy of a price."""
        return WaterFill(price=number)

    def words(self, n: Floats) -> Floats:
        """Return the answers before rounding."""
        N = n.sum(axis=-1)
        amounts, scores = effects_at(n, self.numbers)
        before = np.stack([N, N * skew.deviation(n)], axis=-1)
        words: Floats = np.concatenate([before, amounts, scores], axis=-1)
        return words * self.units


def choose_by_conditions(
    query: EffectQuery, effects: Effects, min_reduction: float = 0.5, max_share: float = 0.25
) -> PolicyChoice:
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


def choose_within(query: EffectQuery, effects: Effects, total: int) -> PolicyChoice:
    """Choose the number that spends most while it is 95 % sure to stay within a total.

    Parameters
    ----------
    query, effects
        A query, and what it read from the sums.
    total
        The most samples of all sites together.
    """
    check_total(total)
    effects.check_visible()
    room = total - query.rounding * effects.sites
    chances = [_samples(effects, at).sure_below(room + 0.5) for at in range(len(effects.numbers))]
    fits = [at for at, p in enumerate(chances) if p >= _SURE and effects.samples[at] > 0]
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


def _samples(effects: Effects, at: int) -> NoisyEstimate:
    return NoisyEstimate(float(effects.samples[at]), float(effects.samples_errors[at]))


def _choice(query: EffectQuery, effects: Effects, at: int, sure: dict[str, float]) -> PolicyChoice:
    samples = _samples(effects, at)
    expected = samples.value + query.rounding * effects.sites / 2
    return PolicyChoice(
        query.policy(float(effects.numbers[at])),
        NoisyEstimate(expected, samples.error),
        effects.reduction(at),
        effects.share(at),
        effects.real,
        effects.sites,
        sure,
    )


@lru_cache(maxsize=8)
def _beta_bounds(classes: int) -> Floats:
    moves = sample_moves(preferred_numbers(0, 2), classes, RAMP)
    moves.setflags(write=False)
    return moves


def sample_moves(betas: Floats, classes: int, ramp: float) -> Floats:
    """Return, for every word (rows) and range of sizes (columns), the most that a sample moves it.

    The words are N, the score before, the samples at every beta and the scores at every beta.
    """
    low, high = _ranges(100.0 * classes * float(betas.max()) ** 2)
    size = np.ones((1, len(low)))
    before = (1 + 1 / classes) * size
    samples = _samples_move(betas[:, np.newaxis], classes, ramp, low, high)
    scores = np.array([_scores_move(beta, classes, low, high) for beta in betas.tolist()])
    return np.concatenate([size, before, samples * _SAFE, scores * _SAFE])


def _ranges(top: float) -> tuple[Floats, Floats]:
    """Cover all whole sizes by ranges; from `top` on everything shrinks: one range."""
    starts = [float(size) for size in range(_SINGLE)]
    while starts[-1] < top:
        starts.append(math.floor(starts[-1] * _GROWTH) + 1.0)
    low = np.array(starts)
    return low, np.append(low[1:] - 1, np.inf)


def _samples_move(betas: Floats, C: int, ramp: float, low: Floats, high: Floats) -> Floats:
    """Theorem 2: the samples at every beta."""
    kl = _most_skew(betas, C, ramp, low, high) * math.log(C)
    up, down = _level_moves(betas, C, kl, low, high)
    by_slope = np.maximum(up, down + ramp)
    by_range = ramp * np.minimum((high + 1) * np.sqrt(kl / 2) + 1, (high + 1) * (1 - 1 / C))
    return np.minimum(by_slope, by_range)


def _scores_move(beta: float, C: int, low: Floats, high: Floats) -> Floats:
    """Theorem 3: the scores at one beta, a number for every range of sizes.

    Sizes are rows and ranges of the skewness s are columns; the worst column counts.
    """
    log_C = math.log(C)
    s_low, s_high, largest, smallest = _skew_ranges(C)
    most = _most_skew(np.array([[beta]]), C, 1.0, low, high)[0]
    sizes = _ends(low, high)
    start, end = low[:, np.newaxis], high[:, np.newaxis] + 1
    with np.errstate(divide="ignore", invalid="ignore"):
        slope = beta / np.sqrt(start * C)
        level = np.maximum(beta * s_low / np.sqrt(end * C) - 0.5 / start, 0.0)  # L / N, at least
        weight = slope * (largest - level) * _most_weight(level, s_low, C)
        weight = np.where(s_low < most[:, np.newaxis], weight, 0.0)
        up = (weight * np.clip(np.log(C * largest) / log_C - s_low / 2, 0.0, 1.0)).max(axis=1)
        # Near a share of zero the slope has no bound, but an integral: it is used where smaller.
        integral = _integral(np.log(sizes) / log_C - 1 + most / 2, C)
        pointwise = s_high / 2 - np.log(C * smallest) / log_C
        is_steep = pointwise > integral[:, np.newaxis]
        steep = np.where(is_steep, weight, 0.0).max(axis=1)
        gentle = np.where(is_steep, 0.0, weight * pointwise).max(axis=1)
        least = np.maximum(np.log(low + 1) / log_C - 1 + most / 2, 0.0)
        down = steep * integral + np.maximum(gentle - steep * least, 0.0)
    up, down = np.where(low > 0, [up, down], np.inf)  # an empty site: only its range is bounded
    rises, falls = 1 - 1 / C + 2 * down, 1 + 1 / C + np.maximum(2 * up, 0.5)
    # Or else: before and after, the score is at most that of a site this skewed without samples.
    spread = (high + 1) * (_largest_share(most * log_C, C) - 1 / C) + 1.5 + 1 / C
    by_range = np.minimum(spread, (high + 1) * (1 - 1 / C))
    moves: Floats = np.minimum(np.maximum(rises, falls), by_range)
    return moves


def _most_weight(level: Floats, skew: Floats, C: int) -> Floats:
    """Lemma 3: return the most of j w / (w + z)^3, where z = j L / N and j < C."""
    peak = np.where(skew <= 0.5, 0.5, np.maximum(1 - skew, skew / 2))
    j = np.minimum(C - 1.0, peak / np.maximum(level, 1e-300))
    z = j * level
    w = np.maximum(skew, 1 - z)
    return j * w / (w + z) ** 3


@lru_cache(maxsize=8)
def _skew_ranges(C: int) -> tuple[Floats, Floats, Floats, Floats]:
    """Cover the skewness by ranges: both ends, the largest and the smallest share within each."""
    ends = np.append(np.geomspace(1e-4, 1.0, 256), 1.0)
    low, high = np.append(0.0, ends[:-2]), ends[:-1]
    kl = high * math.log(C)
    smallest = np.where(kl >= -math.log1p(-1 / C) * (1 - 1e-9), 0.0, _smallest_share(kl, C))
    return low, high, _largest_share(kl, C), smallest


def _most_skew(betas: Floats, C: int, ramp: float, low: Floats, high: Floats) -> Floats:
    """Return the most 1 - H / log C at which the level is still below `ramp` times the mean.

    It is convex in the root of the size, so the larger of both ends of a range bounds it.
    """

    def at(size: Floats) -> Floats:
        root = np.sqrt(size / C)
        with np.errstate(divide="ignore"):
            most: Floats = (ramp * root + 0.5 / root) / betas
        return most

    return np.minimum(np.maximum(at(low), at(high + 1)), 1.0)


def _level_moves(
    betas: Floats, C: int, kl: Floats, low: Floats, high: Floats
) -> tuple[Floats, Floats]:
    """Lemma 2: the most that a sample raises, and lowers, the level, times C - 1 classes."""
    log_C = math.log(C)
    sizes = _ends(low, high)
    with np.errstate(divide="ignore"):
        factor = (C - 1) * betas / np.sqrt(low * C)
        up = factor * np.log(C * _largest_share(kl, C)) / log_C
        integral = _integral(np.log(sizes) / log_C - 1 + kl / log_C / 2, C)
        pointwise = -np.log(C * _smallest_share(kl, C)) / log_C + kl / log_C / 2
        down = factor * np.minimum(integral, pointwise)
    return up, down


def _ends(low: Floats, high: Floats) -> Floats:
    """Return the most samples of a range; the last one has no end, and its start is the worst."""
    return np.where(np.isfinite(high), high, low) + 1


def _integral(whole: Floats, C: int) -> Floats:
    """Return the integral of max(0, whole + log_C(1 / t)) over t from 0 to 1."""
    return np.maximum(whole, 0.0) + C ** np.minimum(whole, 0.0) / math.log(C)


def _largest_share(kl: Floats, C: int) -> Floats:
    """Return the largest share of a class within this Kullback-Leibler divergence from balance."""
    return _farthest_share(kl, C, 1.0)


def _smallest_share(kl: Floats, C: int) -> Floats:
    """Return the smallest share of a class within this divergence from balance."""
    return _farthest_share(kl, C, 0.0)


def _farthest_share(kl: Floats, C: int, end: float) -> Floats:
    """Return the share between balance and `end` from which on the divergence is larger."""
    inside, outside = np.full_like(kl, 1 / C), np.full_like(kl, end)
    for _ in range(_HALVINGS):
        middle = (inside + outside) / 2
        fits = _binary_divergence(middle, C) <= kl
        inside, outside = np.where(fits, middle, inside), np.where(fits, outside, middle)
    return outside


def _binary_divergence(share: Floats, C: int) -> Floats:
    """Return KL((p, 1 - p) || (1/C, 1 - 1/C)), the least of all shares with p among them."""
    p = np.clip(share, 1e-300, 1 - 1e-16)
    return p * np.log(C * p) + (1 - p) * (np.log1p(-p) - math.log1p(-1 / C))


@lru_cache(maxsize=8)
def _price_bounds(classes: int) -> Floats:
    """Theorems 4 and 5 of docs/proofs.md, as one column: sizes do not matter."""
    C, p = classes, preferred_numbers(-3, 0)[::-1]
    growth = np.minimum(C, p ** (-1 / 3)) / 3
    # In the number j of classes raised this is monotone: one end or the other is the worst.
    few, many = 3 / (1 + 3 * p), (2 * C - 1) / (1 + 3 * p * (C - 1))
    size = np.maximum(growth + np.maximum(few, many), 1.0)  # of the site afterwards
    samples = np.maximum(size - 1, 1.0)
    scores = np.maximum(np.minimum(3 - 1 / C, p + 2 * np.sqrt(p)), 2 * p * size)
    words = np.concatenate([[1.0, 1 + 1 / C], samples * _SAFE, scores * _SAFE])
    moves: Floats = words[:, np.newaxis]
    moves.setflags(write=False)
    return moves
