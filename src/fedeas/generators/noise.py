"""`noise`: images of uniform noise, the control that shows what samples without content do.

A gain with noise is not one of synthetic images. It comes from what any further sample of a class
changes: more steps, or logits that are no longer pushed down without an example against it.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedeas.data import load_images
from fedeas.errors import InputError


@dataclass(frozen=True)
class Noise:
    """Draws images of this shape, every value uniform from 0 to 255, whatever the label."""

    shape: tuple[int, int, int]  # height, width, channels

    @property
    def fingerprint(self) -> str:
        """What an image depends on, besides its seed."""
        return f"noise-1-{'x'.join(map(str, self.shape))}"

    def sample(self, labels: NDArray[np.int64], seeds: NDArray[np.uint64]) -> NDArray[np.uint8]:
        """Return an image of noise per seed."""
        images = np.empty((len(labels), *self.shape), np.uint8)
        for image, seed in zip(images, seeds.tolist(), strict=True):
            image[...] = np.random.default_rng(seed).integers(0, 256, self.shape, np.uint8)
        return images


def noise_like(shape: str = "", data: str = "", folder: str | None = None) -> Noise:
    """Make noise of a shape such as 28x28x1, or of the shape of a data set's images."""
    if shape:
        parts = shape.lower().split("x")
        if len(parts) != 3 or not all(
            part.isdecimal() and 1 <= int(part) <= 4096 for part in parts
        ):
            raise InputError(
                "not the shape of an image", got=shape, allowed="height x width x channels: 28x28x1"
            )
        height, width, channels = map(int, parts)
        return Noise((height, width, channels))
    if not data:
        raise InputError("noise of which shape?", fix="write noise(shape=28x28x1)")
    known = load_images(data, folder)
    if known.kind != "image":
        raise InputError("noise is for images", got=known.kind)
    height, width, channels = known.samples.shape[1:]
    return Noise((height, width, channels))
