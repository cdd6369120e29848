"""The server's half: rounds of drawing a cohort, training, adding up; a checkpoint after each.

Replies are checked, weighted, and added as they come, in any order. None is kept, except where
updates are bounded by the median norm of their round, which is known when all replies are there.

A site's weight bounds how much its update counts, not how long it is: one that sends
before + 5 (X - before) with a fifth of the weight makes the model X. So updates are scaled down to
a norm: a fixed one, or a multiple of the round's median.
"""

import json
import math
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import InitVar, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import torch
from flwr.app import Message
from flwr.serverapp import Grid

from fedeas._util.files import atomic_write
from fedeas.errors import FedeasError, InfeasibleError, InputError
from fedeas.flower import records
from fedeas.flower.client import TRAIN
from fedeas.flower.exchange import exchange, reason
from fedeas.flower.roster import Node, Roster, read_size
from fedeas.flower.settings import INSTALL_PRIVATE, Deployment
from fedeas.generators.card import PrivacyGuarantee
from fedeas.training.loop import use_threads
from fedeas.training.methods import make_method
from fedeas.training.methods.method import Method, RoundSummary
from fedeas.training.models import Classifier, make_model
from fedeas.training.samples import Task
from fedeas.training.settings import Federated
from fedeas.training.simulate import draw_cohort
from fedeas.training.tensors import (
    ExactSum,
    Tensors,
    check_values,
    direction,
    load_tensors,
    save_tensors,
    torch_seed,
)

Line = dict[str, Any]  # the results of a round
Evaluate = Callable[[Tensors], Line]
Report = Callable[[Line], None]


class RoundMean(Protocol):
    """What a round's replies come to."""

    weight: int  # of all replies

    def mean(self, like: Tensors) -> Tensors:
        """Return the mean of the replies, in the dtypes of `like`."""
        ...


class Weights:
    """Client weights: N_k, up to a bound if sites may lie about it."""

    def __init__(self, nodes: Mapping[int, Node], cap: int | None) -> None:
        self._nodes, self.cap = nodes, cap

    def __getitem__(self, partition: int) -> int:
        real = self._nodes[partition].real
        return real if self.cap is None else min(real, self.cap)

    def capped(self, partitions: Sequence[int]) -> list[int]:
        """Return the clients whose weight is below the number of samples they report."""
        return sorted(p for p in partitions if self[p] < self._nodes[p].real)


@dataclass(frozen=True)
class _Reply:
    """A valid reply: the weights, what the method adds and shows, two counts."""

    partition: int
    after: Tensors
    extra: Tensors
    shown: Tensors
    steps: int
    trained_on: int


@dataclass(frozen=True)
class RoundSums:
    """The sums of a round: weights, directions of updates, what the method adds, two counts."""

    weights: RoundMean
    directions: ExactSum | None
    added: ExactSum
    trained_on: int
    steps: int


