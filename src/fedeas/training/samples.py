"""`Samples`: training samples as indices into arrays; only batches are copied."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedeas.data import Dataset, Schema
from fedeas.data.kinds import Array
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
        own, other = data.samples, synthetic
        if (other.shape[1:], other.dtype) != (own.shape[1:], own.dtype):
            raise InputError(
                "synthetic samples differ from the data in shape or dtype",
                got=f"{other.shape[1:]} of {other.dtype}",
                allowed=f"{own.shape[1:]} of {own.dtype}",
            )
        if data.schema is not None:
            data.schema.check(synthetic)
        return cls(data, indices, synthetic, synthetic_labels)

    def __len__(self) -> int:
        return len(self.indices) + len(self.synthetic_labels)

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

    def take(self, places: Ints) -> tuple[Array, Ints]:
        """Copy the samples and labels at these places."""
        real = len(self.indices)
        source = self.data.samples
        samples: Array = np.empty((len(places), *source.shape[1:]), source.dtype)
        labels = np.empty(len(places), np.int64)
        own = places < real
        chosen = self.indices[places[own]]
        samples[own], labels[own] = source[chosen], self.data.labels[chosen]
        drawn = places[~own] - real
        samples[~own], labels[~own] = self.synthetic[drawn], self.synthetic_labels[drawn]
        return samples, labels
