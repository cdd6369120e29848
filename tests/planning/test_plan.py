import copy
import json
import sys
import warnings
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fedeas
from fedeas import (
    Cost,
    FedEAS,
    InputError,
    LabelCounts,
    MissingExtraError,
    MissingOnly,
    Plan,
    Uniform,
    WaterFill,
    choose_beta,
    compare,
    diagnose,
)
from fedeas.counts import files
from fedeas.planning import skew
from fedeas.planning.policies import reachable_reduction
from helpers.greedy_reference import Greedy
from helpers.hypothesis_strategies import betas, counts

FORMATS = [".json", ".parquet"]


@pytest.mark.parametrize("ending", FORMATS)
@given(c=counts, beta=betas, cost=st.none() | st.builds(Cost, st.floats(1e-3, 1e3)))
def test_saving_and_loading_changes_nothing(c, beta, cost, ending, tmp_path_factory):
    plan = FedEAS(beta=beta).plan(c)
    if cost:
        plan = plan.with_cost(cost)
    path = tmp_path_factory.mktemp("plan") / f"plan{ending}"
    plan.save(path)
    again = Plan.load(path)
    assert again == plan
    assert again.counts_hash == c.fingerprint
    assert again.settings == plan.settings
    assert again.reduction == plan.reduction


def test_where_a_plan_comes_from_is_one_type(paper, tmp_path):
    plan = FedEAS().plan(paper)
    plan.save(tmp_path / "plan.json")
    loaded = Plan.load(tmp_path / "plan.json")
    for made in (plan, loaded, plan.with_cost(Cost(1.0))):
        assert made.counts_hash == paper.fingerprint
        assert type(made.counts_hash) is str


def test_names_travel_with_the_plan(tmp_path):
    c = LabelCounts([[9, 0], [0, 5]], clients=["north", "[red]south"], classes=["cat", "dog"])
    for ending in FORMATS:
        WaterFill(total=7).plan(c).save(tmp_path / f"plan{ending}")
        again = Plan.load(tmp_path / f"plan{ending}")
        assert (again.client_names, again.class_names) == (c.clients, c.classes)


@given(counts, st.integers(0, 1000))
def test_the_scores_of_a_plan_are_those_of_its_samples(c, total):
    plan = Uniform(total=total).plan(c)
    assert plan.score_before == pytest.approx(skew.imbalance(c), abs=1e-12)
    assert plan.score_after == pytest.approx(skew.imbalance(c, plan.samples), abs=1e-12)
    assert plan.negative_gain == skew.negative_gain(c, plan.samples)
    assert plan.synthetic_share == total / (total + c.total)


def test_a_plan_over_many_blocks_is_the_plan_of_its_rows():
    n = np.random.default_rng(0).integers(0, 50, size=(30_000, 10))
    c = LabelCounts(n)
    plan = FedEAS(beta=9).plan(c)
    rows = np.random.default_rng(1).choice(len(n), 50)
    for k in rows:
        np.testing.assert_array_equal(plan.samples[k], FedEAS(beta=9).local(n[k]))
    assert plan.score_after == pytest.approx(skew.imbalance(n, plan.samples), rel=1e-12)


def test_counts_are_no_plan(paper_csv):
    with pytest.raises(InputError, match="plan"):
        Plan.load(paper_csv)


@pytest.mark.parametrize(
    "damage",
    [
        {"real": -1},
        {"real": "many"},
        {"score_after": float("inf")},
        {"settings": []},
        {"policy": 3},
        {"counts_hash": None},
        {"cost": {"per": 1}},
        {"format": "plan/99"},
    ],
)
def test_a_damaged_plan_is_refused(paper, tmp_path, damage):
    path = tmp_path / "plan.json"
    FedEAS().plan(paper).save(path)
    content = json.loads(path.read_text())
    content["meta"] |= damage
    path.write_text(json.dumps(content))
    with pytest.raises(InputError, match="plan"):
        Plan.load(path)


def test_a_failed_write_leaves_the_old_file(paper, tmp_path, monkeypatch):
    path = tmp_path / "plan.json"
    FedEAS().plan(paper).save(path)
    before = {file: file.read_bytes() for file in tmp_path.iterdir()}
    assert path in before

    def full_disk(*_, **__):
        raise OSError(28, "No space left on device")

    larger = FedEAS(beta=8).plan(paper)
    monkeypatch.setattr("json.dumps", full_disk)
    with pytest.raises(OSError, match="No space"):
        larger.save(path)
    assert {file: file.read_bytes() for file in tmp_path.iterdir()} == before


