from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedeas import (
    FedEAS,
    FullBalance,
    InfeasibleError,
    InputError,
    LabelCounts,
    MissingOnly,
    NoGeneration,
    Plan,
    Uniform,
    WaterFill,
    compare,
)
from fedeas.planning.policies import LocalPolicy, make_plan, make_policy, policy_names
from helpers.greedy_reference import Greedy
from helpers.hypothesis_strategies import betas, counts, totals

local_policies = st.one_of(
    st.builds(
        FedEAS,
        beta=betas,
        size_exponent=st.sampled_from([0, 0.5, 0.75, 1]),
        entropy=st.booleans(),
        below_mean=st.booleans(),
    ),
    st.sampled_from([FullBalance(), NoGeneration()]),
)
total_policies = st.builds(
    lambda kind, total: kind(total=total),
    st.sampled_from([Uniform, MissingOnly, WaterFill, Greedy]),
    st.integers(0, 2000),
)


@given(counts, st.one_of(local_policies, total_policies))
def test_every_policy_returns_whole_numbers_and_nothing_for_empty_clients(c, policy):
    try:
        plan = policy.plan(c)
    except InfeasibleError:
        assert isinstance(policy, MissingOnly)
        assert (c.n[c.sizes > 0] > 0).all()
        return
    assert plan.samples.dtype == np.int64
    assert (plan.samples >= 0).all()
    assert not plan.samples[c.sizes == 0].any()
    assert 0 <= plan.score_after <= 1


@given(counts, local_policies)
def test_a_local_answer_is_the_clients_row_of_the_plan(c, policy):
    plan = policy.plan(c)
    for n, row in zip(c.n, plan.samples, strict=True):
        np.testing.assert_array_equal(policy.local(n), row)


@given(counts, totals)
def test_matched_policies_spend_exactly_the_total(c, total):
    assert Uniform(total=total).plan(c).total == total
    if (c.n[c.sizes > 0] == 0).any():
        assert MissingOnly(total=total).plan(c).total == total
    elif total:
        with pytest.raises(InfeasibleError, match="nowhere"):
            MissingOnly(total=total).plan(c)


@given(counts, totals)
def test_uniform_is_level_and_gives_the_rest_to_the_first_pairs(c, total):
    given_out = Uniform(total=total).plan(c).samples[c.sizes > 0].ravel()
    assert given_out.max() - given_out.min() <= 1
    assert (np.diff(given_out) <= 0).all()


@given(
    st.integers(1, 10**6), st.integers(2, 50), betas, st.booleans(), st.sampled_from([0, 0.5, 1])
)
def test_fedeas_gives_nothing_to_a_balanced_client(level, classes, beta, below_mean, exponent):
    policy = FedEAS(beta=beta, below_mean=below_mean, size_exponent=exponent)
    assert not policy.local([level] * classes).any()


@given(counts, betas)
def test_fedeas_is_the_papers_equations(c, beta):
    policy = FedEAS(beta=beta, below_mean=False)
    for n, row in zip(c.n, policy.plan(c).samples, strict=True):
        budget = policy.budgets(n.astype(float))
        np.testing.assert_array_equal(row, np.maximum(0, budget - n) if n.any() else 0)
        if n.any():
            q = n[n > 0] / n.sum()
            exact = np.sqrt(n.mean()) * (1 + (q * np.log(q)).sum() / np.log(c.C)) * beta
            assert exact - 1 - 1e-9 < budget <= max(exact, 0) + 1e-9


@given(counts, betas)
def test_the_below_mean_clause_fills_only_scarce_classes(c, beta):
    samples = FedEAS(beta=beta).plan(c).samples
    assert not samples[c.n >= c.n.mean(axis=1, keepdims=True)].any()


@given(counts)
def test_full_balance_balances(c):
    plan = FullBalance().plan(c)
    after = c.n + plan.samples
    assert (after == after[:, :1]).all()
    assert plan.score_after == pytest.approx(0, abs=1e-12)


