"""`own` for images: a Gaussian per class in low frequencies, drawn as light from black to white.

Two noisy sums say what is needed: means and second moments of every class, and second moments of
all images together, which have more samples to one noise and so show finer things.

A pixel of a Gaussian would be below black as often as its mean is near black, and all images would
be covered in speckles. So every pixel is a normal that is clipped to [0, 1], with the mean and the
spread that the sums say it has, and the correlations of the Gaussian.

What the sums do not say is the texture: images without any would teach a network that texture is a
class of its own. So each gets noise of a strength of its own.
"""

import math
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from fedeas.errors import InputError
from fedeas.generators.own.card import WEIGHTS, Card
from fedeas.generators.own.clipped_normal import clipped_normal
from fedeas.generators.own.image_moments import Normals, image_normals
from fedeas.privacy.queries.image_moments import (
    FREQUENCIES,
    ImageMoments,
    ImageProducts,
    cosines,
    largest_norm,
)
from fedeas.privacy.queries.query import Floats
from fedeas.privacy.release import Ask
from fedeas.tensors import load_tensors, save_tensors, tensors_digest

WAY = "moments"
_BY_CLASS = 0.75  # of the cost; the rest is for second moments of all images together
_LEAST_SPREAD = 0.01  # of a pixel
# The strongest noise of a texture: of a pixel's own light, and of white.
_GRAIN, _SPECKLE = 1.0, 1 / 3


class Gaussians:
    """Draws images of every class."""

    def __init__(self, means: Floats, roots: Floats, card: Card) -> None:
        self.card, self.classes = card, card.classes
        self.training_data = card.training_data
        self._roots = roots
        held = {"means": torch.from_numpy(means), "roots": torch.from_numpy(roots)}
        self.fingerprint = f"own-{tensors_digest(held, repr(card.shape))}"
        self._means = means
        frequencies = math.isqrt(means.shape[1] // card.shape[2])
        self._down, self._across = (cosines(n, frequencies) for n in card.shape[:2])
        scale = largest_norm(card.shape)
        bright = np.stack([self._pixels(scale * mean) for mean in means]) + 0.5
        factors = (self._pixels(scale * column) for root in roots for column in root.T)
        variances = np.zeros_like(bright)
        for place, factor in enumerate(factors):
            variances[place // roots.shape[2]] += np.square(factor)
        spread = np.maximum(np.sqrt(variances), _LEAST_SPREAD)
        self._middle, self._width = clipped_normal(bright, spread)
        self._width *= scale / spread

    @classmethod
    def make(cls, classes: tuple[str, ...], shape: tuple[int, ...], ask: Ask) -> "Gaussians":
        """Make the generator from two sums.

        Parameters
        ----------
        classes, shape
            The names of the classes, and the shape of an image.
        ask
            Asks all sites a query, for a part of the whole cost.
        """
        most = min(FREQUENCIES, *shape[:2])  # of a small image, all there are
        moments = ImageMoments(len(classes), shape, most)
        together = ImageProducts(len(classes), shape, most)
        released, other = ask(moments, _BY_CLASS), ask(together, 1 - _BY_CLASS)
        normals = image_normals(
            moments.read(released.sums, released.sigma, released.sites),
            *together.read(other.sums, other.sigma, other.sites),
            channels=shape[2],
        )
        card = Card(
            WAY, classes, shape, released.epsilon, released.delta,
            min(released.sites, other.sites), tuple(normals.counts.round(1).tolist()),
            normals.quality, {"frequencies": most},
        )  # fmt: skip
        return cls(normals.means, _roots(normals), card)

    def sample(
        self, labels: NDArray[np.int64], seeds: NDArray[np.uint64], grain: bool = True
    ) -> NDArray[np.uint8]:
        """Draw one image per label and seed, smooth on request."""
        images = np.empty((len(labels), *self.card.shape), np.uint8)
        for place, (label, seed) in enumerate(zip(labels.tolist(), seeds.tolist(), strict=True)):
            rng = np.random.default_rng(seed)
            field = self._pixels(self._roots[label] @ rng.standard_normal(self._roots.shape[2]))
            light = np.clip(self._middle[label] + self._width[label] * field, 0.0, 1.0)
            strongest = (_GRAIN, _SPECKLE) if grain else (0.0, 0.0)
            images[place] = grained(light, *strongest, rng)
        return images

    def _pixels(self, coefficients: Floats) -> Floats:
        """Return height x width x channels of an image, from its frequencies."""
        side = len(self._down)
        square = coefficients.reshape(self.card.shape[2], side, side)  # channels, rows, columns
        found: Floats = (self._down.T @ square @ self._across).transpose(1, 2, 0)
        return found

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
            frequencies = int(card.settings["frequencies"])
            if not 0 < frequencies <= min(card.shape[:2]):
                raise ValueError("more frequencies than pixels")
            size = card.shape[2] * frequencies**2
            means, roots = held["means"].double().numpy(), held["roots"].double().numpy()
            if means.shape != (len(card.classes), size) or roots.shape != (*means.shape, size):
                raise ValueError("other shapes")
            if not (np.isfinite(means).all() and np.isfinite(roots).all()):
                raise ValueError("not finite")
        except (KeyError, IndexError, TypeError, ValueError):
            raise InputError(f"the weights in {folder} do not match its card") from None
        return cls(means, roots, card)


def grained(
    light: Floats, grain: float, speckle: float, rng: np.random.Generator
) -> NDArray[np.uint8]:
    """Return an image with noise of a strength of its own, in 255 parts of white.

    Parameters
    ----------
    light
        The image, from 0 to 1.
    grain, speckle
        The strongest noise: of a pixel's own light, and of white.
    rng
        Of strength and noise.
    """
    of_light, of_white = rng.random(2) * (grain, speckle)
    light = light + light * of_light * rng.standard_normal(light.shape)
    light += of_white * rng.standard_normal(light.shape)
    found: NDArray[np.uint8] = np.rint(255 * np.clip(light, 0.0, 1.0)).astype(np.uint8)
    return found


def _roots(normals: Normals) -> Floats:
    """Return a root of every covariance."""
    values, vectors = np.linalg.eigh(normals.covariances)
    roots: Floats = vectors * np.sqrt(np.maximum(values, 0.0))[:, np.newaxis, :]
    return roots
