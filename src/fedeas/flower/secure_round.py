"""A round under a secure sum: the server sees the sum of the clients' replies, and none of them.

Replies are added as whole numbers on every grid, so that masks cancel exactly and the model has the
same bits with a secure sum as without. With noise, updates are clipped and have equal weights.

Whether training ended in finite numbers depends on the samples, and so would a refusal. A client
whose training did not sends an update of zero instead, and says so in its own log.
"""

import json
import logging
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from flwr.app import Message
from flwr.serverapp import Grid
from numpy.typing import NDArray

from fedeas.errors import InfeasibleError, InputError
from fedeas.flower.exchange import exchange
from fedeas.flower.queries import TRAIN
from fedeas.flower.robust import MEAN, clip_update
from fedeas.flower.secure_sum import Sums, finish_sum, read_replies
from fedeas.flower.sums import ExactSum, direction
from fedeas.methods.method import Method
from fedeas.privacy.accounting import rho_for, sigma_for
from fedeas.privacy.noise import Noise
from fedeas.privacy.secure_sum.identity import Members
from fedeas.privacy.secure_sum.messages import RefusedError, Words
from fedeas.privacy.secure_sum.server import Server
from fedeas.settings.deployment import Deployment, RoundSum
from fedeas.settings.reading import read_settings
from fedeas.settings.training import Federated
from fedeas.tensors import LARGEST, Tensors, check_values, tensors_digest
from fedeas.training.models import Classifier

if TYPE_CHECKING:
    from fedeas.flower.members import Node

_LOG = logging.getLogger(__name__)
_SERVER_LOG = logging.getLogger("flwr")  # Flower streams it to `flwr run --stream`
_FOR_ONE_CLIENT = ("last", "secure")  # settings that differ, or that name the sum itself
_UNITS = 2**24  # whole numbers that a clipping norm is counted in
_BLOCK = 2**14  # numbers up to _UNITS whose squares add up in 63 bits


def encode_question(question: RoundSum) -> dict[str, object]:
    """Return what a round's sum is of, as it is sent."""
    return {"query": TRAIN, **question.to_dict()}


def read_question(asked: object) -> RoundSum:
    """Read what another party says that a round's sum is of."""
    if not isinstance(asked, dict) or asked.get("query") != TRAIN:
        raise RefusedError("not a question about training")
    return read_settings(RoundSum, {k: v for k, v in asked.items() if k != "query"}, "the question")


def content_digest(weights: Tensors, method: Tensors, settings: Mapping[str, Any]) -> str:
    """Return the hash of what the server sends all clients of a round: tensors and settings.

    Were the settings not the same for all, a server could have everybody but one train with no
    learning rate, and the sum would be that one's update.
    """
    named = {f"weights.{k}": v for k, v in weights.items()}
    named |= {f"method.{k}": v for k, v in method.items()}
    common = {name: value for name, value in settings.items() if name not in _FOR_ONE_CLIENT}
    about = json.dumps(common, sort_keys=True)
    return tensors_digest({k: v.detach().cpu().contiguous() for k, v in named.items()}, about)


