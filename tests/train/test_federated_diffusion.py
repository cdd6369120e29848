"""A diffusion model trained by a federation: the rounds, grids and sums of every other model."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from fedeas import InputError
from fedeas._internal.seeds import child_rng
from fedeas.data import load_images
from fedeas.errors import InfeasibleError
from fedeas.generators import make_generator
from fedeas.generators.card import GeneratorCard
from fedeas.lab.config import Augment, Config, Data, PartitionConfig
from fedeas.lab.experiment import run
from fedeas.lab.federated_generator import train_generator
from fedeas.partition import Partition
from fedeas.partition.partition import IndexLists, hash_labels
from fedeas.private.flower import run_server
from fedeas.train.flower.backends import InlineGrid
from fedeas.train.flower.client import make_client_app
from fedeas.train.flower.rounds import run_rounds
from fedeas.train.flower.simulated import Simulation
from fedeas.train.models import make_model
from fedeas.train.models.unet import DESIGNS, Draw, denoising_loss
from fedeas.train.samples import Task
from fedeas.train.settings import Federated, Local, ModelSettings
from fedeas.train.tensors import load_tensors, seeded
from helpers import small_federations
from helpers.deployed_sites import app_of, settings

UNET = "unet(channels=8:16, drop=0.2)"
LOCAL = Local(batch=4, steps=2, learning_rate=1e-3, optimizer="adamw(weight_decay=0.0)")
FEDERATED = Federated(
    rounds=2, fraction=1.0, model=ModelSettings(UNET), local=LOCAL, ema_decay=0.5, eval_every=2
)


def config_of(folder: Path, **changed: object) -> Config:
    """Four clients with a few shapes each."""
    return Config(
        Data("shapes", str(small_federations.write_shapes(folder / "set"))),
        PartitionConfig("dirichlet", 4, alpha=1.0),
        federated=FEDERATED.replace(**changed),
        seed=7,
        device="cpu",
    )


def files(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("shapes")


@pytest.fixture(scope="module")
def model(folder) -> Path:
    """The generator of a training that nothing interrupts."""
    return train_generator(config_of(folder), folder / "plain")


def test_the_folder_is_an_ordinary_generator_with_a_card(model):
    made = make_generator(f"diffusion(model={model}, steps=3)")
    images = made.sample(np.array([0, 1, 2]), np.array([1, 2, 3], np.uint64))
    assert (images.shape, images.dtype) == ((3, 8, 8, 1), np.uint8)
    card = GeneratorCard.load(model)
    assert card.training.steps == 2 * 4 * 2  # rounds x clients x steps
    assert card.settings["design"]["channels"] == [8, 16]
    assert card.training.samples > 0
    assert (card.training.sites, card.training.rounds, card.privacy) == (4, 2, None)
    assert card.guarantee.startswith("none")
    lines = (model.parent / "log.jsonl").read_text().splitlines()
    assert ["loss" in json.loads(line) for line in lines] == [False, True]


@pytest.mark.slow
def test_ray_gives_the_same_bytes(folder, model):
    out = folder / "ray"
    config = config_of(folder).replace(backend="ray")
    environment = {k: v for k, v in os.environ.items() if k != "OMP_NUM_THREADS"}
    code = (
        "import sys, json; from pathlib import Path\n"
        "from fedeas.lab.federated_generator import train_generator\n"
        "from fedeas.lab.config import Config\n"
        "from fedeas._internal.settings import read_settings\n"
        "train_generator(read_settings(Config, json.loads(sys.argv[1])), sys.argv[2])"
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code, json.dumps(config.to_dict()), out],
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert files(out / "model") == files(model)


def test_stopped_after_any_round_it_ends_with_the_same_bytes(folder, model, tmp_path):
    def interrupt(line: dict) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_generator(config_of(folder), tmp_path, on_round=interrupt)
    state = torch.get_rng_state()
    assert files(train_generator(config_of(folder), tmp_path)) == files(model)
    assert torch.equal(state, torch.get_rng_state())


def test_the_average_is_over_rounds_and_clients_go_on_from_the_weights(folder, model, tmp_path):
    def state(path: Path, prefix: str) -> dict[str, torch.Tensor]:
        tensors, _ = load_tensors(path / "checkpoint.safetensors")
        return {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}

    train_generator(config_of(folder, rounds=1), tmp_path)
    first, second = state(tmp_path, "weights."), state(model.parent, "weights.")
    averaged = state(model.parent, "averaged.")
    assert averaged.keys() == second.keys()
    for name, weight in second.items():  # after two rounds the first weighs a tenth
        expected = 0.1 * first[name].double() + 0.9 * weight.double()
        torch.testing.assert_close(averaged[name].double(), expected, rtol=0, atol=1e-6)
    plain = tmp_path / "plain"
    train_generator(config_of(folder, ema_decay=0.0), plain)
    assert all(torch.equal(w, second[name]) for name, w in state(plain, "weights.").items())
    assert not state(plain, "averaged.")


def two_clients(folder: Path) -> tuple[Simulation, Task, list[np.ndarray]]:
    data = load_images("shapes", small_federations.write_shapes(folder / "set"))
    parts = [np.arange(0, 10), np.arange(10, 40)]
    labels = np.asarray(data.labels)
    hashed = hash_labels(labels)
    Partition(IndexLists.of(parts), hashed, len(labels), 3, "two@1", {}).save(folder / "two.npz")
    simulation = Simulation(
        data="shapes", data_folder=str(folder / "set"), partition=str(folder / "two.npz"),
        plan=None, generator="", offered=(), cache="", cache_seed=0, batch=4,
        folder=str(folder / "clients"), device="cpu",
    )  # fmt: skip
    return simulation, Task.of(data), parts


def test_a_round_is_the_mean_of_the_clients_steps_by_hand(tmp_path):
    """One step of Adam moves every weight by its rate along g / (|g| + eps)."""
    simulation, task, parts = two_clients(tmp_path)
    federated = FEDERATED.replace(rounds=1, ema_decay=0.0, local=LOCAL.replace(steps=1))
    app = make_client_app(simulation.opener())
    checkpoint = tmp_path / "checkpoint.safetensors"
    found = run_rounds(
        InlineGrid(app, 2), federated, task, 7, checkpoint, "x", lambda _: {}
    ).weights

    data = load_images("shapes", tmp_path / "set")
    first = int(child_rng(7, "weights").integers(2**62))
    moved: dict[str, torch.Tensor] = {}
    for number, part in enumerate(parts):
        model = make_model(federated.model, task, first)
        rng = child_rng(7, "train", 1, number)
        noise = torch.Generator().manual_seed(int(rng.spawn(1)[0].integers(2**62)))
        chosen = part[rng.permutation(len(part))[:4]]
        labels = torch.from_numpy(np.asarray(data.labels)[chosen])
        draw = Draw.of(labels, 3, (8, 8, 1), model.design, 0.2, noise)
        images = torch.from_numpy(np.asarray(data.samples[chosen]))
        denoising_loss(model.network, model.design, model.design.noise(), images, draw).backward()
        for name, weight in model.named_parameters():
            step = weight.grad / (weight.grad.abs() + 1e-8)
            share = len(part) / 40
            before = moved.get(name, weight.detach())
            moved[name] = before - share * LOCAL.learning_rate * step
    for name, weight in moved.items():
        torch.testing.assert_close(found[name], weight, rtol=0, atol=1e-6)


def test_the_federation_starts_from_the_central_trainers_weights():
    task = Task(10, (28, 28, 1), (0.5,), (0.2,))
    model = make_model(ModelSettings("unet"), task, 5)
    with seeded(5):
        central = DESIGNS["tiny"].network(10, 1, DESIGNS["tiny"].padded(28, 28))
    own = model.state_dict()
    assert own.keys() == {f"network.{name}" for name in central.state_dict()}
    assert all(torch.equal(own[f"network.{k}"], w) for k, w in central.state_dict().items())


def test_a_fixed_number_of_steps_is_taken_however_few_samples_there_are(tmp_path):
    simulation, task, _ = two_clients(tmp_path)
    federated = FEDERATED.replace(rounds=1, local=LOCAL.replace(steps=5))  # 3 batches of 10 samples
    grid = InlineGrid(make_client_app(simulation.opener()), 2)
    trained = run_rounds(grid, federated, task, 7, tmp_path / "c", "x", lambda _: {})
    assert trained.history[0]["steps"] == 10


# Deployed sites

DEPLOYED = {
    "model": UNET, "steps": 2, "batch": 4, "learning-rate": 1e-3,
    "optimizer": "adamw(weight_decay=0.0)", "ema-decay": 0.5, "policy": "none",
}  # fmt: skip


def test_sites_train_a_generator_only_if_their_owners_say_so(sites, tmp_path):
    grid = InlineGrid(app_of(sites, tmp_path / "no"), 4)
    with pytest.raises(InfeasibleError, match="lets it train no generators"):
        run_server(grid, settings(sites, tmp_path / "a", **DEPLOYED))
    grid = InlineGrid(app_of(sites, tmp_path / "few", train_generator=True, max_steps=1), 4)
    with pytest.raises(InfeasibleError, match="steps is more or less than this site allows"):
        run_server(grid, settings(sites, tmp_path / "b", **DEPLOYED))
    grid = InlineGrid(app_of(sites, tmp_path / "yes", train_generator=True), 4)
    run_server(grid, settings(sites, tmp_path / "c", **DEPLOYED))
    made = make_generator(f"diffusion(model={tmp_path / 'c' / 'generator'}, steps=2)")
    assert made.sample(np.array([0, 1]), np.array([1, 2], np.uint64)).shape == (2, 8, 8, 1)


def test_the_card_of_trained_weights_promises_nothing(sites, tmp_path):
    grid = InlineGrid(app_of(sites, tmp_path, train_generator=True), 4)
    run_server(grid, settings(sites, tmp_path / "run", **DEPLOYED, rounds=1))
    assert GeneratorCard.load(tmp_path / "run" / "generator").privacy is None


# What is wrong


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("unet(preset=huge)", "unknown preset"),
        ("unet(channels=8:9)", "multiples of 8"),
        ("unet(channels=8:100000)", "multiples of 8"),
        ("unet(channels=a:b)", "multiples of 8"),
        ("unet(channels=8:8:8:8:8:8:8)", "up to 6"),
        ("unet(drop=1)", "not a share of labels"),
        ("unet(width=4)", "no setting 'width'"),
    ],
)
def test_a_network_out_of_range_is_refused(model, message):
    with pytest.raises(InputError, match=message):
        make_model(ModelSettings(model), Task(3, (8, 8, 1), (0.5,), (0.2,)), 0)


def test_a_network_for_images_takes_no_rows():
    with pytest.raises(InputError, match="for images"):
        make_model(ModelSettings(UNET), Task(3, (4,), (0.0,) * 4, (1.0,) * 4, "table"), 0)


def test_settings_that_do_not_go_together_are_refused(folder, tmp_path):
    for method in ("moon", "fedgen", "class-weights", "fedlc"):
        with pytest.raises(InputError, match="needs a classifier"):
            FEDERATED.replace(method=method)
    with pytest.raises(InputError, match="cannot be compiled"):
        FEDERATED.replace(local=LOCAL.replace(compile=True))
    with pytest.raises(InputError, match="draws nothing"):
        train_generator(config_of(folder, model=ModelSettings("cnn")), tmp_path)
    with pytest.raises(InputError, match="trains a generator"):
        run(config_of(folder), tmp_path)
    filled = Augment("full-balance", "noise")
    with pytest.raises(InputError, match="on real samples"):
        train_generator(config_of(folder).replace(augment=filled), tmp_path)


CONFIG = f"""
seed = 7
[data]
name = "shapes"
folder = "FOLDER"
[partition]
recipe = "dirichlet"
alpha = 1.0
clients = 4
[federated]
rounds = 2
fraction = 1.0
ema_decay = 0.5
eval_every = 2
[federated.model]
name = "{UNET}"
[federated.local]
batch = 4
steps = 2
learning_rate = 1e-3
optimizer = "adamw(weight_decay=0.0)"
"""


def test_the_command_trains_and_says_what_is_wrong(fedeas, folder, model, tmp_path):
    path = tmp_path / "config.toml"
    path.write_text(CONFIG.replace("FOLDER", str(folder / "set")))
    for arguments, message in (
        ([tmp_path / "nowhere.toml"], "nowhere.toml"),
        ([path, "--device", "cuda"], "cannot use the device"),
    ):
        result = fedeas("generator", "federated", *arguments, "--out", tmp_path / "out")
        assert (result.code, result.err.count("\n")) == (2, 1)
        assert message in result.err
    result = fedeas("generator", "federated", path, "--out", tmp_path / "out", "--device", "cpu")
    assert result.code == 0, result.err
    assert f"model            {tmp_path / 'out' / 'model'}" in result.out
    assert files(tmp_path / "out" / "model") == files(model)
