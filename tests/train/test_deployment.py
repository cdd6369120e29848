"""Real sites: what leaves them, what they take from a server, who is left out; over TLS."""

import importlib.util
import json
import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from flwr.app import Context, Error, Message, RecordDict
from flwr.proto.node_pb2 import NodeInfo

from fedeas import FedEAS, InfeasibleError, InputError, LabelCounts
from fedeas._internal.files import read_json
from fedeas._internal.seeds import child_rng
from fedeas._internal.settings import read_settings
from fedeas.private.flower import run_server
from fedeas.private.flower.deployed import open_site
from fedeas.private.flower.site_config import SiteConfig
from fedeas.private.ledger import Ledger
from fedeas.train.flower.backends import InlineGrid
from fedeas.train.flower.client import TRAIN, make_client_app
from fedeas.train.flower.deployed import SITES, agreed_config, row_policy
from fedeas.train.flower.deployment import Deployment
from fedeas.train.flower.rounds import run_rounds
from fedeas.train.flower.site import Site
from fedeas.train.samples import Samples, Task
from fedeas.train.settings import Federated, Local, ModelSettings
from fedeas.train.tensors import load_tensors
from helpers.deployed_sites import (
    COUNTS,
    NAMES,
    app_of,
    config,
    load_example,
    settings,
    write_image,
)
from helpers.hostile_replies import equal, hostile, hostile_hello
from helpers.image_sets import CLASSES, draw_shapes, shapes

ROOT = Path(__file__).parents[2]


def open_deployed(context: Context) -> Site:
    return open_site(agreed_config(SiteConfig, context))


# What a site has, and what it takes from a server


def test_a_site_fills_its_row_of_the_plan_from_its_own_counts(sites, tmp_path):
    plan = FedEAS(beta=12).plan(LabelCounts(COUNTS, classes=CLASSES))
    for k, row in enumerate(COUNTS):
        site = open_site(config(sites, tmp_path, k))
        assert np.bincount(site.real.labels, minlength=3).tolist() == row.tolist()
        mixed = site.samples("fedeas(beta=12)")
        assert np.bincount(mixed.synthetic_labels, minlength=3).tolist() == plan.samples[k].tolist()
        assert len(site.samples("none")) == row.sum()


def test_a_site_that_lacks_a_class_numbers_the_others_as_the_federation_does(sites, tmp_path):
    site = open_site(config(sites, tmp_path, 1))
    own = site.real.data.samples[site.real.labels == 2]
    images, labels = draw_shapes(300)
    assert all(any(np.array_equal(o, i) for i in images[labels == 2]) for o in own)
    with pytest.raises(InputError, match="classes that the federation does not name"):
        open_site(config(sites, tmp_path / "other", 0, classes="cat, dog"))


def test_a_server_whose_policy_every_site_would_refuse_asks_nobody(sites, tmp_path):
    """Said at once, before any site is asked: the policy needs more than a site's own counts."""

    class Nobody:
        def get_node_ids(self):
            raise AssertionError("a site was asked")

    with pytest.raises(InputError, match="not a policy for a site alone"):
        run_server(Nobody(), settings(sites, tmp_path / "run", policy="waterfill(total=5)"))


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        ("os:system(command=true)", "not a policy for a site alone"),
        ("helpers.small_federations:Shapes", "not a policy for a site alone"),
        ("uniform(total=5)", "not a policy for a site alone"),
        ("missing-only(total=5)", "not a policy for a site alone"),
        ("waterfill(total=5)", "not a policy for a site alone"),
        ("fedeas(beta=nan)", "out of range"),
        ("fedeas(beta=inf)", "out of range"),
        ("fedeas(beta=1e300)", "out of range"),
        ("fedeas(beta=-1)", "out of range"),
        ("fedeas(beta=x)", "out of range"),
        ("fedeas(gamma=1)", "other settings"),
        ("fedeas(beta=20000)", "out of range"),
        ("fedeas(beta=12, size_exponent=2)", "out of range"),
        ("full-balance" + " " * 20_000, "of that length"),
        ("fedeas(beta=12, target=federation)", "'target' of a policy is out of range"),
        ("fedeas(beta=12, target=0.5:0.5)", "target does not fit"),
        ("", "not a policy"),
    ],
)
def test_a_server_cannot_ask_a_site_for_anything(sites, tmp_path, policy, message):
    site = open_site(config(sites, tmp_path, 0))
    with pytest.raises(InputError, match=message):
        site.samples(policy)
    assert not (tmp_path / "0" / "cache").exists()


