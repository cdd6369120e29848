"""How good generated samples are.

Do they show the requested class, are they distributed like real ones, and do they repeat training
samples, which would leak them?
"""

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedeas.data.kinds import Array
from fedeas.errors import InputError, MissingExtraError
from fedeas.generators.generator import Generator
from fedeas.generators.vectors import Vectors, pixels

Bytes = NDArray[np.uint8]
Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Classify = Callable[[Array], Ints]


def agreement(found: Ints, asked: Ints, classes: int) -> Floats:
    """Return the share of every class's samples that a classifier assigns to that class.

    >>> agreement(np.array([0, 0, 1, 1]), np.array([0, 0, 0, 1]), 2).round(2).tolist()
    [0.67, 1.0]
    """
    right = np.bincount(asked[found == asked], minlength=classes)
    return right / np.maximum(1, np.bincount(asked, minlength=classes))


def frechet_distance(real: Iterable[Bytes], drawn: Iterable[Bytes], features: object) -> float:
    """Return the Fréchet distance between real and generated images (FID), 0 if equal.

    ||m_r - m_g||^2 + tr(S_r + S_g - 2 (S_r S_g)^(1/2)) of the features' means and covariances.
    `features` is a torch module from uint8 images (N x colours x height x width) to vectors; only
    distances with the same module can be compared.
    """
    try:
        import torch
        from torchmetrics.image.fid import FrechetInceptionDistance
    except ModuleNotFoundError:
        raise MissingExtraError("a Fréchet distance", "quality") from None
    metric = FrechetInceptionDistance(feature=features).set_dtype(torch.float64)
    with torch.inference_mode():
        for batches, is_real in ((real, True), (drawn, False)):
            for images in batches:
                channels_first = images.transpose(0, 3, 1, 2).copy()
                metric.update(torch.from_numpy(channels_first), real=is_real)
        return float(metric.compute())


def nearest_distances(
    samples: Array, reference: Array, vectors: Vectors = pixels, block: int = 2048
) -> tuple[Floats, Ints]:
    """Return each sample's distance to the nearest reference sample, and which one that is.

    0 is a copy. The distance of images is the root of the mean squared difference of pixels, 0 to
    255. Blocks of the reference are read one after the other, so it can be larger than memory.
    """
    x = vectors(samples)
    best, which = np.full(len(x), np.inf), np.zeros(len(x), np.int64)
    for start in range(0, len(reference), block):
        y = vectors(np.asarray(reference[start : start + block]))
        found = np.einsum("ij,ij->i", y, y, dtype=np.float64) - 2.0 * (x @ y.T)
        place = found.argmin(axis=1)
        closest = found[np.arange(len(x)), place]
        nearer = closest < best
        best[nearer], which[nearer] = closest[nearer], place[nearer] + start
    # Rounding of the squares above would hide which samples are exact copies.
    return _distances(x, vectors(np.asarray(reference[which]))), which


def _distances(x: NDArray[Any], y: NDArray[Any]) -> Floats:
    found: Floats = np.linalg.norm(x.astype(np.float64) - y, axis=1)
    return found


@dataclass(frozen=True)
class Memorisation:
    """How close generated samples come to training samples, compared with new real ones."""

    median: float  # distance of generated samples to the nearest training sample
    real_median: float  # the same of real samples that were not trained on
    threshold: float  # at most this far away are `quantile` of the real ones
    quantile: float
    share: float  # of the generated samples at most that far away
    expected: float  # the same of the real ones: more than `quantile` where many are equally far
    closest: Ints  # places of those samples, the nearest first

    @property
    def suspected(self) -> bool:
        """Whether generated samples are that close more than three times as often as real ones."""
        return self.share > 3 * self.expected


def memorisation(
    samples: Array,
    training: Array,
    unseen: Array,
    quantile: float = 0.01,
    vectors: Vectors = pixels,
) -> Memorisation:
    """Compare distances to the training samples: of generated samples, and of real unseen ones.

    A generator that repeats its training samples is closer to them than unseen real samples are.
    Tables have equal rows: then `threshold` can be 0, and `expected` is the share of unseen rows
    that are in the training rows too.
    """
    if not len(unseen) or not len(samples):
        raise InputError("nothing to compare: no samples", allowed="at least one of each")
    distances, _ = nearest_distances(samples, training, vectors)
    natural, _ = nearest_distances(unseen, training, vectors)
    threshold = float(np.quantile(natural, quantile))
    close = np.flatnonzero(distances <= threshold)
    return Memorisation(
        float(np.median(distances)),
        float(np.median(natural)),
        threshold,
        quantile,
        len(close) / len(samples),
        float((natural <= threshold).mean()),
        close[np.argsort(distances[close], kind="stable")],
    )


def matched_places(labels: Ints, like: Ints, size: int, rng: np.random.Generator) -> Ints:
    """Choose about `size` places whose labels are as frequent as in `like`.

    A sample is chosen again only where its class has too few. What is compared with generated
    samples is chosen so: otherwise a plan's mix of classes would look like a fault of the samples.
    """
    wanted = np.bincount(like) / max(1, len(like)) * size
    chosen = []
    for label in np.flatnonzero(wanted).tolist():
        own = rng.permutation(np.flatnonzero(labels == label))
        if own.size:
            chosen.append(np.resize(own, max(1, round(wanted[label]))))
    return np.sort(np.concatenate(chosen)) if chosen else np.empty(0, np.int64)


class Filtered:
    """A generator whose samples are judged, and redrawn until they show the requested class.

    Each sample has at most `tries` draws, with different seeds. If none is right the last one is
    kept, so that a plan is always met, and `unmet` counts it.
    """

    def __init__(self, inner: Generator, classify: Classify, name: str, tries: int = 4) -> None:
        if not 1 <= tries <= 100:
            raise InputError("not a number of tries", got=tries, allowed="1 to 100")
        self._inner, self._classify, self._tries = inner, classify, tries
        self.classes = getattr(inner, "classes", None)
        self.schema = getattr(inner, "schema", None)
        self.least_batch: int = getattr(inner, "least_batch", 1)
        digest = hashlib.sha256(f"{inner.fingerprint}\n{name}\n{tries}".encode()).hexdigest()
        self.fingerprint = f"filtered-{digest}"
        self.drawn = self.unmet = 0

    def sample(self, labels: Ints, seeds: NDArray[np.uint64]) -> Array:
        """Draw samples, and redraw those that are judged wrong."""
        samples = np.array(self._inner.sample(labels, seeds))  # a copy: it may be the generator's
        self.drawn += len(labels)
        wrong = np.flatnonzero(self._classify(samples) != labels)
        for attempt in range(1, self._tries):
            if not wrong.size:
                break
            again = np.array([_another(int(seed), attempt) for seed in seeds[wrong]], np.uint64)
            redrawn = self._inner.sample(labels[wrong], again)
            self.drawn += len(wrong)
            samples[wrong] = redrawn
            wrong = wrong[self._classify(redrawn) != labels[wrong]]
        self.unmet += len(wrong)
        return samples


def _another(seed: int, attempt: int) -> int:
    """Return the seed of a further draw."""
    return int.from_bytes(hashlib.sha256(f"{seed}/{attempt}".encode()).digest()[:8], "little")
