"""`Partition`: disjoint lists of sample indices, one per client, and where they come from.

Its file is a zip archive of arrays. A few megabytes of an archive can unpack to many gigabytes, so
an array is unpacked only if its header says that it is no larger than the data set can need.
"""

import hashlib
import json
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version as package_version
from pathlib import Path
from typing import IO, Any, ClassVar, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedeas._internal.files import (
    LARGEST_LABEL,
    atomic_write,
    check_cells,
    check_regular,
    unreadable,
)
from fedeas._internal.names import ending
from fedeas.counts.label_counts import LabelCounts, names
from fedeas.errors import InputError, MissingExtraError

Ints = NDArray[np.int64]
_FORMAT = "partition/1"
_LARGEST_HEAD = 1 << 24  # bytes; names of clients are in it
_FEW_CLIENTS = 10**6  # this many are allowed however few the samples are
_INDEX = "__fedeas_index__"
# What reading a damaged or hostile archive can end in.
_DAMAGED = (
    *(KeyError, TypeError, ValueError, AttributeError, NotImplementedError, RecursionError),
    *(EOFError, RuntimeError, zipfile.BadZipFile, zlib.error),
)


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
        k = range(len(self))[client]  # as in a list, -1 is the last
        return self.indices[self.offsets[k] : self.offsets[k + 1]]

    def __iter__(self) -> Iterator[Ints]:
        return (self[k] for k in range(len(self)))

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, IndexLists)
            and np.array_equal(self.offsets, other.offsets)
            and np.array_equal(self.indices, other.indices)
        )

    def __hash__(self) -> int:
        return hash(self.offsets.tobytes())


