"""`Method`: the part of an FL algorithm apart from averaging. The base class is FedAvg itself.

McMahan, Moore, Ramage, Hampson, Aguera y Arcas: Communication-Efficient Learning of Deep
Networks from Decentralized Data, 2017.
"""

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from fedeas.data import Dataset
from fedeas.errors import InputError
from fedeas.train.loop import LocalObjective
from fedeas.train.models import Classifier
from fedeas.train.samples import Samples, Task
from fedeas.train.settings import Local
from fedeas.train.tensors import Tensors, check_values


@dataclass(frozen=True)
class ClientContext:
    """All that a method sees at a client in one round."""

    model: Classifier  # trained in place, from the server's weights
    server_weights: Tensors
    broadcast: Tensors  # what the method's server part sent along
    state: Tensors  # what the client kept of its last round; empty the first time
    samples: Samples
    local: Local
    round: int
    rng: np.random.Generator


@dataclass(frozen=True)
class ClientUpdate:
    """What a client returns besides its weights."""

    summed: Tensors = field(default_factory=dict)  # the server adds N_k times this
    upload: Tensors = field(default_factory=dict)  # the server sees it as it is; small
    state: Tensors = field(default_factory=dict)  # stays with the client


@dataclass(frozen=True)
class RoundSummary:
    """What the server knows after a round."""

    server_weights: Tensors  # that the round started from
    mean: Tensors  # the clients' weights, averaged with weights N_k
    sums: Tensors  # of N_k times what they `summed`, in double precision
    uploads: Sequence[Tensors]  # in the order of partition ids
    num_examples: int  # N, of all clients of the federation
    round: int
    seed: int
    local: Local = field(default_factory=Local)


@dataclass(frozen=True)
class Method:
    """FedAvg: nothing is changed. A method overrides what it changes."""

    stateful: ClassVar[bool] = False  # whether a client keeps something from round to round
    averages_samples: ClassVar[bool] = False  # which is no use for a table's categories
    needs_one_class: ClassVar[bool] = False  # whether it works with the one class of a sample

    @property
    def name(self) -> str:
        """The method's name."""
        return type(self).__name__.lower()

    def check_data(self, data: Dataset | Task) -> None:
        """Refuse data that the method cannot learn from, before anything is done."""
        if self.needs_one_class and data.label_sets:
            raise InputError(
                f"{type(self).__name__} needs samples of one class, and these have several labels",
                got=self.name,
                fix="use fedavg, fedprox, scaffold or moon",
            )
        schema = data.schema
        if self.averages_samples and schema is not None and len(schema.categorical):
            raise InputError(
                f"{type(self).__name__} averages samples, and categories have no average",
                got=schema.names[schema.categorical[0]],
                fix="use another method, or name these columns in drop_columns",
            )

    def client_init(self, samples: Samples, rng: np.random.Generator) -> Tensors:
        """Return what the server has to know about the real samples, once before training."""
        return {}

    def validate_client_init(self, init: Tensors, task: Task, num_examples: int) -> None:
        """Check a client's `client_init`, before `server_init` relies on it."""

    def server_init(
        self, model: Classifier, task: Task, client_inits: Sequence[Tensors], seed: int
    ) -> Tensors:
        """Return the server's first state."""
        return {}

    def broadcast(self, state: Tensors, server_round: int, seed: int) -> Tensors:
        """Return what goes to the clients of a round with the weights."""
        return state

    def local_objective(self, context: ClientContext) -> LocalObjective:
        """Return what a client minimises."""
        return LocalObjective()

    def client_update(self, context: ClientContext, steps: int) -> ClientUpdate:
        """Return, after local training, what goes to the server and what stays."""
        return ClientUpdate()

    def summed_spec(self, model: Classifier) -> Tensors:
        """Return tensors with the names, shapes and dtypes of `ClientUpdate.summed`."""
        return {}

    def upload_spec(self, model: Classifier) -> Tensors:
        """Return tensors with the names, shapes and dtypes of `ClientUpdate.upload`."""
        return {}

    def validate_upload(self, upload: Tensors, num_examples: int) -> None:
        """Check the upload of a client with that many real samples; its spec is checked before.

        Every value has to be finite. A method that uploads something should check more.
        """
        check_values(upload, most=math.inf)

    def server_update(self, state: Tensors, summary: RoundSummary) -> tuple[Tensors, Tensors]:
        """Return the server's new weights and state."""
        return summary.mean, state


@dataclass(frozen=True)
class FedAvg(Method):
    """Averaging, weighted by the clients' numbers of real samples."""


def check_range(method: Method, valid: bool, allowed: str) -> None:
    """Refuse a method whose settings are out of range."""
    if not valid:
        raise InputError(f"{method.name}'s settings are out of range", got=method, allowed=allowed)


def frozen_copy(model: Classifier, weights: Tensors) -> Classifier:
    """Return a frozen copy of the model with the given weights."""
    frozen = copy.deepcopy(model)
    frozen.load_state_dict(weights)
    return frozen.eval().requires_grad_(False)
