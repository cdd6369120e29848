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

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn import functional

from fedeas.errors import InputError
from fedeas.methods.method import Method, Outcome, Round, Turn, stream
from fedeas.tensors import Tensors, check_values, fresh_weights
from fedeas.training.loop import Correction
from fedeas.training.models import Classifier
from fedeas.training.task import Task

_COUNTS, _KNOWN, _STEP = "counts", "known", "step"
_GENERATOR, _MOMENTS = "generator.", ("exp_avg", "exp_avg_sq")
_LEAST_WEIGHT = 1e-4  # of the client terms, however many rounds


@dataclass(frozen=True)
class FedGen(Method):
    """Settings of the authors' code, except the widths `noise` and `hidden`; weight 0 is FedAvg.

    `weight` is that of both terms of the clients' loss, `batch` the features that a client draws in
    a step; `steps`, `rate`, `weight_decay` and `diversity` are of the generator's training. Weight
    and rate fall by `decay` every round.
    """

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
        whole = min(self.noise, self.hidden, self.batch, self.steps)
        least = min(self.weight, self.weight_decay, self.diversity)
        if not (least >= 0 and whole >= 1 and self.rate > 0 and 0 < self.decay <= 1):
            raise InputError(
                "FedGen's settings are out of range",
                got=self,
                allowed="sizes from 1, weights from 0, rate above 0, decay above 0 up to 1",
            )

    def start(self, model: Classifier, task: Task, known: Sequence[Tensors], seed: int) -> Tensors:
        """Return a fresh generator, an optimiser that took no step, and no known label."""
        with fresh_weights(stream(seed, "generator").initial_seed()):
            made = _generator(self, task.classes, model.last.in_features)
        moments = {
            f"{moment}.{name}": torch.zeros_like(weight)
            for name, weight in made.named_parameters()
            for moment in _MOMENTS
        }
        nothing = {_KNOWN: torch.zeros(task.classes, dtype=torch.int64), _STEP: torch.zeros(())}
        return _with_prefix(made) | moments | nothing

    def shown_like(self, model: Classifier) -> Tensors:
        """Clients show their last layer and their label counts."""
        own = dict(model.last.named_parameters())
        return {**own, _COUNTS: torch.zeros(len(own["bias"]), dtype=torch.int64)}

    def check_shown(self, shown: Tensors, real: int) -> None:
        """Refuse a last layer that has diverged, and counts that are not of `real` samples."""
        counts = shown[_COUNTS]
        check_values({name: layer for name, layer in shown.items() if name != _COUNTS})
        if int(counts.min()) < 0 or int(counts.max()) > real or int(counts.sum()) != real:
            raise InputError(
                "label counts do not add up to the client's samples",
                got=int(counts.sum()),
                allowed=f"{len(counts)} counts from 0 with a sum of {real}",
            )

    def send(self, state: Tensors, number: int, seed: int) -> Tensors:
        """Send the generator and the labels that it knows."""
        return {k: v for k, v in state.items() if k.startswith(_GENERATOR) or k == _KNOWN}

    def correction(self, turn: Turn) -> Correction:
        """Return the losses on drawn features; none in the first round, as in the original."""
        if turn.round == 1 or not self.weight:
            return Correction()
        known = turn.received[_KNOWN]
        made = _generator(self, len(known), turn.model.last.in_features)
        made.load_state_dict(_without_prefix(turn.received))
        made = made.to(known.device).eval().requires_grad_(False)
        labels = np.flatnonzero(known.cpu().numpy())
        return _Taught(made, labels, self, turn)

    def finish(self, turn: Turn, steps: int) -> Outcome:
        """Show the last layer and the label counts to the server."""
        labels = turn.samples.labels[: len(turn.samples.indices)]
        counts = np.bincount(labels, minlength=len(turn.samples.data.classes))
        shown = {k: weight.detach().clone() for k, weight in turn.model.last.named_parameters()}
        return Outcome(shown={**shown, _COUNTS: torch.from_numpy(counts.astype(np.int64))})

    def update(self, state: Tensors, done: Round) -> tuple[Tensors, Tensors]:
        """Train the generator against the clients' last layers."""
        counts = torch.stack([one[_COUNTS] for one in done.shown])
        layers = [torch.stack([one[name] for one in done.shown]) for name in ("weight", "bias")]
        made = _generator(self, counts.shape[1], layers[0].shape[2])
        made.load_state_dict(_without_prefix(state))
        rate = self.rate * self.decay ** (done.number - 1)
        optimizer = torch.optim.Adam(made.parameters(), rate, weight_decay=self.weight_decay)
        for name, weight in made.named_parameters():
            own = {moment: state[f"{moment}.{name}"].clone() for moment in _MOMENTS}
            optimizer.state[weight] = {_STEP: state[_STEP].clone(), **own}
        held = torch.from_numpy(np.flatnonzero(counts.sum(0).numpy()))
        rng = stream(done.seed, "generator", done.number)
        for _ in range(self.steps):
            chosen = torch.randint(len(held), (done.local.batch,), generator=rng)
            noise = torch.randn(done.local.batch, self.noise, generator=rng)
            loss = self._generator_loss(made, noise, held[chosen], counts, *layers)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        moments = {
            f"{moment}.{name}": optimizer.state[weight][moment]
            for name, weight in made.named_parameters()
            for moment in _MOMENTS
        }
        known = torch.maximum(state[_KNOWN], (counts.sum(0) > 0).long())
        learnt = {_KNOWN: known, _STEP: state[_STEP] + self.steps}
        return done.mean, _with_prefix(made) | moments | learnt

    def _generator_loss(
        self,
        made: nn.Module,
        noise: torch.Tensor,
        labels: torch.Tensor,
        counts: torch.Tensor,
        weights: torch.Tensor,
        biases: torch.Tensor,
    ) -> torch.Tensor:
        """Return sum_k share_k(y) * cross-entropy of layer k, plus the diversity loss."""
        shares = counts / counts.sum(0).clamp(min=1)
        drawn = made(_condition(noise, labels, counts.shape[1]))
        logits = torch.einsum("nf,kcf->knc", drawn, weights) + biases[:, None]
        losses = functional.cross_entropy(
            logits.flatten(0, 1), labels.repeat(len(weights)), reduction="none"
        ).view(len(weights), -1)
        recognised: torch.Tensor = (shares[:, labels] * losses).sum(0).mean()
        return recognised + self.diversity * _sameness(drawn, noise)


