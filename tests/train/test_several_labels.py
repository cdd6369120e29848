"""Samples with several labels, from data to a trained model: a label set is a class by its name."""

import importlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score
from torch.nn import functional

from fedeas import FedEAS, FedEASSampler, InputError, LabelCounts, Plan, augment
from fedeas._internal.settings import read_settings
from fedeas.cache import Cache, ClientSamples
from fedeas.cache.fill import fill
from fedeas.counts.label_sets import LabelSetCounts, name_label_sets
from fedeas.data import Column, Dataset, Federation, Schema, federate, open_dataset
from fedeas.generators.gaussian import Gaussian
from fedeas.generators.resampler import Copies
from fedeas.lab import run
from fedeas.lab.config import Config
from fedeas.partition import Dirichlet
from fedeas.planning.label_set_plan import LabelSetPlan, plan_label_sets
from fedeas.planning.plan import ClientPlan
from fedeas.private.generator.make import make_private, open_private
from fedeas.train.diffusion.judge import Judge
from fedeas.train.flower.backends import InlineGrid
from fedeas.train.flower.client import make_client_app
from fedeas.train.flower.rounds import run_rounds
from fedeas.train.flower.simulated import Simulation
from fedeas.train.flower.site import check_task, with_synthetic
from fedeas.train.loop import accuracy, auroc, scores
from fedeas.train.methods import METHODS, make_method
from fedeas.train.models import make_model
from fedeas.train.samples import Samples, Task
from fedeas.train.settings import Federated, Local, ModelSettings
from fedeas.train.simulate import simulate
from helpers.image_sets import CLASSES, draw_shapes

ROOT = Path(__file__).parents[2]
SETS = ("bar", "dot", "frame", "bar|dot", "bar|frame", "dot|frame")
ONE_CLASS = {"fedgen", "fedmix", "class-weights", "fedlc"}
LOCAL = Local(epochs=1, batch=16, learning_rate=0.1)
CLIENTS, ROUNDS, MODEL = 4, 2, "mlp"


