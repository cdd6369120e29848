"""A sum over samples, class by class: what a site adds up, and how far one sample can move it.

A sample becomes a row of whole numbers, by arithmetic that is exact, and the row is added at the
place of its class. So the answers of two sites that differ by one sample differ by that sample's
row, whatever the order and the blocks in which a site reads its samples, and the sensitivity is the
largest norm that a row can have.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fedeas.errors import InfeasibleError, InputError
from fedeas.privacy.queries.query import MOST_SAMPLES, Floats, Ints, checked_sums
from fedeas.privacy.secure_sum.messages import RefusedError
from fedeas.scalars import integer

_BLOCK = 256  # samples at a time: their rows are never held together
_BLOCK_WORDS = 2**20  # of their rows, which a single one may exceed
_MOST_WORDS = 2**22
_CLEAR = 3.0  # standard errors by which the number of samples must exceed zero
EXACT = 2.0**53  # whole numbers up to here are exact in double precision


@dataclass(frozen=True)
class SampleSum(ABC):
    """A question about a site's samples, answered in whole numbers that are summed under noise.

    The fields are the settings: they are sent as JSON, and whoever asks may be hostile.
    The unit of privacy is one sample of one site, added or removed.

    Parameters
    ----------
    classes : int
        The number of classes of the federation.
    shape : tuple of int
        The shape of one sample.
    """

    name: ClassVar[str]
    by_label: ClassVar[bool] = True  # whether every class has a place of its own in the sum
    classes: int
    shape: tuple[int, ...]

    def __post_init__(self) -> None:
        integer(self.classes, "classes out of range", "2 to 16384", 2, 2**14)
        object.__setattr__(self, "shape", tuple(self.shape))
        if self.length > _MOST_WORDS:
            raise InputError("too many words", got=self.length, allowed=f"up to {_MOST_WORDS}")

    @property
    @abstractmethod
    def width(self) -> int:
        """How many words a class has."""

    @property
    @abstractmethod
    def sensitivity(self) -> float:
        """The largest Euclidean norm of a row.

        Proven in docs/privacy_queries.md.
        """

    @abstractmethod
    def rows(self, samples: NDArray[Any], labels: NDArray[np.int64]) -> Ints:
        """Return a row of whole numbers per sample, a function of it and its class alone."""

    @property
    def length(self) -> int:
        """How many words an answer has."""
        return self._places * self.width

    @property
    def _places(self) -> int:
        return self.classes if self.by_label else 1

    def answer(
        self, samples: NDArray[Any], labels: NDArray[np.int64], places: Ints | None = None
    ) -> Ints:
        """Return a site's words, read in blocks; samples may be memory-mapped.

        Parameters
        ----------
        samples, labels
            The samples and their classes.
        places
            Where the site's samples are in these arrays; all of them by default.
        """
        if samples.shape[1:] != self.shape:
            raise RefusedError("this site's samples have another shape")
        places = np.arange(len(labels)) if places is None else np.asarray(places, np.int64)
        if len(places) > MOST_SAMPLES:
            raise RefusedError("this site has too many samples for a sum", allowed="up to 2**26")
        own = np.asarray(labels[places])
        # Who holds the samples answers for this: a site refuses any other `classes` than those of
        # its owner's list before samples are opened.
        if len(own) and not (own.min() >= 0 and own.max() < self.classes):
            raise RefusedError(f"this site does not have {self.classes} classes")
        found = np.zeros((self._places, self.width), np.int64)
        size = max(1, min(_BLOCK, _BLOCK_WORDS // self.width))
        for start in range(0, len(places), size):
            order = np.argsort(own[start : start + size], kind="stable")
            block, marks = places[start : start + size][order], own[start : start + size][order]
            self.add(found, np.asarray(samples[block]), marks)
        return found.reshape(-1)

    def add(self, found: Ints, samples: NDArray[Any], labels: NDArray[np.int64]) -> None:
        """Add the rows of samples, sorted by class, to the sums."""
        rows = self.rows(samples, labels)
        places = labels if self.by_label else np.zeros_like(labels)
        present, firsts = np.unique(places, return_index=True)
        found[present] += np.add.reduceat(rows, firsts, axis=0, dtype=np.int64)

    def by_class(self, sums: Ints, sigma: float) -> Floats:
        """Return the sums as floats, a row per class, if they can be those of this query."""
        return checked_sums(sums, sigma, self.length).reshape(self._places, self.width)

    def counts(self, words: Floats, sigma: float, unit: int) -> Floats:
        """Return how many samples every class has, given the words that count them.

        A class that the noise hides is taken as large as the noise: its mean is near zero then.
        """
        counts, error = words / unit, sigma / unit
        if not counts.sum() > _CLEAR * error * math.sqrt(self.classes):
            raise InfeasibleError(
                "the noise hides how many samples there are",
                fix="ask more sites, or spend a larger epsilon",
            )
        found: Floats = np.maximum(counts, max(1.0, error))
        return found


def towards_zero(x: Floats) -> Ints:
    """Round towards zero: no entry, and so no norm, can grow."""
    found: Ints = np.trunc(x).astype(np.int64)
    return found
