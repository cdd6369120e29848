"""Small federations for tests: three shapes, six clients, seconds to train."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file

from fedeas import LabelCounts
from fedeas.data import open_dataset
from fedeas.partition import Partition
from fedeas.partition.partition import IndexLists, hash_labels
from fedeas.planning.policies import make_policy
from fedeas.train.flower.backends import InlineGrid
from fedeas.train.flower.client import make_client_app
from fedeas.train.flower.rounds import Trained, run_rounds
from fedeas.train.flower.simulated import Simulation
from fedeas.train.samples import Task
from fedeas.train.settings import Federated, Local, ModelSettings
from helpers import table_sets
from helpers.image_sets import CLASSES, draw_shapes, write_set
from helpers.noted_generators import Counting

ROUNDS, CLIENTS, TRAIN, TEST = 3, 6, 240, 60


@dataclass(frozen=True)
class Federation:
    simulation: Simulation
    task: Task
    clients: int


class Shapes(Counting):
    """Draws the shapes that it is asked for, at the size of the pictures."""

    fingerprint, classes = "shapes-1", CLASSES
    drawn = staticmethod(draw_shapes)

    def sample(self, labels, seeds):
        images, marks = self.drawn(300)
        chosen = [
            np.flatnonzero(marks == label)[int(seed) % 100]
            for label, seed in zip(labels, seeds, strict=True)
        ]
        super().sample(labels, seeds)
        return images[chosen]


class Rows(Shapes):
    """Draws rows of a table, with gaps and categories."""

    fingerprint, classes = "rows-1", table_sets.CLASSES
    drawn = staticmethod(table_sets.draw_rows)


class Animals(Shapes):
    """Says that it draws something else."""

    classes = ("cat", "dog", "bird")


class Painter(Shapes):
    """Another generator by its fingerprint."""

    fingerprint = "painter-1"


class Broken(Shapes):
    """Fails as a GPU does."""

    def sample(self, labels, seeds):
        raise RuntimeError("out of memory")


KINDS = ("image", "table")
GENERATORS = {
    "image": "helpers.small_federations:Shapes",
    "table": "helpers.small_federations:Rows",
}


def write_data(folder: Path, kind: str) -> Path:
    """Write pictures or rows as a data set in Parquet."""
    if kind == "table":
        return table_sets.write_rows(folder, TRAIN, TEST)
    return write_shapes(folder)


def write_shapes(folder: Path) -> Path:
    """Write the pictures as a data set in Parquet."""
    if not folder.exists():
        images, _ = draw_shapes(TRAIN + TEST)
        write_set(folder, list(images[:TRAIN]), list(images[TRAIN:]), CLASSES)
    return folder


def federation(
    folder: Path, recipe: str = "skewed", policy: str = "none", kind: str = "image"
) -> Federation:
    """Share samples out: every client one class and a little of the rest, or all alike."""
    folder.mkdir(parents=True, exist_ok=True)
    data = open_dataset("shapes", write_data(folder / "set", kind))
    labels = np.asarray(data.train_labels)
    by_class = [np.flatnonzero(labels == c) for c in range(3)]
    if recipe == "balanced":
        parts = [np.sort(np.concatenate([own[k::CLIENTS][:12] for own in by_class]))
                 for k in range(CLIENTS)]  # fmt: skip
    else:
        parts = [np.sort(np.concatenate([by_class[k % 3][k // 3 :: 2][: 34 - 3 * k],
                                         by_class[(k + 1) % 3][70 + k : 71 + k]]))
                 for k in range(CLIENTS)]  # fmt: skip
    labels = np.asarray(data.labels)
    partition = Partition(
        IndexLists.of(parts), hash_labels(labels), len(labels), 3, f"{recipe}@1", {}
    )
    partition.save(folder / "partition.npz")
    counts = partition.counts(data.labels)
    plan = make_policy(policy).plan(LabelCounts(counts.n, classes=data.classes))
    plan.save(folder / "plan.json")
    simulation = Simulation(
        data="shapes",
        data_folder=str(folder / "set"),
        partition=str(folder / "partition.npz"),
        plan=str(folder / "plan.json") if plan.total else None,
        generator=GENERATORS[kind],
        offered=(("log", str(folder / "drawn")),),
        cache=str(folder / "cache"),
        cache_seed=42,
        batch=16,
        folder=str(folder / "clients"),
        device="cpu",
    )
    return Federation(simulation, Task.of(data), CLIENTS)


def counts_of(folder: Path) -> LabelCounts:
    """The label counts of a federation that was made in a folder."""
    data = open_dataset("shapes", folder / "set")
    return Partition.load(folder / "partition.npz").counts(data.labels)


def settings(
    method: str = "fedavg", projection: int = 0, model: str = "cnn", **changed: object
) -> Federated:
    return Federated(
        rounds=ROUNDS,
        fraction=0.67,
        method=method,
        model=ModelSettings(model, projection=projection),
        local=Local(epochs=2, batch=8, learning_rate=0.05),
        **changed,
    )


def run(made: Federation, folder: Path, federated: Federated, grid: object = None) -> Trained:
    grid = grid or InlineGrid(make_client_app(made.simulation.opener()), made.clients)
    checkpoint, name = folder / f"{federated.method}.safetensors", federated.method
    return run_rounds(grid, federated, made.task, 42, checkpoint, name, lambda _: {})


def trained(
    folder: Path,
    method: str = "fedavg",
    projection: int = 0,
    recipe: str = "skewed",
    policy: str = "none",
) -> dict[str, torch.Tensor]:
    """Train a federation and return the weights."""
    made = federation(folder, recipe, policy)
    return run(made, folder, settings(method, projection)).weights


def train_on_ray(
    folder: Path,
    methods: list[tuple],
    rounds: int = ROUNDS,
    policy: str = "fedeas(beta=12)",
    kind: str = "image",
) -> None:
    """Train on Ray, in a process of its own, so that nothing of the inline server is left in it."""
    program = Path(__file__).with_name("train_on_ray.py")
    script = [sys.executable, "-W", "ignore", program, folder, str(rounds)]
    environment = {k: v for k, v in os.environ.items() if k != "OMP_NUM_THREADS"}
    environment["PYTHONPATH"] = os.pathsep.join(sys.path)  # with what a test has added
    environment["RAY_worker_niceness"] = "0"  # 15 by itself: other work would starve them
    done = subprocess.run(
        [*script, json.dumps(methods), policy, kind],
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def same_as_on_ray(folder: Path, inline: dict[str, dict[str, torch.Tensor]]) -> bool:
    """Tell whether every method's weights have the bits that Ray ended with."""
    for method, weights in inline.items():
        found = load_file(folder / "ray" / f"{method}.safetensors")
        if not all(torch.equal(w, found[f"weights.{k}"]) for k, w in weights.items()):
            return False
    return True
