"""The network of the study on images: LeNet-5 with ReLU, a standard of federated learning.

    LeCun, Bottou, Bengio, Haffner: Gradient-based learning applied to document recognition, 1998.

It takes a quarter of the time of `cnn`, so that the study has its seeds.
"""

import torch
from torch import nn

from fedeas.train.samples import Task


class LeNet5(nn.Module):
    """Two convolutions of 5 x 5, each pooled, and three linear layers."""

    def __init__(self, task: Task) -> None:
        super().__init__()
        height, width, channels = task.shape
        flat = 16 * (((height - 4) // 2 - 4) // 2) * (((width - 4) // 2 - 4) // 2)
        self.layers = nn.Sequential(
            nn.Conv2d(channels, 6, 5), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(flat, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(),
            nn.Linear(84, task.classes),
        )  # fmt: skip

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return one logit per normalised image and class."""
        logits: torch.Tensor = self.layers(x)
        return logits
