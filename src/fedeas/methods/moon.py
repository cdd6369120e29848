"""MOON: features stay near those of the server's model and away from the client's last one.

    Li, He, Song: Model-Contrastive Federated Learning, 2021.

The loss compares what the last layer sees, z, with that of the server's model and of the client's
last one:
mu * -log( exp(sim(z, z_server)/tau) / (exp(sim(z, z_server)/tau) + exp(sim(z, z_last)/tau)) ).
In the original z leaves a projection head that the models of all methods have (`projection` in the
model's settings). Without a head z are the features, as in FL-bench. In a client's first turn its
last model is the server's, as in FL-bench, so the term is constant; the authors' code begins with a
network of the client's own, drawn at random.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch.nn import functional

from fedeas.errors import InputError
from fedeas.methods.method import Method, Outcome, Turn, frozen_copy
from fedeas.training.loop import Correction
from fedeas.training.models import Classifier


@dataclass(frozen=True)
class Moon(Method):
    """The contrastive term with weight `mu` and temperature `tau`; mu = 0 is FedAvg."""

    keeps: ClassVar[bool] = True
    mu: float = 5.0
    tau: float = 0.5

    def __post_init__(self) -> None:
        if not (0 <= self.mu < float("inf") and 0 < self.tau < float("inf")):
            raise InputError(
                "MOON's settings are out of range", got=(self.mu, self.tau), allowed="from 0"
            )

    def correction(self, turn: Turn) -> Correction:
        """Return the contrastive loss against the server's model and the client's last one."""
        server = frozen_copy(turn.model, turn.before)
        last = frozen_copy(turn.model, turn.kept or turn.before)
        return _Contrast(server, last, self.mu, self.tau)

    def finish(self, turn: Turn, steps: int) -> Outcome:
        """Keep the model for the next turn's contrast."""
        return Outcome(kept={k: v.detach().clone() for k, v in turn.model.state_dict().items()})


class _Contrast(Correction):
    def __init__(self, server: Classifier, last: Classifier, mu: float, tau: float) -> None:
        self._server, self._last, self._mu, self._tau = server, last, mu, tau

    def loss(self, model: Classifier, batch: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        z = model.represent(batch)
        plain = functional.cross_entropy(model.last(z), labels)
        with torch.no_grad():
            near, far = self._server.represent(batch), self._last.represent(batch)
        pull = functional.cosine_similarity(z, near) / self._tau
        push = functional.cosine_similarity(z, far) / self._tau
        contrast = functional.softplus(push - pull).mean()  # -log(e^pull / (e^pull + e^push))
        return plain + self._mu * contrast
