"""The mean embedding of every class: random Fourier features of images, in whole numbers.

Rahimi and Recht, "Random Features for Large-Scale Kernel Machines" (NeurIPS 2007); their private
sum as in Harder, Adamczewski and Park, "DP-MERF" (AISTATS 2021, arXiv:2002.11603).

The features are those of `features.py`: points on circles, in whole numbers.
"""

import math
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from fedeas.errors import InputError
from fedeas.privacy.queries.features import (
    RADIUS,
    Array,
    Circle,
    circle_points,
    circles,
    edges_of,
    pixels_of,
)
from fedeas.privacy.queries.query import Floats, Ints
from fedeas.privacy.queries.sample_sum import SampleSum
from fedeas.scalars import integer

_COUNT_SHARE = 0.02  # of a row's squared norm, for counting the samples of a class
_MOST_WEIGHTS = 2**23  # of all directions: whoever asks could exhaust a site


class MeanEmbedding(NamedTuple):
    """What noisy sums say of every class."""

    means: Floats  # classes x features: the mean of (cos, sin) pairs, on circles of radius 1
    counts: Floats  # the samples of a class; at least 1
    errors: Floats  # per class, the standard error of an entry of `means`


@dataclass(frozen=True)
class EmbeddingSum(SampleSum):
    """The sum of every class's random features, and its count.

    Parameters
    ----------
    classes, shape
        The number of classes, and height x width x channels of an image of uint8.
    features : int
        Random directions, each of which gives a pair of numbers.
    edges : int
        How many of them look at edges; the others look at pixels.
    seed : int
        Names the directions. It is public: sites and server draw the same ones.
    """

    name: ClassVar[str] = "embedding"
    features: int = 1500
    edges: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        integer(self.features, "features out of range", "2 to 65536", 2, 2**16)
        most = self.features - 1
        integer(self.edges, "edges out of range", f"0 to {most}", 0, most)
        integer(self.seed, "seed out of range", "0 to 2**32 - 1", 0, 2**32 - 1)
        if len(self.shape) != 3 or not all(type(n) is int and n >= 8 for n in self.shape[:2]):
            raise InputError("not the shape of images", got=self.shape, allowed="8 x 8 and more")
        size = math.prod(self.shape) * self.features
        integer(size, "too many pixels times features", f"up to {_MOST_WEIGHTS}", 1, _MOST_WEIGHTS)
        super().__post_init__()

    @property
    def width(self) -> int:
        """A count, then a pair per direction."""
        return 1 + 2 * self.features

    @property
    def count_units(self) -> int:
        """Units of the word that counts samples."""
        return round(math.sqrt(_COUNT_SHARE * self.features) * RADIUS)

    @property
    def sensitivity(self) -> float:
        """Every row has a count and `features` points of circles, none further out than here."""
        outermost = max(
            int(np.square(circle_points(circle.turn)).sum(axis=1).max()) for circle in self.circles
        )
        return math.sqrt(self.features * outermost + self.count_units**2)

    @property
    def circles(self) -> tuple[Circle, ...]:
        """The directions of pixels, and those of edges where there are any."""
        return circles(self.shape, self.features - self.edges, self.edges, self.seed)

    def rows(self, samples: Array, labels: Ints) -> Ints:
        """Return a row per image."""
        found = np.empty((len(samples), self.width), np.int64)
        found[:, 0] = self.count_units
        place = 1
        for circle, view in zip(self.circles, (pixels_of, edges_of), strict=False):
            points = circle_points(circle.turn)[circle.angles(view(samples))]
            last = place + 2 * points.shape[1]
            found[:, place:last] = points.reshape(len(samples), -1)
            place = last
        return found

    def read(self, sums: Ints, sigma: float, sites: int) -> MeanEmbedding:
        """Return the mean embedding of every class.

        Parameters
        ----------
        sums
            The noisy sums over all sites.
        sigma
            The standard deviation of their noise, in units of the words.
        sites
            The number of sites in the sums; not needed here.
        """
        found = self.by_class(sums, sigma)
        counts = self.counts(found[:, 0], sigma, self.count_units)
        return MeanEmbedding(
            found[:, 1:] / (counts[:, np.newaxis] * RADIUS), counts, sigma / (counts * RADIUS)
        )
