"""What it costs to promise privacy to a person instead of to an image.

    python benchmarks/person_unit.py [--people K ...] [--per-group M ...] [--epsilon E ...]
        [--images N] [--seeds S] [--out FILE] [--quick]

Gives Fashion-MNIST's training images to people with K images each (1, 5, 20), all of a person at
one of 20 clients (Dirichlet 0.1) and of one class, as most patients have one diagnosis; makes a
private generator whose unit is a person, with up to M of their images in a sum; trains a CNN on
its samples alone; and tests it on the real test images. A person with one image is an image. Noise
is drawn from a seed, so that figures can be had again; delta is 1e-5. Prints CSV, a line per
generator with the accuracy in percent; `--quick` only shows that it works.
"""

import argparse
import itertools
import sys

import numpy as np
from numpy.typing import NDArray
from private_generator import DELTA, accuracy, share

from fedeas._internal.seeds import child_rng
from fedeas.data import Dataset, load_images
from fedeas.private.generator.make import make_private
from fedeas.private.groups import PER_GROUP, Groups

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
    """Measure, and print or write a line per generator."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--people", type=int, nargs="+", default=[1, 5, 20], metavar="K")
    parser.add_argument("--per-group", type=int, nargs="+", default=[1, PER_GROUP], metavar="M")
    parser.add_argument("--epsilon", type=float, nargs="+", default=[1.0, 10.0], metavar="E")
    parser.add_argument("--images", type=int, default=12_000, metavar="N")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=argparse.FileType("w"), default=sys.stdout)
    parser.add_argument("--quick", action="store_true")
    chosen = parser.parse_args()
    each, tests = 400, 10_000
    if chosen.quick:
        chosen.people, chosen.per_group, chosen.epsilon = [1, 20], [PER_GROUP], [10.0]
        chosen.images, chosen.seeds, each, tests = 2000, 1, 50, 1000
    data = load_images("fashion_mnist")
    tested = np.arange(data.train_size, data.train_size + tests)
    print("epsilon,images a person,in a sum,people,seed,accuracy", file=chosen.out, flush=True)
    for seed, k in itertools.product(range(chosen.seeds), chosen.people):
        sites, _ = share(data, chosen.images, seed)
        people = people_of(data, sites, k)
        key = child_rng(seed, "key of groups").bytes(32)
        taken = sorted({min(k, most) for most in chosen.per_group})
        for most, epsilon in itertools.product(taken, chosen.epsilon):
            made = make_private(
                data, sites, epsilon, DELTA, seed=seed, seeded_noise=True,
                groups=Groups.of(people, key, most),
            )  # fmt: skip
            right = accuracy(data, made, each, 3, seed, tested)
            line = f"{epsilon:g},{k},{most},{people.max() + 1},{seed},{right:.2f}"
            print(line, file=chosen.out, flush=True)


if __name__ == "__main__":
    main()
