"""What costs nothing: copies of a client's own samples, noise, and what a comparison says of them.

Copies can make only what a client has; noise is the control.
"""

import logging
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from flwr.app import Context, RecordDict
from hypothesis import given
from hypothesis import strategies as st

from fedeas import InputError, LabelCounts, Plan, WaterFill, augment, compare
from fedeas._internal.settings import read_settings
from fedeas.data import load_images
from fedeas.generators import Copies, Noise, make_generator
from fedeas.lab.config import Config
from fedeas.lab.experiment import run as run_config
from fedeas.lab.resolve import resolve
from fedeas.partition import Partition
from fedeas.planning.plan import reduction
from fedeas.planning.policies import HeldClassesOnly, copyable, make_policy, reachable_reduction
from fedeas.planning.skew import imbalance
from fedeas.train.flower.deployed import open_site
from fedeas.train.flower.deployment import SiteConfig
from fedeas.train.flower.simulated import open_simulated
from helpers.hypothesis_strategies import counts as any_counts
from helpers.image_sets import CLASSES, encoded
from helpers.small_federations import counts_of, federation, run, settings, write_shapes

POLICY = "fedeas(beta=12)"


def sides(image: np.ndarray, shift: int) -> list[bytes]:
    """Every move of an image by up to `shift` pixels, mirrored or not, in another way."""
    padded = np.pad(image, ((shift, shift), (shift, shift), (0, 0)), mode="edge")
    h, w, _ = image.shape
    places = [(y, x) for y in range(2 * shift + 1) for x in range(2 * shift + 1)]
    cuts = [padded[y : y + h, x : x + w] for y, x in places]
    return [cut.tobytes() for cut in cuts] + [cut[:, ::-1].tobytes() for cut in cuts]


class Own:
    """Two images of class 0 and one of class 2."""

    labels = np.array([0, 2, 0])
    images = np.random.default_rng(1).integers(0, 256, (3, 6, 5, 2), np.uint8)

    def take(self, places):
        return self.images[places].copy(), self.labels[places]


def test_a_copy_is_an_image_of_its_class_moved_and_mirrored():
    labels, seeds = np.repeat([0, 2], 500), np.arange(1000, dtype=np.uint64)
    made = Copies(shift=1).sample_from(Own(), labels, seeds)
    by_class = {0: sides(Own.images[0], 1) + sides(Own.images[2], 1), 2: sides(Own.images[1], 1)}
    found = [image.tobytes() for image in made]
    assert all(one in by_class[label] for one, label in zip(found, labels.tolist(), strict=True))
    assert set(found) == {*by_class[0], *by_class[2]}  # and each of them turns up
    alone = Copies(shift=1).sample_from(Own(), labels[7:8], seeds[7:8])
    assert (alone[0] == made[7]).all()  # it does not depend on its batch
    plain = Copies(shift=0, flip=False).sample_from(Own(), labels, seeds)
    assert {one.tobytes() for one in plain} == {one.tobytes() for one in Own.images}


def test_rows_of_a_table_are_copied_as_they_are():
    class Rows(Own):
        images = np.random.default_rng(1).random((3, 4), np.float32)

    made = Copies().sample_from(Rows(), np.array([2, 2]), np.arange(2, dtype=np.uint64))
    assert (made == Rows.images[1]).all()


def test_what_cannot_be_copied_is_refused():
    with pytest.raises(InputError, match="nothing to copy"):
        Copies().sample_from(Own(), np.array([1]), np.arange(1, dtype=np.uint64))
    for spec in ("copies(shift=-1)", "copies(flip=3)", "noise", "noise(shape=3x3)"):
        with pytest.raises(InputError):
            make_generator(spec)
    with pytest.raises(InputError, match="NumPy arrays"):
        make_generator("copies").sample(np.array([0]), np.arange(1, dtype=np.uint64))


