"""The quality of generated rows: every measure by hand, and generators that are known to be bad."""

import json
from functools import partial

import numpy as np
import pytest

from fedeas import InputError
from fedeas.data import Column, Schema, load_table, open_dataset
from fedeas.generators import Gaussian, RowSpace
from fedeas.generators.gaussian import gaussian_of_dataset
from fedeas.generators.resampler import BoundResampler, Copies
from fedeas.train.diffusion import quality
from fedeas.train.diffusion.judge import Judge, accuracy_on_real
from fedeas.train.diffusion.quality import (
    Drawn,
    Real,
    measure,
    memorisation,
    nearest_distances,
    row_vectors,
)
from helpers.table_sets import CLASSES, draw_rows, to_table, write_rows

NAN = np.nan


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    rows, labels = draw_rows(900)
    return load_table(to_table(rows, labels), store=tmp_path_factory.mktemp("store"))


@pytest.fixture(scope="module")
def judge(data):
    return Judge.train(data, epochs=12)


def seeds(count, start=0):
    return np.arange(start, start + count, dtype=np.uint64)


def drawn_by(generator, data):
    labels = np.asarray(data.train_labels)
    return Drawn(generator.sample(labels, seeds(len(labels))), labels)


def test_rows_are_compared_by_columns():
    """Categories differ by 1 whatever their codes; numbers by quantile."""
    schema = Schema((Column("home", ("own", "rent", "other")), Column("income")))
    known = np.column_stack([np.arange(99) % 3, np.exp(np.arange(99) / 9)]).astype(np.float32)
    vectors = partial(row_vectors, RowSpace.fit(schema, known))
    income = known[49, 1]
    own, rent, other, gap = vectors(
        np.array([[0, income], [1, income], [2, income], [NAN, income]], np.float32)
    )
    for a, b in ((own, rent), (rent, other), (own, other), (own, gap), (other, gap)):
        assert np.linalg.norm(a - b) == pytest.approx(np.sqrt(1 / 2))  # one of two columns
    missing = vectors(np.array([[0, NAN]], np.float32))[0]
    assert np.linalg.norm(own - missing) == pytest.approx(np.sqrt(1 / 2), abs=0.02)  # the median
    low, high = vectors(np.array([[0, known[15, 1]], [0, known[83, 1]]], np.float32))
    assert np.linalg.norm(low - high) == pytest.approx(np.sqrt(2.0**2 / 2), rel=0.03)  # one sd each


def test_distances_to_the_nearest_row_by_hand(monkeypatch):
    monkeypatch.setattr(quality, "_BLOCK", 2)
    known = np.array([[9, 9], [0, 0], [1, 0], [2, 1]], np.float32)

    def distances(rows):
        return nearest_distances(rows, known, np.arange(1, 4), lambda rows: rows.astype(np.float64))

    far = distances(np.array([[2, 1], [0.5, 0], [1, 3]], np.float32))
    np.testing.assert_allclose(far, [0, 0.5, np.sqrt(5)])
    natural = distances(np.array([[0, 1], [3, 1]], np.float32))  # both 1 away
    found = memorisation(far, natural, 0.5)
    assert (found.threshold, found.share, found.expected) == (1.0, 2 / 3, 1.0)
    assert (found.median, found.real_median, found.suspected) == (0.5, 1.0, False)


def test_copies_are_memorised_although_real_rows_repeat_too():
    """Where one unseen row in ten is in the training rows, only more copies than that count."""
    rng = np.random.default_rng(0)
    training = rng.normal(size=(300, 4)).astype(np.float32)
    unseen = rng.normal(size=(100, 4)).astype(np.float32)
    unseen[:10] = training[:10]
    honest = rng.normal(size=(100, 4)).astype(np.float32)
    honest[:10] = training[200:210]
    natural, copied, fair = (
        nearest_distances(rows, training, np.arange(300))
        for rows in (unseen, training[100:200], honest)
    )
    copied, fair = memorisation(copied, natural), memorisation(fair, natural)
    assert (copied.threshold, copied.expected, copied.share) == (0, 0.1, 1.0)
    assert copied.suspected
    assert fair.share == 0.1
    assert not fair.suspected


def test_what_is_compared_has_classes_as_often(data):
    labels = np.asarray(data.labels)
    few = np.concatenate([np.flatnonzero(labels == c)[:n] for c, n in ((0, 6), (1, 2), (2, 2))])
    real = Real(data, few, few)
    chosen = real.like(np.array([0, 1, 1, 1]), few, 8)
    assert np.bincount(chosen.labels).tolist() == [2, 6]  # both of class 1 three times
    rows, counts = np.unique(chosen.samples[chosen.labels == 1], axis=0, return_counts=True)
    assert counts.tolist() == [3] * len(rows)
    assert not real.like(np.array([3, 3]), few, 8).labels.size


def test_a_judge_of_rows_is_kept_and_checks_what_it_is_given(judge, data, tmp_path):
    assert judge.accuracy > 0.8
    judge.save(tmp_path / "judge.safetensors")
    again = Judge.load(tmp_path / "judge.safetensors")
    np.testing.assert_array_equal(again(data.samples), judge(data.samples))
    with pytest.raises(InputError, match="another size"):
        judge(np.zeros((1, 2), np.float32))
    with pytest.raises(InputError, match="'home'"):
        judge(np.array([[30, 1000, 7]], np.float32))


