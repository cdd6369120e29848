"""`own(way=features)`: draws of Gaussians, changed until random filters see what they should.

Two noisy sums make Gaussians of low frequencies (`gaussians.py`). Their draws are images without
edges or textures. Two more sums say what public random filters see in the sites' images; the draws
are changed until the filters see the same in them. What comes out is a store of images, all of it
made from the sums: a sample is one of them, with grain.
"""

import math
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from fedeas.errors import InputError
from fedeas.generators.own.card import WEIGHTS, Card
from fedeas.generators.own.gaussians import Gaussians, grained
from fedeas.generators.own.matching import Report
from fedeas.generators.own.refine import STEPS, find_target, refine
from fedeas.privacy.queries.convolutions import LEAST_SIDE, conv_features, feature_count
from fedeas.privacy.queries.image_features import FeatureMeans, FeatureProducts
from fedeas.privacy.queries.query import Floats
from fedeas.privacy.queries.sample_sum import SampleSum
from fedeas.privacy.release import Ask, Release
from fedeas.seeds import child_rng
from fedeas.tensors import load_tensors, save_tensors, tensors_digest

WAY = "features"
# Parts of the cost: of the Gaussians, and of the means and the products of features.
_GAUSSIANS, _MEANS, _PRODUCTS = 0.3, 0.2, 0.5
_FEW, _ALL = (1,), (0, 1, 2)  # layers of filters
_STORE, _EACH = 9000, 900  # images in all, and of a class, at most
_MOST_BYTES = 2**25  # of the store: real sites are sent all of it
_LARGEST_SIDE = 64
_LEAST_EACH = 60
# How far a sample may be from its centre, in medians of the draws' distances; others are shortened.
# Products are measured from better centres.
_FAR_MEANS, _FAR_PRODUCTS = 1.5, 1.2
_LEAST_SCALE = 0.05  # of the mean spread of features: some hardly vary in the draws
_GRAIN, _SPECKLE = 0.5, 0.1  # the strongest


