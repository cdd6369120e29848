"""A class distribution to aim at: every formula for any target, and today's numbers for uniform."""

import json
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import fedeas
from fedeas import (
    FedEAS,
    FullBalance,
    InfeasibleError,
    InputError,
    LabelCounts,
    MissingOnly,
    NoGeneration,
    Plan,
    Target,
    Uniform,
    compare,
)
from fedeas.planning import skew
from fedeas.planning.beta import admissible_betas, beta_for_total, path, steps
from fedeas.planning.plan import overfilled
from fedeas.planning.policies import make_policy, settled_spec
from fedeas.planning.stream import plan_stream
from fedeas.planning.targets import make_target
from helpers.greedy_reference import Greedy
from helpers.hypothesis_strategies import counts

EVERY_POLICY = [
    FedEAS(beta=7), FullBalance(), NoGeneration(), Greedy(total=40),
    Uniform(total=40), MissingOnly(total=40),
]  # fmt: skip


@st.composite
def aimed(draw, zeros=True):
    """Counts and a target for their classes, some of them left out; every class may be held."""
    c = draw(counts)
    cell = st.one_of(st.integers(0 if zeros else 1, 5), st.floats(0.01, 1))
    shares = draw(st.lists(cell, min_size=c.C, max_size=c.C))
    t = np.array(shares, float)
    assume((t > 0).sum() >= 2)
    assume(c.n[:, t > 0].any())
    return c, Target(t)


@given(aimed(), st.randoms(use_true_random=False))
def test_the_split_of_the_score_is_exact_for_any_target(given_, random):
    c, t = given_
    added = np.array([[random.randrange(100) for _ in row] for row in c.n])
    added *= c.n[:, t.array > 0].any(axis=1, keepdims=True)
    for g in (0, added):
        assert sum(skew.split(c, g, t)) == pytest.approx(skew.imbalance(c, g, t), abs=1e-12)


@given(aimed())
def test_the_gain_is_the_derivative_of_the_score_for_any_target(given_):
    c, t = given_
    gain = skew.gain(c, t)
    sizes = c.n[:, t.array > 0].sum(axis=1)
    for k, j in np.ndindex(c.n.shape):
        if sizes[k] == 0 or t.array[j] == 0:
            assert gain[k, j] == 0
            continue
        step = np.zeros(c.n.shape)
        step[k, j] = 1e-4 * sizes[k]
        slope = (skew.imbalance(c, -step, t) - skew.imbalance(c, step, t)) / (2 * step[k, j])
        assert slope == pytest.approx(gain[k, j], abs=1e-6 / sizes.sum())


@given(aimed())
def test_skewness_is_the_textbook_divergence_over_its_largest_value(given_):
    c, target = given_
    t = target.array[target.array > 0]
    for n, found in zip(c.n[:, target.array > 0], skew.skewness(c, target=target), strict=True):
        q = n / max(n.sum(), 1)
        divergence = sum(a * np.log(a / b) for a, b in zip(q, t, strict=True) if a > 0)
        assert found == pytest.approx(divergence / -np.log(t.min()), abs=1e-10)
        assert 0 <= found <= 1


@given(aimed())
def test_a_class_left_out_of_the_target_is_as_if_it_were_no_column(given_):
    c, target = given_
    kept = target.array > 0
    smaller = LabelCounts(c.n[:, kept])
    for policy in EVERY_POLICY:
        try:
            plan = replace(policy, target=target).plan(c)
        except InfeasibleError:
            continue
        assert not plan.samples[:, ~kept].any()
        if isinstance(policy, Uniform | MissingOnly) and not all(smaller.sizes):
            continue  # they count a client that holds only classes left out
        alone = replace(policy, target=Target(target.array[kept])).plan(smaller)
        np.testing.assert_array_equal(plan.samples[:, kept], alone.samples)
        assert plan.score_before == pytest.approx(alone.score_before, abs=1e-12)
        assert plan.score_after == pytest.approx(alone.score_after, abs=1e-12)
        assert plan.real == c.total


@pytest.mark.parametrize("policy", EVERY_POLICY, ids=lambda p: p.name)
@pytest.mark.parametrize("target", ["uniform", [1] * 10, [0.1] * 10])
def test_a_uniform_target_gives_the_same_plan_to_the_last_digit(paper, policy, target):
    plain, aimed_at = policy.plan(paper), replace(policy, target=target).plan(paper)
    assert aimed_at == plain
    assert aimed_at.score_after == plain.score_after
    assert "target" not in aimed_at.settings
    assert aimed_at.target_name == "uniform"