def test_policies_that_need_one_row_alone_are_taken():
    for spec in ("fedeas", "full-balance", "none"):
        assert row_policy(spec).local([90, 10, 0]).shape == (3,)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"max-sample": 5}, "has no setting 'max-sample'.*did you mean 'max-samples'"),
        ({"max-samples": "5"}, "max-samples has the wrong type"),
        ({"max-samples": True}, "wrong type; got True"),
        ({"partition-id": -1}, "site's configuration: partition-id is out of range; got -1"),
        ({"max-batch": 1}, "max-batch is out of range; got 1; allowed: a whole number from 2"),
        ({"data": None}, "data has the wrong type; allowed: text"),
    ],
)
def test_a_wrong_configuration_of_a_site_is_an_error(changed, message):
    given = {"partition-id": 0, "num-partitions": 4, "classes": "a, b", "data": "d", "state": "s"}
    read_site = partial(read_settings, SiteConfig, where="a site's configuration")
    assert read_site(given).generator == ""
    with pytest.raises(InputError, match=message):
        read_site({**given, **changed})
    with pytest.raises(InputError, match="lacks 'state'"):
        read_site({"partition-id": 0, "classes": "a, b", "data": "d"})


def test_two_sites_of_one_size_say_the_same_but_for_their_weights(tmp_path):
    """Replies tell nothing of labels beside what is trained on them."""
    images, labels = draw_shapes(300)
    rows = ([30, 2, 0], [1, 12, 19])  # 32 images each, of which one site generates much more
    for k, row in enumerate(rows):
        for c, count in enumerate(row):
            for image in images[labels == c][:count]:
                write_image(tmp_path / "sites" / str(k) / "data" / CLASSES[c], image)

    seen: dict[int, list[object]] = {}

    class Watching(InlineGrid):
        def _reply(self, message):
            reply = super()._reply(message)
            numbers = dict(reply.content.metric_records["numbers"])
            arrays = {
                group: {name: (a.shape, a.dtype) for name, a in record.items()}
                for group, record in reply.content.array_records.items()
            }
            said = (message.metadata.message_type, sorted(reply.content), numbers, arrays)
            seen.setdefault(int(numbers.pop("partition")), []).append(said)
            return reply

    task = Task(3, (8, 8, 1), (0.2,), (0.3,))
    federated = Federated(rounds=2, fraction=1.0, local=Local(epochs=1, batch=8))
    plans = [FedEAS(beta=12).local(row).sum() for row in rows]
    assert plans[0] != plans[1]
    run_rounds(
        Watching(app_of(tmp_path / "sites", tmp_path / "state", identity_key="", members=""), 2),
        federated, task, 42,
        tmp_path / "c.safetensors", "x", lambda _: {}, deployment=Deployment(2, "fedeas(beta=12)"),
    )  # fmt: skip
    assert seen[0] == seen[1]
    assert [kind for kind, *_ in seen[0]] == ["query.hello", TRAIN, TRAIN]


def test_a_site_takes_part_in_methods_that_tell_labels_only_if_its_owner_says_so(sites, tmp_path):
    for method in ("fedgen", "fedmix"):
        out = tmp_path / method
        with pytest.raises(InfeasibleError, match="does not take part in this method"):
            run_server(InlineGrid(app_of(sites, tmp_path), 4), settings(sites, out, method=method))


def test_a_simulated_site_is_configured_by_this_machine_alone(sites, tmp_path, monkeypatch):
    def context(**node: object) -> Context:
        run = {"classes": NAMES, "data": "/etc", "sites": 4}
        return Context(1, 2, {"partition-id": 1, **node}, RecordDict(), run)

    with pytest.raises(InputError, match="lacks 'classes'"):
        open_deployed(context())
    own = tmp_path / "1.toml"
    own.write_text(
        f'partition-id = 1\nclasses = "{NAMES}"\n'
        f'data = "{sites / "1" / "data"}"\nstate = "{tmp_path / "1"}"\n'
    )
    monkeypatch.setenv(SITES, str(tmp_path))
    assert len(open_deployed(context()).real) == COUNTS[1].sum()
    named = context(classes=NAMES, data=str(sites / "0" / "data"), state=str(tmp_path / "0"))
    assert len(open_deployed(named).real) == COUNTS[0].sum()


