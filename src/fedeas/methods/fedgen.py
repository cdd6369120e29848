"""FedGen: a generator of features, learnt at the server from the clients' last layers.

    Zhu, Hong, Zhou: Data-Free Knowledge Distillation for Heterogeneous Federated Learning, 2021.

The server trains G(noise, y) so that the clients' last layers, each weighted by its share of label
y, recognise y in it. Clients then also learn from G: their last layer has to recognise what it
draws, and the prediction for an image is pulled to that for drawn features of its label. As in the
original, clients tell the server their label counts.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn import functional

from fedeas.errors import InputError
from fedeas.methods.method import Method, Outcome, Round, Turn, stream
from fedeas.tensors import Tensors, fresh_weights
from fedeas.training.loop import Correction
from fedeas.training.models import Classifier, Task

_COUNTS = "counts"


@dataclass(frozen=True)
class FedGen(Method):
    """Settings as in the paper: weights 10 that decay by 2 % a round, a small generator."""

    weight: float = 10.0
    decay: float = 0.98
    noise: int = 128
    hidden: int = 256
    batch: int = 32
    steps: int = 100
    rate: float = 3e-4

    def __post_init__(self) -> None:
        if self.weight < 0 or min(self.noise, self.hidden, self.batch, self.steps) < 1:
            raise InputError("not FedGen's settings", got=self, allowed="numbers from 1")

    def start(self, model: Classifier, task: Task, known: Sequence[Tensors], seed: int) -> Tensors:
        """Return a fresh generator."""
        if not isinstance(model.fc, nn.Linear):
            raise InputError("FedGen needs a plain last layer", fix="set projection = 0 in [model]")
        with fresh_weights(stream(seed, "generator").initial_seed()):
            made = _generator(self, task.classes, model.fc.in_features)
        return {**made.state_dict(), _COUNTS: torch.ones(task.classes)}

    def shown_like(self, model: Classifier) -> Tensors:
        """Clients show their last layer and their label counts."""
        own = dict(model.fc.named_parameters())
        return {**own, _COUNTS: torch.zeros(len(own["bias"]))}

    def send(self, state: Tensors, number: int, seed: int) -> Tensors:
        """Send the generator."""
        return state

    def correction(self, turn: Turn) -> Correction:
        """Return the losses on drawn features; none in the first round, as in the original."""
        if turn.round == 1 or not self.weight:
            return Correction()
        counts = turn.received[_COUNTS]
        made = _generator(self, len(counts), turn.model.fc.in_features)  # type: ignore[arg-type]
        made.load_state_dict({k: v for k, v in turn.received.items() if k != _COUNTS})
        made = made.to(counts.device).eval().requires_grad_(False)
        weight = self.weight * self.decay**turn.round
        known = np.flatnonzero(counts.cpu().numpy() > 0)  # what the generator has learnt
        return _Taught(made, len(counts), known, self, weight, turn.rng)

    def finish(self, turn: Turn, steps: int) -> Outcome:
        """Show the last layer and the label counts to the server."""
        labels = turn.samples.labels[: len(turn.samples.indices)]
        counts = np.bincount(labels, minlength=len(turn.samples.data.classes))
        shown = {name: weight.detach().clone() for name, weight in turn.model.fc.named_parameters()}
        return Outcome(shown={**shown, _COUNTS: torch.from_numpy(counts).float()})

    def update(self, state: Tensors, done: Round) -> tuple[Tensors, Tensors]:
        """Train the generator against the clients' last layers."""
        counts = torch.stack([one[_COUNTS] for one in done.shown]).clamp(min=0)
        if not float(counts.sum()):
            return done.mean, state
        shares = counts / counts.sum(0).clamp(min=1)
        weights = torch.stack([one["weight"] for one in done.shown])
        biases = torch.stack([one["bias"] for one in done.shown])
        made = _generator(self, counts.shape[1], weights.shape[2])
        made.load_state_dict({k: v for k, v in state.items() if k != _COUNTS})
        optimizer = torch.optim.Adam(made.parameters(), self.rate)
        rng = stream(done.seed, "generator", done.number)
        for _ in range(self.steps):
            labels = torch.multinomial(counts.sum(0), self.batch, replacement=True, generator=rng)
            noise = torch.randn(self.batch, self.noise, generator=rng)
            drawn = made(_condition(noise, labels, counts.shape[1]))
            logits = torch.einsum("nf,kcf->knc", drawn, weights) + biases[:, None]
            losses = functional.cross_entropy(
                logits.flatten(0, 1), labels.repeat(len(weights)), reduction="none"
            ).view(len(weights), -1)
            loss = (shares[:, labels] * losses).sum(0).mean() + _sameness(drawn, noise)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        learnt = {k: v.detach().clone() for k, v in made.state_dict().items()}
        return done.mean, {**learnt, _COUNTS: counts.sum(0)}


def _generator(settings: FedGen, classes: int, width: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(settings.noise + classes, settings.hidden),
        nn.BatchNorm1d(settings.hidden),
        nn.ReLU(),
        nn.Linear(settings.hidden, width),
    )


def _condition(noise: torch.Tensor, labels: torch.Tensor, classes: int) -> torch.Tensor:
    return torch.cat([noise, functional.one_hot(labels, classes).float()], 1)


def _sameness(drawn: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
    """Punish a generator that draws the same whatever the noise."""
    apart = torch.cdist(drawn, drawn, 1) / drawn.shape[1]
    other = torch.cdist(noise, noise).square() / noise.shape[1]
    return torch.exp((-apart * other).mean())


class _Taught(Correction):
    def __init__(
        self,
        generator: nn.Module,
        classes: int,
        known: NDArray[np.int64],
        settings: FedGen,
        weight: float,
        rng: np.random.Generator,
    ) -> None:
        self._generator, self._classes, self._known = generator, classes, known
        self._settings, self._weight, self._rng = settings, weight, rng

    def loss(self, model: Classifier, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        logits = model(images)
        plain = functional.cross_entropy(logits, labels)
        chosen = self._rng.choice(self._known, self._settings.batch)
        asked = torch.from_numpy(chosen).to(labels.device)
        teach = functional.cross_entropy(model.fc(self._draw(asked)), asked)
        alike = model.fc(self._draw(labels)).detach()
        pull = functional.kl_div(
            functional.log_softmax(logits, 1), functional.softmax(alike, 1), reduction="batchmean"
        )
        return plain + self._weight * (teach + pull)

    def _draw(self, labels: torch.Tensor) -> torch.Tensor:
        noise = self._rng.standard_normal((len(labels), self._settings.noise), np.float32)
        placed = torch.from_numpy(noise).to(labels.device)
        drawn: torch.Tensor = self._generator(_condition(placed, labels, self._classes))
        return drawn
