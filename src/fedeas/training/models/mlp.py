"""`mlp`: a network for rows of a table."""

import torch
from torch import nn
from torch.nn import functional

from fedeas.errors import InputError
from fedeas.training.models.classifier import Classifier, head
from fedeas.training.task import Task

_WIDEST = 32  # numbers that stand for a category


class MLP(Classifier):
    """Two hidden layers; images are taken as long rows.

    A category of a table becomes a short vector that is learnt, half as many numbers as the column
    has categories, `embedding` at most.
    """

    def __init__(
        self, task: Task, width: int = 128, projection: int = 0, embedding: int = _WIDEST
    ) -> None:
        super().__init__(task)
        if embedding < 1:
            raise InputError("not a width", got=embedding, allowed="embedding from 1")
        size = task.width
        self.embeddings = nn.ParameterList()
        if task.schema is not None:
            for column in task.schema.columns:
                if column.categories:
                    known = len(column.categories) + 1  # a gap is one more
                    vectors = torch.randn(known, min(embedding, (known + 1) // 2))
                    self.embeddings.append(nn.Parameter(vectors))
            size += sum(v.shape[1] - v.shape[0] for v in self.embeddings)
        self.hidden1 = nn.Linear(size, width)
        self.hidden2 = nn.Linear(width, width)
        self.fc = head(width, projection, task.classes)

    def body(self, x: torch.Tensor) -> torch.Tensor:
        """Return one feature vector per normalised sample."""
        x = x.flatten(1)
        if len(self.embeddings):
            sizes = [len(vectors) for vectors in self.embeddings]
            numbers, *categories = torch.split(x, [x.shape[1] - sum(sizes), *sizes], 1)
            pairs = zip(categories, self.embeddings, strict=True)
            x = torch.cat([numbers, *(own @ vectors for own, vectors in pairs)], 1)
        x = functional.relu(self.hidden1(x))
        return functional.relu(self.hidden2(x))
