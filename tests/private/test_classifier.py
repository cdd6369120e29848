"""A classifier from noisy sums: what comes out of them, what it costs, who may read it."""

import dataclasses
import json
import math

import numpy as np
import pandas
import polars
import pyarrow.parquet as pq
import pytest
import torch
from sklearn.discriminant_analysis import (
    LinearDiscriminantAnalysis,
    QuadraticDiscriminantAnalysis,
)

from fedeas import InfeasibleError, InputError
from fedeas.data import Dataset
from fedeas.data.schema import Column, Schema
from fedeas.generators.card import CARD
from fedeas.private.accounting import DELTA, epsilon_of, rho_for, sigma_for
from fedeas.private.flower import run_server
from fedeas.private.generator import classifier as module
from fedeas.private.generator import make as make_module
from fedeas.private.generator.base import unfinished
from fedeas.private.generator.card import WEIGHTS
from fedeas.private.generator.classifier import PrivateClassifier, discriminants, shrunk
from fedeas.private.generator.make import (
    CLASSIFIER_FOLDER,
    SUMS,
    claim_folder,
    make_classifier,
    make_once,
    make_private,
    open_private,
    queries_for,
    simulated_request,
)
from fedeas.private.groups import Groups
from fedeas.private.ledger import Ledger
from fedeas.private.noise import SumNoise
from fedeas.private.queries import encode_query, features, read_query
from fedeas.private.queries.features import (
    DIRECTIONS,
    EDGE_CELLS,
    EDGE_SCALES,
    EDGE_UNIT,
    FeatureMeans,
    FeatureProducts,
    cells,
    edge_features,
    edge_filters,
    feature_count,
)
from fedeas.private.sums import SimulatedSums, release
from fedeas.train.diffusion.quality import Drawn, measure
from helpers.deployed_sites import COUNTS, config, settings
from helpers.private_sites import GIVEN, RealSites, SitesWithTables
from helpers.table_sets import CLASSES as LEVELS
from helpers.table_sets import SCHEMA, draw_rows, to_table

SIZE = 24 * 2**2 + 2**2


@pytest.fixture(autouse=True)
def few_cells(request, monkeypatch):
    """Fewer features: words of all tests are few, and what holds for them holds for more."""
    if "whole_cells" not in request.fixturenames:
        monkeypatch.setattr(features, "EDGE_CELLS", 2)
        monkeypatch.setattr(features, "LIGHT_CELLS", 2)


@pytest.fixture
def whole_cells():
    """Leave the features as they are."""


@pytest.fixture(scope="module")
def shapes(tmp_path_factory):
    """Bright squares left, right and in the middle, on four sites that lack classes."""
    rng, count = np.random.default_rng(6), 1600
    labels = rng.integers(0, 3, count)
    samples = rng.integers(0, 60, (count, 12, 10, 1)).astype(np.uint8)
    for image, label in zip(samples, labels, strict=True):
        top = rng.integers(2, 6)
        image[top : top + 5, (0, 6, 3)[label] : (4, 10, 7)[label]] += 150
    folder = tmp_path_factory.mktemp("data") / "shapes"
    sizes, batches = (1200, 400), iter([(samples, labels)])
    data = Dataset.write(folder, "shapes", ("left", "right", "middle"), sizes, batches)
    return data, np.array_split(np.argsort(labels[:1200], kind="stable"), 4)


@pytest.fixture(scope="module")
def people():
    """A table of three classes on four sites, and rows to test on."""
    rows, labels = draw_rows(4000)
    data = Dataset(rows, labels, "x", LEVELS, 3000, "x", kind="table", schema=SCHEMA)
    return data, np.array_split(np.arange(3000), 4)


def right(classifier: PrivateClassifier, data: Dataset) -> float:
    tested = slice(data.train_size, None)
    return float((classifier.predict(data.samples[tested]) == data.labels[tested]).mean())


# Discriminants


def scores(tensors, x: np.ndarray) -> np.ndarray:
    squares, weights, offsets = (tensors[k].numpy() for k in ("squares", "weights", "offsets"))
    found = x @ weights + offsets
    for c, square in enumerate(squares):
        found[:, c] += np.einsum("ni,ij,nj->n", x, square, x)
    return found