# The server


class Absent(InlineGrid):
    """An inline grid on which nodes are away in some rounds."""

    def __init__(self, app, clients: int, away: dict[int, set[int]]) -> None:
        super().__init__(app, clients)
        self.away, self.now = away, 0

    def get_node_ids(self):
        return [n for n in self._contexts if n - 2 not in self.away.get(self.now, set())]

    def _number(self, message) -> int:
        return message.metadata.dst_node_id - 2

    def _reply(self, message):
        if self._number(message) in self.away.get(self.now, set()):
            return Message(Error(code=5, reason="Node is unavailable"), reply_to=message)
        return super()._reply(message)


def test_a_site_that_is_away_is_named_and_comes_back(sites, tmp_path, monkeypatch):
    # Nobody is waited for: who is away stays away, and the test would only take longer.
    there = lambda grid, nodes, timeout: sorted(grid.get_node_ids())  # noqa: E731
    monkeypatch.setattr("fedeas.train.flower.roster.wait_for_nodes", there)
    app = app_of(sites, tmp_path)
    grid = Absent(app, 4, {0: {2}, 2: {0, 1}})
    lines = []

    def follow(line):
        lines.append(line)
        grid.now = line["round"]

    federated = Federated(
        rounds=4,
        fraction=1.0,
        local=Local(epochs=1, batch=8),
        timeout=600.0,
        min_reply_fraction=0.5,
    )
    shape = open_site(config(sites, tmp_path, 0)).real.data.samples.shape[1:]
    task = Task(3, shape, (0.2,), (0.3,))
    run_rounds(
        grid, federated, task, 42, tmp_path / "c.safetensors", "away", lambda _: {}, follow,
        deployment=Deployment(4, "none"),
    )  # fmt: skip
    assert [line["missing"] for line in lines] == [[2], [2], [0, 1], []]
    assert "client 2: not there" in lines[0]["refused"]
    assert lines[3]["samples"] == COUNTS.sum()
    strict = federated.replace(min_reply_fraction=1.0)
    grid.now = 2
    with pytest.raises(InfeasibleError, match="clients 0, 1 are missing"):
        run_rounds(
            grid, strict, task, 42, tmp_path / "d.safetensors", "away", lambda _: {},
            deployment=Deployment(4, "none"),
        )  # fmt: skip


def test_the_end_of_a_run_says_which_sites_are_missing_and_why(sites, tmp_path, monkeypatch):
    """By the names that nodes were registered with: of a refusal the server knows no more."""
    there = lambda grid, nodes, timeout: sorted(grid.get_node_ids())  # noqa: E731
    monkeypatch.setattr("fedeas.train.flower.roster.wait_for_nodes", there)
    told = "this site refuses the request; its own log says why"

    class Registered(Absent):
        def get_nodes(self):
            return [NodeInfo(node_id=n, name=f"site-{n - 2}") for n in self.get_node_ids()]

        def _reply(self, message):
            if self._number(message) == 1:  # as Flower tells of an error
                reason = f"<class 'fedeas.errors.FedeasError'>:<'{told}'>"
                return Message(Error(code=0, reason=reason), reply_to=message)
            return super()._reply(message)

    grid = Registered(app_of(sites, tmp_path), 4, {0: {2}})
    with pytest.raises(InfeasibleError) as ended:
        run_server(grid, settings(sites, tmp_path / "run", **{"min-reply-fraction": 0.9}))
    said = str(ended.value)
    assert "clients 1, 2 are missing" in said
    assert f"site-1, node 3: {told}" in said
    assert "1 not connected" in said
    assert "site-0" not in said and "<class" not in said
    grid.away = {}
    with pytest.raises(InfeasibleError) as ended:  # nobody is to be waited for
        run_server(grid, settings(sites, tmp_path / "again", **{"min-reply-fraction": 0.9}))
    assert "site-1, node 3" in str(ended.value) and "wait" not in str(ended.value)