class RoundAggregator:
    """Adds up the replies of a round; an invalid one is noted and left out."""

    def __init__(
        self,
        before: Tensors,
        model: Classifier,
        method: Method,
        samples: int,
        weights_of: Weights,
        deployment: Deployment | None = None,
        wrong: Sequence[str] = (),
    ) -> None:
        self._before, self._model, self._method = before, model, method
        self._trained = {name for name, _ in model.named_parameters()}
        self._weights_of = weights_of
        self._clip = 0.0 if deployment is None else deployment.clip_norm
        # A norm that was chosen beforehand needs no median, unless a method adds something else.
        self._ratio = 0.0
        if deployment is not None and (not self._clip or method.summed_spec(model)):
            self._ratio = deployment.max_norm_ratio
        self._held: list[_Reply] = []  # until the round's median norm is known
        self._norm_cap: float | None = None
        self._clipped: list[int] = []
        self._sum = ExactSum(samples)
        self.weights: RoundMean = self._sum
        self._directions, self._extra = (ExactSum(samples) for _ in range(2))
        # Of all entries of a reply, where some are not trained: statistics and counters.
        self._with_buffers = ExactSum(samples) if before.keys() - self._trained else None
        self.shown: dict[int, Tensors] = {}
        self.good: list[int] = []
        self._wrong = list(wrong)
        self._steps = self._samples = 0
        self._measures_drift = True

    def take_sums(self, sums: RoundSums, good: Sequence[int], wrong: Sequence[str]) -> None:
        """Take the sums of a round whose replies nobody saw, and the clients that are in them."""
        self.weights, self._extra = sums.weights, sums.added
        self._measures_drift, self._with_buffers = sums.directions is not None, None
        if sums.directions is not None:
            self._directions = sums.directions
        self.good = list(good)
        self._wrong += wrong
        self._samples, self._steps = sums.trained_on, sums.steps

    def take(self, reply: Message, by_node: Mapping[int, Node], asked: int) -> None:
        """Add a reply if all of it is valid, or note why not; `asked` is the node it comes from."""
        node = by_node.get(asked)
        if node is None or node.partition in self.good:
            return
        try:
            if reply.has_error():
                raise InputError(reason(reply))
            content = reply.content
            if (size := read_size(reply)) != node.real:
                raise InputError("a changed size", got=size)
            after = records.tensors(content, "weights")
            records.check_like(after, self._before, "weights")
            extra = records.tensors(content, "added")
            records.check_like(extra, self._method.summed_spec(self._model), "sums")
            shown = records.tensors(content, "shown")
            records.check_like(shown, self._method.upload_spec(self._model), "what is shown")
            steps = records.whole(content, "steps")
            trained_on = records.whole(content, "trained-on")
            for tensors in (after, extra):
                check_values(tensors)
            self._method.validate_upload(shown, node.real)
            if self._clip:
                after = clip_update(self._before, after, self._clip)
        except FedeasError as error:
            self._wrong.append(f"client {node.partition}: {error}")
            return
        except Exception as error:  # bytes from another party can raise anything
            self._wrong.append(f"client {node.partition}: {type(error).__name__}")
            return
        self.good.append(node.partition)
        valid = _Reply(node.partition, after, extra, shown, steps, trained_on)
        if self._ratio:
            self._held.append(valid)
        else:
            self._add(valid)

    def close(self) -> None:
        """Add the replies that waited for the others, none longer than a multiple of the median.

        What is trained, running statistics, and what the method adds have each a median of their
        own: a site could otherwise hide a long update of one in the usual length of another. Sites
        that send no update, as those of one class may, do not count: that would stop all others.
        """
        held, self._held = self._held, []
        groups = [self._groups(reply) for reply in held]
        norms = [[_norm(_moved(*group)) for group in own] for own in groups]
        caps = [
            self._ratio * statistics.median_low(moved)
            if (moved := [n for n in column if n])
            else 0.0
            for column in zip(*norms, strict=True)
        ]
        if caps:
            self._norm_cap = caps[0]
        for reply, own, lengths in zip(held, groups, norms, strict=True):
            if any(length > cap for length, cap in zip(lengths, caps, strict=True)):
                self._clipped.append(reply.partition)
                trained, others, extra = (
                    clip_update(*group, cap) for group, cap in zip(own, caps, strict=True)
                )
                bounded = {**trained, **others}
                after = {name: bounded[name] for name in reply.after}  # in the model's order
                self._add(replace(reply, after=after, extra=extra))
            else:
                self._add(reply)

    def _groups(self, reply: _Reply) -> list[tuple[Tensors, Tensors]]:
        """Return what is trained, the other weights, and what the method adds: before and after."""
        trained = {k: v for k, v in reply.after.items() if k in self._trained}
        others = {k: v for k, v in reply.after.items() if k not in self._trained}
        nothing = {k: torch.zeros_like(v) for k, v in reply.extra.items()}
        return [(self._before, trained), (self._before, others), (nothing, reply.extra)]

    def _add(self, reply: _Reply) -> None:
        weight = self._weights_of[reply.partition]
        self._sum.add(reply.after, weight)
        if moved := direction(self._before, reply.after, self._trained):
            self._directions.add(moved, weight)
        if self._with_buffers is not None and (
            everything := direction(self._before, reply.after, reply.after)
        ):
            self._with_buffers.add(everything, weight)
        if reply.extra:
            self._extra.add(reply.extra, weight)
        if reply.shown:
            self.shown[reply.partition] = reply.shown
        self._steps += reply.steps
        self._samples += reply.trained_on

    def check(self, number: int, cohort: Sequence[int], minimum: float) -> None:
        """Refuse a round with too few good replies; says who is missing and why."""
        if len(self.good) >= max(1, minimum * len(cohort)):
            return
        named = {wrong.partition(":")[0] for wrong in self._wrong}
        late = [p for p in cohort if p not in self.good and f"client {p}" not in named]
        said = [*self._wrong, *(f"client {p}: no reply in time" for p in late)]
        raise InfeasibleError(
            f"round {number}: {len(self.good)} of {len(cohort)} clients gave a valid reply",
            fix="; ".join(said),
        )

    def sums(self) -> Tensors:
        """Return the sums of N_k times what the method adds."""
        return self._extra.total()

    def numbers(self) -> Line:
        """Return the round's line of the log.

        `drift` is the directional dissimilarity of the updates d_k, 1 - ||sum_k w_k d_k/||d_k||||^2
        with w_k = N_k / N: 0 where all point the same way. Only what is trained counts: running
        statistics are not updates. `drift_all` is the same over all entries of a reply, statistics
        and counters of batches too, if a model has them.
        """
        line: Line = {
            "clients": len(self.good),
            "samples": self.weights.weight,
            "trained_on": self._samples,
            "steps": self._steps,
        }
        if self._measures_drift:
            line["drift"] = self._dissimilarity(self._directions)
        line["refused"] = self._wrong
        if self._with_buffers is not None:
            line["drift_all"] = self._dissimilarity(self._with_buffers)
        if self._weights_of.cap is not None:
            line["weight_cap"] = self._weights_of.cap
            line["capped"] = self._weights_of.capped(self.good)
        if self._norm_cap is not None:
            line["norm_cap"] = self._norm_cap
            line["clipped"] = sorted(self._clipped)
        return line

    def _dissimilarity(self, directions: ExactSum) -> float:
        squared = sum(
            float((total / self.weights.weight).square().sum())
            for total in directions.total().values()
        )
        return 1.0 - squared


