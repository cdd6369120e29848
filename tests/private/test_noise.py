"""Noise in sums: exactly distributed, as much as promised, and at a cost whose bound holds."""

import contextlib
import math
from fractions import Fraction
from functools import reduce

import dp_accounting
import mpmath
import numpy as np
import pytest
from scipy import stats

from fedeas import InputError
from fedeas.private import accounting
from fedeas.private import noise as noise_module
from fedeas.private.accounting import epsilon_of, rho_for, rho_of, sigma_for
from fedeas.private.noise import LARGEST_SIGMA, SumNoise, discrete_gaussian

DELTA = 1e-6


def seeded(seed: int = 0) -> noise_module.Randomness:
    return np.random.default_rng(seed).bytes


def probabilities(variance: float, reach: int) -> np.ndarray:
    """The exact probabilities of -reach..reach; what lies beyond is beneath notice."""
    weights = np.exp(-(np.arange(-reach, reach + 1) ** 2) / (2 * variance))
    return weights / weights.sum()


def p_value(drawn: np.ndarray, variance: float) -> float:
    """Of a chi-square test against a discrete Gaussian, in at most about 50 cells."""
    reach = math.ceil(12 * math.sqrt(variance)) + 2
    expected = probabilities(variance, reach) * len(drawn)
    observed = np.bincount(drawn + reach, minlength=2 * reach + 1)
    cells = np.unique(
        np.floor(50 * np.cumsum(expected) / len(drawn)).astype(int), return_inverse=True
    )[1]
    observed, expected = np.bincount(cells, observed), np.bincount(cells, expected)
    return float(stats.chisquare(observed, expected).pvalue)


# The sampler


@pytest.mark.parametrize(
    "variance", [Fraction(1, 3), Fraction(1), Fraction(9, 4), Fraction(1600, 14), Fraction(10**6)]
)
def test_the_sampler_has_the_exact_distribution(variance):
    drawn = discrete_gaussian(variance, 200_000, seeded(1))
    assert p_value(drawn, float(variance)) > 1e-3
    # The same test tells other distributions apart: one that is 3 % wider, a rounded normal one.
    wider = discrete_gaussian(variance * Fraction(103, 100), 200_000, seeded(2))
    assert p_value(wider, float(variance)) < 1e-3
    if variance < 1:
        rounded = np.random.default_rng(3).normal(0, math.sqrt(variance), 200_000).round()
        assert p_value(rounded.astype(int), float(variance)) < 1e-3


def test_it_is_the_same_where_exact_arithmetic_decides(monkeypatch):
    """One choice in 2**39 is decided by it; here nearly every third."""
    asked = []
    decided = noise_module._decided
    monkeypatch.setattr(noise_module, "_DOUBT", 0.15)
    monkeypatch.setattr(noise_module, "_decided", lambda *a: asked.append(1) or decided(*a))
    variance = Fraction(7, 2)
    drawn = discrete_gaussian(variance, 2_000, seeded(4))
    assert len(asked) > 1_000
    assert p_value(drawn, float(variance)) > 1e-3


@pytest.mark.parametrize("exponent", [Fraction(1), Fraction(1, 7), Fraction(123_456, 1_000), 0])
def test_exact_arithmetic_decides_by_as_many_bits_as_it_takes(exponent):
    """A uniform number that agrees with exp(-x) in 181 bits, and is then above or below."""
    with mpmath.workprec(600):
        x = mpmath.mpf(Fraction(exponent).numerator) / Fraction(exponent).denominator
        limit = int(mpmath.floor(mpmath.exp(-x) * 2**181)) - (exponent == 0)
    for wrong, below in ((-5, True), (5, False)):
        bits = limit + wrong
        if bits >= 2**181:
            continue
        rest = iter([(bits >> 64 & 2**64 - 1).to_bytes(8), (bits & 2**64 - 1).to_bytes(8)])
        found = noise_module._decided(
            bits >> 128, 53, Fraction(exponent), lambda _, r=rest: next(r)
        )
        assert found is below
        assert not list(rest)  # it could not be known from fewer bits


def test_parts_of_any_size_have_their_variance():
    for sigma in (1.0, 1e3, 1e6, LARGEST_SIGMA):
        drawn = SumNoise(sigma * math.sqrt(3), honest=3).part(20_000, seeded(5)).astype(float)
        assert drawn.var() == pytest.approx(sigma**2, rel=5 * math.sqrt(2 / 20_000))
        assert abs(drawn.mean()) < 5 * sigma / math.sqrt(20_000)
    assert len(SumNoise(1.0, 1).part(0)) == 0


def test_parts_come_from_the_randomness_that_is_passed_in():
    noise = SumNoise(10.0, honest=3)
    assert (noise.part(1000, seeded(1)) == noise.part(1000, seeded(1))).all()
    assert (noise.part(1000, seeded(1)) != noise.part(1000, seeded(2))).any()
    assert (noise.part(1000) != noise.part(1000)).any()  # the operating system's
    with pytest.raises(InputError, match="exhausted"):
        noise.part(10, lambda _: b"few")


