"""Samples with several labels: counts of label sets, and plans in label sets."""

import functools
import importlib
import json
import os
import pickle
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedeas import FedEAS, FullBalance, InputError, LabelCounts, MissingOnly, plan
from fedeas._internal.files import read_json, write_json
from fedeas.counts.label_sets import LabelSetCounts, name_label_sets
from fedeas.planning import skew
from fedeas.planning.covering import least_cover
from fedeas.planning.label_set_plan import (
    LabelSetPlan,
    label_scores,
    plan_label_sets,
    target_prevalence,
)

ROOT = Path(__file__).parents[2]
LABELS = ("flu", "cough", "rash")
# North has ten samples of flu and cough and two without a label; South has three with a rash.
ROWS = [("North", "flu|cough", 10), ("North", "no label", 2), ("North", "flu", 1),
        ("South", "rash", 3), ("South", "flu|rash", 4)]  # fmt: skip


def small() -> LabelSetCounts:
    lists = [labels for _, labels, number in ROWS for _ in range(number)]
    clients = [client for client, _, number in ROWS for _ in range(number)]
    return LabelSetCounts.from_lists(lists, clients, LABELS)


def site_table(name: str) -> Path:
    """Return a table of real sites from the folder of data."""
    file = Path(os.environ.get("FEDEAS_DATA", "")) / "sites" / f"{name}.csv"
    if not file.is_file():
        pytest.skip(f"{file.name} is not in FEDEAS_DATA")
    return file


@st.composite
def label_set_counts(draw, most: int = 40):
    """Draw counts of at least two labels, with or without samples that have none."""
    L, K = draw(st.integers(2, 4)), draw(st.integers(1, 4))
    codes = draw(st.lists(st.integers(0, 2**L - 1), min_size=1, max_size=2**L, unique=True))
    sets = [[code >> bit & 1 for bit in range(L)] for code in codes]
    cells = st.lists(st.integers(0, most), min_size=len(codes), max_size=len(codes))
    n = draw(st.lists(cells, min_size=K, max_size=K))
    n[0][-1] += 1
    return LabelSetCounts(sets, n)


# Counts


def test_the_same_samples_in_all_forms_are_the_same_counts(tmp_path):
    counts = small()
    columns = [[name in labels for name in LABELS] for _, labels, n in ROWS for _ in range(n)]
    clients = [client for client, _, n in ROWS for _ in range(n)]
    assert LabelSetCounts.from_columns(np.array(columns, int), clients, LABELS) == counts
    rows = [f"{k},{','.join(str(int(x in s)) for x in LABELS)},{n}" for k, s, n in ROWS]
    for heading in ("samples", "images", "count"):
        file = tmp_path / f"{heading}.csv"
        file.write_text("\n".join([f"site,flu,cough,rash,{heading}", *rows]) + "\n")
        assert LabelSetCounts.load(file) == counts


def test_positives_and_pairs_are_counted():
    counts = small()
    assert counts.positives.n.tolist() == [[11, 10, 0, 2], [4, 0, 7, 0]]
    assert counts.positives.class_names == (*LABELS, "no label")
    assert counts.sizes.tolist() == [13, 7]
    assert counts.prevalence[0].tolist() == [11 / 13, 10 / 13, 0, 2 / 13]
    assert counts.co_occurrence().tolist() == [[15, 10, 4], [10, 10, 0], [4, 0, 7]]
    assert counts.co_occurrence("South").tolist() == [[4, 0, 4], [0, 0, 0], [4, 0, 7]]
    assert "flu|cough" in str(counts)
    assert pickle.loads(pickle.dumps(counts)) == counts
    with pytest.raises(ValueError, match="read-only"):
        counts.n[0, 0] = 1


def test_people_are_counted_once_in_a_set(tmp_path):
    lists, people = ["a|b", "a|b", "b", "a|b"], ["p", "p", "p", "q"]
    counts = LabelSetCounts.from_lists(lists, ["x"] * 4, people=people)
    assert (counts.n.tolist(), counts.people.tolist()) == ([[1, 3]], [[1, 2]])
    assert counts.of_people().total == 3
    file = tmp_path / "sets.csv"
    file.write_text("site,a,b,images,people\nx,0,1,1,1\nx,1,1,3,2\n")
    assert LabelSetCounts.load(file) == counts
    with pytest.raises(InputError, match="people"):
        small().of_people()


