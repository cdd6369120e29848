"""Clients that differ in cost and limit, classes that differ in quality."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedeas import (
    Cost,
    FedEAS,
    InputError,
    LabelCounts,
    Plan,
    Target,
    Uniform,
    choose_beta,
)
from fedeas.planning import skew
from fedeas.planning.beta import beta_for_total
from fedeas.planning.policies import make_policy
from fedeas.planning.stream import plan_stream
from helpers.hypothesis_strategies import counts


@given(counts, st.integers(0, 2**32 - 1))
def test_a_client_with_its_own_limit_finds_its_row(c, seed):
    rng = np.random.default_rng(seed)
    t = Target(rng.uniform(0.05, 1, c.C).tolist())
    limits = rng.integers(0, 2000, c.K).tolist()
    rule = FedEAS(beta=9, target=t, limits=limits).plan(c)
    for n, row, limit in zip(c.n, rule.samples, limits, strict=True):
        np.testing.assert_array_equal(FedEAS(beta=9, target=t, limits=limit).local(n), row)


@given(counts, st.floats(1, 100), st.integers(0, 500))
def test_fedeas_keeps_to_a_limit_by_a_lower_budget(c, beta, limit):
    free, held = FedEAS(beta).plan(c), FedEAS(beta, limits=limit).plan(c)
    for n, a, b in zip(c.n, free.samples, held.samples, strict=True):
        assert b.sum() <= limit
        if a.sum() <= limit:
            np.testing.assert_array_equal(a, b)
        elif b.any():
            level = {int(x) for x in (n + b)[b > 0]}
            assert len(level) == 1
            more = np.where((n < level.copy().pop() + 1) & (a > 0), level.pop() + 1 - n, 0)
            assert more.sum() > limit


def test_beta_is_chosen_with_limits(paper):
    limits = dict.fromkeys(paper.client_names[:10], 100)
    rule = FedEAS(limits=limits)
    found = choose_beta(paper, policy=rule)
    assert found.beta > 12
    assert found.reduction >= 0.5 or found.chosen_by == "share"
    tight = choose_beta(paper, policy=FedEAS(limits=10))
    assert tight.chosen_by == "share"
    assert FedEAS(tight.beta, limits=10).plan(paper).total <= 10 * paper.K


def test_beta_is_chosen_for_what_all_sites_spend(paper):
    costs = np.linspace(0.5, 3, paper.K)
    beta = beta_for_total(paper, 5000.0, None, costs)
    assert costs @ FedEAS(beta).plan(paper).per_client <= 5000
    assert costs @ FedEAS(beta * 1.001).plan(paper).per_client > 5000 * 0.99


def test_samples_of_half_the_worth_count_half():
    c = LabelCounts([[100, 0], [60, 40]])
    plan = FedEAS(beta=12, quality=0.5).plan(c)
    assert plan.settings["quality"] == [0.5]
    assert plan.score_after == pytest.approx(skew.imbalance(c, plan.samples * 0.5))
    assert plan.scored_for(c, None).score_after == pytest.approx(skew.imbalance(c, plan.samples))
    assert "quality" not in FedEAS(beta=12).plan(c).settings


def test_a_stream_takes_one_limit_and_quality_for_all(tmp_path):
    pytest.importorskip("pyarrow")
    rng = np.random.default_rng(3)
    c = LabelCounts((rng.dirichlet([0.2] * 4, 2000) * 300).astype(int))
    file = tmp_path / "c.parquet"
    c.save(file)
    for policy in (
        FedEAS(beta=9, quality=[0.5, 1, 1, 0.8], limits=40, target=[1, 2, 3, 4]),
        FedEAS(beta=9, limits=40, target=[1, 2, 0, 4]),
    ):
        streamed, plan = plan_stream(file, policy), policy.plan(c)
        assert streamed.total == plan.total
        assert streamed.score_after == pytest.approx(plan.score_after, rel=1e-9)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"limits": [1, 2, 3]}, "1 or 2 values, a limit of client each"),
        ({"limits": -1}, "from 0"),
        ({"quality": 1.5}, "up to 1"),
        ({"quality": "x.csv"}, "x.csv"),
        ({"quality": {"9": 0.5}}, "not in the counts"),
    ],
)
def test_numbers_that_do_not_fit_are_refused(settings, said):
    with pytest.raises(InputError, match=said):
        FedEAS(beta=10, **settings).plan([[3, 1], [1, 4]])


def test_specs_take_them():
    policy = make_policy("fedeas(beta=9, limits=50, quality=0.5)")
    assert policy == FedEAS(beta=9, limits=50, quality=0.5)


# ---- the command line


@pytest.fixture
def files(tmp_path):
    c = LabelCounts(
        [[900, 100, 50], [400, 30, 10], [100, 300, 5]], ["a", "b", "c"], ["cat", "dog", "bird"]
    )
    c.save(tmp_path / "counts.csv")
    (tmp_path / "costs.csv").write_text("client,cost\na,2EUR\nb,0.5EUR\nc,1EUR\n")
    (tmp_path / "limits.csv").write_text("b,30\n")
    (tmp_path / "quality.json").write_text(
        json.dumps({"agreement": {"cat": 1, "dog": 0.9, "bird": 0.5}})
    )
    return tmp_path, c


def test_a_budget_is_spent_within_the_limits(fedeas, files):
    folder, c = files
    given_ = (
        "--cost", folder / "costs.csv", "--limits", folder / "limits.csv",
        "--quality", folder / "quality.json", "--spend", "200EUR", "--json",
    )  # fmt: skip
    made = json.loads(fedeas("plan", folder / "counts.csv", *given_).out)
    assert made["cost"]["unit"] == "EUR"
    assert 150 < made["cost"]["amount"] <= 200
    assert made["clients"][1]["generate"] <= 30
    samples = np.array([client["samples"] for client in made["clients"]])
    assert made["score_after"] == pytest.approx(skew.imbalance(c, samples, None, [1, 0.9, 0.5]))
    assert made["clients"][0]["cost"] == 2 * made["clients"][0]["generate"]


def test_a_plan_with_costs_by_site_survives_a_file(files):
    folder, c = files
    plan = FedEAS(beta=9, limits={"b": 30}).plan(c)
    plan = plan.with_cost(Cost.load(folder / "costs.csv", c.client_names))
    plan.save(folder / "plan.json")
    assert Plan.load(folder / "plan.json") == plan
    one = plan.with_cost(Cost(0.5, "EUR"))
    one.save(folder / "one.json")
    assert Plan.load(folder / "one.json").cost == Cost(0.5, "EUR")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--policy", "full-balance", "--limits", "limits.csv"], "takes no limits"),
        (["--policy", "uniform", "--cost", "costs.csv", "--spend", "9EUR"], "give a total"),
        (["--cost", "costs.csv", "--spend", "3h"], "different units"),
        (["--cost", "costs.csv", "--spend", "9EUR", "--total", "9"], "--spend or --total"),
        (["--cost", "costs.csv", "--spend", "9EUR", "--beta", "3"], "a beta or a total"),
        (["--cost", "limits.csv"], "no cost of client"),
        (["--quality", "limits.csv"], "not a quality of class"),
    ],
)
def test_what_does_not_go_together_is_one_clear_line(fedeas, files, monkeypatch, arguments, said):
    monkeypatch.chdir(files[0])
    made = fedeas("plan", "counts.csv", *arguments)
    assert made.code == 2
    assert said in made.err
    assert len(made.err.strip().splitlines()) == 1


def test_other_policies_are_priced_too(fedeas, files):
    folder, c = files
    made = json.loads(
        fedeas(
            "plan", folder / "counts.csv", "--policy", "uniform", "--total", "90",
            "--cost", folder / "costs.csv", "--json",
        ).out
    )  # fmt: skip
    assert made["cost"]["amount"] == pytest.approx(
        Uniform(total=90).plan(c).per_client @ [2, 0.5, 1]
    )