@given(aimed(), st.floats(0.5, 50))
def test_a_clients_local_answer_is_its_row_for_any_target(given_, beta):
    c, t = given_
    for policy in (FedEAS(beta, target=t), FullBalance(t)):
        plan = policy.plan(c)
        for n, row in zip(c.n, plan.samples, strict=True):
            np.testing.assert_array_equal(policy.local(n), row)


@given(counts, st.floats(0.5, 1e4), st.booleans())
def test_a_client_that_is_at_the_target_generates_nothing(c, beta, entropy):
    for n in c.n:
        if (n > 0).sum() < 2:
            continue
        t = Target(n)
        for policy in (FedEAS(beta, entropy=entropy, target=t), FullBalance(t)):
            assert not policy.local(n).any(), policy
        assert skew.imbalance([n], target=t) == pytest.approx(0, abs=1e-15)


@given(aimed(), st.floats(0.5, 50))
def test_fedeas_fills_scarce_classes_up_to_their_part_of_the_budget(given_, beta):
    c, target = given_
    t = target.array[target.array > 0]
    samples = FedEAS(beta, target=target).plan(c).samples[:, target.array > 0]
    n = c.n[:, target.array > 0]
    N = n.sum(axis=1)
    skews = skew.skewness(c, target=target)
    for k in range(c.K):
        b = np.floor(np.sqrt(N[k] / len(t)) * skews[k] * beta)
        if np.isclose(b, np.round(np.sqrt(N[k] / len(t)) * skews[k] * beta), atol=1e-9) and b:
            b = samples[k].max() and b  # at the edge of a step either side will do
        level = np.floor(b * len(t) * t + 1e-7)
        for x, share, up_to, made in zip(n[k], t, level, samples[k], strict=True):
            if made:
                assert x < N[k] * share
                assert abs(x + made - up_to) <= 1
            elif x < N[k] * share * (1 - 1e-9):
                assert up_to <= x + 1


def test_the_federation_s_own_distribution_is_that_of_all_clients(paper):
    t = Target.federation(paper)
    assert t.array == pytest.approx(paper.n.sum(axis=0) / paper.total)
    plan = FedEAS(beta=12, target="federation").plan(paper)
    assert plan == FedEAS(beta=12, target=t).plan(paper)
    assert plan.target_name == "federation"
    assert skew.split(paper, target="federation").overall == pytest.approx(0, abs=1e-15)