@settings(max_examples=40, deadline=None)
@given(counts=label_set_counts(), ending=st.sampled_from(["csv", "tsv", "json"]))
def test_what_is_saved_is_loaded(counts, ending, tmp_path_factory):
    file = tmp_path_factory.mktemp("saved") / f"sets.{ending}"
    people = np.minimum(counts.n, 3)
    counts = LabelSetCounts(counts.sets, counts.n, counts.clients, counts.labels, people)
    counts.save(file)
    assert LabelSetCounts.load(file) == counts


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: LabelSetCounts([[0, 2]], [[1]]), "2"),
        (lambda: LabelSetCounts([[0, np.nan]], [[1]]), "nan"),
        (lambda: LabelSetCounts([[1, 0], [1, 0]], [[1, 2]]), "twice"),
        (lambda: LabelSetCounts([[1, 0], [0, 1]], [[1, 2, 3]]), r"\(1, 3\)"),
        (lambda: LabelSetCounts([[1, 0]], [[0]]), "no client has samples"),
        (lambda: LabelSetCounts([[1]], [[5]]), "class"),
        (lambda: LabelSetCounts([[1, 0]], [[2]], labels=["a|b", "c"]), "a|b"),
        (lambda: LabelSetCounts([[1, 0]], [[2]], people=[[3]]), "3 people"),
        (lambda: LabelSetCounts.from_lists(["a|a"], ["x"]), "twice"),
        (lambda: LabelSetCounts.from_lists(["a", ""], ["x", "x"]), "empty"),
        (lambda: LabelSetCounts.from_lists(["a", None], ["x", "x"]), "None"),
        (lambda: LabelSetCounts.from_lists(["a"], ["x"], ["b"]), "'a'"),
        (lambda: LabelSetCounts.from_columns([[0, -1.0]], ["x"]), "-1"),
        (lambda: LabelSetCounts.from_columns([[0, 1]], ["x", "y"]), "length"),
        (lambda: name_label_sets([[0, 1]], ["a|b", "c"]), "a|b"),
        (lambda: name_label_sets([[0, 1]], ["a", "b", "c"]), "3"),
        (lambda: plan_label_sets([[1, 2]]), "list"),
        (lambda: plan_label_sets(small(), sets="site"), "'site'"),
    ],
)
def test_what_has_no_one_reading_is_refused(make, named):
    with pytest.raises(InputError, match=named):
        make()


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("site,flu,rash,images\nN,1,0,5\nN,1,0,6\nS,0,1,2\n", "N: flu"),
        ("site,flu,rash,images\nN,1,0,5\nN,1,1,some\n", "some"),
        ("site,flu,rash,images\nN,1,0,5\nN,1,2,6\n", "1, 2"),
        ("site,flu,rash,images\nN,1,0,5\n,1,1,6\n", "line 3"),
        ("site,labels\nN,flu|rash\nN,\n", "labels"),
    ],
)
def test_a_wrong_table_of_label_sets_is_refused(text, named, tmp_path):
    file = tmp_path / "sets.csv"
    file.write_text(text)
    with pytest.raises(InputError, match=named):
        LabelSetCounts.load(file)


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    with pytest.raises(InputError, match=r"absent\.csv"):
        LabelSetCounts.load(tmp_path / "absent.csv")
    (tmp_path / "counts.csv").write_text("site,flu,rash\nN,10,3\nS,4,90\n")
    with pytest.raises(InputError, match=r"counts\.csv"):
        LabelSetCounts.load(tmp_path / "counts.csv")


# The least samples


def least_total(holds: np.ndarray, demand: np.ndarray) -> int:
    """Return the least number of samples by trying every set, for every demand on the way."""
    sets = [tuple(column) for column in holds.T.astype(int) if column.any()]

    @functools.cache
    def least(missing: tuple[int, ...]) -> int:
        if not any(missing):
            return 0
        after = ([max(0, m - x) for m, x in zip(missing, s, strict=True)] for s in sets)
        return 1 + min(least(rest) for rest in map(tuple, after) if rest != missing)

    return least(tuple(demand.tolist()))


def random_program(rng: np.random.Generator, labels: int, sets: int, most: int):
    holds = rng.random((labels, sets)) < rng.uniform(0.15, 0.6)
    return holds, rng.integers(0, most + 1, labels) * holds.any(axis=1)


