"""What a package adds from outside: one of each, found by its entry point or dotted path."""

import traceback
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from fedeas import InputError, LabelCounts, make_generator, make_policy
from fedeas._internal.seeds import child_rng
from fedeas.data import Column, Dataset, Schema
from fedeas.train.loop import accuracy, fit
from fedeas.train.methods import METHODS, Method, make_method
from fedeas.train.models import make_model
from fedeas.train.samples import Samples, Task
from fedeas.train.settings import Local, ModelSettings

PACKAGE = '''
from dataclasses import dataclass

import numpy as np
import torch
from fedeas import LocalPolicy, Method
from fedeas.train.samples import Task


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

    def server_update(self, state, done):
        return {k: (done.server_weights[k] + v) / 2 for k, v in done.mean.items()}, state


def linear(task: Task) -> torch.nn.Module:
    """A single layer."""
    layer = torch.nn.Linear(task.width, task.classes)
    return torch.nn.Sequential(torch.nn.Flatten(), layer)
'''
ENTRY_POINTS = """
[fedeas.policies]
twice = more_of_all:Twice
[fedeas.generators]
grey = more_of_all:Grey
[fedeas.methods]
lazy = more_of_all:Lazy
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
    return tmp_path


def test_a_policy_a_generator_and_a_method(package):
    counts = LabelCounts([[3, 0], [1, 5]])
    assert make_policy("twice(times=2)").plan(counts).samples.tolist() == [[6, 0], [2, 10]]
    assert make_generator("grey").sample(np.zeros(2, int), np.zeros(2, int)).shape == (2, 8, 8, 1)
    assert make_method("lazy").name == "lazy"


@dataclass(frozen=True)
class Buggy(Method):
    """Has a bug in its constructor."""

    def __post_init__(self):
        len(3)


def test_a_bug_in_a_plug_ins_constructor_keeps_its_traceback(monkeypatch):
    monkeypatch.setitem(METHODS.fixed, "buggy", Buggy)
    with pytest.raises(InputError, match=r"has no len\(\) \(test_extending.py, line") as refused:
        make_method("buggy")
    cause = refused.value.__cause__
    assert isinstance(cause, TypeError)
    assert "len(3)" in "".join(traceback.format_exception(cause))


def test_a_model(package, tmp_path):
    """Rows of two classes are told apart: high ones and low ones."""
    rng = np.random.default_rng(0)
    labels = np.arange(200) % 2
    rows = (rng.normal(0, 0.1, (200, 40)) + labels[:, None] * 0.3).astype(np.float32)
    batches = iter([(rows, labels)])
    schema = Schema(tuple(Column(f"x{i}") for i in range(40)))
    data = Dataset.write(
        tmp_path / "set", "s", ("low", "high"), (150, 50), batches, kind="table", schema=schema
    )
    train, test = (Samples.of(data, np.arange(*r)) for r in ((0, 150), (150, 200)))
    model = make_model(ModelSettings("more_of_all:linear"), Task.of(data), 1)
    fit(model, train, Local(epochs=5, batch=10, learning_rate=0.05), child_rng(1, "fit"))
    assert accuracy(model, test)[0] == 1.0
