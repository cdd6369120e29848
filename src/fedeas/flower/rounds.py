"""The server's half: rounds of drawing a cohort, training, adding up; a checkpoint after each."""

import math
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from flwr.app import Message
from flwr.serverapp import Grid

from fedeas.errors import FedeasError, InfeasibleError, InputError
from fedeas.flower import records
from fedeas.flower.client import TRAIN
from fedeas.flower.exchange import exchange, reason
from fedeas.flower.log import Line
from fedeas.flower.members import Deployment, HelloSettings, Members, Node, read_size
from fedeas.flower.robust import MEAN, clip_update, make_aggregate
from fedeas.flower.sums import ExactSum
from fedeas.methods.method import Method, Round
from fedeas.methods.registry import make_method
from fedeas.seeds import child_rng
from fedeas.tensors import Tensors, check_values, load_tensors, save_tensors
from fedeas.training.loop import Local, check_settings, use_threads
from fedeas.training.models import Classifier, ModelSettings, make_model
from fedeas.training.task import Task

_COMPILED = ("fedavg", "fedprox", "scaffold")


@dataclass(frozen=True)
class Federated:
    """How a federation trains."""

    rounds: int = 40  # of communication
    fraction: float = 0.5  # of the clients in a round
    method: str = "fedavg"  # or fedprox(mu=0.01), scaffold, moon, fedgen, fedmix
    model: ModelSettings = field(default_factory=ModelSettings)
    local: Local = field(default_factory=Local)
    threads: int = 1  # of a client's training
    minimum: float = 1.0  # share of a cohort whose replies must be good
    timeout: float = 3600.0  # seconds that a round may take
    window: int = 16  # messages under way at a time
    evaluate_every: int = 1  # rounds between tests of the server's model

    def __post_init__(self) -> None:
        whole = "a whole number from 1"
        check_settings(
            ("rounds", self.rounds, self.rounds >= 1, whole),
            ("fraction", self.fraction, 0 < self.fraction <= 1, "above 0, up to 1"),
            ("threads", self.threads, self.threads >= 1, whole),
            ("minimum", self.minimum, 0 <= self.minimum <= 1, "0 to 1"),
            ("timeout", self.timeout, 0 < self.timeout < 1e9, "seconds, above 0"),
            ("window", self.window, self.window >= 1, whole),
            ("evaluate_every", self.evaluate_every, self.evaluate_every >= 1, whole),
            (
                "compile",
                self.local.compile,
                not self.local.compile or self.method.split("(")[0] in _COMPILED,
                f"with {', '.join(_COMPILED)}, whose loss is the plain one",
            ),
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
    a round goes on with the others while `federated.minimum` of its cohort reply well.
    """
    use_threads(federated.threads)  # of the server's own arithmetic too, on every grid
    method = make_method(federated.method)
    model = make_model(federated.model, task, _weight_seed(seed))
    manner = HelloSettings(
        federated.method, task, seed, federated.window, federated.timeout, federated.minimum
    )
    members = Members(grid, manner, deployment)
    members.gather()
    nodes, known = members.nodes, members.known()
    cap = None
    if deployment is not None:
        cap = deployment.weight_cap([node.real for node in nodes.values()])
    now = _State(dict(model.state_dict()), method.start(model, task, known, seed), [], {}, cap)
    if checkpoint.exists():
        now = _restore(checkpoint, experiment)
        if resumed is not None:
            resumed(now.history)
    asked = {
        "seed": seed,
        "method": federated.method,
        "model": asdict(federated.model),
        "local": asdict(federated.local),
        "task": asdict(task),
        "threads": federated.threads,
        "experiment": experiment,
        "policy": deployment.policy if deployment is not None else "",
    }
    for number in range(len(now.history) + 1, federated.rounds + 1):
        begun = time.monotonic()
        cohort = draw_cohort(seed, number, members.clients, federated.fraction)
        there, absent = members.split(cohort)
        content = records.pack(
            {"weights": now.weights, "method": method.send(now.method, number, seed)}
        )
        # The largest first: the last ones to finish are then short.
        order = sorted(there, key=lambda p: (-nodes[p].real, p))
        messages = (
            Message(
                records.with_settings(
                    content, {**asked, "round": number, "last": now.accepted.get(p, 0)}
                ),
                nodes[p].node,
                TRAIN,
                ttl=federated.timeout,
                group_id=str(number),
            )
            for p in order
        )
        weights_of = Weights(nodes, now.weight_cap)
        samples = sum(weights_of[p] for p in cohort if p in nodes)
        added = RoundAggregator(now.weights, model, method, samples, weights_of, deployment, absent)
        by_node = {nodes[p].node: nodes[p] for p in there}
        for asked_node, reply in exchange(grid, messages, federated.window, federated.timeout):
            added.take(reply, by_node, asked_node)
        added.check(number, len(cohort), federated.minimum)
        done = Round(
            now.weights,
            added.weights.mean(now.weights),
            added.sums(),
            [added.shown[p] for p in sorted(added.shown)],
            sum(weights_of[p] for p in nodes),
            number,
            seed,
            federated.local,
        )
        weights, state = method.update(now.method, done)
        missing = sorted(set(cohort) - set(added.good))
        line: Line = {"round": number, **added.numbers(), "missing": missing}
        if number % federated.evaluate_every == 0 or number == federated.rounds:
            line |= evaluate(weights)
        line["seconds"] = round(time.monotonic() - begun, 3)
        accepted = now.accepted | dict.fromkeys(added.good, number)
        now = _State(weights, state, [*now.history, line], accepted, now.weight_cap)
        _save(checkpoint, experiment, now)
        if report is not None:
            report(line)
    return Trained(now.weights, now.history)


@dataclass(frozen=True)
class _State:
    """All that the server knows between two rounds; a checkpoint holds exactly this."""

    weights: Tensors
    method: Tensors
    history: list[Line]
    accepted: dict[int, int]  # the last round of a client whose reply counted
    weight_cap: int | None  # set at the start, by those who were there, and kept; None: no bound


def draw_cohort(seed: int, number: int, clients: int, fraction: float) -> list[int]:
    """Draw the clients of a round from (seed, round) alone.

    >>> draw_cohort(42, 1, 20, 0.5) == draw_cohort(42, 1, 20, 0.5)
    True
    """
    size = max(1, math.floor(clients * fraction + 1e-9))
    drawn = child_rng(seed, "cohort", number).choice(clients, size, replace=False)
    return sorted(int(p) for p in drawn)


class Weights:
    """What clients are weighted by: N_k, up to a bound where sites may lie about it."""

    def __init__(self, nodes: Mapping[int, Node], cap: int | None) -> None:
        self._nodes, self.cap = nodes, cap

    def __getitem__(self, partition: int) -> int:
        real = self._nodes[partition].real
        return real if self.cap is None else min(real, self.cap)

    def capped(self, partitions: Sequence[int]) -> list[int]:
        """Return the clients that weigh less than they say that they have."""
        return sorted(p for p in partitions if self[p] < self._nodes[p].real)


class RoundAggregator:
    """Replies of a round, added up as they come; what is wrong with one is noted, not added."""

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
        kind = MEAN if deployment is None else deployment.aggregation
        self.weights = make_aggregate(kind, samples, method, model)
        self._directions, self._extra = (ExactSum(samples) for _ in range(2))
        # Of all entries of a reply, where some are not trained: statistics and counters.
        self._with_buffers = ExactSum(samples) if before.keys() - self._trained else None
        self.shown: dict[int, Tensors] = {}
        self.good: list[int] = []
        self._wrong = list(wrong)
        self._steps = self._samples = 0

    def take(self, reply: Message, by_node: Mapping[int, Node], asked: int) -> None:
        """Add a reply if all of it is sound, or note why not; `asked` is the node it comes from."""
        node = by_node.get(asked)
        if node is None or node.partition in self.good:
            return
        try:
            if reply.has_error():
                raise InputError(reason(reply))
            content = reply.content
            if (size := read_size(reply)) != node.real:
                raise InputError("a changed number of samples", got=size)
            after = records.tensors(content, "weights")
            records.check_like(after, self._before, "weights")
            extra = records.tensors(content, "added")
            records.check_like(extra, self._method.added_like(self._model), "sums")
            shown = records.tensors(content, "shown")
            records.check_like(shown, self._method.shown_like(self._model), "what is shown")
            steps = records.whole(content, "steps")
            trained_on = records.whole(content, "trained-on")
            direction = self._direction(after, self._trained)
            everything = self._direction(after, after) if self._with_buffers is not None else {}
            for tensors in (after, extra):
                check_values(tensors)
            self._method.check_shown(shown, node.real)
            if self._clip:
                after = clip_update(self._before, after, self._clip)
        except FedeasError as error:
            self._wrong.append(f"client {node.partition}: {error}")
            return
        except Exception as error:  # whatever the bytes of another party lead to
            self._wrong.append(f"client {node.partition}: {type(error).__name__}")
            return
        self.good.append(node.partition)
        weight = self._weights_of[node.partition]
        self.weights.add(after, weight)
        if direction:
            self._directions.add(direction, weight)
        if self._with_buffers is not None and everything:
            self._with_buffers.add(everything, weight)
        if extra:
            self._extra.add(extra, weight)
        if shown:
            self.shown[node.partition] = shown
        self._steps += steps
        self._samples += trained_on

    def check(self, number: int, cohort: int, minimum: float) -> None:
        """Refuse a round with too few good replies."""
        if len(self.good) < max(1, minimum * cohort):
            first = f": {self._wrong[0]}" if self._wrong else ", the others were too late"
            raise InfeasibleError(
                f"round {number}: {len(self.good)} of {cohort} clients replied well{first}"
            )

    def sums(self) -> Tensors:
        """Return the sums of N_k times what the method adds."""
        return self._extra.total()

    def numbers(self) -> Line:
        """Return what the round's line says.

        `drift` is the directional dissimilarity of the updates d_k, 1 - ||sum_k w_k d_k/||d_k||||^2
        with w_k = N_k / N: 0 where all point the same way. Only what is trained counts: running
        statistics are not updates. `drift_all` is the same over all entries of a reply, statistics
        and counters of batches too, where a model has some.
        """
        line: Line = {
            "clients": len(self.good),
            "samples": self.weights.weight,
            "trained_on": self._samples,
            "steps": self._steps,
            "drift": self._dissimilarity(self._directions),
            "refused": self._wrong,
        }
        if self._with_buffers is not None:
            line["drift_all"] = self._dissimilarity(self._with_buffers)
        if self._weights_of.cap is not None:
            line["weight_cap"] = self._weights_of.cap
            line["capped"] = self._weights_of.capped(self.good)
        return line

    def _dissimilarity(self, directions: ExactSum) -> float:
        squared = sum(
            float((total / self.weights.weight).square().sum())
            for total in directions.total().values()
        )
        return 1.0 - squared

    def _direction(self, after: Tensors, names: Collection[str]) -> Tensors:
        """Return the client's update, scaled to length one; nothing where there is none."""
        moved = {
            name: self._before[name].double() - tensor.double()
            for name, tensor in after.items()
            if name in names
        }
        length = math.sqrt(sum(float(d.square().sum()) for d in moved.values()))
        if not math.isfinite(length):
            raise InputError("the weights are not finite")
        return {name: d / length for name, d in moved.items()} if length else {}


def _weight_seed(seed: int) -> int:
    return int(child_rng(seed, "weights").integers(2**62))


def _save(path: Path, experiment: str, now: _State) -> None:
    tensors = {f"weights.{k}": v for k, v in now.weights.items()}
    tensors |= {f"state.{k}": v for k, v in now.method.items()}
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
    weights, state = (
        {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}
        for prefix in ("weights.", "state.")
    )
    accepted = {int(p): int(r) for p, r in about["accepted"]}
    return _State(weights, state, about["history"], accepted, about.get("weight_cap"))