def test_a_target_file_is_matched_by_the_names_of_classes(tmp_path):
    c = LabelCounts([[8, 1, 0], [3, 4, 3]], classes=["cat", "dog", "bird"])
    files = {
        "t.csv": "class,share\ndog,0.25\nbird,0.25\ncat,0.5\n",
        "t.tsv": "dog\t1\nbird\t1\ncat\t2\n",
        "t.json": json.dumps({"bird": 25, "cat": 50, "dog": 25}),
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
        plan = FedEAS(beta=4, target=tmp_path / name).plan(c)
        assert plan.target.shares == (0.5, 0.25, 0.25)
        assert plan.target_name == name
    (tmp_path / "wrong.csv").write_text("class,share\ndog,0.25\ncat,0.5\n")
    with pytest.raises(InputError, match="no share of class 'bird'"):
        FedEAS(target=tmp_path / "wrong.csv").plan(c)
    (tmp_path / "strange.csv").write_text("dog,1\ncat,2\nbird,1\nfish,1\n")
    with pytest.raises(InputError, match="not in the counts; got 'fish'"):
        FedEAS(target=tmp_path / "strange.csv").plan(c)


@pytest.mark.parametrize(
    ("given_", "said"),
    [
        ("federatoin", "did you mean 'federation'"),
        ([1.0], "two or more numbers"),
        ([1, -1, 1], "two or more numbers"),
        ([0, 1, 0], "single class"),
        ([float("nan"), 1], "two or more numbers"),
        (12, "not a target"),
    ],
)
def test_what_is_not_a_target_is_refused(given_, said):
    with pytest.raises(InputError, match=said):
        FedEAS(target=given_)


def test_a_target_for_other_classes_is_refused():
    with pytest.raises(InputError, match="'3 shares'; allowed: one for each of 2 classes"):
        FedEAS(target=[1, 2, 3]).local([3, 4])
    with pytest.raises(InputError, match="no client has samples of the target's classes"):
        FedEAS(target=[0, 1, 2]).plan([[3, 0, 0], [4, 0, 0]])


def test_a_target_goes_into_a_spec_and_into_what_a_run_is_known_by(tmp_path):
    assert make_policy("fedeas(beta=8, target=federation)").target.shares is None
    policy = make_policy("full-balance(target=2:1:1)")
    assert policy.target.shares == (0.5, 0.25, 0.25)
    file = tmp_path / "t.csv"
    file.write_text("0,2\n1,1\n2,1\n")
    spec = f"fedeas(beta=8, target={file})"
    plan = make_policy(spec).plan([[8, 1, 0], [3, 4, 3]])
    assert settled_spec(spec, plan) == "fedeas(beta=8, target=0.5:0.25:0.25)"
    for kept in ("fedeas(beta=8)", "fedeas(beta=8, target=federation)", "none"):
        assert settled_spec(kept, plan) == kept


@given(aimed())
def test_a_plan_with_a_target_survives_a_file(tmp_path_factory, given_):
    c, t = given_
    plan = FedEAS(beta=9, target=t).plan(c)
    path_ = tmp_path_factory.mktemp("plan") / "plan.json"
    plan.save(path_)
    assert Plan.load(path_) == plan
    assert Plan.load(path_).target == plan.target


def test_a_plan_with_a_damaged_target_is_refused(tmp_path):
    file = tmp_path / "plan.json"
    FedEAS(beta=9, target=[1, 2, 1]).plan([[8, 1, 0], [3, 4, 3]]).save(file)
    content = json.loads(file.read_text())
    shares = {"name": "a", "shares": ["b", "c"]}
    for wrong in ("x", {"name": "a"}, shares, {"name": 3, "shares": [1, 2]}):
        text = json.dumps(content)
        found = text.replace(json.dumps(_find(content)), json.dumps(wrong))
        assert found != text
        file.write_text(found)
        with pytest.raises(InputError, match="damaged plan"):
            Plan.load(file)


def _find(content: object) -> object:
    """The target's dictionary, wherever the format keeps it."""
    if isinstance(content, dict):
        if "target" in content:
            return content["target"]
        for value in content.values():
            if (found := _find(value)) is not None:
                return found
    return None


@given(aimed(zeros=False), st.floats(0.5, 40))
def test_the_path_of_betas_is_that_of_the_plans(given_, beta):
    c, t = given_
    rule = FedEAS(beta=beta, target=t)
    plan, found = rule.plan(c), path(c, np.array([beta]), rule)
    assert found.totals[0] == plan.total
    assert found.scores[0] == pytest.approx(plan.score_after, abs=1e-12)
    assert found.shares[0] == pytest.approx(plan.synthetic_share)


def test_beta_is_chosen_for_a_target(paper):
    rule = FedEAS(target=[0, *range(1, 10)])
    interval = admissible_betas(paper, policy=rule)
    plan = replace(rule, beta=interval.choice).plan(paper)
    assert plan.reduction >= 0.5
    assert plan.synthetic_share < 0.25
    beta = beta_for_total(paper, 3000, rule)
    assert replace(rule, beta=beta).plan(paper).total <= 3000
    exact = steps(paper, 2.0, rule)
    assert exact.exact
    at = replace(rule, beta=float(exact.betas[-1])).plan(paper)
    assert exact.totals[-1] == at.total
    assert exact.scores[-1] == pytest.approx(at.score_after, abs=1e-9)
    with pytest.raises(InfeasibleError, match="at the target already"):
        admissible_betas(LabelCounts([[3, 1], [6, 2]]), policy=FedEAS(target=[3, 1]))


def test_filling_beyond_the_target_is_noticed():
    c, t = LabelCounts([[10, 2, 0], [40, 40, 30]]), Target([2, 1, 1])
    assert overfilled(c, FedEAS(2, target=t).plan(c)) is None
    found = overfilled(c, FedEAS(40, target=t).plan(c))
    assert found is not None
    assert found.filled_to > found.largest


def test_policies_are_compared_against_one_target(paper):
    class Mine:
        name = "mine"

        def plan(self, c):
            return np.ones(c.n.shape, np.int64)

    t = Target.federation(paper)
    table = compare(paper, ["fedeas", "uniform", Mine()], FedEAS(target=t))
    for row, samples in zip(
        table,
        [
            FedEAS(target=t).plan(paper).samples,
            Uniform(total=table.total).plan(paper).samples,
            np.ones(paper.n.shape),
        ],
        strict=True,
    ):
        removed = 1 - skew.imbalance(paper, samples, t) / skew.imbalance(paper, target=t)
        assert row.reduction == pytest.approx(removed, abs=1e-9)
    (water,) = compare(paper, ["waterfill"], FedEAS(target=t))
    assert water.total is None
    assert "uniform target only" in water.note


@pytest.mark.parametrize("target", ["federation", [0, 3, 2, 1], {"a": 4, "c": 2, "d": 1, "b": 0}])
def test_a_stream_is_planned_as_memory_is_for_a_target(tmp_path, target):
    pytest.importorskip("pyarrow")
    rng = np.random.default_rng(3)
    n = (rng.dirichlet([0.2] * 4, 3000) * rng.integers(0, 500, (3000, 1))).astype(int)
    c = LabelCounts(n, classes=["a", "b", "c", "d"])
    file, out = tmp_path / "c.parquet", tmp_path / "plan.parquet"
    c.save(file)
    for policy in (FedEAS(beta=9, target=target), FullBalance(target=target)):
        plan, streamed = policy.plan(c), plan_stream(file, policy, out)
        assert streamed.total == plan.total
        assert streamed.real == plan.real == c.total
        assert streamed.score_before == pytest.approx(plan.score_before, rel=1e-12)
        assert streamed.score_after == pytest.approx(plan.score_after, rel=1e-12)
        assert streamed.target_name == plan.target_name
        loaded = Plan.load(out)
        np.testing.assert_array_equal(loaded.samples, plan.samples)
        assert loaded.target == plan.target


def test_augment_aims_at_shares_and_not_at_what_a_client_cannot_know(tmp_path):
    class Grey:
        fingerprint, classes = "grey-1", ("cat", "dog", "bird")

        def sample(self, labels, seeds):
            return np.full((len(labels), 8, 8, 1), 128, np.uint8)

    images, labels = np.zeros((100, 8, 8), np.uint8), np.repeat([0, 1], [90, 10])

    def augmented(**given_):
        more = fedeas.augment(
            images, labels=labels, generator=Grey(), client="a", cache=tmp_path, **given_
        )
        return np.bincount(more[1], minlength=3)

    wanted = np.array([90, 10, 0]) + FedEAS(beta=12, target=[6, 3, 1]).local([90, 10, 0])
    for target in ([6, 3, 1], {"bird": 1, "cat": 6, "dog": 3}):
        np.testing.assert_array_equal(augmented(beta=12, target=target), wanted)
    np.testing.assert_array_equal(augmented(beta=12, target="6:3:1"), wanted)
    with pytest.raises(InputError, match="one client does not know"):
        augmented(beta=12, target="federation")
    with pytest.raises(InputError, match="has a target already"):
        augmented(plan="plan.csv", target=[1, 2, 3])


def test_a_server_cannot_make_a_site_read_a_file():
    """A target names a file only where the owner of the machine types it."""
    deployed = pytest.importorskip("fedeas.train.flower.deployed")
    with pytest.raises(InputError, match="'target' of a policy is out of range"):
        deployed.row_policy("fedeas(beta=8, target=/etc/hostname)")


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "fedeas", *arguments], capture_output=True, text=True, check=False
    )


