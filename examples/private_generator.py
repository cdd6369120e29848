"""Five sites make a generator of images from noisy sums, simulated in one process."""

from pathlib import Path

import numpy as np

from fedeas.data import Dataset
from fedeas.private import make_private

rng = np.random.default_rng(0)
labels = rng.integers(0, 3, 3000)
brightness = 60 + 60 * labels[:, None, None, None]
images = rng.normal(brightness, 30, (3000, 12, 12, 1)).clip(0, 255).astype(np.uint8)
classes = ("dark", "grey", "light")
data = Dataset.write(Path("blobs"), "blobs", classes, (3000, 0), iter([(images, labels)]))

sites = np.array_split(np.arange(3000), 5)  # where each site's samples are
private = make_private(data, sites, epsilon=1.0, out=Path("generator"))
print(private.card.guarantee)  # epsilon, in both units
more = private.sample(np.array([0, 2, 2]), np.arange(3, dtype=np.uint64))
