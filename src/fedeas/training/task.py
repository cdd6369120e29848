"""`Task`: what a model is made for."""

from dataclasses import dataclass

from fedeas.data import Dataset
from fedeas.data.kinds import find_kind


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
    """

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
