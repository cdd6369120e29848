"""`measure`: all that can be measured about generated samples, whatever their kind."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedeas.data import Dataset
from fedeas.data.kinds import Array, find_kind
from fedeas.errors import InputError
from fedeas.generators.column_distances import ColumnDistance, column_distances
from fedeas.generators.generator import heavy
from fedeas.generators.quality import (
    Memorisation,
    agreement,
    frechet_distance,
    matched_places,
    memorisation,
)
from fedeas.generators.vectors import Vectors, vectors_of
from fedeas.seeds import child_rng
from fedeas.training.samples import Samples

if TYPE_CHECKING:
    from fedeas.generators.judge import Judge

Ints = NDArray[np.int64]
_MOST_DRAWN, _MOST_UNSEEN = 5000, 2000  # samples whose nearest neighbours are looked for
_BLOCK = 500  # images that features are found of at a time


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
    training: Ints  # places of those that the generator may have learnt from
    unseen: Ints  # places of those that it has not

    @classmethod
    def of(cls, data: Dataset) -> "Real":
        """Return the training and the test samples of a data set."""
        return cls(data, np.arange(data.train_size), np.arange(data.train_size, len(data.labels)))

    def vectors(self) -> Vectors:
        """Return how samples are compared."""
        return vectors_of(self.data, self.training)

    def like(self, labels: Ints, places: Ints, most: int) -> Ints:
        """Choose at most so many of these places, classes as often as in `labels`."""
        own = np.asarray(self.data.labels)[places]
        size = min(most, len(places))
        return places[matched_places(own, labels, size, child_rng(0, "real-samples"))]

    def at(self, places: Ints) -> Array:
        """Return the samples at these places, without a copy where they are consecutive."""
        if (
            len(places)
            and places[-1] - places[0] == len(places) - 1
            and (np.diff(places) == 1).all()
        ):
            return self.data.samples[places[0] : places[-1] + 1]
        return self.data.samples[places]


@dataclass(frozen=True, eq=False)
class Quality:
    """What was measured; None where it was not asked for, or makes no sense for the kind."""

    noun: str  # what one sample is called
    samples: int
    agreement: dict[str, float] | None = None  # of a judge, for every class that was drawn
    real_agreement: dict[str, float] | None = None  # of the same judge with unseen real samples
    judge_accuracy: float | None = None
    frechet_distance: float | None = None
    memorisation: Memorisation | None = None
    columns: tuple[ColumnDistance, ...] | None = None  # the most different first
    accuracy_on_real: float | None = None  # of a classifier trained on generated samples alone
    accuracy_of_real: float | None = None  # of one trained on as many real samples

    @property
    def agreement_mean(self) -> float | None:
        """The mean agreement over classes."""
        return None if self.agreement is None else float(np.mean([*self.agreement.values()]))

    def to_dict(self) -> dict[str, Any]:
        """Return what was measured as plain values of JSON."""
        found = {k: v for k, v in vars(self).items() if k not in ("noun", "samples")}
        if self.agreement is not None:
            found["agreement_mean"] = self.agreement_mean
        if self.memorisation is not None:
            near = asdict(self.memorisation)
            found["memorisation"] = {
                **near, "closest": near["closest"][:10].tolist(),
                "suspected": self.memorisation.suspected,
            }  # fmt: skip
        if self.columns is not None:
            found["columns"] = [asdict(column) for column in self.columns]
        kept = {key: value for key, value in found.items() if value is not None}
        return {f"{self.noun}s": self.samples, **kept}


def measure(
    drawn: Drawn,
    classes: tuple[str, ...],
    judge: "Judge | None" = None,
    real: Real | None = None,
    *,
    accuracy: bool = False,
    frechet: bool = True,
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
    frechet : bool
        Whether the Fréchet distance of images is found, which needs an extra.
    noun : str
        What a sample is called where no real ones are given.
    """
    if not len(drawn.labels):
        raise InputError("nothing to measure", allowed="at least one generated sample")
    found: dict[str, Any] = {}
    if judge is not None:
        found["agreement"] = _by_class(judge, drawn, classes)
        found["judge_accuracy"] = judge.accuracy
    if real is None:
        return Quality(noun, len(drawn.labels), **found)
    of_images = real.data.kind == "image"
    Samples.of(real.data, real.training[:0], drawn.samples, drawn.labels)  # refuses other data's
    if judge is not None:
        known = Drawn(real.at(real.unseen), np.asarray(real.data.labels)[real.unseen])
        found["real_agreement"] = _by_class(judge, known, classes)
        if of_images and frechet:
            found["frechet_distance"] = _frechet(judge, known.samples, drawn.samples)
    near = drawn.some(_MOST_DRAWN)
    found["memorisation"] = memorisation(
        near.samples,
        real.at(real.training),
        real.at(real.like(near.labels, real.unseen, _MOST_UNSEEN)),
        vectors=real.vectors(),
    )
    if real.data.schema is not None:
        both = (
            real.at(real.like(drawn.labels, places, len(places)))
            for places in (real.unseen, real.training)
        )
        found["columns"] = tuple(column_distances(real.data.schema, drawn.samples, *both))
    if accuracy:
        found |= _accuracies(drawn, real)
    return Quality(find_kind(real.data.kind).noun, len(drawn.labels), **found)


def _by_class(judge: "Judge", drawn: Drawn, classes: tuple[str, ...]) -> dict[str, float]:
    """Return the agreement of a judge for every class of which there are samples."""
    shares = agreement(judge(drawn.samples), drawn.labels, len(classes)).tolist()
    return {classes[label]: shares[label] for label in np.unique(drawn.labels).tolist()}


def _frechet(judge: "Judge", real: Array, drawn: Array) -> float:
    features = heavy("fedeas.generators.judge", "a judge", "diffusion").Features(judge)
    return frechet_distance(_blocks(real), _blocks(drawn), features)


def _blocks(images: Array) -> Iterator[Array]:
    for start in range(0, len(images), _BLOCK):
        yield images[start : start + _BLOCK]


def _accuracies(drawn: Drawn, real: Real) -> dict[str, float]:
    """Train on the generated samples, and on as many real ones of the same classes."""
    test = heavy("fedeas.generators.judge", "training a classifier", "train").accuracy_on_real
    places = real.like(drawn.labels, real.training, len(drawn.labels))
    labels = np.asarray(real.data.labels)[places]
    return {
        "accuracy_on_real": test(real.data, drawn.samples, drawn.labels, real.unseen),
        "accuracy_of_real": test(real.data, real.at(places), labels, real.unseen),
    }
