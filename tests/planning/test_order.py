"""The order of classes and clients, in counts and in what goes by name, changes nothing."""

import json
from time import perf_counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedeas import (
    FedEAS,
    FullBalance,
    InputError,
    LabelCounts,
    MissingOnly,
    NoGeneration,
    Plan,
    Target,
    Uniform,
    WaterFill,
    augment,
    choose_beta,
    compare,
    diagnose,
)
from fedeas.errors import InfeasibleError
from fedeas.planning import skew
from fedeas.planning.beta import admissible_betas, beta_for_total
from fedeas.planning.named_values import make_named_values
from fedeas.planning.plan import overfilled
from fedeas.planning.policies import HeldClassesOnly, make_plan, reachable_reduction
from fedeas.planning.stream import plan_stream
from helpers.greedy_reference import Greedy

CLASSES, CLIENTS = ("cat", "dog", "bird", "eel"), ("north", "south", "west", "east", "sea")


class Case:
    """Counts, and a number for each name; `other` is the same, all of it in another order."""

    def __init__(self, seed: int, *, absent: bool) -> None:
        rng = np.random.default_rng(seed)
        self.n = rng.integers(0, 5000, (5, 4)) * (rng.random((5, 4)) < 0.8)
        self.n[np.arange(4), np.arange(4)] += 1 + rng.integers(0, 5000, 4)
        shares = rng.integers(1, 1000, 4)
        shares[3] *= not absent
        self.target = self._named(CLASSES, shares)
        self.quality = self._named(CLASSES[:3], rng.uniform(0.2, 1, 3))
        self.limits = self._named(CLIENTS[1:4], rng.integers(0, 4000, 3))
        self.costs = self._named(CLIENTS, rng.uniform(0.5, 3, 5))
        self.rows, self.columns = rng.permutation(5), rng.permutation(4)

    @staticmethod
    def _named(names: tuple[str, ...], values: np.ndarray) -> dict[str, float]:
        return dict(zip(names, values.tolist(), strict=True))

    @property
    def counts(self) -> LabelCounts:
        return LabelCounts(self.n, CLIENTS, CLASSES)

    def permuted(self, samples: np.ndarray) -> np.ndarray:
        return samples[np.ix_(self.rows, self.columns)]

    @property
    def other(self) -> "Case":
        case = object.__new__(type(self))
        vars(case).update(vars(self))
        for kind in ("target", "quality", "limits", "costs"):
            setattr(case, kind, dict(reversed(getattr(self, kind).items())))
        return case

    @property
    def other_counts(self) -> LabelCounts:
        return LabelCounts(
            self.permuted(self.n),
            [CLIENTS[k] for k in self.rows],
            [CLASSES[c] for c in self.columns],
        )


cases = st.builds(Case, st.integers(0, 10**6), absent=st.booleans())
LOCAL = {
    "fedeas": lambda c: FedEAS(beta=20, target=c.target, limits=c.limits, quality=c.quality),
    "fedeas-printed": lambda c: FedEAS(beta=9, target=c.target, below_mean=False),
    "full-balance": lambda c: FullBalance(target=c.target),
    "none": lambda c: NoGeneration(target=c.target),
}
# Whole samples that are left over go to somebody: to whom may depend on the order.
WHOLE = {
    "waterfill": lambda c: WaterFill(total=3000),
    "copies": lambda c: HeldClassesOnly(total=3000),
    "greedy": lambda c: Greedy(total=200, target=c.target),
    "uniform": lambda c: Uniform(total=3001, target=c.target),
    "missing-only": lambda c: MissingOnly(total=3001, target=c.target),
}


@pytest.mark.parametrize("name", LOCAL | WHOLE)
@given(cases)
@settings(max_examples=5)
def test_plans_are_the_same_in_any_order(name, case):
    make = (LOCAL | WHOLE)[name]
    try:
        plan = make_plan(make(case), case.counts)
    except InfeasibleError:  # nobody lacks a class
        return
    assert make_plan(make(case.other), case.counts) == plan
    other = make_plan(make(case.other), case.other_counts)
    off = np.abs(other.samples - case.permuted(plan.samples))
    assert off.max() <= (name in WHOLE)
    assert other.score_after == pytest.approx(plan.score_after, rel=1e-3 if name in WHOLE else 1e-9)
    # Scored again for another target, by name.
    again = {"bird": 1, "dog": 2, "eel": 3, "cat": 4}
    scored = plan.scored_for(case.counts, again, {"dog": 0.5})
    assert scored == plan.scored_for(case.counts, Target([4, 2, 1, 3]), [1, 0.5, 1, 1])
    with pytest.raises(InputError, match="other counts"):
        plan.scored_for(LabelCounts(case.n + 1, CLIENTS, CLASSES), again)


