r"""How far one sample moves a site's answer to `BetaQuery`: the bounds of docs/privacy_queries.md.

Each bound is a product of factors that only grow, or only shrink, with the site's size N. All sizes
are covered by ranges, and each factor is taken at the worse end of its range.
"""

import math
from functools import lru_cache

import numpy as np

from fedeas.privacy.queries.query import Floats

_SINGLE = 128  # sizes up to here are ranges of their own
_GROWTH = 1.02
_HALVINGS = 60
_SAFE = 1 + 1e-9  # far more than the floating point error of the bounds


def sample_moves(betas: Floats, classes: int, ramp: float) -> Floats:
    """Return, for every word (rows) and range of sizes (columns), the most that a sample moves it.

    The words are N, the score before, the samples at every beta and the scores at every beta.
    """
    low, high = _ranges(100.0 * classes * float(betas.max()) ** 2)
    size = np.ones((1, len(low)))
    before = (1 + 1 / classes) * size
    samples = _samples_move(betas[:, np.newaxis], classes, ramp, low, high)
    scores = np.array([_scores_move(beta, classes, low, high) for beta in betas.tolist()])
    moves: Floats = np.concatenate([size, before, samples * _SAFE, scores * _SAFE])
    return moves


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
    found: Floats = np.minimum(np.maximum(rises, falls), by_range)
    return found


def _most_weight(level: Floats, skew: Floats, C: int) -> Floats:
    """Lemma 3: return the most of j w / (w + z)^3, where z = j L / N and j < C."""
    peak = np.where(skew <= 0.5, 0.5, np.maximum(1 - skew, skew / 2))
    j = np.minimum(C - 1.0, peak / np.maximum(level, 1e-300))
    z = j * level
    w = np.maximum(skew, 1 - z)
    found: Floats = j * w / (w + z) ** 3
    return found


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
            found: Floats = (ramp * root + 0.5 / root) / betas
        return found

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
    found: Floats = np.maximum(whole, 0.0) + C ** np.minimum(whole, 0.0) / math.log(C)
    return found


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
    found: Floats = p * np.log(C * p) + (1 - p) * (np.log1p(-p) - math.log1p(-1 / C))
    return found
