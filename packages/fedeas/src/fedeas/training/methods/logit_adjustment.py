"""Methods that change a client's softmax by its label counts. Nothing is generated.

Class weights
    Ren, Yu, Sheng, Ma, Zhao, Yi, Li: Balanced Meta-Softmax for Long-Tailed Visual Recognition,
    2020.
    Menon, Jayasumana, Rawat, Jain, Veit, Kumar: Long-Tail Learning via Logit Adjustment, 2021.
FedLC
    Zhang, Li, Li, Xu, Wu, Ding, Wu: Federated Learning with Label Distribution Skew via Logits
    Calibration, 2022.
FedRS
    Li, Zhan: FedRS: Federated Learning with Restricted Softmax for Label Distribution Non-IID Data,
    2021.
FedVLS
    Guo, Ding, Liang, Wang, He, Tan: Exploring Vacant Classes in Label-Skewed Federated Learning,
    2025.

With logits z_c and n_c training samples of class c at the client, synthetic ones included (the loss
is about what is trained on: a class of which samples were generated is no longer missing or rare),
the loss is the cross-entropy of

| class-weights | z_c + strength * log n_c, the balanced softmax |
| fedlc | z_c - tau * n_c^(-1/4) |
| fedrs | alpha * z_c where n_c = 0, otherwise z_c |
| fedvls | z_c + calibration * log n_c, plus two terms |

None can teach what a client lacks, except FedVLS by distillation: in the first two a class without
samples has no part in the softmax, so its logits are left as they are, and a client of one class
learns nothing.
"""

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch.nn import functional

from fedeas.training.loop import LocalObjective
from fedeas.training.methods.method import ClientContext, Method, check_range, frozen_copy
from fedeas.training.models import Classifier


class AdjustedLogits(LocalObjective):
    """Cross-entropy of scale * logits + shift; a shift of minus infinity leaves a class out."""

    def __init__(
        self, shift: torch.Tensor | float = 0.0, scale: torch.Tensor | float = 1.0
    ) -> None:
        self._shift, self._scale = shift, scale

    def loss(self, model: Classifier, batch: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Return the loss of a batch."""
        return functional.cross_entropy(self.adjusted(model(batch)), labels)

    def adjusted(self, logits: torch.Tensor) -> torch.Tensor:
        """Return the logits that the cross-entropy sees."""
        return logits * self._scale + self._shift


def _class_counts(context: ClientContext) -> torch.Tensor:
    """Return how many samples of every class a client trains on, synthetic ones included."""
    device = next(context.model.parameters()).device
    return torch.from_numpy(context.samples.counts()).to(device, torch.float32)


def _log_counts(counts: torch.Tensor, strength: float) -> torch.Tensor:
    """Return strength * log n_c for every class; minus infinity where there are no samples."""
    return strength * counts.log() if strength else torch.zeros_like(counts)


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
        return AdjustedLogits(_log_counts(_class_counts(context), self.strength))


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
        margin = self.tau * counts.pow(-0.25) if self.tau else torch.zeros_like(counts)
        return AdjustedLogits(-margin)


@dataclass(frozen=True)
class FedRS(Method):
    """The restricted softmax with factor `alpha` on classes without samples; alpha = 1 is FedAvg.

    This is the paper's rule. The authors' code multiplies every class by
    alpha + (1 - alpha) n_c / max n, so classes that the client has are slowed down too, and its
    last layer has no bias.
    """

    needs_one_class: ClassVar[bool] = True
    alpha: float = 0.5

    def __post_init__(self) -> None:
        check_range(self, 0 <= self.alpha <= 1, "alpha from 0 to 1")

    def local_objective(self, context: ClientContext) -> LocalObjective:
        """Return the loss with the restricted softmax."""
        return AdjustedLogits(scale=torch.where(_class_counts(context) > 0, 1.0, self.alpha))


@dataclass(frozen=True)
class FedVLS(Method):
    """The server's model teaches the classes that a client lacks; other logits are held down.

    With p_c the class shares of a client's training samples and O the classes that it lacks, the
    loss of a batch is the sum of

    - the balanced softmax: cross-entropy of z_c + calibration * log p_c,
    - distillation * the KL divergence from the server's model, over the softmax of O alone,
    - suppression * sum_c p_c log( mean over the batch of [y != c] exp(z_c) ).

    With all three weights 0 it is FedAvg. The last sum leaves out a class that all samples of the
    batch have: its logarithm would be minus infinity. The weight 0.1 of the distillation is that of
    the authors' command for CIFAR-10. Their algorithm prints no weight of the suppression, their
    code has 0.005, which is the default here.

    The authors' code differs from the sum that the paper prints, which is what is done here: it
    masks by multiplying, so that a masked logit counts as exp(0) = 1, and subtracts log p_c from
    the logits first. At the same weight its suppression is much weaker where a client's classes are
    very unequal.
    """

    needs_one_class: ClassVar[bool] = True
    calibration: float = 1.0
    distillation: float = 0.1
    suppression: float = 0.005

    def __post_init__(self) -> None:
        weights = (self.calibration, self.distillation, self.suppression)
        check_range(self, all(0 <= weight < math.inf for weight in weights), "weights from 0")

    def local_objective(self, context: ClientContext) -> LocalObjective:
        """Return the loss for the classes that the client has and lacks."""
        return _VacantClasses(self, context)


class _VacantClasses(AdjustedLogits):
    def __init__(self, settings: FedVLS, context: ClientContext) -> None:
        counts = _class_counts(context)
        # log n_c instead of log p_c: the softmax is the same.
        super().__init__(_log_counts(counts, settings.calibration))
        self._settings, self._shares = settings, counts / counts.sum()
        self._vacant = torch.nonzero(counts == 0).flatten()
        self._server: Classifier | None = None
        if settings.distillation and len(self._vacant) > 1:  # one class has nothing to tell apart
            self._server = frozen_copy(context.model, context.server_weights)

    def loss(self, model: Classifier, batch: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        logits = model(batch)
        total = functional.cross_entropy(self.adjusted(logits), labels)
        if self._server is not None:
            with torch.no_grad():
                teacher = functional.softmax(self._server(batch)[:, self._vacant], 1)
            student = functional.log_softmax(logits[:, self._vacant], 1)
            distance = functional.kl_div(student, teacher, reduction="batchmean")
            total = total + self._settings.distillation * distance
        if self._settings.suppression:
            total = total + self._settings.suppression * self._other_logits(logits.float(), labels)
        return total

    def _other_logits(self, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Return how high the logits of classes other than the label are, weighted by shares."""
        is_label = functional.one_hot(labels, logits.shape[1]).bool()
        columns = ~is_label.all(0) & (self._shares > 0)
        others = logits[:, columns].masked_fill(is_label[:, columns], -math.inf)
        level = others.logsumexp(0) - math.log(len(labels))
        return (self._shares[columns] * level).sum()
