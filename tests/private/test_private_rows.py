"""`own` for tables: what one row can move, what private sums say of columns, what comes out."""

import dataclasses
import json
import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedeas import IID, InfeasibleError, InputError
from fedeas.data import Column, Dataset, Schema, federate
from fedeas.generators import Generator, make_generator
from fedeas.generators.gaussian import Gaussian
from fedeas.generators.row_space import RowSpace
from fedeas.lab.config import Augment, Config, Data, PartitionConfig
from fedeas.lab.resolve import make_private_generator, resolve
from fedeas.private.accounting import DELTA, epsilon_of, rho_for, rho_of
from fedeas.private.generator import rows as own_rows
from fedeas.private.generator.base import james_stein
from fedeas.private.generator.make import make_from_sums, make_private, open_private, queries_for
from fedeas.private.generator.rows import clean_moments, finer_edges, first_edges, within_classes
from fedeas.private.noise import SumNoise
from fedeas.private.queries import encode_query, read_query
from fedeas.private.queries.moments import NoisyMoments
from fedeas.private.queries.table import ColumnCounts, RowMoments
from fedeas.private.secure_sum.messages import RefusedError
from fedeas.private.sums import release
from fedeas.train.settings import Federated, ModelSettings
from helpers.table_sets import CLASSES, SCHEMA, data_of, draw_rows, to_table

CUTS = ((20.5, 40.5), (-3.0, 0.0, 900.0))
QUERIES = [
    ColumnCounts(3, (3,), (*CUTS, ())),
    RowMoments(
        3, (3,), (0, 0, 3), (False, True, True), CUTS,
        ((-1.0, 0.2, 1.5), (-2.0, -0.5, 0.5, 300.0)), ((0.3, 0.0, 0.4), (0.1, 0.1, 0.1, 20.0)),
        1.8, 1.4,
    ),
    RowMoments(3, (3,), (4, 4, 3), (False, True, True), radius=1.5, number_radius=1.0),
]  # fmt: skip


@st.composite
def tables(draw) -> np.ndarray:
    """Rows with gaps, codes outside the schema, tiny and enormous numbers."""
    numbers = st.floats(width=32) | st.sampled_from([20.5, -3.0, 0.0, 3.0e38, math.nan])
    codes = st.sampled_from([0.0, 1.0, 2.0, 7.0, -1.0, math.nan])
    row = st.tuples(numbers, numbers, codes)
    return np.array(draw(st.lists(row, min_size=1, max_size=6)), np.float32)


@pytest.mark.parametrize("query", QUERIES, ids=lambda q: q.name)
@given(rows=tables(), data=st.data())
@settings(max_examples=30, deadline=None)
def test_one_row_moves_an_answer_by_its_own_words_and_no_further_than_proven(query, rows, data):
    size = len(rows)
    labels = np.array(data.draw(st.lists(st.integers(0, 2), min_size=size, max_size=size)))
    out = data.draw(st.integers(0, size - 1))
    rest = np.delete(np.arange(size), out)
    moved = query.answer(rows, labels) - query.answer(rows, labels, rest)
    own = query.answer(rows[out : out + 1], labels[out : out + 1])
    assert (moved == own).all()
    assert np.linalg.norm(moved.astype(float)) <= query.sensitivity


@pytest.mark.parametrize("query", QUERIES, ids=lambda q: q.name)
def test_the_bound_is_reached_and_two_rows_pass_it(query):
    """Positive control: the search above could find a row that is too long."""
    far = np.array([[3.0, 3.0, 2.0] if query is QUERIES[2] else [1e9, 1e9, 1.0]], np.float32)
    one = np.linalg.norm(query.answer(far, np.zeros(1, int)).astype(float))
    two = np.linalg.norm(query.answer(np.repeat(far, 2, axis=0), np.zeros(2, int)).astype(float))
    assert 0.9 * query.sensitivity < one <= query.sensitivity < two


@pytest.mark.parametrize("query", QUERIES, ids=lambda q: q.name)
def test_blocks_do_not_matter_to_a_single_bit(query):
    rows, labels = draw_rows(700)
    shuffled = np.random.default_rng(1).permutation(700)
    parts = [query.answer(rows, labels, own) for own in np.array_split(shuffled, [3, 400, 660])]
    assert (sum(parts) == query.answer(rows, labels)).all()


