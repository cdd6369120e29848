"""`Samples`: what a client trains on, as indices into arrays; `Task`: what a model is made for.

Does not import torch: in a deployment every message starts a new process.
"""

import math
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedeas.data import Dataset, Schema
from fedeas.data.kinds import Array, find_kind
from fedeas.errors import InputError

Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Samples:
    """Real samples at `indices` of a data set, and synthetic ones after them."""

    data: Dataset
    indices: Ints
    synthetic: Array
    synthetic_labels: Ints

    @classmethod
    def of(
        cls,
        data: Dataset,
        indices: Ints,
        synthetic: Array | None = None,
        synthetic_labels: Ints | None = None,
    ) -> "Samples":
        """Put real and synthetic samples together."""
        if synthetic is None or synthetic_labels is None or not len(synthetic_labels):
            synthetic = np.empty((0, *data.samples.shape[1:]), data.samples.dtype)
            synthetic_labels = np.empty(0, np.int64)
        real = data.samples
        if (synthetic.shape[1:], synthetic.dtype) != (real.shape[1:], real.dtype):
            raise InputError(
                "synthetic samples differ from the data in shape or dtype",
                got=f"{synthetic.shape[1:]} of {synthetic.dtype}",
                allowed=f"{real.shape[1:]} of {real.dtype}",
            )
        if data.schema is not None:
            data.schema.check(synthetic)
        return cls(data, indices, synthetic, synthetic_labels)

    def __len__(self) -> int:
        return len(self.indices) + len(self.synthetic_labels)

    @property
    def real(self) -> "Samples":
        """The real samples alone."""
        return Samples.of(self.data, self.indices)

    @property
    def schema(self) -> Schema | None:
        """What the columns of a table hold; None for images."""
        return self.data.schema

    @property
    def labels(self) -> Ints:
        """The labels of all samples, real ones first."""
        return np.concatenate([np.asarray(self.data.labels)[self.indices], self.synthetic_labels])

    def counts(self) -> Ints:
        """Return how many samples of every class there are."""
        return np.bincount(self.labels, minlength=len(self.data.classes))

    def take(self, positions: Ints) -> tuple[Array, Ints]:
        """Copy the samples and labels at these positions."""
        source = self.data.samples
        samples: Array = np.empty((len(positions), *source.shape[1:]), source.dtype)
        labels = np.empty(len(positions), np.int64)
        is_real = positions < len(self.indices)
        rows = self.indices[positions[is_real]]
        samples[is_real], labels[is_real] = source[rows], self.data.labels[rows]
        rows = positions[~is_real] - len(self.indices)
        samples[~is_real], labels[~is_real] = self.synthetic[rows], self.synthetic_labels[rows]
        return samples, labels


def outputs_of(data: Dataset) -> tuple[int, tuple[tuple[int, ...], ...]]:
    """Return how many logits a model has, and the labels of every label set; () for classes."""
    if data.label_sets is None:
        return len(data.classes), ()
    sets = (tuple(np.flatnonzero(row).tolist()) for row in data.label_sets.table)
    return len(data.label_sets.labels), tuple(sets)


@dataclass(frozen=True)
class Task:
    """The classes and the form of samples, with the mean and std that they are normalised by.

    Parameters
    ----------
    classes : int
        The number of classes; of labels where a sample has several.
    shape : tuple of int
        The shape of a sample: height, width and channels of an image.
    mean, std : tuple of float
        What samples are normalised by, per channel or column.
    kind : str
        'image' or 'table'.
    schema : Schema, optional
        The columns of a table.
    label_sets : tuple of tuple of int
        The labels of every label set, by their numbers, where samples have several labels.
    """

    classes: int
    shape: tuple[int, ...]  # of a sample
    mean: tuple[float, ...]  # of every channel of an image, every column of a table
    std: tuple[float, ...]
    kind: str = "image"
    schema: Schema | None = None
    label_sets: tuple[tuple[int, ...], ...] = ()

    @property
    def width(self) -> int:
        """How many numbers a network sees of a sample: of a row, see `Normalise`."""
        if self.schema is None:
            return math.prod(self.shape)
        codes = sum(
            len(column.categories) + 1 for column in self.schema.columns if column.categories
        )
        return 2 * len(self.schema.numbers) + codes

    @classmethod
    def of(cls, data: Dataset, samples: Array | None = None) -> "Task":
        """Return the task of a data set, normalised by its training samples, or by others."""
        known = data.samples[: data.train_size] if samples is None else samples
        mean, std = find_kind(data.kind).statistics(known)
        classes, sets = outputs_of(data)
        return cls(classes, data.samples.shape[1:], mean, std, data.kind, data.schema, sets)

    @property
    def of_sets(self) -> "Task":
        """The same task with label sets as classes: exactly one a sample."""
        return replace(self, classes=len(self.label_sets) or self.classes, label_sets=())

    def to_dict(self) -> dict[str, Any]:
        """Return plain values of JSON."""
        plain = asdict(self)
        del plain["schema"], plain["label_sets"]
        if self.label_sets:
            plain["label_sets"] = [list(labels) for labels in self.label_sets]
        return plain if self.schema is None else plain | {"schema": self.schema.to_list()}

    @classmethod
    def from_dict(cls, given: dict[str, Any]) -> "Task":
        """Make the task that `to_dict` described, perhaps elsewhere: every value is converted."""
        return cls(
            int(given["classes"]),
            tuple(map(int, given["shape"])),
            tuple(map(float, given["mean"])),
            tuple(map(float, given["std"])),
            str(given.get("kind", "image")),  # older servers know nothing else
            Schema.from_list(given["schema"]) if "schema" in given else None,
            tuple(tuple(map(int, labels)) for labels in given.get("label_sets", ())),
        )
