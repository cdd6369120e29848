"""Draw the pictures of a federation's own generator: its images, and what they do for training.

    python tools/private_pictures.py [--data docs/data/own-federated.csv] [--out docs/img]

`own-samples.png`: real Fashion-MNIST images and those of generators from 60,000 images on 20
clients, at several epsilons. `own-epsilon.svg`: accuracy against epsilon, from the record of
`benchmarks/private_federated.py`, with none, copies, noise and a central generator as lines. Needs
Fashion-MNIST in FEDEAS_DATA.
"""

import argparse
import math
import statistics
import sys
from pathlib import Path

import matplotlib

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from tables_study import read_record

from fedeas.data import federate, load_images
from fedeas.partition import make_partition
from fedeas_private.generator.make import make_private

EPSILONS = {"no noise": math.inf, "epsilon 10": 10.0, "epsilon 3": 3.0, "epsilon 1": 1.0}
EACH = 2  # images of a class
LINES = {"none": "#666666", "noise": "#c44e52", "copies": "#4c72b0", "central": "#55a868"}


def draw_samples(out: Path) -> None:
    """Draw real images, and below them those of every generator."""
    data = load_images("fashion_mnist")
    recipe = make_partition("flbench", clients=20, alpha=0.1, seed=0)
    sites = [np.asarray(own) for own in federate(data, recipe, "official", 0, 0).partition.train]
    labels = np.repeat(np.arange(10), EACH)
    rng = np.random.default_rng(0)
    places = [rng.choice(np.flatnonzero(data.train_labels == c)) for c in labels]
    rows = {"real": np.asarray(data.samples[places])}
    for name, epsilon in EPSILONS.items():
        made = make_private(data, sites, epsilon, delta=1e-5, seeded_noise=True)
        rows[name] = made.sample(labels, np.arange(len(labels)).astype(np.uint64))
    figure, axes = plt.subplots(len(rows), 1, figsize=(9, 0.55 * len(rows)))
    for axis, (name, images) in zip(axes, rows.items(), strict=True):
        axis.imshow(np.concatenate(list(images[..., 0]), axis=1), cmap="gray", vmin=0, vmax=255)
        axis.set_ylabel(name, rotation=0, ha="right", va="center", fontsize=9)
        axis.set_xticks([])
        axis.set_yticks([])
        axis.spines[:].set_visible(False)
    figure.tight_layout(pad=0.3)
    figure.savefig(out / "own-samples.png", dpi=130)


def draw_epsilons(record: Path, out: Path) -> None:
    """Draw accuracy against epsilon, a panel per data set, of ways that have all seeds."""
    found = {
        name: {
            way: [100 * a for a in scores.values()]
            for way, scores in ways.items()
            if scores.keys() == ways["none"].keys()
        }
        for name, ways in read_record(record, "accuracy").items()
    }
    figure, axes = plt.subplots(1, len(found), figsize=(3.3 * len(found), 3), squeeze=False)
    for axis, (name, ways) in zip(axes[0], found.items(), strict=True):
        own = [w for w in ("own-1", "own-3", "own-10", "own-inf") if w in ways]
        means = [statistics.mean(ways[w]) for w in own]
        errors = [statistics.stdev(ways[w]) / math.sqrt(len(ways[w])) for w in own]
        axis.errorbar(range(len(own)), means, errors, marker="o", color="#dd8452", label="private")
        for way, color in LINES.items():
            if way in ways:
                axis.axhline(statistics.mean(ways[way]), color=color, ls="--", lw=1.2, label=way)
        axis.set_xticks(range(len(own)), [w.removeprefix("own-").replace("inf", "∞") for w in own])
        axis.set_xlabel("epsilon")
        axis.set_title(name, fontsize=10)
        axis.spines[["top", "right"]].set_visible(False)
    axes[0][0].set_ylabel("accuracy, %")
    handles, names = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, names, loc="lower center", ncols=len(names), fontsize=8, frameon=False)
    figure.tight_layout(rect=(0, 0.07, 1, 1))
    figure.savefig(out / "own-epsilon.svg")


def main() -> None:
    """Draw both."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--data", type=Path, default=Path("docs/data/own-federated.csv"))
    parser.add_argument("--out", type=Path, default=Path("docs/img"))
    given = parser.parse_args()
    if given.data.exists():
        draw_epsilons(given.data, given.out)
    draw_samples(given.out)


if __name__ == "__main__":
    main()
