"""The server's half: rounds of drawing a cohort, training, adding up; a checkpoint after each."""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from flwr.app import Message
from flwr.serverapp import Grid

from fedeas.errors import InputError
from fedeas.flower import records
from fedeas.flower.aggregate import RoundAggregator, Weights
from fedeas.flower.client import TRAIN
from fedeas.flower.exchange import exchange
from fedeas.flower.log import Line
from fedeas.flower.members import Members
from fedeas.flower.secure_round import Layout, SecureRounds, encode_question
from fedeas.flower.secure_sum import new_session
from fedeas.methods.method import Round
from fedeas.methods.registry import make_method
from fedeas.privacy.secure_sum.identity import Members as MemberList
from fedeas.seeds import child_rng
from fedeas.settings.deployment import Deployment
from fedeas.settings.training import Federated
from fedeas.tensors import Tensors, load_tensors, save_tensors
from fedeas.training.loop import use_threads
from fedeas.training.models import make_model
from fedeas.training.task import Task

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
    members: MemberList | None = None,
) -> Trained:
    """Train a federation, from its checkpoint where there is one.

    `experiment` names the run: clients keep their state under it, and a checkpoint of another
    experiment is refused. `evaluate` measures the server's weights after a round; `report` hears
    every new line, `resumed` those of a run that goes on. With `deployment`, clients may be absent:
    a round goes on with the others while `federated.minimum` of its cohort send a valid reply.
    A secure run needs the `members` of the federation.
    """
    use_threads(federated.threads)  # of the server's own arithmetic too, on every grid
    owners = checkpoint.with_suffix(".nodes.json")
    server = _Server(grid, federated, task, seed, experiment, deployment, members, owners)
    now = server.start()
    if checkpoint.exists():
        now = _restore(checkpoint, experiment)
        if resumed is not None:
            resumed(now.history)
    for number in range(len(now.history) + 1, federated.rounds + 1):
        begun = time.monotonic()
        weights, state, line, good = server.play(now, number)
        averaged = _average(now, weights, number, federated.average)
        if number % federated.evaluate_every == 0 or number == federated.rounds:
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


class _Server:
    """What is the same in all rounds: who takes part, the method, and what clients are asked."""

    def __init__(
        self,
        grid: Grid,
        federated: Federated,
        task: Task,
        seed: int,
        experiment: str,
        deployment: Deployment | None,
        members: MemberList | None,
        owners: Path,
    ) -> None:
        self._grid, self._federated, self._task, self._seed = grid, federated, task, seed
        self._deployment = deployment
        self._method = make_method(federated.method)
        self._method.check_data(task.schema)
        self._model = make_model(federated.model, task, _weight_seed(seed))
        self._members = Members(grid, federated, task, seed, deployment, owners)
        self._secure: SecureRounds | None = None
        if federated.secure:
            self._secure = SecureRounds(grid, federated, deployment, members, experiment)
        self._members.gather()
        self._asked = {
            "seed": seed,
            "method": federated.method,
            "model": federated.model.to_dict(),
            "local": federated.local.to_dict(),
            "task": task.to_dict(),
            "threads": federated.threads,
            "experiment": experiment,
            "policy": deployment.policy if deployment is not None else "",
        }

    def start(self) -> _State:
        """Return the state before the first round."""
        cap = None
        if self._deployment is not None:
            sizes = [node.real for node in self._members.nodes.values()]
            cap = self._deployment.weight_cap(sizes)
        known = self._members.known()
        state = self._method.start(self._model, self._task, known, self._seed)
        return _State(dict(self._model.state_dict()), state, [], {}, cap, {})

    def play(self, now: _State, number: int) -> tuple[Tensors, Tensors, Line, list[int]]:
        """Play a round: the new weights, the method's state, a line, and whose replies counted."""
        federated, nodes = self._federated, self._members.nodes
        cohort = draw_cohort(self._seed, number, self._members.clients, federated.fraction)
        there, absent = self._members.split(cohort)
        weights_of = Weights(nodes, now.weight_cap)
        samples = sum(weights_of[p] for p in cohort if p in nodes)
        added = RoundAggregator(
            now.weights, self._model, self._method, samples, weights_of, self._deployment, absent
        )
        by_node = {nodes[p].node: nodes[p] for p in there}
        sent = self._method.send(now.method, number, self._seed)
        if self._secure is None:
            messages = self._messages(now, number, there, sent)
            for node, reply in exchange(self._grid, messages, federated.window, federated.timeout):
                added.take(reply, by_node, node)
            added.close()
        else:
            settings = self._settings(number)
            asked = self._secure.question(
                number, now.weights, sent, settings, samples, weights_of.cap
            )
            layout = Layout(asked, now.weights, self._method, self._model)
            session = new_session(encode_question(asked), layout.length)
            messages = self._messages(now, number, there, sent, session)
            found = self._secure.sums(session, layout, messages, by_node)
            good = sorted(by_node[node].partition for node in found.nodes)
            weight = sum(asked.weight(nodes[p].real) for p in good)
            wrong = [f"client {by_node[n].partition}: {why}" for n, why in found.left_out.items()]
            added.take_sums(layout.read(found.words, weight), good, wrong)
        added.check(number, cohort, federated.minimum)
        done = Round(
            now.weights,
            added.weights.mean(now.weights),
            added.sums(),
            [added.shown[p] for p in sorted(added.shown)],
            sum(weights_of[p] for p in nodes),
            number,
            self._seed,
            federated.local,
        )
        weights, state = self._method.update(now.method, done)
        missing = sorted(set(cohort) - set(added.good))
        return weights, state, {"round": number, **added.numbers(), "missing": missing}, added.good

    def _settings(self, number: int) -> dict[str, Any]:
        """Return what all clients of a round are asked."""
        return {**self._asked, "round": number}

    def _messages(
        self, now: _State, number: int, there: Sequence[int], sent: Tensors, session: str = ""
    ) -> Iterator[Message]:
        """Yield what the clients of a round are asked; tensors are packed once for all of them."""
        content = records.pack({"weights": now.weights, "method": sent})
        nodes = self._members.nodes
        # The largest first: the last ones to finish are then short.
        for p in sorted(there, key=lambda p: (-nodes[p].real, p)):
            own = self._settings(number) | {"last": now.accepted.get(p, 0)}
            if session:
                own["secure"] = session
            yield Message(
                records.with_settings(content, own),
                nodes[p].node,
                TRAIN,
                ttl=self._federated.timeout,
                group_id=str(number),
            )


def draw_cohort(seed: int, number: int, clients: int, fraction: float) -> list[int]:
    """Draw the clients of a round from (seed, round) alone.

    >>> draw_cohort(42, 1, 20, 0.5) == draw_cohort(42, 1, 20, 0.5)
    True
    """
    size = max(1, math.floor(clients * fraction + 1e-9))
    drawn = child_rng(seed, "cohort", number).choice(clients, size, replace=False)
    return sorted(int(p) for p in drawn)


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


def _weight_seed(seed: int) -> int:
    return int(child_rng(seed, "weights").integers(2**62))


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
