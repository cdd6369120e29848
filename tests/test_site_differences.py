"""Sites that differ in cost and limit, classes that differ in quality: the optimum at a price."""

import json
from itertools import product

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from fedeas import (
    Cost,
    FedEAS,
    InputError,
    LabelCounts,
    Plan,
    Target,
    Uniform,
    WaterFill,
    choose_beta,
)
from fedeas.planning import skew
from fedeas.planning.beta import beta_for_total
from fedeas.planning.policies import make_policy
from fedeas.planning.policies.levels import ConstrainedWaterFill, TargetLevels
from fedeas.planning.stream import plan_stream
from strategies import counts

# Beyond a factor of five the score need not be convex in what a client spends.
QUALITIES = st.floats(0.2, 1)


@st.composite
def sites(draw, quality=QUALITIES):
    """Counts, a target for all classes, and a cost, a limit and a quality each."""
    c = draw(counts)
    shares = draw(st.lists(st.floats(0.05, 1), min_size=c.C, max_size=c.C))
    rho = draw(st.lists(quality, min_size=c.C, max_size=c.C))
    costs = draw(st.lists(st.floats(0.2, 5), min_size=c.K, max_size=c.K))
    limits = draw(st.lists(st.integers(0, 2000), min_size=c.K, max_size=c.K))
    return c, Target(shares), rho, costs, limits


def rounding(c, water, policy, costs) -> float:
    """What whole samples can cost: classes are off by one, and the last one may cost too much."""
    n = c.n + water.samples * np.array(policy.quality.values)
    M = np.maximum(n.sum(axis=1), 1)
    weights = skew.weights(c)
    off = (c.C / 4 + 1) / M**2 + 2 * c.C / M * np.minimum(1, c.C / M)
    # A sample moves ||q - t||^2 by 2 ||q - t|| ||e_c - q|| / M at most; no norm is above sqrt 2.
    left = (weights * 4 / M)[c.sizes > 0].max() * max(costs) / min(costs)
    return float((weights * off).sum() + left) + 1e-12


