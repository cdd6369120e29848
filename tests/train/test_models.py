"""Models by name: ours, a package's, anybody's; and torch's optimisers."""

import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from fedeas import InfeasibleError, InputError
from fedeas._internal.seeds import child_rng
from fedeas.train.loop import find_optimizer, fit
from fedeas.train.models import Wrapped, make_model
from fedeas.train.samples import Samples, Task
from fedeas.train.settings import Local, ModelSettings
from fedeas.train.tensors import seeded
from helpers.image_sets import shapes
from helpers.small_federations import (
    federation,
    run,
    same_as_on_ray,
    settings,
    train_on_ray,
)

ROOT = Path(__file__).parents[2]
METHODS = ("fedavg", "fedprox", "scaffold", "moon", "fedgen", "fedmix")
TASK = Task(3, (16, 16, 1), (0.2,), (0.3,))
STRANGE = "own_model:make_network"


@pytest.fixture
def examples(monkeypatch):
    """The folder of examples, as somebody stands in it."""
    monkeypatch.syspath_prepend(ROOT / "examples")


@pytest.mark.parametrize(
    "on_ray", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["inline", "ray"]
)
def test_a_network_that_nobody_knows_trains_with_every_method(tmp_path, examples, on_ray):
    """The example of the documents: inline and on Ray, whose clients answer in any order, alike."""
    made = federation(tmp_path, policy="fedeas(beta=12)")
    methods = [(method, 0, STRANGE) for method in METHODS]
    rounds = 2  # the second begins with what methods keep of the first
    more = {} if on_ray else {"local": Local(epochs=1, batch=8, learning_rate=0.05)}
    inline = {
        m: run(made, tmp_path, settings(m, p, s).replace(rounds=rounds, **more)).weights
        for m, p, s in methods
    }
    assert len({w["network.out.bias"].sum() for w in inline.values()}) == len(METHODS)
    if not on_ray:
        return
    train_on_ray(tmp_path, methods, rounds)
    assert same_as_on_ray(tmp_path, inline)


class Blunt(torch.nn.Module):
    """A network without features."""

    def __init__(self, task: Task) -> None:
        super().__init__()
        self.out = torch.nn.Linear(task.shape[0] * task.shape[1], task.classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(x.flatten(1))


def test_moon_and_fedgen_say_what_a_network_lacks(tmp_path):
    made = federation(tmp_path)
    for method in ("fedavg", "fedprox", "scaffold", "fedmix", "class-weights", "fedlc"):
        run(made, tmp_path, settings(method, 0, f"{__name__}:Blunt").replace(rounds=1))
    with pytest.raises(InfeasibleError, match="the model has no method `features`"):
        run(made, tmp_path, settings("moon", 0, f"{__name__}:Blunt"))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("own_model:nothing", "cannot import model"),
        ("own_model:Mixer", "needs 'channels'"),
        ("math:sqrt", "needs 'x'"),
        ("math:pi", "is not a model"),
        ("fractions:Fraction", "is not a model"),
        ("cnnn", "did you mean 'cnn'"),
        ("cnn(depth=3)", "no setting 'depth'"),
    ],
)
def test_a_model_that_is_none_is_named(name, message, examples):
    with pytest.raises(InputError, match=message):
        make_model(ModelSettings(name), TASK, 0)


def test_settings_of_another_model_are_refused():
    with pytest.raises(InputError, match="model 'cnn' has no setting 'stem'"):
        make_model(ModelSettings("cnn", stem="imagenet"), TASK, 0)
    assert make_model(ModelSettings("resnet18(norm=group)"), TASK, 0)


def test_a_server_cannot_name_a_model_to_import(examples, monkeypatch):
    monkeypatch.delitem(sys.modules, "own_model", raising=False)
    with pytest.raises(InputError, match="by dotted path"):
        make_model(ModelSettings(STRANGE), TASK, 0, by_owner=False)
    assert "own_model" not in sys.modules
    make_model(ModelSettings(STRANGE), TASK, 0)  # as a simulation does
    assert "own_model" in sys.modules


@pytest.mark.parametrize("name", ["adamw", "RMSprop(alpha=0.9)", "sgd(nesterov=true)"])
def test_any_optimizer_of_torch(tmp_path, name):
    made = federation(tmp_path)
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    local = Local(epochs=1, batch=8, learning_rate=0.001, optimizer=name,
                  momentum=0.9 if "adam" not in name else 0.0)  # fmt: skip
    plain = run(made, tmp_path / "a", settings().replace(rounds=1)).weights
    other = run(made, tmp_path / "b", settings().replace(rounds=1, local=local)).weights
    assert not torch.equal(plain["fc.bias"], other["fc.bias"])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"optimizer": "adm"}, "unknown optimizer"),
        ({"optimizer": "lbfgs"}, "unknown optimizer"),
        ({"optimizer": "adam(beta=1)"}, "'adam' has no setting 'beta'"),
        ({"optimizer": "adam", "momentum": 0.9}, "'adam' has no setting 'momentum'"),
        ({"optimizer": "sgd(lr=3)"}, "no setting 'lr'"),
        ({"optimizer": "sgd(momentum=0.5)", "momentum": 0.9}, "'momentum' is set twice"),
    ],
)
def test_an_optimizer_that_is_none_is_named(given, message):
    with pytest.raises(InputError, match=message):
        find_optimizer(Local(**given))


def test_scaffold_wants_plain_sgd(tmp_path):
    made = federation(tmp_path)
    local = Local(optimizer="adam", learning_rate=0.001)
    with pytest.raises(InfeasibleError, match="assume plain SGD"):
        run(made, tmp_path, settings("scaffold").replace(local=local))


def test_dropout_depends_on_the_clients_stream_alone(tmp_path):
    data = shapes(tmp_path / "set")
    samples, task = Samples.of(data, np.arange(12)), Task.of(data)
    weights, streams = [], []
    for seed in (1, 2):
        with seeded(seed):  # whatever the process drew before
            network = nn.Sequential(nn.Flatten(), nn.Dropout(), nn.Linear(64, 3))
            model = Wrapped(task, network)
            nn.init.zeros_(network[2].weight)
            nn.init.zeros_(network[2].bias)
            state = torch.get_rng_state()
            rng = child_rng(5, "train", 1, 0)
            fit(model, samples, Local(epochs=1, batch=4), rng)
            assert torch.equal(state, torch.get_rng_state())
        weights.append(network[2].weight.detach())
        streams.append(int(rng.integers(2**62)))
    assert torch.equal(*weights)
    plain = child_rng(5, "train", 1, 0)
    plain.permutation(12)
    assert streams == [int(plain.integers(2**62))] * 2  # the order of samples is what it was