class Layout:
    """How a client's reply is laid out in words: the same at the server and at every client."""

    def __init__(self, question: RoundSum, before: Tensors, method: Method, model: Classifier):
        if method.shown_like(model):
            raise InputError(
                "this method shows the server something of each client",
                got=method.name,
                allowed="fedavg, fedprox, scaffold or moon with secure sums",
            )
        self._question, self._before = question, before
        self._trained = {name for name, _ in model.named_parameters()}
        self._added = method.added_like(model)
        if question.rho:
            if self._added:
                raise InputError("noise works only with methods that send nothing but weights")
            self._parts = [{k: v for k, v in before.items() if v.is_floating_point()}]
        else:
            directions = {k: v for k, v in before.items() if k in self._trained and question.drift}
            self._parts = [before, directions, self._added]
        self.length = 2 + sum(v.numel() for part in self._parts for v in part.values())

    @property
    def sensitivity(self) -> float:
        """How far one sample moves a client's words under noise: each has a norm of up to _UNITS.

        That is all that is used of them, so it holds whatever the server sends, whatever training
        leads to, and for a sample replaced as well as added or removed.
        """
        return 2.0 * _UNITS

    def noise(self, members: Members) -> Noise:
        """Return the noise of the sum; both sides compute it from its cost."""
        sigma = sigma_for(
            self._question.rho, self.sensitivity, honest=members.honest, words=self.length
        )
        return Noise(sigma, members.honest)

    def words(
        self, after: Tensors, added: Tensors, samples: int, trained_on: int, steps: int
    ) -> Words:
        """Return a client's words; noise is added by the caller."""
        question = self._question
        if question.rho:
            (part,) = self._parts
            moved = [(after[k].double() - part[k].double()).reshape(-1).cpu() for k in sorted(part)]
            counts = np.zeros(2, np.int64)
            return np.append(whole_update(torch.cat(moved).numpy(), question.clip), counts).view(
                np.uint64
            )
        after, added = self._sound(after, added)
        if question.clip:
            after = clip_update(self._before, after, question.clip)
        weight, of = question.weight(samples), ExactSum(question.most)
        moved_to = direction(self._before, after, self._trained) if question.drift else {}
        if question.drift and not moved_to:  # nothing has changed
            moved_to = {k: torch.zeros_like(self._before[k]) for k in self._trained}
        groups = [of.terms(tensors, weight) for tensors in (after, moved_to, added)]
        flat = [
            group[name].reshape(-1).to(torch.int64).cpu().numpy()
            for group, part in zip(groups, self._parts, strict=True)
            for name in sorted(part)
        ]
        return np.concatenate([*flat, np.array([trained_on, steps])]).astype(np.int64).view("u8")

    def _sound(self, after: Tensors, added: Tensors) -> tuple[Tensors, Tensors]:
        """Return what training led to, or no change at all if it cannot be added up."""
        try:
            check_values(after)
            check_values(added)
        except InputError as error:
            _LOG.warning("an update of zero is sent: %s", error)
            return self._before, {k: torch.zeros_like(v) for k, v in self._added.items()}
        return after, added

    def read(self, words: Words, weight: int) -> "RoundSums":
        """Return what the sum of the clients' words says."""
        values = torch.from_numpy(words.view(np.int64).copy())
        at, groups = 0, []
        for part in self._parts:
            group = {}
            for name in sorted(part):
                size = part[name].numel()
                group[name] = values[at : at + size].reshape(part[name].shape)
                at += size
            groups.append({name: group[name] for name in part})  # in the order of the model
        trained_on, steps = (int(x) for x in values[-2:])
        if self._question.rho:
            mean: ExactSum | MeanUpdate = MeanUpdate(groups[0], weight, self._question.clip)
            return RoundSums(mean, None, ExactSum(1), 0, 0)
        sums = []
        for group in groups:
            own = ExactSum(self._question.most)
            own.take_total(group, weight)
            sums.append(own)
        check_mean(sums[0], self._before)
        return RoundSums(
            sums[0], sums[1] if self._question.drift else None, sums[2], trained_on, steps
        )


@dataclass(frozen=True)
class RoundSums:
    """The sums of a round: weights, directions of updates, what the method adds, two counts."""

    weights: "ExactSum | MeanUpdate"
    directions: ExactSum | None
    added: ExactSum
    trained_on: int
    steps: int


class MeanUpdate:
    """The mean of clipped updates under noise, each with the same weight."""

    def __init__(self, totals: Tensors, clients: int, clip: float) -> None:
        self._totals, self.weight, self._scale = totals, clients, _UNITS / clip

    def mean(self, like: Tensors) -> Tensors:
        """Return the weights after the round; what is not floating point stays as it was."""
        moved = {
            k: like[k].double() + total.double() / (self._scale * self.weight)
            for k, total in self._totals.items()
        }
        return {**like, **{k: v.to(like[k].dtype) for k, v in moved.items()}}


