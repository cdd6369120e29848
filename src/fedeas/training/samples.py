"""`Samples`: what somebody trains on, as places in arrays; nothing is copied until a batch is."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedeas.data.images import ImageData
from fedeas.errors import InputError

Bytes = NDArray[np.uint8]
Ints = NDArray[np.int64]
Statistics = tuple[tuple[float, ...], tuple[float, ...]]


@dataclass(frozen=True, eq=False)
class Samples:
    """Real images at `indices` of a data set, and synthetic ones after them."""

    data: ImageData
    indices: Ints
    synthetic: Bytes
    synthetic_labels: Ints

    @classmethod
    def of(
        cls,
        data: ImageData,
        indices: Ints,
        synthetic: Bytes | None = None,
        synthetic_labels: Ints | None = None,
    ) -> "Samples":
        """Put real and synthetic images together."""
        if synthetic is None or synthetic_labels is None or not len(synthetic_labels):
            synthetic = np.empty((0, *data.images.shape[1:]), np.uint8)
            synthetic_labels = np.empty(0, np.int64)
        if synthetic.shape[1:] != data.images.shape[1:]:
            raise InputError(
                "synthetic images are of another size than the data's",
                got=synthetic.shape[1:],
                allowed=str(data.images.shape[1:]),
            )
        return cls(data, indices, synthetic, synthetic_labels)

    def __len__(self) -> int:
        return len(self.indices) + len(self.synthetic_labels)

    @property
    def labels(self) -> Ints:
        """The labels of all samples, real ones first."""
        return np.concatenate([np.asarray(self.data.labels)[self.indices], self.synthetic_labels])

    def take(self, places: Ints) -> tuple[Bytes, Ints]:
        """Copy the images and labels at these places."""
        real = len(self.indices)
        images = np.empty((len(places), *self.data.images.shape[1:]), np.uint8)
        labels = np.empty(len(places), np.int64)
        own = places < real
        chosen = self.indices[places[own]]
        images[own], labels[own] = self.data.images[chosen], self.data.labels[chosen]
        drawn = places[~own] - real
        images[~own], labels[~own] = self.synthetic[drawn], self.synthetic_labels[drawn]
        return images, labels


def channel_statistics(data: ImageData, block: int = 4096) -> Statistics:
    """Return mean and standard deviation of each colour (0 to 1) over the training images.

    They are computed from whole-number histograms, so they do not depend on order or blocks.
    """
    colours = data.images.shape[3]
    counts = np.zeros((colours, 256), np.int64)
    for start in range(0, data.train_size, block):
        part = data.images[start : min(start + block, data.train_size)]
        for c in range(colours):
            counts[c] += np.bincount(part[..., c].ravel(), minlength=256)
    values = np.arange(256) / 255
    mean = counts @ values / counts.sum(axis=1)
    spread = np.sqrt(counts @ values**2 / counts.sum(axis=1) - mean**2)
    return tuple(mean.tolist()), tuple(np.maximum(spread, 1e-3).tolist())