def test_gaussian_is_good_and_copies_are_memorised(judge, data):
    real = Real.of(data)
    good = measure(drawn_by(gaussian_of_dataset(data), data), data.classes, judge, real)
    copied = BoundResampler.of_training(Copies(), data)
    bad = measure(drawn_by(copied, data), data.classes, judge, real)
    assert good.noun == "row"
    assert not good.memorisation.suspected
    assert good.memorisation.share < 1.5 * good.memorisation.expected
    assert bad.memorisation.suspected
    assert (bad.memorisation.share, bad.memorisation.median) == (1.0, 0.0)
    assert abs(good.agreement_mean - judge.accuracy) < 0.1


class Wrong:
    """Draws good rows, but of the next class."""

    fingerprint = "wrong-1"

    def __init__(self, inner):
        self.inner, self.classes = inner, inner.classes

    def sample(self, labels, seeds):
        return self.inner.sample((labels + 1) % 3, seeds)


def test_rows_of_the_wrong_class_are_caught(judge, data):
    """By the judge and by what a model learns from them."""
    made = drawn_by(Wrong(gaussian_of_dataset(data)), data)
    found = measure(made, data.classes, judge, Real.of(data))
    assert max(found.agreement.values()) < 0.2
    assert min(found.real_agreement.values()) > 0.7
    assert not found.memorisation.suspected
    few = Drawn(made.samples[:200], made.labels[:200])
    assert accuracy_on_real(data, few.samples, few.labels, Real.of(data).unseen, steps=200) < 0.2


def test_accuracy_on_real_rows_of_a_model_trained_on_generated_ones(data):
    real = Real.of(data)
    made = drawn_by(gaussian_of_dataset(data), data)
    learnt = accuracy_on_real(data, made.samples, made.labels, real.unseen, steps=300)
    noise = np.random.default_rng(0).permutation(made.labels)
    assert learnt > 0.8
    assert accuracy_on_real(data, made.samples, noise, real.unseen, steps=300) < 0.6


def test_accuracy_counts_classes_as_often_as_they_were_drawn(data):
    """A model of one class is always right about it, however rare that class is among real rows."""
    labels = np.full(40, 2)
    rows = gaussian_of_dataset(data).sample(labels, seeds(40))
    assert accuracy_on_real(data, rows, labels, Real.of(data).unseen, steps=20) == 1.0


def test_other_rows_than_the_table_has_are_refused(data):
    labels = np.zeros(2, np.int64)
    for rows, said in (
        (np.zeros((2, 5), np.float32), "shape"),
        (np.full((2, 3), 0.5, np.float32), "age"),
    ):
        with pytest.raises(InputError, match=said):
            measure(Drawn(rows, labels), CLASSES, real=Real.of(data))
    with pytest.raises(InputError, match="nothing to measure"):
        measure(Drawn(np.zeros((0, 3), np.float32), labels[:0]), CLASSES)


def test_gaps_where_the_training_rows_have_none_can_be_compared(data):
    rows = np.array(data.samples[:5])
    rows[:, 0] = np.nan
    assert np.isfinite(Real.of(data).vectors()(rows)).all()


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDEAS_STORE", str(tmp_path / "store"))
    return write_rows(tmp_path / "table", 240, 120)


def test_the_commands_fit_and_measure_rows(fedeas, folder, tmp_path, monkeypatch):
    # The command trains two classifiers to compare: here they need not be good.
    short = partial(accuracy_on_real, steps=20)
    monkeypatch.setattr("fedeas.train.diffusion.judge.accuracy_on_real", short)
    given = ("--data", "table", "--folder", folder)
    fitted = fedeas("generator", "train", "table", "--folder", folder, "--out", tmp_path / "model")
    assert fitted.code == 0, fitted.err
    assert f"generator        gaussian(model={tmp_path / 'model'})" in fitted.out
    data = open_dataset("table", folder)
    assert Gaussian.load(tmp_path / "model").fingerprint == gaussian_of_dataset(data).fingerprint
    spec = f"gaussian(model={tmp_path / 'model'})"
    result = fedeas("generator", "sample", spec, *given, "--out", tmp_path / "rows.csv", "--json")
    assert result.code == 0, result.err
    found = json.loads(result.out)
    assert found["rows"] == 240
    assert not found["memorisation"]["suspected"]
    lines = (tmp_path / "rows.csv").read_text().splitlines()
    assert lines[0] == "class,age,income,home"
    assert len(lines) == 241
    refused = fedeas("generator", "sample", spec, *given, "--out", tmp_path / "rows.png")
    assert refused.code == 2
    assert "a file ending in .csv" in refused.err
    page = fedeas("generator", "report", spec, *given, "--out", tmp_path / "page")
    assert page.code == 0, page.err
    assert "<img" in (tmp_path / "page" / "index.html").read_text()
    copied = fedeas("generator", "sample", "copies", *given, "--each", 20).out
    assert "60 rows of 3 classes" in copied
    assert "100.0 % are closer to a training row" in copied
    assert "they repeat training data" in copied


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["copies"], "give --data"),
        (["gaussian"], "gaussian of which data?"),
        (["gaussian(model=nowhere)"], "nowhere"),
    ],
)
def test_what_cannot_be_measured_is_said_in_one_line(fedeas, arguments, said):
    result = fedeas("generator", "sample", *arguments)
    assert result.code == 2
    assert said in result.err
    assert result.err.count("\n") == 1
