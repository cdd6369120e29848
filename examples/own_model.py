"""A network that fedeas has never seen: name it in a config and train it with any method.

[federated.model]
name = "own_model:make_network"

[federated.local]
optimizer = "adamw"
learning_rate = 0.001
"""

import torch
from torch import nn

from fedeas.train.samples import Task


class Mixer(nn.Module):
    """Pixels mixed by patches, then by channels. MOON and FedGen ask for `features`."""

    def __init__(self, channels: int, classes: int, width: int = 32) -> None:
        super().__init__()
        self.patches = nn.Conv2d(channels, width, kernel_size=4, stride=4)
        self.mix = nn.Conv2d(width, width, kernel_size=3, padding=1, groups=width)
        self.norm = nn.GroupNorm(4, width)
        self.out = nn.Linear(width, classes)

    def features(self, x: torch.Tensor) -> torch.Tensor:
        """Return what the last layer is given."""
        x = self.patches(x).relu()
        return self.norm(x + self.mix(x)).relu().mean((2, 3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return a logit per image and class."""
        return self.out(self.features(x))


def make_network(task: Task) -> nn.Module:
    """Make the network for a task; `task.shape` is height x width x channels."""
    return Mixer(task.shape[2], task.classes)