class Twins:
    """A third party's policy: an object with `plan`, nothing of ours inherited."""

    def __init__(self, factor: int = 1) -> None:
        self.factor = factor

    def plan(self, counts: LabelCounts) -> Plan:
        return Plan.of(counts, counts.n * self.factor, self)


class Wrong:
    name = "wrong"

    def plan(self, counts: LabelCounts) -> Plan:
        return Plan.of(counts, -counts.n, self)


def test_a_third_party_adds_a_policy_by_dotted_path(paper):
    plan = make_policy(f"{__name__}:Twins(factor=2)").plan(paper)
    assert plan.policy == "Twins"
    assert plan.total == 2 * paper.total
    assert plan.reduction == pytest.approx(0)


def test_a_third_party_adds_a_policy_by_entry_point(paper, tmp_path, monkeypatch):
    package = tmp_path / "twins-1.0.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: twins\nVersion: 1.0\n")
    (package / "entry_points.txt").write_text(f"[fedeas.policies]\ntwins = {__name__}:Twins\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert "twins" in policy_names()
    assert make_policy("twins").plan(paper).total == paper.total


def test_nonsense_of_a_third_party_is_refused_by_name(paper):
    with pytest.raises(InputError, match="wrong"):
        Wrong().plan(paper)
    with pytest.raises(InputError, match="does not fit"):
        Plan.of(paper, [[1, 2]], Wrong())


def test_policies_by_name():
    assert make_policy("fedeas(beta=8, entropy=false)") == FedEAS(beta=8, entropy=False)
    assert make_policy("waterfill", total=5) == WaterFill(total=5)
    assert isinstance(make_policy("full-balance", total=5), LocalPolicy)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("fedaes", "did you mean 'fedeas'"),
        ("uniform", "needs 'total'"),
        ("fedeas(gamma=1)", "no setting 'gamma'"),
        ("fedeas(beta)", "not a setting"),
        ("fedeas(beta=)", "not a setting"),
        ("fedeas(beta=-1)", "beta out of range"),
        ("fedeas(beta=nan)", "beta out of range"),
        ("fedeas(beta=inf)", "beta out of range"),
        ("fedeas(size_exponent=9)", "size_exponent"),
        ("fedeas(entropy=3)", "must be a boolean"),
        ("fedeas(beta=many)", "beta out of range"),
        ("uniform(total=1.5)", "not a total"),
        ("uniform(total=-1)", "not a total"),
        ("waterfill", "needs 'total'"),
        ("no.such.module:Policy", "cannot import"),
        ("os:nothing", "cannot import"),
        ("os:sep", "is not a policy"),
        ("builtins:dict", "is not a policy"),
        (".:x", "cannot import"),
        ("fractions:Fraction", "is not a policy"),
        ("", "not a policy"),
        ("fedeas(beta=8", "not a policy"),
    ],
)
def test_a_wrong_policy_says_what_is_right(spec, message):
    with pytest.raises(InputError, match=message):
        make_policy(spec)


def test_an_absurd_beta_is_refused_not_wrapped_around(paper):
    with pytest.raises(InfeasibleError, match="smaller beta"):
        FedEAS(beta=1e300).plan(paper)


def test_a_local_answer_wants_one_histogram():
    for wrong in ([[90, 10], [0, 50]], [5], [], 7):
        with pytest.raises(InputError, match="histogram"):
            FedEAS().local(wrong)


def test_numbers_of_numpy_are_numbers(paper):
    assert Uniform(total=np.int64(5)).plan(paper).settings == {"total": 5}
    assert FedEAS(beta=np.float32(8)).plan(paper).total == 8673


