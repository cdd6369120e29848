"""Small data sets of real pictures for tests that train."""

from pathlib import Path

import numpy as np

from fedeas.data import ImageData

CLASSES = ("dot", "bar", "frame")


def shapes(folder: Path, train: int = 48, test: int = 12, side: int = 8) -> ImageData:
    """Write grey pictures of three shapes at random places; labels count 0, 1, 2, 0, ..."""
    rng = np.random.default_rng(0)
    images = rng.integers(0, 40, (train + test, side, side, 1)).astype(np.uint8)
    labels = np.arange(train + test) % 3
    for image, label in zip(images, labels, strict=True):
        x, y = rng.integers(1, side - 3, 2)
        if label == 0:
            image[x : x + 2, y : y + 2] = 220
        elif label == 1:
            image[:, y : y + 2] = 220
        else:
            image[[0, -1]] = 220
            image[:, [0, -1]] = 220
    sizes = (train, test)
    return ImageData.write(folder, "shapes", CLASSES, sizes, iter([(images, labels)]))
