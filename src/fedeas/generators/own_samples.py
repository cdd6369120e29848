"""Generators that work on a client's own samples: `copies`, `smote` and its relatives.

They run where those samples are, in memory, whenever they are needed: nothing is written to a
cache. What they can make depends on what a client has, so a plan is cut to that first.
"""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from fedeas.data.dataset import Dataset
from fedeas.data.kinds import Array
from fedeas.data.schema import Schema
from fedeas.errors import InputError

Ints = NDArray[np.int64]
Seeds = NDArray[np.uint64]


class OwnSamples(Protocol):
    """A client's real samples."""

    @property
    def labels(self) -> Ints:
        """The label of every sample."""
        ...

    @property
    def schema(self) -> Schema | None:
        """What the columns of a table hold; None for anything else."""
        ...

    def take(self, places: Ints) -> tuple[Array, Ints]:
        """Copy the samples and labels at these places."""
        ...


@dataclass(frozen=True, eq=False)
class OwnArrays:
    """A client's real samples in memory."""

    samples: Array
    labels: Ints
    schema: Schema | None = None

    def take(self, places: Ints) -> tuple[Array, Ints]:
        """Copy the samples and labels at these places."""
        return self.samples[places], self.labels[places]


@runtime_checkable
class OwnSampleGenerator(Protocol):
    """A generator that needs the client's own samples: any class with these members is one."""

    lacks: str  # what a client has not got for the samples that cannot be made

    @property
    def fingerprint(self) -> str:
        """Identify the generator: another fingerprint means other samples."""
        ...

    def feasible(self, samples: Ints, n: Ints) -> Ints:
        """Return the part of a plan that it can make, for clients with label counts n."""
        ...

    def sample_from(self, own: OwnSamples, labels: Ints, seeds: Seeds) -> Array:
        """Make one sample for every label and seed from the client's own samples."""
        ...

    def sample(self, labels: Ints, seeds: Seeds) -> Array:
        """Refuse to draw: it is not known whose samples to use."""
        ...


@dataclass(frozen=True, eq=False)
class OfOwnSamples:
    """A generator that makes samples of one client's own samples."""

    inner: OwnSampleGenerator
    own: OwnSamples
    classes: tuple[str, ...]

    @classmethod
    def of_training(cls, inner: OwnSampleGenerator, data: Dataset) -> "OfOwnSamples":
        """Give it all training samples of a data set, as if one client had them."""
        labels = np.asarray(data.train_labels)
        return cls(
            inner, OwnArrays(data.samples[: data.train_size], labels, data.schema), data.classes
        )

    @property
    def fingerprint(self) -> str:
        """Identify the generator."""
        return self.inner.fingerprint

    def sample(self, labels: Ints, seeds: Seeds) -> Array:
        """Make one sample for every label and seed."""
        return self.inner.sample_from(self.own, labels, seeds)


def refuse_without_own(name: str) -> InputError:
    """Return the error of a generator that is asked to draw without a client's samples."""
    return InputError(
        f"{name} works on a client's own samples, which are not here",
        allowed=f"{name} in `fedeas run`, at a deployed site, or in `augment` of NumPy arrays and "
        "frames",
    )


def places_by_class(own: OwnSamples, labels: Ints) -> dict[int, Ints]:
    """Return where the client's samples of every requested class are."""
    held = np.asarray(own.labels)
    return {label: np.flatnonzero(held == label) for label in np.unique(labels).tolist()}
