"""Changing images until their features have the moments that noisy sums say.

The images are draws of a first generator, and what is changed are their pixels, all together, so
that the features of every class have the right mean, and the features of all of them the right
spread around these means. Distances are counted in that spread: where features hardly vary within a
class, a small distance tells two classes apart.

What the noise hides is not followed. Of a mean's distance from the first generator's only the part
counts that stands out from the noise, direction by direction. The spread is seen in directions
beyond the noise's edge (Wigner; see `image_moments.py`); in others it stays as it is.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional

from fedeas.generators.own.matching import Report
from fedeas.privacy.queries.convolutions import CELLS, FACTORS, cells, layers
from fedeas.privacy.queries.convolutions import STEPS as _DIVISORS
from fedeas.privacy.queries.features import reduction
from fedeas.privacy.queries.image_features import FeatureSum
from fedeas.privacy.queries.query import Floats

STEPS = 100
_RATE = 0.02  # of Adam, in white, at the first step; it falls along a cosine
_BLOCK = 500  # images at a time
_LEAST = 0.01  # of the mean variance, added to every variance


class Target(NamedTuple):
    """The moments that features are to have, in directions in which they vary independently."""

    directions: Floats  # features x directions: features in scales, to spreads
    means: Floats  # classes x directions
    spread: Floats  # the variance along every direction
    seen: NDArray[np.bool_]  # whether it stands out from the noise


def find_target(centre: Floats, means: FeatureSum, products: FeatureSum) -> Target:
    """Return the target that noisy sums say.

    Parameters
    ----------
    centre
        From where features were measured, classes x features, in scales.
    means, products
        The sums' means of the classes, and of products around them.
    """
    error, size = float(products.errors[0]), centre.shape[1]
    values, vectors = np.linalg.eigh(products.means)
    spread = error * math.sqrt(size)  # the noise's edge is at twice this
    seen = values > 2 * spread
    # A true value t appears as t + spread^2 / t; solve for t.
    true = (values + np.sqrt(np.maximum(values**2 - 4 * spread**2, 0.0))) / 2
    total = max(float(np.trace(products.means)), 1e-12)
    hidden = max(total - float(true[seen].sum()), 0.0) / max(int((~seen).sum()), 1)
    variances = np.where(seen, true, hidden) + _LEAST * total / size
    directions: Floats = vectors / np.sqrt(variances)
    # What a class's mean adds to its centre, direction by direction, as far as it is no noise.
    beyond = means.means @ directions
    noise = np.square(means.errors)[:, np.newaxis] / variances
    truth = np.maximum((np.square(beyond) - noise).mean(axis=0), 0.0)
    beyond *= truth / np.maximum(truth + noise, 1e-300)
    means_there: Floats = centre @ directions + beyond
    return Target(directions, means_there, np.where(seen, true, 0.0) / variances, seen)


def refine(
    images: NDArray[np.uint8],
    labels: NDArray[np.int64],
    target: Target,
    scale: Floats,
    which: Sequence[int],
    steps: int = STEPS,
    report: Report | None = None,
) -> NDArray[np.uint8]:
    """Return the images, changed until their features have the target's moments.

    Parameters
    ----------
    images, labels
        What is begun with.
    target
        What is to be reached.
    scale
        How large a feature is that counts as 1.
    which
        The layers of filters whose features they are.
    steps
        How often all images are changed.
    report
        Told about progress.
    """
    x = torch.from_numpy(images).permute(0, 3, 1, 2).float().div_(255)
    optimizer = torch.optim.Adam([x], _RATE, betas=(0.9, 0.999))
    project = torch.from_numpy(target.directions / scale[:, np.newaxis]).float()
    goal = torch.from_numpy(target.means).float()
    held = torch.from_numpy(target.seen).float()
    spread = torch.diag(torch.from_numpy(target.spread).float())
    own = torch.from_numpy(labels)
    shares = functional.one_hot(own, len(goal)).float()
    shares /= shares.sum(0).clamp(min=1)
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = _RATE * (1 + math.cos(math.pi * step / steps)) / 2
        # Two passes would compute the features twice; their graphs fit into memory.
        leaves = [block.clone().requires_grad_() for block in torch.split(x, _BLOCK)]
        found = [features(leaf, which) for leaf in leaves]
        with torch.no_grad():
            seen = torch.cat(found) @ project
            means = shares.T @ seen
            apart = seen - means[own]
            excess = (apart.T @ apart / len(x) - spread) * held * held[:, None]
            missed = means - goal
            # The gradient in the features, of squared distances of means and of products.
            slope = 2 * shares.sum(1, keepdim=True) * missed[own] + 4 / len(x) * apart @ excess
            slope = slope @ project.T
        x.grad = torch.cat(torch.autograd.grad(found, leaves, torch.split(slope, _BLOCK)))
        optimizer.step()
        x.clamp_(0, 1)
        if report is not None:
            report(step + 1, steps, f"steps, distance {missed.square().sum(1).mean().sqrt():.2f}")
    changed: NDArray[np.uint8] = x.mul_(255).round_().to(torch.uint8).permute(0, 2, 3, 1).numpy()
    return changed


def features(images: torch.Tensor, which: Sequence[int]) -> torch.Tensor:
    """Return `conv_features` of N x colours x height x width from 0 to 1, with a gradient."""
    factor = reduction(*images.shape[2:])
    seen = 255 * (functional.avg_pool2d(images, factor) if factor > 1 else images)
    found = []
    for k, layer in enumerate(layers(images.shape[1])[: max(which) + 1]):
        if k > 0:
            seen = functional.avg_pool2d(seen, 2) * (4 / _DIVISORS[k - 1])
        filters, offsets = map(torch.from_numpy, layer)
        seen = functional.conv2d(seen, filters, offsets, padding=1).relu_()  # held once
        if k in which:
            down, across = (torch.from_numpy(cells(n, CELLS[k])).float() for n in seen.shape[2:])
            found.append((FACTORS[k] * down @ seen @ across.T).flatten(1))
    return torch.cat(found, 1)
