"""What one hostile site can do to the others: to their model, and to their places in a round.

Every attack comes with its control: without the bound it succeeds.
"""

from pathlib import Path

import pytest
import torch
from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from fedeas.train.flower import records
from fedeas.train.flower.aggregation import RoundAggregator, Weights
from fedeas.train.flower.backends import InlineGrid
from fedeas.train.flower.deployment import Deployment
from fedeas.train.flower.roster import Node, Roster
from fedeas.train.flower.rounds import run_rounds
from fedeas.train.methods import make_method
from fedeas.train.models import make_model
from fedeas.train.samples import Task
from fedeas.train.settings import Federated, ModelSettings
from fedeas.train.tensors import load_tensors

CLASSES = 10


def poisoned(tmp_path: Path, boost: float, claim: int, **deployment: object) -> tuple[float, dict]:
    """One of five sites wants 7.0 everywhere: its update is `boost` times the way there.

    It claims `claim` samples; the others have about 2,000 and move every weight by 0.01. Returns
    the mean distance that the weights have moved, and the round's line.
    """
    tmp_path.mkdir()
    app = ClientApp()

    def numbers(context: Context) -> dict[str, float]:
        k = int(context.node_config["partition-id"])
        return {"partition": k, "num-examples": claim if k == 4 else 2000 + k}

    @app.query("hello")
    def hello(message: Message, context: Context) -> Message:
        return Message(records.pack({"known": {}}, numbers=numbers(context)), reply_to=message)

    @app.train()
    def train(message: Message, context: Context) -> Message:
        weights = records.tensors(message.content, "weights")
        if numbers(context)["partition"] == 4:
            weights = {name: weight + boost * (7.0 - weight) for name, weight in weights.items()}
        else:
            weights = {name: weight + 0.01 for name, weight in weights.items()}
        told = {**numbers(context), "trained-on": 0, "steps": 0}
        return Message(records.pack({"weights": weights}, numbers=told), reply_to=message)

    task = Task(CLASSES, (8, 8, 1), (0.5,), (0.5,))
    federated = Federated(rounds=1, fraction=1.0, min_reply_fraction=0.5)
    known = Deployment(5, "none", **deployment)
    path = tmp_path / "c.safetensors"
    done = run_rounds(
        InlineGrid(app, 5), federated, task, 1, path, "e", lambda _: {}, deployment=known
    )
    return float(done.weights["fc.bias"].mean()), done.history[0]


@pytest.mark.parametrize(
    ("boost", "claim", "alone"),
    # What the model would be with a bound on the weight alone: three sevenths of the way, or all.
    [(1.0, 10**6, 3.0), (5.0, 2000, 7.0)],
    ids=["claims-a-million-samples", "replaces-the-model"],
)
def test_one_site_does_not_own_the_model(tmp_path, boost, claim, alone):
    reached, line = poisoned(tmp_path / "old", boost, claim, max_norm_ratio=0)
    assert reached == pytest.approx(alone, abs=0.1)
    assert line["refused"] == []
    assert "clipped" not in line
    for name, settings in (("default", {}), ("clipped", {"clip_norm": 1.0})):
        reached, line = poisoned(tmp_path / name, boost, claim, **settings)
        assert abs(reached) < 0.1, name
        assert line["capped"] == ([4] if claim > 2004 else [])
        assert line["weight_cap"] == 3 * (2002 if claim > 2004 else 2001)
        assert line.get("clipped") == (None if name == "clipped" else [4])
    assert poisoned(tmp_path / "owned", 1.0, 10**6, max_weight_ratio=0, max_norm_ratio=0)[0] > 6.9


@pytest.mark.parametrize("still", [1, 2, 3])
def test_sites_that_do_not_move_freeze_nobody(still):
    """Of four sites some send the weights as they came, as those of one class may."""
    model = make_model(ModelSettings("mlp"), Task(CLASSES, (8, 8, 1), (0.5,), (0.5,)), 0)
    before = dict(model.state_dict())
    after = {name: w + 0.1 for name, w in before.items()}
    nodes = {k: Node(k, k, 10) for k in range(4)}
    deployment = Deployment(4, "none")
    weights = Weights(nodes, deployment.weight_cap([10] * 4))
    added = RoundAggregator(before, model, make_method("fedavg"), 40, weights, deployment)
    InlineGrid(None, 1)  # without a grid in its process no message can be made
    for k in range(4):
        numbers = {"partition": k, "num-examples": 10, "trained-on": 10, "steps": 1}
        content = records.pack({"weights": before if k < still else after}, numbers=numbers)
        message = Message(records.pack({}), k, "train")
        added.take(Message(content, reply_to=message), nodes, k)
    added.close()
    moved = added.weights.mean(before)["fc.bias"] - before["fc.bias"]
    assert float(moved.mean()) == pytest.approx(0.1 * (4 - still) / 4, rel=1e-4)


