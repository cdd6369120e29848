"""What one SuperLink holds: messages a second, with our rounds and with bare Flower.

    python benchmarks/superlink.py [--clients 10] [--turns 2]

A SuperLink runs as deployed (TLS, state in SQLite); the clients are Flower's own Fleet connections,
many in a process, that answer at once with what they were sent. So no process is started and no
torch imported per message, as a SuperNode would: what is measured is the SuperLink and the server's
part of a round, with clients and server on the same cores. Contestants take turns in one ServerApp:

- `empty`: a message without arrays to every client. Ours is the introduction before the first
  round, bare is `grid.send_and_receive`.
- `model`: a round with a model of 2.5 MB. Ours is `run_rounds` (every reply checked, exact sums, a
  checkpoint); bare is Flower's FedAvg strategy, one round, no evaluation.

Target: ours at least 0.9 of bare. Bare Flower looks for replies every three seconds, which counts
in small rounds; so there is a third contestant, `polled`: the same bare messages, looked for as
often as ours, neither checked nor averaged. Against it there is no target, but it is the stricter
comparison, and both ratios are printed.

The other numbers are what docs/architecture.md is computed from: CPU seconds of the SuperLink for a
message, for a megabyte, and for one look of an idle client. The last line is JSON.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "examples" / "federation"))

TRIES = 10
POLL = 0.25  # seconds between looks of a client
SHAPE = (64, 72, 1)  # images for which the small CNN has 2.5 MB of weights
APP = {
    "pyproject.toml": """
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"
[project]
name = "contest"
version = "1.0.0"
description = "contestants"
license = "Apache-2.0"
dependencies = []
[tool.hatch.build.targets.wheel]
packages = ["contest"]
[tool.flwr.app]
publisher = "fedeas"
[tool.flwr.app.components]
serverapp = "contest.apps:server"
clientapp = "contest.apps:client"
[tool.flwr.app.config]
out = ""
clients = 1
turns = 1
""",
    "contest/__init__.py": "",
    "contest/apps.py": """
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from superlink import contest
client = ClientApp()
server = ServerApp()
server.main()(contest)
""",
}


def clients(address: str, authority: str, count: int) -> None:
    """Be that many clients until standard input ends."""
    stop = threading.Event()
    for _ in range(count):
        threading.Thread(target=client, args=(address, authority, stop), daemon=True).start()
    sys.stdin.read()
    stop.set()
    time.sleep(2 * POLL)
    os._exit(0)


def client(address: str, authority: str, stop: threading.Event) -> None:
    """Answer every message with what it holds."""
    import httpx
    from flwr.app import Message
    from flwr.supercore.inflatable.inflatable_object import (
        get_all_nested_objects,
        get_object_tree,
        iterate_object_tree,
    )
    from flwr.supercore.inflatable.inflatable_utils import (
        inflate_object_from_contents,
        pull_objects,
    )
    from flwr.supernode.fleet_http_connection import http_request_response

    certificate = Path(authority).read_bytes()
    with http_request_response(address, False, certificate) as connection:
        number, receive, send, _, _, pull_object, push_object, confirm = connection
        while not stop.is_set():
            received = receive()
            if received is None:
                time.sleep(POLL)
                continue
            head, tree = received
            run, name = head.metadata.run_id, head.metadata.message_id
            names = [own.object_id for own in iterate_object_tree(tree)]
            contents = pull_objects(names, pull_object_fn=partial(pull_object, run))
            confirm(run, name)
            message = inflate_object_from_contents(name, contents)
            message.metadata.__dict__["_message_id"] = name
            reply = Message(answer(message, number), reply_to=message)
            reply.metadata.__dict__["_message_id"] = reply.object_id
            objects = get_all_nested_objects(reply)
            for _ in range(TRIES):
                # A SuperLink under load answers 500, "database is locked"; a SuperNode would then
                # drop its reply, and the round would wait for its timeout.
                with suppress(httpx.HTTPStatusError):
                    wanted, session = send(reply, get_object_tree(reply), 0.0)
                    for one in wanted:
                        push_object(run, session, one, objects[one].deflate())
                    break
                print("locked", flush=True)
                time.sleep(POLL)


def answer(message: object, number: int) -> object:
    """Return what both our rounds and Flower's strategy take for an answer."""
    from flwr.app import MetricRecord, RecordDict

    content = RecordDict(dict(message.content.array_records))
    told = {"num-examples": 10, "partition": PARTITIONS.get(number, 0), "steps": 1, "trained-on": 1}
    for record in message.content.config_records.values():  # the server numbers its clients
        if "json" in record and "partitions" in str(record["json"]):
            PARTITIONS.update({int(k): v for k, v in json.loads(record["json"])["partitions"]})
    told["partition"] = PARTITIONS.get(number, 0)
    content["numbers"] = MetricRecord(told)
    return content