def test_noise_is_uniform_and_follows_from_its_seed(tmp_path):
    made = make_generator("noise(shape=16x16x3)")
    assert made == Noise((16, 16, 3))
    images = made.sample(np.zeros(64, np.int64), np.arange(64, dtype=np.uint64))
    assert (images.shape, images.dtype) == ((64, 16, 16, 3), np.uint8)
    shares = np.bincount(images.ravel() // 32, minlength=8) / images.size
    assert shares == pytest.approx(1 / 8, abs=0.01)
    again = made.sample(np.array([5]), np.array([7], np.uint64))
    assert (again[0] == images[7]).all()  # whatever the label
    assert (images[7] != images[8]).any()
    of_data = make_generator("noise", data="shapes", folder=str(write_shapes(tmp_path / "set")))
    assert of_data == Noise((8, 8, 1))
    assert of_data.fingerprint != made.fingerprint


def test_noise_of_rows_has_the_columns_of_the_data_and_nothing_else(tmp_path):
    rng = np.random.default_rng(0)
    one = rng.normal(size=400)
    frame = pd.DataFrame({"x": one, "twice": 2 * one, "label": np.where(one > 0, "a", "b")})
    frame.to_parquet(tmp_path / "t.parquet")
    made = make_generator("noise", data="t", folder=str(tmp_path))
    rows = made.sample(np.zeros(300, np.int64), np.arange(300, dtype=np.uint64))
    assert set(rows[:, 0].tolist()) <= set(one.astype(np.float32).tolist())
    assert abs(np.corrcoef(rows.T)[0, 1]) < 0.2  # 1 in the data
    assert (made.sample(np.array([1]), np.array([7], np.uint64))[0] == rows[7]).all()


def simulated(made, number: int):
    context = Context(1, number, {"partition-id": number}, RecordDict(), {})
    return open_simulated(replace(made.simulation, generator="copies", offered=()), context)


def test_every_client_gets_copies_of_its_own_samples_and_of_no_others(tmp_path, caplog):
    made = federation(tmp_path, policy=POLICY)
    n = counts_of(tmp_path).n
    plan = Plan.load(tmp_path / "plan.json")
    for k in range(made.clients):
        site = simulated(made, k)
        with caplog.at_level(logging.WARNING, "fedeas"):
            samples = site.samples("")
        real, labels = site.real.take(np.arange(len(site.real)))
        allowed = [set() for _ in CLASSES]
        for image, label in zip(real, labels, strict=True):
            allowed[label].update(sides(image, 2))
        for image, label in zip(samples.synthetic, samples.synthetic_labels, strict=True):
            assert image.tobytes() in allowed[label]
        expected = np.where(n[k] > 0, plan.samples[k], 0)
        assert (np.bincount(samples.synthetic_labels, minlength=3) == expected).all()
        again = simulated(made, k).samples("")
        assert (again.synthetic == samples.synthetic).all()
    assert (plan.samples[n == 0] > 0).any()
    assert "lack a sample to copy" in caplog.text
    assert not (tmp_path / "cache").exists()  # real samples do not go there


def test_a_site_and_an_array_get_the_copies_that_a_simulated_client_gets(tmp_path):
    made = federation(tmp_path, policy=POLICY)
    data = load_images("shapes", tmp_path / "set")
    own = Partition.load(tmp_path / "partition.npz").train[0]
    in_simulation = simulated(made, 0).samples("")
    images, labels = augment(
        np.asarray(data.samples)[own], labels=np.asarray(data.labels)[own], generator="copies",
        beta=12, client=0, classes=CLASSES, cache=tmp_path / "unused",
    )  # fmt: skip
    assert (images[len(own) :] == in_simulation.synthetic).all()
    assert (labels[len(own) :] == in_simulation.synthetic_labels).all()
    for at in own:
        path = tmp_path / "site" / data.classes[data.labels[at]] / f"{at:04}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(encoded(data.samples[at]))
    config = SiteConfig(
        0, ",".join(CLASSES), str(tmp_path / "site"), str(tmp_path / "state"), generator="copies"
    )
    at_site = open_site(config).samples(POLICY)
    assert (at_site.synthetic_labels == in_simulation.synthetic_labels).all()
    assert not config.cache_folder.exists()


def test_data_sets_whose_pixels_are_not_known_are_told_what_to_do(tmp_path):
    pairs = torch.utils.data.TensorDataset(torch.zeros(9, 1, 8, 8), torch.arange(9) // 8)
    with pytest.raises(InputError, match="NumPy arrays"):
        augment(pairs, labels=[0] * 8 + [1], generator="copies", beta=8, classes=3,
                transform=lambda image: image, cache=tmp_path, client="client")  # fmt: skip


@pytest.fixture
def config(tmp_path) -> Config:
    folder = str(write_shapes(tmp_path / "set"))
    return read_settings(Config, {
        "seed": 7, "device": "cpu", "data": {"name": "shapes", "folder": folder},
        "partition": {"recipe": "dirichlet", "clients": 6, "alpha": 0.2},
        "augment": {"policy": POLICY, "generator": "copies", "cache": str(tmp_path / "cache")},
        "federated": {"rounds": 2, "local": {"epochs": 1, "batch": 8}},
    })  # fmt: skip


def test_a_run_plans_what_copies_can_make_and_trains_on_it(config, tmp_path):
    counts = resolve(config).federation.counts
    whole = make_policy(POLICY).plan(counts)
    ready = resolve(config)
    assert (ready.plan.samples == copyable(whole.samples, counts.n)).all()
    assert 0 < ready.plan.total < whole.total
    result = run_config(config, tmp_path / "run")
    assert result["generated"] == ready.plan.total
    assert result["reduction"] == ready.plan.reduction < whole.reduction
    assert result["generation"] == {"made": ready.plan.total, "seconds": 0.0}
    assert not (tmp_path / "cache").exists()
    noisy = config.replace(augment=config.augment.replace(generator="noise"))
    drawn = run_config(noisy, tmp_path / "noise")
    assert (drawn["generated"], drawn["generation"]["made"]) == (whole.total, whole.total)


def test_a_run_with_copies_resumes_with_the_same_bits(tmp_path):
    made = federation(tmp_path, policy=POLICY)
    made = replace(made, simulation=replace(made.simulation, generator="copies", offered=()))
    whole = run(made, tmp_path, settings("class-weights"))
    (tmp_path / "cut").mkdir()
    run(made, tmp_path / "cut", settings("class-weights").replace(rounds=1))
    rest = run(made, tmp_path / "cut", settings("class-weights"))
    assert all(torch.equal(w, rest.weights[name]) for name, w in whole.weights.items())


# The policy


@given(any_counts, st.integers(0, 3000))
def test_copies_are_the_optimum_over_the_classes_that_a_client_has(counts, total):
    """Nothing of what a client lacks, within the total, and no waterfill of all classes is lost."""
    plan = HeldClassesOnly(total=total).plan(counts)
    assert plan.total <= total
    assert not plan.samples[counts.n == 0].any()
    free = WaterFill(total=plan.total).plan(counts)
    assert free.score_after <= plan.score_after + 1e-9
    if (counts.n > 0).all():  # then it is water-filling itself
        assert plan.score_after == pytest.approx(free.score_after, abs=2 / counts.n.sum())


def test_copies_against_every_other_plan_of_small_clients():
    """By trying all plans: two clients, one of which lacks a class."""
    counts = LabelCounts([[5, 2, 0], [1, 2, 4]])
    plan = HeldClassesOnly(total=4).plan(counts)
    pairs = [tuple(pair) for pair in np.argwhere(counts.n > 0)]
    best = np.inf
    for chosen in np.ndindex(*[len(pairs)] * plan.total):
        samples = np.zeros_like(counts.n)
        for place in chosen:
            samples[pairs[place]] += 1
        best = min(best, imbalance(counts.n, samples))
    assert plan.total > 0
    assert plan.score_after == pytest.approx(best)


@given(any_counts)
def test_the_most_that_copies_reach_is_what_all_of_them_leave(counts):
    """Every client's own classes level: 1/m - 1/C is left of each."""
    n = counts.n
    level = np.where(n > 0, n.max(axis=1, keepdims=True), 0) - n
    expected = reduction(imbalance(n), imbalance(n, level))
    assert reachable_reduction(counts) == pytest.approx(expected, abs=1e-9)
    everything = HeldClassesOnly(total=2**50).plan(counts)
    assert (everything.samples == level).all()


@given(any_counts, st.lists(st.integers(1, 99), min_size=6, max_size=6))
def test_copies_come_as_near_to_a_target_as_any_amount_of_them_can(counts, shares):
    """Held against the minimum of ||x - t||^2 over shares x of the classes that a client has."""
    t = np.array(shares[: counts.C]) / sum(shares[: counts.C])
    left = 0.0
    for row in counts.n[counts.sizes > 0]:
        has = row > 0
        nearest = np.where(has, t + t[~has].sum() / has.sum(), 0.0)
        left += row.sum() / counts.n.sum() * float(((nearest - t) ** 2).sum())
    before = imbalance(counts.n, target=t)
    reach = reachable_reduction(counts, t)
    assert reach == pytest.approx(reduction(before, left), abs=1e-9)


# What a comparison says


def test_a_comparison_shows_what_costs_nothing(paper):
    rows = {row.policy: row for row in compare(paper)}
    copies = rows["copies"]
    assert 0 < copies.reduction < rows["waterfill"].reduction
    assert rows["fedeas"].total - 20 <= copies.total <= rows["fedeas"].total
    assert copies.reduction < copies.reach < 1
    assert rows["fedeas"].reach is None
    (balanced,) = compare([[5, 5], [5, 5]], ["copies"])
    assert balanced.reach == 0.0


def test_the_commands_say_how_much_copies_could_make(fedeas, paper_csv, paper):
    import json

    shown = json.loads(fedeas("plan", paper_csv, "--beta", "12", "--json").out)
    plan = make_policy(POLICY).plan(paper)
    assert shown["copyable"] == int(plan.samples[paper.n > 0].sum())
    out = fedeas("plan", paper_csv, "--beta", "12").out
    assert f"could make {shown['copyable']:,} (26.3 %); the rest is of missing classes" in out
    table = fedeas("compare", paper_csv, "--beta", "12").out
    assert f"could make {shown['copyable']:,} of the {plan.total:,} samples" in " ".join(
        table.split()
    )
    assert max(map(len, table.splitlines())) <= 84
