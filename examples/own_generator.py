"""A generator of your own: a fingerprint, and one uint8 image per label and seed."""

import numpy as np


class Stripes:
    """Draws stripes, as many as the label says; the seed shifts them."""

    fingerprint = "stripes-1"  # change it whenever the images change

    def sample(self, labels, seeds):
        """Return images of height x width x channels."""
        across = np.arange(32) + np.array([seed % 32 for seed in seeds.tolist()])[:, None]
        waves = np.sin(across * (labels[:, None] + 1) * np.pi / 16) * 127 + 128
        return np.broadcast_to(waves[:, None, :, None], (len(labels), 32, 32, 3)).astype(np.uint8)
