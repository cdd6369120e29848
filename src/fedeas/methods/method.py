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
import torch

from fedeas.data import Schema
from fedeas.seeds import child_rng
from fedeas.settings.training import Local
from fedeas.tensors import Tensors, check_values
from fedeas.training.loop import Correction
from fedeas.training.models import Classifier
from fedeas.training.samples import Samples
from fedeas.training.task import Task


@dataclass(frozen=True)
class Turn:
    """A client's turn: all that a method may look at there."""

    model: Classifier  # trained in place, from the server's weights
    before: Tensors  # the server's weights
    received: Tensors  # what the method's server part sent along
    kept: Tensors  # what the client kept of its last turn; empty the first time
    samples: Samples
    local: Local
    round: int
    rng: np.random.Generator


@dataclass(frozen=True)
class Outcome:
    """What a turn returns besides the weights."""

    added: Tensors = field(default_factory=dict)  # the server adds N_k times this
    shown: Tensors = field(default_factory=dict)  # given to the server as it is; small
    kept: Tensors = field(default_factory=dict)  # stays with the client


@dataclass(frozen=True)
class Round:
    """What the server knows after a round."""

    before: Tensors
    mean: Tensors  # the clients' weights, averaged with weights N_k
    sums: Tensors  # of N_k times what they `added`, in double precision
    shown: Sequence[Tensors]  # in the order of partition ids
    samples: int  # N, of all clients of the federation
    number: int
    seed: int
    local: Local = field(default_factory=Local)


@dataclass(frozen=True)
class Method:
    """FedAvg: nothing is changed."""

    keeps: ClassVar[bool] = False  # whether a client keeps something from one turn to the next

    @property
    def name(self) -> str:
        """The method's name."""
        return type(self).__name__.lower()

    def check_data(self, schema: Schema | None) -> None:
        """Refuse data that the method cannot learn from, before anything is done."""

    def introduce(self, samples: Samples, rng: np.random.Generator) -> Tensors:
        """Return what the server has to know about the real samples, once before training."""
        return {}

    def start(self, model: Classifier, task: Task, known: Sequence[Tensors], seed: int) -> Tensors:
        """Return the server's first state, given the clients' introductions."""
        return {}

    def check_known(self, known: Tensors, task: Task, real: int) -> None:
        """Check the introduction of a client with `real` samples, before `start` relies on it."""

    def send(self, state: Tensors, number: int, seed: int) -> Tensors:
        """Return what goes to the clients with the weights of a round."""
        return {}

    def added_like(self, model: Classifier) -> Tensors:
        """Return tensors with the names, shapes and dtypes of what clients add."""
        return {}

    def shown_like(self, model: Classifier) -> Tensors:
        """Return tensors with the names, shapes and dtypes of what clients show."""
        return {}

    def check_shown(self, shown: Tensors, real: int) -> None:
        """Check what a client with `real` samples shows; names and shapes are checked before.

        Every value has to be finite. A method that shows something should check more.
        """
        check_values(shown, most=math.inf)

    def correction(self, turn: Turn) -> Correction:
        """Return what changes in local training."""
        return Correction()

    def finish(self, turn: Turn, steps: int) -> Outcome:
        """Return, after local training, what goes to the server and what stays."""
        return Outcome()

    def update(self, state: Tensors, done: Round) -> tuple[Tensors, Tensors]:
        """Return the server's new weights and state."""
        return done.mean, state


@dataclass(frozen=True)
class FedAvg(Method):
    """Averaging, weighted by the clients' numbers of real samples."""


def frozen_copy(model: Classifier, weights: Tensors) -> Classifier:
    """Return a model like this one with other weights, which is only asked."""
    twin = copy.deepcopy(model)
    twin.load_state_dict(weights)
    return twin.eval().requires_grad_(False)


def stream(seed: int, *path: str | int) -> torch.Generator:
    """Return a torch generator named by a seed and a path."""
    return torch.Generator().manual_seed(int(child_rng(seed, *path).integers(2**62)))
