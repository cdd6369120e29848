"""`Task`: what a model is made for."""

import math
from dataclasses import asdict, dataclass
from typing import Any

from fedeas.data import Dataset
from fedeas.data.kinds import find_kind
from fedeas.data.schema import Schema


@dataclass(frozen=True)
class Task:
    """The classes and the form of samples, with the mean and spread that they are normalised by.

    Parameters
    ----------
    classes : int
        The number of classes.
    shape : tuple of int
        The shape of a sample: height, width and channels of an image.
    mean, spread : tuple of float
        What samples are normalised by, per channel or column.
    kind : str
        'image' or 'table'.
    schema : Schema, optional
        The columns of a table.
    """

    classes: int
    shape: tuple[int, ...]  # of a sample
    mean: tuple[float, ...]  # of every channel of an image, every column of a table
    spread: tuple[float, ...]
    kind: str = "image"
    schema: Schema | None = None

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
    def of(cls, data: Dataset) -> "Task":
        """Return the task of a data set, normalised by its training samples."""
        mean, spread = find_kind(data.kind).statistics(data.samples[: data.train_size])
        return cls(len(data.classes), data.samples.shape[1:], mean, spread, data.kind, data.schema)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values of JSON."""
        plain = asdict(self)
        del plain["schema"]
        return plain if self.schema is None else plain | {"schema": self.schema.to_list()}

    @classmethod
    def from_dict(cls, given: dict[str, Any]) -> "Task":
        """Make the task that `to_dict` described, perhaps elsewhere: every value is converted."""
        return cls(
            int(given["classes"]),
            tuple(map(int, given["shape"])),
            tuple(map(float, given["mean"])),
            tuple(map(float, given["spread"])),
            str(given.get("kind", "image")),  # older servers know nothing else
            Schema.from_list(given["schema"]) if "schema" in given else None,
        )