def clip_update(before: Mapping[str, torch.Tensor], after: Tensors, most: float) -> Tensors:
    """Scale an update down to a norm of at most `most`, over all floating-point tensors.

    >>> clipped = clip_update({"w": torch.zeros(2)}, {"w": torch.tensor([3.0, 4.0])}, 1.0)
    >>> clipped["w"]
    tensor([0.6000, 0.8000])
    """
    moved = _moved(before, after)
    norm = _norm(moved)
    if not norm > most:
        return after
    scale = most / norm
    clipped = {k: (before[k].double() + d * scale).to(after[k].dtype) for k, d in moved.items()}
    return {**after, **clipped}


def _moved(before: Mapping[str, torch.Tensor], after: Tensors) -> Tensors:
    return {k: v.double() - before[k].double() for k, v in after.items() if v.is_floating_point()}


def _norm(moved: Tensors) -> float:
    return math.sqrt(sum(float(d.square().sum()) for d in moved.values()))


@dataclass(frozen=True)
class RoundRequest:
    """One round, before its replies: what clients are sent, and which of them."""

    grid: Grid
    federated: Federated
    deployment: Deployment | None
    experiment: str
    method: Method
    model: Classifier
    number: int
    weights: Tensors  # before the round
    sent: Tensors  # by the method
    settings: Mapping[str, Any]  # that all clients of the round get
    nodes: Mapping[int, Node]  # the clients that are asked, by their nodes
    samples: int  # the weights of the cohort together
    weight_cap: int | None  # of one client
    messages: Callable[[Mapping[str, Any]], Iterable[Message]]  # with more settings for everybody


class Aggregation(Protocol):
    """How the updates of a round reach the server: each by itself, or as a sum."""

    @property
    def guarantee(self) -> PrivacyGuarantee | None:
        """What noise promises of the whole run; None without noise."""
        ...

    def check(self, federated: Federated, deployment: Deployment | None) -> None:
        """Refuse settings that cannot work, before any client is asked."""
        ...

    def collect(self, request: RoundRequest, aggregator: RoundAggregator) -> None:
        """Have the clients of a round train, and give the aggregator what comes back."""
        ...


class PlainAggregation:
    """The server reads every client's update, and adds it up as it arrives."""

    guarantee = None

    def check(self, federated: Federated, deployment: Deployment | None) -> None:
        """Refuse a run that is to be secure."""
        if federated.secure:
            raise InputError(
                "a secure run needs secure sums", fix=f"{INSTALL_PRIVATE}, which has them"
            )

    def collect(self, request: RoundRequest, aggregator: RoundAggregator) -> None:
        """Send everybody the model, and take the replies one by one."""
        window, timeout = request.federated.max_in_flight, request.federated.timeout
        for node, reply in exchange(request.grid, request.messages({}), window, timeout):
            aggregator.take(reply, request.nodes, node)
        aggregator.close()


