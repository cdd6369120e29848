"""`smote`: rows between a client's own, and what they cannot make."""

import logging
import os
import subprocess
import sys

import numpy as np
import pytest

from fedeas import Dirichlet, FedEAS, InputError, LabelCounts, MissingExtraError, make_generator
from fedeas.cache import Cache, ClientSamples
from fedeas.cache.fill import fill
from fedeas.data import Schema, load_table
from fedeas.generators import Gaussian, Resampler, Smote, find_resampler
from fedeas.planning.plan import ClientPlan
from helpers.small_tables import SCHEMA, draw_table

pytest.importorskip("imblearn")


class Own:
    """A client's rows: many of class 0 and 1, two of class 2, one of class 3, none of class 4."""

    def __init__(self, schema: Schema | None = SCHEMA, columns=slice(None)) -> None:
        rows, labels = draw_table(300, classes=2)
        self.rows = np.concatenate([rows, rows[:3]])[:, columns]
        self.labels = np.concatenate([labels, [2, 2, 3]])
        self.schema = schema

    def take(self, places):
        return self.rows[places].copy(), self.labels[places]


NUMBERS = [0, 3]  # of SCHEMA, without gaps


def of_numbers() -> Own:
    return Own(Schema(tuple(SCHEMA.columns[at] for at in NUMBERS)), NUMBERS)


def seeds(size: int, start: int = 0) -> np.ndarray:
    return np.arange(start, start + size, dtype=np.uint64)


def test_rows_lie_between_rows_of_their_class():
    own = of_numbers()
    labels = np.repeat([0, 2], [200, 50])
    made = Smote().sample_from(own, labels, seeds(250))
    own.schema.check(made)
    assert made.dtype == np.float32
    for label in (0, 2):
        real, drawn = own.rows[own.labels == label], made[labels == label]
        assert (drawn >= real.min(axis=0)).all()
        assert (drawn <= real.max(axis=0)).all()
    again = Smote().sample_from(own, labels, seeds(250))
    np.testing.assert_array_equal(made, again)
    assert not np.array_equal(made, Smote().sample_from(own, labels, seeds(250, 1)))


def test_categories_and_gaps_are_kept():
    own = Own()
    made = Smote().sample_from(own, np.ones(1500, np.int64), seeds(1500))
    SCHEMA.check(made)  # only known categories, and whole numbers
    real = own.rows[own.labels == 1]
    assert np.isnan(made).mean(axis=0) == pytest.approx(np.isnan(real).mean(axis=0), abs=0.06)
    assert not np.isnan(made[:, ~np.isnan(real).any(axis=0)]).any()


@pytest.mark.parametrize("columns", [[1], [1, 4]])
def test_a_table_of_categories_alone_works(columns):
    own = Own(Schema(tuple(SCHEMA.columns[at] for at in columns)), columns)
    made = Smote().sample_from(own, np.zeros(20, np.int64), seeds(20))
    own.schema.check(made)


def test_one_class_alone_is_enough():
    own = of_numbers()
    own.rows, own.labels = own.rows[own.labels == 1], own.labels[own.labels == 1]
    assert len(Smote().sample_from(own, np.ones(9, np.int64), seeds(9))) == 9


def test_what_it_cannot_make_is_said_and_left_out(tmp_path, caplog):
    n = np.bincount(Own().labels, minlength=5)
    wanted = np.array([0, 3, 4, 5, 6])
    assert Smote().feasible(wanted, n).tolist() == [0, 3, 4, 0, 0]
    samples = ClientSamples("north", ClientPlan(wanted), "smote", tmp_path)
    with caplog.at_level(logging.WARNING, "fedeas"):
        rows, labels = samples.draw(n, 5, own=Own())
    assert np.bincount(labels).tolist() == [0, 3, 4]
    assert len(rows) == 7
    assert (
        "client north: smote: 11 of 18 samples cannot be made: 2 of its classes lack two samples"
        in caplog.text
    )
    assert not any(tmp_path.iterdir())  # rows made of real ones are not kept
    for label in (3, 4):
        with pytest.raises(
            InputError, match=f"needs two samples of a class; got '. of class {label}'"
        ):
            Smote().sample_from(Own(), np.array([label]), seeds(1))