def test_values_are_counted_in_their_interval_and_gaps_apart():
    nan = math.nan
    rows = np.array([[20, -3.5, nan], [20.5, nan, 1], [99, 900, 0]], np.float32)
    query = QUERIES[0]
    found = query.read(query.answer(rows, np.array([0, 1, 2])), 0.0, 1)
    assert [one.counts.tolist() for one in found] == [[1, 1, 1], [1, 0, 0, 1], [2]]
    assert [one.gaps for one in found] == [0, 1, 1]


def test_moments_are_those_of_a_generator_that_sees_the_rows():
    """In the same space, of rows that are not clipped; second moments are those of numbers."""
    rows, labels = draw_rows(600)
    seen = Gaussian.fit(rows, labels, CLASSES, SCHEMA)
    space = seen.space
    numbers = [np.unique(own[~np.isnan(own)]) for own in rows[:, :2].T]
    encoded = [curve.encode(own.astype(float)) for curve, own in zip(
        space.quantiles, numbers, strict=True
    )]  # fmt: skip
    query = RowMoments(
        3, (3,), (0, 0, 3), space.gaps, tuple(tuple(own[1:].tolist()) for own in numbers),
        tuple(tuple(places.tolist()) for places, _ in encoded),
        tuple(tuple(variances.tolist()) for _, variances in encoded),
        20.0, 10.0,
    )  # fmt: skip
    found = query.read(query.answer(rows, labels), 0.0, 1)
    n, numbers = seen.moments.counts, seen.moments.squares[:, -2:, -2:]
    assert found.counts.tolist() == n.tolist()
    assert found.means * 10 == pytest.approx(seen.moments.sums / n[:, None], abs=1e-3)
    assert found.seconds * 100 == pytest.approx(numbers / n[:, None, None], abs=1e-2)


@pytest.mark.parametrize(
    "wrong",
    [
        {"cuts": ((1.0, 0.0), (0.0,))}, {"cuts": ((math.nan,), (0.0,))}, {"cuts": 3},
        {"cuts": (CUTS[0],)}, {"shape": (4,)}, {"levels": (0, 0, -1)}, {"levels": (0, 0, 10**9)},
        {"levels": (0, 0, "a")}, {"gaps": (False, True)}, {"gaps": (0, 1, 1)},
        {"places": ((0.0, 1.0, math.inf), (0.0,) * 4)}, {"places": ((0.0,), (0.0,))},
        {"variances": ((0.0, -1.0, 0.0), (0.0,) * 4)}, {"radius": 0.0}, {"radius": math.nan},
        {"radius": "1"}, {"levels": (0, 0, 16_385)},
        {"number_radius": 0.0}, {"number_radius": math.inf},
    ],
)  # fmt: skip
def test_an_absurd_query_is_refused_before_anything_is_computed(wrong):
    with pytest.raises(InputError):
        RowMoments(**{**QUERIES[1].__dict__, **wrong})


def test_a_question_of_an_earlier_version_is_refused():
    """It says how rows are shortened and not how their numbers are: another thing was meant."""
    asked = encode_query(QUERIES[1])
    assert read_query(asked) == QUERIES[1]
    del asked["number_radius"]
    with pytest.raises(RefusedError):
        read_query(asked)


def test_a_table_of_too_many_levels_is_refused_before_anything_is_asked():
    many = Column("code", categories=tuple(map(str, range(20_000))))

    def ask(query, part):
        raise AssertionError("asked")

    with pytest.raises(InputError, match="leave out columns of many categories"):
        own_rows.ask_moments(Schema((many, Column("age"))), 3, ask)