@given(sites(), st.integers(1, 3000), st.integers(0, 2**32 - 1), st.sampled_from([50, 50_000]))
def test_no_plan_of_the_same_cost_and_within_the_limits_has_a_lower_score(
    given_, total, seed, scale
):
    c, t, rho, costs, limits = given_
    c, total = LabelCounts(c.n * scale), total * scale // 50  # whole samples are small then
    rng = np.random.default_rng(seed)
    costs, limits = np.array(costs), np.array(limits) * (scale // 50)
    busy = c.sizes > 0
    pairs = np.repeat(busy, c.C) / (busy.sum() * c.C)
    others = [
        rng.multinomial(total, pairs).reshape(c.n.shape),
        FedEAS(beta=rng.uniform(1, 30), target=t, limits=limits.tolist()).plan(c).samples,
        WaterFill(total=total, target=t).plan(c).samples,
    ]
    for samples in others:
        within = np.where((samples.sum(axis=1) <= limits)[:, None], samples, 0)
        spent = float(costs @ within.sum(axis=1))
        policy = WaterFill(total=spent, target=t, quality=rho, costs=costs, limits=limits)
        water = policy.plan(c)
        assert costs @ water.per_client <= spent * (1 + 1e-9)
        assert (water.per_client <= limits).all()
        bound = skew.imbalance(c, within, t, rho) + rounding(c, water, policy, costs)
        assert water.score_after <= bound


def test_it_is_the_best_of_all_plans_of_small_federations():
    """Against all plans of whole samples: what rounding costs is small, and never a gain."""
    rng = np.random.default_rng(1)
    excess = []
    for _ in range(80):
        c = LabelCounts(np.maximum(rng.integers(0, 40, (2, 3)), [[0, 0, 1]]))
        t, rho = Target(rng.dirichlet([2, 2, 2])), rng.uniform(0.3, 1, 3)
        limits, total = rng.integers(1, 6, 2), int(rng.integers(1, 8))
        policy = WaterFill(total=total, target=t, quality=rho, limits=limits)
        found = policy.plan(c)
        assert found.score_after == pytest.approx(skew.imbalance(c, found.samples, t, rho))
        best = best_score(c, total, t, rho, limits)
        excess.append((found.score_after - best) / found.score_before)
    assert min(excess) > -1e-12
    assert max(excess) < 0.01
    assert np.mean(excess) < 3e-4


def best_score(c, total, t, rho, limits) -> float:
    """The lowest score of all plans of two clients within a total and their limits."""
    ways = np.array([way for way in product(range(total + 1), repeat=3) if sum(way) <= total])
    own = np.full((2, total + 1), np.inf)
    for k in range(2):
        far = skew.weights(c)[k] * skew.deviation(c.n[k] + ways * rho, t)
        fits = ways.sum(axis=1) <= limits[k]
        np.minimum.at(own[k], ways.sum(axis=1)[fits], far[fits])
    return min(own[0, i] + own[1, j] for i, j in np.ndindex(own.shape[1:] * 2) if i + j <= total)


@given(counts, st.floats(1e-4, 0.9), st.integers(0, 2**32 - 1))
def test_without_differences_it_is_plain_water_filling(c, price, seed):
    t = np.random.default_rng(seed).dirichlet(np.ones(c.C)) + 0.01
    t /= t.sum()
    n = c.n.astype(float)
    same = ConstrainedWaterFill(n, t, np.ones(c.C), np.ones(c.K), np.full(c.K, 1e15))
    plain = TargetLevels(n, t).amount(price)
    np.testing.assert_allclose(same.at_price(price).sum(axis=1), plain, rtol=1e-6, atol=1e-5)


@given(sites(), st.floats(1e-4, 0.5))
def test_a_client_with_its_own_cost_and_limit_finds_its_row_at_the_price(given_, price):
    c, t, rho, costs, limits = given_
    shared = {"target": t, "quality": rho}
    plan = WaterFill(price=price, costs=costs, limits=limits, **shared).plan(c)
    for n, row, cost, limit in zip(c.n, plan.samples, costs, limits, strict=True):
        own = WaterFill(price=price, costs=cost, limits=limit, **shared)
        np.testing.assert_array_equal(own.local(n), row)
    rule = FedEAS(beta=9, target=t, limits=limits).plan(c)
    for n, row, limit in zip(c.n, rule.samples, limits, strict=True):
        np.testing.assert_array_equal(FedEAS(beta=9, target=t, limits=limit).local(n), row)


@given(sites(), st.floats(1e-3, 0.5))
def test_at_a_price_the_marginal_worth_of_every_raised_class_is_its_cost(given_, price):
    c, t, rho, costs, _ = given_
    n = c.n.astype(float) * 1000
    assume(n.any(axis=1).all())
    sites_ = ConstrainedWaterFill(n, t.array, np.array(rho), np.array(costs), np.full(c.K, 1e15))
    m = sites_.at_price(price)
    x = n + m * rho
    M = x.sum(axis=1, keepdims=True)
    d = x / M - t.array
    worth = n.sum(axis=1, keepdims=True) / M * ((d * x).sum(axis=1, keepdims=True) / M - d) * rho
    asked = price * np.array(costs)[:, None] * np.ones_like(m)
    raised = m > 1e-6 * M
    assert worth[raised] == pytest.approx(asked[raised], rel=1e-5)
    assert (worth <= asked * (1 + 1e-5)).all()


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
    policy = WaterFill(total=100, quality=0.5)
    plan = policy.plan(c)
    assert plan.settings["quality"] == [0.5]
    assert plan.score_after == pytest.approx(skew.imbalance(c, plan.samples * 0.5))
    assert plan.scored_for(c, None).score_after == pytest.approx(skew.imbalance(c, plan.samples))
    assert "quality" not in WaterFill(total=100).plan(c).settings


def test_a_dear_site_generates_less():
    c = LabelCounts([[90, 10, 0], [90, 10, 0]], ["dear", "cheap"])
    plan = WaterFill(total=60, costs={"cheap": 1, "dear": 4}).plan(c)
    assert plan.per_client[1] > 3 * plan.per_client[0]
    assert plan.settings["costs"] == [4.0, 1.0]


def test_a_stream_takes_one_limit_and_quality_for_all(tmp_path):
    pytest.importorskip("pyarrow")
    rng = np.random.default_rng(3)
    c = LabelCounts((rng.dirichlet([0.2] * 4, 2000) * 300).astype(int))
    file = tmp_path / "c.parquet"
    c.save(file)
    for policy in (
        WaterFill(price=0.02, quality=[0.5, 1, 1, 0.8], limits=40, target=[1, 2, 3, 4]),
        FedEAS(beta=9, limits=40, target=[1, 2, 0, 4]),
    ):
        streamed, plan = plan_stream(file, policy), policy.plan(c)
        assert streamed.total == plan.total
        assert streamed.score_after == pytest.approx(plan.score_after, rel=1e-9)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"costs": [1, 2, 3]}, "1 or 2 values, a cost of client each"),
        ({"costs": {"0": 1}}, "no cost of client '1'"),
        ({"costs": 0}, "above 0"),
        ({"limits": -1}, "from 0"),
        ({"quality": 1.5}, "up to 1"),
        ({"quality": "x.csv"}, "x.csv"),
        ({"quality": {"9": 0.5}}, "not in the counts"),
    ],
)
def test_numbers_that_do_not_fit_are_refused(settings, said):
    with pytest.raises(InputError, match=said):
        WaterFill(total=10, **settings).plan([[3, 1], [1, 4]])


