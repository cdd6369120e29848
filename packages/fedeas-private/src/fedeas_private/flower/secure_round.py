"""A round under a secure sum: the server sees the sum of the clients' replies, and none of them.

Replies are added as whole numbers on every grid, so that masks cancel exactly and the model has the
same bits with a secure sum as without. With noise, updates are clipped and have equal weights.

Whether training ended in finite numbers depends on the samples, and so would a refusal. A client
whose training did not sends an update of zero instead, and says so in its own log.
"""

import json
import logging
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fedeas.errors import InfeasibleError, InputError
from fedeas.flower import records
from fedeas.flower.aggregation import RoundAggregator, RoundSums, clip_update
from fedeas.flower.client import LocalTraining
from fedeas.flower.exchange import exchange
from fedeas.flower.rounds import RoundRequest
from fedeas.flower.settings import Deployment
from fedeas.generators.card import PrivacyGuarantee
from fedeas.training.methods.method import Method
from fedeas.training.models import Classifier
from fedeas.training.settings import Federated
from fedeas.training.tensors import (
    LARGEST,
    ExactSum,
    Tensors,
    check_values,
    direction,
    tensors_digest,
)
from fedeas_private.accounting import DELTA, SAMPLE, Unit, rho_for, sigma_for
from fedeas_private.flower.queries import encode_question, read_question
from fedeas_private.flower.secure_sum import (
    finish_sum,
    new_server,
    new_session,
    read_replies,
    shared_run,
)
from fedeas_private.flower.settings import RoundSum
from fedeas_private.noise import SumNoise
from fedeas_private.secure_sum.identity import Members
from fedeas_private.secure_sum.messages import RefusedError, Vector

_LOG = logging.getLogger(__name__)
_SERVER_LOG = logging.getLogger("flwr")  # Flower streams it to `flwr run --stream`
_FOR_ONE_CLIENT = ("last", "secure")  # settings that differ, or that name the sum itself
_UNITS = 2**24  # whole numbers that a clipping norm is counted in
_BLOCK = 2**14  # numbers up to _UNITS whose squares add up in 63 bits


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


def update_words(asked: object, training: LocalTraining, members: Members) -> Vector:
    """Train a client, and return the words of its update, with its part of the noise if any.

    All that can be refused is refused before its samples are opened.
    """
    question, request = read_question(asked), training.request
    content = training.message.content
    weights, method = (records.tensors(content, group) for group in ("weights", "method"))
    digest = content_digest(weights, method, request.asked)
    of_message = (str(request.asked["experiment"]), request.number, digest)
    if of_message != (question.experiment, question.round, question.content):
        raise RefusedError("the sum is about another round or another model than the message")
    start = training.start()
    layout = Layout(question, start.before, request.method, start.model)
    noise = layout.noise(members) if question.rho else None
    trained = training.run(start)
    words = layout.words(
        dict(trained.model.state_dict()),
        trained.outcome.summed,
        training.site.size,
        trained.trained_on,
        trained.steps,
    )
    if noise is not None:
        words = words + noise.part(layout.length).view(np.uint64)
    return words


class Layout:
    """How a client's reply is laid out in words: the same at the server and at every client."""

    def __init__(self, question: RoundSum, before: Tensors, method: Method, model: Classifier):
        if method.upload_spec(model):
            raise InputError(
                "this method shows the server something of each client",
                got=method.name,
                allowed="fedavg, fedprox, scaffold or moon with secure sums",
            )
        self._question, self._before = question, before
        self._trained = {name for name, _ in model.named_parameters()}
        self._added = method.summed_spec(model)
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
        leads to, and for a sample, a group or all samples of a site, replaced as well as added or
        removed.
        """
        return 2.0 * _UNITS

    def noise(self, members: Members) -> SumNoise:
        """Return the noise of the sum; both sides compute it from its cost."""
        sigma = sigma_for(
            self._question.rho, self.sensitivity, honest=members.honest, words=self.length
        )
        return SumNoise(sigma, members.honest)

    def words(
        self, after: Tensors, added: Tensors, samples: int, trained_on: int, steps: int
    ) -> Vector:
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

    def read(self, words: Vector, weight: int) -> RoundSums:
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


class SecureAggregation:
    """The server sees the sum of a round's updates, and none of them.

    Parameters
    ----------
    members
        The members of the federation.
    epsilon, delta
        What the noise of the whole run lets one unit of a site cost; an epsilon of 0: no noise.
    unit
        Whose privacy that is: 'sample' or 'group'.
    """

    def __init__(
        self,
        members: Members | None,
        *,
        epsilon: float = 0.0,
        delta: float = DELTA,
        unit: Unit = SAMPLE,
    ) -> None:
        self._members, self._epsilon, self._delta, self._unit = members, epsilon, delta, unit

    @property
    def guarantee(self) -> PrivacyGuarantee | None:
        """What the noise of the whole run promises; None without noise."""
        if not self._epsilon:
            return None
        text = f"one {self._unit} of a site, added, removed or replaced by another, over all rounds"
        return PrivacyGuarantee(self._epsilon, self._delta, text)

    def check(self, federated: Federated, deployment: Deployment | None) -> None:
        """Refuse settings that a secure sum cannot serve."""
        check_secure(federated, deployment, self._members)
        if deployment is not None and not self._epsilon:
            _SERVER_LOG.info("updates are added up without noise: only sites that allow it answer "
                             "(`exact` in `allow` of site.toml)")  # fmt: skip

    def collect(self, request: RoundRequest, aggregator: RoundAggregator) -> None:
        """Train all clients of a round, and take the sum of their words."""
        members = check_secure(request.federated, request.deployment, self._members)
        question = self._question(request)
        layout = Layout(question, request.weights, request.method, request.model)
        nodes, timeout = request.nodes, request.federated.timeout
        names = {node: f"client {client.partition}" for node, client in nodes.items()}
        run = shared_run(request.grid, nodes, members, timeout, names)
        session = new_session(encode_question(question), layout.length, run)
        server = new_server(session, run, names)
        messages = request.messages({"secure": session})
        replies = exchange(request.grid, messages, request.federated.max_in_flight, timeout)
        first = read_replies("training", replies, nodes, server.left_out)
        sums = finish_sum(request.grid, session, server, first, timeout)
        weight = sum(question.weight(nodes[node].real) for node in sums.nodes)
        aggregator.take_sums(
            layout.read(sums.words, weight),
            sorted(nodes[node].partition for node in sums.nodes),
            [f"{names[node]}: {why}" for node, why in sums.left_out.items()],
        )

    def _question(self, request: RoundRequest) -> RoundSum:
        """Return what the sum of a round is of."""
        deployment, rho = request.deployment, 0.0
        if self._epsilon:
            rho = rho_for(self._epsilon, self._delta) / request.federated.rounds
        return RoundSum(
            request.experiment,
            request.number,
            content_digest(request.weights, request.sent, request.settings),
            max(1, request.samples),
            min(request.weight_cap or 0, 2**52),
            # A deployed site would show the length of its update by its direction.
            drift=deployment is None,
            clip=0.0 if deployment is None else deployment.clip_norm,
            rho=rho,
            unit=self._unit,
        )


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
    return members