PLAIN = PlainAggregation()


@dataclass(frozen=True)
class Trained:
    """The outcome: the final weights and a line per round."""

    weights: Tensors
    history: Sequence[Line]


def run_rounds(
    grid: Grid,
    federated: Federated,
    task: Task,
    seed: int,
    checkpoint: Path,
    experiment: str,
    evaluate: Evaluate,
    report: Report | None = None,
    resumed: Callable[[Sequence[Line]], None] | None = None,
    deployment: Deployment | None = None,
    aggregation: Aggregation = PLAIN,
) -> Trained:
    """Train a federation, from its checkpoint where there is one.

    `experiment` names the run: clients keep their state under it, and a checkpoint of another
    experiment is refused. `evaluate` measures the server's weights after a round; `report` hears
    every new line, `resumed` those of a run that goes on. With `deployment`, clients may be absent:
    a round goes on with the others while `min_reply_fraction` of its cohort send a valid reply.
    `aggregation` is how updates reach the server.
    """
    use_threads(federated.threads)  # of the server's own arithmetic too, on every grid
    owners = checkpoint.with_suffix(".nodes.json")
    server = _Server(grid, federated, task, seed, experiment, deployment, aggregation, owners)
    now = server.start()
    if checkpoint.exists():
        now = _restore(checkpoint, experiment)
        if resumed is not None:
            resumed(now.history)
    for number in range(len(now.history) + 1, federated.rounds + 1):
        begun = time.monotonic()
        weights, state, line, good = server.play(now, number)
        averaged = _average(now, weights, number, federated.ema_decay)
        if number % federated.eval_every == 0 or number == federated.rounds:
            line |= evaluate(averaged or weights)
        line["seconds"] = round(time.monotonic() - begun, 3)
        accepted = now.accepted | dict.fromkeys(good, number)
        now = _State(weights, state, [*now.history, line], accepted, now.weight_cap, averaged)
        _save(checkpoint, experiment, now)
        if report is not None:
            report(line)
    return Trained(now.averaged or now.weights, now.history)


@dataclass(frozen=True)
class _State:
    """All that the server knows between two rounds; a checkpoint holds exactly this."""

    weights: Tensors
    method: Tensors
    history: list[Line]
    accepted: dict[int, int]  # the last round of a client whose reply counted
    weight_cap: int | None  # set at the start, by those who were there, and kept; None: no bound
    averaged: Tensors  # moving average of the weights; empty where none is asked for


