"""`own(way=moments)`: a Gaussian per class, with the noise taken out of its covariance.

The noise of a covariance is a symmetric matrix of independent entries, whose eigenvalues fill the
interval up to an edge, sqrt(2 d) times the error of a diagonal entry (Wigner). What the data add
beyond the edge is kept, corrected for how the noise enlarges it and turns its direction; the rest
cannot be told from noise. Every class also leans on the covariance within classes of all of them,
whose noise is smaller, the more so the fewer samples it has.
"""

import math
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from fedeas.errors import InputError
from fedeas.generators.own.card import WEIGHTS, Card
from fedeas.privacy.queries.moments import ImageMoments, Moments, cosines
from fedeas.privacy.queries.query import Floats
from fedeas.privacy.release import Release
from fedeas.tensors import load_tensors, save_tensors, tensors_digest

WAY = "moments"


def cleaned(covariance: Floats, error: float) -> Floats:
    """Return the part of a covariance that stands out from noise, as a positive matrix.

    Parameters
    ----------
    covariance
        A symmetric matrix with noise.
    error
        The standard error of a diagonal entry; others have 1 / sqrt(2) of it.

    >>> cleaned(np.diag([4.0, 0.1]), 0.0)
    array([[4. , 0. ],
           [0. , 0.1]])
    """
    values, vectors = np.linalg.eigh((covariance + covariance.T) / 2)
    spread = error / math.sqrt(2) * math.sqrt(len(values))  # the edge is at twice this
    above = values > 2 * spread
    # A true value t appears as t + spread^2 / t; solve for t. The part of its direction that is
    # right, 1 - spread^2 / t^2, is what may be drawn along it.
    seen = np.where(above, values, 1.0)
    true = (seen + np.sqrt(np.maximum(seen**2 - 4 * spread**2, 0.0))) / 2
    kept = np.where(above, np.maximum(true - spread**2 / np.maximum(true, 1e-300), 0.0), 0.0)
    found: Floats = (vectors * kept) @ vectors.T
    return found


def class_covariances(moments: Moments) -> Floats:
    """Return a clean covariance per class, leaning on that of all classes together."""
    raw = moments.covariances()
    d = raw.shape[1]
    weights = moments.counts / moments.counts.sum()
    pooled = cleaned(
        np.einsum("c,cij->ij", weights, raw),
        float(np.sqrt(np.sum(np.square(weights * moments.second_errors)))),
    )
    found: Floats = np.empty_like(raw)
    for c, error in enumerate(moments.second_errors):
        beyond = raw[c] - pooled
        # What makes a class differ from all of them, as far as it can be seen.
        edge = float(error) * math.sqrt(2 * d)
        values, vectors = np.linalg.eigh((beyond + beyond.T) / 2)
        kept = np.sign(values) * np.maximum(np.abs(values) - edge, 0.0)
        mixed = pooled + (vectors * kept) @ vectors.T
        values, vectors = np.linalg.eigh(mixed)
        found[c] = (vectors * np.maximum(values, 0.0)) @ vectors.T
    return found


class Gaussians:
    """Draws coefficients from a Gaussian per class, and images from them."""

    def __init__(self, means: Floats, roots: Floats, card: Card) -> None:
        self._means, self._roots, self.card, self.classes = means, roots, card, card.classes
        held = {"means": torch.from_numpy(means), "roots": torch.from_numpy(roots)}
        self.fingerprint = f"own-{tensors_digest(held, repr(card.shape))}"

    @classmethod
    def make(cls, query: ImageMoments, released: Release, classes: tuple[str, ...]) -> "Gaussians":
        """Make the Gaussians that the sums say.

        Parameters
        ----------
        query, released
            What was asked, and the noisy sum.
        classes
            The names of the classes.
        """
        moments = query.read(released.sums, released.sigma, released.sites)
        covariances = class_covariances(moments)
        values, vectors = np.linalg.eigh(covariances)
        roots = vectors * np.sqrt(np.maximum(values, 0.0))[:, np.newaxis, :]
        card = Card(
            WAY, classes, query.shape, released.epsilon, released.delta, released.sites,
            tuple(moments.counts.round(1).tolist()), _quality(moments, covariances),
            {"frequencies": query.frequencies},
        )  # fmt: skip
        return cls(moments.means, roots, card)

    def sample(self, labels: NDArray[np.int64], seeds: NDArray[np.uint64]) -> NDArray[np.uint8]:
        """Draw one image per label and seed."""
        height, width, channels = self.card.shape
        count = int(self.card.settings["frequencies"])
        rows, columns = cosines(height, count), cosines(width, count)
        scale = 0.5 * math.sqrt(height * width * channels)  # of `ImageMoments.largest`
        images = np.empty((len(labels), height, width, channels), np.uint8)
        for place, (label, seed) in enumerate(zip(labels.tolist(), seeds.tolist(), strict=True)):
            noise = np.random.default_rng(seed).standard_normal(self._roots.shape[2])
            drawn = self._means[label] + self._roots[label] @ noise
            frequencies = drawn.reshape(channels, count, count) * scale
            pixels = rows.T @ frequencies @ columns + 0.5
            levels = np.rint(255 * np.clip(pixels, 0.0, 1.0)).astype(np.uint8)
            images[place] = levels.transpose(1, 2, 0)
        return images

    def save(self, folder: Path) -> None:
        """Write the generator's folder: numbers, then the card."""
        folder.mkdir(parents=True, exist_ok=True)
        held = {"means": torch.from_numpy(self._means), "roots": torch.from_numpy(self._roots)}
        save_tensors(folder / WEIGHTS, held, {"way": WAY})
        self.card.write(folder)

    @classmethod
    def load(cls, folder: Path) -> "Gaussians":
        """Open a generator's folder."""
        card = Card.read(folder)
        held, _ = load_tensors(folder / WEIGHTS)
        try:
            size = card.shape[2] * int(card.settings["frequencies"]) ** 2
            means, roots = held["means"].double().numpy(), held["roots"].double().numpy()
            if means.shape != (len(card.classes), size) or roots.shape != (*means.shape, size):
                raise ValueError("other shapes")
        except (KeyError, IndexError, TypeError, ValueError):
            raise InputError(f"the weights in {folder} do not match its card") from None
        return cls(means, roots, card)


def _quality(moments: Moments, covariances: Floats) -> tuple[float, ...]:
    """Return what the noise leaves of every class, 1 at best.

    The part of its mean's squared distance from the other classes' mean that is not noise, times
    the part of its variance that is drawn.
    """
    classes, d = moments.means.shape
    others = (moments.means.sum(axis=0) - moments.means) / (classes - 1)
    apart = np.square(moments.means - others).sum(axis=1)
    noise = d * np.square(moments.mean_errors)
    clear = np.clip(1 - noise / np.maximum(apart, 1e-12), 0.0, 1.0)
    # The trace of a covariance with noise is right on average.
    whole = np.trace(moments.covariances(), axis1=1, axis2=2)
    drawn = np.trace(covariances, axis1=1, axis2=2) / np.maximum(whole, 1e-12)
    return tuple((clear * np.clip(drawn, 0.0, 1.0)).round(3).tolist())
