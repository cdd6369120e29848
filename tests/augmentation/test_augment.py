"""The drop-in: three kinds of data sets, the mod, and Flower's quick-start app with its patch."""

import importlib.util
import inspect
import json
import os
import pickle
import re
import shutil
import socket
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow.parquet
import pytest
import torch
from datasets import ClassLabel, Dataset, DatasetDict, Features, Image, Value
from flwr.app import Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from torch.utils.data import DataLoader, Subset, TensorDataset

from fedeas import (
    EqualReduction,
    FedEAS,
    InputError,
    LabelCounts,
    NoGeneration,
    Uniform,
    augment,
    report_real_num_examples,
)
from fedeas.augmentation import examples
from fedeas.augmentation.synthetic import picture
from fedeas.cache import ClientSamples
from fedeas.train.flower.backends import InlineGrid
from helpers.deployed_sites import load_example
from helpers.fashion_generator import CLASSES, Bars
from helpers.noted_generators import drawn

ROOT = Path(__file__).parents[2]
APP = ROOT / "examples" / "quickstart"
LABELS = np.repeat([0, 1, 2, 7], [60, 30, 6, 4])
N_K = len(LABELS)
WANTED = FedEAS(beta=8).local(np.bincount(LABELS, minlength=10))
TOTAL = N_K + int(WANTED.sum())
# What the patch adds to the app, but for a generator that is quick and counts.
DIFFUSION = '"diffusion(model=fashion_mnist, steps=8)"'
CLIENTS = 4


def images(shape=(28, 28)) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (N_K, *shape), np.uint8)


def to_tensor(image) -> torch.Tensor:
    return torch.from_numpy((np.asarray(image, np.float32) - 128) / 64).unsqueeze(0)


class Pictures(torch.utils.data.Dataset):
    """A data set as torchvision writes them."""

    def __init__(self, transform=None, target_transform=None, classes=CLASSES):
        self.data, self.targets, self.classes = images(), LABELS.tolist(), classes
        self.transform, self.target_transform = transform, target_transform

    def __len__(self):
        return len(self.data)

    def __getitem__(self, index):
        image, label = picture(self.data[index][..., None]), self.targets[index]
        if self.transform is not None:
            image = self.transform(image)
        return image, self.target_transform(label) if self.target_transform else label


def hugging_face(**more) -> Dataset:
    features = {"image": Image(), "label": ClassLabel(names=list(CLASSES)), **more}
    columns = {"image": [picture(x[..., None]) for x in images()], "label": LABELS}
    columns |= {name: [0] * N_K for name in more}
    return Dataset.from_dict(columns, features=Features(features))


@pytest.fixture
def options(tmp_path):
    return {"beta": 8, "client": "north", "cache": tmp_path / "cache"}


@pytest.fixture
def bars(tmp_path):
    return Bars(log=str(tmp_path / "log"))


def expected(bars, options) -> tuple[np.ndarray, np.ndarray]:
    """The synthetic samples, as the pair of arrays has them."""
    more, labels = augment(images(), labels=LABELS, generator=bars, **options)
    return more[N_K:], labels[N_K:]