@dataclass
class _Server:
    """What is the same in all rounds: who takes part, the method, and what clients are asked."""

    grid: Grid
    federated: Federated
    task: Task
    seed: int
    experiment: str
    deployment: Deployment | None
    aggregation: Aggregation
    owners: InitVar[Path]  # file of whose number is whose

    def __post_init__(self, owners: Path) -> None:
        federated, deployment, task = self.federated, self.deployment, self.task
        self.method = make_method(federated.method)
        self.method.check_data(task)
        self.model = make_model(federated.model, task, torch_seed(self.seed, "weights"))
        self.members = Roster(self.grid, federated, task, self.seed, deployment, owners)
        self.aggregation.check(federated, deployment)
        self.members.gather()
        self.request = {
            "seed": self.seed,
            "method": federated.method,
            "model": federated.model.to_dict(),
            "local": federated.local.to_dict(),
            "task": task.to_dict(),
            "threads": federated.threads,
            "experiment": self.experiment,
            "policy": deployment.policy if deployment is not None else "",
        }

    def start(self) -> _State:
        """Return the state before the first round."""
        cap = None
        if self.deployment is not None:
            cap = self.deployment.weight_cap([node.real for node in self.members.nodes.values()])
        known = self.members.known()
        state = self.method.server_init(self.model, self.task, known, self.seed)
        return _State(dict(self.model.state_dict()), state, [], {}, cap, {})

    def play(self, now: _State, number: int) -> tuple[Tensors, Tensors, Line, list[int]]:
        """Play a round: the new weights, the method's state, a line, and whose replies counted."""
        federated, nodes = self.federated, self.members.nodes
        cohort = draw_cohort(self.seed, number, self.members.clients, federated.fraction)
        there, absent = self.members.split(cohort)
        weights_of = Weights(nodes, now.weight_cap)
        samples = sum(weights_of[p] for p in cohort if p in nodes)
        added = RoundAggregator(
            now.weights, self.model, self.method, samples, weights_of, self.deployment, absent
        )
        by_node = {nodes[p].node: nodes[p] for p in there}
        sent = self.method.broadcast(now.method, number, self.seed)
        settings = {**self.request, "round": number}
        request = RoundRequest(
            self.grid, federated, self.deployment, self.experiment, self.method, self.model,
            number, now.weights, sent, settings, by_node, samples, now.weight_cap,
            partial(self._messages, now, settings, there, sent),
        )  # fmt: skip
        self.aggregation.collect(request, added)
        added.check(number, cohort, federated.min_reply_fraction)
        done = RoundSummary(
            now.weights,
            added.weights.mean(now.weights),
            added.sums(),
            [added.shown[p] for p in sorted(added.shown)],
            sum(weights_of[p] for p in nodes),
            number,
            self.seed,
            federated.local,
        )
        weights, state = self.method.server_update(now.method, done)
        missing = sorted(set(cohort) - set(added.good))
        return weights, state, {"round": number, **added.numbers(), "missing": missing}, added.good

    def _messages(
        self,
        now: _State,
        settings: Mapping[str, Any],
        there: Sequence[int],
        sent: Tensors,
        more: Mapping[str, Any],
    ) -> Iterator[Message]:
        """Yield what the clients of a round are asked; tensors are packed once for all of them."""
        content = records.pack({"weights": now.weights, "method": sent})
        nodes, timeout = self.members.nodes, self.federated.timeout
        # The largest first: the last ones to finish are then short.
        for p in sorted(there, key=lambda p: (-nodes[p].real, p)):
            request = {**settings, **more, "last": now.accepted.get(p, 0)}
            own, round_name = records.with_settings(content, request), str(settings["round"])
            yield Message(own, nodes[p].node, TRAIN, ttl=timeout, group_id=round_name)


def _average(now: _State, weights: Tensors, number: int, decay: float) -> Tensors:
    """Return the moving average after a round; the first rounds, far from the last, fade sooner."""
    if not decay:
        return {}
    kept = min(decay, (number - 1) / (number + 8))
    return {
        name: torch.lerp(weight, now.averaged.get(name, weight), kept)
        if weight.is_floating_point()
        else weight
        for name, weight in weights.items()
    }


def _save(path: Path, experiment: str, now: _State) -> None:
    tensors = {f"weights.{k}": v for k, v in now.weights.items()}
    tensors |= {f"state.{k}": v for k, v in now.method.items()}
    tensors |= {f"averaged.{k}": v for k, v in now.averaged.items()}
    about = {
        "experiment": experiment,
        "history": now.history,
        "accepted": list(now.accepted.items()),
        "weight_cap": now.weight_cap,
    }
    save_tensors(path, tensors, about)


def _restore(path: Path, experiment: str) -> _State:
    tensors, about = load_tensors(path)
    if about.get("experiment") != experiment:
        raise InputError(f"{path} is of another experiment", fix="choose another folder")
    weights, state, averaged = (
        {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}
        for prefix in ("weights.", "state.", "averaged.")
    )
    accepted = {int(p): int(r) for p, r in about["accepted"]}
    return _State(weights, state, about["history"], accepted, about.get("weight_cap"), averaged)


class RoundLog:
    """One line of JSON per round, in a file and to listeners."""

    def __init__(self, path: Path, listeners: Sequence[Callable[[Line], None]] = ()) -> None:
        self._path, self.listeners = path, list(listeners)

    def add(self, line: Line) -> None:
        """Write a round's line; the first one starts a new file."""
        with self._path.open("w" if line["round"] == 1 else "a", encoding="utf-8") as file:
            file.write(_text(line))
        self._tell(line)

    def go_on(self, history: Sequence[Line]) -> None:
        """Keep exactly the lines of the checkpoint: a killed run may lack its last one."""
        with atomic_write(self._path) as temporary:
            temporary.write_text("".join(map(_text, history)), encoding="utf-8")
        self._tell(history[-1])

    def _tell(self, line: Line) -> None:
        for listener in self.listeners:
            listener(line)


def _text(line: Line) -> str:
    return json.dumps(line, default=float) + "\n"