def test_a_round_that_fails_names_all_who_are_missing(sites, tmp_path):
    class Failing(InlineGrid):
        def _reply(self, message):
            if message.metadata.message_type == TRAIN and message.metadata.dst_node_id in (3, 5):
                return Message(Error(code=0, reason="no space left"), reply_to=message)
            return super()._reply(message)

    with pytest.raises(InfeasibleError) as ended:
        run_server(
            Failing(app_of(sites, tmp_path), 4),
            settings(sites, tmp_path / "run", **{"min-reply-fraction": 0.9}),
        )
    assert all(f"client {p}: no space left" in str(ended.value) for p in (1, 3))
    assert "client 0" not in str(ended.value)


def test_a_run_goes_on_after_its_last_round(sites, tmp_path):
    app = app_of(sites, tmp_path)
    straight = run_server(InlineGrid(app, 4), settings(sites, tmp_path / "a", rounds=3)).weights
    run_server(InlineGrid(app, 4), settings(sites, tmp_path / "b", rounds=1))
    resumed = run_server(
        InlineGrid(app, 4),
        settings(sites, tmp_path / "b", rounds=3, timeout=9.0, **{"min-reply-fraction": 0.9}),
    )
    assert equal(straight, resumed.weights)
    assert equal(straight, load_tensors(tmp_path / "b" / "model.safetensors")[0])
    lines = (tmp_path / "b" / "log.jsonl").read_text().splitlines()
    assert [json.loads(line)["round"] for line in lines] == [1, 2, 3]
    assert lines and json.loads(lines[-1])["accuracy"] == resumed.history[-1]["accuracy"]
    with pytest.raises(InputError, match="of another experiment"):
        run_server(InlineGrid(app, 4), settings(sites, tmp_path / "b", policy="none"))


def test_sites_aim_at_the_class_distribution_that_they_sum_up(sites, tmp_path):
    """The distribution comes from a secure sum, once, and holds for the run that goes on."""
    given = {"policy": "fedeas(beta=12, target=federation)", "prior-epsilon": 300.0}
    for rounds in (1, 2):
        grid = InlineGrid(app_of(sites, tmp_path, epsilon=900.0), 4)
        run_server(grid, settings(sites, tmp_path / "run", rounds=rounds, **given))
    agreed = read_json(tmp_path / "run" / "policy.json")
    shares = COUNTS.sum(axis=0) / COUNTS.sum()
    assert agreed["shares"] == pytest.approx(shares, abs=1e-3)
    assert max(agreed["errors"]) < 1e-3
    own = row_policy(agreed["policy"])
    whole = FedEAS(beta=12, target="federation").plan(COUNTS)
    asked = np.array([own.local(row) for row in COUNTS])
    assert np.abs(asked - whole.samples).max() <= 1  # shares are told to four digits
    assert whole.total > 10
    plain = run_server(
        InlineGrid(app_of(sites, tmp_path / "plain"), 4),
        settings(sites, tmp_path / "other", policy=agreed["policy"]),
    )
    assert equal(plain.weights, load_tensors(tmp_path / "run" / "model.safetensors")[0])
    with pytest.raises(InputError, match="needs the list of members"):
        run_server(grid, settings(sites, tmp_path / "a", members="", **given))
    with pytest.raises(InputError, match="began with another policy"):
        other = {**given, "policy": "fedeas(beta=9, target=federation)"}
        run_server(grid, settings(sites, tmp_path / "run", **other))


def test_a_noisy_class_distribution_is_paid_for(sites, tmp_path):
    given = {"policy": "fedeas(beta=12, target=federation)", "prior-epsilon": 2.0}
    run_server(InlineGrid(app_of(sites, tmp_path), 4), settings(sites, tmp_path / "run", **given))
    agreed = read_json(tmp_path / "run" / "policy.json")
    assert min(agreed["errors"]) > 0
    assert row_policy(agreed["policy"]).local([90, 10, 0]).shape == (3,)
    for k in range(4):
        mine = config(sites, tmp_path, k)
        ledger = Ledger.open(mine.ledger_folder, mine.epsilon, mine.delta)
        assert [entry.query for entry in ledger.entries] == ["class-totals"]
        assert 1.5 < ledger.epsilon_spent <= 2.0 + 1e-9


def test_a_turn_that_is_run_twice_does_no_harm(sites, tmp_path):
    class Twice(InlineGrid):
        def _reply(self, message):
            super()._reply(message)
            return super()._reply(message)

    given = settings(sites, tmp_path / "a", method="scaffold", rounds=3)
    once = run_server(InlineGrid(app_of(sites, tmp_path / "x"), 4), given).weights
    twice = run_server(
        Twice(app_of(sites, tmp_path / "y"), 4), {**given, "out": str(tmp_path / "b")}
    )
    assert equal(once, twice.weights)


