"""`private` for images: a Gaussian per class in low frequencies, clipped to [0, 1].

Two noisy sums say what is needed: means and second moments of every class, and second moments of
all images together, which have more samples to one noise and so show finer things. The covariance
within classes is that of all images without what lies between the classes' means, as far as it
stands out from the noise (`base.py`). The variance that the noise hides is known in sum, and is
spread as it is in images of all kinds: less the higher the frequency. Every class leans on this
covariance, and differs from it as far as that can be seen.

A pixel of a Gaussian would be below black as often as its mean is near black, and all images would
be covered in speckles. So every pixel is a normal that is clipped to [0, 1], with the mean and the
standard deviation that the sums say it has, and the correlations of the Gaussian.

What the sums do not say is the texture: images without any would teach a network that texture is a
class of its own. So each gets noise of a strength of its own.
"""

import math
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from fedeas._internal.files import check_cells
from fedeas.generators.card import GeneratorCard
from fedeas.private.generator.base import PrivateGenerator, noise_edge, spectrum
from fedeas.private.generator.card import make_card
from fedeas.private.queries.moments import (
    FREQUENCIES,
    ImageMoments,
    ImageProducts,
    NoisyMoments,
    check_shape,
    cosines,
    largest_norm,
)
from fedeas.private.queries.query import Floats
from fedeas.private.sums import Ask
from fedeas.train.tensors import Tensors

METHOD = "moments"
_BY_CLASS = 0.75  # of the privacy budget; the rest is for second moments of all images together
_LEAST_STD = 0.01  # of a pixel
# The strongest noise of a texture: of a pixel's own light, and of white.
_GRAIN, _SPECKLE = 1.0, 1 / 3
_MUCH = 4.0  # a mean's noise in that of another, from which on it tells nothing
_FALLOFF = 3.0  # variances fall with this power of the frequency
_LEAST_MEAN = 1e-4  # a mean's distance from 0 and 1
_WIDEST = 0.95  # of the standard deviation that a number in [0, 1] can have at a mean
_HALVINGS = 26


class Normals(NamedTuple):
    """A normal distribution of every class's coefficients."""

    counts: Floats
    means: Floats
    covariances: Floats
    quality: tuple[float, ...]