def test_the_command_line_takes_a_target(tmp_path, paper):
    file, prior = tmp_path / "c.csv", tmp_path / "prior.csv"
    paper.save(file)
    prior.write_text("".join(f"{name},{c + 1}\n" for c, name in enumerate(paper.class_names)))
    for target, name in (("federation", "federation"), (str(prior), "prior.csv")):
        said = run("plan", str(file), "--beta", "8", "--target", target, "--json")
        shown = json.loads(said.stdout)
        plan = FedEAS(beta=8, target=target).plan(paper)
        assert (shown["target"], shown["total"]) == (name, plan.total)
        assert shown["score_after"] == plan.score_after
    assert json.loads(run("plan", str(file), "--beta", "8", "--json").stdout)["target"] == "uniform"
    shown = json.loads(run("plan", str(file), "--target", "federation", "--json").stdout)
    assert (
        shown["settings"]["beta"]
        == admissible_betas(paper, policy=FedEAS(target="federation")).choice
    )
    rows = json.loads(run("compare", str(file), "--target", "federation", "--json").stdout)
    assert rows[0]["total"] == FedEAS(target="federation").plan(paper).total
    bad = run("plan", str(file), "--target", "unifrom")
    assert bad.returncode == 2
    assert "did you mean 'uniform'?" in bad.stderr
    twice = run("plan", str(file), "--policy", "fedeas(target=federation)", "--target", "uniform")
    assert twice.returncode == 0
    clash = run("plan", str(file), "--policy", "fedeas(target=uniform)", "--target", "federation")
    assert clash.returncode == 2


def test_targets_are_known_by_what_they_hold():
    assert make_target((0.5, 0.25, 0.25)) == Target([2, 1, 1])
    assert make_target("uniform") is make_target(None) is None
    assert repr(FedEAS(beta=8)).endswith("below_mean=True)")
    assert "target=Target(" in repr(FedEAS(beta=8, target=[2, 1, 1]))
