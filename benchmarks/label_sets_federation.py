"""A federation whose samples have several labels: what planning and generating label sets buys.

    python benchmarks/label_sets_federation.py [OUT.csv] [--seeds 5] [--quick] [--record OUT.csv]

A sample is two items of Fashion-MNIST (FEDEAS_DATA) side by side at half their size (14 x 28), with
the labels of both: ten labels, 55 label sets. Label sets are shared out to 20 clients by Dirichlet
distributions: with 0.1 clients have nearly every label, in other combinations; with 0.02 they lack
a quarter. A model with a sigmoid per label is trained by FedAvg on Flower's inline backend. In
every way each client takes the steps that it takes with FedEAS:

| none | real samples alone |
| copies | FedEAS' plan from label sets that the client has, filled with moved copies |
| private | FedEAS' plan, by a generator made of noisy sums over the clients (epsilon 10, seeded) |
| fresh | FedEAS' plan, by real images that no client has: what a perfect generator would give |

Everything is drawn anew for each seed: images, partition, weights, noise. The learning rate is the
best of 0.001 (15 rounds), 0.003 and 0.01 (20) for `none` on another seed (101), and no other way's
was searched for. Figures are means of the
last five rounds: the AUROC of a label averaged over labels, and that of the worst label. OUT.csv
has every run and is resumed, `--record` prints the table of one, and the last line is JSON.
"""

import argparse
import csv
import itertools
import json
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedeas.cache import Cache
from fedeas.cache.fill import fill
from fedeas.counts.label_sets import LabelSetCounts, name_label_sets
from fedeas.data import Dataset, Federation, federate, load_images
from fedeas.generators import Generator
from fedeas.generators.resampler import Copies
from fedeas.lab.results import Mean
from fedeas.partition import Dirichlet
from fedeas.planning.label_set_plan import plan_label_sets
from fedeas.planning.policies import FedEAS
from fedeas.private.generator.make import make_private
from fedeas.train.flower.backends import InlineGrid
from fedeas.train.flower.client import make_client_app
from fedeas.train.flower.rounds import run_rounds
from fedeas.train.flower.simulated import Simulation
from fedeas.train.loop import scores, steps_of, use_threads
from fedeas.train.models import make_model
from fedeas.train.samples import Samples, Task
from fedeas.train.settings import Federated, Local, ModelSettings

WAYS = ("none", "copies", "private", "fresh")
ALPHAS = (0.1, 0.02)
CLIENTS, EPSILON, LAST = 20, 10.0, 5
LOCAL = Local(epochs=1, batch=64, learning_rate=3e-3, optimizer="adam")
COLUMNS = ("alpha", "way", "seed", "generated", "auroc", "worst_auroc", "worst_label", "seconds")
Ints = NDArray[np.int64]


def side_by_side(items: Dataset, first: Ints, second: Ints) -> tuple[NDArray[np.uint8], Ints]:
    """Return images of two items each, and their labels as columns of 0 and 1."""
    columns = np.zeros((len(first), len(items.classes)), np.int64)
    for places in (first, second):
        columns[np.arange(len(first)), items.labels[places]] = 1
    images = np.concatenate([items.samples[first], items.samples[second]], axis=2)
    halved = images.reshape(len(images), 14, 2, 28, 2, 1).mean(axis=(2, 4))
    return np.rint(halved).astype(np.uint8), columns


def draw_pairs(items: Dataset, folder: Path, train: int, test: int, seed: int) -> Dataset:
    """Write a data set of pairs; those for testing are of Fashion-MNIST's test images."""
    rng = np.random.default_rng([seed, 0])
    chosen = rng.permutation(items.train_size)[: 2 * train]
    unseen = items.train_size + rng.permutation(len(items.labels) - items.train_size)[: 2 * test]
    places = np.concatenate([chosen, unseen]).reshape(-1, 2)
    images, columns = side_by_side(items, places[:, 0], places[:, 1])
    names = name_label_sets(columns, items.classes)
    classes, labels = np.unique(names, return_inverse=True)
    sets = tuple(map(str, classes))
    return Dataset.write(folder, "pairs", sets, (train, test), iter([(images, labels)]))


class Fresh:
    """Draws pairs of real images that are in no client's samples."""

    fingerprint = "fresh-pairs-1"

    def __init__(self, items: Dataset, classes: tuple[str, ...], used: int, seed: int) -> None:
        rest = np.random.default_rng([seed, 0]).permutation(items.train_size)[used:]
        self._items, self.classes = items, classes
        of_label = {name: rest[items.labels[rest] == c] for c, name in enumerate(items.classes)}
        pairs = ((name.split("|") * 2)[:2] for name in classes)
        self._pools = [[of_label[label] for label in pair] for pair in pairs]

    def sample(self, labels: Ints, seeds: NDArray[np.uint64]) -> NDArray[np.uint8]:
        """Draw one pair per label set and seed, in either order."""
        places = np.empty((len(labels), 2), np.int64)
        for row, label, seed in zip(places, labels.tolist(), seeds.tolist(), strict=True):
            rng = np.random.default_rng(seed)
            row[:] = rng.permutation([rng.choice(pool) for pool in self._pools[label]])
        return side_by_side(self._items, places[:, 0], places[:, 1])[0]


