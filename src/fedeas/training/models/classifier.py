"""`Classifier`: what training and methods ask of a model, ours or anybody's."""

from typing import cast

import torch
from torch import nn
from torch.nn import functional

from fedeas.errors import InputError
from fedeas.training.normalise import Normalise
from fedeas.training.task import Task


class Classifier(nn.Module):
    """Samples, as data sets hold them, to a logit per class.

    A model of ours has a `body` (normalised samples to features) and a last layer `fc`.
    """

    fc: nn.Module
    channels_last = False

    def __init__(self, task: Task) -> None:
        super().__init__()
        self.normalise = Normalise(task, self.channels_last)

    def body(self, x: torch.Tensor) -> torch.Tensor:
        """Return one feature vector per normalised sample."""
        raise NotImplementedError

    def logits(self, x: torch.Tensor) -> torch.Tensor:
        """Return one logit per normalised sample and class."""
        found: torch.Tensor = self.fc(self.body(x))
        return found

    def features(self, samples: torch.Tensor) -> torch.Tensor:
        """Return one feature vector per sample."""
        return self.body(self.normalise(samples))

    @staticmethod
    def batch_loss(model: nn.Module, samples: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Return what plain training makes small; `model` is this one, or its compiled form."""
        return functional.cross_entropy(model(samples), labels)

    @property
    def last(self) -> nn.Linear:
        """The linear layer that gives the logits, behind a projection head if there is one."""
        layer = self.fc[-1] if isinstance(self.fc, nn.Sequential) else self.fc
        return cast(nn.Linear, layer)

    def represent(self, samples: torch.Tensor) -> torch.Tensor:
        """Return what the last layer sees: the projection head's output, or the features."""
        found = self.features(samples)
        if isinstance(self.fc, nn.Sequential):
            found = self.fc[:-1](found)
        return found

    def forward(self, samples: torch.Tensor) -> torch.Tensor:
        """Return one logit per sample and class."""
        return self.logits(self.normalise(samples))


class Wrapped(Classifier):
    """Anybody's network: from normalised samples to logits.

    MOON and FedGen look at features: for them the network has a method `features`, from normalised
    samples to the vectors that its last `nn.Linear` turns into logits.
    """

    def __init__(self, task: Task, network: nn.Module) -> None:
        super().__init__(task)
        self.network = network
        self._classes = task.classes

    def logits(self, x: torch.Tensor) -> torch.Tensor:
        """Return one logit per normalised sample and class."""
        found: torch.Tensor = self.network(x)
        return found

    def body(self, x: torch.Tensor) -> torch.Tensor:
        """Return one feature vector per normalised sample."""
        features = getattr(self.network, "features", None)
        if features is None:
            raise InputError(
                "this method compares features, and the model has no method `features`",
                got=type(self.network).__name__,
                fix="add `features(x)`, what the last nn.Linear is given; or use another method",
            )
        found: torch.Tensor = features(x)
        return found

    @property
    def last(self) -> nn.Linear:
        """The last linear layer."""
        layers = [m for m in self.network.modules() if isinstance(m, nn.Linear)]
        if not layers or layers[-1].out_features != self._classes:
            raise InputError(
                "this method needs a model whose last nn.Linear gives the logits",
                got=type(self.network).__name__,
                allowed=f"nn.Linear(..., {self._classes})",
            )
        return layers[-1]

    def represent(self, samples: torch.Tensor) -> torch.Tensor:
        """Return what the last layer sees."""
        return self.features(samples)


def head(width: int, projection: int, classes: int) -> nn.Module:
    """Return the last layer, behind MOON's two-layer projection where one is asked for."""
    if projection < 0:
        raise InputError("not a width", got=projection, allowed="projection from 0")
    if not projection:
        return nn.Linear(width, classes)
    return nn.Sequential(
        nn.Linear(width, width), nn.ReLU(), nn.Linear(width, projection),
        nn.Linear(projection, classes),
    )  # fmt: skip


def check_image_size(task: Task) -> None:
    """Refuse what a network for images cannot take."""
    if task.kind != "image":
        raise InputError("this model is for images", got=task.kind, fix='name = "mlp"')
    if min(task.shape[:2]) < 8:
        raise InputError("images too small for a model", got=task.shape, allowed="8 x 8 and more")