PARTITIONS: dict[int, int] = {}


def contest(grid: object, context: object) -> None:
    """Let the contestants take turns, in the server's app."""
    from flwr.app import ArrayRecord, Message
    from flwr.serverapp.strategy import FedAvg

    from fedeas.train.flower import records
    from fedeas.train.flower.deployment import Deployment
    from fedeas.train.flower.exchange import exchange
    from fedeas.train.flower.roster import Roster
    from fedeas.train.flower.rounds import run_rounds
    from fedeas.train.models import make_model
    from fedeas.train.samples import Task
    from fedeas.train.settings import Federated, ModelSettings

    count, out = int(context.run_config["clients"]), Path(str(context.run_config["out"]))
    while len(list(grid.get_node_ids())) < count:
        time.sleep(0.2)
    nodes = sorted(grid.get_node_ids())
    task = Task(10, SHAPE, (0.5,), (0.25,))
    federated = Federated(rounds=1, fraction=1.0, max_in_flight=count, timeout=600.0)
    deployment = Deployment(count, "none")
    weights = dict(make_model(ModelSettings("cnn"), task, 0).state_dict())
    numbering = {"partitions": [[node, k] for k, node in enumerate(nodes)]}
    told = [Message(records.pack({}, numbering), node, "query.hello", ttl=600) for node in nodes]
    list(exchange(grid, told, count, 600.0))

    def plain(arrays: dict) -> list:
        content = records.pack({"weights": arrays}, {"seed": 0})
        kind = "train" if arrays else "query.hello"
        return [Message(content, node, kind, ttl=600) for node in nodes]

    def ours_empty() -> None:
        with tempfile.TemporaryDirectory() as folder:
            Roster(grid, federated, task, 0, deployment, Path(folder) / "nodes.json").gather()

    def ours_model() -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "c.safetensors"
            run_rounds(grid, federated, task, 0, path, "x", lambda _: {}, deployment=deployment)

    def bare_model() -> None:
        strategy = FedAvg(fraction_train=1.0, fraction_evaluate=0.0, min_available_nodes=count)
        strategy.start(grid, ArrayRecord(weights), num_rounds=1, timeout=600)

    contestants = {
        "empty_ours": ours_empty,
        "empty_bare": lambda: grid.send_and_receive(plain({}), timeout=600),
        "empty_polled": lambda: len(list(exchange(grid, plain({}), count, 600.0))),
        "model_ours": ours_model,
        "model_bare": bare_model,
        "model_polled": lambda: len(list(exchange(grid, plain(weights), count, 600.0))),
    }
    link = int(os.environ["SUPERLINK_PID"])
    lines = []
    for turn in range(1 + int(context.run_config["turns"])):
        for name, run in contestants.items():
            cpu, begun = cpu_seconds(link), time.monotonic()
            run()
            line = {
                "name": name,
                "seconds": time.monotonic() - begun,
                "cpu": cpu_seconds(link) - cpu,
            }
            if turn:  # the first one warms up
                lines.append(line)
    size = sum(tensor.numel() * 4 for tensor in weights.values()) / 1e6
    out.write_text(json.dumps({"lines": lines, "megabytes": size, "peak": peak(link)}))


def cpu_seconds(pid: int) -> float:
    """Return the CPU time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def peak(pid: int) -> int:
    """Return the most memory that a process has held, in MB."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) // 1024


def main() -> int:
    """Start a SuperLink and clients, submit the contest, print what came out."""
    if sys.argv[1:2] == ["clients"]:
        clients(sys.argv[2], sys.argv[3], int(sys.argv[4]))
    from loopback import Loopback, free_ports

    from fedeas._internal.files import write_json

    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--clients", type=int, default=10)
    parser.add_argument("--turns", type=int, default=2)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        own = Loopback(Path(place) / "link", 0)
        found = measure(own, given.clients, given.turns, free_ports, write_json)
    print(json.dumps(found))
    return 1 if found["missed"] else 0


