"""`copies`: a client's own samples of a class once more, slightly changed. It costs nothing.

A generator is worth its cost only if it does better than this. A copy has nothing new in it, and
of a class that a client lacks there is nothing to copy.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fedeas.data.kinds import Array
from fedeas.errors import InputError
from fedeas.generators.own_samples import OwnSamples, places_by_class, refuse_without_own
from fedeas.policies import copyable
from fedeas.scalars import integer

Ints = NDArray[np.int64]
Seeds = NDArray[np.uint64]
_LARGEST_SHIFT = 64


@dataclass(frozen=True)
class Copies:
    """Copies of images, moved by up to `shift` pixels and mirrored half of the time.

    What leaves the image is filled with its edge. Samples that are not images are copied as they
    are.

    Parameters
    ----------
    shift : int
        The most pixels that an image is moved by, in both directions.
    flip : bool
        Whether images are mirrored; false where left and right matter, as in digits or X-rays.

    """

    lacks: ClassVar[str] = "a sample to copy"
    shift: int = 2
    flip: bool = True

    def __post_init__(self) -> None:
        integer(self.shift, "not a shift", f"0 to {_LARGEST_SHIFT}", low=0, high=_LARGEST_SHIFT)
        if not isinstance(self.flip, bool):
            raise InputError("flip is true or false", got=self.flip)

    @property
    def fingerprint(self) -> str:
        """What a copy depends on, besides the client's own samples."""
        return f"copies-1-shift{self.shift}{'-flip' if self.flip else ''}"

    def sample(self, labels: Ints, seeds: Seeds) -> Array:
        """Refuse to draw: it is not known whose samples to copy."""
        raise refuse_without_own("copies")

    def feasible(self, samples: Ints, n: Ints) -> Ints:
        """Return the part of a plan that is of classes which the clients have."""
        return copyable(samples, n)

    def sample_from(self, own: OwnSamples, labels: Ints, seeds: Seeds) -> Array:
        """Return one copy per label, of the client's own samples of that class."""
        places = places_by_class(own, labels)
        if missing := [label for label, found in places.items() if not found.size]:
            raise InputError("the client has nothing to copy", got=f"class {missing[0]}")
        chosen = np.empty(len(labels), np.int64)
        moves = np.empty((len(labels), 3), np.int64)
        for at, (label, seed) in enumerate(zip(labels.tolist(), seeds.tolist(), strict=True)):
            rng = np.random.default_rng(seed)
            chosen[at] = rng.choice(places[label])
            moves[at] = *rng.integers(-self.shift, self.shift + 1, 2), rng.integers(1 + self.flip)
        samples, _ = own.take(chosen)
        if samples.dtype == np.uint8 and samples.ndim > 2:
            for sample, (down, right, mirrored) in zip(samples, moves.tolist(), strict=True):
                sample[...] = _moved(sample, down, right, bool(mirrored))
        return samples


def _moved(image: Array, down: int, right: int, mirrored: bool) -> Array:
    height, width = image.shape[:2]
    rows = np.clip(np.arange(height) - down, 0, height - 1)
    columns = np.clip(np.arange(width) - right, 0, width - 1)
    moved: Array = image[rows][:, columns[::-1] if mirrored else columns]
    return moved
