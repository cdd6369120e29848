"""Training by steps that, interrupted at any moment, resumes exactly where it was.

Everything random of a step comes from (seed, step) alone. So a checkpoint is the network, Adam's
moments and, where one is kept, the moving average of the weights; there is no state of a random
stream or a loader to restore.
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from fedeas.errors import InputError
from fedeas.train.tensors import Tensors, load_tensors, save_tensors

_MOMENTS = ("exp_avg", "exp_avg_sq")


class AdamTraining:
    """A network, its Adam or AdamW, and how many steps it has taken.

    Parameters
    ----------
    network : nn.Module
        What is trained, in place.
    optimizer : Adam or AdamW
        Of the network's parameters.
    average : diffusers' EMAModel, optional
        Follows the weights.
    prefix : str
        Of the network's weights in `state`.
    """

    def __init__(
        self,
        network: nn.Module,
        optimizer: torch.optim.Optimizer,
        average: Any = None,
        prefix: str = "network.",
    ) -> None:
        self.network, self.steps = network, 0
        self._optimizer, self._average, self._prefix = optimizer, average, prefix

    def step(
        self,
        loss: torch.Tensor,
        learning_rate: float,
        max_norm: float = 0.0,
        backward: Callable[[torch.Tensor], object] = torch.Tensor.backward,
    ) -> None:
        """Take a step down a loss; `max_norm` bounds the norm of the gradient, 0 does not."""
        parameters = list(self.network.parameters())
        self._optimizer.param_groups[0]["lr"] = learning_rate
        self._optimizer.zero_grad(set_to_none=True)
        backward(loss)
        if max_norm:
            torch.nn.utils.clip_grad_norm_(parameters, max_norm)
        self._optimizer.step()
        if self._average is not None:
            self._average.step(parameters)
        self.steps += 1

    def state(self) -> Tensors:
        """Return all that `load` needs to go on from here."""
        weights = self.network.state_dict()
        state: Tensors = {self._prefix + name: weight for name, weight in weights.items()}
        for index, (name, weight) in enumerate(self.network.named_parameters()):
            moments = self._optimizer.state.get(weight, {})
            for moment in _MOMENTS:
                state[f"{moment}.{name}"] = moments.get(moment, torch.zeros_like(weight.detach()))
            if self._average is not None:
                state[f"average.{name}"] = self._average.shadow_params[index]
        return state | {"step": torch.tensor(float(self.steps))}

    def load(self, state: Tensors) -> None:
        """Go on from a state, which is copied."""
        prefix = self._prefix
        weights = {k.removeprefix(prefix): v for k, v in state.items() if k.startswith(prefix)}
        self.network.load_state_dict(weights)
        self.steps = int(state["step"])
        for index, (name, weight) in enumerate(self.network.named_parameters()):
            moments = {m: state[f"{m}.{name}"].to(weight.device, copy=True) for m in _MOMENTS}
            self._optimizer.state[weight] = {"step": torch.tensor(float(self.steps)), **moments}
            if self._average is not None:
                self._average.shadow_params[index].copy_(state[f"average.{name}"])
        if self._average is not None:
            self._average.optimization_step = self.steps


class Checkpoint:
    """The file that a training run resumes from.

    Parameters
    ----------
    path : Path
        The file.
    about : mapping
        What the run is, as JSON can say it: a file of another run is refused.
    every_steps : int
        How often it is written, at the latest after the last step.
    """

    def __init__(self, path: Path, about: Mapping[str, object], every_steps: int) -> None:
        self.path, self._every_steps = path, every_steps
        self._about = json.loads(json.dumps(about))

    def resume(self, training: AdamTraining) -> None:
        """Go on from the file, if there is one."""
        if not self.path.exists():
            return
        state, about = load_tensors(self.path)
        if about != self._about:
            names = sorted(k for k in {*about, *self._about} if about.get(k) != self._about.get(k))
            raise InputError(
                f"{self.path} is from another training run: {', '.join(names)}",
                fix="choose another folder, or remove it",
            )
        training.load(state)

    def save_if_due(self, training: AdamTraining, last: bool) -> None:
        """Write the file, replacing the one before, if it is time to or the last step is done."""
        if last or training.steps % self._every_steps == 0:
            save_tensors(self.path, training.state(), self._about)


def train_steps(
    training: AdamTraining,
    steps: int,
    loss: Callable[[int], torch.Tensor],
    learning_rate: Callable[[int], float],
    checkpoint: Checkpoint | None = None,
    after_step: Callable[[int, torch.Tensor], None] | None = None,
    max_norm: float = 0.0,
    backward: Callable[[torch.Tensor], object] = torch.Tensor.backward,
) -> None:
    """Take the steps that are left of `steps`, counted over all starts.

    `loss(step)` and `learning_rate(step)` are of the step that is taken; `after_step(done, loss)`
    hears of every one, after its checkpoint.
    """
    for step in range(training.steps, steps):
        value = loss(step)
        training.step(value, learning_rate(step), max_norm, backward)
        if checkpoint is not None:
            checkpoint.save_if_due(training, last=training.steps == steps)
        if after_step is not None:
            after_step(training.steps, value.detach())
