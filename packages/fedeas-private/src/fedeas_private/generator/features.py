"""`private(method=features)`: samples optimised to match noisy random-convolution statistics.

Two noisy sums make Gaussians of low frequencies (`images.py`). Their samples, images without edges
or textures, are optimised: two more sums say what public random filters see in the sites' images,
and the pixels of the samples are changed, all together, so that the features of every class have
the right mean, and the features of all of them the right covariance around these means. Distances
are counted in that covariance: where features hardly vary within a class, a small distance tells
two classes apart. What comes out is a store of images, all of it made from the sums: a sample is
one of them, with grain.

What the noise hides is not followed. Of a mean's distance from the Gaussians' only the part counts
that stands out from the noise, direction by direction. The covariance is matched in directions
beyond the noise's edge (`base.py`); in others it stays as it is.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional

from fedeas._util.progress import Update
from fedeas._util.seeds import child_rng
from fedeas.errors import InputError
from fedeas.generators.card import GeneratorCard
from fedeas.training.tensors import Tensors
from fedeas_private.generator.base import PrivateGenerator, noise_edge, spectrum
from fedeas_private.generator.card import make_card
from fedeas_private.generator.images import GaussianImages, add_grain
from fedeas_private.queries.features import (
    CELLS,
    FACTORS,
    LEAST_SIDE,
    FeatureMeans,
    FeatureProducts,
    FeatureSum,
    cells,
    conv_features,
    feature_count,
    layers,
    reduction,
)
from fedeas_private.queries.features import STEPS as _DIVISORS
from fedeas_private.queries.query import Floats, SampleSum
from fedeas_private.sums import Ask, Release

METHOD = "features"
# Split of the privacy budget: for the Gaussians, and for the means and the products of features.
_GAUSSIANS, _MEANS, _PRODUCTS = 0.3, 0.2, 0.5
_FEW, _ALL = (1,), (0, 1, 2)  # layers of filters
_STORE, _EACH = 9000, 900  # images in all, and of a class, at most
_MOST_BYTES = 2**25  # of the store: real sites are sent all of it
_LARGEST_SIDE = 64
_LEAST_EACH = 60
# Clipping norms of a sample's features, in medians of the Gaussian samples' distances from their
# centres. Products are measured from better centres.
MEANS_CLIP, PRODUCTS_CLIP = 1.5, 1.2
_LEAST_SCALE = 0.05  # of the mean deviation of features: some hardly vary in the samples
_GRAIN, _SPECKLE = 0.5, 0.1  # the strongest
STEPS = 100
_RATE = 0.02  # of Adam, in white, at the first step; it falls along a cosine
_BLOCK = 500  # images at a time
_LEAST_VARIANCE = 0.01  # of the mean variance, added to every variance


class FeatureImages(PrivateGenerator):
    """Draws images out of a store."""

    def __init__(self, images: NDArray[np.uint8], card: GeneratorCard) -> None:
        super().__init__(card, {"images": torch.from_numpy(images)})
        self._images = images

    @classmethod
    def make(
        cls,
        classes: tuple[str, ...],
        shape: tuple[int, ...],
        ask: Ask,
        seed: int = 0,
        steps: int | None = None,
        progress: Update | None = None,
    ) -> "FeatureImages":
        """Make the generator from four sums.

        Parameters
        ----------
        classes, shape
            The names of the classes, and the shape of an image.
        ask
            Asks all sites a query, for a share of the privacy budget.
        seed
            Of the Gaussian samples.
        steps
            Optimisation steps.
        progress
            Called with the steps that are done, of how many, and a description.
        """
        steps, each = steps or STEPS, _each(len(classes), shape)  # before anything is paid for
        noise = 0.0  # of the whole budget, where one sample moves a sum by 1
        first: list[Release] = []

        def ask_first(query: SampleSum, share: float) -> Release:
            nonlocal noise
            released = ask(query, share * _GAUSSIANS)
            noise = released.sigma / query.sensitivity * math.sqrt(share * _GAUSSIANS)
            first.append(released)
            return released

        gaussian = GaussianImages.make(classes, shape, ask_first)
        which = which_layers(noise, sum(gaussian.card.counts))
        labels = np.tile(np.arange(len(classes)), each)
        seeds = child_rng(seed, "draws").integers(2**63, size=len(labels)).astype(np.uint64)
        images = gaussian.sample(labels, seeds, grain=False)
        target, scale, releases = _ask_target(images, labels, which, ask)
        card = make_card(
            METHOD, classes, shape, (*first, *releases), np.array(gaussian.card.counts),
            gaussian.card.quality, {"steps": steps},
        )  # fmt: skip
        images = optimise(images, labels, target, scale, which, steps, progress)
        return cls(images.reshape(-1, len(classes), *shape).swapaxes(0, 1).copy(), card)

    def sample(self, labels: NDArray[np.int64], seeds: NDArray[np.uint64]) -> NDArray[np.uint8]:
        """Draw one image per label and seed."""
        images = np.empty((len(labels), *self.card.shape), np.uint8)
        for at, (label, seed) in enumerate(zip(labels.tolist(), seeds.tolist(), strict=True)):
            rng = np.random.default_rng(seed)
            light = self._images[label, rng.integers(self._images.shape[1])] / 255
            images[at] = add_grain(light, _GRAIN, _SPECKLE, rng)
        return images

    @classmethod
    def from_tensors(cls, card: GeneratorCard, tensors: Tensors) -> "FeatureImages":
        """Make the generator of a card and weights, which anybody may have sent."""
        images = tensors["images"]
        classes, each, *shape = images.shape
        if images.dtype != torch.uint8 or len(shape) != 3 or not each:
            raise ValueError("not images")
        if classes != len(card.classes) or tuple(shape) != card.shape:
            raise ValueError("other shapes")
        return cls(images.numpy(), card)


def _each(classes: int, shape: tuple[int, ...]) -> int:
    """Return how many images of a class the store has, if there can be one."""
    each = min(_EACH, _STORE // classes, _MOST_BYTES // (classes * math.prod(shape)))
    sides = min(shape[:2]) >= LEAST_SIDE and max(shape[:2]) <= _LARGEST_SIDE
    if not (sides and shape[2] <= 3 and each >= _LEAST_EACH):
        raise InputError(
            f"private(method={METHOD}) is for small images of a few classes",
            got=f"{' x '.join(map(str, shape))}, {classes} classes",
            allowed=f"{LEAST_SIDE} to {_LARGEST_SIDE} pixels, {_STORE // _LEAST_EACH} classes",
            fix="use private(method=moments)",
        )
    return each


def which_layers(noise: float, samples: float) -> tuple[int, ...]:
    """Return the layers whose features are asked for: all, if the noise leaves their variance.

    Parameters
    ----------
    noise
        That of the whole budget, where one sample moves a sum by 1.
    samples
        The number of samples.
    """
    size = feature_count(_ALL)
    # A sample of norm 1 moves its products by about sqrt(1/2), and their trace is below 1.
    error = noise * math.sqrt(0.5 / _PRODUCTS) / max(samples, 1.0)
    return _ALL if noise_edge(error, size) < 1 / size else _FEW


class FeatureTarget(NamedTuple):
    """The moments that features are to have, in directions in which they vary independently."""

    directions: Floats  # features x directions: features in scales, to standard deviations
    means: Floats  # classes x directions
    variances: Floats  # along every direction
    visible: NDArray[np.bool_]  # whether a direction stands out from the noise


def _ask_target(
    images: NDArray[np.uint8], labels: NDArray[np.int64], which: tuple[int, ...], ask: Ask
) -> tuple[FeatureTarget, Floats, tuple[Release, Release]]:
    """Ask for the means of features, measured from those of some images, then for products.

    Returns what features should be, how large a feature is that counts as 1, and the sums.
    """
    count, shape = int(labels.max()) + 1, images.shape[1:]
    features = conv_features(images, which).astype(np.float64)
    scale = features.std(axis=0)
    scale += _LEAST_SCALE * scale.mean() + 1
    centre = np.stack([features[labels == c].mean(axis=0) for c in range(count)])
    distances = np.linalg.norm((features - centre[labels]) / scale, axis=1)
    median = max(float(np.median(distances)), 1e-3)
    first = FeatureMeans(
        count, shape, _integers(centre), _scales(scale, MEANS_CLIP * median), which
    )
    released = ask(first, _MEANS)
    means = first.read(released.sums, released.sigma, released.sites)
    # The centre of the products: the means, where the noise leaves anything of them.
    measured = np.array(first.centre) + means.means * np.array(first.scale)
    second = FeatureProducts(
        count, shape, _integers(measured), _scales(scale, PRODUCTS_CLIP * median), which
    )
    answer = ask(second, _PRODUCTS)
    products = second.read(answer.sums, answer.sigma, answer.sites)
    # All in units of the products' scales.
    unit = np.array(second.scale, float)
    change = np.array(first.scale) / unit
    target = find_target(
        np.array(first.centre) / unit,
        means._replace(means=means.means * change, errors=means.errors * change.mean()),
        products,
    )
    return target, unit, (released, answer)


def _integers(centre: Floats) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(row) for row in np.rint(centre).astype(np.int64).tolist())


def _scales(scale: Floats, clipping_norm: float) -> tuple[int, ...]:
    return tuple(math.ceil(x) for x in (scale * clipping_norm).tolist())


def find_target(centre: Floats, means: FeatureSum, products: FeatureSum) -> FeatureTarget:
    """Return the target that noisy sums say.

    Parameters
    ----------
    centre
        From where features were measured, classes x features, in scales.
    means, products
        The sums' means of the classes, and of products around them.
    """
    size = centre.shape[1]
    products_seen = spectrum(products.means, float(products.errors[0]))
    visible = products_seen.visible
    total = max(float(np.trace(products.means)), 1e-12)
    hidden = total - float(products_seen.true.sum())
    rest = max(hidden, 0.0) / max(int((~visible).sum()), 1)
    variances = np.where(visible, products_seen.true, rest) + _LEAST_VARIANCE * total / size
    directions: Floats = products_seen.vectors / np.sqrt(variances)
    # What a class's mean adds to its centre, direction by direction, as far as it is no noise.
    shift = means.means @ directions
    noise = np.square(means.errors)[:, np.newaxis] / variances
    truth = np.maximum((np.square(shift) - noise).mean(axis=0), 0.0)
    shift *= truth / np.maximum(truth + noise, 1e-300)
    goal: Floats = centre @ directions + shift
    return FeatureTarget(directions, goal, products_seen.true / variances, visible)


def optimise(
    images: NDArray[np.uint8],
    labels: NDArray[np.int64],
    target: FeatureTarget,
    scale: Floats,
    which: Sequence[int],
    steps: int = STEPS,
    progress: Update | None = None,
) -> NDArray[np.uint8]:
    """Return the images, changed until their features have the target's moments.

    Parameters
    ----------
    images, labels
        Initial images, and their classes.
    target
        What is to be reached.
    scale
        How large a feature is that counts as 1.
    which
        The layers of filters whose features they are.
    steps
        Optimisation steps of all images together.
    progress
        Called after every step.
    """
    x = torch.from_numpy(images).permute(0, 3, 1, 2).float().div_(255)
    optimizer = torch.optim.Adam([x], _RATE, betas=(0.9, 0.999))
    project = torch.from_numpy(target.directions / scale[:, np.newaxis]).float()
    goal = torch.from_numpy(target.means).float()
    visible = torch.from_numpy(target.visible).float()
    variances = torch.diag(torch.from_numpy(target.variances).float())
    classes = torch.from_numpy(labels)
    shares = functional.one_hot(classes, len(goal)).float()
    shares /= shares.sum(0).clamp(min=1)
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = _RATE * (1 + math.cos(math.pi * step / steps)) / 2
        # Two passes would compute the features twice; their graphs fit into memory.
        leaves = [block.clone().requires_grad_() for block in torch.split(x, _BLOCK)]
        features = [torch_features(leaf, which) for leaf in leaves]
        with torch.no_grad():
            projected = torch.cat(features) @ project
            means = shares.T @ projected
            residuals = projected - means[classes]
            excess = residuals.T @ residuals / len(x) - variances
            excess *= visible * visible[:, None]
            errors = means - goal
            # The gradient in the features, of squared distances of means and of products.
            slope = 2 * shares.sum(1, keepdim=True) * errors[classes]
            slope = (slope + 4 / len(x) * residuals @ excess) @ project.T
        x.grad = torch.cat(torch.autograd.grad(features, leaves, torch.split(slope, _BLOCK)))
        optimizer.step()
        x.clamp_(0, 1)
        if progress is not None:
            distance = errors.square().sum(1).mean().sqrt()
            progress(step + 1, steps, f"steps, distance {distance:.2f}")
    return x.mul_(255).round_().to(torch.uint8).permute(0, 2, 3, 1).numpy()


def torch_features(images: torch.Tensor, which: Sequence[int]) -> torch.Tensor:
    """Return `conv_features` of N x colours x height x width from 0 to 1, with a gradient.

    Sites evaluate the same filters in whole numbers and without torch: what one sample moves must
    be exact, which a differentiable evaluation is not.
    """
    factor = reduction(*images.shape[2:])
    maps = 255 * (functional.avg_pool2d(images, factor) if factor > 1 else images)
    features = []
    for k, layer in enumerate(layers(images.shape[1])[: max(which) + 1]):
        if k > 0:
            maps = functional.avg_pool2d(maps, 2) * (4 / _DIVISORS[k - 1])
        filters, offsets = map(torch.from_numpy, layer)
        maps = functional.conv2d(maps, filters, offsets, padding=1).relu_()  # held once
        if k in which:
            down, across = (torch.from_numpy(cells(n, CELLS[k])).float() for n in maps.shape[2:])
            features.append((FACTORS[k] * down @ maps @ across.T).flatten(1))
    return torch.cat(features, 1)
