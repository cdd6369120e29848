"""One client's synthetic samples are the same wherever it takes part."""

from dataclasses import replace
from pathlib import Path

import numpy as np
from flwr.app import Context, RecordDict

from fedeas import augment
from fedeas._internal.settings import read_settings
from fedeas.data import Dataset, load_images
from fedeas.partition import Partition
from fedeas.train.flower.deployed import open_site
from fedeas.train.flower.deployment import SiteConfig
from fedeas.train.flower.simulated import open_simulated
from helpers.image_sets import CLASSES, encoded
from helpers.noted_generators import drawn
from helpers.small_federations import Shapes, federation

POLICY = "fedeas(beta=12)"


def augmented(data: Dataset, own: np.ndarray, folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """What two lines add to the training set of somebody's app."""
    images, labels = augment(
        np.asarray(data.samples)[own],
        labels=np.asarray(data.labels)[own],
        generator=Shapes(log=str(folder / "drawn")),
        beta=12,
        client=0,
        cache=folder / "cache",
        batch_size=16,
    )
    return images[len(own) :], labels[len(own) :]


def simulated(simulation, number: int = 0) -> tuple[np.ndarray, np.ndarray]:
    context = Context(1, number, {"partition-id": number}, RecordDict(), {})
    samples = open_simulated(simulation, context).samples("")
    return samples.synthetic, samples.synthetic_labels


def deployed(data: Dataset, own: np.ndarray, folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """What a site with the same samples in a folder of its own trains on."""
    for at in own:
        path = folder / "site" / data.classes[data.labels[at]] / f"{at}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(encoded(data.samples[at]))
    config = read_settings(SiteConfig, {
        "partition-id": 0, "classes": ",".join(CLASSES), "data": str(folder / "site"),
        "state": str(folder / "state"), "cache": str(folder / "cache"), "batch": 16,
        "generator": f"helpers.small_federations:Shapes(log={folder / 'drawn'})", "device": "cpu",
    })  # fmt: skip
    samples = open_site(config).samples(POLICY)
    return samples.synthetic, samples.synthetic_labels


def test_the_same_client_gets_the_same_bytes_in_an_app_a_simulation_and_a_deployment(tmp_path):
    made = federation(tmp_path, policy=POLICY)
    data = load_images("shapes", tmp_path / "set")
    own = Partition.load(tmp_path / "partition.npz").train[0]
    first, labels = augmented(data, own, tmp_path)
    generated = drawn(tmp_path / "drawn")
    assert len(generated) == len(first) == len(labels) > 20
    for others, other_labels in (
        simulated(made.simulation),
        deployed(data, own, tmp_path),
        augmented(data, own, tmp_path),
    ):
        assert others.tobytes() == first.tobytes()
        np.testing.assert_array_equal(other_labels, labels)
    assert drawn(tmp_path / "drawn") == generated  # each of them once
    assert len(list((tmp_path / "cache").iterdir())) == 1
    # Another client, another seed and another generator have samples of their own.
    other = replace(made.simulation, cache_seed=1)
    assert simulated(other)[0].tobytes() != first.tobytes()


def test_a_simulated_client_that_gets_more_real_samples_keeps_its_synthetic_ones(tmp_path):
    made = federation(tmp_path, policy=POLICY)
    simulated(made.simulation)
    before = drawn(tmp_path / "drawn")
    path = tmp_path / "partition.npz"
    partition = Partition.load(path)
    data = load_images("shapes", tmp_path / "set")
    spare = np.setdiff1d(np.arange(data.train_size), np.concatenate(list(partition.train)))[:1]
    parts = [np.sort(np.append(partition.train[0], spare)), *list(partition.train)[1:]]
    more = replace(partition, train=type(partition.train).of(parts))
    from fedeas import FedEAS

    plan, old = (FedEAS(beta=12).plan(p.counts(data.labels)) for p in (more, partition))
    assert plan.counts_hash != old.counts_hash
    more.save(tmp_path / "more.npz")
    plan.save(tmp_path / "more.json")
    simulated(
        replace(
            made.simulation,
            partition=str(tmp_path / "more.npz"),
            plan=str(tmp_path / "more.json"),
        )
    )
    new = np.maximum(plan.samples[0] - old.samples[0], 0).sum()
    assert len(drawn(tmp_path / "drawn")) == len(before) + new
