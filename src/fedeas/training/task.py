"""`Task`: what a model is made for."""

from dataclasses import dataclass

from fedeas.data import Dataset
from fedeas.data.kinds import find_kind


@dataclass(frozen=True)
class Task:
    """The classes and the form of samples, with the mean and spread that they are normalised by."""

    classes: int
    shape: tuple[int, ...]  # of a sample
    mean: tuple[float, ...]  # of every channel of an image, every column of a table
    spread: tuple[float, ...]
    kind: str = "image"

    @classmethod
    def of(cls, data: Dataset) -> "Task":
        """Return the task of a data set, normalised by its training samples."""
        mean, spread = find_kind(data.kind).statistics(data.samples[: data.train_size])
        return cls(len(data.classes), data.samples.shape[1:], mean, spread, data.kind)
