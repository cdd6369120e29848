"""Draw `own-samples.png`: real Fashion-MNIST images and those of private generators.

    python tools/private_pictures.py [--out docs/img]

The generators are made from 60,000 images on 20 clients, at several epsilons. Needs Fashion-MNIST
in FEDEAS_DATA.
"""

import argparse
import math
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

from fedeas.data import federate, load_images
from fedeas.partition import make_partition
from fedeas.private.generator.make import make_private

EPSILONS = {"no noise": math.inf, "epsilon 10": 10.0, "epsilon 3": 3.0, "epsilon 1": 1.0}
EACH = 2  # images of a class


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


def main() -> None:
    """Draw it."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--out", type=Path, default=Path("docs/img"))
    draw_samples(parser.parse_args().out)


if __name__ == "__main__":
    main()