class GaussianImages(PrivateGenerator):
    """Draws images of every class."""

    def __init__(self, means: Floats, roots: Floats, card: GeneratorCard) -> None:
        tensors = {"means": torch.from_numpy(means), "roots": torch.from_numpy(roots)}
        super().__init__(card, tensors)
        self._roots = roots
        frequencies = math.isqrt(means.shape[1] // card.shape[2])
        self._down, self._across = (cosines(n, frequencies) for n in card.shape[:2])
        self._means = means
        self._of_class: dict[int, tuple[Floats, Floats]] = {}

    @classmethod
    def make(cls, classes: tuple[str, ...], shape: tuple[int, ...], ask: Ask) -> "GaussianImages":
        """Make the generator from two sums.

        Parameters
        ----------
        classes, shape
            The names of the classes, and the shape of an image.
        ask
            Asks all sites a query, for a share of the privacy budget.
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
        card = make_card(
            METHOD, classes, shape, (released, other), normals.counts, normals.quality,
            {"frequencies": most},
        )  # fmt: skip
        return cls(normals.means, _roots(normals), card)

    def sample(self, labels: NDArray[np.int64], seeds: NDArray[np.uint64]) -> NDArray[np.uint8]:
        """Draw one image per label and seed."""
        images = np.empty((len(labels), *self.card.shape), np.uint8)
        for place, (label, seed) in enumerate(zip(labels.tolist(), seeds.tolist(), strict=True)):
            rng = np.random.default_rng(seed)
            field = self._pixels(self._roots[label] @ rng.standard_normal(self._roots.shape[2]))
            middle, width = self._normals(label)
            light = np.clip(middle + width * field, 0.0, 1.0)
            images[place] = _add_grain(light, rng)
        return images

    def _normals(self, label: int) -> tuple[Floats, Floats]:
        """Return where a class's pixels are before they are clipped, and how wide they vary.

        Made on first use: a small card may claim many classes of large images.
        """
        if label not in self._of_class:
            scale = largest_norm(self.card.shape)
            variance = np.zeros(self.card.shape)
            for column in self._roots[label].T:
                variance += np.square(self._pixels(scale * column))
            std = np.maximum(np.sqrt(variance), _LEAST_STD)
            middle, width = clipped_normal(self._pixels(scale * self._means[label]) + 0.5, std)
            self._of_class[label] = middle, width * (scale / std)
        return self._of_class[label]

    def _pixels(self, coefficients: Floats) -> Floats:
        """Return height x width x channels of an image, from its frequencies."""
        side = len(self._down)
        square = coefficients.reshape(self.card.shape[2], side, side)  # channels, rows, columns
        return (self._down.T @ square @ self._across).transpose(1, 2, 0)

    @classmethod
    def from_tensors(cls, card: GeneratorCard, tensors: Tensors) -> "GaussianImages":
        """Make the generator of a card and weights, which anybody may have sent."""
        check_shape(card.shape)
        frequencies = int(card.settings["frequencies"])
        if not 0 < frequencies <= min(card.shape[:2]):
            raise ValueError("more frequencies than pixels")
        check_cells(len(card.classes) * math.prod(card.shape), "the generator's mean images")
        size = card.shape[2] * frequencies**2
        means, roots = (tensors[name].double().numpy() for name in ("means", "roots"))
        if means.shape != (len(card.classes), size) or roots.shape != (*means.shape, size):
            raise ValueError("other shapes")
        if not (np.isfinite(means).all() and np.isfinite(roots).all()):
            raise ValueError("not finite")
        return cls(means, roots, card)


def _add_grain(light: Floats, rng: np.random.Generator) -> NDArray[np.uint8]:
    """Return an image with noise of a strength of its own, in 255 parts of white."""
    of_light, of_white = rng.random(2) * (_GRAIN, _SPECKLE)
    light = light + light * of_light * rng.standard_normal(light.shape)
    light += of_white * rng.standard_normal(light.shape)
    return np.rint(255 * np.clip(light, 0.0, 1.0)).astype(np.uint8)


def _roots(normals: Normals) -> Floats:
    """Return a root of every covariance."""
    values, vectors = np.linalg.eigh(normals.covariances)
    roots: Floats = vectors * np.sqrt(np.maximum(values, 0.0))[:, np.newaxis, :]
    return roots


def image_normals(moments: NoisyMoments, together: Floats, error: float, channels: int) -> Normals:
    """Return a normal distribution per class, without noise as far as can be.

    Parameters
    ----------
    moments
        Of the classes.
    together, error
        The sum of x x^T over all images, and the standard error of a diagonal entry.
    channels
        Of an image.
    """
    total = moments.counts.sum()
    weights = moments.counts / total
    means = moments.means
    within = together / total - np.einsum("c,ci,cj->ij", weights, means, means)
    # The noise of a mean adds its variance to the square of the mean, on the diagonal.
    within += weights @ np.square(moments.mean_errors) * np.eye(len(within))
    off_diagonal = error / total / math.sqrt(2)
    edge = noise_edge(off_diagonal, len(within))
    common = _completed(spectrum(within, off_diagonal).matrix(), within, channels)
    covariances = np.empty((len(means), *common.shape))
    for c, (raw, noise) in enumerate(
        zip(moments.covariances(), moments.second_errors.tolist(), strict=True)
    ):
        # What makes a class differ from all of them, as far as it can be seen.
        beyond = raw - common
        values, vectors = np.linalg.eigh((beyond + beyond.T) / 2)
        limit = noise_edge(noise / math.sqrt(2), len(raw))
        visible = np.sign(values) * np.maximum(np.abs(values) - limit, 0.0)
        values, vectors = np.linalg.eigh(common + (vectors * visible) @ vectors.T)
        covariances[c] = (vectors * np.maximum(values, 0.0)) @ vectors.T
    return Normals(moments.counts, means, covariances, _quality(moments, common, edge))


def _completed(visible: Floats, noisy: Floats, channels: int) -> Floats:
    """Add the variance that the noise hides, in the directions of which nothing is visible."""
    hidden = float(np.trace(noisy) - np.trace(visible))  # a trace with noise is right on average
    values, vectors = np.linalg.eigh(visible)
    empty = vectors[:, values <= 1e-9 * max(float(values[-1]), 1e-300)]
    if hidden <= 0 or not empty.size:
        return visible
    side = math.isqrt(len(visible) // channels)
    frequency = np.tile(np.hypot(*np.indices((side, side))).ravel(), channels)
    spread = empty.T @ ((1 + frequency)[:, np.newaxis] ** -_FALLOFF * empty)
    whole: Floats = visible + hidden / np.trace(spread) * (empty @ spread @ empty.T)
    return whole


def _quality(moments: NoisyMoments, common: Floats, edge: float) -> tuple[float, ...]:
    """Return D / (D + E) for every class: 1 without noise, 0 if nothing tells it from another.

    D is the squared distance of the nearest other class's mean, E that which the noise of its own
    brings about, both in units of the spread within classes, of which less than the noise's edge is
    not seen. Others whose means are known much less well are not looked at: from a class of a few
    images, whose mean is all noise, nothing could be told apart.
    """
    values, vectors = np.linalg.eigh(common)
    scale = 1 / np.sqrt(np.maximum(values, 0.0) + edge + 1e-12)
    white = moments.means @ (vectors * scale)
    distances = np.square(white[:, np.newaxis] - white).sum(axis=2)
    noise = np.square(moments.mean_errors) * np.square(scale).sum()
    # Distances with noise in them are longer by that noise.
    distances = np.maximum(distances - noise - noise[:, np.newaxis], 0.0)
    comparable = noise <= _MUCH * np.maximum(noise, np.sort(noise)[1])[:, np.newaxis]
    distances[~comparable] = np.inf
    np.fill_diagonal(distances, np.inf)
    nearest = distances.min(axis=1)
    return tuple((nearest / np.maximum(nearest + noise, 1e-12)).round(5).tolist())


def clipped_normal(means: Floats, stds: Floats) -> tuple[Floats, Floats]:
    """Return the mean and the standard deviation of normals before they are clipped to [0, 1].

    Parameters
    ----------
    means, stds
        Mean and standard deviation after clipping, as near as these can be reached.

    >>> middle, width = clipped_normal(np.array([0.5, 0.05]), np.array([0.1, 0.1]))
    >>> [round(float(x), 2) for x in (*middle, *width)]
    [0.5, -0.1, 0.1, 0.23]
    """
    means = np.clip(means, _LEAST_MEAN, 1 - _LEAST_MEAN)
    stds = np.minimum(stds, _WIDEST * np.sqrt(means * (1 - means)))
    # At a given mean a wider normal is wider when clipped, too: halve, in logarithms.
    low, high = np.log(stds), np.full_like(stds, math.log(50.0))
    for _ in range(_HALVINGS):
        width = np.exp((low + high) / 2)
        narrow = _clipped(_middle(means, width), width)[1] < stds
        low, high = (
            np.where(narrow, (low + high) / 2, low),
            np.where(narrow, high, (low + high) / 2),
        )
    width = np.exp((low + high) / 2)
    return _middle(means, width), width


def _middle(means: Floats, widths: Floats) -> Floats:
    """Return the means of normals of given widths that have these means when clipped."""
    low, high = -4 * widths, 1 + 4 * widths  # a mean of 1e-4 is not further out
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        dark = _clipped(middle, widths)[0] < means
        low, high = np.where(dark, middle, low), np.where(dark, high, middle)
    return np.asarray((low + high) / 2)


def _clipped(middle: Floats, width: Floats) -> tuple[Floats, Floats]:
    """Return the mean and the standard deviation of clipped normals."""
    black, white = -middle / width, (1 - middle) / width
    below, above = (torch.special.ndtr(torch.from_numpy(x)).numpy() for x in (black, -white))
    at_black, at_white = (
        np.exp(-np.square(x) / 2) / math.sqrt(2 * math.pi) for x in (black, white)
    )
    inside = 1 - below - above
    mean = middle * inside + width * (at_black - at_white) + above
    square = (
        (np.square(middle) + np.square(width)) * inside
        + width * (middle * at_black - (1 + middle) * at_white)
        + above
    )
    return mean, np.sqrt(np.maximum(square - np.square(mean), 0.0))
