"""Beta from noisy sums, and what an attack reads from them: small versions of two benchmarks."""

import importlib
import math
from pathlib import Path

import numpy as np
import pytest

from fedeas_private.queries.effects import BetaQuery


@pytest.fixture
def benchmark(monkeypatch):
    """Import a benchmark by its name."""
    monkeypatch.syspath_prepend(Path(__file__).parents[1] / "benchmarks")
    return importlib.import_module


def test_beta_at_epsilon_1_is_near_the_one_from_plain_counts(benchmark):
    """Within one step in 90 % of federations of 20 sites, and in 99 % of 100 sites."""
    study = benchmark("private_beta")
    for sites, wanted in ((20, 0.9), (100, 0.99)):
        found = study.compare((study.draw(sites, d), d) for d in range(100))["1"]
        assert found["near query"] >= wanted
        assert found["near rule"] >= wanted
    # The comparison can fail: with the noise of an epsilon of 0.02 beta is anything.
    study.EPSILONS = (0.02,)
    try:
        assert study.compare((study.draw(20, d), d) for d in range(50))["0.02"]["near rule"] < 0.6
    finally:
        study.EPSILONS = (1.0, 4.0)


def test_the_noise_of_an_epsilon_is_the_one_that_was_derived(benchmark):
    """rho = D^2 / (2 sigma^2), and epsilon = rho + 2 sqrt(rho log(1 / delta))."""
    query = BetaQuery(10)
    for epsilon in (1.0, 4.0):
        sigma = benchmark("private_beta").sigma_of(query, epsilon)
        rho = query.sensitivity**2 / (2 * sigma**2)
        assert rho + 2 * math.sqrt(rho * math.log(1e6)) == pytest.approx(epsilon)


def test_an_attack_on_noised_sums_is_hardly_better_than_guessing(benchmark):
    """Of 20 sites at epsilon = 1; on the exact sums of 3 sites the same attack is far better."""
    study = benchmark("negotiation_leak")

    def errors(sites: int, epsilon: float) -> tuple[float, float]:
        each = [study.attack(sites, [epsilon], seed, 500) for seed in range(3)]
        return tuple(np.mean([list(one.values()) for one in each], axis=0))

    guessing, attacking = errors(3, math.inf)
    assert attacking < 0.75 * guessing
    guessing, attacking = errors(20, 1.0)
    assert attacking > 0.8 * guessing
