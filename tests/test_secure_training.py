"""Training under the secure sum: the bits of a plain run, and no update in clear."""

import json
import math
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from fedeas import InfeasibleError, InputError
from fedeas.flower.backends import InlineGrid
from fedeas.flower.rounds import run_rounds
from fedeas.flower.settings import Deployment
from fedeas.flower.simulated import open_simulated
from fedeas.partition import Partition
from fedeas.partition.partition import IndexLists
from fedeas.training.methods import make_method
from fedeas.training.models import make_model
from fedeas.training.settings import ModelSettings
from fedeas_private.flower import run_server
from fedeas_private.flower.queries import read_question
from fedeas_private.flower.secure_client import simulated_app, simulated_members
from fedeas_private.flower.secure_round import Layout, content_digest
from fedeas_private.flower.settings import RoundSum
from fedeas_private.ledger import Ledger
from fedeas_private.secure_sum.identity import MOST
from fedeas_private.secure_sum.messages import DEALT, STAGES, RefusedError
from federations import CLIENTS, aggregation_of, federation, run
from federations import settings as federated_settings
from test_deployment import app_of, config, settings, sites  # noqa: F401 -- a fixture


def equal(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return federation(tmp_path_factory.mktemp("secure"), policy="fedeas(beta=12)")


def trained(made, folder, grid=None, **changed):
    folder.mkdir()
    own = replace(made, simulation=replace(made.simulation, folder=str(folder / "clients")))
    return run(own, folder, federated_settings().replace(fraction=1.0, **changed), grid)


@pytest.mark.parametrize(
    "method",
    [
        "scaffold",
        *(
            pytest.param(method, marks=pytest.mark.slow)
            for method in ("fedavg", "moon", "fedprox", "class-weights", "fedlc")
        ),
    ],
)
def test_a_secure_run_ends_with_the_bits_of_a_plain_one(made, tmp_path, method):
    model = ModelSettings("cnn", projection=16) if method == "moon" else ModelSettings("cnn")
    changed = {"method": method, "model": model, "rounds": 2}
    plain = trained(made, tmp_path / "plain", **changed)
    secure = trained(made, tmp_path / "secure", secure=True, **changed)
    assert equal(plain.weights, secure.weights)
    for before, now in zip(plain.history, secure.history, strict=True):
        # Tensors are added up in another order: the last digits of a norm may differ.
        assert now.pop("drift") == pytest.approx(before.pop("drift"), abs=1e-12)
        assert {**before, "seconds": 0} == {**now, "seconds": 0}


class Watching(InlineGrid):
    """Sees everything that comes to the server, and may lose it."""

    def __init__(self, app, clients, lose=lambda kind, node: False):
        super().__init__(app, clients)
        self.replies, self._lose = [], lose

    def _reply(self, message):
        kind = message.metadata.message_type
        reply = super()._reply(message)
        if self._lose(kind, message.metadata.dst_node_id):
            from flwr.app import Error, Message

            return Message(Error(1, "the site was killed"), reply_to=message)
        self.replies.append((kind, reply))
        return reply


def grid_of(made, folder, **options):
    own = replace(made.simulation, folder=str(folder / "clients"))
    return Watching(simulated_app(own.opener(), made.clients), made.clients, **options)


def test_the_server_gets_no_weights_of_any_client(made, tmp_path):
    seen = {}
    for name, secure in (("plain", False), ("secure", True)):
        grid = grid_of(made, tmp_path / name)
        trained(made, tmp_path / name, grid, secure=secure, rounds=1)
        seen[name] = [r for kind, r in grid.replies if kind == "train"]
    assert all("weights" in r.content.array_records for r in seen["plain"])
    assert not any(r.content.array_records for r in seen["secure"])
    assert all(len(r.content.config_records["secure-sum"]["content"]) == 64 + DEALT * CLIENTS
               for r in seen["secure"])  # fmt: skip


AGREEING = ["query.secure_keys", "query.secure_meet"]
STAGE_KINDS = [*AGREEING, "train", *(f"query.secure_{stage}" for stage in STAGES[1:])]


@pytest.mark.parametrize(
    "at",
    [
        pytest.param(at, marks=pytest.mark.slow) if at.endswith(("meet", "agree")) else at
        for at in STAGE_KINDS  # every stage of a sum alone: test_secure_sum.py
    ],
)
def test_a_site_that_is_lost_at_any_stage_is_left_out_or_in_the_sum(made, tmp_path, at):
    """A round goes on as if the lost site had not been asked, or had answered."""
    deployment = Deployment(CLIENTS, "none", max_weight_ratio=0)

    def play(folder, lose, secure):
        (tmp_path / folder).mkdir()
        grid = grid_of(made, tmp_path / folder, lose=lose)
        own = federated_settings().replace(
            fraction=1.0, min_reply_fraction=0.5, rounds=1, secure=secure
        )
        return run_rounds(
            grid, own, made.task, 42, tmp_path / folder / "c", "x", lambda _: {},
            deployment=deployment, aggregation=aggregation_of(own),
        )  # fmt: skip

    lost = play("lost", lambda kind, node: kind == at and node == 4, True)
    left_out = at in STAGE_KINDS[:4]
    plain = play("plain", lambda kind, node: left_out and kind == "train" and node == 4, False)
    assert equal(lost.weights, plain.weights)
    assert lost.history[0]["missing"] == plain.history[0]["missing"] == [2] * left_out
    assert any("client 2" in why for why in lost.history[0]["refused"])


def test_a_server_cannot_send_one_client_another_model(made, tmp_path):
    """With weights of its own the victim's update could be told from the sum of the others'."""

    class Different(Watching):
        def _reply(self, message):
            if message.metadata.message_type == "train" and message.metadata.dst_node_id == 3:
                from fedeas.flower import records

                held = records.tensors(message.content, "weights")
                other = {k: torch.zeros_like(v) for k, v in held.items()}
                message.content["weights"] = records.pack({"weights": other})["weights"]
            return super()._reply(message)

    (tmp_path / "x").mkdir()
    own = replace(made.simulation, folder=str(tmp_path / "clients"))
    grid = Different(simulated_app(own.opener(), CLIENTS), made.clients)
    secure = federated_settings().replace(
        fraction=1.0, min_reply_fraction=0.5, rounds=1, secure=True
    )
    done = run_rounds(
        grid, secure, made.task, 42, tmp_path / "x" / "c", "x", lambda _: {},
        deployment=Deployment(CLIENTS, "none"), aggregation=aggregation_of(secure),
    )  # fmt: skip
    assert done.history[0]["missing"] == [1]
    assert "another round or another model" in done.history[0]["refused"][0]


def test_a_plain_simulation_may_have_more_clients_than_a_sum(made, tmp_path):
    """Nobody needs a key there: a list of members has an end, a simulation has none."""
    clients = MOST + 1
    parts = IndexLists.of([*[np.empty(0, np.int64)] * MOST, np.array([0])])
    whole = Partition.load(made.simulation.partition)
    replace(whole, train=parts).save(tmp_path / "many.npz")
    many = replace(made.simulation, partition=str(tmp_path / "many.npz"), plan=None)
    context = SimpleNamespace(node_config={"partition-id": clients - 1})
    assert len(open_simulated(many, context).real) == 1
    with pytest.raises(InputError, match="too few or too many members"):
        simulated_members(clients)


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"fraction": 0.5}, "secure sums are over all members"),
        ({"method": "fedgen"}, "shows the server something of each client"),
    ],
)
def test_what_cannot_be_a_sum_is_said_at_once(made, tmp_path, changed, why):
    with pytest.raises(InputError, match=why):
        own = federated_settings().replace(**{"fraction": 1.0, "secure": True, **changed})
        run(made, tmp_path, own)


