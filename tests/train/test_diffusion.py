"""The diffusion generator and its training: exact, resumable, a function of seeds alone."""

import dataclasses
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from fedeas import InputError
from fedeas.data import load_images
from fedeas.generators import Generator, make_generator
from fedeas.generators.card import GeneratorCard, find_model
from fedeas.train.diffusion.sample import Diffusion, to_images
from fedeas.train.diffusion.train import PRESETS, Training, TrainingProgress, train
from fedeas.train.models.unet import UNetConfig, to_pixels
from helpers import preloaded
from helpers.image_sets import CLASSES, shapes

MICRO = Training(
    UNetConfig((8, 16), 1, (False, True), patch=1, prediction="v_prediction", timesteps=50),
    steps=6, batch=4, learning_rate=1e-3, warmup=2, decay=True, average=0.9, drop=0.2,
)  # fmt: skip


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return shapes(tmp_path_factory.mktemp("data") / "shapes")


@pytest.fixture(scope="module")
def model(data, tmp_path_factory) -> Path:
    return train(data, tmp_path_factory.mktemp("model"), MICRO, device="cpu")


def files(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_a_model_is_a_folder_of_safetensors_and_json(model):
    assert {Path(name).suffix for name in files(model)} == {".json", ".safetensors"}
    card = GeneratorCard.load(model, "diffusion")
    assert (card.generator, card.classes, card.shape) == ("diffusion", CLASSES, (8, 8, 1))
    assert card.guarantee.startswith("none")
    with pytest.raises(InputError, match="diffusion"):
        GeneratorCard.load(model, "gaussian")


@pytest.mark.parametrize("sampler", ["ddim", "dpm"])
def test_an_image_depends_on_its_label_and_seed_alone(model, sampler):
    made = make_generator(f"diffusion(model={model}, sampler={sampler}, steps=8)")
    assert isinstance(made, Generator)
    labels, seeds = np.array([0, 1, 2, 0]), np.array([7, 2**64 - 1, 7, 8], np.uint64)
    together = made.sample(labels, seeds)
    assert (together.shape, together.dtype) == ((4, 8, 8, 1), np.uint8)
    for i in (2, 0, 3, 1):
        alone = made.sample(labels[i : i + 1], seeds[i : i + 1])
        # One step of a byte is what rounding can do.
        assert np.abs(alone[0].astype(int) - together[i].astype(int)).max() <= 1
    assert len({image.tobytes() for image in together}) == 4
    state = torch.get_rng_state()
    made.sample(labels, seeds)
    assert torch.equal(state, torch.get_rng_state())


def test_everything_that_images_depend_on_is_in_the_fingerprint(model, data, tmp_path):
    other = train(data, tmp_path, dataclasses.replace(MICRO, steps=5), device="cpu")
    settings = ["", "steps=9", "guidance=3", "sampler=ddim", "precision=bfloat16"]
    made = [make_generator(f"diffusion(model={model}, {s})") for s in settings]
    made.append(make_generator(f"diffusion(model={other})"))
    assert len({one.fingerprint for one in made}) == len(made)
    assert make_generator(f"diffusion(model={model})").fingerprint == made[0].fingerprint


def test_a_card_that_does_not_fit_the_weights_is_refused(model, tmp_path):
    shutil.copytree(model, tmp_path / "model")
    card = GeneratorCard.load(model)
    for change in (
        {"classes": ("a", "b", "c", "d")},
        {"shape": (8, 8, 3)},
        {"shape": (8, 8)},
        {"settings": {}},
    ):
        dataclasses.replace(card, **change).save(tmp_path / "model")
        with pytest.raises(InputError):
            Diffusion.load(tmp_path / "model")


def test_guidance_of_one_needs_no_second_pass(model):
    made = Diffusion.load(model, guidance=1.0, steps=2)
    calls = []
    made._network.register_forward_pre_hook(lambda _, inputs: calls.append(len(inputs[0])))
    made.sample(np.array([0, 1]), np.array([1, 2], np.uint64))
    assert calls == [2, 2]


@pytest.mark.parametrize("side", [28, 32, 7])
def test_padding_and_folding_are_undone(side):
    design = PRESETS["tiny"].design
    images = np.random.default_rng(0).integers(0, 256, (3, side, side, 3), np.uint8)
    x = to_pixels(torch.from_numpy(images), design)
    assert x.shape[2] * design.patch == design.padded(side, side)
    np.testing.assert_array_equal(to_images(x, design, images.shape[1:]), images)


def test_the_paper_preset_is_the_papers():
    paper = PRESETS["paper"]
    assert [c // 64 for c in paper.design.channels] == [1, 2, 4, 8]
    assert (paper.design.timesteps, paper.batch, paper.steps) == (1000, 128, 300_000)
    network = paper.design.network(10, 3, 32)
    x = torch.zeros(1, 3, 32, 32)
    out = network(x, torch.tensor(3), class_labels=torch.tensor([10])).sample
    assert out.shape == x.shape


def test_training_learns(data, tmp_path):
    moments: list[TrainingProgress] = []
    longer = dataclasses.replace(MICRO, steps=60, batch=16, learning_rate=3e-3)
    train(data, tmp_path, longer, device="cpu", checkpoint_every=10, report=moments.append)
    assert moments[-1].step == 60
    assert moments[-1].loss < 0.7 * moments[0].loss
    assert all(m.images_per_second > 0 for m in moments)


@pytest.mark.parametrize("stop", [2, 4])
def test_a_stopped_training_ends_with_the_same_bytes(data, model, tmp_path, stop):
    def interrupt(moment: TrainingProgress) -> None:
        if moment.step == stop:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(data, tmp_path, MICRO, device="cpu", checkpoint_every=2, report=interrupt)
    state = torch.get_rng_state()
    resumed = train(data, tmp_path, MICRO, device="cpu", checkpoint_every=2)
    assert torch.equal(state, torch.get_rng_state())
    assert files(resumed) == files(model)


def test_another_training_does_not_go_on_in_its_folder(data, tmp_path):
    train(data, tmp_path, MICRO, device="cpu")
    with pytest.raises(InputError, match="another training run: batch, seed"):
        train(data, tmp_path, dataclasses.replace(MICRO, batch=2), seed=1, device="cpu")
    (tmp_path / "checkpoint.safetensors").unlink()
    with pytest.raises(InputError, match="no checkpoint"):
        train(data, tmp_path, MICRO, device="cpu")


def test_a_flipped_byte_in_a_checkpoint_is_refused(data, tmp_path):
    train(data, tmp_path, MICRO, device="cpu")
    path = tmp_path / "checkpoint.safetensors"
    whole = path.read_bytes()
    for at in np.linspace(0, len(whole) - 1, 15).astype(int):
        damaged = bytearray(whole)
        damaged[at] ^= 0x04
        path.write_bytes(damaged)
        with pytest.raises(InputError):
            train(data, tmp_path, MICRO, device="cpu")


def training(out: Path) -> list[str]:
    arguments = ["generator", "train", "fashion_mnist", "--out", str(out), "--device", "cpu"]
    return [*arguments, "--steps", "8", "--batch", "4", "--checkpoint", "1"]


@pytest.fixture(scope="module")
def fashion(tmp_path_factory, store) -> Path:
    """A few steps of the tiny preset on Fashion-MNIST, not interrupted."""
    out = tmp_path_factory.mktemp("fashion")
    environment = {"FEDEAS_STORE": str(store)}
    done = preloaded.call(training(out), environment=environment, libraries=preloaded.DRAWING)
    assert done.returncode == 0, done.stderr
    return out


@pytest.mark.slow
def test_killed_at_random_moments_it_ends_with_the_same_bytes(fashion, tmp_path, store):
    """What the quick test above shows with interrupts, with real kills of the command."""
    options = {"environment": {"FEDEAS_STORE": str(store)}, "libraries": preloaded.DRAWING}
    chance, checkpoint = random.Random(0), tmp_path / "checkpoint.safetensors"
    for _ in range(4):
        before = checkpoint.stat().st_mtime_ns if checkpoint.exists() else 0
        process = preloaded.start(training(tmp_path), **options)
        # From its first new checkpoint on, at any moment of a step.
        while not checkpoint.exists() or checkpoint.stat().st_mtime_ns == before:
            assert process.poll() is None
            time.sleep(0.002)
        time.sleep(chance.uniform(0.0, 0.1))
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
    done = preloaded.call(training(tmp_path), **options)
    assert done.returncode == 0, done.stderr
    assert files(tmp_path / "model") == files(fashion / "model")


@pytest.mark.slow
def test_two_processes_share_one_batch(fashion, tmp_path, store):
    environment = {**os.environ, "FEDEAS_STORE": str(store), "OMP_NUM_THREADS": "1"}
    launcher = ["--cpu", "--num_processes", "2", "--num_machines", "1", "--mixed_precision", "no",
                "--dynamo_backend", "no"]  # fmt: skip
    launched = [sys.executable, "-W", "ignore", "-m", "accelerate.commands.launch", *launcher]
    done = subprocess.run(
        [*launched, "-m", "fedeas", *training(tmp_path)],
        env=environment, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    one, two = (
        load_file(f / "model" / "unet" / "diffusion_pytorch_model.safetensors")
        for f in (fashion, tmp_path)
    )
    for name, weight in one.items():
        # bfloat16 rounds the gradients of halves differently; Adam's first steps magnify that.
        assert (weight.float() - two[name].float()).abs().max() < 5e-3, name


def test_a_log_has_the_loss_and_the_speed(fedeas, tmp_path, store, data, monkeypatch):
    monkeypatch.setenv("FEDEAS_STORE", str(store))
    result = fedeas("generator", "train", "fashion_mnist", "--out", tmp_path, "--steps", 1,
                    "--batch", 2, "--device", "cpu")  # fmt: skip
    assert result.code == 0, result.err
    (line,) = (tmp_path / "log.jsonl").read_text().splitlines()
    assert {"step", "loss", "images_per_second"} <= json.loads(line).keys()


def test_the_command_says_what_is_wrong(fedeas, tmp_path, data, monkeypatch):
    monkeypatch.setenv("FEDEAS_STORE", str(tmp_path))
    for arguments, message in (
        (["train", "fashion_mnist", "--out", tmp_path, "--preset", "huge"], "unknown preset"),
        (["sample", "diffusion(model=nowhere)"], "cannot read"),
        (["sample", "diffusion(model=fashion_mnist, sampler=euler)"], "unknown sampler"),
        (["sample", "diffusion(model=fashion_mnist, steps=0)"], "not a number of steps"),
        (["sample", "diffusion(model=fashion_mnist, guidance=-1)"], "not a guidance scale"),
        (["sample", "diffusion(model=fashion_mnist, device=cuda)"], "cannot use the device"),
        (["sample", "helpers.noted_generators:Counting"], "which classes it knows"),
    ):
        result = fedeas("generator", *arguments)
        assert result.code == 2
        assert message in result.err
        assert result.err.count("\n") == 1


JUDGE = Path(__file__).parents[1] / "data" / "fashion-judge.safetensors"


@pytest.mark.slow
@pytest.mark.parametrize("each", [2, 6])
def test_the_shipped_model_draws_what_is_asked(fedeas, tmp_path, monkeypatch, each):
    folder = find_model("fashion_mnist")
    # A judge is kept by the data that it was trained on.
    monkeypatch.setenv("FEDEAS_STORE", str(tmp_path / "store"))
    judges = tmp_path / "store" / "judges"
    judges.mkdir(parents=True)
    shutil.copy(JUDGE, judges / f"{load_images('fashion_mnist').fingerprint}.safetensors")
    assert sum(p.stat().st_size for p in folder.rglob("*") if p.is_file()) < 10_000_000
    result = fedeas(
        "generator", "sample", "diffusion(model=fashion_mnist)", "--each", each,
        "--judge", "fashion_mnist", "--out", tmp_path / "grid.png", "--json",
    )  # fmt: skip
    assert result.code == 0, result.err
    found = json.loads(result.out)
    assert found["images"] == 10 * each
    assert found["judge_accuracy"] > 0.88
    assert found["agreement_mean"] >= 0.8
    assert (tmp_path / "grid.png").stat().st_size > 10_000


def test_a_dry_run_of_fill_is_a_cost_for_the_next_plan(fedeas, tmp_path, model):
    plan, cost = tmp_path / "plan.json", tmp_path / "cost.json"
    counts = tmp_path / "counts.csv"
    counts.write_text("client," + ",".join(CLASSES) + "\na,90,10,0\nb,3,40,60\n")
    assert fedeas("plan", counts, "--beta", 4, "--out", plan).code == 0
    spec = f"diffusion(model={model}, steps=2)"
    arguments = ("fill", plan, "--generator", spec, "--batch", 8, "--cache", tmp_path / "cache")
    result = fedeas(*arguments, "--dry-run", "--json")
    assert result.code == 0, result.err
    assert not (tmp_path / "cache").exists()
    timing = json.loads(result.out)
    assert 0 < timing["seconds_per_sample"] < 5
    assert timing["hours"] == pytest.approx(timing["seconds_per_sample"] * timing["samples"] / 3600)
    assert "s per sample" in fedeas(*arguments, "--dry-run").out
    cost.write_text(result.out)
    planned = json.loads(fedeas("plan", counts, "--beta", 4, "--cost", cost, "--json").out)
    assert re.search(r"\d", json.dumps(planned["cost"]))
    cost.write_text('{"seconds_per_sample": "often"}')
    assert fedeas("plan", counts, "--cost", cost).code == 2
