import time
from contextlib import suppress
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedeas import (
    FedEAS,
    FullBalance,
    InfeasibleError,
    LabelCounts,
    MissingOnly,
    Uniform,
    WaterFill,
)
from fedeas.planning import skew
from helpers.greedy_reference import Greedy
from helpers.hypothesis_strategies import counts

PAPER = {4113: 25.24, 8673: 41.23, 13437: 53.26, 18435: 62.70, 23514: 69.96}


@pytest.mark.parametrize("total", PAPER)
def test_it_equals_the_greedy_reference_on_the_papers_partition(paper, total):
    water, greedy = WaterFill(total=total).plan(paper), Greedy(total=total).plan(paper)
    assert water.total == greedy.total == total
    assert 100 * water.reduction == pytest.approx(PAPER[total], abs=0.005)
    assert water.reduction == pytest.approx(greedy.reduction, abs=1e-6)


def rounding(c: LabelCounts, samples: np.ndarray) -> float:
    """What whole samples can cost: raised classes differ by one, which is at most C / 4 in sum."""
    M = np.maximum((c.n + samples).sum(axis=1), 1)
    return float((skew.weights(c) * (c.C / 4 + 1) / M**2).sum()) + 1e-12


@given(counts, st.integers(1, 3000), st.integers(0, 2**32 - 1), st.sampled_from([1, 1000]))
def test_no_policy_of_the_same_total_has_a_lower_score(c, total, seed, scale):
    c, total = LabelCounts(c.n * scale), total * scale
    rng = np.random.default_rng(seed)
    pairs = np.repeat(c.sizes > 0, c.C)
    others = [
        rng.multinomial(total, pairs / pairs.sum()).reshape(c.n.shape),
        Uniform(total=total).plan(c).samples,
        FedEAS(beta=rng.uniform(1, 30)).plan(c).samples,
    ]
    with suppress(InfeasibleError):
        others.append(MissingOnly(total=total).plan(c).samples)
    if scale == 1:
        others.append(Greedy(total=total).plan(c).samples)
    for samples in others:
        water = WaterFill(total=int(samples.sum())).plan(c)
        assert water.score_after <= skew.imbalance(c, samples) + rounding(c, water.samples)


@given(
    st.lists(st.lists(st.integers(0, 9), min_size=3, max_size=3), min_size=2, max_size=2).filter(
        lambda rows: all(map(any, rows))
    ),
    st.integers(1, 5),
)
def test_no_single_sample_is_better_spent_elsewhere(rows, total):
    """Whole samples: moving any one of them to any other place does not lower the score."""
    c = LabelCounts(rows)
    water = WaterFill(total=total).plan(c)
    for source, target in product(
        zip(*np.nonzero(water.samples), strict=True), np.ndindex(c.n.shape)
    ):
        moved = water.samples.copy()
        moved[source] -= 1
        moved[target] += 1
        if moved.sum(axis=1).max() <= FullBalance().plan(c).per_client.max():
            assert skew.imbalance(c, moved) >= water.score_after - 1e-12


def test_it_is_the_best_of_all_plans_of_small_federations():
    """Against all plans of whole samples, by dynamic programming over clients."""
    rng = np.random.default_rng(0)
    excess = []
    for _ in range(300):
        c = LabelCounts(np.maximum(rng.integers(0, 10, (rng.integers(1, 4), 3)), [[0, 0, 1]]))
        total = int(rng.integers(1, 8))
        if total <= FullBalance().plan(c).total:
            found = WaterFill(total=total).plan(c)
            excess.append((found.score_after - best_score(c, total)) / found.score_before)
    assert len(excess) > 200
    assert -1e-12 < min(excess) <= max(excess) < 1e-9


def best_score(c: LabelCounts, total: int) -> float:
    """The lowest score of any plan of a total: the best of each client, best shared out."""
    best = np.array([0.0, *[np.inf] * total])
    for k, n in enumerate(c.n):
        own = []
        for m in range(total + 1):
            level = n.copy()
            for _ in range(m):
                level[level.argmin()] += 1
            own.append(skew.weights(c)[k] * skew.deviation(level))
        best = np.array([min(best[m - i] + own[i] for i in range(m + 1)) for m in range(total + 1)])
    return float(best[total])


@given(counts, st.integers(0, 10**7))
def test_it_spends_the_total_or_stops_when_everything_is_balanced(c, total):
    plan = WaterFill(total=total).plan(c)
    full = FullBalance().plan(c).total
    assert plan.total == min(total, full)
    if total >= full:
        assert plan.score_after == pytest.approx(0, abs=1e-12)


@given(counts, st.integers(0, 5000))
def test_each_client_raises_its_smallest_classes_to_one_level(c, total):
    samples = WaterFill(total=total).plan(c).samples
    after = c.n + samples
    for n, g, m in zip(c.n, samples, after, strict=True):
        if g.any():
            level = m[g > 0]
            assert level.max() - level.min() <= 1
            assert n[g == 0].min(initial=m.max()) >= level.max() - 1


def test_tied_clients_share_a_total_in_order():
    plan = WaterFill(total=1500).plan(LabelCounts(np.tile([[30, 10]], (1000, 1))))
    assert plan.total == 1500
    np.testing.assert_array_equal(np.unique(plan.per_client), [1, 2])


def test_its_time_does_not_grow_with_the_total(paper):
    """Greedy takes a step a sample; water-filling a bisection, whatever the total."""

    def seconds(policy, c) -> float:
        times = []
        for _ in range(5):
            begun = time.process_time()
            assert policy.plan(c).total == policy.total
            times.append(time.process_time() - begun)
        return min(times)

    few, many = (WaterFill(total=total) for total in (10**4, 10**6))
    c = LabelCounts(paper.n * 10)
    assert seconds(many, c) < 5 * seconds(few, c)