@pytest.mark.parametrize(
    "policy",
    [FedEAS(), FullBalance(), Uniform(total=9), MissingOnly(total=9), WaterFill(total=9),
     Greedy(total=9)],
)  # fmt: skip
def test_policies_take_matrices_and_data_frames(policy):
    import pandas as pd

    rows = [[90, 20, 0], [30, 40, 30]]
    expected = policy.plan(LabelCounts(rows))
    assert policy.plan(rows) == policy.plan(np.array(rows)) == expected
    frame = pd.DataFrame(rows, index=["north", "south"], columns=["cat", "dog", "emu"])
    named = policy.plan(frame)
    np.testing.assert_array_equal(named.samples, expected.samples)
    assert (named.clients, named.classes) == (("north", "south"), ("cat", "dog", "emu"))
    for wrong in ("counts.csv", Path("counts.csv"), None, 7, {"a": 1}, [1, 2], expected, object()):
        with pytest.raises(InputError):
            policy.plan(wrong)
    with pytest.raises(InputError, match=r"LabelCounts\.load"):
        policy.plan("counts.csv")


class Halves:
    """A third party's policy that returns samples alone."""

    name = "halves"

    def plan(self, counts: LabelCounts):
        return counts.n // 2


class Nothing:
    def plan(self, counts: LabelCounts):
        return None


def test_a_policy_may_return_samples_alone(paper, fedeas, paper_csv, tmp_path):
    plan = make_plan(Halves(), paper)
    assert isinstance(plan, Plan)
    assert (plan.policy, plan.total) == ("halves", (paper.n // 2).sum())
    assert make_plan(FedEAS(), paper) == FedEAS().plan(paper)
    (row,) = compare(paper, [Halves()])
    assert row.total == plan.total
    saved = tmp_path / "plan.json"
    done = fedeas("plan", paper_csv, "--policy", f"{__name__}:Halves", "--out", saved)
    assert done.code == 0, done.err
    assert Plan.load(saved) == plan
    done = fedeas("plan", paper_csv, "--policy", f"{__name__}:Nothing")
    assert done.code == 2
    assert "samples of policy 'Nothing'" in done.err
    assert "clients x classes" in done.err


def test_numbers_are_kept_as_plain_ones():
    for number in (np.float32(8), np.float64(8), np.int64(8), np.uint8(8)):
        assert type(FedEAS(beta=number).beta) in (int, float)
        assert FedEAS(beta=number) == FedEAS(beta=8)
        assert repr(FedEAS(beta=number)) in (repr(FedEAS(beta=8)), repr(FedEAS(beta=8.0)))
    assert FedEAS(entropy=np.False_) == FedEAS(entropy=False)
    assert repr(Uniform(total=np.int32(5))) == "Uniform(total=5)"
    assert repr(FedEAS(beta=np.float64(0.5))) == repr(FedEAS(beta=0.5))
    for wrong in (
        {"beta": True},
        {"beta": np.True_},
        {"beta": "8"},
        {"beta": None},
        {"entropy": 1},
    ):
        with pytest.raises(InputError):
            FedEAS(**wrong)
    with pytest.raises(InputError, match="not a total"):
        Uniform(total=np.float64(5))


def test_a_balanced_client_has_no_harmful_samples():
    c = LabelCounts([[100_000_007] * 7])
    assert Uniform(total=70).plan(c).negative_gain == 0


class Anything:
    """A third party's policy that takes any setting."""

    def __init__(self, **settings) -> None:
        self.settings = settings

    def plan(self, counts: LabelCounts) -> Plan:
        return Plan.of(counts, counts.n * 0, self)


def test_a_policy_may_take_any_setting():
    assert make_policy(f"{__name__}:Anything(colour=red)", total=3).settings == {"colour": "red"}


def test_a_module_that_fails_when_imported_is_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, code in (("broken", "1 / 0"), ("leaving", "raise SystemExit('no')"), ("odd", "def")):
        (tmp_path / f"{name}.py").write_text(code)
        with pytest.raises(InputError, match=f"cannot import policy '{name}:P'"):
            make_policy(f"{name}:P")


def plain_function(counts):
    return counts.n


def test_a_function_in_the_place_of_a_policy_is_told_what_a_policy_is():
    with pytest.raises(InputError, match=r"is a function; allowed: a policy is a class with plan"):
        make_policy(f"{__name__}:plain_function")