def test_specs_take_them():
    policy = make_policy("waterfill(price=0.01, limits=50, quality=0.5, costs=2)")
    assert policy == WaterFill(price=0.01, limits=50, quality=0.5, costs=2)


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


def test_a_budget_is_spent_where_it_is_cheap(fedeas, files):
    folder, c = files
    given_ = (
        "--cost", folder / "costs.csv", "--limits", folder / "limits.csv",
        "--quality", folder / "quality.json", "--spend", "200EUR", "--json",
    )  # fmt: skip
    for policy in ("waterfill", "fedeas"):
        made = json.loads(fedeas("plan", folder / "counts.csv", "--policy", policy, *given_).out)
        assert made["cost"]["unit"] == "EUR"
        assert 150 < made["cost"]["amount"] <= 200
        assert made["clients"][1]["generate"] <= 30
        samples = np.array([client["samples"] for client in made["clients"]])
        assert made["score_after"] == pytest.approx(skew.imbalance(c, samples, None, [1, 0.9, 0.5]))
        assert made["clients"][0]["cost"] == 2 * made["clients"][0]["generate"]
    expected = WaterFill(
        total=200, costs=[2, 0.5, 1], limits={"b": 30}, quality=folder / "quality.json"
    ).plan(c)
    best = json.loads(fedeas("plan", folder / "counts.csv", "--policy", "waterfill", *given_).out)
    assert best["total"] == expected.total


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


def test_what_is_left_goes_to_those_who_are_not_too_dear():
    """The first in the order of worth costs more than there is."""
    counts = LabelCounts([[71, 2, 22], [26, 42, 35]])
    plan = WaterFill(total=107, costs=[200, 50]).plan(counts)
    assert plan.per_client.tolist() == [0, 2]
    assert plan.score_after < plan.score_before


@given(st.integers(0, 10**6))
def test_nothing_that_would_help_can_still_be_paid(seed):
    rng = np.random.default_rng(seed)
    n = rng.integers(0, 60, (4, 3))
    n[:, 0] += 1
    costs, total = rng.uniform(1, 200, 4), float(rng.uniform(1, 800))
    plan = WaterFill(total=total, costs=costs).plan(n)
    left = total - float(plan.per_client @ costs)
    assert left >= -1e-9
    for k in np.flatnonzero(costs <= left):
        for c in range(3):
            more = plan.samples + (np.indices(n.shape) == np.array([k, c])[:, None, None]).all(0)
            assert skew.imbalance(n, more) >= plan.score_after - 1e-12
