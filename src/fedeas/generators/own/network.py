"""The network of `own`: from noise and a class to the frequencies of an image.

Its last step is a cosine transform of the lower half of all frequencies, the high ones weighted
down: what the noise puts into an image is smooth then, and all of it is products of matrices, which
are cheap without a GPU.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from fedeas.privacy.queries.image_moments import cosines

_LATENT = 10
_EMBEDDED = 128
_HIDDEN = 256


@dataclass(frozen=True)
class NetworkConfig:
    """The size of a network."""

    classes: int
    shape: tuple[int, int, int]  # height, width, channels
    latent: int = _LATENT
    hidden: int = _HIDDEN
    frequencies: int = 14  # in either direction, at most

    def frequencies_of(self, side: int) -> int:
        """Return how many frequencies a side of an image gets."""
        return min(self.frequencies, side)


class Network(nn.Module):
    """Noise and classes to images: N x height x width x channels, from 0 to 1."""

    rows: torch.Tensor
    columns: torch.Tensor
    falloff: torch.Tensor

    def __init__(self, config: NetworkConfig) -> None:
        super().__init__()
        self.config = config
        height, width, channels = config.shape
        down, across = config.frequencies_of(height), config.frequencies_of(width)
        hidden = config.hidden
        self.embed = nn.Embedding(config.classes, _EMBEDDED)
        self.layers = nn.Sequential(
            nn.Linear(config.latent + _EMBEDDED, hidden), nn.BatchNorm1d(hidden), nn.ReLU(),
            nn.Linear(hidden, hidden), nn.BatchNorm1d(hidden), nn.ReLU(),
            nn.Linear(hidden, channels * down * across),
        )  # fmt: skip
        radius = np.hypot(*np.mgrid[:down, :across])
        # Not learnt, and not in the file.
        for name, fixed in (
            ("rows", cosines(height, down)),
            ("columns", cosines(width, across)),
            ("falloff", 3.0 / (1 + 0.15 * radius) ** 1.5),
        ):
            self.register_buffer(name, torch.tensor(fixed, dtype=torch.float32), persistent=False)

    def forward(self, noise: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Return an image per row of noise and label."""
        channels, (down, across) = self.config.shape[2], self.falloff.shape
        drawn = self.layers(torch.cat([noise, self.embed(labels)], 1))
        frequencies = drawn.view(-1, channels, down, across) * self.falloff
        images = self.rows.T @ frequencies @ self.columns
        found: torch.Tensor = torch.sigmoid(images).permute(0, 2, 3, 1)
        return found


def draw_noise(seeds: list[int], latent: int) -> torch.Tensor:
    """Draw a row of noise per seed, each from a stream of its own."""
    stream = torch.Generator()
    rows = [torch.randn(latent, generator=stream.manual_seed(seed)) for seed in seeds]
    return torch.stack(rows) if rows else torch.empty(0, latent)
