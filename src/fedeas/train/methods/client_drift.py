"""Methods that hold clients together: each adds a term to the loss or to the gradient.

FedProx
    Li, Sahu, Zaheer, Sanjabi, Talwalkar, Smith: Federated Optimization in Heterogeneous Networks,
    2020.
SCAFFOLD
    Karimireddy, Kale, Mohri, Reddi, Stich, Suresh: SCAFFOLD: Stochastic Controlled Averaging for
    Federated Learning, 2020; option II for the clients' control variates.
MOON
    Li, He, Song: Model-Contrastive Federated Learning, 2021.
"""

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch.nn import functional

from fedeas.errors import InputError
from fedeas.train.loop import LocalObjective
from fedeas.train.methods.method import (
    ClientContext,
    ClientUpdate,
    Method,
    RoundSummary,
    check_range,
    frozen_copy,
)
from fedeas.train.models import Classifier
from fedeas.train.tensors import Tensors


@dataclass(frozen=True)
class FedProx(Method):
    """The loss gains mu/2 * ||w - w_server||^2, with mu = 0.01 in the paper; mu = 0 is FedAvg."""

    mu: float = 0.01

    def __post_init__(self) -> None:
        check_range(self, 0 <= self.mu < math.inf, "mu from 0")

    def local_objective(self, context: ClientContext) -> LocalObjective:
        """Return the pull towards the server's weights."""
        return _ProximalTerm(context.server_weights, self.mu)


class _ProximalTerm(LocalObjective):
    def __init__(self, server_weights: Tensors, mu: float) -> None:
        self._server_weights, self._mu = server_weights, mu

    @torch.no_grad()
    def after_backward(self, model: Classifier) -> None:
        for name, weight in model.named_parameters():
            if weight.grad is not None:
                weight.grad.add_(weight - self._server_weights[name], alpha=self._mu)


@dataclass(frozen=True)
class Scaffold(Method):
    """Control variates; `server_rate` is the server's step along the mean update.

    A client steps along g - c_k + c and sets c_k <- c_k - c + (w_server - w) / (steps * rate) with
    the number of steps that it really took. The paper weights clients equally; here, as in every
    other method, client k has weight N_k / N, in the mean of weights and in c = sum_k N_k/N c_k, so
    that all methods minimise the same objective. Client variates stay with the clients.
    """

    stateful: ClassVar[bool] = True
    server_rate: float = 1.0

    def __post_init__(self) -> None:
        check_range(self, 0 < self.server_rate < math.inf, "server_rate above 0")

    def local_objective(self, context: ClientContext) -> LocalObjective:
        """Return the change of every gradient, c - c_k."""
        local = context.local
        if local.momentum or local.weight_decay or local.optimizer != "sgd":
            raise InputError(
                "SCAFFOLD's control variates assume plain SGD",
                got=(local.optimizer, local.momentum, local.weight_decay),
                allowed='optimizer = "sgd", momentum = 0 and weight_decay = 0',
            )
        return _GradientShift({name: c - c_k for name, (c, c_k) in _variates(context).items()})

    def client_update(self, context: ClientContext, steps: int) -> ClientUpdate:
        """Set the client's variate from the steps that it really took."""
        weights = dict(context.model.named_parameters())
        changes, variates = {}, {}
        for name, (c, c_k) in _variates(context).items():
            if steps:
                moved = context.server_weights[name] - weights[name].detach()
                variates[name] = c_k - c + moved * (1.0 / (steps * context.local.learning_rate))
                changes[name] = variates[name] - c_k
            else:
                variates[name], changes[name] = c_k, torch.zeros_like(c_k)
        return ClientUpdate(summed=changes, state=variates)

    def summed_spec(self, model: Classifier) -> Tensors:
        """Clients add the change of their variate, of every parameter."""
        return dict(model.named_parameters())

    def server_update(self, state: Tensors, summary: RoundSummary) -> tuple[Tensors, Tensors]:
        """Step along the mean update, and add the changes of the variates."""
        before = summary.server_weights
        variates = {
            name: state.get(name, torch.zeros_like(before[name]))
            + (change / summary.num_examples).to(before[name].dtype)
            for name, change in summary.sums.items()
        }
        if self.server_rate == 1.0:
            return summary.mean, variates
        # Running statistics are not parameters: they are taken as they are.
        weights = {
            name: torch.lerp(before[name], mean, self.server_rate) if name in summary.sums else mean
            for name, mean in summary.mean.items()
        }
        return weights, variates


def _variates(context: ClientContext) -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
    """Return the server's and the client's variate of every parameter; zero at first."""
    zeros = {name: torch.zeros_like(w.detach()) for name, w in context.model.named_parameters()}
    return {
        name: (context.broadcast.get(name, zero), context.state.get(name, zero))
        for name, zero in zeros.items()
    }


class _GradientShift(LocalObjective):
    def __init__(self, shift: Tensors) -> None:
        self._shift = shift

    @torch.no_grad()
    def after_backward(self, model: Classifier) -> None:
        for name, weight in model.named_parameters():
            if weight.grad is not None:
                weight.grad.add_(self._shift[name])


@dataclass(frozen=True)
class Moon(Method):
    """The contrastive term with weight `mu` and temperature `tau`; mu = 0 is FedAvg.

    The term compares what the last layer sees, z, with that of the server's model and of the
    client's last one:
    mu * -log( exp(sim(z, z_server)/tau) / (exp(sim(z, z_server)/tau) + exp(sim(z, z_last)/tau)) ).
    In the original z leaves a projection head that the models of all methods have (`projection` in
    the model's settings). Without a head z are the features, as in FL-bench. In a client's first
    round its last model is the server's, as in FL-bench, so the term is constant; the authors' code
    begins with a network of the client's own, drawn at random.
    """

    stateful: ClassVar[bool] = True
    mu: float = 5.0
    tau: float = 0.5

    def __post_init__(self) -> None:
        valid = 0 <= self.mu < math.inf and 0 < self.tau < math.inf
        check_range(self, valid, "mu from 0, tau above 0")

    def local_objective(self, context: ClientContext) -> LocalObjective:
        """Return the contrastive loss against the server's model and the client's last one."""
        server = frozen_copy(context.model, context.server_weights)
        last = frozen_copy(context.model, context.state or context.server_weights)
        return _Contrast(server, last, self.mu, self.tau)

    def client_update(self, context: ClientContext, steps: int) -> ClientUpdate:
        """Keep the model for the next round's contrast."""
        weights = context.model.state_dict()
        return ClientUpdate(state={k: v.detach().clone() for k, v in weights.items()})


class _Contrast(LocalObjective):
    def __init__(self, server: Classifier, last: Classifier, mu: float, tau: float) -> None:
        self._server, self._last, self._mu, self._tau = server, last, mu, tau

    def loss(self, model: Classifier, batch: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        z = model.represent(batch)
        cross_entropy = model.label_loss(model.last(z), labels)
        with torch.no_grad():
            near, far = self._server.represent(batch), self._last.represent(batch)
        pull = functional.cosine_similarity(z, near) / self._tau
        push = functional.cosine_similarity(z, far) / self._tau
        contrast = functional.softplus(push - pull).mean()  # -log(e^pull / (e^pull + e^push))
        return cross_entropy + self._mu * contrast