def two_shapes(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Draw two shapes side by side; the labels are those of both, as columns of 0 and 1."""
    images, labels = draw_shapes(count)
    other = np.random.default_rng(1).permutation(count)
    columns = np.zeros((count, len(CLASSES)), int)
    columns[np.arange(count), labels] = columns[np.arange(count), labels[other]] = 1
    return np.concatenate([images, images[other]], axis=2), columns


def write_images(folder: Path, train: int = 240, test: int = 60) -> Dataset:
    images, columns = two_shapes(train + test)
    names = name_label_sets(columns, CLASSES)
    labels = np.array([SETS.index(name) for name in names])
    return Dataset.write(folder, "pairs", SETS, (train, test), iter([(images, labels)]))


def write_rows(folder: Path, count: int = 3000) -> Dataset:
    """Write rows of two numbers: one follows the label 'a', the other the label 'b'."""
    rng = np.random.default_rng(0)
    columns = rng.integers(0, 2, (count, 2))
    rows = (10 * columns + rng.normal(0, 1, (count, 2))).astype(np.float32)
    classes = ("no label", "a", "b", "a|b")
    labels = columns[:, 0] + 2 * columns[:, 1]
    schema = Schema((Column("x"), Column("y")))
    sizes = (count - 300, 300)
    return Dataset.write(folder, "t", classes, sizes, iter([(rows, labels)]), "", "table", schema)


@pytest.fixture(scope="module")
def pairs(tmp_path_factory) -> tuple[Federation, LabelSetPlan]:
    torch.set_num_threads(1)
    data = write_images(tmp_path_factory.mktemp("pairs") / "set")
    federation = federate(data, Dirichlet(CLIENTS, alpha=0.2, seed=3))
    counts = LabelSetCounts.from_counts(federation.counts)
    return federation, plan_label_sets(counts, FedEAS(beta=60), sets="client")


@pytest.fixture(scope="module")
def clients(pairs, tmp_path_factory) -> list[Samples]:
    """What each client trains on: its samples, and copies as the plan of label sets says."""
    (federation, plan), cache = pairs, tmp_path_factory.mktemp("cache")
    rows = plan.for_classes(federation.data.classes).samples
    return [
        with_synthetic(
            Samples.of(federation.data, part),
            ClientSamples(str(k), ClientPlan(rows[k]), Copies(), cache),
        )
        for k, part in enumerate(federation.partition.train)
    ]


# What a class is


def test_a_table_with_lists_of_labels_is_read_as_label_sets(tmp_path):
    names = ("flu", "flu|cough", "no label")
    lines = ["x,label", *(f"{i},{name}" for i in range(20) for name in names)]
    (tmp_path / "rows.csv").write_text("\n".join(lines) + "\n")
    data = open_dataset("t", tmp_path / "rows.csv", store=tmp_path / "store")
    assert data.label_sets.labels == ("cough", "flu")
    held = dict(zip(data.classes, data.label_sets.table.astype(int).tolist(), strict=True))
    assert held == {"flu": [0, 1], "flu|cough": [1, 1], "no label": [0, 0]}


def test_classes_without_lists_stay_classes(tmp_path):
    data = replace(write_images(tmp_path / "set"), classes=tuple("abcdef"))
    assert data.label_sets is None
    assert Task.of(data).classes == 6
    assert "label_sets" not in Task.of(data).to_dict()


def test_one_label_set_under_two_names_is_refused():
    with pytest.raises(InputError, match=r"b\|a"):
        LabelSetCounts.from_counts(LabelCounts([[1, 2, 3]], classes=["a|b", "b|a", "a"]))


def test_counts_of_classes_are_counts_of_label_sets(pairs):
    federation, _ = pairs
    counts = LabelSetCounts.from_counts(federation.counts)
    assert dict(zip(counts.set_names, counts.n.T.tolist(), strict=True)) == dict(
        zip(SETS, federation.counts.n.T.tolist(), strict=True)
    )


def test_a_plan_of_label_sets_is_a_plan_of_their_classes(pairs, tmp_path):
    _, plan = pairs
    turned = ("dot|bar", *reversed(SETS[4:]), *SETS[:3])  # another order, within a name too
    by_class = plan.for_classes(turned)
    assert by_class.total == plan.total > 0
    expected = dict(zip(plan.counts.set_names, plan.samples.T.tolist(), strict=True))
    assert by_class.samples.T.tolist() == [
        expected["|".join(sorted(name.split("|")))] for name in turned
    ]
    by_class.save(tmp_path / "plan.json")
    assert Plan.load(tmp_path / "plan.json") == by_class
    used = plan.counts.set_names[int(np.argmax(plan.samples.sum(axis=0)))]
    with pytest.raises(InputError, match=used.replace("|", r"\|")):
        plan.for_classes([name for name in SETS if name != used])


# Generators


def test_generators_of_rows_draw_what_a_label_set_looks_like(tmp_path):
    data = write_rows(tmp_path / "rows")
    train = np.arange(data.train_size)
    private = make_private(data, np.array_split(train, 3), epsilon=10, seeded_noise=True)
    central = Gaussian.fit(data.samples, np.asarray(data.labels), data.classes, data.schema, train)
    labels, seeds = np.repeat(np.arange(4), 200), np.arange(800, dtype=np.uint64)
    for generator in (central, private):
        rows = generator.sample(labels, seeds)
        for c, held in enumerate(((0, 0), (1, 0), (0, 1), (1, 1))):
            assert rows[labels == c].mean(axis=0) == pytest.approx(10 * np.array(held), abs=2)


def test_the_private_generator_of_images_knows_label_sets(tmp_path):
    data = write_images(tmp_path / "set", train=1200)
    parts = np.array_split(np.arange(data.train_size), 3)
    make_private(data, parts, epsilon=1000, seeded_noise=True, out=tmp_path / "model")
    generator = open_private(str(tmp_path / "model"))
    assert generator.classes == SETS
    labels = np.repeat(np.arange(6), 30)
    images = generator.sample(labels, np.arange(180, dtype=np.uint64)).astype(float)
    for c in range(6):
        mine = data.samples[np.asarray(data.labels) == c].mean(axis=0)
        near = [np.abs(images[labels == k].mean(axis=0) - mine).mean() for k in range(6)]
        assert int(np.argmin(near)) == c


def test_copies_and_the_cache_take_label_sets(pairs, clients, tmp_path):
    federation, plan = pairs
    by_class = plan.for_classes(SETS)
    assert [len(c.synthetic_labels) for c in clients] == by_class.per_client.tolist()
    for k, client in enumerate(clients):
        made = np.bincount(client.synthetic_labels, minlength=6)
        assert made.tolist() == by_class.samples[k].tolist()
    cache = Cache(tmp_path, Blank(), SETS, 0)
    assert fill(by_class, Blank(), cache, 16, like=federation.data.samples).generated == plan.total


class Blank:
    """Draws black images."""

    fingerprint, classes = "blank-1", SETS

    def sample(self, labels, seeds):
        return np.zeros((len(labels), 8, 16, 1), np.uint8)


def test_a_judge_takes_label_sets_as_classes(pairs):
    judge = Judge.train(pairs[0].data, epochs=1, training=np.arange(32))
    assert judge.classes == SETS
    assert 0 <= judge.accuracy <= 1


def test_columns_of_labels_are_refused_where_a_row_has_one_class(tmp_path):
    rng = np.random.default_rng(0)
    rows, columns = rng.normal(size=(60, 3)).astype(np.float32), rng.integers(0, 2, (60, 3))
    with pytest.raises(ValueError, match="Multilabel"):
        FedEASSampler(beta=5).fit_resample(rows, columns)
    with pytest.raises(InputError, match="name_label_sets"):
        augment(rows, labels=columns, generator="smote", beta=5, client="a", cache=tmp_path)
    names = name_label_sets(columns, ["x", "y", "z"])
    _, labels = augment(
        rows, labels=names, generator="copies", beta=500, client="a", cache=tmp_path
    )
    assert set(labels[60:]) <= set(names)
    assert len(labels) > 60


# Training


def test_the_loss_is_the_binary_cross_entropy_of_every_label(pairs):
    data = pairs[0].data
    model = make_model(ModelSettings(MODEL), Task.of(data), 1)
    batch, labels = map(torch.from_numpy, Samples.of(data, np.arange(30)).take(np.arange(30)))
    held = torch.tensor([[name in SETS[c].split("|") for name in sorted(CLASSES)] for c in labels])
    logits = model(batch)
    assert logits.shape == (30, 3)
    expected = functional.binary_cross_entropy_with_logits(logits, held.float())
    assert torch.equal(model.batch_loss(model, batch, labels), expected)
    assert not any("label_sets" in name for name in model.state_dict())


@pytest.mark.parametrize("method", METHODS.names())
def test_flower_trains_as_the_reference_loop_does_or_both_refuse(pairs, clients, method, tmp_path):
    federation, plan = pairs
    federated = Federated(
        rounds=ROUNDS, fraction=1.0, method=method, model=ModelSettings(MODEL), local=LOCAL
    )
    simulation = Simulation(
        "pairs", None, "", None, "copies", (), str(tmp_path / "cache"), 42, 16, str(tmp_path), "cpu"
    )
    opener = simulation.opener_of(
        federation.data, federation.partition, plan.for_classes(SETS), Copies()
    )
    grid = InlineGrid(make_client_app(opener), CLIENTS)

    def on_flower():
        return run_rounds(
            grid, federated, Task.of(federation.data), 42, tmp_path / "c", method, lambda _: {}
        ).weights

    def reference():
        return simulate(make_method(method), clients, MODEL, LOCAL, ROUNDS, 1.0)

    if method in ONE_CLASS:
        for train in (on_flower, reference):
            with pytest.raises(InputError, match=method):
                train()
        return
    weights, other = reference(), on_flower()
    assert all(torch.equal(weights[name], other[name]) for name in weights)


def test_a_trained_model_tells_labels_apart(pairs, clients):
    federation, _ = pairs
    test = Samples.of(federation.data, federation.test)
    model = make_model(ModelSettings(MODEL), Task.of(federation.data), 0)
    before = scores(model, test)["auroc"]
    weights = simulate(make_method("fedavg"), clients, MODEL, LOCAL.replace(epochs=4), 6, 1.0)
    model.load_state_dict(weights)
    line = scores(model, test)
    assert line["auroc"] > max(0.8, before)
    with pytest.raises(InputError, match="several labels"):
        accuracy(model, test)


def test_the_figures_are_those_of_scikit_learn(pairs):
    federation, _ = pairs
    model = make_model(ModelSettings(MODEL), Task.of(federation.data), 0)
    test = Samples.of(federation.data, federation.test)
    line = scores(model, test)
    logits = model(torch.from_numpy(test.take(np.arange(len(test)))[0])).detach().numpy()
    held = federation.data.label_sets.table[test.labels]
    expected = [roc_auc_score(held[:, c], logits[:, c]) for c in range(3)]
    assert line["per_label"] == pytest.approx(expected, abs=1e-5)
    assert line["auroc"] == pytest.approx(np.mean(expected))
    assert line["worst_auroc"] == pytest.approx(min(expected))
    assert line["worst_label"] == sorted(CLASSES)[int(np.argmin(expected))]
    assert line["left_out"] == []
    # All of these have a bar.
    only = Samples.of(federation.data, federation.test[np.isin(test.labels, (3, 4))])
    line = scores(model, only)
    assert line["left_out"] == ["bar"]
    assert line["per_label"][0] is None
    assert line["auroc"] == pytest.approx(np.mean(line["per_label"][1:]), abs=1e-5)


def test_equal_scores_count_half():
    rng = np.random.default_rng(0)
    for _ in range(50):
        positive = rng.random(40) < 0.4
        values = rng.integers(0, 6, 40) / 3
        assert auroc(values, positive) == pytest.approx(roc_auc_score(positive, values))
    assert np.isnan(auroc(values, np.zeros(40, bool)))


def test_a_site_refuses_a_task_of_other_label_sets(pairs):
    data = pairs[0].data
    real, task = Samples.of(data, np.arange(10)), Task.of(data)
    check_task(Task.from_dict(task.to_dict()), real)
    turned = (*task.label_sets[1:], task.label_sets[0])
    for other in (replace(task, label_sets=turned), replace(task, label_sets=()), task.of_sets):
        with pytest.raises(InputError, match="task"):
            check_task(other, real)


def test_fedeas_run_compares_accuracies_and_says_so(tmp_path):
    rows = ["x,label", *(f"{i},{name}" for i in range(40) for name in ("a", "a|b"))]
    (tmp_path / "rows.csv").write_text("\n".join(rows) + "\n")
    content = {"data": {"name": "t", "folder": str(tmp_path / "rows.csv")}}
    with pytest.raises(InputError, match="several labels"):
        run(read_settings(Config, content, "test"), tmp_path / "out")


# The page


def test_the_table_of_the_page_is_that_of_the_record(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    benchmark = importlib.import_module("label_sets_federation")
    record = ROOT / "reproduction" / "recorded" / "label-sets.csv"
    figures = benchmark.read_figures(record, "auroc")
    assert {way for _, way in figures} == set(benchmark.WAYS)
    assert {len(runs) for runs in figures.values()} == {5}
    page = (ROOT / "docs" / "howto" / "several_labels.md").read_text()
    assert benchmark.markdown(record) in page
    gains = np.subtract(figures["0.02", "private"], figures["0.02", "copies"]).tolist()
    assert f"{benchmark.Mean.of(gains).points('+')} above `copies`" in page
