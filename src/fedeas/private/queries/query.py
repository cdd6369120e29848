"""What a site computes from its histogram or its samples, and how far one sample moves it.

A `Query` is about a site's histogram. A `SampleSum` is a sum over samples, class by class: a sample
becomes a row of whole numbers, by arithmetic that is exact, and the row is added at the place of
its class. So the answers of two sites that differ by one sample differ by that sample's row,
whatever the order and the blocks in which a site reads its samples, and the sensitivity is the
largest norm that a row can have.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedeas._internal.blocks import class_major
from fedeas._internal.scalars import integer
from fedeas.counts.label_counts import whole_matrix
from fedeas.errors import InfeasibleError, InputError
from fedeas.planning.targets import least_share
from fedeas.private.secure_sum.messages import RefusedError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

# Within these, floating point errors stay below an eighth of a unit (docs/proofs.md), and
# sums of thousands of sites far below 2**63.
MOST_SAMPLES = 2**26  # of one site
# Units of a word per its own sensitivity: rounding to whole units then hardly counts, and noise in
# parts of many sites is still fine-grained.
SCALE = 256.0
_MOST_CLASSES = 2**14
WHOLE = 256  # the weight of a sample, or of all samples of a group together
_BLOCK = 256  # samples at a time: their rows are never held together
_BLOCK_WORDS = 2**20  # of their rows, which a single one may exceed
_MOST_WORDS = 2**22
CLEAR = 3.0  # standard errors by which a total must exceed zero
_NOTHING = 1e-12  # of a share, by rounding


@dataclass(frozen=True)
class AnyQuery(ABC):
    """A question to a site, answered in whole numbers that are summed under noise.

    The fields are the query's settings: they are sent as JSON, and whoever asks may be hostile.
    The unit of privacy is one sample of one site, added or removed; sites whose unit is a group,
    such as a person, answer so that a group moves no answer further (docs/people.md).

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

        Proven in docs/proofs.md.
        """

    @abstractmethod
    def read(self, sums: Ints, sigma: float, sites: int) -> Any:
        """Return what the sums say: those of `sites` sites, with noise of deviation `sigma`."""

    def check_sums(self, sums: Ints, sigma: float) -> Floats:
        """Return the sums as floats, if they can be those of this query."""
        if sums.shape != (self.length,):
            raise InputError("not the sums of this query", got=sums.shape, allowed=f"{self.length}")
        if not 0 <= sigma < np.inf:
            raise InputError("sigma out of range", got=sigma, allowed="0 or more")
        return sums.astype(np.float64)


@dataclass(frozen=True)
class Query(AnyQuery):
    """A question about a site's histogram."""

    @abstractmethod
    def words(self, n: Floats) -> Floats:
        """Return the answers before rounding: a row of counts gives a row of words."""

    def answer(self, histogram: ArrayLike) -> Ints:
        """Return a site's words for its own histogram."""
        counts = np.asarray(histogram)
        if counts.shape != (self.classes,):
            raise RefusedError(f"this site does not have {self.classes} classes")
        row: Ints = self.answers(counts[np.newaxis])[0]
        return row

    def answers(self, histograms: ArrayLike) -> Ints:
        """Return the words of many sites, one per row: for simulations that may see the counts."""
        n = class_major(whole_matrix(histograms, "counts"))
        if not (n.sum(axis=1) <= MOST_SAMPLES).all():
            raise RefusedError("this site has too many samples for a sum", allowed="up to 2**26")
        return np.rint(self.words(n)).astype(np.int64)