def test_rare_levels_move_no_number_and_no_other_level(tmp_path):
    """Noise on them did, divided by their variance; what levels say of the class stays."""
    rng = np.random.default_rng(3)
    codes = tuple(Column(name, categories=tuple(map(str, range(8)))) for name in "abc")
    schema = Schema((Column("x"), Column("y"), *codes))
    labels = rng.integers(3, size=6000)
    rare = np.where(
        rng.random((6000, 3)) < 0.97, labels[:, None] % 2, rng.integers(8, size=(6000, 3))
    )
    rows = np.concatenate([rng.standard_normal((6000, 2)) + 3 * labels[:, None], rare], axis=1)
    sites = np.array_split(np.arange(6000), 5)
    part = iter([(rows.astype(np.float32), labels)])
    data = Dataset.write(
        tmp_path / "data", "made", ("a", "b", "c"), (6000, 0), part, "", "table", schema
    )
    made = make_private(data, sites, epsilon=1.0, seeded_noise=True)
    asked = np.repeat(np.arange(3), 2000)
    drawn = made.sample(asked, np.arange(6000).astype(np.uint64))
    for c in range(3):
        own, real = drawn[asked == c], rows[labels == c]
        for level in range(3):
            with_it = own[own[:, 2] == level][:, :2]
            if len(with_it) >= 30:
                assert np.abs(with_it.mean(axis=0) - own[:, :2].mean(axis=0)).max() < 0.5
        assert (own[:, 2:] == c % 2).mean() == pytest.approx((real[:, 2:] == c % 2).mean(), abs=0.1)


# What sums say of columns.


@pytest.mark.parametrize(
    ("column", "low", "high"),
    [
        (Column("year", whole=True), 1980, 2020),
        (Column("pixel", whole=True), 27, 157),
        (Column("rate"), 0.02, 0.06),
        (Column("income"), 2e4, 4e5),
        (Column("balance"), -900.0, 900.0),
    ],
)
@pytest.mark.parametrize("error", [0.0, 60.0])
def test_the_scale_of_any_column_is_found(column, low, high, error):
    """Under noise as well: no interval far away is taken for one that has rows."""
    values = np.random.default_rng(1).uniform(low, high, 5000)
    if column.whole:
        values = np.round(values)
    rng = np.random.default_rng(2)
    edges = first_edges(column)
    counts = np.histogram(values, edges)[0] + error * rng.standard_normal(len(edges) - 1)
    found, expected = finer_edges(column, edges, counts, error, 1000)
    inside = np.histogram(values, found)[0]
    assert inside.sum() > 0.97 * len(values)  # of intervals on both sides little is left out
    assert inside.max() < 0.45 * len(values)
    assert len(found) <= 65
    assert expected.sum() == pytest.approx(1)


def test_noise_decides_how_much_is_kept():
    assert james_stein(np.array([3.0, 4.0]), 25.0) == 0
    assert james_stein(np.array([3.0, 4.0]), 0.0) == 1
    assert james_stein(np.zeros(2), 1.0) == 0


def test_correlations_below_the_noise_are_dropped_and_others_kept():
    d, error = 30, 0.05
    rng = np.random.default_rng(5)
    drawn = rng.standard_normal((d, d)) * error / math.sqrt(2)
    noise = (drawn + drawn.T) / math.sqrt(2)
    plain = within_classes(np.eye(d) + noise, error)
    assert np.abs(plain - np.diag(np.diag(plain))).max() < 0.05
    one = np.ones(d) / math.sqrt(d)
    truth = np.eye(d) / 2 + d / 2 * np.outer(one, one)
    found = within_classes(truth + noise, error)
    assert np.linalg.norm(found - truth) < 0.5 * np.linalg.norm(noise)


def test_a_class_too_small_to_be_seen_takes_after_the_others():
    space = RowSpace(Schema((Column("a"), Column("b"))), (False, False), ())
    counts = np.array([1000.0, 1000.0, 2.0])
    means = np.array([[1.0, 0.0], [-1.0, 0.0], [5.0, 5.0]])
    seconds = np.stack([np.diag([1.5, 0.5])] * 2 + [np.full((2, 2), 30.0)])
    found = clean_moments(
        space, NoisyMoments(counts, means, seconds, 10 / counts, 10 / counts), 1.0
    )
    shown = found.sums / counts[:, np.newaxis]
    assert shown[0] == pytest.approx([1.0, 0.0], abs=0.05)
    assert np.linalg.norm(shown[2]) < 0.6 * np.linalg.norm(means[2])


# What comes out.


@pytest.fixture(scope="module")
def people(tmp_path_factory):
    """Five sites that lack classes."""
    data = data_of(tmp_path_factory.mktemp("data") / "people")
    return data, np.array_split(np.argsort(data.labels, kind="stable"), 5)