@pytest.mark.parametrize(
    ("text", "samples", "said"),
    [
        ("0.8s", 13437, "2h 59min"),
        ("2", 10, "20.0s"),
        ("1min", 60, "1h"),
        ("0.002EUR", 13437, "26.87 EUR"),
        ("1h", 50, "2d 2h"),
    ],
)
def test_costs(text, samples, said):
    assert Cost.parse(text).of(samples) == said


def test_costs_and_back():
    assert Cost.parse("0.8s").samples_for("3h") == 13500
    assert Cost.parse("0.1s").samples_for("1s") == 10
    assert Cost.parse("0.01EUR").samples_for("5EUR") == 500
    with pytest.raises(InputError, match="different units"):
        Cost.parse("0.01EUR").samples_for("3h")


@pytest.mark.parametrize(
    "text", ["", "s", "-1s", "0s", "nans", "1e999s", "1 parsec", "1eur", "1.2.3s", "1e"]
)
def test_bad_costs(text):
    with pytest.raises(InputError, match="cost"):
        Cost.parse(text)


def test_a_plan_becomes_a_data_frame(monkeypatch):
    c = LabelCounts([[9, 0], [0, 5]], clients=["north", "south"], classes=["cat", "dog"])
    plan = WaterFill(total=7).plan(c)
    frame = plan.to_pandas()
    assert frame.loc["north", "dog"] == plan.samples[0, 1] > 0
    assert (frame.index.name, frame.columns.name) == ("client", "class")
    frame.loc["north", "dog"] = 0  # its own copy: a plan never changes
    assert plan.total == 7
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MissingExtraError, match=r"\[counts\]"):
        plan.to_pandas()


def test_a_plan_shows_itself_in_a_notebook():
    c = LabelCounts([[9, 0], [0, 5]], clients=["north", "<b>south"], classes=["cat", "dog & co"])
    shown = WaterFill(total=7).plan(c)._repr_html_()
    table = ElementTree.fromstring(shown)  # well-formed, so no name got in as markup
    assert [cell.text for cell in table.iter("th")] == [
        "client", "cat", "dog & co", "all", "north", "<b>south",
    ]  # fmt: skip
    assert table.find("caption").text.startswith("Plan(waterfill: 7 samples")


def test_a_plan_is_drawn_as_the_command_draws_it(fedeas, paper_csv, paper, tmp_path):
    plan = FedEAS(beta=12).plan(paper)
    plan.plot().savefig(tmp_path / "ours.png", dpi=160)
    assert fedeas("plan", paper_csv, "--beta", "12", "--plot", tmp_path / "theirs.png").code == 0
    assert (tmp_path / "ours.png").read_bytes() == (tmp_path / "theirs.png").read_bytes()
    assert plan.plot()._repr_png_().startswith(b"\x89PNG")  # without pyplot, also in a notebook


def test_a_loaded_plan_is_drawn_with_its_counts(paper, tmp_path):
    FedEAS(beta=12).plan(paper).save(tmp_path / "plan.json")
    plan = Plan.load(tmp_path / "plan.json")
    with pytest.raises(InputError, match=r"use plan\.plot\(counts\)"):
        plan.plot()
    with pytest.raises(InputError, match="made from other counts"):
        plan.plot(LabelCounts([[9, 0], [0, 5]]))
    assert len(plan.plot(paper).axes) == 3  # before, after, the scale


@pytest.mark.parametrize("ending", FORMATS)
def test_a_plan_of_a_newer_version_is_read_or_its_version_is_named(paper, tmp_path, ending):
    plan = FedEAS().plan(paper)
    facts = plan.facts()
    path = tmp_path / f"plan{ending}"

    def write(facts):
        files.write(path, files.Table(plan.samples, plan.clients, plan.classes, facts))

    write({**facts, "carbon": 12})
    assert Plan.load(path) == plan
    write({**facts, "format": "plan/2"})
    with pytest.raises(InputError) as error:
        Plan.load(path)
    assert "plan/2" in str(error.value)
    write({key: value for key, value in facts.items() if key != "real"})
    with pytest.raises(InputError):
        Plan.load(path)


