import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedeas import LabelCounts
from fedeas.planning import skew
from helpers.hypothesis_strategies import counts


@given(counts, st.randoms(use_true_random=False))
def test_the_split_of_the_score_is_exact(c, random):
    added = np.array([[random.randrange(100) for _ in row] for row in c.n]) * (c.sizes > 0)[:, None]
    for g in (0, added):
        assert sum(skew.split(c, g)) == pytest.approx(skew.imbalance(c, g), abs=1e-12)


@given(counts)
def test_the_gain_is_the_derivative_of_the_score(c):
    gain = skew.gain(c)
    for k in range(c.K):
        for j in range(c.C):
            step = np.zeros(c.n.shape)
            step[k, j] = 1e-4 * c.sizes[k]  # a thousandth of a per cent more samples
            if c.sizes[k] == 0:
                assert gain[k, j] == 0
                continue
            up, down = skew.imbalance(c, step), skew.imbalance(c, -step)
            slope = (down - up) / (2 * step[k, j])
            assert slope == pytest.approx(gain[k, j], abs=1e-6 / c.total)


@given(counts)
def test_skewness_is_one_minus_the_textbook_entropy(c):
    for n, found in zip(c.n, skew.skewness(c), strict=True):
        q = n[n > 0] / max(n.sum(), 1)
        entropy = -(q * np.log(q)).sum() / np.log(c.C) if q.size else 1.0
        assert found == pytest.approx(1 - entropy, abs=1e-12)


@given(counts)
def test_bounds_of_the_score(c):
    assert 0 <= skew.imbalance(c) <= 1 - 1 / c.C + 1e-12
    assert skew.imbalance(c, c.n.max(axis=1, keepdims=True) - c.n) == pytest.approx(0, abs=1e-15)


def test_an_empty_client_weighs_nothing():
    with_empty = LabelCounts([[5, 1, 0], [0, 0, 0]])
    alone = LabelCounts([[5, 1, 0]])
    assert skew.imbalance(with_empty) == skew.imbalance(alone)
    assert skew.split(with_empty) == skew.split(alone)
    assert not skew.gain(with_empty)[1].any()


def test_harmful_samples_are_those_at_negative_gain(paper):
    g = np.full(paper.n.shape, 3)
    assert skew.negative_gain(paper, g) == 3 * (skew.gain(paper) < 0).sum()


@given(counts)
def test_concentration_ends_at_one_and_falls_in_slope(c):
    found = skew.concentration(c, np.ones(c.n.shape))
    assert found.budget[-1] == pytest.approx(1)
    if skew.imbalance(c) > 0:
        assert found.imbalance[-1] == pytest.approx(1)
        assert (np.diff(found.imbalance, 2) <= 1e-12).all()