@pytest.mark.parametrize("name", LOCAL)
@given(cases)
@settings(max_examples=5)
def test_one_client_plans_as_all_together_do(name, case):
    policy = LOCAL[name](case.other)
    plan = LOCAL[name](case).plan(case.counts)
    for k, client in enumerate(CLIENTS):
        row = policy.local(case.n[k], CLASSES, client)
        np.testing.assert_array_equal(row, plan.samples[k])
        columns = case.columns
        mixed = policy.local(case.n[k][columns], [CLASSES[c] for c in columns], client)
        np.testing.assert_array_equal(mixed, plan.samples[k][columns])


def test_what_goes_by_name_is_refused_where_nothing_says_which_one_it_is():
    for policy in (
        FedEAS(limits={"north": 5}),
        FedEAS(quality={"cat": 0.5, "dog": 1}),
        FedEAS(target={"cat": 1, "dog": 2}),
        FullBalance(target={"cat": 1, "dog": 2}),
    ):
        with pytest.raises(InputError) as error:
            policy.local([90, 10])
        assert any(name in str(error.value) for name in ("north", "cat"))
    assert FedEAS(limits={"north": 5}).local([90, 10], client="north").sum() <= 5
    assert FedEAS(limits={"north": 5}).local([90, 10], client="south").sum() > 5
    with pytest.raises(InputError):
        FedEAS(target={"cat": 1, "dog": 2}).local([90, 10], ["cat", "cow"])
    with pytest.raises(InputError):
        FedEAS().local([90, 10], ["cat"])
    with pytest.raises(InputError):
        FedEAS(quality={"cat": 0.5, "dog": 1}).local([90, 10], ["cat", "cow"])
    with pytest.raises(InputError):
        skew.imbalance([[90, 10]], target={"cat": 1, "dog": 2})


@given(cases)
@settings(max_examples=5)
def test_numbers_are_the_same_in_any_order(case):
    def numbers(counts: LabelCounts, c: Case) -> list[float]:
        rule = FedEAS(target=c.target, limits=c.limits, quality=c.quality)
        aimed = FedEAS(target=c.target)
        beyond = overfilled(counts, FedEAS(beta=50, target=c.target).plan(counts))
        choice, found = choose_beta(counts, policy=rule), diagnose(counts, c.target)
        try:
            interval = admissible_betas(counts, 0.3, 0.4, aimed)
        except InfeasibleError:
            interval = None
        return [
            choice.beta, choice.reduction, choice.synthetic_share,
            found.score, found.between, found.lacking, found.empty_pairs, found.chance,
            reachable_reduction(counts, c.target),
            beta_for_total(counts, 2000, aimed), beta_for_total(counts, 5000.5, aimed, c.costs),
            *([] if interval is None else [interval.low, interval.high, interval.choice]),
            *([] if beyond is None else [beyond.clients, beyond.filled_to, beyond.full]),
            skew.imbalance(counts, target=c.target), *skew.split(counts, target=c.target),
            *sorted(skew.skewness(counts, target=c.target)),
            *sorted(skew.deviation(counts, target=c.target)),
            skew.gain(counts, c.target).sum(), skew.negative_gain(counts, case.n * 0 + 5, c.target),
        ]  # fmt: skip

    expected = numbers(case.counts, case)
    assert numbers(case.counts, case.other) == expected
    assert numbers(case.other_counts, case.other) == pytest.approx(expected, rel=1e-7, abs=1e-12)


@given(cases)
@settings(max_examples=3)
def test_a_comparison_is_the_same_in_any_order(case):
    def rows(counts: LabelCounts, c: Case) -> list[float]:
        table = compare(counts, reference=FedEAS(beta=9, target=c.target, limits=c.limits))
        return [x for row in table for x in (row.total, row.reduction, row.reach) if x is not None]

    expected = rows(case.counts, case)
    assert rows(case.counts, case.other) == expected
    assert rows(case.other_counts, case.other) == pytest.approx(expected, rel=5e-3, abs=5e-3)