HONEST, HOSTILE, ROUNDS = 2, 40, 25


class Besieged(InlineGrid):
    """An inline grid on which all clients but the first two answer as they should not."""

    def __init__(self, app, quiet: bool) -> None:
        super().__init__(app, HONEST + HOSTILE)
        self.quiet, self.sent = quiet, 0

    def pull_messages(self, message_ids):
        replies = super().pull_messages(message_ids)
        # Now and then the same once more, or an answer to nothing.
        return [*replies, *replies] if self.sent % 7 == 0 else replies

    def _reply(self, message):
        number = message.metadata.dst_node_id - 2
        if number < HONEST or message.metadata.message_type != TRAIN:
            return super()._reply(message)
        if self.quiet:
            return Message(Error(code=0, reason="silent"), reply_to=message)
        self.sent += 1
        rng = child_rng(7, "hostile", int(message.metadata.group_id), number)
        reply = hostile(rng, message, 12)
        if rng.random() < 0.2:  # in the name of an honest client
            reply.metadata.__dict__["_src_node_id"] = 2
        return reply


def small_sites(tmp_path: Path):
    data = shapes(tmp_path / "shapes", side=8)

    def opened(context: Context) -> Site:
        k = int(context.node_config["partition-id"])
        real = Samples.of(data, np.arange(12 * k, 12 * k + 12) % data.train_size)
        return Site(k, real, lambda _: real, tmp_path / str(k), "cpu")

    return make_client_app(opened), Task(3, (8, 8, 1), (0.2,), (0.3,))


def test_a_thousand_hostile_replies_leave_the_average_right(tmp_path):
    app, task = small_sites(tmp_path)
    federated = Federated(
        rounds=ROUNDS, fraction=1.0, model=ModelSettings("cnn"), min_reply_fraction=0.04,
        local=Local(epochs=1, batch=12, learning_rate=0.05), eval_every=ROUNDS,
    )  # fmt: skip

    def trained(quiet: bool):
        grid = Besieged(app, quiet)
        path = tmp_path / f"{quiet}.safetensors"
        deployment = Deployment(HONEST + HOSTILE, "none")
        done = run_rounds(grid, federated, task, 42, path, "x", lambda _: {}, deployment=deployment)
        return grid, done

    grid, besieged = trained(quiet=False)
    assert grid.sent == 1000
    assert equal(besieged.weights, trained(quiet=True)[1].weights)
    for line in besieged.history:
        assert line["missing"] == list(range(HONEST, HONEST + HOSTILE))
        assert {wrong.split(":")[0] for wrong in line["refused"]} == {
            f"client {k}" for k in line["missing"]
        }
        assert all(wrong.isprintable() and len(wrong) < 1000 for wrong in line["refused"])


def test_hostile_introductions_are_refused(tmp_path):
    app, task = small_sites(tmp_path)

    class Strangers(InlineGrid):
        def _reply(self, message):
            number = message.metadata.dst_node_id - 2
            if number < HONEST:
                return super()._reply(message)
            return hostile_hello(child_rng(7, "hello", number), message, 0)

    federated = Federated(rounds=1, fraction=1.0, local=Local(epochs=1), min_reply_fraction=0.001)
    deployment = Deployment(300, "none", largest=1000)
    done = run_rounds(
        Strangers(app, 300), federated, task, 42, tmp_path / "c.safetensors", "x", lambda _: {},
        deployment=deployment,
    )  # fmt: skip
    (line,) = done.history
    assert line["missing"] == list(range(HONEST, 300))
    assert line["samples"] == 12 * HONEST


def test_the_table_of_scale_is_computed_from_what_was_measured():
    spec = importlib.util.spec_from_file_location("scale", ROOT / "benchmarks" / "scale.py")
    scale = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(scale)
    cost = json.loads(scale.RECORD.read_text())
    assert scale.table(cost) in (ROOT / "docs" / "architecture.md").read_text()
    few, many = (scale.needs(cost, clients, 100) for clients in (100, 10_000))
    assert many["idle_cores"] == pytest.approx(100 * few["idle_cores"])
    assert many["link_s"] == few["link_s"]  # the same cohort


