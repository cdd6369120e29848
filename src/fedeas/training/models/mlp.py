"""`mlp`: a network for rows of a table."""

import torch
from torch import nn
from torch.nn import functional

from fedeas.training.models.classifier import Classifier, head
from fedeas.training.task import Task


class MLP(Classifier):
    """Two hidden layers; images are taken as long rows."""

    def __init__(self, task: Task, width: int = 128, projection: int = 0) -> None:
        super().__init__(task)
        size = 1
        for side in task.shape:
            size *= side
        self.hidden1 = nn.Linear(size, width)
        self.hidden2 = nn.Linear(width, width)
        self.fc = head(width, projection, task.classes)

    def body(self, x: torch.Tensor) -> torch.Tensor:
        """Return one feature vector per normalised sample."""
        x = functional.relu(self.hidden1(x.flatten(1)))
        return functional.relu(self.hidden2(x))