@given(cases)
@settings(max_examples=3)
def test_streams_are_the_same_in_any_order(tmp_path_factory, case):
    folder = tmp_path_factory.mktemp("stream")
    case.other_counts.save(folder / "counts.parquet")
    for name in ("fedeas", "full-balance"):
        policy = LOCAL[name](case)
        plan_stream(folder / "counts.parquet", policy, folder / "plan.parquet")
        plan = policy.plan(case.counts)
        loaded = Plan.load(folder / "plan.parquet")
        np.testing.assert_array_equal(loaded.samples, case.permuted(plan.samples))


@pytest.mark.parametrize("target", [{"cat": 0.8, "dog": 0.2}, {"dog": 0.2, "cat": 0.8}])
def test_data_sets_are_filled_with_the_same_classes_in_any_order(tmp_path, target):
    sampler = pytest.importorskip("fedeas.augmentation.sampler").FedEASSampler
    y = np.repeat(["cat", "dog"], [40, 160])
    X = np.random.default_rng(0).normal(size=(200, 1))
    fitted = sampler(beta=40, target=target, generator="copies", random_state=0)
    labels, many = np.unique(fitted.fit_resample(X, y)[1], return_counts=True)
    made = FedEAS(beta=40, target=[0.8, 0.2]).local([40, 160])
    assert dict(zip(labels.tolist(), (many - [40, 160]).tolist(), strict=True)) == {
        "cat": made[0],
        "dog": made[1],
    }
    assert made[0] > 0

    class Grey:
        fingerprint, classes = "grey-1", ("cat", "dog")

        def sample(self, labels, seeds):
            return np.full((len(labels), 4, 4, 1), 128, np.uint8)

    images, places = np.zeros((200, 4, 4), np.uint8), (y == "dog").astype(int)
    for how in ({"beta": 40}, {"reduction": 0.5}):
        more = augment(
            images, labels=places, generator=Grey(), target=target, client="north", cache=tmp_path,
            **how,
        )  # fmt: skip
        added = np.bincount(more[1], minlength=2) - [40, 160]
        assert added[0] > 0
        assert added[1] == 0


COMMANDS = (
    ("plan", "--target", "target.csv", "--quality", "quality.csv", "--limits", "limits.csv"),
    ("plan", "--target", "target.csv", "--cost", "costs.csv", "--spend", "900s"),
    ("plan", "--target", "target.csv", "--total", "800"),
    ("compare", "--target", "target.csv"),
    ("compare", "--target", "target.csv", "--total", "800"),
)


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_commands_answer_the_same_in_any_order(fedeas, tmp_path, monkeypatch, command):
    case = Case(3, absent=False)
    answers = []
    for number, (counts, c) in enumerate(
        [(case.counts, case), (case.counts, case.other), (case.other_counts, case.other)]
    ):
        folder = tmp_path / str(number)
        folder.mkdir()
        monkeypatch.chdir(folder)
        counts.save("counts.csv")
        for kind in ("target", "quality", "limits", "costs"):
            lines = [f"{name},{value}" for name, value in getattr(c, kind).items()]
            (folder / f"{kind}.csv").write_text("\n".join(lines) + "\n")
        result = fedeas(command[0], "counts.csv", *command[1:], "--json")
        assert result.code == 0, result.err
        answers.append(json.loads(result.out))
    first, same, other = answers
    assert same == first
    if command[0] == "compare":
        assert [row["total"] for row in other] == [row["total"] for row in first]
    else:
        plans = {row["client"]: row["samples"] for row in other["clients"]}
        for row in first["clients"]:
            mixed = [row["samples"][c] for c in case.columns]
            assert np.abs(np.subtract(plans[row["client"]], mixed)).max() <= 1


def test_a_hundred_thousand_names_are_matched_in_a_moment():
    names = [f"site-{k}" for k in range(100_000)]
    counts = LabelCounts(np.tile([[9, 1]], (100_000, 1)), names)
    limits = dict.fromkeys(reversed(names), 3)
    began = perf_counter()
    ordered = make_named_values(limits, "limits").ordered(counts.client_names)
    assert perf_counter() - began < 2
    assert ordered.values[:2] == (3.0, 3.0)


@pytest.mark.parametrize("kind", ["quality", "limits"])
def test_a_series_says_neither_order_nor_names(kind):
    """Its index names its values, but a list of them would be taken in order."""
    pd = pytest.importorskip("pandas")
    series = pd.Series({"b": 0.5, "a": 1.0})
    with pytest.raises(InputError, match="to_dict"):
        FedEAS(**{kind: series})
    assert getattr(FedEAS(**{kind: series.to_dict()}), kind).names == ("b", "a")
