"""`Partition`: disjoint lists of sample indices, one per client, and where they come from."""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import index
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedeas.counts import LabelCounts, names
from fedeas.errors import InputError
from fedeas.files import atomic_write
from fedeas.limits import LARGEST_LABEL, check_cells
from fedeas.partition.archive import FORMAT, read_archive

Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class IndexLists:
    """One list of indices per client, held as one array: a million clients cost two arrays.

    >>> lists = IndexLists.of([[4, 1], [], [0]])
    >>> len(lists), lists[0]
    (3, array([4, 1]))
    """

    indices: Ints
    offsets: Ints

    @classmethod
    def of(cls, lists: Sequence[ArrayLike]) -> "IndexLists":
        """Join lists of indices, one per client."""
        arrays = [np.asarray(item, dtype=np.int64) for item in lists]
        offsets = np.cumsum([0, *map(len, arrays)], dtype=np.int64)
        return cls(np.concatenate([*arrays, np.empty(0, np.int64)]), offsets)

    @property
    def sizes(self) -> Ints:
        """The number of indices of every client."""
        return np.diff(self.offsets)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, client: int) -> Ints:
        place = index(client)
        if not -len(self) <= place < len(self):
            raise IndexError(f"client {client} of {len(self)}")
        place %= len(self)  # as in a list, -1 is the last
        return self.indices[self.offsets[place] : self.offsets[place + 1]]

    def __iter__(self) -> Iterator[Ints]:
        return (self[k] for k in range(len(self)))


@dataclass(frozen=True, eq=False, repr=False)
class Partition:
    """Disjoint training indices per client, and test indices where a recipe has them.

    >>> from fedeas import IID
    >>> IID(clients=4).partition([0, 1] * 50)
    Partition(iid@1: 4 clients, 100 of 100 samples)
    """

    train: IndexLists
    labels_hash: str  # of the labels that were partitioned
    size: int  # samples of the data set
    classes: int
    recipe: str  # name@version
    settings: Mapping[str, Any]
    test: IndexLists | None = None
    clients: tuple[str, ...] | None = None  # their names, where they have any

    def __post_init__(self) -> None:
        parts = [self.train] if self.test is None else [self.train, self.test]
        if any(len(part) != len(self.train) or not _well_cut(part) for part in parts):
            raise InputError("index lists that do not fit together", allowed="one list per client")
        names(self.clients, len(self.train), "client")
        taken = np.concatenate([part.indices for part in parts])
        if taken.size and not (taken.min() >= 0 and taken.max() < self.size):
            raise InputError(
                "the partition has an index outside the data set", allowed=f"0 to {self.size - 1}"
            )
        taken.sort()
        if (twice := np.flatnonzero(taken[1:] == taken[:-1])).size:
            raise InputError("the partition has a sample twice", got=int(taken[twice[0]]))

    @classmethod
    def of(
        cls,
        lists: Sequence[ArrayLike],
        labels: Ints,
        recipe: "Recipe",
        test: Sequence[ArrayLike] | None = None,
        clients: tuple[str, ...] | None = None,
    ) -> "Partition":
        """Make the partition that a recipe found for these labels."""
        return cls(
            IndexLists.of(lists),
            hash_labels(labels),
            len(labels),
            int(labels.max()) + 1,
            f"{recipe.name}@{recipe.version}",
            dict(vars(recipe)),
            None if test is None else IndexLists.of(test),
            clients,
        )

    def within(self, chosen: Ints, labels: Ints, settings: Mapping[str, Any]) -> "Partition":
        """Return this partition of `labels[chosen]` as one of all `labels`, with more settings."""

        def lift(part: IndexLists) -> IndexLists:
            return IndexLists(chosen[part.indices], part.offsets)

        return Partition(
            lift(self.train),
            hash_labels(labels),
            len(labels),
            int(labels.max()) + 1,
            self.recipe,
            {**self.settings, **settings},
            None if self.test is None or not len(self.test.indices) else lift(self.test),
            self.clients,
        )

    def counts(self, labels: ArrayLike, *, test: bool = False) -> LabelCounts:
        """Count the labels of every client's training part, or of its test part."""
        y = check_labels(labels)
        if hash_labels(y) != self.labels_hash:
            raise InputError(
                "these are not the labels that were partitioned", fix="give the same data set"
            )
        part = self.test if test else self.train
        if part is None:
            raise InputError(f"recipe {self.recipe} has no test part")
        cells = len(part) * self.classes
        check_cells(cells, f"a table of {len(part):,} clients x {self.classes:,} classes")
        client = np.repeat(np.arange(len(part)), part.sizes)
        n = np.bincount(client * self.classes + y[part.indices], minlength=cells)
        return LabelCounts(n.reshape(-1, self.classes), self.clients)

    def save(self, path: Path | str) -> None:
        """Write the partition to a file ending in .npz."""
        path = Path(path)
        if path.suffix.lower() != ".npz":
            raise InputError("unknown kind of file", got=path.name, allowed=".npz")
        head = {
            "format": FORMAT,
            "labels_hash": self.labels_hash,
            "size": self.size,
            "classes": self.classes,
            "recipe": self.recipe,
            "settings": dict(self.settings),
        }
        if self.clients is not None:
            head["clients"] = list(self.clients)
        arrays = {"train": self.train.indices, "train_offsets": self.train.offsets}
        if self.test is not None:
            arrays |= {"test": self.test.indices, "test_offsets": self.test.offsets}
        with atomic_write(path) as temporary, temporary.open("wb") as file:
            head_bytes = np.frombuffer(json.dumps(head).encode(), np.uint8)
            np.savez_compressed(file, head=head_bytes, **arrays)  # type: ignore[arg-type]

    @classmethod
    def load(cls, path: Path | str) -> "Partition":
        """Read a partition that `save` wrote; nothing in it is ever unpickled."""
        path = Path(path)
        head, arrays = read_archive(path)
        try:
            test = None
            if "test" in arrays:
                test = IndexLists(arrays["test"], arrays["test_offsets"])
            if "clients" in head:
                head["clients"] = tuple(map(str, head["clients"]))
            return cls(IndexLists(arrays["train"], arrays["train_offsets"]), test=test, **head)
        except (TypeError, KeyError):
            raise InputError(f"{path} is a damaged partition", fix="make it again") from None
        except InputError as error:
            raise InputError(f"{path} is a damaged partition: {error}") from None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Partition) and self._parts() == other._parts()

    def __hash__(self) -> int:
        return hash((self.recipe, self.labels_hash))

    def _parts(self) -> tuple[object, ...]:
        lists = [self.train] if self.test is None else [self.train, self.test]
        arrays = [array.tobytes() for part in lists for array in (part.indices, part.offsets)]
        return (
            *arrays,
            self.labels_hash,
            self.size,
            self.classes,
            self.recipe,
            dict(self.settings),
            self.clients,
        )

    def __repr__(self) -> str:
        held = len(self.train.indices)
        test = "" if self.test is None else f" and {len(self.test.indices):,} for testing"
        return (
            f"Partition({self.recipe}: {len(self.train):,} clients, "
            f"{held:,} of {self.size:,} samples{test})"
        )