def test_the_least_samples_are_those_of_brute_force():
    rng = np.random.default_rng(1)
    for _ in range(300):
        holds, demand = random_program(rng, rng.integers(2, 5), rng.integers(2, 9), 5)
        cover = least_cover(holds, demand)
        assert (holds @ cover >= demand).all()
        assert cover.sum() == least_total(holds, demand)


# Plans


POLICIES = [
    None, FedEAS(beta=12), FedEAS(beta=8, target="federation"), FedEAS(beta=5, below_mean=False),
    "waterfill(total=40)", FullBalance(), MissingOnly(total=30),
]  # fmt: skip


@pytest.mark.parametrize("policy", POLICIES, ids=str)
def test_one_label_per_sample_gives_the_plans_of_label_counts(policy):
    rng = np.random.default_rng(3)
    for _ in range(8):
        K, C = rng.integers(2, 8), rng.integers(2, 7)
        n = rng.integers(0, 400, (K, C)) * (rng.random((K, C)) < 0.7)
        n[0] += 1 + rng.integers(0, 3, C)
        n[1, :2] = 0, 7  # a class that a client lacks
        by_label = plan(LabelCounts(n), policy)
        by_set = plan_label_sets(LabelSetCounts.from_counts(n), policy)
        assert by_set.samples.tolist() == by_label.samples.tolist()
        assert not by_set.excess.any()
        assert by_set.obstacles == ()
        assert by_set.score_before == pytest.approx(by_label.score_before, rel=1e-12, abs=1e-15)
        assert by_set.score_after == pytest.approx(by_label.score_after, rel=1e-12, abs=1e-15)


@pytest.mark.parametrize("target", [None, "federation"])
@pytest.mark.parametrize("name", ["birds", "covid", "loans", "xray"])
def test_tables_of_real_sites_have_the_plans_that_they_had(name, target):
    counts = LabelCounts.load(site_table(name))
    by_label, by_set = (
        plan(counts, target=target),
        plan_label_sets(LabelSetCounts.from_counts(counts), target=target),
    )
    assert by_set.samples.tolist() == by_label.samples.tolist()
    assert by_set.wanted == by_label


@settings(max_examples=60, deadline=None)
@given(
    counts=label_set_counts(), beta=st.floats(0.5, 40), target=st.sampled_from([None, "federation"])
)
def test_a_plan_makes_what_is_wanted_with_the_least_samples(counts, beta, target):
    try:
        answer = plan_label_sets(counts, FedEAS(beta=beta, target=target), min_samples=0)
    except InputError as error:
        assert "target" in str(error)  # all samples have the same label
        return
    unmet = {(each.client, each.label) for each in answer.obstacles if not each.raised}
    for k, c in np.argwhere(answer.added < answer.wanted.samples):
        assert (counts.client_names[k], counts.positives.class_names[c]) in unmet
        assert not counts.holds[c].any()
    for k in range(counts.K):
        demand = answer.wanted.samples[k]
        clean = counts.holds & ~counts.holds[demand == 0].any(axis=0)
        if demand.sum() <= 25 and (clean.any(axis=1) | (demand == 0)).all():
            assert answer.per_client[k] == least_total(clean, demand)
            assert not answer.added[k, demand == 0].any()
    assert answer.total <= answer.wanted.total


def test_a_set_is_exchanged_for_its_part_where_the_rest_is_not_wanted():
    counts = LabelSetCounts([[1, 0, 0], [0, 1, 0], [1, 1, 0], [0, 0, 1]], [[6, 6, 6, 900]])
    answer = plan_label_sets(counts, want(10, 4, 0))
    names = {labels: number for _, labels, number in answer.rows()}
    assert names == {"0": 6, "0|1": 4}
    assert not answer.excess.any()


def want(*row: int):
    """Return a policy that asks for these positives of a single client."""

    class Want:
        name = "want"

        def plan(self, counts):
            return np.array([row])

    return Want()