def measure(own: object, count: int, turns: int, free_ports: object, write_json: object) -> dict:
    """Return the medians of all contestants and what follows from them."""
    for name in ("certificates", "logs", "pids", "flwr", "server", "tmp"):
        (own.folder / name).mkdir(parents=True)
    own.make_certificates(own.folder / "certificates")
    write_json(own.folder / "ports.json", free_ports(1))
    authority = own.folder / "certificates" / "ca.crt"
    address = f"127.0.0.1:{own.ports[0]}"
    named = {"address": address, "root-certificates": str(authority)}
    tables = {"superlink": {"default": "loopback", "loopback": named}}
    own.write_toml(own.folder / "flwr" / "config.toml", tables)
    app, out = own.folder / "app", own.folder / "found.json"
    for name, text in APP.items():
        (app / name).parent.mkdir(parents=True, exist_ok=True)
        (app / name).write_text(text)
    os.environ["PYTHONPATH"] = os.pathsep.join(
        filter(None, [str(Path(__file__).parent), os.environ.get("PYTHONPATH")])
    )
    command = [one for one in own.link_command() if one != "--enable-supernode-auth"]
    log = (own.folder / "logs" / "all.log").open("wb")
    # The ServerApp is below the SuperLink and has its environment: a shell tells it the id.
    link = subprocess.Popen(
        ["sh", "-c", 'SUPERLINK_PID=$$ exec "$@"', "sh", *command], env=own.environment(),
        stdout=log, stderr=log, cwd=own.folder,
    )  # fmt: skip
    started = []
    try:
        own.wait_for_link()
        shares = [count // 2, count - count // 2]
        for share in filter(None, shares):
            started.append(
                subprocess.Popen(
                    [sys.executable, __file__, "clients", address, str(authority), str(share)],
                    stdin=subprocess.PIPE, stdout=log, stderr=log, env=own.environment(),
                )
            )  # fmt: skip
        values = f'out="{out}" clients={count} turns={turns}'
        done = subprocess.run(
            ["flwr", "run", str(app), "loopback", "--run-config", values, "--stream"],
            env=own.environment(), cwd=own.folder, capture_output=True, text=True, check=False,
        )  # fmt: skip
        looking = idle(link.pid)
        if not out.exists():
            tail = (own.folder / "logs" / "all.log").read_text()[-3000:]
            raise SystemExit(f"{tail}{done.stdout}{done.stderr}")
    finally:
        for process in started:
            process.stdin.close()
            process.wait()
        alone = idle(link.pid)
        link.terminate()
        link.wait()
    said = (own.folder / "logs" / "all.log").read_text()
    return {
        **concluded(json.loads(out.read_text()), count, looking - alone),
        "locked": said.count("\nlocked"),
    }


def idle(pid: int, seconds: float = 10.0) -> float:
    """Return the part of a core that a process takes while nothing is sent."""
    before = cpu_seconds(pid)
    time.sleep(seconds)
    return (cpu_seconds(pid) - before) / seconds


def concluded(found: dict, count: int, looking: float) -> dict:
    """Return clients a second, ratios, and what a message, a megabyte and a look cost."""
    seconds, cpu = (
        {
            name: statistics.median(one[key] for one in found["lines"] if one["name"] == name)
            for name in {one["name"] for one in found["lines"]}
        }
        for key in ("seconds", "cpu")
    )
    result: dict = {"clients": count, "megabytes": round(found["megabytes"], 3)}
    for kind in ("empty", "model"):
        # A round of ours introduces the clients first: that is an empty exchange of its own.
        ours = (
            seconds["model_ours"] - seconds["empty_ours"]
            if kind == "model"
            else seconds["empty_ours"]
        )
        rates = {"ours": count / ours} | {
            other: count / seconds[f"{kind}_{other}"] for other in ("bare", "polled")
        }
        result |= {f"{kind}_{who}_per_s": round(rate, 2) for who, rate in rates.items()}
        result[f"{kind}_over_bare"] = round(rates["ours"] / rates["bare"], 3)
        result[f"{kind}_over_polled"] = round(rates["ours"] / rates["polled"], 3)
    per_message = (cpu["empty_polled"] - looking * seconds["empty_polled"]) / count
    moved = 2 * found["megabytes"]  # to the client and back
    per_megabyte = (cpu["model_polled"] - cpu["empty_polled"]) / count / moved
    result |= {
        "link_cpu_s_per_look": round(looking * POLL / count, 6),
        "link_cpu_s_per_message": round(max(per_message, 0.0), 5),
        "link_cpu_s_per_megabyte": round(per_megabyte, 5),
        "link_peak_mb": found["peak"],
    }
    missed = [name for name in ("empty_over_bare", "model_over_bare") if result[name] < 0.9]
    return {**result, "missed": missed}


if __name__ == "__main__":
    sys.exit(main())
