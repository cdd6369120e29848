"""How good generated samples are: three questions that decide whether to use them.

Do they show the requested class, what does a classifier learn from them alone, and do they repeat
training samples, which would leak them? `measure` answers all that can be, whatever the kind.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedeas._internal.optional import import_extra
from fedeas._internal.seeds import child_rng
from fedeas.data import Dataset
from fedeas.data.kinds import Array, find_kind
from fedeas.errors import InputError
from fedeas.generators.row_space import RowSpace
from fedeas.train.samples import Samples

if TYPE_CHECKING:
    from fedeas.train.diffusion.judge import Judge

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Vectors = Callable[[Array], NDArray[Any]]
_MOST_DRAWN, _MOST_UNSEEN = 5000, 2000  # samples whose nearest neighbours are looked for
_BLOCK = 2048  # training samples that others are compared with at a time


@dataclass(frozen=True, eq=False)
class Drawn:
    """Generated samples, and the class that was requested of each."""

    samples: Array
    labels: Ints

    def some(self, most: int) -> "Drawn":
        """Return at most so many of them, chosen at random."""
        if len(self.labels) <= most:
            return self
        at = np.sort(child_rng(0, "some-drawn").choice(len(self.labels), most, replace=False))
        return Drawn(self.samples[at], self.labels[at])


@dataclass(frozen=True, eq=False)
class Real:
    """The real samples that generated ones are compared with."""

    data: Dataset
    training: Ints  # indices of those that the generator may have learnt from
    unseen: Ints  # indices of those that it has not

    @classmethod
    def of(cls, data: Dataset) -> "Real":
        """Return the training and the test samples of a data set."""
        return cls(data, np.arange(data.train_size), np.arange(data.train_size, len(data.labels)))

    def vectors(self) -> Vectors:
        """Return how samples are compared; training rows scale the columns of a table."""
        if self.data.schema is None:
            return pixels
        space = RowSpace.fit(self.data.schema, self.data.samples, self.training)
        return partial(row_vectors, space)

    def like(self, labels: Ints, indices: Ints, most: int) -> Drawn:
        """Return about `most` of the samples at these indices, classes as often as in `labels`.

        Otherwise a plan's mix of classes would look like a fault of the samples. A sample is chosen
        again only where its class has too few.
        """
        known, rng = np.asarray(self.data.labels)[indices], child_rng(0, "real-samples")
        wanted = np.bincount(labels) / max(1, len(labels)) * min(most, len(indices))
        chosen = [indices[:0]]
        for label in np.flatnonzero(wanted).tolist():
            of_class = rng.permutation(np.flatnonzero(known == label))
            if of_class.size:
                chosen.append(np.resize(of_class, max(1, round(wanted[label]))))
        return self.at(indices[np.sort(np.concatenate(chosen))])

    def at(self, indices: Ints) -> Drawn:
        """Return the samples at these indices."""
        return Drawn(self.data.samples[indices], np.asarray(self.data.labels)[indices])


def pixels(images: Array) -> NDArray[np.float32]:
    """Return images as vectors: their distance is the root of the mean squared difference.

    >>> black, white = pixels(np.array([[[[0]] * 2] * 2, [[[255]] * 2] * 2], np.uint8))
    >>> float(np.linalg.norm(white - black))
    255.0
    """
    flat = images.reshape(len(images), -1).astype(np.float32)
    return flat / np.float32(np.sqrt(flat.shape[1]))


def row_vectors(space: RowSpace, rows: Array) -> Floats:
    """Return rows as vectors: their distance is the root of the mean squared difference of columns.

    Two numbers differ by their places in a normal distribution, so that columns with long tails
    count as much as others. Two categories differ by 1, a value and a gap by 1 or more.
    """
    space = replace(space, gaps=(True,) * len(space.schema))  # any column may have some
    points, _ = space.encode(rows)
    parts = [points[:, space.first_number :]]
    for choice in space.choices:
        # The space leaves the first level out, which would make it the nearest to all others.
        levels = points[:, choice.coordinates]
        first = 1 - levels.sum(axis=1, keepdims=True)
        parts += [levels * np.sqrt(0.5), first * np.sqrt(0.5)]
    vectors: Floats = np.concatenate(parts, axis=1) / np.sqrt(len(space.schema))
    return vectors


def agreement(predicted: Ints, requested: Ints, classes: int) -> Floats:
    """Return the share of every class's samples that a classifier assigns to that class.

    >>> agreement(np.array([0, 0, 1, 1]), np.array([0, 0, 0, 1]), 2).round(2).tolist()
    [0.67, 1.0]
    """
    right = np.bincount(requested[predicted == requested], minlength=classes)
    return right / np.maximum(1, np.bincount(requested, minlength=classes))


def nearest_distances(
    samples: Array, reference: Array, indices: Ints, vectors: Vectors = pixels
) -> Floats:
    """Return each sample's distance to the nearest sample at these indices of a reference.

    0 is a copy. The distance of images is the root of the mean squared difference of pixels, 0 to
    255. Blocks of the reference are read one after the other, so it can be larger than memory.
    """
    x = vectors(samples)
    best, which = np.full(len(x), np.inf), np.zeros(len(x), np.int64)
    for start in range(0, len(indices), _BLOCK):
        block = indices[start : start + _BLOCK]
        y = vectors(np.asarray(reference[block]))
        squares = np.einsum("ij,ij->i", y, y, dtype=np.float64) - 2.0 * (x @ y.T)
        nearest = squares.argmin(axis=1)
        closest = squares[np.arange(len(x)), nearest]
        nearer = closest < best
        best[nearer], which[nearer] = closest[nearer], block[nearest[nearer]]
    # Rounding of the squares above would hide which samples are exact copies.
    distances: Floats = np.linalg.norm(x.astype(np.float64) - vectors(reference[which]), axis=1)
    return distances


@dataclass(frozen=True)
class Memorisation:
    """How close generated samples come to training samples, compared with new real ones."""

    median: float  # distance of generated samples to the nearest training sample
    real_median: float  # the same of real samples that were not trained on
    threshold: float  # at most this far away is the closest 1 % of the real ones
    share: float  # of the generated samples at most that far away
    expected: float  # the same of the real ones: more than 1 % where many are equally far

    @property
    def suspected(self) -> bool:
        """Whether generated samples are that close more than three times as often as real ones."""
        return self.share > 3 * self.expected


def memorisation(distances: Floats, natural: Floats, quantile: float = 0.01) -> Memorisation:
    """Compare distances to training samples: of generated samples, and of real unseen ones.

    A generator that repeats its training samples is closer to them than unseen real samples are.
    Tables have equal rows: then `threshold` can be 0, and `expected` is the share of unseen rows
    that are in the training rows too.
    """
    if not distances.size or not natural.size:
        raise InputError("nothing to compare: no samples", allowed="at least one of each")
    threshold = float(np.quantile(natural, quantile))
    return Memorisation(
        float(np.median(distances)),
        float(np.median(natural)),
        threshold,
        float((distances <= threshold).mean()),
        float((natural <= threshold).mean()),
    )


@dataclass(frozen=True, eq=False)
class Quality:
    """What was measured; None where it was not asked for."""

    noun: str  # what one sample is called
    samples: int
    agreement: dict[str, float] | None = None  # of a judge, for every class that was drawn
    real_agreement: dict[str, float] | None = None  # of the same judge with unseen real samples
    judge_accuracy: float | None = None
    memorisation: Memorisation | None = None
    accuracy_on_real: float | None = None  # of a classifier trained on generated samples alone
    accuracy_of_real: float | None = None  # of one trained on as many real samples

    @property
    def agreement_mean(self) -> float | None:
        """The mean agreement over classes."""
        return None if self.agreement is None else float(np.mean([*self.agreement.values()]))

    def to_dict(self) -> dict[str, Any]:
        """Return what was measured as plain values of JSON."""
        body = {**asdict(self), "agreement_mean": self.agreement_mean}
        if self.memorisation is not None:
            body["memorisation"]["suspected"] = self.memorisation.suspected
        size = {f"{body.pop('noun')}s": body.pop("samples")}
        return size | {key: value for key, value in body.items() if value is not None}


def measure(
    drawn: Drawn,
    classes: tuple[str, ...],
    judge: "Judge | None" = None,
    real: Real | None = None,
    *,
    accuracy: bool = False,
    noun: str = "sample",
) -> Quality:
    """Measure all that a judge and real samples allow.

    Parameters
    ----------
    drawn : Drawn
        The generated samples.
    classes : tuple of str
        The names of the classes.
    judge : Judge, optional
        Says which class a sample shows.
    real : Real, optional
        The real samples to compare with.
    accuracy : bool
        Whether classifiers are trained, on the generated samples and on as many real ones.
    noun : str
        What a sample is called where no real ones are given.
    """
    if not len(drawn.labels):
        raise InputError("nothing to measure", allowed="at least one generated sample")
    measured: dict[str, Any] = {}
    if judge is not None:
        measured["agreement"] = _by_class(judge, drawn, classes)
        measured["judge_accuracy"] = judge.accuracy
    if real is None:
        return Quality(noun, len(drawn.labels), **measured)
    data = real.data
    Samples.of(data, real.training[:0], drawn.samples, drawn.labels)  # refuses other data's
    if judge is not None:
        measured["real_agreement"] = _by_class(judge, real.at(real.unseen), classes)
    near = drawn.some(_MOST_DRAWN)
    unseen = real.like(near.labels, real.unseen, _MOST_UNSEEN)
    vectors = real.vectors()
    distances, natural = (
        nearest_distances(part.samples, data.samples, real.training, vectors)
        for part in (near, unseen)
    )
    measured["memorisation"] = memorisation(distances, natural)
    if accuracy:
        trained = import_extra("fedeas.train.diffusion.judge", "training a classifier", "train")
        same = real.like(drawn.labels, real.training, len(drawn.labels))
        for name, part in (("accuracy_on_real", drawn), ("accuracy_of_real", same)):
            measured[name] = trained.accuracy_on_real(data, part.samples, part.labels, real.unseen)
    return Quality(find_kind(data.kind).noun, len(drawn.labels), **measured)


def _by_class(judge: "Judge", drawn: Drawn, classes: tuple[str, ...]) -> dict[str, float]:
    """Return the agreement of a judge for every class of which there are samples."""
    shares = agreement(judge(drawn.samples), drawn.labels, len(classes)).tolist()
    return {classes[label]: shares[label] for label in np.unique(drawn.labels).tolist()}
