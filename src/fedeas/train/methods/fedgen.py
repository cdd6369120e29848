"""FedGen: a generator of features, learnt at the server from the clients' last layers.

    Zhu, Hong, Zhou: Data-Free Knowledge Distillation for Heterogeneous Federated Learning, 2021.

The server trains G(noise, y) so that the clients' last layers, each weighted by its share of label
y, recognise y in it. Clients then also learn from G: their last layer has to recognise what it
draws, and the prediction for an image is pulled to that for drawn features of its label. As in the
original, clients tell the server their label counts.

There are two public implementations, the authors' and FL-bench's. This one follows the authors',
except where the last column differs. Labels are drawn uniformly, however many samples they have.

| setting | authors (MNIST) | FL-bench | here |
|---|---|---|---|
| features drawn per client step | 32 | 32 | 32 |
| weight of what is drawn | drawn / training batch | the same | the same |
| weight of both client terms | 10, times 0.98 a round | the same | the same |
| labels that a client draws from | those any client holds | its own | those any has held so far |
| steps of G a round | 50 (10 times 5) | 5 | 50 |
| batch of a step of G | the training batch | the same | the same |
| labels that the server draws from | held by a client of the round | mean count > 1 | authors' |
| Adam of G | kept over rounds, rate times 0.98 a round | the same | the same |
| weight decay of G, diversity loss | 0.01, 1 | 0, 0 | 0.01, 1 |
| whose last layers teach G | the clients' | the server's | the clients' |
| noise | uniform | normal | normal, as in the authors' paper |
| width of noise, of G | 32, 256 | 32, 32 | 128, 256, as the FedEAS paper prints |

"Generator epochs" are steps in both: the authors' `ensemble_epochs` is the number of steps, which
they take in groups of five; FL-bench takes `train_generator_epoch` steps and does not use its
`ensemble_epoch`. G draws what the last linear layer sees (the authors' latent layer -1): features,
or behind a projection head its output.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn import functional

from fedeas.errors import InputError
from fedeas.train.checkpointed import AdamTraining, train_steps
from fedeas.train.loop import LocalObjective
from fedeas.train.methods.method import (
    ClientContext,
    ClientUpdate,
    Method,
    RoundSummary,
    check_range,
)
from fedeas.train.models import Classifier
from fedeas.train.samples import Task
from fedeas.train.tensors import Tensors, check_values, seeded, stream, torch_seed

_COUNTS, _HELD = "counts", "labels"  # of a client; that any client has held so far
_GENERATOR = "generator."
_LEAST_WEIGHT = 1e-4  # of the client terms, however many rounds


@dataclass(frozen=True)
class FedGen(Method):
    """Settings of the authors' code, except the widths `noise` and `hidden`; weight 0 is FedAvg.

    `weight` is that of both terms of the clients' loss, `batch` the features that a client draws in
    a step; `steps`, `rate`, `weight_decay` and `diversity` are of the generator's training. Weight
    and rate fall by `decay` every round.
    """

    needs_one_class: ClassVar[bool] = True
    weight: float = 10.0
    decay: float = 0.98
    noise: int = 128
    hidden: int = 256
    batch: int = 32
    steps: int = 50
    rate: float = 3e-4
    weight_decay: float = 0.01
    diversity: float = 1.0

    def __post_init__(self) -> None:
        sizes = min(self.noise, self.hidden, self.batch, self.steps)
        weights = min(self.weight, self.weight_decay, self.diversity)
        valid = weights >= 0 and sizes >= 1 and self.rate > 0 and 0 < self.decay <= 1
        check_range(
            self, valid, "sizes from 1, weights from 0, rate above 0, decay above 0 up to 1"
        )

    def server_init(
        self, model: Classifier, task: Task, client_inits: Sequence[Tensors], seed: int
    ) -> Tensors:
        """Return a fresh generator, an optimiser that took no step, and no label."""
        with seeded(torch_seed(seed, "generator")):
            training = self._training(task.classes, model.last.in_features)
        return training.state() | {_HELD: torch.zeros(task.classes, dtype=torch.int64)}

    def upload_spec(self, model: Classifier) -> Tensors:
        """Clients upload their last layer and their label counts."""
        layer = dict(model.last.named_parameters())
        return {**layer, _COUNTS: torch.zeros(len(layer["bias"]), dtype=torch.int64)}

    def validate_upload(self, upload: Tensors, num_examples: int) -> None:
        """Refuse a last layer that has diverged, and counts that do not add up to the samples."""
        counts = upload[_COUNTS]
        check_values({name: layer for name, layer in upload.items() if name != _COUNTS})
        least, largest, total = int(counts.min()), int(counts.max()), int(counts.sum())
        if least < 0 or largest > num_examples or total != num_examples:
            raise InputError(
                "label counts do not add up to the client's samples",
                got=total,
                allowed=f"{len(counts)} counts from 0 with a sum of {num_examples}",
            )

    def broadcast(self, state: Tensors, server_round: int, seed: int) -> Tensors:
        """Send the generator and the labels that it was trained on."""
        return {k: v for k, v in state.items() if k.startswith(_GENERATOR) or k == _HELD}

    def local_objective(self, context: ClientContext) -> LocalObjective:
        """Return the losses on drawn features; none in the first round, as in the original."""
        if context.round == 1 or not self.weight:
            return LocalObjective()
        held = context.broadcast[_HELD]
        generator = _generator(self, len(held), context.model.last.in_features)
        weights = {k: v for k, v in context.broadcast.items() if k.startswith(_GENERATOR)}
        generator.load_state_dict({k.removeprefix(_GENERATOR): v for k, v in weights.items()})
        generator = generator.to(held.device).eval().requires_grad_(False)
        return _DrawnFeatures(generator, np.flatnonzero(held.cpu().numpy()), self, context)

    def client_update(self, context: ClientContext, steps: int) -> ClientUpdate:
        """Upload the last layer and the label counts."""
        layer = {k: w.detach().clone() for k, w in context.model.last.named_parameters()}
        counts = context.samples.real.counts().astype(np.int64)
        return ClientUpdate(upload={**layer, _COUNTS: torch.from_numpy(counts)})

    def server_update(self, state: Tensors, summary: RoundSummary) -> tuple[Tensors, Tensors]:
        """Train the generator against the clients' last layers."""
        uploads, batch = summary.uploads, summary.local.batch
        counts = torch.stack([upload[_COUNTS] for upload in uploads])
        layers = [torch.stack([upload[k] for upload in uploads]) for k in ("weight", "bias")]
        training = self._training(counts.shape[1], layers[0].shape[2])
        training.load(state)
        labels = torch.from_numpy(np.flatnonzero(counts.sum(0).numpy()))
        rng = stream(summary.seed, "generator", summary.round)
        rate = self.rate * self.decay ** (summary.round - 1)

        def loss(step: int) -> torch.Tensor:
            chosen = labels[torch.randint(len(labels), (batch,), generator=rng)]
            noise = torch.randn(batch, self.noise, generator=rng)
            return self._generator_loss(training.network, noise, chosen, counts, *layers)

        train_steps(training, training.steps + self.steps, loss, lambda step: rate)
        held = torch.maximum(state[_HELD], (counts.sum(0) > 0).long())
        return summary.mean, training.state() | {_HELD: held}

    def _training(self, classes: int, width: int) -> AdamTraining:
        generator = _generator(self, classes, width)
        optimizer = torch.optim.Adam(
            generator.parameters(), self.rate, weight_decay=self.weight_decay
        )
        return AdamTraining(generator, optimizer, prefix=_GENERATOR)

    def _generator_loss(
        self,
        generator: nn.Module,
        noise: torch.Tensor,
        labels: torch.Tensor,
        counts: torch.Tensor,
        weights: torch.Tensor,
        biases: torch.Tensor,
    ) -> torch.Tensor:
        """Return sum_k share_k(y) * cross-entropy of layer k, plus the diversity loss."""
        shares = counts / counts.sum(0).clamp(min=1)
        features = generator(_condition(noise, labels, counts.shape[1]))
        logits = torch.einsum("nf,kcf->knc", features, weights) + biases[:, None]
        losses = functional.cross_entropy(
            logits.flatten(0, 1), labels.repeat(len(weights)), reduction="none"
        ).view(len(weights), -1)
        recognition: torch.Tensor = (shares[:, labels] * losses).sum(0).mean()
        return recognition + self.diversity * _sameness(features, noise)