@dataclass(frozen=True, repr=False)
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

    @classmethod
    def from_flwr(cls, partitioner: Any, dataset: Any, label: str = "label") -> "Partition":
        """Split a Hugging Face data set with a fresh flwr-datasets partitioner.

        The partitioner's class and version become the recipe's name. For label counts, call
        `counts(dataset[label])` on the result.

        Parameters
        ----------
        partitioner : flwr_datasets.partitioner.Partitioner
            One that has no data set yet.
        dataset : datasets.Dataset
            The data set to split.
        label : str
            The column of the label.
        """
        Dataset, Partitioner = _flwr_classes()
        if not isinstance(partitioner, Partitioner) or not isinstance(dataset, Dataset):
            raise InputError(
                "not a partitioner and a data set",
                got=(type(partitioner).__name__, type(dataset).__name__),
                allowed="a flwr_datasets Partitioner and a datasets.Dataset",
            )
        if partitioner.is_dataset_assigned():
            raise InputError(
                "the partitioner has a data set already", fix="give a fresh partitioner"
            )
        labels = _column_labels(dataset, label)
        partitioner.dataset = dataset.add_column(_INDEX, np.arange(len(dataset)))
        parts = map(partitioner.load_partition, range(partitioner.num_partitions))
        return cls(
            IndexLists.of([np.asarray(part[_INDEX]) for part in parts]),
            hash_labels(labels),
            len(labels),
            int(labels.max()) + 1,
            f"flwr-datasets/{type(partitioner).__name__}@{package_version('flwr-datasets')}",
            {},
        )

    def to_flwr(self, label: str = "label", *, test: bool = False) -> Any:
        """Return a flwr-datasets partitioner that splits a data set as this partition does.

        Give it to a `FederatedDataset` with `shuffle=False`, or set its `dataset`: a data set with
        other labels, or in another order, is refused when a client's part is loaded.

        Parameters
        ----------
        label : str
            The column of the labels, by which the data set is recognised.
        test : bool
            Whether clients get their test parts instead of their training parts.
        """
        _, Partitioner = _flwr_classes()
        lists, labels_hash = self._part(test), self.labels_hash

        class FixedPartitioner(Partitioner):  # type: ignore[misc, valid-type]
            """Gives clients the samples that a `Partition` lists."""

            _checked = False

            @property
            def num_partitions(self) -> int:
                """The number of clients."""
                return len(lists)

            def load_partition(self, partition_id: int) -> Any:
                """Return the samples of a client."""
                if not self._checked:
                    if hash_labels(_column_labels(self.dataset, label)) != labels_hash:
                        raise InputError(
                            "not the data set that was partitioned, or in another order",
                            fix="use FederatedDataset(..., shuffle=False)",
                        )
                    self._checked = True
                return self.dataset.select(lists[partition_id])

        return FixedPartitioner()

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
        train, test = self.train, self.test
        if test is not None:
            has_any = len(test.indices) > 0
            test = IndexLists(chosen[test.indices], test.offsets) if has_any else None
        return replace(
            self,
            train=IndexLists(chosen[train.indices], train.offsets),
            labels_hash=hash_labels(labels),
            size=len(labels),
            classes=int(labels.max()) + 1,
            settings={**self.settings, **settings},
            test=test,
        )

    def _part(self, test: bool) -> IndexLists:
        part = self.test if test else self.train
        if part is None:
            raise InputError(f"recipe {self.recipe} has no test part")
        return part

    def counts(self, labels: ArrayLike, *, test: bool = False) -> LabelCounts:
        """Count the labels of every client's training part, or of its test part."""
        y = check_labels(labels)
        if hash_labels(y) != self.labels_hash:
            raise InputError(
                "these are not the labels that were partitioned", fix="give the same data set"
            )
        part = self._part(test)
        cells = len(part) * self.classes
        check_cells(cells, f"a table of {len(part):,} clients x {self.classes:,} classes")
        client = np.repeat(np.arange(len(part)), part.sizes)
        n = np.bincount(client * self.classes + y[part.indices], minlength=cells)
        return LabelCounts(n.reshape(-1, self.classes), self.clients)

    def save(self, path: Path | str) -> None:
        """Write the partition to a file ending in .npz."""
        path = ending(Path(path), ".npz")
        head = {
            "format": _FORMAT,
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
        check_regular(path)
        try:
            with zipfile.ZipFile(path) as archive:
                # No member unpacks to more than its entry says.
                check_cells(sum(entry.file_size for entry in archive.infolist()) // 8, str(path))
                return cls(**_read_archive(archive))
        except InputError as error:
            raise InputError(f"cannot read the partition {path}: {error}") from None
        except _DAMAGED:
            raise InputError(
                f"{path} is not a partition", allowed="a file that `fedeas partition --out` wrote"
            ) from None
        except OSError as error:
            raise unreadable(path, error) from None

    def __hash__(self) -> int:
        return hash((self.recipe, self.labels_hash))

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


def check_labels(labels: ArrayLike, *, one_class: bool = False) -> Ints:
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
    if high == 0 and not one_class:
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


def _read_archive(archive: zipfile.ZipFile) -> dict[str, Any]:
    """Return the fields of a partition, checked as far as memory is concerned."""
    fields: dict[str, Any] = json.loads(bytes(_read_array(archive, "head", _LARGEST_HEAD)))
    texts = fields["labels_hash"], fields["recipe"]
    well_formed = (
        fields.pop("format") == _FORMAT
        and all(type(fields[key]) is int and 0 < fields[key] < 2**53 for key in ("size", "classes"))
        and all(isinstance(x, str) and x.isprintable() for x in texts)
        and isinstance(fields["settings"], dict)
    )
    if not well_formed:
        raise ValueError("another head")
    if "clients" in fields:
        fields["clients"] = tuple(map(str, fields["clients"]))
    most = fields["size"]
    parts = [part for part in ("train", "test") if f"{part}.npy" in archive.namelist()]
    arrays = [name for part in parts for name in (part, f"{part}_offsets")]
    check_cells(sum(_length(archive, name) for name in arrays), "its lists of samples together")
    for part in ("train", "test"):
        if part == "train" or part in parts:
            indices = _read_array(archive, part, most)
            offsets = _read_array(archive, f"{part}_offsets", max(most, _FEW_CLIENTS) + 1)
            fields[part] = IndexLists(indices.astype(np.int64), offsets.astype(np.int64))
    return fields


def _length(archive: zipfile.ZipFile, name: str) -> int:
    """Return how many numbers the header of a list announces."""
    with archive.open(f"{name}.npy") as file:
        return _read_header(file)[0]


def _read_header(file: IO[bytes]) -> tuple[int, np.dtype[Any]]:
    """Read the header of a list of whole numbers: how many, and of which type."""
    if np.lib.format.read_magic(file) != (1, 0):
        raise ValueError("an array that `save` does not write")
    shape, _, dtype = np.lib.format.read_array_header_1_0(file)
    if dtype.kind not in "iu" or len(shape) != 1:
        raise ValueError("not a list of whole numbers")
    return int(shape[0]), dtype


def _read_array(archive: zipfile.ZipFile, name: str, most: int) -> NDArray[np.integer[Any]]:
    """Read a list of at most `most` whole numbers; its header is read first."""
    with archive.open(f"{name}.npy") as file:
        length, dtype = _read_header(file)
        if length > most:
            raise InputError(f"{length:,} numbers in {name!r}", allowed=f"at most {most:,}")
        check_cells(length, name)
        return np.frombuffer(file.read(length * dtype.itemsize), dtype)


def _column_labels(dataset: Any, label: str) -> Ints:
    if label not in dataset.column_names:
        raise InputError("no such column", got=label, allowed=", ".join(dataset.column_names))
    return check_labels(np.asarray(dataset[label]))


def _flwr_classes() -> tuple[Any, Any]:
    try:
        from datasets import Dataset
        from flwr_datasets.partitioner import Partitioner
    except ModuleNotFoundError:
        raise MissingExtraError("a flwr-datasets partitioner", "flower") from None
    return Dataset, Partitioner
