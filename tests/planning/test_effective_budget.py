"""What samples of little worth are planned for: fewer of them, and none where none is best."""

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedeas import FedEAS, InputError, LabelCounts, choose_beta
from fedeas.planning.beta import path, steps
from fedeas.planning.named_values import make_named_values, planned_quality
from fedeas.planning.resolve import with_quality
from helpers.hypothesis_strategies import counts

SKEWED = LabelCounts(
    [[90, 10, 0], [30, 40, 30], [0, 80, 1]], classes=("cat", "dog", "bird"), clients=("a", "b", "c")
)
QUALITY = (1.0, 0.5, 0.2)


def test_only_the_part_that_samples_are_worth_is_made():
    asked = FedEAS(beta=12).local([90, 10, 0])
    made = FedEAS(beta=12, quality=QUALITY).local([90, 10, 0])
    assert made.tolist() == np.floor(asked * np.array(QUALITY)).tolist()
    assert made[1:].all()
    assert FedEAS(beta=12, quality=1).local([90, 10, 0]).tolist() == asked.tolist()
    aimed = {"target": [0.5, 0.3, 0.2]}
    asked = FedEAS(beta=40, **aimed).local([90, 10, 0])
    made = FedEAS(beta=40, quality=QUALITY, **aimed).local([90, 10, 0])
    assert made.tolist() == np.floor(asked * np.array(QUALITY) + 1e-9).tolist()


def test_a_plan_is_scored_with_what_its_samples_are_worth():
    plan = FedEAS(beta=12, quality=QUALITY).plan(SKEWED)
    assert plan.settings["quality"] == list(QUALITY)
    filled = LabelCounts((SKEWED.n + plan.samples * np.array(QUALITY)) * 100 // 1)
    shares = filled.n / filled.n.sum(axis=1, keepdims=True)
    score = SKEWED.sizes @ np.square(shares - 1 / 3).sum(axis=1) / SKEWED.total
    assert plan.score_after == pytest.approx(score, rel=0.01)
    assert "quality" not in FedEAS(beta=12).plan(SKEWED).settings


def test_names_decide_which_class_a_quality_is_of():
    by_name = FedEAS(beta=12, quality={"bird": 0.2, "dog": 0.5}).plan(SKEWED)
    assert (by_name.samples == FedEAS(beta=12, quality=QUALITY).plan(SKEWED).samples).all()


@given(counts, st.floats(0.5, 50), st.lists(st.floats(0.05, 1), min_size=2, max_size=12))
@settings(max_examples=40, deadline=None)
def test_the_path_is_the_plan_at_every_beta(c, beta, drawn):
    quality = tuple(np.resize(drawn, c.C).tolist())
    rule = FedEAS(quality=quality)
    found = path(c, np.array([beta]), rule)
    plan = FedEAS(beta=beta, quality=quality).plan(c)
    assert found.totals[0] == plan.total
    assert found.scores[0] == pytest.approx(plan.score_after, abs=1e-9)
    exact = steps(c, beta, rule)
    if exact.exact and exact.betas.size:
        assert exact.totals[-1] == plan.total
        assert exact.scores[-1] == pytest.approx(plan.score_after, abs=1e-9)


def test_limits_count_what_is_made():
    free = FedEAS(beta=50, quality=0.5).local([90, 10, 0])
    held = FedEAS(beta=50, quality=0.5, limits=40).local([90, 10, 0])
    assert free.sum() > 40
    assert 30 < held.sum() <= 40


def test_classes_that_the_target_leaves_out_take_their_quality_with_them():
    rule = FedEAS(target=[0.5, 0.0, 0.5], quality=QUALITY)
    plan = FedEAS(beta=9, target=[0.5, 0.0, 0.5], quality=QUALITY).plan(SKEWED)
    assert path(SKEWED, np.array([9.0]), rule).totals[0] == plan.total > 0


# The best budget.


def test_the_worse_the_samples_the_less_they_remove_and_then_nothing_is_best():
    rng = np.random.default_rng(0)
    table = LabelCounts((2500 * rng.dirichlet([0.1] * 10, 20)).astype(int))
    found = [choose_beta(table, policy=FedEAS(quality=q)) for q in (1.0, 0.4, 0.2, 0.05)]
    removed = [choice.reduction for choice in found]
    assert removed == sorted(removed, reverse=True)
    assert [choice.nothing for choice in found] == [False, False, False, True]
    assert "samples of this quality remove at most" in str(found[-1])
    assert found[-1].reason == str(found[-1])
    assert not found[0].reason
    # Without a quality nothing is said of worth, however little can be removed.
    assert not choose_beta(table, max_share=0.001).nothing


def write(folder, text="client,cat,dog,bird\na,90,10,0\nb,30,40,30\nc,0,80,1\n"):
    path = folder / "counts.csv"
    path.write_text(text)
    return path


def card(folder, quality) -> str:
    folder.mkdir()
    body = {"classes": ["cat", "dog", "bird"], "quality": quality}
    (folder / "generator.json").write_text(json.dumps(body))
    return str(folder)


def test_a_generators_folder_says_what_its_samples_are_worth(tmp_path):
    found = make_named_values(card(tmp_path / "own", [0.9, 0.4, 0.0]), "quality")
    assert found.names == ("cat", "dog", "bird")
    assert found.values == (0.9, 0.4, 0.01)
    assert planned_quality([0, 1]) == [0.01, 1]
    with pytest.raises(InputError):
        make_named_values(card(tmp_path / "damaged", [0.9]), "quality")
    with pytest.raises(InputError, match="up to 1"):
        make_named_values(card(tmp_path / "absurd", [0.9, 2.0, math.nan]), "quality")


def test_commands_plan_with_a_generators_folder(fedeas, tmp_path):
    good = card(tmp_path / "good", [0.9, 0.8, 0.7])
    table = write(tmp_path)
    done = fedeas("plan", table, "--beta", "12", "--quality", good, "--json")
    wanted = FedEAS(beta=12, quality=(0.9, 0.8, 0.7)).plan(SKEWED)
    assert json.loads(done.out)["total"] == wanted.total < FedEAS(beta=12).plan(SKEWED).total


def test_a_policy_that_knows_a_quality_keeps_it():
    assert with_quality(FedEAS(), [0.5, 1]).quality.values == (0.5, 1)
    assert with_quality(FedEAS(quality=1), [0.5, 1]).quality.values == (1,)
    other = object()
    assert with_quality(other, [0.5, 1]) is other