def _with_prefix(made: nn.Module) -> Tensors:
    return {_GENERATOR + k: v.detach().clone() for k, v in made.state_dict().items()}


def _without_prefix(state: Tensors) -> Tensors:
    return {k.removeprefix(_GENERATOR): v for k, v in state.items() if k.startswith(_GENERATOR)}


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
    """Penalise a generator that draws the same whatever the noise."""
    apart = torch.cdist(drawn, drawn, 1) / drawn.shape[1]
    other = torch.cdist(noise, noise).square() / noise.shape[1]
    return torch.exp((-apart * other).mean())


class _Taught(Correction):
    def __init__(
        self, generator: nn.Module, labels: NDArray[np.int64], settings: FedGen, turn: Turn
    ) -> None:
        self._generator, self._labels, self._settings = generator, labels, settings
        self._classes, self._rng = turn.model.last.out_features, turn.rng
        fallen = settings.weight * settings.decay ** (turn.round - 1)
        self._weight = max(_LEAST_WEIGHT, fallen)
        self._drawn_share = settings.batch / turn.local.batch

    def loss(self, model: Classifier, batch: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        logits = model(batch)
        plain = functional.cross_entropy(logits, labels)
        chosen = self._rng.choice(self._labels, self._settings.batch)
        asked = torch.from_numpy(chosen).to(labels.device)
        teach = functional.cross_entropy(model.last(self._draw(asked)), asked)
        alike = model.last(self._draw(labels)).detach()
        pull = functional.kl_div(
            functional.log_softmax(logits, 1), functional.softmax(alike, 1), reduction="batchmean"
        )
        return plain + self._weight * (self._drawn_share * teach + pull)

    def _draw(self, labels: torch.Tensor) -> torch.Tensor:
        noise = self._rng.standard_normal((len(labels), self._settings.noise), np.float32)
        placed = torch.from_numpy(noise).to(labels.device)
        drawn: torch.Tensor = self._generator(_condition(placed, labels, self._classes))
        return drawn
