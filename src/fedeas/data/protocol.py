"""Who trains and who is tested on what: the paper's protocol, and a clean one.

`paper` merges the official training and test sets and keeps a part of every client for testing, as
the paper's numbers do; a generator trained on the official training set has then seen most of the
test images. `clean` partitions the official training set only and tests on the official test set.
"""

from dataclasses import dataclass, fields, is_dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fedeas.counts import LabelCounts
from fedeas.data.dataset import Dataset
from fedeas.errors import InputError
from fedeas.partition import Partition, Recipe, SiteColumn
from fedeas.seeds import child_rng

Ints = NDArray[np.int64]
PROTOCOLS = ("paper", "clean")


@dataclass(frozen=True, eq=False)
class Federation:
    """A partitioned data set: clients' training parts, test set, and samples held out of both."""

    data: Dataset
    partition: Partition
    protocol: str
    test: Ints  # indices of the samples that accuracy is measured on
    pool: Ints  # indices held out for the pool generator

    @property
    def counts(self) -> LabelCounts:
        """The label counts of the clients' training parts."""
        counts = self.partition.counts(self.data.labels)
        # A partition knows labels alone: classes after the last that has a sample are missing.
        lacking = len(self.data.classes) - counts.n.shape[1]
        n = np.pad(counts.n, ((0, 0), (0, max(0, lacking))))
        return LabelCounts(n, counts.clients, self.data.classes)

    def describe(self) -> str:
        """Return a line with N and where the test set comes from."""
        origin = {
            "paper": "held out by the clients, training and test sets mixed",
            "clean": self.data.test_origin or "a separate test set",
        }[self.protocol]
        held = f", {len(self.pool):,} that no client has" if len(self.pool) else ""
        return (
            f"{self.data.name}, protocol {self.protocol}: "
            f"N = {len(self.partition.train.indices):,} training samples on "
            f"{len(self.partition.train):,} clients{held}; "
            f"{len(self.test):,} test samples, {origin}"
        )


def federate(
    data: Dataset, recipe: Recipe, protocol: str = "clean", hold_out: int = 0, seed: int = 42
) -> Federation:
    """Partition a data set by a recipe under a protocol.

    `hold_out` samples of every class are set aside first, for the `pool` generator.
    """
    labels = np.asarray(data.labels)
    pool = held_out(data, hold_out, seed, protocol)
    shared = np.setdiff1d(np.arange(_shared_size(data, protocol)), pool, assume_unique=True)
    if protocol == "clean":
        recipe = _without_test_part(recipe)
    if isinstance(recipe, SiteColumn):
        made = recipe.partition(labels[shared], _sites(data, recipe.column, shared))
    else:
        made = recipe.partition(labels[shared])
    partition = made.within(shared, labels, {"protocol": protocol, "hold_out": hold_out})
    if protocol == "clean":
        return Federation(data, partition, protocol, np.arange(data.train_size, len(labels)), pool)
    if partition.test is None:
        raise InputError(
            f"recipe {partition.recipe} gives clients no test part",
            fix="use flbench, or the protocol clean",
        )
    return Federation(data, partition, protocol, np.sort(partition.test.indices), pool)


def _sites(data: Dataset, column: str, chosen: Ints) -> list[str]:
    """Return the sites that a column names for some samples."""
    if data.sites is None or data.sites.column != column:
        raise InputError(
            f"{data.name} was read without the sites of column {column!r}",
            got=None if data.sites is None else data.sites.column,
            fix=f'set site = "{column}" in [data]',
        )
    names = np.array(data.sites.names)
    found: list[str] = names[np.asarray(data.sites.codes)[chosen]].tolist()
    return found


def held_out(data: Dataset, each: int, seed: int, protocol: str) -> Ints:
    """Choose `each` of every class at random, of the samples that a protocol partitions."""
    labels = np.asarray(data.labels[: _shared_size(data, protocol)])
    if each == 0:
        return np.empty(0, np.int64)
    sizes = np.bincount(labels)
    smallest = int(sizes[sizes > 0].min())
    if not 0 <= each < smallest:
        raise InputError("too many samples to hold out", got=each, allowed=f"0 to {smallest - 1}")
    chosen = [
        child_rng(seed, "hold-out", c).permutation(np.flatnonzero(labels == c))[:each]
        for c in range(int(labels.max()) + 1)
    ]
    return np.sort(np.concatenate(chosen))


def _shared_size(data: Dataset, protocol: str) -> int:
    """Return how many of the samples, from the first on, a protocol partitions."""
    if protocol not in PROTOCOLS:
        raise InputError("unknown protocol", got=protocol, allowed=" or ".join(PROTOCOLS))
    return len(data.labels) if protocol == "paper" else data.train_size


def _without_test_part(recipe: Recipe) -> Recipe:
    """Let clients train on all they hold: `clean` does not test on clients' samples."""
    if is_dataclass(recipe) and any(f.name == "test_ratio" for f in fields(recipe)):
        changed: Recipe = replace(recipe, test_ratio=0.0)
        return changed
    return recipe
