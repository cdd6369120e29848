"""`cnn`: a small network for images."""

import torch
from torch import nn
from torch.nn import functional

from fedeas.training.models.classifier import Classifier, check_image_size, head
from fedeas.training.task import Task


class SmallCNN(Classifier):
    """Three convolutions and a hidden layer: enough to tell methods apart on a CPU."""

    channels_last = True  # 1.6 times as fast on the CPUs that we measured

    def __init__(self, task: Task, projection: int = 0) -> None:
        check_image_size(task)
        super().__init__(task)
        self.conv1 = nn.Conv2d(task.shape[2], 32, 3, padding=1)
        self.conv2 = nn.Conv2d(32, 64, 3, padding=1)
        self.conv3 = nn.Conv2d(64, 64, 3, padding=1)
        self.hidden = nn.Linear(64 * (task.shape[0] // 8) * (task.shape[1] // 8), 128)
        self.fc = head(128, projection, task.classes)

    def body(self, x: torch.Tensor) -> torch.Tensor:
        """Return one feature vector per normalised image."""
        for convolution in (self.conv1, self.conv2, self.conv3):
            x = functional.max_pool2d(functional.relu(convolution(x)), 2)
        return functional.relu(self.hidden(x.flatten(1)))
