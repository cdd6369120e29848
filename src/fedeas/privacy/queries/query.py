"""A query: what a site computes from its histogram, and how far one sample can move the answer."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedeas.blocks import class_major
from fedeas.counts import whole_matrix
from fedeas.errors import InputError
from fedeas.privacy.secure_sum.messages import RefusedError
from fedeas.scalars import integer

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

# Within these, floating point errors stay below an eighth of a unit (docs/privacy_queries.md), and
# sums of thousands of sites far below 2**63.
MOST_SAMPLES = 2**26  # of one site
# Units of a word per its own sensitivity: rounding to whole units then hardly counts, and noise in
# parts of many sites is still fine-grained.
SCALE = 256.0
_MOST_CLASSES = 2**14


@dataclass(frozen=True)
class Query(ABC):
    """A question about a site's histogram, answered in whole numbers that are summed under noise.

    The fields are the query's settings: they are sent as JSON, and whoever asks may be hostile.
    The unit of privacy is one sample of one site, added or removed.

    Parameters
    ----------
    classes : int
        The number of classes of the federation.
    """

    name: ClassVar[str]
    classes: int

    def __post_init__(self) -> None:
        allowed = f"2 to {_MOST_CLASSES}"
        integer(self.classes, "classes out of range", allowed, 2, _MOST_CLASSES)

    @property
    @abstractmethod
    def length(self) -> int:
        """How many words an answer has."""

    @property
    @abstractmethod
    def sensitivity(self) -> float:
        """The most that one sample moves an answer, in the Euclidean norm.

        Proven in docs/privacy_queries.md.
        """

    @abstractmethod
    def words(self, n: Floats) -> Floats:
        """Return the answers before rounding: a row of counts gives a row of words."""

    @abstractmethod
    def read(self, sums: Ints, sigma: float, sites: int) -> Any:
        """Return what the sums say: those of `sites` sites, with noise of deviation `sigma`."""

    def answer(self, histogram: ArrayLike) -> Ints:
        """Return a site's words for its own histogram."""
        given = np.asarray(histogram)
        if given.shape != (self.classes,):
            raise RefusedError(f"this site does not have {self.classes} classes")
        row: Ints = self.answers(given[np.newaxis])[0]
        return row

    def answers(self, histograms: ArrayLike) -> Ints:
        """Return the words of many sites, one per row: for simulations that may see the counts."""
        n = class_major(whole_matrix(histograms, "counts"))
        if not (n.sum(axis=1) <= MOST_SAMPLES).all():
            raise RefusedError("this site has too many samples for a sum", allowed="up to 2**26")
        rounded: Ints = np.rint(self.words(n)).astype(np.int64)
        return rounded

    def check_sums(self, sums: Ints, sigma: float) -> Floats:
        """Return the sums as floats, if they can be those of this query."""
        return checked_sums(sums, sigma, self.length)


def checked_sums(sums: Ints, sigma: float, length: int) -> Floats:
    """Return sums as floats, if they can be those of a query of so many words."""
    if sums.shape != (length,):
        raise InputError("not the sums of this query", got=sums.shape, allowed=f"{length}")
    if not 0 <= sigma < np.inf:
        raise InputError("sigma out of range", got=sigma, allowed="0 or more")
    return sums.astype(np.float64)
