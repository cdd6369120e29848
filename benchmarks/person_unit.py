"""What it costs to promise privacy to a person instead of to an image.

    python benchmarks/person_unit.py [--people K ...] [--per-group M ...] [--epsilon E] [--seeds S]
        [--quick]

Gives the Fashion-MNIST training images to people with K images each (1, 5, 20), all of a person at
one of 20 clients (Dirichlet 0.1) and of one class, as most patients have one diagnosis; makes a
private generator whose unit is a person, with up to M of their images in a sum; trains a CNN on
its samples alone; and tests it on the real test images. `image` is the same with an image as the
unit. Noise is drawn from a seed, so that figures can be had again; delta is 1e-5. `--quick` only
shows that it works. The last line is JSON: the accuracies in percent, one per seed.
"""

import argparse
import json

import numpy as np
from numpy.typing import NDArray
from private_generator import DELTA, accuracy, share

from fedeas._util.seeds import child_rng
from fedeas.data import Dataset, load_images
from fedeas_private.generator.make import make_private
from fedeas_private.groups import PER_GROUP, Groups

Ints = NDArray[np.int64]


def people_of(data: Dataset, sites: list[Ints], images: int) -> Ints:
    """Return whose every image is: people have so many of one class, all of them at one client."""
    people, number = np.full(len(data.labels), -1, np.int64), 0
    for site in sites:
        for label in range(len(data.classes)):
            own = site[np.asarray(data.labels[site]) == label]
            people[own] = number + np.arange(len(own)) // images
            number += -(-len(own) // images)
    return people


def main() -> None:
    """Measure, and print a line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--people", type=int, nargs="+", default=[1, 5, 20], metavar="K")
    parser.add_argument("--per-group", type=int, nargs="+", default=[1, PER_GROUP], metavar="M")
    parser.add_argument("--epsilon", type=float, default=10.0)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--quick", action="store_true")
    chosen = parser.parse_args()
    data = load_images("fashion_mnist")
    images, each, seeds = (6000, 100, 1) if chosen.quick else (60_000, 4000, chosen.seeds)
    tested = np.arange(data.train_size, len(data.labels))
    found: dict[str, list[float]] = {}
    for seed in range(seeds):
        sites, _ = share(data, images, seed)
        key = child_rng(seed, "key of groups").bytes(32)
        units: dict[str, Groups | None] = {"image": None}
        for k in chosen.people:
            people = people_of(data, sites, k)
            for most in sorted({min(k, m) for m in chosen.per_group}):
                units[f"person of {k}, {most} in a sum"] = Groups.of(people, key, most)
        for name, groups in units.items():
            made = make_private(
                data, sites, chosen.epsilon, DELTA, seed=seed, seeded_noise=True, groups=groups
            )
            right = round(accuracy(data, made, each, 3, seed, tested), 2)
            found.setdefault(name, []).append(right)
            print(f"seed {seed}, {name}: {right} %", flush=True)
    print(json.dumps({"images": images, "epsilon": chosen.epsilon, "accuracy": found}))


if __name__ == "__main__":
    main()
