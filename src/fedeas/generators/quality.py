"""How good generated images are.

Do they show the requested class, are they distributed like real ones, and do they repeat training
images, which would leak them?
"""

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedeas.errors import InputError, MissingExtraError
from fedeas.generators.generator import Generator

Bytes = NDArray[np.uint8]
Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Classify = Callable[[Bytes], Ints]


def agreement(found: Ints, asked: Ints, classes: int) -> Floats:
    """Return the share of every class's images that a classifier assigns to that class.

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
    except ImportError:
        raise MissingExtraError("a Fréchet distance", "quality") from None
    metric = FrechetInceptionDistance(feature=features).set_dtype(torch.float64)
    with torch.inference_mode():
        for batches, is_real in ((real, True), (drawn, False)):
            for images in batches:
                channels_first = images.transpose(0, 3, 1, 2).copy()
                metric.update(torch.from_numpy(channels_first), real=is_real)
        return float(metric.compute())


def nearest_distances(images: Bytes, reference: Bytes, block: int = 2048) -> tuple[Floats, Ints]:
    """Return each image's distance to the nearest reference image, and which one that is.

    The distance is the root of the mean squared difference of pixels, 0 to 255; 0 is a copy. Blocks
    of the reference are read one after the other, so it can be larger than memory.
    """
    x = images.reshape(len(images), -1).astype(np.float32)
    squares = np.einsum("ij,ij->i", x, x, dtype=np.float64)
    best, which = np.full(len(x), np.inf), np.zeros(len(x), np.int64)
    for start in range(0, len(reference), block):
        y = np.asarray(reference[start : start + block]).reshape(-1, x.shape[1]).astype(np.float32)
        found = np.einsum("ij,ij->i", y, y, dtype=np.float64) - 2.0 * (x @ y.T)
        place = found.argmin(axis=1)
        closest = found[np.arange(len(x)), place]
        nearer = closest < best
        best[nearer], which[nearer] = closest[nearer], place[nearer] + start
    return np.sqrt(np.maximum(0.0, best + squares) / x.shape[1]), which


@dataclass(frozen=True)
class Memorisation:
    """How close generated images come to training images, compared with new real ones."""

    median: float  # distance of generated images to the nearest training image
    real_median: float  # the same of real images that were not trained on
    threshold: float  # closer than this are `quantile` of the real ones
    quantile: float
    share: float  # of the generated images closer than the threshold; about `quantile` is expected
    closest: Ints  # places of those images, the nearest first


def memorisation(
    images: Bytes, training: Bytes, unseen: Bytes, quantile: float = 0.01
) -> Memorisation:
    """Compare distances to the training images: of generated images, and of real unseen ones.

    A generator that repeats its training images is closer to them than unseen real images are.
    """
    if not len(unseen) or not len(images):
        raise InputError("nothing to compare: no images", allowed="at least one of each")
    distances, _ = nearest_distances(images, training)
    natural, _ = nearest_distances(unseen, training)
    threshold = float(np.quantile(natural, quantile))
    close = np.flatnonzero(distances < threshold)
    return Memorisation(
        float(np.median(distances)),
        float(np.median(natural)),
        threshold,
        quantile,
        len(close) / len(images),
        close[np.argsort(distances[close], kind="stable")],
    )


class Filtered:
    """A generator whose images are judged, and redrawn until they show the requested class.

    Each image has at most `tries` draws, with different seeds. If none is right the last one is
    kept, so that a plan is always met, and `unmet` counts it.
    """

    def __init__(self, inner: Generator, classify: Classify, name: str, tries: int = 4) -> None:
        if not 1 <= tries <= 100:
            raise InputError("not a number of tries", got=tries, allowed="1 to 100")
        self._inner, self._classify, self._tries = inner, classify, tries
        self.classes = getattr(inner, "classes", None)
        digest = hashlib.sha256(f"{inner.fingerprint}\n{name}\n{tries}".encode()).hexdigest()
        self.fingerprint = f"filtered-{digest}"
        self.drawn = self.unmet = 0

    def sample(self, labels: Ints, seeds: NDArray[np.uint64]) -> Bytes:
        """Draw images, and redraw those that are judged wrong."""
        images = self._inner.sample(labels, seeds)
        self.drawn += len(labels)
        wrong = np.flatnonzero(self._classify(images) != labels)
        for attempt in range(1, self._tries):
            if not wrong.size:
                break
            again = np.array([_another(int(seed), attempt) for seed in seeds[wrong]], np.uint64)
            redrawn = self._inner.sample(labels[wrong], again)
            self.drawn += len(wrong)
            images[wrong] = redrawn
            wrong = wrong[self._classify(redrawn) != labels[wrong]]
        self.unmet += len(wrong)
        return images


def _another(seed: int, attempt: int) -> int:
    """Return the seed of a further draw."""
    return int.from_bytes(hashlib.sha256(f"{seed}/{attempt}".encode()).digest()[:8], "little")
