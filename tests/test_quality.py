"""What is measured about generated images, and the filter that draws again."""

import json
import zlib

import numpy as np
import pytest
import torch

from fedeas import FedEAS, InputError, LabelCounts
from fedeas.cache import Cache, fill
from fedeas.generators import quality
from fedeas.generators.judge import Features, Judge
from fedeas.generators.measure import Drawn, Real, measure
from pictures import CLASSES, shapes, write_set


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return shapes(tmp_path_factory.mktemp("data") / "shapes", train=240, test=60)


@pytest.fixture(scope="module")
def judge(data):
    return Judge.train(data, epochs=12)


def test_a_judge_learns_and_is_kept(judge, data, tmp_path):
    assert judge.accuracy > 0.9
    judge.save(tmp_path / "judge.safetensors")
    again = Judge.load(tmp_path / "judge.safetensors")
    assert (again.classes, again.fingerprint) == (CLASSES, judge.fingerprint)
    np.testing.assert_array_equal(again(data.samples), judge(data.samples))
    with pytest.raises(InputError, match="another size"):
        judge(np.zeros((1, 9, 9, 1), np.uint8))


def test_the_same_seed_gives_the_same_judge(judge, data):
    state = torch.get_rng_state()
    again = Judge.train(data, epochs=12)
    assert torch.equal(state, torch.get_rng_state())
    for name, weight in judge.model.state_dict().items():
        assert torch.equal(weight, again.model.state_dict()[name])


def test_agreement_of_a_class_that_was_not_asked_for_is_zero():
    found, asked = np.array([0, 2, 2]), np.array([0, 2, 0])
    assert quality.agreement(found, asked, 4).tolist() == [0.5, 0.0, 1.0, 0.0]


def test_the_frechet_distance_is_the_formula(judge, data):
    class Mean(torch.nn.Module):
        num_features = 2

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.stack([x.double().mean((1, 2, 3)), x.double().amax((1, 2, 3))], 1)

    real, drawn = data.samples[:200], 255 - data.samples[100:300]
    a, b = (Mean()(torch.from_numpy(x.transpose(0, 3, 1, 2).copy())).numpy() for x in (real, drawn))
    first, second = np.cov(a.T), np.cov(b.T)
    root = np.sqrt(np.linalg.eigvals(first @ second).astype(complex)).real.sum()
    formula = ((a.mean(0) - b.mean(0)) ** 2).sum() + np.trace(first) + np.trace(second) - 2 * root
    blocks = [drawn[i : i + 33] for i in range(0, len(drawn), 33)]
    assert quality.frechet_distance([real], blocks, Mean()) == pytest.approx(formula, rel=1e-4)
    alike = quality.frechet_distance([real], [real], Features(judge))
    other = quality.frechet_distance([real], [drawn], Features(judge))
    assert abs(alike) < 1e-3 < 1 < other


def test_measuring_compares_drawn_images_with_real_ones(judge, data):
    drawn = Drawn(255 - np.asarray(data.samples[:40]), np.asarray(data.labels[:40]))
    real = Real.of(data)
    found = measure(drawn, CLASSES, judge, real).frechet_distance
    formula = quality.frechet_distance([real.at(real.unseen)], [drawn.samples], Features(judge))
    assert found == pytest.approx(formula)
    assert found > 1


def test_copies_of_training_images_are_noticed(data):
    training, unseen = data.samples[: data.train_size], data.samples[data.train_size :]
    rng = np.random.default_rng(1)  # other noise than that of the pictures
    fresh = shapes_like(unseen, rng)
    honest = quality.memorisation(fresh, training, unseen, quantile=0.05)
    copies = fresh.copy()
    copies[:15] = training[30:45]
    copies[15:20] = np.clip(training[:5].astype(int) + rng.integers(-2, 3, (5, 8, 8, 1)), 0, 255)
    found = quality.memorisation(copies, training, unseen, quantile=0.05)
    assert honest.share < 0.15
    assert found.share >= 20 / 60
    assert set(found.closest[:20]) == set(range(20))
    distances, which = quality.nearest_distances(copies[:15], training, block=7)
    assert distances.max() == 0
    assert which.tolist() == list(range(30, 45))


