"""FedProx: local training is held near the server's weights.

Li, Sahu, Zaheer, Sanjabi, Talwalkar, Smith: Federated Optimization in Heterogeneous Networks,
2020. The loss gains mu/2 * ||w - w_server||^2.
"""

from dataclasses import dataclass

import torch

from fedeas.errors import InputError
from fedeas.methods.method import Method, Turn
from fedeas.tensors import Tensors
from fedeas.training.loop import Correction
from fedeas.training.models import Classifier


@dataclass(frozen=True)
class FedProx(Method):
    """The proximal term, `mu` = 0.01 in the paper; mu = 0 is FedAvg."""

    mu: float = 0.01

    def __post_init__(self) -> None:
        if not 0 <= self.mu < float("inf"):
            raise InputError("not a proximal weight", got=self.mu, allowed="mu from 0")

    def correction(self, turn: Turn) -> Correction:
        """Return the pull towards the server's weights."""
        return _Pull(turn.before, self.mu)


class _Pull(Correction):
    def __init__(self, anchor: Tensors, mu: float) -> None:
        self._anchor, self._mu = anchor, mu

    @torch.no_grad()
    def after_backward(self, model: Classifier) -> None:
        for name, weight in model.named_parameters():
            if weight.grad is not None:
                weight.grad.add_(weight - self._anchor[name], alpha=self._mu)