def train(
    way: str, federation: Federation, items: Dataset, folder: Path, rounds: int, seed: int
) -> dict[str, Any]:
    """Train one way on Flower, and return its line of the record."""
    start = time.monotonic()
    data = federation.data
    counts = LabelSetCounts.from_counts(federation.counts)
    planned = plan_label_sets(counts)
    steps = [steps_of(int(n), LOCAL) for n in counts.sizes + planned.per_client]
    generator: Generator | None = None
    if way == "copies":
        beta = planned.wanted.settings["beta"]
        planned, generator = plan_label_sets(counts, FedEAS(beta=beta), sets="client"), Copies()
    elif way == "private":
        parts = [np.asarray(part) for part in federation.partition.train]
        generator = make_private(data, parts, EPSILON, seed=seed, seeded_noise=True)
    elif way == "fresh":
        generator = Fresh(items, data.classes, 2 * data.train_size, seed)
    plan = None if generator is None else planned.for_classes(data.classes)
    if plan is not None and way != "copies":
        cache = Cache(folder / "cache", generator, data.classes, seed)
        fill(plan, generator, cache, 250, like=data.samples)
    simulation = Simulation(
        "pairs", None, "", None, way, (), str(folder / "cache"), seed, 250, str(folder / way),
        "cpu", steps=tuple(steps),
    )  # fmt: skip
    opener = simulation.opener_of(data, federation.partition, plan, generator)
    task, federated = Task.of(data), Federated(rounds=rounds, model=ModelSettings(), local=LOCAL)
    model, test = (
        make_model(federated.model, task, 0),
        Samples.of(data, federation.test),
    )
    calls = iter(range(rounds))

    def evaluate(weights: Any) -> dict[str, Any]:
        if next(calls) < rounds - LAST:
            return {}
        model.load_state_dict(weights)
        return scores(model, test)

    grid = InlineGrid(make_client_app(opener), CLIENTS)
    checkpoint = folder / f"{way}.safetensors"
    history = run_rounds(grid, federated, task, seed, checkpoint, way, evaluate).history
    lines = [line for line in history if "auroc" in line]
    by_label = np.array([line["per_label"] for line in lines], float).mean(axis=0)
    worst = int(np.nanargmin(by_label))
    return {
        "way": way, "seed": seed, "generated": 0 if plan is None else plan.total,
        "auroc": f"{np.nanmean(by_label):.5f}", "worst_auroc": f"{by_label[worst]:.5f}",
        "worst_label": data.label_sets.labels[worst],
        "seconds": f"{time.monotonic() - start:.0f}",
    }  # fmt: skip


def run_all(
    seeds: int, images: int, test: int, rounds: int, done: set[tuple[str, ...]]
) -> Iterator[dict[str, Any]]:
    """Train every way on every seed, unless that is done."""
    items = load_images("fashion_mnist")
    for alpha, seed in itertools.product(ALPHAS, range(1, seeds + 1)):
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary)
            data = draw_pairs(items, folder / "pairs", images, test, seed)
            federation = federate(data, Dirichlet(CLIENTS, alpha, seed, min_samples=10))
            for way in WAYS:
                if (str(alpha), way, str(seed)) not in done:
                    line = train(way, federation, items, folder, rounds, seed)
                    yield {"alpha": alpha, **line}


def read_lines(record: Path) -> list[dict[str, str]]:
    """Return the lines of a record."""
    with record.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def read_figures(record: Path, column: str) -> dict[tuple[str, str], list[float]]:
    """Return a column of a record by alpha and way, in the order of seeds."""
    figures: dict[tuple[str, str], list[float]] = {}
    for row in sorted(read_lines(record), key=lambda row: int(row["seed"])):
        figures.setdefault((row["alpha"], row["way"]), []).append(float(row[column]))
    return figures


def markdown(record: Path) -> str:
    """Return the table of a record: means, and gains over none seed by seed, in points."""
    lines = [
        "| Dirichlet | way | generated | mean AUROC | over none | worst label | over none |",
        "|---|---|---|---|---|---|---|",
    ]
    for (alpha, way), generated in read_figures(record, "generated").items():
        cells = [alpha, way, f"{np.mean(generated):,.0f}"]
        for column in ("auroc", "worst_auroc"):
            figures = read_figures(record, column)
            gains = np.subtract(figures[alpha, way], figures[alpha, "none"]).tolist()
            cells.append(Mean.of(figures[alpha, way]).points())
            cells.append("" if way == "none" else Mean.of(gains).points("+"))
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    """Train, write the record, and print its table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("out", type=Path, nargs="?", help="the record; default: a temporary file")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="one seed, few images and rounds")
    parser.add_argument("--record", type=Path, help="print the table of this record instead")
    given = parser.parse_args()
    if given.record:
        print(markdown(given.record))
        return
    use_threads(1)
    sizes = (1, 1000, 300, 5) if given.quick else (given.seeds, 4000, 2000, 20)
    with tempfile.TemporaryDirectory() as temporary:
        out = given.out or Path(temporary) / "record.csv"
        lines: list[dict[str, Any]] = [*read_lines(out)] if out.exists() else []
        done = {(line["alpha"], line["way"], line["seed"]) for line in lines}
        for line in run_all(*sizes, done):
            lines.append(line)
            print(json.dumps(line), flush=True)
            with out.open("w", newline="", encoding="utf-8") as file:
                writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
                writer.writeheader()
                writer.writerows(lines)
        print(markdown(out))
        means = {
            f"{way}, {alpha}": round(float(np.mean(figures)), 4)
            for (alpha, way), figures in read_figures(out, "auroc").items()
        }
    print(json.dumps(means))


if __name__ == "__main__":
    main()