class Refined:
    """Draws images out of a store."""

    def __init__(self, images: NDArray[np.uint8], card: Card) -> None:
        self._images, self.card, self.classes = images, card, card.classes
        self.training_data = card.training_data
        self.fingerprint = f"own-{tensors_digest(self._held(), repr(card.shape))}"

    @classmethod
    def make(
        cls,
        classes: tuple[str, ...],
        shape: tuple[int, ...],
        ask: Ask,
        seed: int = 0,
        steps: int | None = None,
        report: Report | None = None,
    ) -> "Refined":
        """Make the generator from four sums.

        Parameters
        ----------
        classes, shape
            The names of the classes, and the shape of an image.
        ask
            Asks all sites a query, for a part of the whole cost.
        seed
            Of the draws.
        steps
            How often the draws are changed.
        report
            Told about progress.
        """
        steps, each = steps or STEPS, _each(len(classes), shape)  # before anything is paid for
        noise = 0.0  # of the whole cost, where one sample moves a sum by 1

        def ask_first(query: SampleSum, part: float) -> Release:
            nonlocal noise
            released = ask(query, part * _GAUSSIANS)
            noise = released.sigma / query.sensitivity * math.sqrt(part * _GAUSSIANS)
            return released

        begun = Gaussians.make(classes, shape, ask_first)
        which = which_layers(noise, sum(begun.card.counts))
        labels = np.tile(np.arange(len(classes)), each)
        seeds = child_rng(seed, "draws").integers(2**63, size=len(labels)).astype(np.uint64)
        drawn = begun.sample(labels, seeds, grain=False)
        seen = conv_features(drawn, which).astype(np.float64)
        scale = seen.std(axis=0)
        scale += _LEAST_SCALE * scale.mean() + 1
        centre = np.stack([seen[labels == c].mean(axis=0) for c in range(len(classes))])
        apart = np.linalg.norm((seen - centre[labels]) / scale, axis=1)
        far = max(float(np.median(apart)), 1e-3)
        query = FeatureMeans(
            len(classes), shape, _whole(centre), _scales(scale, _FAR_MEANS * far), which
        )
        released = ask(query, _MEANS)
        means = query.read(released.sums, released.sigma, released.sites)
        # The centre of the products: the means, where the noise leaves anything of them.
        measured = np.array(query.centre) + means.means * np.array(query.scale)
        other = FeatureProducts(
            len(classes), shape, _whole(measured), _scales(scale, _FAR_PRODUCTS * far), which
        )
        answer = ask(other, _PRODUCTS)
        products = other.read(answer.sums, answer.sigma, answer.sites)
        # All in units of the products' scales.
        unit = np.array(other.scale, float)
        change = np.array(query.scale) / unit
        target = find_target(
            np.array(query.centre) / unit,
            means._replace(means=means.means * change, errors=means.errors * change.mean()),
            products,
        )
        card = Card(
            WAY, classes, shape, released.epsilon, released.delta,
            min(begun.card.sites, released.sites, answer.sites),
            begun.card.counts, begun.card.quality, {"steps": steps},
        )  # fmt: skip
        images = refine(drawn, labels, target, unit, which, steps, report)
        return cls(images.reshape(-1, len(classes), *shape).swapaxes(0, 1).copy(), card)

    def sample(self, labels: NDArray[np.int64], seeds: NDArray[np.uint64]) -> NDArray[np.uint8]:
        """Draw one image per label and seed."""
        images = np.empty((len(labels), *self.card.shape), np.uint8)
        for place, (label, seed) in enumerate(zip(labels.tolist(), seeds.tolist(), strict=True)):
            rng = np.random.default_rng(seed)
            light = self._images[label, rng.integers(self._images.shape[1])] / 255
            images[place] = grained(light, _GRAIN, _SPECKLE, rng)
        return images

    def _held(self) -> dict[str, torch.Tensor]:
        return {"images": torch.from_numpy(self._images)}

    def save(self, folder: Path) -> None:
        """Write the generator's folder: images, then the card."""
        folder.mkdir(parents=True, exist_ok=True)
        save_tensors(folder / WEIGHTS, self._held(), {"way": WAY})
        self.card.write(folder)

    @classmethod
    def load(cls, folder: Path) -> "Refined":
        """Open a generator's folder."""
        card = Card.read(folder)
        held, _ = load_tensors(folder / WEIGHTS)
        images = held.get("images")
        if images is None or images.dtype != torch.uint8 or images.ndim != 5:
            raise InputError(f"the weights in {folder} do not match its card")
        classes, each, *shape = images.shape
        if classes != len(card.classes) or not each or tuple(shape) != card.shape:
            raise InputError(f"the weights in {folder} do not match its card")
        return cls(images.numpy(), card)


def _each(classes: int, shape: tuple[int, ...]) -> int:
    """Return how many images of a class the store has, if there can be one."""
    each = min(_EACH, _STORE // classes, _MOST_BYTES // (classes * math.prod(shape)))
    sides = min(shape[:2]) >= LEAST_SIDE and max(shape[:2]) <= _LARGEST_SIDE
    if not (sides and shape[2] <= 3 and each >= _LEAST_EACH):
        raise InputError(
            f"own(way={WAY}) is for small images of a few classes",
            got=f"{' x '.join(map(str, shape))}, {classes} classes",
            allowed=f"{LEAST_SIDE} to {_LARGEST_SIDE} pixels, {_STORE // _LEAST_EACH} classes",
            fix="use own(way=moments)",
        )
    return each


def which_layers(noise: float, samples: float) -> tuple[int, ...]:
    """Return the layers whose features are asked for: all, if the noise leaves their spread.

    Parameters
    ----------
    noise
        That of the whole cost, where one sample moves a sum by 1.
    samples
        The number of samples.
    """
    size = feature_count(_ALL)
    # A sample of norm 1 moves its products by about sqrt(1/2), and their trace is below 1.
    error = noise * math.sqrt(0.5 / _PRODUCTS) / max(samples, 1.0)
    edge, spread = 2 * error * math.sqrt(size), 1 / size
    return _ALL if edge < spread else _FEW


def _whole(centre: Floats) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(row) for row in np.rint(centre).astype(np.int64).tolist())


def _scales(scale: Floats, far: float) -> tuple[int, ...]:
    return tuple(math.ceil(x) for x in (scale * far).tolist())
