"""The server's half: rounds of drawing a cohort, training, adding up; a checkpoint after each."""

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import InitVar, dataclass
from pathlib import Path
from typing import Any

import torch
from flwr.app import Message
from flwr.serverapp import Grid

from fedeas._internal.files import atomic_write
from fedeas.errors import InputError
from fedeas.train.flower import records
from fedeas.train.flower.aggregation import Line, RoundAggregator, Weights
from fedeas.train.flower.client import TRAIN
from fedeas.train.flower.deployment import Deployment
from fedeas.train.flower.exchange import exchange
from fedeas.train.flower.roster import Roster
from fedeas.train.loop import use_threads
from fedeas.train.methods import make_method
from fedeas.train.methods.method import RoundSummary
from fedeas.train.models import make_model
from fedeas.train.samples import Task
from fedeas.train.settings import Federated
from fedeas.train.simulate import draw_cohort
from fedeas.train.tensors import (
    Tensors,
    load_tensors,
    save_tensors,
    torch_seed,
)

Evaluate = Callable[[Tensors], Line]
Report = Callable[[Line], None]


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
) -> Trained:
    """Train a federation, from its checkpoint where there is one.

    `experiment` names the run: clients keep their state under it, and a checkpoint of another
    experiment is refused. `evaluate` measures the server's weights after a round; `report` hears
    every new line, `resumed` those of a run that goes on. With `deployment`, clients may be absent:
    a round goes on with the others while `min_reply_fraction` of its cohort send a valid reply.
    """
    use_threads(federated.threads)  # of the server's own arithmetic too, on every grid
    owners = checkpoint.with_suffix(".nodes.json")
    server = _Server(grid, federated, task, seed, experiment, deployment, owners)
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
    owners: InitVar[Path]  # file of whose number is whose

    def __post_init__(self, owners: Path) -> None:
        federated, deployment, task = self.federated, self.deployment, self.task
        self.method = make_method(federated.method)
        self.method.check_data(task)
        self.model = make_model(federated.model, task, torch_seed(self.seed, "weights"))
        self.members = Roster(self.grid, federated, task, self.seed, deployment, owners)
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
        messages = self._messages(now, settings, there, sent)
        window, timeout = federated.max_in_flight, federated.timeout
        for node, reply in exchange(self.grid, messages, window, timeout):
            added.take(reply, by_node, node)
        added.close()
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
    ) -> Iterator[Message]:
        """Yield what the clients of a round are asked; tensors are packed once for all of them."""
        content = records.pack({"weights": now.weights, "method": sent})
        nodes, timeout = self.members.nodes, self.federated.timeout
        # The largest first: the last ones to finish are then short.
        for p in sorted(there, key=lambda p: (-nodes[p].real, p)):
            request = {**settings, "last": now.accepted.get(p, 0)}
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