class Recipe(Protocol):
    """A named, versioned way of splitting labels into clients; its settings are its attributes."""

    name: ClassVar[str]
    version: ClassVar[int]

    def partition(self, labels: ArrayLike) -> Partition:
        """Split a data set, given the label of every sample."""
        ...


def check_labels(labels: ArrayLike) -> Ints:
    """Return labels as whole numbers 0 .. C-1, or refuse them."""
    y = np.asarray(labels)
    if y.ndim != 1 or y.size == 0 or y.dtype.kind not in "iu":
        raise InputError(
            f"labels of type {y.dtype} and shape {y.shape}", allowed="one whole number per sample"
        )
    low, high = int(y.min()), int(y.max())
    if low < 0 or high > LARGEST_LABEL:
        raise InputError(
            "a label out of range",
            got=low if low < 0 else high,
            allowed=f"0 to {LARGEST_LABEL:,}",
        )
    if high == 0:
        raise InputError("the labels have only one class", allowed="at least two classes")
    return y.astype(np.int64)


def hash_labels(labels: Ints) -> str:
    """Return the SHA-256 of labels."""
    return hashlib.sha256(np.ascontiguousarray(labels, dtype="<i8").data).hexdigest()


def _well_cut(part: IndexLists) -> bool:
    return bool(
        part.offsets.ndim == part.indices.ndim == 1
        and len(part.offsets) > 1
        and part.offsets[0] == 0
        and part.offsets[-1] == len(part.indices)
        and (np.diff(part.offsets) >= 0).all()
    )