def test_what_it_is_not_for_is_refused():
    class Images(Own):
        def take(self, places):
            return np.zeros((len(places), 4, 4, 1), np.uint8), self.labels[places]

    with pytest.raises(InputError, match="smote is for tables"):
        Smote().sample_from(Images(), np.array([0]), seeds(1))
    with pytest.raises(InputError, match="own samples, which are not here"):
        Smote().sample(np.array([0]), seeds(1))
    for spec in ("smote(neighbors=many)", "smote(neighbors=0)"):
        with pytest.raises(InputError):
            make_generator(spec)


def test_generators_of_own_samples_are_found_without_opening_others():
    assert isinstance(find_resampler("smote(neighbors=3)", by_owner=True), Smote)
    assert isinstance(find_resampler("copies", by_owner=True), Resampler)
    assert find_resampler("diffusion(model=nowhere)", by_owner=True) is None
    assert find_resampler("", by_owner=True) is None
    assert not isinstance(make_generator("noise(shape=2x2x1)"), Resampler)


def test_without_imbalanced_learn_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "imblearn.over_sampling", None)
    with pytest.raises(MissingExtraError, match=r"\[sampler\]"):
        Smote().sample_from(of_numbers(), np.array([0]), seeds(1))


def test_a_plan_that_smote_refuses_gaussian_meets(data, tmp_path):
    """Ten clients of satimage: nine want rows of classes that they have none or one of."""
    data = load_table(data / "tables" / "satimage.parquet", store=tmp_path / "store")
    train = np.asarray(data.train_labels)
    partition = Dirichlet(clients=10, alpha=0.3, seed=42).partition(train)
    counts = LabelCounts(partition.counts(train).n, classes=data.classes)
    plan = FedEAS(beta=12).plan(counts)
    met = (Smote().feasible(plan.samples, counts.n) == plan.samples).all(axis=1)
    busy = plan.per_client > 0
    assert (busy & ~met).sum() == 9
    places = np.arange(data.train_size)
    generator = Gaussian.fit(
        data.samples, np.asarray(data.labels), data.classes, data.schema, places
    )
    cache = Cache(tmp_path / "cache", generator, data.classes)
    done = fill(plan, generator, cache, like=data.samples)
    assert done.generated == plan.total
    for client, wanted in zip(plan.client_names, plan.samples.tolist(), strict=True):
        rows, labels = cache.samples(client, wanted)
        assert np.bincount(labels, minlength=6).tolist() == wanted
        if len(rows):
            data.schema.check(rows)


PLAN_AND_FILL = """
import sys
import numpy as np
from fedeas import FedEAS, LabelCounts, fill
from fedeas.cache import Cache
from fedeas.generators import Gaussian
rng = np.random.default_rng(0)
rows, labels = rng.normal(size=(90, 3)).astype(np.float32), np.arange(90) % 3
generator = Gaussian.fit(rows, labels, ("a", "b", "c"))
plan = FedEAS(beta=12).plan(LabelCounts([[30, 0, 2]], classes=["a", "b", "c"]))
cache = Cache(sys.argv[1], generator, plan.classes)
assert fill(plan, generator, cache).generated == plan.total > 0
print(sorted({"torch", "sklearn", "imblearn", "ray"} & sys.modules.keys()))
"""


def test_planning_and_filling_rows_take_numpy_and_arrow_alone(tmp_path):
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PLAN_AND_FILL, tmp_path],
        capture_output=True,
        text=True,
        env=os.environ.copy(),
    )
    assert done.stdout == "[]\n", done.stderr