def test_a_sum_out_of_range_is_refused(made, tmp_path, monkeypatch):
    """Of one reply nothing can be checked; of their sum, whether it can be weights."""
    words = Layout.words

    def poisoned(self, *given):
        found = words(self, *given)
        found[:100] = 2**61
        return found

    monkeypatch.setattr(Layout, "words", poisoned)
    with pytest.raises(InfeasibleError, match="the sum of the round is out of range"):
        trained(made, tmp_path / "x", secure=True, rounds=1)


# Deployed sites

EXACT = "train exact"


def test_deployed_sites_train_under_the_secure_sum(sites, tmp_path):  # noqa: F811
    plain = run_server(
        InlineGrid(app_of(sites, tmp_path / "p"), 4), settings(sites, tmp_path / "a")
    )
    secure = run_server(
        InlineGrid(app_of(sites, tmp_path / "s", allow=EXACT), 4),
        settings(sites, tmp_path / "b", secure=True),
    )
    assert equal(plain.weights, secure.weights)
    assert "drift" not in secure.history[0]  # the direction of one site's update is its own affair
    # A site whose owner insists on it lets nothing leave in any other way.
    with pytest.raises(InfeasibleError, match="no update of training"):
        run_server(
            InlineGrid(app_of(sites, tmp_path / "x", allow=EXACT), 4),
            settings(sites, tmp_path / "c"),
        )