def test_three_sums_cost_together_what_was_promised(people, monkeypatch):
    data, sites = people
    costs, names = [], []

    def watched(query, answers, count, *given):
        names.append(query.name)
        made = release(query, answers, count, *given)
        costs.append(rho_of(SumNoise(made.sigma, count), query.sensitivity, query.length))
        return made

    monkeypatch.setattr("fedeas.private.sums.release", watched)
    make_private(data, sites, epsilon=2.0)
    assert len(costs) == 3
    assert tuple(dict.fromkeys(names)) == queries_for("table")
    assert 0.99 * rho_for(2.0, DELTA) < sum(costs) <= rho_for(2.0, DELTA)
    assert epsilon_of(costs, DELTA) <= 2.0


def test_rows_show_their_class_and_the_folder_says_how_good_they_are(people, tmp_path):
    data, sites = people
    made = make_private(data, sites, epsilon=2.0, out=tmp_path, seeded_noise=True)
    assert isinstance(made, Generator)
    labels, seeds = np.arange(3000) % 3, np.arange(3000).astype(np.uint64)
    drawn = made.sample(labels, seeds)
    assert drawn.shape == (3000, 3)
    assert drawn.dtype == np.float32
    SCHEMA.check(drawn)
    real = np.asarray(data.samples)
    for c in range(3):
        own, like = drawn[labels == c], real[data.labels == c]
        assert np.nanmean(own[:, 0]) == pytest.approx(np.nanmean(like[:, 0]), abs=1.5)
        assert np.nanstd(own[:, 0]) == pytest.approx(np.nanstd(like[:, 0]), rel=0.25)
        assert np.nanmean(own[:, 1]) == pytest.approx(np.nanmean(like[:, 1]), rel=0.06)
        assert np.isnan(own[:, 1]).mean() == pytest.approx(0.2, abs=0.06)
        assert np.nanmean(own[:, 2] == c) == pytest.approx(np.nanmean(like[:, 2] == c), abs=0.08)

    opened = make_generator(f"private(model={tmp_path})")
    assert opened.fingerprint == made.fingerprint
    np.testing.assert_array_equal(opened.sample(labels[7:9], seeds[7:9]), drawn[7:9])
    card = json.loads((tmp_path / "generator.json").read_text())
    assert (card["privacy"], card["training"]["sites"], card["method"]) == (None, 5, "moments")
    assert card["counts"] == pytest.approx([1334, 1333, 1333], abs=150)
    assert all(0.8 < quality <= 1 for quality in card["quality"])


def test_sums_of_more_rows_than_the_sites_have_are_refused(people):
    """One site adds a row of its choice 4,000 times, or takes it away as often."""
    data, sites = people
    chosen = np.array([[30, 5.0, 0]], np.float32)
    card = make_private(data, sites, epsilon=3.0).card
    assert card.privacy.epsilon == 3.0
    assert "samples that the sites state" in card.notes["checked"]

    for times in (4000, -4000):

        def ask(query, part, times=times):
            answers = [query.answer(data.samples, data.labels, own) for own in sites]
            answers[0] = answers[0] + times * query.answer(chosen, np.zeros(1, np.int64))
            return release(query, answers, 5, 3.0, share=part)._replace(samples=4000)

        with pytest.raises(InfeasibleError, match="cannot be those of the sites' samples"):
            make_from_sums(data, ask)


def test_quality_falls_with_the_noise_and_is_one_without(people):
    data, sites = people

    def quality(rows: int, epsilon: float) -> float:
        few = [own[:rows] for own in sites]
        return np.mean(make_private(data, few, epsilon=epsilon, seeded_noise=True).card.quality)

    by_epsilon = [quality(120, epsilon) for epsilon in (1, 3, 10, math.inf)]
    assert by_epsilon[0] < by_epsilon[1] < by_epsilon[2] < by_epsilon[3] == 1
    assert quality(50, 1) < 0.9


def test_a_class_of_few_rows_has_less_quality(people):
    data, _ = people
    places = [np.flatnonzero(data.labels == c) for c in range(3)]
    site = np.concatenate([places[0], places[1], places[2][:30]])
    quality = make_private(data, [site], epsilon=1.0, seeded_noise=True).card.quality
    assert quality[2] < 0.8 * min(quality[:2])


