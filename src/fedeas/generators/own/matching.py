"""Training a network until its samples have the mean embedding that the noisy sums say.

The distance is estimated without bias, from two independent halves of every batch: with one batch,
a class's spread would count as distance, and the network would draw too little of it. Everything
random of a step comes from (seed, step), so that a killed training ends with the same bytes.
"""

import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from fedeas.errors import InputError
from fedeas.generators.own.features import Features
from fedeas.generators.own.network import Network, NetworkConfig
from fedeas.privacy.queries.embedding import EmbeddingSum, MeanEmbedding
from fedeas.seeds import child_rng
from fedeas.tensors import Tensors, fresh_weights, load_tensors, save_tensors, tensors_digest

_MOMENTS = ("exp_avg", "exp_avg_sq")
_SECONDS = 30.0  # between checkpoints
_LAST_RATE = 0.01  # of the first learning rate
Report = Callable[[int, int, str], None]  # steps taken, of how many, and the loss in words


@dataclass(frozen=True)
class Matching:
    """How a network is trained.

    Parameters
    ----------
    steps : int
        Steps of training.
    each : int
        Samples of every class in a step.
    learning_rate : float
        Of the first step; it falls along a cosine.
    """

    steps: int = 2000
    each: int = 50
    learning_rate: float = 1e-2

    def __post_init__(self) -> None:
        if self.steps < 1 or self.each < 4 or self.each % 2:
            raise InputError("not a training", got=self, allowed="steps from 1, each even, from 4")


def match(
    query: EmbeddingSum,
    target: MeanEmbedding,
    training: Matching,
    seed: int = 0,
    checkpoint: Path | None = None,
    report: Report | None = None,
) -> Network:
    """Train a network whose samples have the target's mean embedding, and return it.

    Parameters
    ----------
    query, target
        What was asked, and what the sums said.
    training
        How it is trained.
    seed
        Of the weights, and of the noise of every step.
    checkpoint
        A file to resume from; written every half a minute.
    report
        Told about progress.
    """
    run = _Run(query, target, training, seed)
    first = run.restore(checkpoint) if checkpoint is not None else 0
    since = time.monotonic()
    for step in range(first, training.steps):
        loss = run.step(step)
        done = step + 1
        if report is not None and (done % 10 == 0 or done == training.steps):
            report(done, training.steps, f"steps, distance {max(0.0, loss):.4f}")
        if checkpoint is not None and time.monotonic() - since > _SECONDS:
            run.save(checkpoint, done)
            since = time.monotonic()
    return run.network.eval()


@torch.no_grad()
def mean_features(query: EmbeddingSum, network: Network, each: int, seed: int) -> torch.Tensor:
    """Return the mean features of samples of every class, classes x features."""
    features, rows = Features(query), []
    for c in range(query.classes):
        stream = _stream(seed, "class", c)
        noise = torch.randn(each, network.config.latent, generator=stream)
        images = network(noise, torch.full((each,), c))
        rows.append(features(255 * images).mean(0))
    return torch.stack(rows)


class _Run:
    """The weights and the optimiser."""

    def __init__(
        self, query: EmbeddingSum, target: MeanEmbedding, training: Matching, seed: int
    ) -> None:
        self._training, self._seed, self._features = training, seed, Features(query)
        self._target = torch.tensor(target.means, dtype=torch.float32)
        self._labels = torch.arange(query.classes).repeat_interleave(training.each)
        height, width, channels = query.shape
        config = NetworkConfig(query.classes, (height, width, channels))
        with fresh_weights(int(child_rng(seed, "weights").integers(2**62))):
            self.network = Network(config)
        self._optimizer = torch.optim.Adam(
            self.network.parameters(), training.learning_rate, betas=(0.9, 0.99)
        )
        self._about: dict[str, object] = {
            "training": asdict(training), "seed": seed, "query": query.name,
            "target": tensors_digest({"target": self._target}),
        }  # fmt: skip

    def step(self, step: int) -> float:
        """Take a step; return the squared distance between the embeddings, per feature."""
        training, network = self._training, self.network.train()
        stream = _stream(self._seed, "step", step)
        noise = torch.randn(len(self._labels), network.config.latent, generator=stream)
        found = self._features(255 * network(noise, self._labels))
        found = found.view(len(self._target), training.each, -1)
        one, other = found[:, ::2].mean(1) - self._target, found[:, 1::2].mean(1) - self._target
        loss = (one * other).sum() * (2 / self._target.shape[1])
        self._optimizer.param_groups[0]["lr"] = _learning_rate(training, step)
        self._optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self._optimizer.step()
        return float(loss.detach())

    def save(self, path: Path, step: int) -> None:
        """Write the checkpoint, replacing the one before."""
        state: Tensors = {f"network.{k}": v for k, v in self.network.state_dict().items()}
        for name, weight in self.network.named_parameters():
            for moment in _MOMENTS:
                state[f"{moment}.{name}"] = self._optimizer.state[weight][moment]
        save_tensors(path, state, {**self._about, "step": step})

    def restore(self, path: Path) -> int:
        """Load the checkpoint if there is one; return the first step to take."""
        if not path.exists():
            return 0
        state, about = load_tensors(path)
        step = int(about.pop("step"))
        if about != self._about:
            raise InputError(
                f"{path} is from another training run", fix="choose another folder, or remove it"
            )
        own = {k.removeprefix("network."): v for k, v in state.items() if k.startswith("network.")}
        self.network.load_state_dict(own)
        for name, weight in self.network.named_parameters():
            moments = {moment: state[f"{moment}.{name}"] for moment in _MOMENTS}
            self._optimizer.state[weight] = {"step": torch.tensor(float(step)), **moments}
        return step


def _learning_rate(training: Matching, step: int) -> float:
    fall = 0.5 * (1 + math.cos(math.pi * step / training.steps))
    return training.learning_rate * (_LAST_RATE + (1 - _LAST_RATE) * fall)


def _stream(seed: int, *path: str | int) -> torch.Generator:
    return torch.Generator().manual_seed(int(child_rng(seed, *path).integers(2**62)))
