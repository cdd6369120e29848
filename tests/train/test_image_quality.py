"""What is measured about generated images."""

import json
from functools import partial

import numpy as np
import pytest
import torch

from fedeas import InputError
from fedeas.train.diffusion import quality
from fedeas.train.diffusion.judge import Judge, accuracy_on_real
from helpers.image_sets import CLASSES, shapes, write_set


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


def test_copies_of_training_images_are_noticed(data, monkeypatch):
    monkeypatch.setattr(quality, "_BLOCK", 7)
    known = np.arange(data.train_size)
    training, unseen = data.samples[: data.train_size], data.samples[data.train_size :]
    rng = np.random.default_rng(1)  # other noise than that of the pictures
    fresh = shapes_like(unseen, rng)
    natural = quality.nearest_distances(unseen, data.samples, known)
    honest = quality.memorisation(
        quality.nearest_distances(fresh, data.samples, known), natural, quantile=0.05
    )
    copies = fresh.copy()
    copies[:15] = training[30:45]
    copies[15:20] = np.clip(training[:5].astype(int) + rng.integers(-2, 3, (5, 8, 8, 1)), 0, 255)
    distances = quality.nearest_distances(copies, data.samples, known)
    assert honest.share < 0.15
    assert quality.memorisation(distances, natural, quantile=0.05).share >= 20 / 60
    assert set(np.argsort(distances, kind="stable")[:20]) == set(range(20))
    assert distances[:15].max() == 0
    assert quality.nearest_distances(copies[:15], data.samples, known[:30]).min() > 0


def shapes_like(images: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    noise = rng.integers(0, 40, images.shape)
    return np.where(images > 100, images, noise).astype(np.uint8)


def test_the_command_measures(fedeas, tmp_path, judge, data, monkeypatch):
    folder = tmp_path / "set"
    write_set(folder, list(data.samples[:240]), list(data.samples[240:]))
    # The command trains two classifiers to compare: here they need not be good.
    short = partial(accuracy_on_real, steps=20)
    monkeypatch.setattr("fedeas.train.diffusion.judge.accuracy_on_real", short)
    monkeypatch.setenv("FEDEAS_STORE", str(tmp_path / "store"))
    spec = f"pool(data=two, folder={folder}, pool_per_class=20)"
    result = fedeas("generator", "sample", spec, "--each", 30, "--data", "two", "--folder", folder,
                    "--out", tmp_path / "grid.png", "--json")  # fmt: skip
    assert result.code == 0, result.err
    # The pool's images are training images, and every one of them is noticed.
    assert json.loads(result.out)["memorisation"]["share"] == 1.0
    real = ("--data", "two", "--folder", folder)
    refused = fedeas("generator", "sample", spec, *real, "--out", tmp_path / "grid.csv")
    assert refused.code == 2
    assert "a file ending in .png" in refused.err
    assert not (tmp_path / "grid.csv").exists()
    text = fedeas("generator", "sample", spec, *real, "--judge", "two").out
    assert "Agreement with the judge" in text
    assert len(list((tmp_path / "store" / "judges").iterdir())) == 1
    result = fedeas("generator", "report", spec, *real, "--out", tmp_path / "page")
    assert result.code == 0, result.err
    page = (tmp_path / "page" / "report.md").read_text()
    assert "| memorised? " in page
    assert "they repeat them" in page
    assert (tmp_path / "page" / "img" / "quality-projection.svg").exists()
    assert "100.0 % are closer to a training image" in text
