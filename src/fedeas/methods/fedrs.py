"""FedRS: a restricted softmax slows down the updates of classes that a client lacks.

Li, Zhan: FedRS: Federated Learning with Restricted Softmax for Label Distribution Non-IID Data,
2021.

Before the softmax, the logits of classes without training samples at the client, real or synthetic,
are multiplied by alpha. This is the paper's rule. The authors' code multiplies every class by
alpha + (1 - alpha) n_c / max n, so classes that the client has are slowed down too, and its last
layer has no bias.
"""

from dataclasses import dataclass

import torch
from torch.nn import functional

from fedeas.errors import InputError
from fedeas.methods.class_weights import class_counts
from fedeas.methods.method import Method, Turn
from fedeas.training.loop import Correction
from fedeas.training.models import Classifier


@dataclass(frozen=True)
class FedRS(Method):
    """The restricted softmax with factor `alpha`; alpha = 1 is FedAvg."""

    alpha: float = 0.5

    def __post_init__(self) -> None:
        if not 0 <= self.alpha <= 1:
            raise InputError("not a factor of FedRS", got=self.alpha, allowed="alpha from 0 to 1")

    def correction(self, turn: Turn) -> Correction:
        """Return the loss with the restricted softmax."""
        counts = class_counts(turn)
        return _Restricted(torch.where(counts > 0, 1.0, self.alpha))


class _Restricted(Correction):
    def __init__(self, factors: torch.Tensor) -> None:
        self._factors = factors

    def loss(self, model: Classifier, batch: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return functional.cross_entropy(model(batch) * self._factors, labels)
