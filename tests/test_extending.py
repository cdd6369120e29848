"""What a package adds from outside: one of each, found by its entry point."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from fedeas import Dirichlet, LabelCounts, make_generator, make_policy
from fedeas.data import Dataset
from fedeas.data.kinds import KINDS, find_kind
from fedeas.methods.registry import make_method
from fedeas.seeds import child_rng
from fedeas.settings.training import Local, ModelSettings
from fedeas.training.loop import accuracy, fit
from fedeas.training.models import make_model
from fedeas.training.samples import Samples
from fedeas.training.task import Task
from paths import python_path

PACKAGE = '''
import math
from dataclasses import dataclass

import numpy as np
import torch
import typer

from fedeas import LocalPolicy, Method, Task
from fedeas.data.kinds import Kind


@dataclass(frozen=True)
class Twice(LocalPolicy):
    """As many synthetic samples as there are real ones."""

    times: int = 1

    def fill(self, n):
        return n * self.times


class Grey:
    """Draws grey."""

    fingerprint = "grey-1"

    def sample(self, labels, seeds):
        return np.full((len(labels), 8, 8, 1), 128, np.uint8)


@dataclass(frozen=True)
class Lazy(Method):
    """Moves half of the way."""

    def update(self, state, done):
        return {k: (done.before[k] + v) / 2 for k, v in done.mean.items()}, state


def linear(task: Task) -> torch.nn.Module:
    """A single layer."""
    layer = torch.nn.Linear(math.prod(task.shape), task.classes)
    return torch.nn.Sequential(torch.nn.Flatten(), layer)


class Sound(Kind):
    """Moments of several channels."""

    name, model, limits = "sound", "mlp", (-1.0, 1.0)

    def check(self, shape, dtype):
        assert len(shape) == 2 and dtype == np.float32

    def statistics(self, samples):
        return (0.0,) * samples.shape[2], (0.5,) * samples.shape[2]


def hello(name: str = typer.Argument("you")) -> None:
    """Greet somebody."""
    typer.echo(f"hello {name}")
'''
ENTRY_POINTS = """
[fedeas.policies]
twice = more_of_all:Twice
[fedeas.generators]
grey = more_of_all:Grey
[fedeas.methods]
lazy = more_of_all:Lazy
[fedeas.models]
linear = more_of_all:linear
[fedeas.kinds]
sound = more_of_all:Sound
[fedeas.commands]
hello = more_of_all:hello
"""


@pytest.fixture
def package(tmp_path, monkeypatch) -> Path:
    """An installed package that fedeas has never heard of."""
    (tmp_path / "more_of_all.py").write_text(PACKAGE)
    about = tmp_path / "more_of_all-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: more-of-all\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(ENTRY_POINTS)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    KINDS.pop("sound", None)


def test_a_policy_a_generator_and_a_method(package):
    counts = LabelCounts([[3, 0], [1, 5]])
    assert make_policy("twice(times=2)").plan(counts).samples.tolist() == [[6, 0], [2, 10]]
    assert make_generator("grey").sample(np.zeros(2, int), np.zeros(2, int)).shape == (2, 8, 8, 1)
    assert make_method("lazy").name == "lazy"


def test_a_kind_of_data_and_a_model(package, tmp_path):
    """Sounds of two classes are told apart: high ones and low ones."""
    rng = np.random.default_rng(0)
    labels = np.arange(200) % 2
    sounds = rng.normal(0, 0.1, (200, 20, 2)).astype(np.float32) + labels[:, None, None] * 0.3
    batches = iter([(sounds.astype(np.float32), labels)])
    data = Dataset.write(tmp_path / "set", "s", ("low", "high"), (150, 50), batches, kind="sound")
    assert Dirichlet(clients=2, alpha=1.0).partition(data.train_labels)
    task = Task.of(data)
    assert (task.kind, find_kind("sound").model) == ("sound", "mlp")
    train, test = (Samples.of(data, np.arange(*r)) for r in ((0, 150), (150, 200)))
    for name in ("", "linear"):  # the kind's own model, and the package's
        model = make_model(ModelSettings(name), task, 1)
        fit(model, train, Local(epochs=5, batch=10, learning_rate=0.05), child_rng(1, "fit"))
        assert accuracy(model, test)[0] == 1.0


def test_a_command(package):
    done = subprocess.run(
        [sys.executable, "-m", "fedeas", "hello", "world"],
        env={"PYTHONPATH": python_path(package), "PATH": "/usr/bin:/bin"},
        capture_output=True, text=True,
    )  # fmt: skip
    assert (done.stdout, done.returncode) == ("hello world\n", 0), done.stderr
