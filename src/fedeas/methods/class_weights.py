"""Class weights: a client's loss counts its rare classes for more. Nothing is generated.

Ren, Yu, Sheng, Ma, Zhao, Yi, Li: Balanced Meta-Softmax for Long-Tailed Visual Recognition, 2020.
Menon, Jayasumana, Rawat, Jain, Veit, Kumar: Long-Tail Learning via Logit Adjustment, 2021.

With n_c training samples of class c at the client, synthetic ones included, the loss is by default
the balanced softmax: cross-entropy of the logits z_c + strength * log n_c. The other is the
cross-entropy of every sample weighted by n_y^-strength, divided by the sum of the batch's weights.

Neither can teach what a client lacks: in the balanced softmax a class without samples has no part
in the softmax, so its logits are left as they are, and a client of one class learns nothing.
"""

from dataclasses import dataclass

import torch
from torch.nn import functional

from fedeas.errors import InputError
from fedeas.methods.method import Method, Turn
from fedeas.training.loop import Correction
from fedeas.training.models import Classifier

_LOSSES = ("softmax", "weighted")


@dataclass(frozen=True)
class ClassWeights(Method):
    """The balanced softmax, or with loss = weighted a weighted loss; strength = 0 is FedAvg."""

    strength: float = 1.0
    loss: str = "softmax"

    def __post_init__(self) -> None:
        if not 0 <= self.strength < float("inf"):
            raise InputError("not a strength of class weights", got=self.strength, allowed="from 0")
        if self.loss not in _LOSSES:
            raise InputError(
                "unknown loss of class weights", got=self.loss, allowed=", ".join(_LOSSES)
            )

    @property
    def name(self) -> str:
        """The method's name."""
        return "class-weights"

    def correction(self, turn: Turn) -> Correction:
        """Return the loss for the classes that the client trains on."""
        counts = class_counts(turn)
        if self.loss == "softmax":
            return ShiftedLogits(log_counts(counts, self.strength))
        # A class without samples has no labels to weigh.
        return _Weighted(counts.clamp(min=1).pow(-self.strength))


def class_counts(turn: Turn) -> torch.Tensor:
    """Return how many samples of every class a client trains on, synthetic ones included.

    The loss is about what is trained on. A class of which samples were generated is no longer
    missing or rare.
    """
    device = next(turn.model.parameters()).device
    return torch.from_numpy(turn.samples.counts()).to(device, torch.float32)


def log_counts(counts: torch.Tensor, strength: float) -> torch.Tensor:
    """Return strength * log n_c for every class; minus infinity where there are no samples."""
    return strength * counts.log() if strength else torch.zeros_like(counts)


class ShiftedLogits(Correction):
    """Cross-entropy of logits plus a constant per class; minus infinity leaves a class out."""

    def __init__(self, shift: torch.Tensor) -> None:
        self._shift = shift

    def loss(self, model: Classifier, batch: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Return the loss of a batch."""
        return functional.cross_entropy(model(batch) + self._shift, labels)


class _Weighted(Correction):
    def __init__(self, weights: torch.Tensor) -> None:
        self._weights = weights

    def loss(self, model: Classifier, batch: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return functional.cross_entropy(model(batch), labels, self._weights)