def _generator(settings: FedGen, classes: int, width: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(settings.noise + classes, settings.hidden),
        nn.BatchNorm1d(settings.hidden),
        nn.ReLU(),
        nn.Linear(settings.hidden, width),
    )


def _condition(noise: torch.Tensor, labels: torch.Tensor, classes: int) -> torch.Tensor:
    return torch.cat([noise, functional.one_hot(labels, classes).float()], 1)


def _sameness(features: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
    """Penalise a generator that draws the same whatever the noise."""
    between_features = torch.cdist(features, features, 1) / features.shape[1]
    between_noise = torch.cdist(noise, noise).square() / noise.shape[1]
    return torch.exp((-between_features * between_noise).mean())


class _DrawnFeatures(LocalObjective):
    def __init__(
        self,
        generator: nn.Module,
        labels: NDArray[np.int64],
        settings: FedGen,
        context: ClientContext,
    ) -> None:
        self._generator, self._labels, self._settings = generator, labels, settings
        self._classes, self._rng = context.model.last.out_features, context.rng
        weight = settings.weight * settings.decay ** (context.round - 1)
        self._weight = max(_LEAST_WEIGHT, weight)
        self._drawn_share = settings.batch / context.local.batch

    def loss(self, model: Classifier, batch: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        logits = model(batch)
        cross_entropy = functional.cross_entropy(logits, labels)
        drawn = self._rng.choice(self._labels, self._settings.batch)
        drawn_labels = torch.from_numpy(drawn).to(labels.device)
        teach = functional.cross_entropy(model.last(self._draw(drawn_labels)), drawn_labels)
        alike = model.last(self._draw(labels)).detach()
        pull = functional.kl_div(
            functional.log_softmax(logits, 1), functional.softmax(alike, 1), reduction="batchmean"
        )
        return cross_entropy + self._weight * (self._drawn_share * teach + pull)

    def _draw(self, labels: torch.Tensor) -> torch.Tensor:
        noise = self._rng.standard_normal((len(labels), self._settings.noise), np.float32)
        placed = torch.from_numpy(noise).to(labels.device)
        drawn: torch.Tensor = self._generator(_condition(placed, labels, self._classes))
        return drawn