@pytest.mark.parametrize(
    ("sigma", "honest"),
    [(0.0, 3), (-1.0, 3), (math.nan, 3), (math.inf, 3), (2.0**41, 1), (1.0, 0), (1.0, -2)],
)
def test_noise_that_cannot_be_drawn_is_refused(sigma, honest):
    with pytest.raises(InputError):
        SumNoise(sigma, honest)


# As much noise as promised


def test_the_noise_is_there_with_all_sites_and_with_a_third_gone():
    """And the test fails if one of the parts that must be there is left out."""
    sites, gone, draws, words = 15, 5, 1000, 64
    noise = SumNoise(sigma=12.0, honest=sites - gone)
    parts = [noise.part(draws * words, seeded(k)) for k in range(sites)]
    lowest = 1 - 4 * math.sqrt(2 / (draws * words))  # four standard errors of a variance

    def promise_kept(present: list[np.ndarray]) -> bool:
        return np.sum(present, axis=0).var() >= lowest * noise.sigma**2

    assert promise_kept(parts)
    assert promise_kept(parts[gone:])
    assert not promise_kept(parts[gone + 1 :])
    assert np.sum(parts, axis=0).var() == pytest.approx(noise.sigma**2 * 15 / 10, rel=0.03)


# What it costs


def summed(parts: int, variance: float) -> np.ndarray:
    """The probabilities of the sum of discrete Gaussians, by convolution in one dimension."""
    one = probabilities(variance, math.ceil(9 * math.sqrt(variance * parts)) + 3)
    found = reduce(np.convolve, [one] * parts)
    middle = len(found) // 2
    # Far out the numbers are too small to be held; what is cut off has probability 1e-15.
    reach = math.ceil(8 * math.sqrt(variance * parts)) + 2
    return found[middle - reach : middle + reach + 1]


def exact_delta(probability: np.ndarray, shift: int, epsilon: float) -> float:
    """The smallest delta for an epsilon: by definition, over all outcomes."""
    there = np.pad(probability, (0, shift))
    moved = np.pad(probability, (shift, 0))
    return float(np.maximum(0, there - math.exp(epsilon) * moved).sum())


def exact_renyi(probability: np.ndarray, shift: int, order: float) -> float:
    """The Renyi divergence between the sum and the sum moved by `shift`."""
    with np.errstate(divide="ignore"):
        log = np.log(probability)
    there, moved = log[shift:], log[: len(log) - shift]
    return float(np.log(np.exp(order * there + (1 - order) * moved).sum()) / (order - 1))


@pytest.mark.parametrize("shift", [1, 3])
@pytest.mark.parametrize(
    ("parts", "part_sigma"), [(2, 1.1), (3, 1.3), (14, 1.2), (40, 1.3), (5, 4)]
)
def test_the_bound_holds_by_numerical_integration(parts, part_sigma, shift):
    """The exact privacy curve of the sum is below the one that its rho allows."""
    noise = SumNoise(part_sigma * math.sqrt(parts), parts)
    rho = rho_of(noise, shift, words=1)
    probability = summed(parts, part_sigma**2)
    for order in (1.1, 1.5, 2, 3, 5):
        assert exact_renyi(probability, shift, order) <= order * rho * (1 + 1e-9)
    for epsilon in (0.1, 0.5, 1, 2, 4):
        delta = exact_delta(probability, shift, epsilon)
        if delta > 1e-12:
            assert epsilon <= epsilon_of([rho], delta)
    # It is no loose bound either: 1 % more sigma than a single Gaussian would need, at most.
    assert rho <= 1.011 * shift**2 / (2 * noise.sigma**2)


@pytest.mark.parametrize("parts", [2, 4, 10])
@pytest.mark.parametrize("part_sigma", [0.5, 0.6, 0.7, 0.9])
def test_where_parts_are_small_the_formula_holds_and_the_plain_gaussian_does_not(parts, part_sigma):
    """Without the terms in tau the cost would be understated, which is what they are there for."""
    noise = SumNoise(part_sigma * math.sqrt(parts), parts)
    excess = accounting._excess(noise, words=1)
    probability = summed(parts, part_sigma**2)
    reach = len(probability) // 2
    near = slice(reach - math.ceil(4 * noise.sigma), reach + math.ceil(4 * noise.sigma) + 1)
    ratio = np.log(probability / probabilities(noise.sigma**2, reach))[near]
    assert np.abs(ratio).max() <= excess / 2  # the lemma that the theorem rests on
    plain = 1 / noise.sigma
    costs = [exact_renyi(probability, 1, order) / order for order in (1.1, 1.5, 2, 3, 5)]
    assert max(costs) <= (plain + excess) ** 2 / 2
    if part_sigma <= 0.7:
        assert max(costs) > 1.001 * plain**2 / 2
        with pytest.raises(InputError, match="epsilon is too large"):
            rho_of(noise, 1, words=1)