def test_a_discriminant_by_hand():
    """Means 0 and 2, variance 1: the border is at 1, less half the log odds of the second."""
    counts, means = np.array([1.0, 3.0]), np.array([[0.0], [2.0]])
    linear = scores(discriminants(counts, means, np.eye(1)[np.newaxis]), np.array([[0.0], [1.0]]))
    assert (linear[:, 1] - linear[:, 0]).tolist() == pytest.approx([math.log(3) - 2, math.log(3)])
    # A mean of a standard error of 0.5 is 0.25 too long in the square.
    noisy = discriminants(counts, means, np.eye(1)[np.newaxis], np.array([0.0, 0.5]))
    assert noisy["offsets"][1] - noisy["offsets"][0] == pytest.approx(math.log(3) - 2 + 0.125)
    # Variances 1 and 4, one mean, equal counts: x^2 (1/2 - 1/8) against log 2.
    quadratic = discriminants(np.ones(2), np.zeros((2, 1)), np.array([[[1.0]], [[4.0]]]))
    found = scores(quadratic, np.array([[2.0]]))[0]
    assert found[1] - found[0] == pytest.approx(4 * 3 / 8 - math.log(2))


def drawn(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    y = np.repeat([0, 1, 2], [200, 100, 40])
    spread = rng.normal(size=(3, 6, 6))
    x = np.einsum("nij,nj->ni", spread[y], rng.normal(size=(len(y), 6)))
    return x + rng.normal(size=(3, 6))[y], y


@pytest.mark.parametrize("shrinkage", [0.0, 0.1, 0.7])
def test_linear_discriminants_are_those_of_scikit_learn(shrinkage):
    (x, y), (other, _) = drawn(), drawn(1)
    means = np.stack([x[y == c].mean(axis=0) for c in range(3)])
    within = (x - means[y]).T @ (x - means[y]) / len(x)
    made = discriminants(
        np.bincount(y).astype(float), means, shrunk(within, 0.0, shrinkage)[np.newaxis]
    )
    theirs = LinearDiscriminantAnalysis(solver="lsqr", shrinkage=shrinkage).fit(x, y)
    assert (scores(made, other).argmax(axis=1) == theirs.predict(other)).all()
    assert len(set(theirs.predict(other))) == 3


def test_quadratic_discriminants_are_those_of_scikit_learn():
    (x, y), (other, _) = drawn(), drawn(1)
    means = np.stack([x[y == c].mean(axis=0) for c in range(3)])
    theirs = QuadraticDiscriminantAnalysis(store_covariance=True).fit(x, y)
    made = discriminants(np.bincount(y).astype(float), means, np.stack(theirs.covariance_))
    assert (scores(made, other).argmax(axis=1) == theirs.predict(other)).all()


def test_shrinkage_grows_with_the_noise_and_leaves_no_direction_without_variance():
    rng = np.random.default_rng(0)
    true = np.diag(np.linspace(0.1, 2.0, 40))
    noise = rng.normal(size=(40, 40))
    noise = np.triu(noise) + np.triu(noise, 1).T
    conditions = []
    for error in (0.0, 0.05, 0.5):
        values = np.linalg.eigvalsh(shrunk(true + error * noise, error))
        assert values[0] > 0
        conditions.append(values[-1] / values[0])
    assert conditions[0] > conditions[1] > conditions[2]


# Edge features


@pytest.mark.parametrize("side", [28, 32])
def test_edges_never_leave_the_whole_numbers_that_are_exact(side):
    """The longest sum of a filter, and of strengths in a cell, in single precision."""
    for step, scale in EDGE_SCALES:
        filters = edge_filters(scale)
        assert (filters == np.rint(filters)).all()
        largest = 255 * float(np.abs(filters).sum(axis=(1, 2, 3)).max())
        pixels = float(cells(-(-side // step), EDGE_CELLS).sum(axis=1).max()) ** 2
        assert math.sqrt(2) * largest * pixels < 2**24
        assert np.abs(filters.sum(axis=(1, 2, 3))).max() <= 16  # blind to brightness, but rounding


def test_an_image_has_the_same_edges_among_any_others(whole_cells):
    images = np.random.default_rng(0).integers(0, 256, (70, 13, 11, 3), np.uint8)
    together = edge_features(images)
    assert together.shape == (70, feature_count(3))
    assert all((edge_features(images[k : k + 1])[0] == together[k]).all() for k in (0, 33, 69))
    assert np.linalg.norm(together, axis=1) == pytest.approx(np.full(70, EDGE_UNIT), rel=1e-4)


def test_an_edge_is_seen_in_its_direction_and_its_cell(whole_cells):
    """Vertical stripes in the left half: waves across them, and nothing on the right."""
    image = np.zeros((1, 28, 28, 1), np.uint8)
    image[:, :, 0:12:4] = image[:, :, 1:12:4] = 255
    first = edge_features(image)[0, : EDGE_CELLS**2 * DIRECTIONS]
    found = first.reshape(EDGE_CELLS, EDGE_CELLS, DIRECTIONS)
    assert (found[:, 0].argmax(axis=1) == 0).all()  # of filters, the first looks along a row
    assert (found[:, 0, 0] > 3 * found[:, -1].max()).all()


def test_a_query_of_edges_is_sent_and_one_of_other_colours_is_refused():
    centre, scale = ((0,) * SIZE,) * 3, (EDGE_UNIT,) * SIZE
    for kind in (FeatureMeans, FeatureProducts):
        query = kind(3, (8, 8, 1), centre, scale)
        assert read_query(json.loads(json.dumps(encode_query(query)))) == query
    with pytest.raises(InputError):  # three colours have more light
        FeatureMeans(3, (8, 8, 3), centre, scale)


# Classifiers


def test_without_noise_and_clipping_it_is_scikit_learns(shapes, monkeypatch):
    """Through the real sums: nothing is lost but the rounding of words."""
    data, places = shapes
    monkeypatch.setattr(module, "_MEANS_CLIP", 20.0)
    monkeypatch.setattr(module, "_PRODUCTS_CLIP", 20.0)
    made = make_classifier(data, places, math.inf)
    train, tested = np.concatenate(places), np.arange(data.train_size, len(data.labels))
    ridge = module._LEAST_RIDGE
    theirs = LinearDiscriminantAnalysis(solver="lsqr", shrinkage=ridge / (1 + ridge))
    x = edge_features(np.asarray(data.samples[train])) / EDGE_UNIT
    theirs.fit(x, np.asarray(data.labels[train]))
    other = edge_features(np.asarray(data.samples[tested])) / EDGE_UNIT
    assert (made.predict(data.samples[tested]) == theirs.predict(other)).mean() >= 0.99


def test_images_are_recognised_where_the_noise_shows_that_there_are_any(shapes):
    data, places = shapes
    figures = [right(make_classifier(data, places, e), data) for e in (10.0, 100.0, math.inf)]
    assert figures[0] > 0.8 and figures[1] > 0.9 and figures[2] > 0.95
    with pytest.raises(InfeasibleError, match="noise hides"):
        make_classifier(data, places, 0.01)


def test_rows_are_recognised_with_gaps_and_categories(people):
    data, places = people
    assert right(make_classifier(data, places, 3.0), data) > 0.85
    assert right(make_classifier(data, places, math.inf), data) > 0.9


def with_many_levels() -> Dataset:
    """A table of which one class has mostly the first of many levels, the other any."""
    rng, levels = np.random.default_rng(2), "abcdefghijklmnopqrstuvwxyz"
    labels = rng.integers(0, 2, 4000)
    other = rng.random(4000) < np.array([0.8, 0.2])[labels]
    level = np.where(other, rng.integers(1, len(levels), 4000), 0)
    rows = np.stack([level, rng.normal(3.0 * labels)], axis=1).astype(np.float32)
    schema = Schema((Column("level", tuple(levels)), Column("number")))
    return Dataset(rows, labels, "x", ("a", "b"), 3000, "x", kind="table", schema=schema)


def test_a_rare_category_does_not_outweigh_the_numbers():
    """A class that has few rows of a level is not ruled out by it."""
    data, places = with_many_levels(), np.array_split(np.arange(3000), 4)
    assert right(make_classifier(data, places, math.inf), data) > 0.92  # at best 0.95


@pytest.mark.parametrize("kind", ["image", "table"])
def test_it_costs_what_its_sums_compose_to(kind, shapes, people):
    """Shares of one budget add up to it, and the card states it."""
    data, places = shapes if kind == "image" else people
    sums, rhos = SimulatedSums(data, places, DELTA), []

    def ask(query, share):
        rhos.append(share * rho_for(2.0, DELTA))
        return sums.ask(query, 2.0, share)

    card = PrivateClassifier.make(data, ask).card
    assert sum(rhos) == pytest.approx(rho_for(2.0, DELTA))
    assert sums.get_epsilon() == pytest.approx(epsilon_of(rhos, DELTA))
    assert sums.get_epsilon() <= 2.0
    assert (card.privacy.epsilon, card.privacy.delta, len(rhos)) == (2.0, DELTA, 3)
    assert sum(card.counts) == pytest.approx(sum(map(len, places)), rel=0.5)


def test_a_seed_or_no_noise_has_no_guarantee_and_groups_are_named(people):
    data, places = people
    for more in ({"noise_seed": 1}, {"epsilon": math.inf}):
        card = make_classifier(data, places, **more).card
        assert card.privacy is None and "warning" in card.notes
    groups = Groups.of(np.arange(len(data.labels)) // 3, bytes(32))
    grouped = make_classifier(data, places, 20.0, groups=groups)
    assert "group" in grouped.card.privacy.unit
    assert sum(grouped.card.counts) == pytest.approx(1000, abs=60)
    assert right(grouped, data) > 0.8


def test_groups_of_images_are_classified_too(shapes):
    data, places = shapes
    groups = Groups.of(np.arange(len(data.labels)) // 3, bytes(32))
    assert right(make_classifier(data, places, 300.0, groups=groups), data) > 0.9


@pytest.mark.parametrize("kind", ["image", "table"])
def test_saved_is_loaded(kind, shapes, people, tmp_path):
    data, places = shapes if kind == "image" else people
    made = make_classifier(data, places, 5.0)
    made.save(tmp_path)
    opened, samples = PrivateClassifier.load(tmp_path), data.samples[:600]
    assert opened.card == dataclasses.replace(made.card, settings=opened.card.settings)
    assert (opened.scores(samples) == made.scores(samples)).all()
    assert {path.name for path in tmp_path.iterdir()} == {CARD, WEIGHTS}
    assert opened.predict(data.samples[:0]).shape == (0,)
    with pytest.raises(InputError, match="not the folder of a private generator"):
        open_private(str(tmp_path))  # a classifier makes no samples


@pytest.fixture(scope="module")
def of_people(people):
    """A classifier of the table."""
    return make_classifier(*people, math.inf)


def test_images_in_another_form_are_refused(shapes):
    """Floats from 0 to 1 would all be of one class."""
    made, images = make_classifier(*shapes, math.inf), np.asarray(shapes[0].samples[:30])
    assert (made.predict(list(images)) == made.predict(images)).all()
    for other in (images / 255, images.astype(np.int64)):
        with pytest.raises(InputError, match=f"uint8.*{other.dtype}"):
            made.predict(other)
    for other in (images[0], images[..., 0], images[0, ..., 0], images.transpose(0, 3, 1, 2), []):
        with pytest.raises(InputError, match=r"\(n, 12, 10, 1\).*got \(") as refused:
            made.predict(other)
        assert ("samples[None]" in str(refused.value)) == (np.ndim(other) < 4)


def test_rows_with_unknown_codes_are_refused(people, of_people):
    rows = np.asarray(people[0].samples[:30])
    assert (of_people.predict(rows.tolist()) == of_people.predict(rows)).all()
    for code in (3.0, -1.0, 0.5):
        with pytest.raises(InputError, match=f"'home'.*{code}"):
            of_people.predict(np.where(np.arange(3) == 2, code, rows))
    for other in (rows[0], rows[:, :2], 3.0, rows.astype(str)):
        with pytest.raises(InputError):
            of_people.predict(other)


def test_columns_of_a_frame_are_found_by_name(people, of_people, tmp_path):
    """In any order, beside others, with categories as text, as data are read."""
    rows, labels = people[0].samples[:300], people[0].labels[:300]
    table = to_table(rows, labels).select(["home", "label", "income", "age"])
    expected = of_people.predict(rows)
    assert (expected == labels).mean() > 0.85
    of_people.save(tmp_path)
    made = PrivateClassifier.load(tmp_path)
    for frame in (table, table.to_pandas(), polars.from_arrow(table)):
        assert (made.predict(frame) == expected).all()
    with pytest.raises(InputError, match="'age'"):
        made.predict(table.drop(["age"]).to_pandas())
    with pytest.raises(InputError, match=r"'home'.*'tent'"):
        made.predict(table.to_pandas().replace("own", "tent"))


def test_a_frame_may_have_every_category_once():
    """Texts that differ in all rows are names in data, and none in what is classified."""
    data = with_many_levels()
    made = make_classifier(data, [np.arange(data.train_size)], math.inf)
    levels = data.schema.columns[0].categories
    frame = pandas.DataFrame({"number": 0.0, "level": levels})
    rows = np.stack([np.arange(len(levels)), np.zeros(len(levels))], axis=1)
    assert (made.predict(frame) == made.predict(rows)).all()


def test_a_folder_that_names_no_columns_takes_arrays_alone(people, of_people, tmp_path):
    """As earlier versions wrote it."""
    rows, card = people[0].samples[:300], of_people.card
    query = {"query": {**card.settings["query"]}}
    del query["query"]["number_radius"]
    earlier = PrivateClassifier(dataclasses.replace(card, settings=query), of_people._tensors)
    earlier.save(tmp_path)
    opened = PrivateClassifier.load(tmp_path)
    assert (opened.predict(rows) == of_people.predict(rows)).all()
    with pytest.raises(InputError, match="code from 0 to 2"):
        opened.predict(np.full((1, 3), 3.0))
    with pytest.raises(InputError, match="names no columns"):
        opened.predict(to_table(rows, people[0].labels[:300]).to_pandas())


@pytest.mark.parametrize("kind", ["image", "table"])
def test_hostile_files_are_refused(kind, shapes, people, tmp_path):
    data, places = shapes if kind == "image" else people
    made = make_classifier(data, places, math.inf)
    card, tensors = made.card, made._tensors
    huge = {**tensors, "offsets": tensors["offsets"] * math.nan}
    single = {**tensors, "weights": tensors["weights"].float()}
    few = {name: tensor for name, tensor in tensors.items() if name != "squares"}
    more = {**tensors, "squares": torch.zeros(1, 2, 2, dtype=torch.float64)}
    for wrong in (huge, single, few, more):
        made._tensors = wrong
        made.save(tmp_path)
        with pytest.raises(InputError, match="do not match"):
            PrivateClassifier.load(tmp_path)
    made._tensors = tensors
    for change in (
        {"method": "magic"}, {"shape": (4, 4, 1)}, {"shape": (40,)}, {"generator": "private"},
        {"classes": ("a", "b")}, {"method": "edges" if kind == "table" else "rows"},
        {"shape": (8, 8, 10**8)}, {"shape": (8, 8, 2**70)}, {"shape": (256, 256, 256)},
        {"settings": {"query": {"query": "class-totals", "classes": 3}}, "method": "rows"},
        {"settings": {"query": [1]}, "method": "rows"},
        {"settings": {**card.settings, "schema": [*SCHEMA.to_list()[:2], 1]}, "method": "rows"},
        {"settings": {**card.settings, "schema": SCHEMA.to_list()[::-1]}, "method": "rows"},
    ):  # fmt: skip
        made.card = dataclasses.replace(card, **change)
        made.save(tmp_path)
        with pytest.raises(InputError):
            PrivateClassifier.load(tmp_path)
    made.card = card
    made.save(tmp_path)
    content = bytearray((tmp_path / WEIGHTS).read_bytes())
    content[-1] ^= 1
    (tmp_path / WEIGHTS).write_bytes(content)
    with pytest.raises(InputError, match="damaged"):
        PrivateClassifier.load(tmp_path)


def test_it_judges_samples_without_real_ones(shapes):
    data, places = shapes
    judge = make_classifier(data, places, 100.0)
    labels = np.asarray(data.labels[:60], np.int64)
    quality = measure(Drawn(np.asarray(data.samples[:60]), labels), data.classes, judge)
    assert quality.agreement_mean > 0.85 and quality.judge_accuracy is None


# One budget for a generator and a classifier


def test_one_budget_makes_both(shapes, people, tmp_path, monkeypatch):
    for kind, (data, places) in (("image", shapes), ("table", people)):
        asked = []
        ask = SimulatedSums.ask

        def noted(self, query, epsilon=1.0, share=1.0, ask=ask, asked=asked):
            asked.append((query.name, share))
            return ask(self, query, epsilon, share)

        out = tmp_path / kind
        with monkeypatch.context() as patch:
            patch.setattr(SimulatedSums, "ask", noted)
            generator = make_private(data, places, epsilon=50.0, out=out, classifier=True)
        made = PrivateClassifier.load(out / CLASSIFIER_FOLDER)
        assert generator.card.privacy == made.card.privacy
        assert sum(share for _, share in asked) == pytest.approx(1.0)
        assert set(queries_for(kind, classifier=True)) == {name for name, _ in asked}
        assert len(asked) == {"image": 5, "table": 3}[kind]  # of rows it costs nothing
        assert right(made, data) > 0.8
        assert open_private(str(out)).fingerprint == generator.fingerprint
    with pytest.raises(InputError, match="folder"):
        make_private(data, places, classifier=True)


def test_a_classifier_that_fails_takes_nothing_that_was_paid_for(shapes, tmp_path, monkeypatch):
    """The generator is there, and the next call asks for what is missing alone."""
    data, places = shapes
    asked, ask = [], SimulatedSums.ask

    def breaks(self, query, epsilon=1.0, share=1.0):
        asked.append(query.name)
        if len(asked) == 5:
            raise InputError("a site lies")
        return ask(self, query, epsilon, share)

    monkeypatch.setattr(SimulatedSums, "ask", breaks)
    with pytest.raises(InputError, match="lies"):
        make_private(data, places, epsilon=50.0, out=tmp_path, classifier=True)
    kept = open_private(str(tmp_path)).fingerprint
    assert make_private(data, places, 50.0, out=tmp_path, classifier=True).fingerprint == kept
    made = PrivateClassifier.load(tmp_path / CLASSIFIER_FOLDER)
    assert made.card.privacy == open_private(str(tmp_path)).card.privacy
    assert asked[4:] == ["feature-products"] * 2
    with pytest.raises(InputError, match="already"):
        make_private(data, places, epsilon=50.0, out=tmp_path, classifier=True)


def test_no_file_of_a_generator_tells_whose_data_it_was_made_of(shapes, tmp_path, monkeypatch):
    """A hash of the data tells a right guess of the last sample from a wrong one.

    Also where the classifier fails and the generator, which may be given away, is there already.
    The control: what the next call needs has the hash, beside the generator's folder.
    """
    data, places = shapes

    def fails(*_: object) -> None:
        raise InfeasibleError("too few samples")

    monkeypatch.setattr("fedeas.private.generator.make.classifier_from_sums", fails)
    out = tmp_path / "given"
    with pytest.raises(InfeasibleError):
        make_private(data, places, epsilon=5.0, out=out, classifier=True)
    assert open_private(str(out)).card.privacy.epsilon == 5.0
    (unfinished(out) / "thesis.txt").write_text("mine")
    with pytest.raises(InputError, match="other files"):
        make_private(data, places, epsilon=5.0, out=out, classifier=True)
    (unfinished(out) / "thesis.txt").unlink()
    marks = (
        data.fingerprint.encode(),
        simulated_request(data, places, 5.0, DELTA, 0, False)["samples"].encode(),
    )
    for mark in marks:
        assert not [p for p in out.rglob("*") if p.is_file() and mark in p.read_bytes()]
        beside = [p for p in tmp_path.rglob("*") if p.is_file() and mark in p.read_bytes()]
        assert [p.parent for p in beside] == [unfinished(out) / SUMS]


def test_sums_that_a_killed_process_left_beside_a_finished_generator_go(
    shapes, tmp_path, monkeypatch
):
    """The hash of its data would stay there for good."""
    data, places = shapes
    with monkeypatch.context() as patch:
        patch.setattr("fedeas.private.generator.make._remove", lambda sums: None)
        make_private(data, places, epsilon=5.0, out=tmp_path / "own", classifier=True)
    assert (unfinished(tmp_path / "own") / SUMS).exists()
    with pytest.raises(InputError, match="already; use it"):
        make_private(data, places, epsilon=5.0, out=tmp_path / "own", classifier=True)
    assert [path.name for path in tmp_path.iterdir()] == ["own"]


@pytest.mark.parametrize("killed", ["make_from_sums", "classifier_from_sums"])
def test_a_simulation_leaves_alone_what_real_sites_paid_for(shapes, tmp_path, monkeypatch, killed):
    """Asked once more, they would pay once more; and its generator would be taken for theirs."""
    data, places = shapes
    sums, out, asked = SimulatedSums(data, places), tmp_path / "own", []
    request = {"epsilon": 3.0, "delta": DELTA, "classifier": True}

    def ask(query, share):
        asked.append(query.name)
        return sums.ask(query, 3.0, share)

    def once(data, ask):
        make(data, ask)
        raise KeyboardInterrupt

    make = getattr(make_module, killed)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(make_module, killed, once)
        make_once(data, ask, request, out)
    before, kept = list(asked), sorted((out / SUMS).iterdir())
    for epsilon in (3.0, math.inf):
        with pytest.raises(InputError, match=r"sites paid for|holds a generator already"):
            make_private(data, places, epsilon=epsilon, out=out)
    assert sorted((out / SUMS).iterdir()) == kept
    assert make_once(data, ask, request, out).card.privacy.epsilon == pytest.approx(3.0)
    assert asked[: len(before)] == before
    assert len(asked) == len(queries_for("image", classifier=True)) + 1  # means twice

    mine = tmp_path / "mine" / SUMS / "thesis.txt"
    mine.parent.mkdir(parents=True)
    mine.write_text("mine")
    with pytest.raises(InputError, match="sites paid for"):
        make_private(data, places, epsilon=3.0, out=tmp_path / "mine")
    assert mine.exists()


def test_a_generator_without_its_classifier_can_be_used(shapes, tmp_path, monkeypatch):
    """Noise may hide what the classifier needs, after real sites have paid for the generator."""
    data, places = shapes
    sums = SimulatedSums(data, places)

    def ask(query, share):
        return sums.ask(query, 5.0, share)

    def fails(*_: object) -> None:
        raise InfeasibleError("too few samples")

    monkeypatch.setattr("fedeas.private.generator.make.classifier_from_sums", fails)
    request = {"epsilon": 5.0, "delta": DELTA, "classifier": True}
    with pytest.raises(InfeasibleError, match="no classifier: too few samples"):
        make_once(data, ask, request, tmp_path / "own")
    del request["classifier"]
    assert make_once(data, None, request, tmp_path / "own").card.privacy.epsilon == 5.0
    with pytest.raises(InputError, match="another request"):
        make_once(data, None, {**request, "epsilon": 4.0}, tmp_path / "own")


def test_a_classifier_of_images_takes_no_frame(shapes):
    made = make_classifier(*shapes, math.inf)
    with pytest.raises(InputError, match="is of images"):
        made.predict(pandas.DataFrame({"age": [1.0]}))


def test_two_processes_do_not_make_one_generator(shapes, tmp_path, monkeypatch):
    """They would each ask for sums, and pay for both; the second is refused before it asks."""
    data, places = shapes
    ask, asked = SimulatedSums.ask, []

    def meanwhile(self, query, epsilon=1.0, share=1.0):
        asked.append(query.name)
        if len(asked) == 1:
            with pytest.raises(InputError, match="another process"):
                make_private(data, places, epsilon=5.0, out=tmp_path / "one")
        return ask(self, query, epsilon, share)

    monkeypatch.setattr(SimulatedSums, "ask", meanwhile)
    make_private(data, places, epsilon=5.0, out=tmp_path / "one")
    assert asked == ["image-moments", "image-products"]
    assert [path.name for path in tmp_path.iterdir()] == ["one"]


def test_what_the_classifier_costs_twice_is_on_both_cards(shapes, tmp_path, monkeypatch):
    """A server that dies in a sum of the classifier's asks real sites for it again."""
    data, places = shapes
    sums = SimulatedSums(data, places)
    died = []

    def ask(query, share):
        released = sums.ask(query, 5.0, share)
        if query.name == FeatureProducts.name and not died:
            died.append(query)
            raise KeyboardInterrupt  # it was paid for, and is not saved
        return released

    request = {"epsilon": 5.0, "delta": DELTA, "classifier": True}
    with pytest.raises(KeyboardInterrupt):
        make_once(data, ask, request, tmp_path)
    generator = make_once(data, ask, request, tmp_path)
    paid = generator.card.privacy
    assert paid == PrivateClassifier.load(tmp_path / CLASSIFIER_FOLDER).card.privacy
    assert paid.epsilon == pytest.approx(sums.get_epsilon(), rel=1e-6) and paid.epsilon > 5.0
    assert "together" in generator.card.notes["budget"]


def test_no_site_pays_where_there_can_be_no_classifier(shapes, tmp_path, monkeypatch):
    data, places = shapes
    monkeypatch.setattr(SimulatedSums, "ask", lambda *_: pytest.fail("asked"))
    small = dataclasses.replace(data, samples=np.asarray(data.samples)[:, :7, :7])
    many = dataclasses.replace(data, classes=tuple(map(str, range(2000))))
    for wrong in (small, many):
        with pytest.raises(InputError):
            make_private(wrong, places, out=tmp_path, classifier=True)


@pytest.mark.parametrize("first", [True, False])
def test_a_folder_is_of_a_request_with_a_classifier_or_of_one_without(tmp_path, first):
    """With one, the generator has half of the budget: the other request is paid for again."""
    named = [{"epsilon": 1.0, **({"classifier": True} if both else {})} for both in (True, False)]
    requests = named if first else named[::-1]
    claim_folder(tmp_path, requests[0])
    claim_folder(tmp_path, requests[0])
    with pytest.raises(InputError, match="another request"):
        claim_folder(tmp_path, requests[1])


def test_the_command_makes_both(fedeas, tmp_path):
    pq.write_table(to_table(*draw_rows(600)), tmp_path / "people.parquet")
    config = tmp_path / "config.toml"
    config.write_text(
        f'[data]\nname = "{tmp_path / "people.parquet"}"\n'
        '[partition]\nrecipe = "dirichlet"\nclients = 4\nalpha = 0.5\n'
    )
    out = tmp_path / "own"
    done = fedeas(
        "generator", "private", config, "--out", out, "--epsilon", "10", "--classifier"
    )  # fmt: skip
    assert done.code == 0, done.err
    made = PrivateClassifier.load(out / CLASSIFIER_FOLDER)
    assert str(out / CLASSIFIER_FOLDER) in done.out and made.card.training.sites == 4


@pytest.mark.parametrize("kind", ["image", pytest.param("table", marks=pytest.mark.slow)])
def test_real_sites_make_both_through_secure_sums(sites, tmp_path, kind):
    """Every sum is in every ledger, together at the price of the run's epsilon."""
    given = GIVEN | {"generator-classifier": True, "policy": "none"}
    epsilon, budget = GIVEN["generator-epsilon"], 30.0
    if kind == "image":
        # A hundred images: at 20 the noise of the smallest sum, 3 % of rho, often hides them.
        epsilon, budget = 200.0, 300.0
        grid = RealSites(sites, tmp_path, generator="private", epsilon=budget)
        run = settings(sites, tmp_path / "run", **given | {"generator-epsilon": epsilon})
        ledgers = [config(sites, tmp_path, k).ledger_folder for k in range(len(COUNTS))]
        asked = ["image-moments", "image-products", *["feature-means"] * 2, "feature-products"]
    else:
        grid = SitesWithTables(tmp_path, sites)
        run = settings(sites, tmp_path / "run", **given) | {
            "classes": ",".join(LEVELS), "test-data": str(tmp_path / "4.parquet"), "model": "mlp",
            "schema": str(tmp_path / "schema.json"),
        }  # fmt: skip
        ledgers = [own.ledger_folder for own in grid.configs]
        asked = ["column-counts", "column-counts", "row-moments"]
    run_server(grid, run)
    made = PrivateClassifier.load(tmp_path / "run" / "private-generator" / CLASSIFIER_FOLDER)
    assert (made.card.privacy.epsilon, made.card.training.sites) == (epsilon, 4)
    for folder in ledgers:
        ledger = Ledger.open(folder, budget, 1e-6)
        assert [entry.query for entry in ledger.entries] == asked
        assert 0.75 * epsilon < ledger.epsilon_spent <= epsilon + 1e-9


# What somebody who knows everything else can tell


@pytest.mark.slow
def test_nobody_tells_a_sample_from_the_sums_beyond_what_epsilon_allows():
    """The best attack on the sum of means: along the row of the sample, everything else known."""
    query = FeatureMeans(3, (8, 8, 1), ((0,) * SIZE,) * 3, (EDGE_UNIT,) * SIZE)
    one = np.random.default_rng(0).integers(0, 256, (1, 8, 8, 1), np.uint8)
    moved = query.answer(one, np.zeros(1, np.int64)).astype(float)
    assert np.linalg.norm(moved) > 0.99 * query.sensitivity
    direction, trials = moved / np.linalg.norm(moved), 1500
    allowed = math.tanh(0.5)
    for rho, seen in ((rho_for(1.0, DELTA), False), (10.0, True)):
        sigma = sigma_for(rho, query.sensitivity, honest=2, words=query.length)
        noise = SumNoise(sigma, 2)
        rates = []
        for present in (1, 0):
            hits = 0
            for _ in range(trials):
                sums = noise.part(query.length) + noise.part(query.length) + present * moved
                hits += sums @ direction > np.linalg.norm(moved) / 2
            rates.append(hits / trials)
        assert (rates[0] - rates[1] > allowed) == seen


def test_a_sum_without_noise_is_the_plain_one():
    """The control: what an infinite epsilon releases has nothing added."""
    query = FeatureMeans(3, (8, 8, 1), ((0,) * SIZE,) * 3, (EDGE_UNIT,) * SIZE)
    images, labels = np.full((6, 8, 8, 1), 200, np.uint8), np.arange(6) % 3
    answer = query.answer(images, labels)
    assert (release(query, [answer, answer], 2, math.inf).sums == 2 * answer).all()