def test_a_client_that_is_not_in_the_plan_is_named():
    plan = FedEAS().plan(LabelCounts([[90, 10], [3, 40]], ["north", "south"]))
    assert plan.sampling_strategy("south") == plan.sampling_strategy(1)
    assert plan.sampling_strategy(np.int64(1)) == plan.sampling_strategy(1)
    for wrong in ("west", 2, -1, None, True):
        with pytest.raises(InputError) as error:
            plan.sampling_strategy(wrong)
        assert str(wrong) in str(error.value) or wrong is None


def test_a_target_that_nobody_holds_is_refused_everywhere():
    counts = LabelCounts([[9, 1, 0, 0], [3, 4, 0, 0]])
    target = [0, 0, 1, 1]
    for ask in (
        lambda: Greedy(total=5, target=target).plan(counts),
        lambda: Uniform(total=5, target=target).plan(counts),
        lambda: FedEAS(target=target).plan(counts),
        lambda: FedEAS().plan(counts).scored_for(counts, target),
        lambda: diagnose(counts, target),
        lambda: choose_beta(counts, policy=FedEAS(target=target)),
        lambda: reachable_reduction(counts, target),
    ):
        with warnings.catch_warnings(), pytest.raises(InputError, match="target"):
            warnings.simplefilter("error")
            ask()


@pytest.mark.parametrize("amount", [0.0, -1.0, float("nan"), float("inf")])
def test_a_sample_costs_something(amount):
    for make in (Cost, lambda each: Cost((1.0, each))):
        with pytest.raises(InputError):
            make(amount)


def test_a_plan_says_in_python_too_where_it_overfills():
    df = LabelCounts([[90, 60], [70, 80], [55, 0]], ["A", "B", "C"])
    plan = FedEAS().plan(df)
    assert plan.overfilled.client == "C"
    assert "1 overfilled" in repr(plan)
    assert "1 overfilled" in plan._repr_html_()
    assert "overfilled" not in repr(FedEAS(beta=2).plan(df))
    assert copy.deepcopy(plan).overfilled == plan.overfilled


def test_a_loaded_plan_does_not_know_where_it_overfills(tmp_path):
    FedEAS().plan(LabelCounts([[55, 0], [3, 4]])).save(tmp_path / "plan.json")
    assert Plan.load(tmp_path / "plan.json").overfilled is None


def test_answers_are_small_tables_in_a_notebook():
    pytest.importorskip("pandas")
    counts = LabelCounts([[90, 10, 0], [30, 40, 30]])
    table = compare(counts)
    assert len(repr(table)) < 600
    assert "full-balance" in repr(table)
    assert list(table.to_pandas().policy) == [row.policy for row in table]
    assert diagnose(counts).to_pandas().advice.item() == "copies"
    choice = choose_beta(counts)
    assert choice.to_pandas().beta.item() == choice.beta
    for answer in (table, diagnose(counts), choice):
        assert answer._repr_html_().startswith("<table>")


def test_one_verb_plans(paper):
    chosen = choose_beta(paper)
    assert fedeas.plan(paper) == FedEAS(beta=chosen.beta).plan(paper)
    assert fedeas.plan(paper, "fedeas(beta=8)") == FedEAS(beta=8).plan(paper)
    within = fedeas.plan(paper, total=9000)
    assert within == FedEAS(beta=choose_beta(paper, total=9000).beta).plan(paper)
    assert 8000 < within.total <= 9000
    assert fedeas.plan(paper, "waterfill", total=900) == WaterFill(total=900).plan(paper)
    aimed = fedeas.plan(paper, MissingOnly(total=900), target="federation", cost="2s")
    expected = MissingOnly(total=900, target="federation").plan(paper)
    assert aimed == expected.with_cost(Cost(2.0))
    for wrong in ({"policy": "full-balance"}, {"policy": "fedeas(beta=8)"}, {"policy": FedEAS()}):
        with pytest.raises(InputError):
            fedeas.plan(paper, total=9, **wrong)


class Halves:
    """A third party's policy, which returns an array and knows no target."""

    def plan(self, counts):
        return counts.n // 2


def test_the_verb_makes_a_plan_of_an_array(paper):
    plan = fedeas.plan(paper, Halves(), target="federation")
    assert plan.total == (paper.n // 2).sum()
    assert plan.target_name == "federation"