def test_without_noise_nothing_is_lost_but_the_finest_steps(people):
    data, sites = people
    made = make_private(data, sites, epsilon=math.inf)
    assert made.card.quality == (1.0, 1.0, 1.0)
    seen = Gaussian.fit(data.samples, np.asarray(data.labels), CLASSES, SCHEMA)
    labels, seeds = np.arange(3000) % 3, np.arange(3000).astype(np.uint64)
    one, other = made.sample(labels, seeds), seen.sample(labels, seeds)
    for c in range(3):
        own, like = one[labels == c], other[labels == c]
        assert np.nanmean(own, axis=0) == pytest.approx(np.nanmean(like, axis=0), rel=0.1, abs=0.1)


def test_the_same_seed_makes_the_same_generator(people):
    data, sites = people
    one, two, other = (
        make_private(data, sites, seed=s, seeded_noise=True).fingerprint for s in (1, 1, 2)
    )
    assert one == two != other


def test_what_cannot_be_made_or_opened(people, tmp_path):
    data, sites = people
    made = make_private(data, sites, out=tmp_path)
    space = made.card.settings["space"]
    for change in (
        {"shape": (4,)}, {"settings": {}}, {"method": "magic"}, {"classes": ("a", "b")},
        {"settings": {"space": {**space, "gaps": [True] * 3}}},
        {"settings": {"space": {**space, "quantiles": []}}},
    ):  # fmt: skip
        dataclasses.replace(made.card, **change).save(tmp_path)
        with pytest.raises(InputError):
            open_private(str(tmp_path))
    made.save(tmp_path)
    assert isinstance(open_private(str(tmp_path)), own_rows.GaussianRows)


# In a run.


def test_a_run_makes_its_generator_from_its_own_clients(people, tmp_path, monkeypatch):
    data, _ = people
    monkeypatch.setenv("FEDEAS_STORE", str(tmp_path))
    federation = federate(data, IID(clients=5), "official")
    spec = make_private_generator("private(epsilon=2)", federation, 42)
    assert make_generator(spec).card.privacy.epsilon == 2
    assert make_private_generator("private(epsilon=2)", federation, 42) == spec


def test_a_run_plans_with_what_its_own_generators_samples_are_worth(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDEAS_STORE", str(tmp_path / "store"))
    pq.write_table(to_table(*draw_rows(900)), tmp_path / "people.parquet")
    plans, notes = {}, {}
    for policy in ("fedeas(beta=12)", "fedeas(beta=12, quality=1)"):
        config = Config(
            Data(str(tmp_path / "people.parquet")),
            PartitionConfig("dirichlet", clients=4, alpha=0.3),
            Augment(policy, "private(epsilon=3)", str(tmp_path)),
            Federated(model=ModelSettings("mlp")),
        )
        ready = resolve(config)
        plans[policy] = ready.plan
        stated = list(ready.generator.card.quality)
        notes[policy] = ready.note
    fewer, all_of_them = plans.values()
    note, nothing = notes.values()
    assert f"{fewer.total:,} of the {all_of_them.total:,} samples" in note
    assert nothing == ""
    assert fewer.settings["quality"] == stated
    assert all(quality < 1 for quality in stated)
    assert 0 < fewer.total < all_of_them.total
    assert (fewer.samples <= np.ceil(all_of_them.samples * np.array(stated))).all()


def test_the_command_makes_a_folder_from_a_table(fedeas, tmp_path):
    pq.write_table(to_table(*draw_rows(600)), tmp_path / "people.parquet")
    config = tmp_path / "config.toml"
    config.write_text(
        f'[data]\nname = "{tmp_path / "people.parquet"}"\n'
        '[partition]\nrecipe = "dirichlet"\nclients = 4\nalpha = 0.5\n'
    )
    done = fedeas("generator", "private", config, "--out", tmp_path / "own", "--epsilon", "10")
    assert done.code == 0, done.err
    assert f"epsilon = 10, delta = {DELTA:g} for one sample of a site" in done.out
    assert make_generator(f"private(model={tmp_path / 'own'})").card.training.sites == 4


@pytest.mark.slow
def test_the_benchmark_measures_real_rows():
    """Few rows: a classifier learns more from them than from chance, and less under noise."""
    command = [sys.executable, "benchmarks/private_generator.py", "--quick", "--table", "letter"]
    command += ["--seeds", "1", "--epsilon", "1", "inf"]
    done = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])["epsilon"]
    assert 30 < found["1"]["accuracy"][0] < found["inf"]["accuracy"][0]
    assert found["1"]["quality"][0] < found["inf"]["quality"][0] == 1
