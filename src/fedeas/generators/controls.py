"""The controls of an experiment: `pool`, real samples held out, and `noise`, without content.

`pool` is an oracle, for studying allocation alone: it shows what a plan would be worth if every
generated sample were as good as a real one. Its samples are real, so never report its results as
those of synthetic data.

A gain with `noise` is not one of synthetic samples. It comes from what any further sample of a
class changes: more steps, or logits that are no longer pushed down without an example against it.
"""

import hashlib
import re
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fedeas.data import INFER_ALL, Dataset, TableOptions, open_dataset
from fedeas.data.federation import pool_indices
from fedeas.data.kinds import Array
from fedeas.errors import InputError
from fedeas.generators.card import TrainingData


class Pool:
    """Draws from held-out real samples of the requested class, the seed choosing which."""

    def __init__(self, data: Dataset, indices: NDArray[np.int64]) -> None:
        labels = np.asarray(data.labels)[indices]
        self._samples = data.samples
        self.classes = data.classes
        self._by_class = [indices[labels == c] for c in range(len(data.classes))]
        for name, of_class in zip(data.classes, self._by_class, strict=True):
            if not of_class.size:
                raise InputError(
                    f"the pool has no samples of class {name!r}", fix="set pool_per_class in [data]"
                )
        digest = hashlib.sha256(np.ascontiguousarray(indices, dtype="<i8").data).hexdigest()
        self.training_data = TrainingData(
            "real held-out samples, drawn as they are", len(indices), data.fingerprint, indices
        )
        self.fingerprint = f"pool-{data.fingerprint[:16]}-{digest[:16]}"

    def sample(self, labels: NDArray[np.int64], seeds: NDArray[np.uint64]) -> Array:
        """Return one held-out sample per label; the same seed always chooses the same one."""
        pools = [self._by_class[label] for label in labels]
        chosen = [pool[int(seed) % len(pool)] for pool, seed in zip(pools, seeds, strict=True)]
        return np.asarray(self._samples[chosen])


def pool_of_data(
    data: str,
    pool_per_class: int = 2000,
    seed: int = 42,
    split: str = "official",
    folder: str | None = None,
    table: TableOptions = INFER_ALL,
) -> Pool:
    """Hold out samples as `federate` does with the same pool_per_class, seed and split.

    Only clients that were partitioned in that way are sure to hold none of them.
    """
    loaded = open_dataset(data, folder, table)
    return Pool(loaded, pool_indices(loaded, pool_per_class, seed, split))


@dataclass(frozen=True)
class Noise:
    """Draws images of this shape, every value uniform from 0 to 255, whatever the label."""

    training_data: ClassVar[TrainingData] = TrainingData("nothing")
    shape: tuple[int, ...]  # height, width, channels

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
        rows = np.empty((len(labels), columns), np.float32)
        for row, seed in zip(rows, seeds.tolist(), strict=True):
            donors = np.random.default_rng(seed).integers(0, count, columns)
            row[:] = self._rows[donors, np.arange(columns)]
        return rows


def noise_like(
    shape: str = "", data: str = "", folder: str | None = None, table: TableOptions = INFER_ALL
) -> Noise | RowNoise:
    """Make noise of a shape such as 28x28x1, or like the samples of a data set."""
    if shape:
        if not re.fullmatch(r"[1-9]\d{0,3}(x[1-9]\d{0,3}){2}", shape):
            raise InputError("not the shape of an image", got=shape, allowed="such as 28x28x1")
        return Noise(tuple(map(int, shape.split("x"))))
    if not data:
        raise InputError("noise of which shape?", fix="write noise(shape=28x28x1)")
    dataset = open_dataset(data, folder, table)
    return RowNoise(dataset) if dataset.kind == "table" else Noise(dataset.samples.shape[1:])