def shapes_like(images: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    noise = rng.integers(0, 40, images.shape)
    return np.where(images > 100, images, noise).astype(np.uint8)


class Moody:
    """Draws the class that was asked for only for every third seed."""

    fingerprint, classes = "moody-1", CLASSES

    def sample(self, labels, seeds):
        kept = [zlib.crc32(int(s).to_bytes(8, "little")) % 3 == 0 for s in seeds]
        shown = np.where(kept, labels, (labels + 1) % 3)
        return np.repeat(shown, 16).reshape(-1, 4, 4, 1).astype(np.uint8)


def classify(images):
    return images[:, 0, 0, 0].astype(np.int64)


def test_a_filter_draws_again_and_gives_up_in_time():
    labels, seeds = np.arange(300) % 3, np.arange(300, dtype=np.uint64)
    plain = quality.Filtered(Moody(), classify, "classify", tries=1)
    patient = quality.Filtered(Moody(), classify, "classify", tries=20)
    before = (classify(plain.sample(labels, seeds)) == labels).mean()
    images = patient.sample(labels, seeds)
    assert 0.2 < before < 0.5
    assert (classify(images) == labels).mean() > 0.99
    assert (plain.drawn, plain.unmet) == (300, round(300 * (1 - before)))
    assert 300 < patient.drawn < 300 * 6
    assert patient.unmet == (classify(images) != labels).sum()
    alone = [patient.sample(labels[i : i + 1], seeds[i : i + 1])[0] for i in (5, 77, 240)]
    np.testing.assert_array_equal(alone, images[[5, 77, 240]])
    assert len({plain.fingerprint, patient.fingerprint, Moody.fingerprint}) == 3


def test_a_filtered_fill_meets_the_plan(tmp_path):
    plan = FedEAS(beta=12).plan(LabelCounts([[30, 0, 2], [0, 9, 0]], classes=list(CLASSES)))
    made = quality.Filtered(Moody(), classify, "classify", tries=30)
    cache = Cache(tmp_path, made, CLASSES)
    assert fill(plan, made, cache).generated == plan.total
    for name, wanted in zip(plan.client_names, plan.samples, strict=True):
        images, labels = cache.samples(name, wanted.tolist())
        if labels.size:
            np.testing.assert_array_equal(classify(images), labels)


def test_the_command_measures(fedeas, tmp_path, judge, data, monkeypatch):
    folder = tmp_path / "set"
    write_set(folder, list(data.samples[:240]), list(data.samples[240:]))
    monkeypatch.setenv("FEDEAS_STORE", str(tmp_path / "store"))
    spec = f"pool(data=two, folder={folder}, hold_out=20)"
    result = fedeas("generator", "sample", spec, "--each", 30, "--data", "two", "--folder", folder,
                    "--out", tmp_path / "grid.png", "--json")  # fmt: skip
    assert result.code == 0, result.err
    # The pool's images are training images, and every one of them is noticed.
    assert json.loads(result.out)["memorisation"]["share"] == 1.0
    text = fedeas("generator", "sample", spec, "--data", "two", "--folder", folder,
                  "--report", tmp_path / "page").out  # fmt: skip
    page = (tmp_path / "page" / "report.md").read_text()
    assert "| memorised? " in page
    assert "they repeat them" in page
    assert (tmp_path / "page" / "img" / "quality-projection.svg").exists()
    assert "100.0 % are closer to a training image" in text


class Shared(Moody):
    """Returns the same array again and again, which nobody may write to."""

    least_batch, schema = 512, "columns"

    def sample(self, labels, seeds):
        samples = super().sample(labels, seeds)
        samples.setflags(write=False)
        return samples


def test_a_filter_leaves_the_generators_array_alone_and_keeps_what_it_says():
    labels, seeds = np.arange(300) % 3, np.arange(300, dtype=np.uint64)
    patient = quality.Filtered(Shared(), classify, "classify", tries=20)
    assert (classify(patient.sample(labels, seeds)) == labels).mean() > 0.99
    assert (patient.least_batch, patient.schema) == (512, "columns")
