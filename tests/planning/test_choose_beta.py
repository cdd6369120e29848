import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fedeas import FedEAS, FullBalance, InfeasibleError, InputError, LabelCounts, WaterFill, compare
from fedeas.planning.beta import (
    admissible_betas,
    beta_for_total,
    path,
    plainest_number,
)
from fedeas.planning.plan import Overfill, overfilled
from helpers.hypothesis_strategies import betas, counts


def holds(c, beta, min_reduction=0.5, max_share=0.25):
    plan = FedEAS(beta=beta).plan(c)
    return plan.reduction >= min_reduction - 1e-12 and plan.synthetic_share < max_share


def test_the_papers_interval_and_choice(paper):
    interval = admissible_betas(paper)
    assert interval.choice == 12
    assert interval.low == pytest.approx(11.373, abs=5e-4)
    assert interval.high == pytest.approx(13.287, abs=5e-4)


@given(counts, st.floats(0.05, 0.9), st.floats(0.05, 0.9))
def test_both_conditions_hold_inside_and_not_at_the_ends(c, min_reduction, max_share):
    try:
        interval = admissible_betas(c, min_reduction, max_share)
    except InfeasibleError:
        return
    for low, high in [(interval.low, interval.high), *interval.others]:
        for beta in np.linspace(low, high * (1 - 1e-8), 7):
            assert holds(c, beta, min_reduction, max_share)
        assert not holds(c, low * (1 - 1e-8), min_reduction, max_share)
        assert not holds(c, high, min_reduction, max_share)
    assert holds(c, interval.choice, min_reduction, max_share)


small = arrays(
    np.int64, st.tuples(st.integers(1, 4), st.integers(2, 4)), elements=st.integers(0, 40)
)


@given(small.filter(lambda n: n.any()).map(LabelCounts), st.floats(0.1, 0.9), st.floats(0.1, 0.9))
def test_the_intervals_are_all_of_the_admissible_betas(c, min_reduction, max_share):
    """Against every beta of a dense grid, gaps included."""
    try:
        found = admissible_betas(c, min_reduction, max_share)
        intervals = [(found.low, found.high), *found.others]
    except InfeasibleError:
        intervals = []
    betas = np.geomspace(1e-2, 1e4, 3000)
    on_path = path(c, betas)
    good = (on_path.reductions >= min_reduction - 1e-12) & (on_path.shares < max_share)
    inside = np.any(
        [np.zeros(len(betas)), *((low <= betas) & (betas < high) for low, high in intervals)],
        axis=0,
    )
    np.testing.assert_array_equal(good, inside)


def test_gaps_between_admissible_betas_are_seen():
    """Reduction is no monotone function of beta: 360 fails between two intervals that hold."""
    c = LabelCounts([[35, 21, 34], [38, 26, 35], [39, 33, 25]])
    found = admissible_betas(c)
    assert len(found.others) == 4
    assert not holds(c, 360)
    assert not any(low <= 360 < high for low, high in [(found.low, found.high), *found.others])


def test_millions_of_steps_are_closed_in_on(monkeypatch, paper):
    exact, beta = admissible_betas(paper), beta_for_total(paper, 9999)
    monkeypatch.setattr("fedeas.planning.beta._MOST_CELLS", 0)
    close = admissible_betas(paper)
    assert close.low == pytest.approx(exact.low, rel=1e-8)
    assert close.high == pytest.approx(exact.high, rel=1e-8)
    assert beta_for_total(paper, 9999) == pytest.approx(beta, rel=1e-7)
    for total in (1, 7, 50, 1000, 13437, 10**6):
        try:
            assert 0 < FedEAS(beta=beta_for_total(paper, total)).plan(paper).total <= total
        except InfeasibleError:
            assert total < 20


def test_rules_that_grow_fast(paper):
    rule = FedEAS(size_exponent=2)
    beta = beta_for_total(paper, 13437, rule)
    assert 13000 < replace(rule, beta=beta).plan(paper).total <= 13437
    huge = LabelCounts([[10**12, 5, 7], [3, 10**11, 9]])
    assert beta_for_total(huge, 1000, rule) > 0


def test_exactly_at_the_threshold_is_enough():
    found = admissible_betas(
        LabelCounts([[1, 1], [0, 2], [1, 2], [1, 2]]), 0.75, 0.3, FedEAS(size_exponent=2.0)
    )
    assert found.low > 0


def test_when_nothing_is_admissible_it_says_how_far_one_gets(paper):
    with pytest.raises(InfeasibleError, match=r"at most 55\.\d% of the imbalance"):
        admissible_betas(paper, min_reduction=0.9)
    with pytest.raises(InfeasibleError, match="balanced already"):
        admissible_betas(LabelCounts([[5, 5]]))
    with pytest.raises(InputError, match="max_share"):
        admissible_betas(paper, max_share=1.0)


@given(counts, betas)
def test_the_path_is_the_plan_at_every_beta(c, beta):
    found = path(c, np.array([beta, 2 * beta]))
    for i, b in enumerate(found.betas):
        plan = FedEAS(beta=b).plan(c)
        assert found.totals[i] == plan.total
        assert found.reductions[i] == pytest.approx(plan.reduction, abs=1e-12)
        assert found.shares[i] == pytest.approx(plan.synthetic_share, abs=1e-12)