def test_sigma_and_rho_are_inverse():
    for rho in (1e-4, 0.01, 0.3):
        for honest, words, sensitivity in ((1, 10, 1), (3, 38, 1000), (67, 10**6, 2**20)):
            sigma = sigma_for(rho, sensitivity, honest=honest, words=words)
            cost = rho_of(SumNoise(sigma, honest), sensitivity, words)
            assert 0.98 * rho < cost <= rho


def units_for(rho: float, sensitivity: float, *, honest: int, words: int) -> int:
    """Return the power of two by which values are multiplied so that every part is large enough."""
    for units in (2**power for power in range(20)):
        with contextlib.suppress(InputError):
            sigma_for(rho, units * sensitivity, honest=honest, words=words)
            return units
    raise AssertionError("no units are fine enough")


def test_finer_units_make_parts_large_enough():
    with pytest.raises(InputError, match="epsilon is too large") as refused:
        sigma_for(0.02, 1, honest=100, words=10)
    assert "\n" not in str(refused.value)
    units = units_for(0.02, 1, honest=100, words=10)
    sigma = sigma_for(0.02, units, honest=100, words=10)
    assert sigma / units == pytest.approx(5, rel=0.01)  # 1 / sqrt(2 rho), whatever the units


def test_epsilon_is_that_of_dp_accounting():
    for multiplier in (0.5, 1.0, 5.0, 50.0):
        rho = 1 / (2 * multiplier**2)
        exact = dp_accounting.get_epsilon_gaussian(multiplier, DELTA)
        ours = epsilon_of([rho / 4] * 4, DELTA)
        assert exact < ours < 1.25 * exact
        default = dp_accounting.rdp.RdpAccountant().compose(dp_accounting.ZCDpEvent(rho))
        assert ours < default.get_epsilon(DELTA) * 1.001  # our orders are finer
    assert epsilon_of([], DELTA) == 0


@pytest.mark.parametrize("epsilon", [0.01, 1.0, 3.0, 10.0, 500.0])
def test_rho_for_is_the_largest_that_fits(epsilon):
    rho = rho_for(epsilon, DELTA)
    assert epsilon_of([rho], DELTA) <= epsilon < epsilon_of([1.0001 * rho], DELTA)


@pytest.mark.parametrize(
    "call",
    [
        lambda: rho_for(0.0, DELTA),
        lambda: rho_for(math.nan, DELTA),
        lambda: rho_for(1.0, 0.0),
        lambda: rho_for(1.0, 1.0),
        lambda: sigma_for(0.0, 1, honest=1, words=1),
        lambda: sigma_for(0.1, 0, honest=1, words=1),
        lambda: rho_of(SumNoise(1.0, 1), math.inf, 1),
        lambda: rho_of(SumNoise(1.0, 1), 1, 0),
    ],
)
def test_amounts_out_of_range_are_refused(call):
    with pytest.raises(InputError):
        call()


# An audit with canaries


def audited(epsilon: float, runs: int, strength: float = 1.0) -> float:
    """The epsilon that sums with and without one sample prove, with 95 % confidence.

    Class totals of ten classes over two sites that add noise. The server knows every other sample
    and looks at the canary's class alone, which is the best linear test: other classes tell
    nothing. Thresholds are fixed beforehand; Clopper-Pearson bounds hold for all of them together.
    """
    classes, canary, honest = 10, 3, 2
    rho = rho_for(epsilon, DELTA)
    units = units_for(rho, 1, honest=honest, words=classes)
    sigma = sigma_for(rho, units, honest=honest, words=classes)
    noise = SumNoise(sigma * strength, honest)
    totals = np.arange(classes) * 100 * units

    def sums(seed: int) -> np.ndarray:
        added = [noise.part(runs * classes, seeded(seed + k)) for k in range(honest)]
        return totals + np.sum(added, axis=0).reshape(runs, classes)

    without, present = sums(10)[:, canary], sums(20)[:, canary] + units
    best = 0.0
    thresholds = (units / 2, units + sigma, units + 2 * sigma)
    level = 0.05 / (2 * len(thresholds))
    for threshold in thresholds:
        false = int((without - totals[canary] > threshold).sum())
        true = int((present - totals[canary] > threshold).sum())
        most_false = stats.beta.ppf(1 - level, false + 1, runs - false)
        least_true = stats.beta.ppf(level, true, runs - true + 1) if true else 0.0
        if least_true > DELTA:
            best = max(best, math.log((least_true - DELTA) / most_false))
    return best


@pytest.mark.parametrize(
    ("epsilon", "runs"), [(1.0, 30_000), pytest.param(10.0, 110_000, marks=pytest.mark.slow)]
)
def test_an_audit_finds_no_more_than_is_claimed_and_catches_a_tenth_of_the_noise(epsilon, runs):
    found = audited(epsilon, runs)
    assert 0.1 * epsilon < found < epsilon
    assert audited(epsilon, runs, strength=0.1) > epsilon
