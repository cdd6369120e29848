"""Equal reduction: each client removes the same part of its own imbalance, within its cap."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from fedeas import EqualReduction, FedEAS, InputError, LabelCounts, Plan, make_policy
from fedeas.planning.stream import plan_stream

rows = st.lists(st.integers(0, 300), min_size=2, max_size=9)
parts = st.sampled_from([0.05, 0.2, 0.5, 0.8, 0.95])
caps = st.sampled_from([0.05, 0.3, 0.5, 0.9])


def term(n):
    """||q_k - u||^2 of one client."""
    n = np.asarray(n, float)
    return float((((n / n.sum()) - 1 / len(n)) ** 2).sum())


def filled(n, level):
    """What fills a client's scarce classes up to a level."""
    n = np.asarray(n)
    return np.where(n < n.sum() / len(n), np.maximum(level - n, 0), 0)


def test_the_papers_partition(paper):
    """Tried before it was built: 13,328 samples, 50.2 % removed, nobody above 28 % synthetic."""
    plan = EqualReduction(reduction=0.5).plan(paper)
    assert (plan.total, round(100 * plan.reduction, 1)) == (13_328, 50.2)
    shares = plan.per_client / (plan.per_client + paper.sizes)
    assert shares.max() < 0.28
    rule = FedEAS(beta=12).plan(paper)
    assert (rule.per_client / (rule.per_client + paper.sizes)).max() > 0.6


def test_the_papers_rule_has_no_cap(paper):
    """So a client of 130 samples gets 212 by it, and less by equal reduction."""
    client = 2
    assert paper.sizes[client] == 130
    assert FedEAS(beta=12).plan(paper).per_client[client] == 212
    assert EqualReduction().plan(paper).per_client[client] <= 130


@given(n=rows, reduction=parts, cap=caps)
def test_enough_is_removed_or_the_classes_are_full_or_the_cap_is_reached(n, reduction, cap):
    assume(sum(n) > 0)
    g = EqualReduction(reduction=reduction, cap=cap).local(n, client="north")
    most = int(sum(n) * cap / (1 - cap) * (1 + 1e-12))
    assert (g >= 0).all() and g.sum() <= most
    if term(n) < 1e-12:
        assert g.sum() == 0
        return
    wanted = (1 - reduction) * term(n) * (1 + 1e-12)
    levels = range(max(n) + 2)
    enough = next((b for b in levels if term(n + filled(n, b)) <= wanted), None)
    if enough is None:  # full: no level removes more
        best = min(term(n + filled(n, b)) for b in levels)
        if filled(n, max(n)).sum() <= most:
            assert term(n + g) == pytest.approx(best, abs=1e-9)
    elif filled(n, enough).sum() <= most:
        assert (g == filled(n, enough)).all()  # and one level less would not do
        assert term(n + filled(n, enough - 1)) > wanted
    else:
        assert g.sum() == most


@given(n=rows, cap=caps)
def test_a_capped_number_goes_to_the_class_that_has_fewest(n, cap):
    assume(sum(n) > 0 and term(n) > 1e-12)
    g = EqualReduction(reduction=0.95, cap=cap).local(n, client="north")
    after = np.asarray(n) + g
    given_to, scarce = g > 0, np.asarray(n) < sum(n) / len(n)
    if g.sum() == int(sum(n) * cap / (1 - cap) * (1 + 1e-12)):
        assert not given_to.any() or after[given_to].max() <= after[scarce].min() + 1


def test_a_client_with_an_absent_class_gets_something_while_its_cap_allows_one():
    assert EqualReduction(cap=0.1).local([9, 0, 0, 0], client="a").sum() == 1
    assert EqualReduction(cap=0.1).local([8, 0, 0, 0], client="a").sum() == 0


def test_ties_are_broken_by_the_clients_name_and_in_no_other_way():
    counts = LabelCounts(
        np.tile([9, 0, 0, 0], (40, 1)), [f"client {k}" for k in range(40)], ["a", "b", "c", "d"]
    )
    rule = EqualReduction(cap=0.1)
    plan = rule.plan(counts)
    assert (plan.per_client == 1).all()
    assert (plan.samples.sum(axis=0)[1:] > 3).all()  # by chance, to all three
    other = LabelCounts(counts.n[::-1], counts.clients[::-1], counts.classes)
    assert (rule.plan(other).samples == plan.samples[::-1]).all()
    for k, name in enumerate(counts.clients):
        assert (rule.local(counts.n[k], client=name) == plan.samples[k]).all()


@given(n=st.lists(st.lists(st.integers(0, 60), min_size=3, max_size=3), min_size=1, max_size=5))
def test_a_client_alone_plans_its_row(n):
    assume(np.sum(n) > 0)
    plan = EqualReduction(cap=0.2).plan(n)
    for k, row in enumerate(n):
        assert (EqualReduction(cap=0.2).local(row, client=str(k)) == plan.samples[k]).all()


def test_a_stream_of_clients_is_planned_alike(tmp_path):
    rng = np.random.default_rng(0)
    n = rng.multinomial(20, rng.dirichlet([0.05] * 4), size=3_000)
    names = [f"site {k}" for k in range(len(n))]
    columns = {"client": names, **{c: n[:, i] for i, c in enumerate("abcd")}}
    pq.write_table(pa.table(columns), tmp_path / "counts.parquet")
    rule = EqualReduction(cap=0.1)
    streamed = plan_stream(tmp_path / "counts.parquet", rule, tmp_path / "plan.parquet")
    whole = rule.plan(LabelCounts(n, names, "abcd"))
    assert streamed.total == whole.total
    assert plan_stream(tmp_path / "counts.parquet", rule).total == whole.total
    written = Plan.load(tmp_path / "plan.parquet")
    assert (written.samples == whole.samples).all()
    assert written.settings == {"reduction": 0.5, "cap": 0.1}


def test_one_class_a_client_the_most_skewed_federation_there_is():
    counts = LabelCounts(50 * np.eye(10, dtype=int).repeat(20, axis=0))
    plan = EqualReduction().plan(counts)
    assert (plan.per_client == 18).all()
    assert plan.reduction >= 0.5


@pytest.mark.parametrize("size", [1, 10, 10**3, 10**6])
def test_the_part_does_not_depend_on_the_size_of_the_data(size):
    n = np.array([90, 10, 0, 0]) * size
    removed = 1 - term(n + EqualReduction().local(n)) / term(n)
    assert 0.5 <= removed < (0.55 if size < 1000 else 0.501)


def test_a_target():
    aimed = EqualReduction(target={"a": 0.7, "b": 0.2, "c": 0.1})
    counts = LabelCounts([[70, 20, 10], [10, 80, 10]], classes=["a", "b", "c"])
    plan = aimed.plan(counts)
    assert plan.per_client[0] == 0  # it is there already
    assert plan.samples[1].tolist()[1:] == [0, 0]
    assert plan.reduction >= 0.5
    without = EqualReduction(target=[0.5, 0.5, 0]).plan([[90, 10, 5]])
    assert without.samples[0, 2] == 0


@pytest.mark.parametrize("settings", [{"reduction": 0}, {"reduction": 1}, {"cap": 1}, {"cap": 0}])
def test_parts_are_above_0_and_below_1(settings):
    with pytest.raises(InputError):
        EqualReduction(**settings)


def test_by_name():
    assert make_policy("equal-reduction(reduction=0.3)") == EqualReduction(reduction=0.3)