def test_clipped_updates_have_the_bits_of_a_plain_run_too(sites, tmp_path):  # noqa: F811
    same = {"clip-norm": 0.1, "max-weight-ratio": 1.0}
    plain, secure = (
        run_server(
            InlineGrid(app_of(sites, tmp_path / f"{s}", allow=f"{EXACT} updates"), 4),
            settings(sites, tmp_path / f"out-{s}", secure=s, **same),
        )
        for s in (False, True)
    )
    assert equal(plain.weights, secure.weights)


def test_noisy_training_is_paid_for_at_every_site(sites, tmp_path):  # noqa: F811
    private = {"secure": True, "clip-norm": 0.5, "epsilon": 2.0}
    grid = InlineGrid(app_of(sites, tmp_path), 4)
    run_server(grid, settings(sites, tmp_path / "run", **private))
    ledgers = [Ledger.open(config(sites, tmp_path, k).ledger_folder) for k in range(4)]
    for ledger in ledgers:
        assert [e.query for e in ledger.entries] == ["train", "train"]
        assert ledger.epsilon_spent <= 2.0 + 1e-6
        assert ledger.epsilon_spent > 1.9
    # Another such run is within the sites' budgets of 3, a third is not.
    run_server(grid, settings(sites, tmp_path / "again", **private, seed=1))
    with pytest.raises(InfeasibleError, match="too few clients"):
        run_server(grid, settings(sites, tmp_path / "third", **private, seed=2))
    assert all(len(ledger.entries) == 4 for ledger in ledgers)


def test_the_noise_of_training_is_what_was_promised(made):
    """Of sites that move by nothing, the mean update is the noise alone."""
    members = simulated_members(CLIENTS)
    model = make_model(ModelSettings("cnn"), made.task, 0)
    before = dict(model.state_dict())
    question = RoundSum("x", 1, content_digest(before, {}, {}), 100, clip=0.5, rho=0.02)
    layout = Layout(question, before, make_method("fedavg"), model)
    noise = layout.noise(members)
    parts = [
        layout.words(before, {}, 10, 0, 0) + noise.part(layout.length).view(np.uint64)
        for _ in range(CLIENTS)
    ]
    total = np.sum(parts, axis=0, dtype=np.uint64)
    mean = layout.read(total, CLIENTS).weights.mean(before)
    moved = torch.cat([(mean[k] - before[k]).flatten().double() for k in before])
    promised = 2 * question.clip / math.sqrt(2 * question.rho) / CLIENTS
    expected = promised * math.sqrt(CLIENTS / members.honest)
    assert float(moved.std()) == pytest.approx(expected, rel=0.05)
    assert float(moved.std()) > promised


def test_updates_are_clipped_before_they_are_counted(made):
    model = make_model(ModelSettings("cnn"), made.task, 0)
    before = dict(model.state_dict())
    question = RoundSum("x", 1, content_digest(before, {}, {}), 100, clip=0.5, rho=0.02)
    layout = Layout(question, before, make_method("fedavg"), model)
    rng = np.random.default_rng(0)
    words = []
    for size in (1.0, 1000.0):
        after = {
            k: v + size * torch.from_numpy(rng.normal(size=v.shape)).to(v.dtype)
            for k, v in before.items()
        }
        words.append(layout.words(after, {}, 10, 0, 0).view(np.int64).astype(float))
    scale = 2.0**24
    assert all(np.linalg.norm(w) <= scale + math.sqrt(layout.length) for w in words)
    assert np.linalg.norm(words[0] - words[1]) <= layout.sensitivity
    # The bound is nearly reached by updates in opposite directions.
    opposite = np.linalg.norm(words[0] + words[0])
    assert opposite > 0.99 * 2 * scale


@pytest.mark.parametrize(
    "asked",
    [None, 7, {}, {"query": "beta"}, {"query": "train"}, {"query": "train", "experiment": "x",
     "round": 1, "content": "y", "most": 0}, {"query": "train", "experiment": "x", "round": 1,
     "content": "y", "most": 5, "rho": 0.1}, {"query": "train", "experiment": "x", "round": 1,
     "content": "y", "most": 5, "extra": 1}],
)  # fmt: skip
def test_questions_about_training_that_cannot_be_are_refused(asked):
    with pytest.raises((RefusedError, InputError)):
        read_question(asked)


def test_a_secure_config_is_the_same_run(tmp_path: Path):
    """With and without, the model has the same bits: so the run has the same name."""
    assert json.dumps(federated_settings().identity()) == json.dumps(
        federated_settings().replace(secure=True).identity()
    )


def test_only_training_waits_for_torch():
    """Every message of a sum starts a process at a real site."""
    code = (
        "import sys, fedeas_private.flower; fedeas_private.flower.client_app()\n"
        "assert 'torch' not in sys.modules and 'flwr' in sys.modules"
    )
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True)