def test_what_cannot_be_reached_without_raising_another_label_is_said():
    # Label 0 occurs with label 1 alone, or with 1 and 2; label 3 in no set.
    sets = [[1, 1, 0, 0], [1, 1, 1, 0], [0, 1, 0, 0], [0, 0, 1, 0]]
    counts = LabelSetCounts(sets, [[10, 10, 50, 50]])
    answer = plan_label_sets(counts, want(20, 0, 0, 7))
    raised, missing = answer.obstacles
    assert (raised.label, raised.wanted, raised.raised) == ("0", 20, {"1": 20})
    assert (missing.label, missing.wanted, missing.raised) == ("3", 7, {})
    assert {labels: n for _, labels, n in answer.rows()} == {"0|1": 20}
    # Less of the other label is wanted than comes along.
    answer = plan_label_sets(counts, want(20, 5, 0, 0))
    assert [each.raised for each in answer.obstacles] == [{"1": 15}]
    # Label 1 can be made alone.
    assert plan_label_sets(counts, want(0, 5, 0, 0)).obstacles == ()


def test_rare_sets_are_used_only_where_there_is_no_other():
    counts = LabelSetCounts([[1, 0], [0, 1], [1, 1]], [[50, 50, 5]])
    assert plan_label_sets(counts, want(9, 9)).total == 18
    assert plan_label_sets(counts, want(9, 9), min_samples=5).total == 9
    only = LabelSetCounts([[1, 0], [1, 1]], [[50, 5]])
    assert plan_label_sets(only, want(9, 9)).samples.tolist() == [[0, 9]]


def test_a_client_may_keep_to_its_own_label_sets():
    counts = small()
    wide = plan_label_sets(counts, FedEAS(beta=12), min_samples=0)
    own = plan_label_sets(counts, FedEAS(beta=12), min_samples=0, sets="client")
    assert (own.samples[counts.n == 0] == 0).all()
    assert (wide.samples[counts.n == 0] > 0).any()
    unmet = {(each.client, each.label) for each in own.obstacles if not each.raised}
    assert ("North", "rash") in unmet


@given(counts=label_set_counts(), federation=st.booleans())
@settings(max_examples=40, deadline=None)
def test_scores_are_squared_differences_of_prevalence(counts, federation):
    target = "federation" if federation else None
    try:
        tau = target_prevalence(counts, target)
    except InputError:
        return
    kept, N = tau > 0, counts.sizes
    if not kept.all():
        return
    scores = label_scores(counts, target)
    each = ((counts.prevalence - tau) ** 2)[N > 0]
    assert scores == pytest.approx((N[N > 0] / N.sum()) @ each, abs=1e-12)
    if federation:
        assert tau == pytest.approx(counts.positives.n.sum(axis=0) / counts.total)


def test_scores_of_labels_add_up_to_the_imbalance_of_single_labels():
    n = np.array([[90, 10, 0], [30, 40, 30]])
    counts = LabelSetCounts.from_counts(n)
    for target in (None, "federation", [0.5, 0.5, 0], [3, 2, 1]):
        expected = skew.imbalance(n, target=target)
        assert label_scores(counts, target).sum() == pytest.approx(expected, rel=1e-12)


def test_a_saved_plan_is_a_table_of_label_sets(tmp_path):
    answer = plan_label_sets(small(), FedEAS(beta=12), min_samples=0)
    answer.save(tmp_path / "plan.csv")
    with pytest.raises(InputError, match="is a plan"):
        LabelSetCounts.load(tmp_path / "plan.csv")
    text = (tmp_path / "plan.csv").read_text()
    (tmp_path / "table.csv").write_text(text.replace("samples to generate", "client"))
    table = LabelSetCounts.load(tmp_path / "table.csv")
    rows = {(k, s): int(m) for k, row in zip(table.client_names, table.n, strict=True)
            for s, m in zip(table.set_names, row, strict=True) if m}  # fmt: skip
    assert rows == {(k, s): m for k, s, m in answer.rows()}
    assert json.loads(json.dumps(answer.to_dict()))["total"] == answer.total


@settings(max_examples=30, deadline=None)
@given(counts=label_set_counts())
def test_a_saved_plan_is_loaded_as_it_was(counts, tmp_path_factory):
    file = tmp_path_factory.mktemp("saved") / "plan.json"
    policy = FedEAS(beta=12, target="federation")
    try:
        answer = plan_label_sets(counts, policy, min_samples=0)
    except InputError:  # all samples have the same label
        return
    answer.save(file)
    loaded = LabelSetPlan.load(file)
    assert (loaded.counts, loaded.wanted) == (answer.counts, answer.wanted)
    assert loaded.samples.tolist() == answer.samples.tolist()
    assert loaded.obstacles == answer.obstacles
    assert loaded.to_dict() == answer.to_dict()