def whole_update(moved: NDArray[np.float64], clip: float) -> NDArray[np.int64]:
    """Return an update in whole numbers, `_UNITS` to a norm of `clip`, of a norm up to `_UNITS`.

    The norm of what is returned is at most `_UNITS` for every input. An update that is not finite
    becomes zero. Any other is divided by the larger of its norm and `clip`, so that no number
    passes 1, multiplied by `_UNITS`, and rounded towards zero, which lengthens nothing. Errors of
    floating point could leave the norm above by a few parts in 10**15. So the squares are added up
    as whole numbers, without any error, and where they pass the bound all numbers are scaled down.

    >>> whole_update(np.array([3.0, -4.0]), clip=10.0).tolist()
    [5033164, -6710886]
    >>> whole_update(np.array([np.nan, 1.0]), clip=10.0).tolist()
    [0, 0]
    """
    if not np.isfinite(moved).all():
        _LOG.warning("an update of zero is sent: training did not end in finite numbers")
        return np.zeros(len(moved), np.int64)
    largest = float(np.abs(moved).max(initial=0.0)) or 1.0
    norm = largest * float(np.linalg.norm(moved / largest))  # no square is too large or small
    whole = np.trunc(moved / max(norm, clip) * _UNITS).astype(np.int64)
    while (square := _square(whole)) > _UNITS**2:
        # Below 1, so at least the largest number gets smaller: this ends.
        whole = np.trunc(whole * (_UNITS / math.sqrt(square))).astype(np.int64)
    return whole


def _square(whole: NDArray[np.int64]) -> int:
    """Return the squared norm of whole numbers up to `_UNITS`, exactly."""
    starts = range(0, len(whole), _BLOCK)
    return sum(int(np.square(whole[at : at + _BLOCK]).sum()) for at in starts)


def check_mean(weights: ExactSum, like: Tensors) -> None:
    """Refuse a sum that cannot be of sound replies: of one reply nothing can be checked."""
    for name, tensor in weights.mean(like).items():
        if tensor.is_floating_point() and not float(tensor.abs().max()) <= LARGEST:
            raise InfeasibleError(
                f"the sum of the round is out of range at {name!r}",
                fix="a client sent something else than weights; find it by a run without secure",
            )


class SecureRounds:
    """What the secure sums of all rounds of a run have in common."""

    def __init__(
        self,
        grid: Grid,
        federated: Federated,
        deployment: Deployment | None,
        members: Members | None,
        experiment: str,
    ) -> None:
        self._grid, self._federated, self._experiment = grid, federated, experiment
        self._members = check_secure(federated, deployment, members)
        self._deployed = deployment is not None
        self._clip = deployment.clip_norm if deployment is not None else 0.0
        self._rho = 0.0
        if deployment is not None and deployment.epsilon:
            self._rho = rho_for(deployment.epsilon, deployment.delta) / federated.rounds
        if self._deployed and not self._rho:
            _SERVER_LOG.info("updates are added up without noise: only sites that allow it answer "
                             "(`exact` in `allow` of site.toml)")  # fmt: skip

    def question(
        self,
        number: int,
        weights: Tensors,
        method: Tensors,
        settings: Mapping[str, Any],
        samples: int,
        cap: int | None,
    ) -> RoundSum:
        """Return what the sum of a round is of."""
        return RoundSum(
            self._experiment,
            number,
            content_digest(weights, method, settings),
            max(1, samples),
            min(cap or 0, 2**52),
            # A deployed site would show the length of its update by its direction.
            not self._deployed,
            self._clip,
            self._rho,
        )

    def sums(
        self, session: str, layout: Layout, messages: Iterable[Message], nodes: Mapping[int, "Node"]
    ) -> Sums:
        """Train all clients of a round, and return the sum of their words."""
        names = {node: f"client {known.partition}" for node, known in nodes.items()}
        server = Server(session, layout.length, self._members, names)
        timeout = self._federated.timeout
        replies = exchange(self._grid, messages, self._federated.window, timeout)
        begun = read_replies("training", replies, nodes, server.left_out)
        return finish_sum(self._grid, session, server, begun, timeout)


def check_secure(
    federated: Federated, deployment: Deployment | None, members: Members | None
) -> Members:
    """Refuse settings that a secure sum cannot serve."""
    if members is None:
        raise InputError(
            "a secure run needs the list of members", fix="set `members` to a members.toml"
        )
    if deployment is not None and len(members) != deployment.sites:
        raise InputError(
            "the list of members is of another federation",
            got=f"{len(members)} members",
            allowed=f"{deployment.sites} sites",
        )
    if federated.fraction != 1.0:
        raise InputError(
            "secure sums are over all members, so that no server chooses them",
            got=f"fraction = {federated.fraction}",
            allowed="fraction = 1.0",
        )
    if deployment is not None and deployment.aggregation != MEAN:
        raise InputError(
            "only the mean is a sum", got=deployment.aggregation, allowed=f"aggregation = {MEAN}"
        )
    return members
