"""Which samples are shared out to clients, and which they are tested on.

With the split `official` clients share the official training set and are tested on the official
test set. `merged` is the paper's: both sets are shared out, and a part of every client is for
testing; a generator trained on the official training set has then seen most of the test images.
"""

from dataclasses import dataclass, fields, is_dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fedeas._internal.names import choice
from fedeas._internal.seeds import child_rng
from fedeas.counts.label_counts import LabelCounts
from fedeas.data.dataset import Dataset
from fedeas.errors import InputError
from fedeas.partition import NaturalId, Partition, Recipe

Ints = NDArray[np.int64]
SPLITS = ("official", "merged")


@dataclass(frozen=True, eq=False)
class Federation:
    """A partitioned data set: clients' training parts, test set, and samples held out of both."""

    data: Dataset
    partition: Partition
    split: str
    test: Ints  # indices of the samples that accuracy is measured on
    pool: Ints  # indices held out for the pool generator
    validation: bool = False  # whether the test samples are a part of the training set

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
        origin = "held out by the clients, training and test sets mixed"
        if self.split == "official":
            origin = self.data.test_origin or "a separate test set"
        if self.validation:
            origin = "a validation part of the training set"
        merged = ", training and test set merged" if self.split == "merged" else ""
        held = f", {len(self.pool):,} that no client has" if len(self.pool) else ""
        return (
            f"{self.data.name}{merged}: "
            f"N = {len(self.partition.train.indices):,} training samples on "
            f"{len(self.partition.train):,} clients{held}; "
            f"{len(self.test):,} test samples, {origin}"
        )


def federate(
    data: Dataset,
    recipe: Recipe,
    split: str = "official",
    pool_per_class: int = 0,
    seed: int = 42,
    validation: bool = False,
) -> Federation:
    """Partition a data set by a recipe.

    Parameters
    ----------
    data : Dataset
        The data set.
    recipe : Recipe
        Who gets what.
    split : str
        'official': clients share the training set; 'merged': also the test set, as in the paper.
    pool_per_class : int
        Samples of every class that are set aside first, for the generator `pool`.
    seed : int
        Decides which samples those are.
    validation : bool
        Take a fifth of each class of what clients would share for testing, and leave the official
        test set alone: settings are chosen so. With the same pool always the same fifth.
    """
    labels = np.asarray(data.labels)
    pool = pool_indices(data, pool_per_class, seed, split)
    shared = np.setdiff1d(np.arange(_shared_size(data, split)), pool, assume_unique=True)
    test = np.arange(data.train_size, len(labels))
    if validation:
        if split != "official":
            raise InputError("only the official split has a validation part", got=split)
        test = validation_indices(data, pool)
        shared = np.setdiff1d(shared, test, assume_unique=True)
    if split == "official":
        recipe = _without_test_part(recipe)
    if isinstance(recipe, NaturalId):
        parts = recipe.partition(labels[shared], _sites(data, recipe.column, shared))
    else:
        parts = recipe.partition(labels[shared])
    settings = {"split": split, "pool_per_class": pool_per_class, "validation": validation}
    partition = parts.within(shared, labels, settings)
    if split == "official":
        return Federation(data, partition, split, test, pool, validation)
    if partition.test is None:
        raise InputError(
            f"recipe {partition.recipe} gives clients no test part",
            fix='use flbench, or split = "official"',
        )
    return Federation(data, partition, split, np.sort(partition.test.indices), pool)


def _sites(data: Dataset, column: str, chosen: Ints) -> list[str]:
    """Return the sites that a column names for some samples."""
    if data.sites is None or data.sites.column != column:
        raise InputError(
            f"{data.name} was read without the sites of column {column!r}",
            got=None if data.sites is None else data.sites.column,
            fix=f'set site = "{column}" in [data]',
        )
    names = np.array(data.sites.names)
    sites: list[str] = names[np.asarray(data.sites.codes)[chosen]].tolist()
    return sites


def pool_indices(data: Dataset, per_class: int, seed: int, split: str = "official") -> Ints:
    """Choose `per_class` of every class at random, of the samples that are shared out."""
    labels = np.asarray(data.labels[: _shared_size(data, split)])
    if per_class == 0:
        return np.empty(0, np.int64)
    sizes = np.bincount(labels)
    smallest = int(sizes[sizes > 0].min())
    if not 0 <= per_class < smallest:
        raise InputError(
            "too many samples to hold out", got=per_class, allowed=f"0 to {smallest - 1}"
        )
    chosen = [
        child_rng(seed, "hold-out", c).permutation(np.flatnonzero(labels == c))[:per_class]
        for c in range(int(labels.max()) + 1)
    ]
    return np.sort(np.concatenate(chosen))


def validation_indices(data: Dataset, pool: Ints) -> Ints:
    """Choose a fifth of every class of the training samples that are not in the pool."""
    labels = np.asarray(data.labels[: data.train_size])
    shared = np.setdiff1d(np.arange(data.train_size), pool, assume_unique=True)
    chosen = []
    for c in np.unique(labels[shared]):
        of_class = child_rng(0, "validation", int(c)).permutation(shared[labels[shared] == c])
        chosen.append(of_class[: len(of_class) // 5])
    return np.sort(np.concatenate(chosen))


def _shared_size(data: Dataset, split: str) -> int:
    """Return how many of the samples, from the first on, are shared out."""
    choice(split, "split", SPLITS)
    return len(data.labels) if split == "merged" else data.train_size


def _without_test_part(recipe: Recipe) -> Recipe:
    """Let clients train on all they hold: the official test set is not theirs."""
    if is_dataclass(recipe) and any(f.name == "test_ratio" for f in fields(recipe)):
        changed: Recipe = replace(recipe, test_ratio=0.0)
        return changed
    return recipe
