"""A generator for tests of the drop-in: Fashion-MNIST's size and classes, every draw noted."""

import numpy as np

from helpers.noted_generators import Counting

CLASSES = (
    "T-shirt/top", "Trouser", "Pullover", "Dress", "Coat",
    "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot",
)  # fmt: skip


class Bars(Counting):
    """Draws a bright bar where the label says, in a little noise."""

    fingerprint, classes = "bars-1", CLASSES

    def sample(self, labels, seeds):
        super().sample(labels, seeds)
        images = np.stack(
            [np.random.default_rng(int(s)).integers(0, 40, (28, 28, 1), np.uint8) for s in seeds]
        )
        for image, label in zip(images, labels, strict=True):
            image[2 * label + 4 : 2 * label + 6] += 200
        return images