@given(counts, st.integers(1, 10**6))
def test_the_beta_of_a_total_is_the_largest_within_it(c, total):
    try:
        beta = beta_for_total(c, total)
    except InfeasibleError:
        return
    assert 0 < FedEAS(beta=beta).plan(c).total <= total
    assert FedEAS(beta=beta * (1 + 1e-6)).plan(c).total > total or beta < 1e-6


def test_the_papers_totals_give_back_their_betas(paper):
    for beta, total in ((4, 4113), (8, 8673), (12, 13437), (16, 18435), (20, 23514)):
        found = beta_for_total(paper, total)
        assert beta <= found < beta + 0.1
        assert FedEAS(beta=found).plan(paper).total == total


@given(st.floats(1e-6, 1e6), st.floats(1.0000001, 10))
def test_the_plainest_number_lies_inside(low, factor):
    assert low <= plainest_number(low, low * factor) < low * factor


def test_the_matched_table(paper):
    rows = {row.policy: row for row in compare(paper)}
    assert {name: round(row.reduction, 4) for name, row in rows.items()} == {
        "fedeas": 0.5178,
        "uniform": 0.3718,
        "missing-only": 0.4424,
        "waterfill": 0.5326,
        "full-balance": 1.0,
        "copies": 0.4845,
    }
    assert rows["uniform"].negative_gain == 1679
    assert rows["fedeas"].negative_gain == 0
    assert rows["missing-only"].pairs == 95
    assert {rows[name].total for name in ("fedeas", "uniform", "missing-only", "waterfill")} == {
        13437
    }


@given(counts, betas)
def test_every_row_of_a_comparison_is_complete_or_says_why_not(c, beta):
    comparison = compare(c, reference=FedEAS(beta=beta))
    for row in comparison:
        if row.note is None:
            assert None not in (row.total, row.reduction, row.synthetic_share, row.negative_gain)
        else:
            assert row.policy == "missing-only"


# A small skewed site beside two large ones: the beta that suits them is far too much for it.
SITES = LabelCounts(
    [[900, 700, 300, 150, 100, 100], [55, 20, 0, 0, 0, 0], [80, 200, 90, 150, 300, 260]],
    ["large", "small", "other"],
)


def test_a_client_that_is_filled_beyond_its_largest_class_is_found():
    found = overfilled(SITES, FedEAS(beta=72).plan(SITES))
    assert found == Overfill(1, "small", largest=55, filled_to=172, samples=688, full=255)
    assert overfilled(SITES, FedEAS(beta=23.41).plan(SITES)) is None
    assert overfilled(SITES, FedEAS(beta=23.42).plan(SITES)).filled_to == 56
    assert overfilled(SITES, FullBalance().plan(SITES)) is None
    assert overfilled(SITES, WaterFill(total=900).plan(SITES)) is None


@given(counts, betas)
def test_who_is_filled_beyond_the_largest_class_is_counted(c, beta):
    plan = FedEAS(beta=beta).plan(c)
    scarce = (plan.samples > 0) & (c.n * c.C < c.sizes[:, None])
    beyond = (np.where(scarce, c.n + plan.samples, 0) > c.n.max(axis=1, keepdims=True)).any(axis=1)
    found = overfilled(c, plan)
    assert (found.clients if found else 0) == beyond.sum()
    if found is not None:
        assert found.filled_to > found.largest


def test_plans_say_where_they_go_beyond_full_balance(fedeas, tmp_path):
    path = tmp_path / "counts.csv"
    SITES.save(path)
    chosen = fedeas("plan", path)
    said = (
        "note: 1 client is filled beyond its largest class: small (largest 55, filled to 172; 688 "
        "samples where full balance takes 255); use a smaller --beta or --total, or --policy "
        "waterfill"
    )
    assert said in chosen.err.splitlines()
    assert said in fedeas("plan", path, "--beta", 72).err.splitlines()
    for command in (["plan"], ["plan", "--beta", 72]):
        told = json.loads(fedeas(command[0], path, *command[1:], "--json").out)["overfilled"]
        assert (told["client"], told["samples"], told["full"]) == ("small", 688, 255)
    assert "filled beyond" not in fedeas("plan", path, "--beta", 23).err
    spread = fedeas("plan", path, "--policy", "waterfill", "--total", 1121)
    assert "filled beyond" not in spread.err


def test_a_share_beyond_the_rule_is_said(fedeas, paper_csv):
    said = "note: 49.0 % of all samples would be synthetic, above the 25 %"
    spent = fedeas("plan", paper_csv, "--cost", "0.25s", "--spend", "3h")
    assert said in spent.err, spent.err
    assert "synthetic, above" not in fedeas("plan", paper_csv).err


def test_the_reference_brings_its_settings(paper):
    variant = FedEAS(beta=6, entropy=False)
    comparison = compare(paper, ["fedeas", "uniform"], variant)
    assert [row.total for row in comparison] == [10337, 10337]