# Over TLS, with registered keys: `make nightly`


def script(name: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    path = ROOT / "examples" / "federation" / name
    command = [sys.executable, "-W", "ignore", str(path), *map(str, arguments)]
    return subprocess.run(command, env=environment, capture_output=True, text=True)


def test_the_loopback_federation_says_what_it_needs(tmp_path, monkeypatch):
    monkeypatch.delenv("FEDEAS_DATA", raising=False)
    nowhere = script("loopback.py", tmp_path / "nowhere", "prepare")
    assert nowhere.returncode == 1
    assert nowhere.stderr == "set FEDEAS_DATA to a folder with fashion_mnist/ in Parquet\n"
    monkeypatch.setenv("FEDEAS_DATA", str(tmp_path))
    empty = script("loopback.py", tmp_path / "empty", "prepare")
    assert "lacks fashion_mnist/train-*.parquet" in empty.stderr


def test_stopping_a_federation_ends_what_lost_its_parents_and_nothing_else(tmp_path):
    loopback, _ = load_example()
    federations = [loopback.Loopback(tmp_path / name) for name in ("mine", "others")]
    sleepers = []
    for federation in federations:
        federation.folder.mkdir()
        given = federation.environment("flwr-link")
        sleepers.append(subprocess.Popen(["sleep", "60"], env=given, start_new_session=True))
    own, _ = federations
    try:
        sleepers[0].send_signal(signal.SIGSTOP)
        assert own.members() == [sleepers[0].pid]
        own.stop(patience=1)
        assert sleepers[0].wait(10) == -signal.SIGKILL
        assert sleepers[1].poll() is None
    finally:
        for sleeper in sleepers:
            sleeper.kill()
            sleeper.wait()


@pytest.mark.deployment
def test_a_federation_over_tls_ends_with_the_bits_of_the_inline_grid(tmp_path, data):
    loopback, replay = load_example()
    own = loopback.Loopback(tmp_path / "federation")
    before = set(loopback.all_pids())
    own.prepare(timeout=300.0, policy="fedeas(beta=5, target=federation)")
    try:
        own.start()
        assert own.run(), (own.folder / "logs" / "run.log").read_text()[-2000:]
        for name, outcome in refusals(own, loopback).items():
            assert outcome["code"] != 0, name
            assert not outcome["met"], name
        nodes = json.loads(own.flwr("supernode", "list", "loopback", "--format", "json"))
    finally:
        own.stop()
    assert len([n for n in nodes["nodes"] if n["status"] == "online"]) == 5
    assert [line["missing"] for line in own.history()] == [[], [], []]
    # The class distribution is that of a noisy sum over real messages.
    settled = read_json(own.out / "policy.json")
    true = sum(replay.site_counts(own, k) for k in range(5))
    assert np.abs(np.array(settled["shares"]) - true / true.sum()).max() < 6 * max(
        settled["errors"]
    )
    again = script("replay.py", own.folder)
    assert again.returncode == 0, again.stdout + again.stderr
    assert "bit by bit" in again.stdout
    left = [p for p in loopback.all_pids() if str(own.folder) in loopback.line_of(p)]
    assert not left and not own.members() and before


def refusals(own, loopback) -> dict[str, dict[str, object]]:
    """Try to take part with an unknown key, with another authority, and without TLS."""
    own.make_certificates(own.folder / "another")
    plain = own.node_command(0)
    for option in ("--root-certificates", "--auth-supernode-private-key"):
        place = plain.index(option)
        del plain[place : place + 2]
    commands = {
        "unknown key": own.node_command(0, key=own.make_key("stranger")),
        "another authority": own.node_command(0, ca=own.folder / "another" / "ca.crt"),
        "plain text": [*plain, "--insecure"],
    }
    found = {}
    for name, command in commands.items():
        command[command.index("--port") + 1] = str(loopback.free_ports(1)[0])
        # Into a file: the processes below a SuperNode would hold a pipe open.
        log = own.folder / "logs" / f"{name}.log"
        with log.open("w") as file:
            done = subprocess.run(
                [*command, "--max-retries", "1"], env=own.environment("flwr-stranger"), stdout=file,
                stderr=file, timeout=120,
            )  # fmt: skip
        found[name] = {"code": done.returncode, "met": "SuperNode ID" in log.read_text()}
    return found
