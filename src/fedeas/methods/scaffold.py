"""SCAFFOLD: control variates take the drift out of local steps.

    Karimireddy, Kale, Mohri, Reddi, Stich, Suresh: SCAFFOLD: Stochastic Controlled Averaging for
    Federated Learning, 2020; option II for the clients' control variates.

A client steps along g - c_k + c and sets c_k <- c_k - c + (w_server - w) / (steps * rate) with the
number of steps that it really took. The paper weights clients equally; here, as in every other
method, client k has weight N_k / N, in the mean of weights and in c = sum_k N_k/N c_k, so that all
methods minimise the same objective. Client variates stay with the clients.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch

from fedeas.errors import InputError
from fedeas.methods.method import Method, Outcome, Round, Turn
from fedeas.tensors import Tensors
from fedeas.training.loop import Correction
from fedeas.training.models import Classifier


@dataclass(frozen=True)
class Scaffold(Method):
    """Control variates; `server_rate` is the server's step along the mean update."""

    keeps: ClassVar[bool] = True
    server_rate: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.server_rate < float("inf"):
            raise InputError("not a server rate", got=self.server_rate, allowed="above 0")

    def send(self, state: Tensors, number: int, seed: int) -> Tensors:
        """Send the server's control variate."""
        return state

    def correction(self, turn: Turn) -> Correction:
        """Return the change of every gradient, c - c_k."""
        local = turn.local
        if local.momentum or local.weight_decay or local.optimizer != "sgd":
            raise InputError(
                "SCAFFOLD's control variates assume plain SGD",
                got=(local.optimizer, local.momentum, local.weight_decay),
                allowed='optimizer = "sgd", momentum = 0 and weight_decay = 0',
            )
        return _Shift({name: c - own for name, (c, own) in _variates(turn).items()})

    def finish(self, turn: Turn, steps: int) -> Outcome:
        """Set the client's variate from the steps that it really took."""
        if not steps:
            same = {name: torch.zeros_like(w) for name, w in turn.model.named_parameters()}
            kept = {name: own for name, (_, own) in _variates(turn).items()}
            return Outcome(added={k: v.detach() for k, v in same.items()}, kept=kept)
        scale = 1.0 / (steps * turn.local.learning_rate)
        after = dict(turn.model.named_parameters())
        changes, kept = {}, {}
        for name, (c, own) in _variates(turn).items():
            kept[name] = own - c + (turn.before[name] - after[name].detach()) * scale
            changes[name] = kept[name] - own
        return Outcome(added=changes, kept=kept)

    def added_like(self, model: Classifier) -> Tensors:
        """Clients add the change of their variate, of every parameter."""
        return dict(model.named_parameters())

    def update(self, state: Tensors, done: Round) -> tuple[Tensors, Tensors]:
        """Step along the mean update, and add the changes of the variates."""
        variate = {
            name: state.get(name, torch.zeros_like(done.before[name]))
            + (change / done.samples).to(done.before[name].dtype)
            for name, change in done.sums.items()
        }
        if self.server_rate == 1.0:
            return done.mean, variate
        # Running statistics are not parameters: they are taken as they are.
        moved = {
            name: torch.lerp(done.before[name], mean, self.server_rate)
            if name in done.sums
            else mean
            for name, mean in done.mean.items()
        }
        return moved, variate


def _variates(turn: Turn) -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
    """Return the server's and the client's variate of every parameter; zero at first."""
    return {
        name: (
            turn.received.get(name, torch.zeros_like(turn.before[name])),
            turn.kept.get(name, torch.zeros_like(turn.before[name])),
        )
        for name, _ in turn.model.named_parameters()
    }


class _Shift(Correction):
    def __init__(self, shift: Tensors) -> None:
        self._shift = shift

    @torch.no_grad()
    def after_backward(self, model: Classifier) -> None:
        for name, weight in model.named_parameters():
            if weight.grad is not None:
                weight.grad.add_(self._shift[name])