def test_what_a_method_adds_is_bounded_like_the_update(tmp_path):
    """SCAFFOLD's variate is a sum too: a site could steer all others by it."""

    def variate(**deployment: object) -> float:
        app = ClientApp()

        def numbers(context: Context) -> dict[str, float]:
            k = int(context.node_config["partition-id"])
            return {"partition": k, "num-examples": 2000, "trained-on": 0, "steps": 0}

        @app.query("hello")
        def hello(message: Message, context: Context) -> Message:
            return Message(records.pack({}, numbers=numbers(context)), reply_to=message)

        @app.train()
        def train(message: Message, context: Context) -> Message:
            weights = records.tensors(message.content, "weights")
            kept = {name: w for name, w in weights.items() if name in parameters}
            scale = 1000.0 if numbers(context)["partition"] == 4 else 0.01
            added = {name: torch.full_like(w, scale) for name, w in kept.items()}
            content = records.pack({"weights": weights, "added": added}, numbers=numbers(context))
            return Message(content, reply_to=message)

        task = Task(CLASSES, (8, 8, 1), (0.5,), (0.5,))
        federated = Federated(rounds=1, fraction=1.0, min_reply_fraction=0.5, method="scaffold")
        parameters = {name for name, _ in make_model(federated.model, task, 0).named_parameters()}
        path = tmp_path / f"{len(list(tmp_path.iterdir()))}.safetensors"
        run_rounds(
            InlineGrid(app, 5), federated, task, 1, path, "e", lambda _: {},
            deployment=Deployment(5, "none", **deployment),
        )  # fmt: skip
        return float(load_tensors(path)[0]["state.fc.bias"].mean())

    assert variate(max_norm_ratio=0) > 100
    assert 0 < variate() < 0.02
    assert 0 < variate(clip_norm=1.0) < 0.02


class Offline(InlineGrid):
    """An inline grid on which nodes can be away."""

    away: frozenset[int] = frozenset()

    def get_node_ids(self):
        return [node for node in super().get_node_ids() if node - 2 not in self.away]


def claiming(claims: dict[int, int], nodes: int) -> Offline:
    """Sites of which some say another number than their own; each sends its own number back."""
    app = ClientApp()

    @app.query("hello")
    def hello(message: Message, context: Context) -> Message:
        k = int(context.node_config["partition-id"])
        numbers = {"partition": claims.get(k, k), "num-examples": 2000}
        return Message(records.pack({}, numbers=numbers), reply_to=message)

    @app.train()
    def train(message: Message, context: Context) -> Message:
        k = int(context.node_config["partition-id"])
        trained.append(k)
        weights = records.tensors(message.content, "weights")
        numbers = {"partition": k, "num-examples": 2000, "trained-on": 0, "steps": 0}
        return Message(records.pack({"weights": weights}, numbers=numbers), reply_to=message)

    trained: list[int] = []
    grid = Offline(app, nodes)
    grid.trained = trained
    return grid


def rounds_of(grid: Offline, tmp_path: Path, away: dict[int, set[int]], rounds: int = 3):
    """Train five sites; `away` names the nodes that are offline after a round (0: at first)."""
    task = Task(CLASSES, (8, 8, 1), (0.5,), (0.5,))
    federated = Federated(rounds=rounds, fraction=1.0, min_reply_fraction=0.5, timeout=2.0)

    def follow(line: dict) -> None:
        lines.append((sorted(grid.trained), line))
        grid.trained.clear()
        grid.away = frozenset(away.get(line["round"], set()))

    lines: list[tuple[list[int], dict]] = []
    grid.away = frozenset(away.get(0, set()))
    tmp_path.mkdir(exist_ok=True)
    path = tmp_path / "c.safetensors"
    run_rounds(
        grid, federated, task, 1, path, "e", lambda _: {}, follow,
        deployment=Deployment(5, "none"),
    )  # fmt: skip
    return lines


def test_a_site_that_says_anothers_number_keeps_nobody_out(tmp_path):
    for claims in ({4: 3}, {1: 4}, {0: 4, 1: 4, 2: 4}):
        lines = rounds_of(claiming(claims, 5), tmp_path / str(len(list(tmp_path.iterdir()))), {})
        assert [trained for trained, _ in lines] == [[0, 1, 2, 3, 4]] * 3
        assert [line["missing"] for _, line in lines] == [[]] * 3
        assert [line["clients"] for _, line in lines] == [5] * 3


def test_a_newcomer_does_not_get_the_number_of_a_site_that_is_offline(tmp_path):
    """Node 5 is one too many. It says number 2 while the node of that number is away."""
    lines = rounds_of(claiming({5: 2}, 6), tmp_path, {0: {5}, 1: {2}, 2: {2}}, rounds=5)
    all_five, without = [0, 1, 2, 3, 4], [0, 1, 3, 4]
    assert [trained for trained, _ in lines] == [all_five, without, without, all_five, all_five]
    assert lines[1][1]["missing"] == [2]
    assert any("node 7: two nodes claim" in wrong for wrong in lines[-1][1]["refused"])


def test_a_number_stays_with_its_node_when_the_server_is_started_again(tmp_path):
    """Node 0 has a lower id than node 3, whose number it says after a restart."""

    def nodes(claims: dict[int, int]) -> dict[int, int]:
        task, federated = (
            Task(CLASSES, (8, 8, 1), (0.5,), (0.5,)),
            Federated(min_reply_fraction=0.5),
        )
        path = tmp_path / "nodes.json"
        members = Roster(claiming(claims, 5), federated, task, 1, Deployment(5, "none"), path)
        members.gather()
        return {number: node.node - 2 for number, node in members.nodes.items()}

    assert nodes({})[3] == 3
    assert nodes({0: 3}) == {1: 1, 2: 2, 3: 3, 4: 4}  # node 0 gets no number that has an owner
    (tmp_path / "nodes.json").unlink()
    assert nodes({0: 3})[3] == 0  # the control: nothing says who had it


def test_who_says_a_number_comes_before_one_who_says_another(tmp_path):
    """Node 2 has number 0 as node 1 says 2; when node 0 comes, node 2 gets another one."""
    lines = rounds_of(claiming({1: 2}, 5), tmp_path, {0: {0, 4}}, rounds=4)
    assert lines[0][0] == [1, 2, 3]
    assert lines[0][1]["missing"] == [1, 4]
    assert lines[-1][0] == [0, 1, 2, 3, 4]
    assert lines[-1][1]["missing"] == []
