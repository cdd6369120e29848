"""Methods that change a client's softmax by its label counts. Nothing is generated.

Class weights
    Ren, Yu, Sheng, Ma, Zhao, Yi, Li: Balanced Meta-Softmax for Long-Tailed Visual Recognition,
    2020.
    Menon, Jayasumana, Rawat, Jain, Veit, Kumar: Long-Tail Learning via Logit Adjustment, 2021.
FedLC
    Zhang, Li, Li, Xu, Wu, Ding, Wu: Federated Learning with Label Distribution Skew via Logits
    Calibration, 2022.

With logits z_c and n_c training samples of class c at the client, synthetic ones included (the loss
is about what is trained on: a class of which samples were generated is no longer missing or rare),
the loss is the cross-entropy of

| class-weights | z_c + strength * log n_c, the balanced softmax |
| fedlc | z_c - tau * n_c^(-1/4) |

Neither can teach what a client lacks: a class without samples has no part in the softmax, so its
logits are left as they are, and a client of one class learns nothing.
"""

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch.nn import functional

from fedeas.train.loop import LocalObjective
from fedeas.train.methods.method import ClientContext, Method, check_range
from fedeas.train.models import Classifier


class AdjustedLogits(LocalObjective):
    """Cross-entropy of shifted logits; a shift of minus infinity leaves a class out."""

    def __init__(self, shift: torch.Tensor) -> None:
        self._shift = shift

    def loss(self, model: Classifier, batch: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Return the loss of a batch."""
        return functional.cross_entropy(model(batch) + self._shift, labels)


def _class_counts(context: ClientContext) -> torch.Tensor:
    """Return how many samples of every class a client trains on, synthetic ones included."""
    device = next(context.model.parameters()).device
    return torch.from_numpy(context.samples.counts()).to(device, torch.float32)


@dataclass(frozen=True)
class ClassWeights(Method):
    """The balanced softmax; strength = 0 is FedAvg."""

    needs_one_class: ClassVar[bool] = True
    strength: float = 1.0

    def __post_init__(self) -> None:
        check_range(self, 0 <= self.strength < math.inf, "strength from 0")

    @property
    def name(self) -> str:
        """The method's name."""
        return "class-weights"

    def local_objective(self, context: ClientContext) -> LocalObjective:
        """Return the loss for the classes that the client trains on."""
        counts = _class_counts(context)
        return AdjustedLogits(self.strength * counts.log() if self.strength else 0 * counts)


@dataclass(frozen=True)
class FedLC(Method):
    """The calibrated logits with margin `tau`; tau = 0 is FedAvg.

    As n_c goes to 0 the margin grows without bound: a class without samples has no part in the
    softmax. The paper's formula leaves the label itself out of the softmax's sum, which has no
    lower bound; like other implementations, this one has it in.
    """

    needs_one_class: ClassVar[bool] = True
    tau: float = 1.0

    def __post_init__(self) -> None:
        check_range(self, 0 <= self.tau < math.inf, "tau from 0")

    def local_objective(self, context: ClientContext) -> LocalObjective:
        """Return the calibrated loss."""
        counts = _class_counts(context)
        return AdjustedLogits(-self.tau * counts.pow(-0.25) if self.tau else 0 * counts)
