"""FedVLS: the server's model teaches the classes that a client lacks; other logits are held down.

    Guo, Ding, Liang, Wang, He, Tan: Exploring Vacant Classes in Label-Skewed Federated Learning,
    2025.

With p_c the class shares of a client's training samples, synthetic ones included, and O the classes
that it lacks, the loss of a batch is the sum of

- the balanced softmax: cross-entropy of z_c + calibration * log p_c,
- distillation * the KL divergence from the server's model, over the softmax of O alone,
- suppression * sum_c p_c log( mean over the batch of [y != c] exp(z_c) ).

The last sum leaves out a class that all samples of the batch have: its logarithm would be minus
infinity. The weight 0.1 of the distillation is that of the authors' command for CIFAR-10. Their
algorithm prints no weight of the suppression, their code has 0.005, which is the default here.

The authors' code differs from the sum that the paper prints, which is what is done here: it masks
by multiplying, so that a masked logit counts as exp(0) = 1, and subtracts log p_c from the logits
first. At the same weight its suppression is much weaker where a client's classes are very unequal.
"""

import math
from dataclasses import dataclass

import torch
from torch.nn import functional

from fedeas.errors import InputError
from fedeas.methods.class_weights import class_counts, log_counts
from fedeas.methods.method import Method, Turn, frozen_copy
from fedeas.training.loop import Correction
from fedeas.training.models import Classifier


@dataclass(frozen=True)
class FedVLS(Method):
    """The three terms by their weights; with all three 0 it is FedAvg."""

    calibration: float = 1.0
    distillation: float = 0.1
    suppression: float = 0.005

    def __post_init__(self) -> None:
        weights = (self.calibration, self.distillation, self.suppression)
        if not all(0 <= weight < float("inf") for weight in weights):
            raise InputError(
                "FedVLS's settings are out of range", got=weights, allowed="weights from 0"
            )

    def correction(self, turn: Turn) -> Correction:
        """Return the loss for the classes that the client has and lacks."""
        return _Vacant(self, turn)


class _Vacant(Correction):
    def __init__(self, settings: FedVLS, turn: Turn) -> None:
        self._settings = settings
        counts = class_counts(turn)
        # log n_c instead of log p_c: the softmax is the same.
        self._shift = log_counts(counts, settings.calibration)
        self._shares = counts / counts.sum()
        self._vacant = torch.nonzero(counts == 0).flatten()
        self._server: Classifier | None = None
        if settings.distillation and len(self._vacant) > 1:  # one class has nothing to tell apart
            self._server = frozen_copy(turn.model, turn.before)

    def loss(self, model: Classifier, batch: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        logits = model(batch)
        total = functional.cross_entropy(logits + self._shift, labels)
        if self._server is not None:
            with torch.no_grad():
                taught = functional.softmax(self._server(batch)[:, self._vacant], 1)
            own = functional.log_softmax(logits[:, self._vacant], 1)
            distance = functional.kl_div(own, taught, reduction="batchmean")
            total = total + self._settings.distillation * distance
        if self._settings.suppression:
            total = total + self._settings.suppression * self._other_logits(logits.float(), labels)
        return total

    def _other_logits(self, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Return how high the logits of classes other than the label are, weighted by shares."""
        own = functional.one_hot(labels, logits.shape[1]).bool()
        kept = ~own.all(0) & (self._shares > 0)
        others = logits[:, kept].masked_fill(own[:, kept], -math.inf)
        level = others.logsumexp(0) - math.log(len(labels))
        return (self._shares[kept] * level).sum()