@pytest.mark.parametrize("change", ["samples", "facts", "form", "other"])
def test_a_plan_that_was_changed_is_not_loaded(change, tmp_path):
    file = tmp_path / "plan.json"
    answer = plan_label_sets(small(), FedEAS(beta=12), min_samples=0)
    answer.save(file)
    facts = read_json(file)
    if change == "samples":
        facts["samples"][0][-1] += 1
    elif change == "facts":
        del facts["obstacles"]
    elif change == "form":
        facts["samples"] = facts["samples"][:1]
    write_json(file, facts)
    if change == "other":
        plan(LabelCounts([[90, 10], [5, 5]])).save(file)
    with pytest.raises(InputError, match=r"plan\.json"):
        LabelSetPlan.load(file)


def test_plans_are_below_greedy(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    benchmark = importlib.import_module("label_sets")
    columns, site = benchmark.draw(3000, 8, 6)
    tables = [LabelSetCounts.from_columns(columns, site)]
    tables.append(LabelSetCounts.load(site_table("xray_label_sets")))
    for counts in tables:
        answer = plan_label_sets(counts)
        assert answer.total < benchmark.greedy_total(answer) < answer.wanted.total


# The command


def run(*words: object):
    from typer.testing import CliRunner

    from fedeas.cli.main import app

    return CliRunner().invoke(app, ["plan", *map(str, words)], catch_exceptions=True)


@pytest.fixture
def sets_file(tmp_path) -> Path:
    file = tmp_path / "sets.csv"
    rows = [f"{k},{','.join(str(int(x in s)) for x in LABELS)},{50 * n}" for k, s, n in ROWS]
    file.write_text("\n".join(["site,flu,cough,rash,images", *rows]) + "\n")
    return file


def test_the_command_plans_label_sets(sets_file, tmp_path):
    out = tmp_path / "plan.csv"
    done = run(sets_file, "--beta", "12", "--out", out)
    assert done.exit_code == 0, done.output
    counts = LabelSetCounts.load(sets_file)
    answer = plan_label_sets(counts, FedEAS(beta=12))
    assert out.read_text().startswith("samples to generate,")
    assert answer.total > 0
    for _, labels, number in answer.rows():
        assert labels.replace("|", " | ") in done.stdout
        assert f"{number:,}" in done.stdout
    facts = json.loads(run(sets_file, "--beta", "12", "--json").stdout)
    assert facts["total"] == answer.total
    assert facts["diagnosis"]["advice"]
    assert {row["client"]: row["sets"] for row in facts["clients"]} == {
        name: {s: m for k, s, m in answer.rows() if k == name} for name in counts.client_names
    }


def test_the_command_tells_positives_from_samples(sets_file):
    answer = plan_label_sets(LabelSetCounts.load(sets_file), target="federation")
    assert answer.wanted.total > answer.total > 0
    heads = {}
    for line in run(sets_file, "--target", "federation").stdout.splitlines():
        head, _, text = line.partition(" ")
        heads[head] = heads.get(head, "") + text
    assert f"{answer.wanted.total:,} wanted; beta" in heads["positives"]
    assert heads["samples"].split()[0] == f"{answer.total:,}"
    assert "beta" not in heads["samples"]


def test_samples_with_several_labels_are_not_read_as_counts_in_silence(tmp_path):
    rows = [(k, s) for k, s, n in ROWS for _ in range(n)]
    lists, columns = tmp_path / "lists.csv", tmp_path / "columns.csv"
    lists.write_text("\n".join(["site,labels", *(f"{k},{s}" for k, s in rows)]))
    hot = (f"{k},{','.join(str(int(x in s)) for x in sorted(LABELS))}" for k, s in rows)
    columns.write_text("\n".join(["site,cough,flu,rash", *hot]))
    for file in (lists, columns):
        done = run(file)
        assert isinstance(done.exception, InputError)
        assert "--keep" in str(done.exception)


def test_the_command_says_what_is_out_of_reach(tmp_path):
    file = tmp_path / "sets.csv"
    file.write_text(
        "site,flu,cough,rash,images\nN,0,1,0,100\nN,0,0,1,100\nS,1,1,0,90\nS,0,0,1,90\nS,0,1,0,90\n"
    )
    done = run(file, "--beta", "12", "--json")
    (obstacle,) = json.loads(done.stdout)["obstacles"]
    assert (obstacle["client"], obstacle["label"]) == ("N", "flu")
    assert set(obstacle["raised"]) == {"cough"}
    shown = " ".join(run(file, "--beta", "12").stdout.split())
    assert f"flu also raises cough by {obstacle['raised']['cough']:,}" in shown


class NoTarget:
    """A policy of somebody else, which knows of no target."""

    def plan(self, counts):
        return np.ones_like(counts.n)


def test_a_policy_without_a_target_is_measured_against_it(sets_file):
    target = "--target", "federation", "--json"
    for policy in (f"{__name__}:NoTarget", "uniform(total=10)"):
        done = run(sets_file, "--policy", policy, *target)
        assert done.exit_code == 0, done.output
        facts = json.loads(done.stdout)
        assert facts["target"] == "federation"
        expected = label_scores(LabelSetCounts.load(sets_file), "federation").sum()
        assert facts["score_before"] == pytest.approx(expected)


def test_options_for_single_labels_are_refused(sets_file):
    for option in ("--cost", "--spend"):
        assert run(sets_file, option, "3").exit_code != 0


@pytest.mark.parametrize(
    "text",
    [
        "site,flu,rash\nN,1,0\nS,0,1\n",  # a row per client
        "site,flu,rash\nN,1,0\nN,0,1\nS,0,1\n",  # a label per row
        "site,label\nN,flu\nN,rash\nS,flu\n",
        "client,class,count\nN,flu,50\nN,rash,7\nS,flu,3\n",
        "site,flu,rash\nN,10,3\nS,4,90\n",
    ],
)
def test_tables_of_single_labels_are_left_to_their_reader(text, tmp_path, monkeypatch):
    file = tmp_path / "counts.csv"
    file.write_text(text)
    monkeypatch.setattr("fedeas.cli.label_sets.plan_sets", None)  # must not be called
    assert not isinstance(run(file).exception, TypeError)


# The page


def test_the_figures_of_the_page_are_those_of_the_archives():
    page = (ROOT / "docs" / "howto" / "several_labels.md").read_text()
    one = LabelCounts.load(site_table("xray"))
    counts = LabelSetCounts.load(site_table("xray_label_sets"))
    single = plan(one, target="federation")
    plans = {
        "all images, a label per sample": (counts, 10**9),
        "all images, label sets": (counts, 6),
        "people, label sets": (counts.of_people(), 6),
    }
    answers = {
        name: plan_label_sets(table, target="federation", min_samples=least)
        for name, (table, least) in plans.items()
    }
    assert table_row("images with one label", single, single.total) in page
    for name, answer in answers.items():
        assert table_row(name, answer, answer.wanted.total) in page
    part = answers["all images, label sets"].total / answers["all images, a label per sample"].total
    assert f"{100 * part:.0f} % of the samples" in page
    several = counts.n[:, counts.sets.sum(axis=1) > 1].sum(axis=1) / counts.sizes
    shares = dict(zip(counts.client_names, (100 * several).round().astype(int), strict=True))
    text = " ".join(page.split())
    assert (
        f"{counts.total:,} images with seven findings. In CheXpert {shares['CheXpert']} % show two "
        f"or more findings, in NIH {shares['NIH']} %, in PadChest {shares['PadChest']} %; a table "
        f"of images with exactly one label holds {one.total:,}."
    ) in text
    _, images = people_of_the_archives()
    assert images == dict(zip(counts.client_names, counts.sizes.tolist(), strict=True))


def table_row(name: str, answer, wanted: int) -> str:
    sites = [f"{number:,}" for number in answer.per_client.tolist()]
    parts = [f"{100 * part:.1f} %" for part in (answer.reduction, answer.synthetic_share)]
    return f"| {' | '.join([name, *sites, f'{wanted:,}', f'{answer.total:,}', *parts])} |"


def people_of_the_archives() -> tuple[dict[str, int], dict[str, int]]:
    """Return how many people and images each archive has."""
    people: dict[str, int] = {}
    images: dict[str, int] = {}
    for line in site_table("xray_people").read_text().splitlines()[1:]:
        site, _, persons, number = line.split(",")
        people[site] = people.get(site, 0) + int(persons)
        images[site] = images.get(site, 0) + int(number)
    return people, images
