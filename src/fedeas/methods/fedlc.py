"""FedLC: logits are calibrated by how rare a class is at the client.

Zhang, Li, Li, Xu, Wu, Ding, Wu: Federated Learning with Label Distribution Skew via Logits
Calibration, 2022.

The loss is the cross-entropy of z_c - tau * n_c^(-1/4), n_c the client's training samples of class
c, synthetic ones included. As n_c goes to 0 the margin grows without bound: a class without samples
has no part in the softmax. The paper's formula leaves the label itself out of the softmax's sum,
which has no lower bound; like other implementations, this one has it in.
"""

from dataclasses import dataclass

import torch

from fedeas.errors import InputError
from fedeas.methods.class_weights import ShiftedLogits, class_counts
from fedeas.methods.method import Method, Turn
from fedeas.training.loop import Correction


@dataclass(frozen=True)
class FedLC(Method):
    """The calibrated logits with margin `tau`; tau = 0 is FedAvg."""

    tau: float = 1.0

    def __post_init__(self) -> None:
        if not 0 <= self.tau < float("inf"):
            raise InputError("not a margin of FedLC", got=self.tau, allowed="tau from 0")

    def correction(self, turn: Turn) -> Correction:
        """Return the calibrated loss."""
        counts = class_counts(turn)
        margin = self.tau * counts.pow(-0.25) if self.tau else torch.zeros_like(counts)
        return ShiftedLogits(-margin)