def test_arrays(bars, options, tmp_path):
    given = images()
    result = augment(given, labels=LABELS, generator=bars, **options)
    more, labels = result
    assert result.num_real == N_K < TOTAL == len(more) == len(labels)
    assert np.array_equal(more[:N_K], given)
    assert np.array_equal(labels[:N_K], LABELS)
    assert np.array_equal(np.bincount(labels[N_K:], minlength=10), WANTED)
    assert (more[N_K:].mean(axis=2).argmax(axis=1) // 2 - 2 == labels[N_K:]).all()  # its own bar
    assert pickle.loads(pickle.dumps(result)).num_real == N_K
    assert len(set(drawn(tmp_path / "log"))) == WANTED.sum()
    coloured = augment(given[..., None], labels=LABELS, generator=bars, **options)
    assert coloured[0].shape == (TOTAL, 28, 28, 1)
    assert np.array_equal(coloured[0][..., 0], more)
    assert len(drawn(tmp_path / "log")) == WANTED.sum()  # generated once


def test_the_client_must_be_named(bars, options):
    """By a default name all clients would get the same samples."""
    del options["client"]
    with pytest.raises(InputError, match="client=partition_id"):
        augment(images(), labels=LABELS, generator=bars, **options)


def test_torch(bars, options):
    real = Pictures(to_tensor)
    result = augment(real, generator=bars, **options)
    new, labels = expected(bars, options)
    assert isinstance(result, torch.utils.data.Dataset)
    assert (result.num_real, len(result), len(list(result))) == (N_K, TOTAL, TOTAL)
    assert result.targets == [*LABELS, *labels]
    assert torch.equal(result[5][0], real[5][0])
    for place in (N_K, TOTAL - 1):  # the transform holds for synthetic samples
        image, label = result[place]
        assert torch.equal(image, to_tensor(new[place - N_K]))
        assert (type(label), label) == (int, labels[place - N_K])
    assert torch.equal(result[-1][0], result[TOTAL - 1][0])
    with pytest.raises(IndexError):
        result[TOTAL]
    batches = list(DataLoader(result, 32, shuffle=True))
    assert sum(len(y) for _, y in batches) == TOTAL
    assert torch.bincount(torch.cat([y for _, y in batches]), minlength=10).tolist() == [
        *(np.bincount(LABELS, minlength=10) + WANTED)
    ]


def test_torch_without_a_transform_gives_pictures_and_with_another_what_it_makes(bars, options):
    new, _ = expected(bars, options)
    plain = augment(Pictures(), generator=bars, **options)
    assert np.array_equal(np.asarray(plain[N_K][0]), new[0])
    pixels = torch.stack([to_tensor(x) for x in images()])
    tensors = TensorDataset(pixels, torch.from_numpy(LABELS))
    result = augment(tensors, labels=LABELS, generator=bars, transform=to_tensor, **options)
    image, label = result[N_K]
    assert torch.equal(image, to_tensor(new[0]))
    assert label.dtype == torch.int64
    assert len(next(iter(DataLoader(result, TOTAL)))[0]) == TOTAL


def test_a_part_of_a_torch_set_knows_its_labels_classes_and_transforms(bars, options):
    whole = Pictures(to_tensor, target_transform=lambda label: label + 100)
    part = Subset(Subset(whole, range(N_K - 1, -1, -1)), range(40))
    result = augment(part, generator=bars, **options)
    counts = np.bincount(LABELS[::-1][:40], minlength=10)
    assert np.array_equal(
        np.bincount(result.targets, minlength=10), counts + FedEAS(beta=8).local(counts)
    )
    image, label = result[40]
    assert (image.shape, label) == ((1, 28, 28), result.targets[40] + 100)


def test_hugging_face(bars, options):
    real = hugging_face()
    result = augment(real, generator=bars, **options)
    new, labels = expected(bars, options)
    assert type(result) is Dataset
    assert result.features == real.features
    assert (result.num_real, len(result)) == (N_K, TOTAL)
    assert list(result["label"]) == [*LABELS, *labels]
    assert np.array_equal(np.asarray(result[3]["image"]), images()[3])
    assert np.array_equal(np.stack([np.asarray(x) for x in result[N_K:]["image"]]), new)
    assert real.format["type"] is None
    assert not hasattr(real, "num_real")


def test_a_transform_of_hugging_face_holds_before_and_after(bars, options):
    def transform(batch):
        batch["image"] = [to_tensor(image) for image in batch["image"]]
        return batch

    before = augment(hugging_face().with_transform(transform), generator=bars, **options)
    after = augment(hugging_face(), generator=bars, **options).with_transform(transform)
    new, _ = expected(bars, options)
    for result in (before, after):
        assert result.num_real == N_K
        assert torch.equal(result[N_K]["image"], to_tensor(new[0]))
        assert torch.equal(result[0]["image"], to_tensor(images()[0]))
        assert sum(len(batch["label"]) for batch in DataLoader(result, 64, shuffle=True)) == TOTAL
    tensors = augment(hugging_face().with_format("torch"), generator=bars, **options)
    assert torch.equal(tensors[N_K]["image"][0], torch.from_numpy(new[0]))


@pytest.mark.parametrize("kind", ["arrays", "torch", "hugging face"])
def test_a_client_that_needs_nothing_keeps_its_data_and_opens_no_generator(kind, options):
    even = np.arange(N_K) % 10
    given = {
        "arrays": images(),
        "torch": TensorDataset(torch.from_numpy(images())),
        "hugging face": hugging_face().remove_columns("label").add_column("label", even)
        .cast_column("label", ClassLabel(names=list(CLASSES))),
    }[kind]  # fmt: skip
    own = None if kind == "hugging face" else even
    result = augment(given, labels=own, generator="no.such.module:Generator", classes=10, **options)
    assert result.num_real == N_K == len(result[0] if kind == "arrays" else result)
    assert not options["cache"].exists()


def test_a_part_of_its_own_imbalance(bars, options):
    own = {**options, "beta": None, "reduction": 0.6}
    _, labels = augment(images(), labels=LABELS, generator=bars, **own)
    n = np.bincount(LABELS, minlength=10)
    wanted = EqualReduction(reduction=0.6).local(n, client=str(options["client"]))
    assert wanted.sum() > 0
    np.testing.assert_array_equal(np.bincount(labels, minlength=10), n + wanted)


@pytest.mark.parametrize("ending", ["csv", "json", "parquet", None])
def test_a_plan_gives_a_client_exactly_its_row(ending, bars, options, tmp_path):
    """Whatever policy made it: FedEAS, uniform and missing-only are compared at one total."""
    n = np.bincount(LABELS, minlength=10)
    counts = LabelCounts([n, n[::-1]], ["north", "south"], CLASSES)
    plan = Uniform(total=77).plan(counts)
    if ending:
        plan.save(tmp_path / f"plan.{ending}")
    own = {**options, "beta": None, "plan": tmp_path / f"plan.{ending}" if ending else plan}
    _, labels = augment(images(), labels=LABELS, generator=bars, **own)
    np.testing.assert_array_equal(np.bincount(labels, minlength=10), n + plan.samples[0])
    with pytest.raises(InputError, match="client"):
        augment(images(), labels=LABELS, generator=bars, **own | {"client": "west"})
    with pytest.raises(InputError, match="classes"):
        augment(images(), labels=LABELS, generator=bars, classes=CLASSES[:-1], **own)


def test_counts_are_no_plan(bars, options, tmp_path):
    LabelCounts([[9, 1], [1, 9]], ["north", "south"], ["a", "b"]).save(tmp_path / "counts.csv")
    own = {**options, "beta": None, "plan": tmp_path / "counts.csv"}
    with pytest.raises(InputError, match="not a plan"):
        augment(images(), labels=LABELS, generator=bars, **own)


def test_another_client_seed_or_generator_has_other_images(bars, options):
    first, _ = expected(bars, options)
    other_generator = Bars()
    other_generator.fingerprint = "bars-2"
    for generator, changed in (
        (bars, {"client": "south"}),
        (bars, {"client": 3}),
        (bars, {"seed": 1}),
        (other_generator, {}),
    ):
        other, _ = expected(generator, options | changed)
        assert len(other) == len(first)
        assert not np.array_equal(other, first)
    again, _ = expected(Bars(), options)
    assert np.array_equal(again, first)


def test_more_real_samples_generate_only_what_is_missing(bars, options, tmp_path):
    """Images are known by the classes, however they are given, and not by the label counts."""
    first, _ = expected(bars, options)
    generated = drawn(tmp_path / "log")
    for own, classes in ((np.append(LABELS, 2), 10), (np.append(LABELS, [0, 9, 9]), CLASSES)):
        pixels = np.resize(images(), (len(own), 28, 28))
        more, labels = augment(pixels, labels=own, generator=bars, classes=classes, **options)
        counts = np.bincount(own, minlength=10)
        wanted = FedEAS(beta=8).local(counts)
        assert np.array_equal(np.bincount(labels, minlength=10), counts + wanted)
        missing = np.maximum(wanted - WANTED, 0).sum()
        assert len(drawn(tmp_path / "log")) <= len(generated) + missing
        for label in range(10):  # as many as are still wanted are the same
            kept = min(wanted[label], WANTED[label])
            begin, before = len(own) + wanted[:label].sum(), WANTED[:label].sum()
            assert np.array_equal(more[begin : begin + kept], first[before : before + kept])
    assert len(list(options["cache"].iterdir())) == 1


def test_the_images_are_kept_in_the_store_by_default(bars, tmp_path, monkeypatch):
    monkeypatch.setenv("FEDEAS_STORE", str(tmp_path / "store"))
    augment(images(), labels=LABELS, generator=bars, beta=8, client=0)
    assert list((tmp_path / "store" / "samples").rglob("*.parquet"))


@pytest.mark.parametrize("beta", [1e4, 1e6, 1e9])
def test_a_beta_of_the_wrong_size_does_not_generate_for_ever(bars, options, caplog, beta):
    wanted = FedEAS(beta=beta).local(np.bincount(LABELS, minlength=10)).astype(object)
    assert wanted.sum() > 10_000
    options |= {"beta": beta, "max_samples": 300}
    more = augment(images(), labels=LABELS, generator=bars, **options)
    made = np.bincount(more[1][N_K:], minlength=10)
    assert made.sum() <= 300
    assert np.abs(made - 300 * wanted / wanted.sum()).max() < 1
    assert f"{wanted.sum():,}" in caplog.text


def test_the_cap_is_50_000_and_cuts_nothing_smaller(bars, options):
    assert inspect.signature(augment).parameters["max_samples"].default == 50_000
    plain = augment(images(), labels=LABELS, generator=bars, **options)
    total = len(plain[1]) - N_K
    capped = augment(images(), labels=LABELS, generator=bars, **options, max_samples=total)
    assert (capped[1] == plain[1]).all()
    for wrong in (-1, 1.5, None):
        with pytest.raises(InputError, match="not a number of samples"):
            augment(images(), labels=LABELS, generator=bars, **options, max_samples=wrong)


class Scaled(Pictures):
    """Does more to its images than its transform says."""

    def __init__(self):
        super().__init__(transform=lambda tensor: tensor.unsqueeze(0))

    def __getitem__(self, index):
        return self.transform(torch.from_numpy(self.data[index])), self.targets[index]


class Large(Bars):
    fingerprint = "large-1"

    def sample(self, labels, seeds):
        return super().sample(labels, seeds).repeat(2, axis=1)


class Nameless(Bars):
    classes = None


OWN = {"labels": LABELS}


def tensors(*more):
    return TensorDataset(torch.zeros(N_K, 1, 28, 28), *more)


@pytest.mark.parametrize(
    ("dataset", "changed", "said"),
    [
        (images, OWN | {"generator": Large()}, "got 'ndarray 56 x 28 of uint8'; allowed"),
        (lambda: images() / 255, OWN, "of float64; give uint8 images"),
        (images, {"labels": LABELS[1:]}, "differ in length; got (100, 99)"),
        (images, {"labels": LABELS + 0.5}, "labels must be integers; got 'float64"),
        (images, {"labels": -LABELS}, "without a class; got -7; allowed: 0 to 9"),
        (images, {}, "takes labels, and no transform"),
        (images, OWN | {"transform": to_tensor}, "takes labels, and no transform"),
        (images, OWN | {"beta": 0}, "beta out of range"),
        (images, OWN | {"client": ""}, "augment needs the client"),
        (images, OWN | {"seed": -1}, "not a seed"),
        (images, OWN | {"generator": "bars"}, "unknown generator"),
        (images, OWN | {"generator": 7}, "not a generator; got 'int'"),
        (images, OWN | {"generator": Nameless()}, "pass classes=10"),
        (images, OWN | {"classes": 1}, "not a number of classes; got 1"),
        (images, OWN | {"classes": 5}, "without a class; got 7; allowed: 0 to 4"),
        (images, OWN | {"classes": 12}, "classes: 12 in the data, 10 (T-shirt"),
        (lambda: Pictures(classes=CLASSES[::-1]), {}, "different classes"),
        (Scaled, {}, "does not take a PIL image: 'Image' object has no attribute 'unsqueeze'"),
        (Pictures, {"generator": Large()}, "got 'picture 56 x 28 of L'; allowed: picture 28"),
        (Pictures, {"labels": LABELS[:9]}, "need one label per sample; got 9"),
        (tensors, {}, "cannot find the labels"),
        (tensors, {"labels": LABELS}, "not pairs"),
        (
            lambda: tensors(torch.from_numpy(LABELS)),
            {"labels": LABELS},
            "got 'Tensor 1 x 28 x 28 of torch.float32'; pass transform=",
        ),
        (lambda: tensors(torch.zeros(N_K, 2)), {"labels": LABELS, "transform": to_tensor},
         "the label of a synthetic sample does not match a real one"),
        (lambda: iter([1]), {}, "unsupported type of data set"),
        (hugging_face, {"labels": LABELS}, "has its own labels and transform"),
        (images, OWN | {"beta": None}, "exactly one of beta, reduction and plan"),
        (images, OWN | {"reduction": 0.5}, "exactly one of beta, reduction and plan"),
        (images, OWN | {"plan": "plan.csv"}, "exactly one of beta, reduction and plan"),
        (images, OWN | {"beta": None, "reduction": 2}, "reduction out of range"),
        (hugging_face, {"generator": Large()}, "choose a generator of the same size"),
        (hugging_face, {"transform": to_tensor}, "with_transform"),
        (lambda: hugging_face(place=Value("int64")), {}, "got ['image', 'label', 'place']"),
        (lambda: hugging_face(coarse=ClassLabel(2)), {}, "one of the feature ClassLabel"),
        (lambda: hugging_face().remove_columns("image"), {}, "one column of the feature Image"),
        (lambda: DatasetDict({"train": hugging_face()}), {}, "several data sets; got ['train']"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused_in_one_line(dataset, changed, said, options):
    with pytest.raises(InputError) as refused:
        augment(dataset(), **({"generator": Bars()} | options | changed))
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


def reporting(bars, options, **also) -> ClientApp:
    """An app that trains on augmented arrays and tests on others."""
    app = ClientApp(mods=[report_real_num_examples])
    kept = {}

    @app.train()
    def train(message, context):
        if context.node_id not in kept:  # as an app that keeps its data for later rounds
            kept[context.node_id] = augment(images(), labels=LABELS, generator=bars, **options)
        total = len(kept[context.node_id][0])
        metrics = MetricRecord({"num-examples": total, "seen": total, "list": [total]})
        return Message(RecordDict({"metrics": metrics}), reply_to=message)

    @app.evaluate()
    def evaluate(message, context):
        metrics = {"num-examples": also["tested"]}
        return Message(RecordDict({"metrics": MetricRecord(metrics)}), reply_to=message)

    return app


def ask(app, *kinds, node=0):
    grid = InlineGrid(app, 2)
    target = list(grid.get_node_ids())[node]
    replies = []
    for kind in kinds:
        message = Message(RecordDict(), dst_node_id=target, message_type=kind)
        replies += grid.send_and_receive([message])
    return replies


def test_the_mod_reports_the_real_samples_and_leaves_other_numbers_alone(bars, options):
    options |= {"beta": 9}  # a length that nobody else has in this process
    total = N_K + int(FedEAS(beta=9).local(np.bincount(LABELS, minlength=10)).sum())
    app = reporting(bars, options, tested=77)
    first, tested, again = ask(app, "train", "evaluate", "train")
    for reply in (first, again):
        assert dict(reply.content["metrics"]) == {
            "num-examples": N_K, "seen": total, "list": [total]
        }  # fmt: skip
    assert tested.content["metrics"]["num-examples"] == 77
    # A test set of the same length is still a test set.
    _, tested = ask(reporting(bars, options, tested=total), "train", "evaluate")
    assert tested.content["metrics"]["num-examples"] == total
    # What one node has augmented says nothing about another one.
    (other,) = ask(reporting(bars, options, tested=total), "evaluate", node=1)
    assert other.content["metrics"]["num-examples"] == total


class Floats(Nameless):
    """Returns numbers from 0 to 1."""

    fingerprint = "floats-1"

    def sample(self, labels, seeds):
        return (super().sample(labels, seeds) / 255).astype(np.float32)


class ChannelsFirst(Nameless):
    fingerprint = "channels-first-1"

    def sample(self, labels, seeds):
        return super().sample(labels, seeds).transpose(0, 3, 1, 2)


@pytest.mark.parametrize("kind", [images, Pictures, hugging_face])
@pytest.mark.parametrize(
    ("generator", "got"),
    [(Floats, "28 x 28 x 1 of float32"), (ChannelsFirst, "1 x 28 x 28 of uint8")],
)
def test_a_generator_of_other_arrays_is_refused_at_its_first_batch(kind, generator, got, tmp_path):
    """By name and before anything is kept, not after all samples are made."""
    options = {"labels": LABELS, "classes": 10} if kind is images else {}
    made = generator(log=str(tmp_path / "log"))
    with pytest.raises(InputError) as refused:
        augment(
            kind(),
            generator=made,
            beta=8,
            client=0,
            cache=tmp_path / "cache",
            batch_size=8,
            **options,
        )
    assert refused.value.got == got
    assert len(drawn(tmp_path / "log")) <= 8 < WANTED.sum()
    (folder,) = (tmp_path / "cache").iterdir()
    assert not list(folder.rglob("*.parquet"))


def test_tensors_without_a_transform_are_refused_before_anything_is_drawn(bars, options, tmp_path):
    data = TensorDataset(torch.zeros(N_K, 1, 28, 28), torch.from_numpy(LABELS))
    with pytest.raises(InputError, match="transform="):
        augment(data, labels=LABELS, generator=bars, **options)
    assert not (tmp_path / "log").exists()


def test_a_model_of_other_classes_is_refused_by_its_metadata(tmp_path):
    """Loading what opens it takes ten seconds or more."""
    script = (
        "import sys, numpy as np, fedeas\n"
        "try:\n"
        "    fedeas.augment(np.zeros((9, 28, 28), np.uint8), labels=[0] * 9, classes=5, beta=8,\n"
        "                   client=0, generator='diffusion(model=fashion_mnist)')\n"
        "except fedeas.InputError as error:\n"
        "    print('5 in the data' in str(error))\n"
        "print('torch' in sys.modules, 'diffusers' in sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["True", "False", "False"]


def test_a_client_that_shows_few_classes_is_told_so(options, tmp_path, caplog):
    """A folder of one client's images: two classes of the federation's ten, equally many."""
    data = Pictures(classes=("cat", "dog"))
    data.targets = [0, 1] * (N_K // 2)
    with pytest.warns(UserWarning, match="client north: 2 classes found, nothing to generate"):
        augment(data, generator=Nameless(), **options)
    with caplog.at_level("INFO", "fedeas"), warnings.catch_warnings():
        warnings.simplefilter("error")
        nothing = NoGeneration().plan(LabelCounts([[9, 1]], ["north"], ["cat", "dog"]))
        augment(data, generator=Nameless(), **options | {"beta": None, "plan": nothing})
    assert "client north: nothing to generate" in caplog.text
    more = augment(data, generator=Nameless(), classes=10, **options)
    assert len(more) > N_K
    with pytest.warns(UserWarning, match="client north: 2 classes found"):
        augment(np.zeros((N_K, 2)), labels=data.targets, generator="copies", **options)


def test_a_plan_that_is_cut_by_quality_is_said(bars, tmp_path, caplog):
    policy, n = FedEAS(beta=8, quality=0.5), np.bincount(LABELS, minlength=10)
    with caplog.at_level("WARNING", "fedeas"):
        ClientSamples("north", policy, bars, tmp_path / "cache").draw(n, 10)
    made = int(policy.local(n).sum())
    assert f"client north: {made} of {WANTED.sum()} samples are generated" in caplog.text


def test_rows_of_hugging_face_without_a_label_are_refused(bars, options):
    data = hugging_face().map(lambda row, at: {"label": -1 if at == 3 else row["label"]},
                              with_indices=True)  # fmt: skip
    with pytest.raises(InputError) as refused:
        augment(data, generator=bars, **options)
    assert refused.value.got == -1


@pytest.fixture
def nothing_noted(monkeypatch):
    """A process in which nothing has been augmented yet."""
    monkeypatch.setattr(examples, "_notes", {})
    monkeypatch.setattr(examples, "_warned", set())


def reports(sets: dict, by=lambda context: context.node_config["partition-id"]) -> ClientApp:
    """An app that reports the length of one of the sets."""
    app = ClientApp(mods=[report_real_num_examples])

    @app.train()
    def train(message, context):
        metrics = MetricRecord({"num-examples": len(sets[by(context)][0])})
        return Message(RecordDict({"metrics": metrics}), reply_to=message)

    return app


def said(app, node: int):
    (reply,) = ask(app, "train", node=node)
    return reply.content["metrics"]["num-examples"]


def same_length(*reals: int) -> dict:
    """Sets of clients 0, 1, ... of the same length, noted as `augment` does."""
    for client, real in enumerate(reals):
        examples.note_lengths(str(client), 160, real)
    return {client: [[0] * 160] for client in range(len(reals))}


def test_clients_of_equal_length_report_their_own_real_samples(nothing_noted, bars, options):
    """Augmented before any message, as when the app is imported, and named by partition."""
    smaller = np.repeat([0, 1, 2, 7], [65, 17, 6, 4])
    sets = {
        client: augment(
            images()[: len(own)], labels=own, generator=bars, **options | {"client": client}
        )
        for client, own in enumerate((LABELS, smaller))
    }
    assert len(sets[0][0]) == len(sets[1][0]) == TOTAL
    app = reports(sets)
    assert [said(app, node) for node in (0, 1, 0)] == [100, 92, 100]


def test_sets_that_one_node_made_for_all_are_told_apart_by_their_clients(nothing_noted):
    made = {}

    def first_use(context):
        if not made:
            made.update(same_length(100, 120))
        return context.node_config["partition-id"]

    app = reports(made, first_use)
    assert [said(app, node) for node in (1, 0)] == [120, 100]


def test_the_mod_refuses_to_guess(nothing_noted):
    """Names that say nothing about the node, one length, two numbers of real samples."""
    examples.note_lengths("north", 160, 100)
    examples.note_lengths("north", 170, 110)
    app = reports({0: [[0] * 160], 1: [[0] * 170]})
    assert [said(app, node) for node in (0, 1)] == [100, 110]  # one client: nothing to guess
    examples.note_lengths("south", 160, 120)
    (reply,) = ask(app, "train", node=0)
    assert "different numbers of real samples; got [100, 120]; give `augment` the node's " in (
        reply.error.reason
    )
    assert said(app, 1) == 110
    examples.note_lengths("0", 160, 90)
    assert said(app, 0) == 90


def test_what_is_noted_does_not_grow_for_ever(nothing_noted):
    for length in range(100, 1100):
        examples.note_lengths("north", length, 100)
        examples.note_lengths("north", 50, length)
    assert sum(map(len, examples._notes.values())) <= 16
    assert said(reports({0: [[0] * 50]}), 0) == 1099  # the latest of this length


def test_a_set_made_in_the_message_comes_before_one_that_was_kept(nothing_noted):
    """Data that grow may keep the length of the augmented set, and change its real samples."""
    reals = iter([100, 101, 102])

    def grown(context):
        examples.note_lengths("north", 160, next(reals))
        return 0

    app = reports({0: [[0] * 160]}, grown)
    assert [said(app, 0) for _ in range(3)] == [100, 101, 102]


def test_what_one_client_augmented_says_nothing_about_another(nothing_noted):
    examples.note_lengths("0", 160, 100)
    app = reports({0: [[0] * 160], 1: [[0] * 160]})
    examples.note_lengths("1", 170, 110)
    assert [said(app, node) for node in (0, 1)] == [100, round(160 * 110 / 170)]


def counting_app(seen: dict[int, float]) -> ClientApp:
    """An app that augments 100 real samples to 186 in every message, and counts as `seen` says."""
    app = ClientApp(mods=[report_real_num_examples])

    @app.train()
    def train(message, context):
        client = context.node_config["partition-id"]
        examples.note_lengths(str(client), 186, 100)
        metrics = MetricRecord({"num-examples": seen[client]})
        return Message(RecordDict({"metrics": metrics}), reply_to=message)

    return app


@pytest.mark.parametrize(
    ("count", "real"),
    [
        (186, 100),
        (160, round(160 * 100 / 186)),  # batches of 32, the last one dropped
        (372, 200),  # two epochs
        (167, round(167 * 100 / 186)),  # a tenth is kept for validation
        (100, round(100 * 100 / 186)),  # a part of the set, which may be as large as what is real
        (93.0, 50.0),
        (0, 0),
    ],
)
def test_whatever_an_app_counts_synthetic_samples_stay_out_of_its_weight(
    nothing_noted, count, real
):
    found = said(counting_app({0: count, 1: count}), 0)
    assert found == pytest.approx(real)
    assert type(found) is type(real)


@pytest.mark.parametrize("reported", [170, 150])
def test_a_node_that_trains_without_augment_is_warned_of_once(nothing_noted, caplog, reported):
    """Also where it has exactly as many samples as the augmented set of another partition."""
    app = reports({0: [[0] * 170], 1: [[0] * reported]})
    examples.note_lengths("0", 170, 100)
    examples.note_lengths("north", 160, 90)
    assert [said(app, node) for node in (0, 1, 1)] == [100, reported, reported]
    (warning,) = [r.getMessage() for r in caplog.records]
    assert f"reports {reported} examples" in warning


@pytest.mark.parametrize("names", [("03", "04"), ("north", "south")])
def test_a_name_that_is_not_the_nodes_is_known_by_its_length(nothing_noted, caplog, names):
    """Sets made when the app was imported, one process for two nodes: guessed, and said so."""
    for name, total, real in zip(names, (186, 120), (100, 80), strict=True):
        examples.note_lengths(name, total, real)
    app = reports({0: [[0] * 186], 1: [[0] * 120]})
    assert [said(app, node) for node in (0, 1)] == [100, 80]
    assert [repr(name) in r.getMessage() for name, r in zip(names, caplog.records, strict=True)]


def test_names_of_the_wrong_partitions_are_warned_of(nothing_noted, caplog):
    """Clients numbered from 1, partitions from 0."""
    for name, total, real in (("1", 200, 100), ("2", 160, 60)):
        examples.note_lengths(name, total, real)
    said(reports({1: [[0] * 160]}), 1)
    assert "client '2' is exactly as long" in caplog.text


def test_the_only_set_of_a_process_is_its_nodes(nothing_noted):
    """A node that runs alone, and whose operator gave it no partition-id."""
    examples.note_lengths("north", 186, 100)
    app = ClientApp(mods=[report_real_num_examples])

    @app.train()
    def train(message, context):
        metrics = MetricRecord({"num-examples": 160})
        return Message(RecordDict({"metrics": metrics}), reply_to=message)

    grid = InlineGrid(app, 1)
    grid._contexts = {7: Context(1, 7, {}, RecordDict(), {})}
    (number,) = grid.push_messages([Message(RecordDict(), 7, "train")])
    (reply,) = grid.pull_messages([number])
    assert reply.content.metric_records["metrics"]["num-examples"] == round(160 * 100 / 186)


def test_an_app_that_reports_what_is_real_is_told_to_leave_the_mod_out(nothing_noted, caplog):
    assert said(counting_app({0: 100}), 0) == 54
    assert "Leave the mod out" in caplog.text


def test_a_sets_own_node_comes_before_a_length_of_another(nothing_noted):
    """One message has made the sets of two clients."""

    def both(context):
        examples.note_lengths("0", 160, 100)
        examples.note_lengths("1", 150, 30)
        return 0

    assert said(reports({0: [[0] * 150]}, both), 0) == round(150 * 100 / 160)


def test_two_sets_of_one_client_are_told_apart_by_length_alone(nothing_noted):
    def two(length):
        def augmented_twice(context):
            examples.note_lengths("0", 160, 100)
            examples.note_lengths("0", 120, 100)
            return 0

        return reports({0: [[0] * length]}, augmented_twice)

    assert said(two(160), 0) == 100
    assert said(two(120), 0) == 100
    (reply,) = ask(two(150), "train")
    assert "several augmented sets" in reply.error.reason


def test_the_mod_passes_errors_on(bars, options):
    (reply,) = ask(reporting(bars, options | {"beta": -1}), "train")
    assert "beta out of range" in reply.error.reason


def test_the_mod_serves_a_numpy_client_too(bars, options):
    from flwr.client import NumPyClient
    from flwr.common import FitIns, Parameters
    from flwr.compat.common.recorddict_compat import fitins_to_recorddict, recorddict_to_fitres

    class Client(NumPyClient):
        def fit(self, parameters, config):
            return (
                parameters,
                len(augment(images(), labels=LABELS, generator=bars, **options)[0]),
                {},
            )

    app = ClientApp(lambda context: Client().to_client(), mods=[report_real_num_examples])
    grid = InlineGrid(app, 1)
    content = fitins_to_recorddict(FitIns(Parameters([], "numpy.ndarray"), {}), True)
    (reply,) = grid.send_and_receive(
        [Message(content, dst_node_id=next(iter(grid.get_node_ids())), message_type="train")]
    )
    assert recorddict_to_fitres(reply.content, True).num_examples == N_K


# The quick-start app.


def small_data(source: Path, folder: Path, rows: int) -> None:
    """Write the first images of Fashion-MNIST, real ones."""
    (folder / "fashion_mnist").mkdir(parents=True)
    for part, size in (("train", rows), ("test", 200)):
        name = f"fashion_mnist/{part}-00000-of-00001.parquet"
        table = pyarrow.parquet.read_table(source / name).slice(0, size)
        pyarrow.parquet.write_table(table, folder / name)


def copy_app(folder: Path, generator: str | None) -> Path:
    """Copy the app; with a generator the patch is applied to it, and nothing else."""
    shutil.copytree(APP, folder, ignore=shutil.ignore_patterns("__pycache__"))
    if generator is not None:
        subprocess.run(["patch", "-p1", "-i", "fedeas.patch"], cwd=folder, check=True)
        task = folder / "quickstart" / "task.py"
        assert task.read_text().count(DIFFUSION) == 1
        task.write_text(task.read_text().replace(DIFFUSION, generator))
    return folder


Runs = list[tuple[Path, dict]]


def train(base: Path, *parts: Runs, kind: str = "inline", clients: int = CLIENTS):
    """Run apps with their configs, each part in a process of its own."""
    out = base / "out.json"
    environment = os.environ | {
        # Ray's workers find the app there; inline it is imported by its folder.
        "PYTHONPATH": os.pathsep.join(
            map(
                str,
                (
                    parts[0][0][0],
                    ROOT / "src",
                    ROOT / "tests",
                ),
            )
        ),
        "FEDEAS_DATA": str(base / "data"),
        "FEDEAS_STORE": str(base / "store"),
        "HF_HOME": str(base / "hf"),
        "HF_HUB_OFFLINE": "1",
    }
    script = [sys.executable, "-W", "ignore", ROOT / "tests" / "helpers" / "run_quickstart.py"]
    runs = [json.dumps([(str(app), config) for app, config in part]) for part in parts]
    arguments = [kind, str(clients), out, *runs]
    done = subprocess.run([*script, *arguments], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(out.read_text())


def test_the_patch_is_two_lines_their_imports_and_a_dependency():
    lines = (APP / "fedeas.patch").read_text().splitlines()
    added = [line for line in lines if line.startswith("+") and not line.startswith("+++")]
    taken = [line for line in lines if line.startswith("-") and not line.startswith("---")]
    assert len(taken) == 2
    assert len(added) == 8  # one of the two takes four lines
    assert sum("fedeas.augment(" in line for line in added) == 1
    assert sum("fedeas.report_real_num_examples" in line for line in added) == 1
    assert added.count("+import fedeas") == 2
    shown = (ROOT / "docs" / "howto" / "flower.md").read_text()
    assert '--8<-- "examples/quickstart/fedeas.patch"' in shown


class Ran(NamedTuple):
    """What the quick-start app did, and the seeds of all that was generated."""

    plain: dict
    patched: dict
    plain_skewed: dict
    patched_skewed: dict
    without_the_mod: dict
    restarted: dict
    generated: list[int]


@pytest.fixture(scope="module")
def quickstart(data, tmp_path_factory) -> Ran:
    base = tmp_path_factory.mktemp("quickstart")
    small_data(data, base / "data", 800)
    log = base / "log"
    plain = copy_app(base / "plain", None)
    patched = copy_app(base / "patched", f'"helpers.fashion_generator:Bars(log={log})"')
    bare = shutil.copytree(patched, base / "bare")
    client = bare / "quickstart" / "client_app.py"
    client.write_text(client.read_text().replace("mods=[fedeas.report_real_num_examples]", ""))
    balanced, skewed = ({"alpha": alpha, "num-samples": 800} for alpha in (1e6, 0.1))
    runs = [(plain, balanced), (patched, balanced), (plain, skewed), (patched, skewed)]
    *done, restarted = train(base, [*runs, (bare, skewed)], [(patched, skewed)])
    return Ran(*done, restarted, drawn(log))


@pytest.mark.slow
def test_without_anything_to_generate_the_curve_is_the_same_to_the_bit(quickstart):
    assert quickstart.patched == quickstart.plain
    assert len(set(quickstart.plain["loss"])) == 3  # it trains
    assert quickstart.patched_skewed["loss"] != quickstart.plain_skewed["loss"]


@pytest.mark.slow
def test_the_weights_are_the_numbers_of_real_samples(quickstart):
    noted = quickstart.patched_skewed
    assert noted["trained"] == [noted["real"]] * 2
    assert all(off < 1e-6 for off in noted["off"])
    assert noted["tested"] == quickstart.plain_skewed["tested"]


@pytest.mark.slow
def test_without_the_mod_the_weights_would_be_others(quickstart):
    noted = quickstart.without_the_mod
    grown = np.subtract(noted["trained"], noted["real"])
    assert grown.sum(axis=1).tolist() == [len(quickstart.generated)] * 2
    assert len(quickstart.generated) > 0
    assert all(off > 1e-5 for off in noted["off"])


@pytest.mark.slow
def test_images_are_generated_once_over_rounds_and_restarts(quickstart):
    assert len(quickstart.generated) == len(set(quickstart.generated)) > 0
    assert quickstart.restarted == quickstart.patched_skewed  # to the bit


@pytest.mark.slow
def test_the_hub_app_as_it_is_on_ray(data, tmp_path):
    """With the diffusion model that comes with fedeas, in Flower's simulation engine."""
    small_data(data, tmp_path / "data", 300)
    run = hub_app(tmp_path), {"alpha": 0.3, "num-samples": 300}

    def files() -> dict[Path, int]:
        return {path: path.stat().st_mtime_ns for path in (tmp_path / "store").rglob("*.parquet")}

    seen = []
    for _ in range(2):
        (noted,) = train(tmp_path, [run], kind="ray", clients=2)
        assert [sorted(said) for said in noted["trained"]] == [sorted(noted["real"])] * 2
        seen.append(files())
    assert seen[0]
    assert seen[0] == seen[1]


@pytest.mark.deployment
def test_the_quick_start_runs_as_its_page_says(data, tmp_path):
    """The commands of the page, but for the installation, with Flower's files in a folder."""
    page = (ROOT / "docs" / "howto" / "flower.md").read_text()
    install, *commands = re.search(r"```bash\n(.*?)```", page, re.DOTALL)[1].splitlines()
    assert install.startswith("pip install")
    assert len(commands) == 3
    own = {"FLWR_HOME": str(tmp_path / "flwr"), "FEDEAS_STORE": str(tmp_path / "store"),
           "FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"}  # fmt: skip
    try:
        done = subprocess.run(
            ["bash", "-ec", "\n".join(commands)], cwd=tmp_path, env={**os.environ, **own},
            capture_output=True, text=True, timeout=900,
        )  # fmt: skip
    finally:
        subprocess.run(["pkill", "-f", f"flower-superlink .*{tmp_path}"], check=False)
    said = done.stdout + done.stderr
    assert done.returncode == 0, said[-3000:]
    scores = [float(a) for a in re.findall(r"'accuracy': '?([\d.e+-]+)", said)]
    assert len(scores) >= 4, said[-3000:]  # before training and after each of three rounds
    assert scores[-1] > 0.6


def hub_app(folder: Path) -> Path:
    """Make the app that `flwr app publish` would upload."""
    spec = importlib.util.spec_from_file_location("hub_app", ROOT / "tools" / "hub_app.py")
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    return tool.make_app(folder)


@pytest.mark.filterwarnings("ignore:GitWildMatchPattern:DeprecationWarning")  # Flower's own
def test_the_quick_start_is_ready_for_flower_hub(tmp_path, capsys):
    """By the checks that `flwr app publish` makes before it uploads, and the build after it."""
    from flwr.cli.build import build_fab_from_files
    from flwr.cli.config_utils import load_and_validate
    from flwr.cli.utils import collect_files

    publish = importlib.import_module("flwr.cli.app_cmd.publish")

    app = hub_app(tmp_path)
    config, advice = load_and_validate(app / "pyproject.toml", check_module=True)
    assert not advice
    shutil.rmtree(app / "quickstart" / "__pycache__", ignore_errors=True)  # it was imported
    publish._validate_app_name(app.name, "Flower App directory name")
    publish._validate_description(config["project"]["description"])
    files = publish._collect_file_paths(app)
    publish._validate_files(files)
    said = capsys.readouterr().out
    assert "Validation passed" in said
    assert "Skip" not in said
    names = {path.relative_to(app).as_posix() for path in files}
    assert {"pyproject.toml", "README.md", "LICENSE", "quickstart/client_app.py"} <= names
    _, metadata = build_fab_from_files(collect_files(app))
    assert (metadata.fab_format_version, metadata.flwr_version_min) == (1, "1.41")
    assert "fedeas.augment(" in (app / "quickstart" / "task.py").read_text()
    assert any(need.startswith("fedeas[") for need in config["project"]["dependencies"])


@pytest.mark.deployment
def test_the_hub_app_runs_unchanged_in_a_deployment(data, tmp_path):
    """On a SuperLink and two SuperNodes; `test_the_hub_app_as_it_is_on_ray` simulates it."""
    run_deployed(hub_app(tmp_path), data, tmp_path, sites=2)
    assert list((tmp_path / "store").rglob("*.parquet"))  # images were generated


@pytest.mark.deployment
def test_sites_without_a_gpu_train_with_what_another_machine_generated(data, tmp_path, fedeas):
    """As the page says: each sends a row of numbers, and reads its own part without diffusers."""
    head = (ROOT / "examples" / "fashion.csv").read_text().splitlines()[0]
    for k in range(3):
        own, row = tmp_path / f"own-{k}.csv", tmp_path / f"row-{k}.csv"
        counts = np.where(np.arange(10) % 3 == k, 0, 20)
        own.write_text(f"{head}\n{k},{','.join(map(str, counts))}\n")
        policy = "equal-reduction(reduction=0.5)"
        assert fedeas("plan", own, "--policy", policy, "--out", row).code == 0
        spec = "diffusion(model=fashion_mnist, steps=1)"
        options = "--per-client", "--cache", tmp_path / "out"
        done = fedeas("fill", row, "--generator", spec, *options)
        place = re.search(rf"^{k} +(\S+)$", done.out, re.MULTILINE)[1]
        shutil.copytree(place, tmp_path / "sites" / str(k))  # sent
    app = hub_app(tmp_path)
    task = app / "quickstart" / "task.py"
    code = task.read_text()
    before = re.search(r"generator=.*\n\s+reduction=0.5, client=partition_id,", code)[0]
    task.write_text(
        code.replace(
            before,
            "samples=f\"{os.environ['SITES']}/{partition_id}\", "
            "plan=f\"{os.environ['SITES']}/../row-{partition_id}.csv\", client=partition_id,",
        )
    )
    (tmp_path / "no" / "diffusers").mkdir(parents=True)
    (tmp_path / "no" / "diffusers" / "__init__.py").write_text("raise ImportError('not here')\n")
    paths = os.pathsep.join([str(tmp_path / "no"), os.environ.get("PYTHONPATH", "")])
    run_deployed(app, data, tmp_path, sites=3, SITES=tmp_path / "sites", PYTHONPATH=paths)
    assert len(list((tmp_path / "store" / "decoded").iterdir())) == 3
    assert not (tmp_path / "store" / "samples").exists()  # nothing was generated there


def run_deployed(app: Path, data: Path, tmp_path: Path, sites: int, **variables: object) -> None:
    """Run an app for a round on a SuperLink and so many SuperNodes."""
    small_data(data, tmp_path / "data", 300)
    (tmp_path / "tmp").mkdir()
    loopback, _ = load_example()
    federation = loopback.Loopback(tmp_path)
    own = {"FEDEAS_DATA": tmp_path / "data", "HF_HOME": tmp_path / "hf", "HF_HUB_OFFLINE": "1"}
    own |= variables
    link, *nodes = loopback.free_ports(1 + sites)
    host = "--insecure", "--host", "127.0.0.1", "--port"
    commands = [["flower-superlink", *host, str(link)]]
    for k, port in enumerate(nodes):
        node = "--superlink", f"127.0.0.1:{link}", "--node-config"
        partition = f"partition-id={k} num-partitions={sites}"
        commands.append(["flower-supernode", *host, str(port), *node, partition])
    home = federation.environment()
    (tmp_path / "flwr" / "config.toml").write_text(
        f'[superlink]\ndefault = "here"\n[superlink.here]\naddress = "127.0.0.1:{link}"\n'
        "insecure = true\n"
    )
    started = []
    try:
        for k, (port, command) in enumerate(zip([link, *nodes], commands, strict=True)):
            environment = federation.environment(f"flwr-{k}") | {n: str(v) for n, v in own.items()}
            with (tmp_path / f"{k}.log").open("w") as log:
                started.append(subprocess.Popen(command, env=environment, stdout=log, stderr=log))
            wait_for_port(port)
        small = "num-server-rounds=1 num-samples=300 alpha=0.3 local-epochs=1"
        done = subprocess.run(
            ["flwr", "run", str(app), "here", "--stream", "--run-config", small], env=home,
            capture_output=True, text=True, timeout=500,
        )  # fmt: skip
    finally:
        for process in started:
            process.terminate()
        federation.stop()  # also what these started
        for process in started:
            process.wait()
    said = done.stdout + done.stderr
    scores = re.findall(r"'accuracy': '?([\d.e+-]+)", said)
    assert len(scores) >= 2, said[-3000:]  # before training and after the round


def wait_for_port(port: int, seconds: float = 60) -> None:
    """Wait until somebody listens."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)