@dataclass(frozen=True)
class SampleSum(AnyQuery):
    """A question about a site's samples; its sensitivity is the largest norm of a row.

    Parameters
    ----------
    classes : int
        The number of classes of the federation.
    shape : tuple of int
        The shape of one sample.
    """

    by_label: ClassVar[bool] = True  # whether every class has a place of its own in the sum
    shape: tuple[int, ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "shape", tuple(self.shape))
        if self.length > _MOST_WORDS:
            raise InputError("too many words", got=self.length, allowed=f"up to {_MOST_WORDS}")

    @property
    @abstractmethod
    def width(self) -> int:
        """How many words a class has."""

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
        self,
        samples: NDArray[Any],
        labels: NDArray[np.int64],
        places: Ints | None = None,
        weights: Ints | None = None,
    ) -> Ints:
        """Return a site's words, read in blocks; samples may be memory-mapped.

        Parameters
        ----------
        samples, labels
            The samples and their classes.
        places
            Where the site's samples are in these arrays; all of them by default.
        weights
            What the sample at each place counts, out of `WHOLE`; all of it by default.
        """
        if samples.shape[1:] != self.shape:
            raise RefusedError("this site's samples have another shape")
        places = np.arange(len(labels)) if places is None else np.asarray(places, np.int64)
        if len(places) > MOST_SAMPLES:
            raise RefusedError("this site has too many samples for a sum", allowed="up to 2**26")
        classes = np.asarray(labels[places])
        # Who holds the samples answers for this: a site refuses any other `classes` than those of
        # its owner's list before samples are opened.
        if len(classes) and not (classes.min() >= 0 and classes.max() < self.classes):
            raise RefusedError(f"this site does not have {self.classes} classes")
        sums = np.zeros((self._places, self.width), np.int64)
        size = max(1, min(_BLOCK, _BLOCK_WORDS // self.width))
        for start in range(0, len(places), size):
            block = slice(start, start + size)
            order = np.argsort(classes[block], kind="stable")
            own = (np.asarray(samples[places[block][order]]), classes[block][order])
            if weights is None:
                self.add(sums, *own)
            else:
                self.add_rows(sums, weighted(self.rows(*own), weights[block][order]), own[1])
        return sums.reshape(-1)

    def add(self, sums: Ints, samples: NDArray[Any], labels: NDArray[np.int64]) -> None:
        """Add the rows of samples, sorted by class, to the sums."""
        self.add_rows(sums, self.rows(samples, labels), labels)

    def add_rows(self, sums: Ints, rows: Ints, labels: NDArray[np.int64]) -> None:
        """Add rows of samples that are sorted by class to the sums."""
        places = labels if self.by_label else np.zeros_like(labels)
        present, firsts = np.unique(places, return_index=True)
        sums[present] += np.add.reduceat(rows, firsts, axis=0, dtype=np.int64)

    def by_class(self, sums: Ints, sigma: float) -> Floats:
        """Return the sums as floats, a row per class, if they can be those of this query."""
        return self.check_sums(sums, sigma).reshape(self._places, self.width)

    def counts(self, words: Floats, sigma: float, unit: int) -> Floats:
        """Return how many samples every class has, or all have, given the words that count them.

        A class that the noise hides is taken as large as the noise: its mean is near zero then.
        """
        counts, error = words / unit, sigma / unit
        if not counts.sum() > CLEAR * error * math.sqrt(len(words)):
            raise InfeasibleError(
                "too few samples or groups for this epsilon: the noise hides how many there are",
                fix="ask more sites, or spend a larger epsilon",
            )
        return np.maximum(counts, max(1.0, error))


def weighted(rows: Ints, weights: Ints) -> Ints:
    """Return rows times their weights out of `WHOLE`, rounded towards zero: no norm is above that.

    >>> weighted(np.array([[300, -300], [7, -7]]), np.array([128, 85]))
    array([[ 150, -150],
           [   2,   -2]])
    """
    scaled = rows * weights[:, np.newaxis]
    shorter: Ints = np.sign(scaled) * (np.abs(scaled) // WHOLE)
    return shorter


def towards_zero(x: Floats) -> Ints:
    """Round towards zero: no entry, and so no norm, can grow."""
    return np.trunc(x).astype(np.int64)


class Prior(NamedTuple):
    """The federation's share of every class, and the standard errors that the noise gives them.

    `raw` are the shares as summed. They can be negative; `shares` are the nearest that are not.
    """

    shares: Floats
    errors: Floats
    raw: Floats
    total: float
    total_error: float

    def known_shares(self) -> list[float]:
        """Return shares to four digits, none below its error: a rare class is not an absent one.

        Nor below what sites take as a share.

        >>> shares, errors = np.array([0.98, 0.02, 0.0]), np.full(3, 0.01)
        >>> Prior(shares, errors, shares, 900.0, 9.0).known_shares()
        [0.9703, 0.0198, 0.009901]
        """
        least = np.minimum(self.errors, 1 / len(self.shares))
        shares = np.maximum(self.shares, least)
        accepted = np.maximum(shares, 2 * least_share(len(shares)))
        shares = np.where(shares > _NOTHING, accepted, 0.0)
        return [float(f"{share:.4g}") for share in shares / shares.sum()]


@dataclass(frozen=True)
class ClassTotals(Query):
    """The count of every class, in 256ths of a sample.

    >>> ClassTotals(3).answer([90, 10, 0])
    array([23040,  2560,     0])
    """

    name: ClassVar[str] = "class-totals"

    @property
    def length(self) -> int:
        """One word per class."""
        return self.classes

    @property
    def sensitivity(self) -> float:
        """A sample changes one count by one."""
        return SCALE

    def words(self, n: Floats) -> Floats:
        """Return the counts themselves."""
        return n * SCALE

    def read(self, sums: Ints, sigma: float, sites: int) -> Prior:
        """Return the federation's class prior.

        Parameters
        ----------
        sums
            The noisy sums over all sites.
        sigma
            The standard deviation of their noise, in units of the words.
        sites
            The number of sites in the sums; not needed here.

        >>> ClassTotals(3).read(256 * np.array([70, 40, -10]), 256.0, 5).shares
        array([0.65, 0.35, 0.  ])
        """
        totals, sigma = self.check_sums(sums, sigma) / SCALE, sigma / SCALE
        total, total_error = float(totals.sum()), sigma * self.classes**0.5
        if not total > CLEAR * total_error:
            raise InfeasibleError(
                "too few samples or groups for this epsilon: the noise hides how many there are",
                got=f"{total:,.0f} with a standard error of {total_error:,.0f}",
                fix="ask more sites, or spend a larger epsilon",
            )
        raw = totals / total
        # Of a ratio, to first order: the noise of a class is in its total too.
        errors = sigma / total * np.sqrt((1 - raw) ** 2 + (self.classes - 1) * raw**2)
        return Prior(onto_simplex(raw), errors, raw, total, total_error)


def onto_simplex(x: Floats) -> Floats:
    """Return the nearest non-negative numbers that sum to one.

    >>> onto_simplex(np.array([0.7, 0.5, -0.2]))
    array([0.6, 0.4, 0. ])
    """
    falling = np.sort(x)[::-1]
    excess = (np.cumsum(falling) - 1.0) / np.arange(1, len(x) + 1)
    kept = int(np.flatnonzero(falling > excess)[-1])
    nearest: Floats = np.maximum(x - excess[kept], 0.0)
    return nearest
