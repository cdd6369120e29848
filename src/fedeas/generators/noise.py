"""`noise`: samples without content, the control that shows what any further samples do.

A gain with noise is not one of synthetic samples. It comes from what any further sample of a class
changes: more steps, or logits that are no longer pushed down without an example against it.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fedeas.data import ALL_FOUND, Dataset, TableOptions, load_data
from fedeas.errors import InputError
from fedeas.generators.training_data import TrainingData


@dataclass(frozen=True)
class Noise:
    """Draws images of this shape, every value uniform from 0 to 255, whatever the label."""

    training_data: ClassVar[TrainingData] = TrainingData("nothing")
    shape: tuple[int, int, int]  # height, width, channels

    @property
    def fingerprint(self) -> str:
        """What an image depends on, besides its seed."""
        return f"noise-1-{'x'.join(map(str, self.shape))}"

    def sample(self, labels: NDArray[np.int64], seeds: NDArray[np.uint64]) -> NDArray[np.uint8]:
        """Return an image of noise per seed."""
        images = np.empty((len(labels), *self.shape), np.uint8)
        for image, seed in zip(images, seeds.tolist(), strict=True):
            image[...] = np.random.default_rng(seed).integers(0, 256, self.shape, np.uint8)
        return images


class RowNoise:
    """Draws rows whose every value is that of some training row, whatever the label.

    Columns look as they do in the data, and nothing else does.
    """

    def __init__(self, data: Dataset) -> None:
        self._rows = data.samples[: data.train_size]
        self.training_data = TrainingData("training rows", data.train_size, data.fingerprint)
        self.fingerprint = f"noise-1-{data.fingerprint}"

    def sample(self, labels: NDArray[np.int64], seeds: NDArray[np.uint64]) -> NDArray[np.float32]:
        """Return a row of noise per seed."""
        count, columns = self._rows.shape
        made = np.empty((len(labels), columns), np.float32)
        for row, seed in zip(made, seeds.tolist(), strict=True):
            donors = np.random.default_rng(seed).integers(0, count, columns)
            row[:] = self._rows[donors, np.arange(columns)]
        return made


def noise_like(
    shape: str = "", data: str = "", folder: str | None = None, table: TableOptions = ALL_FOUND
) -> Noise | RowNoise:
    """Make noise of a shape such as 28x28x1, or like the samples of a data set."""
    if shape:
        parts = shape.lower().split("x")
        if len(parts) != 3 or not all(
            part.isdecimal() and 1 <= int(part) <= 4096 for part in parts
        ):
            raise InputError(
                "not the shape of an image", got=shape, allowed="height x width x channels: 28x28x1"
            )
        height, width, channels = map(int, parts)
        return Noise((height, width, channels))
    if not data:
        raise InputError("noise of which shape?", fix="write noise(shape=28x28x1)")
    known = load_data(data, folder, table)
    if known.kind == "table":
        return RowNoise(known)
    height, width, channels = known.samples.shape[1:]
    return Noise((height, width, channels))
