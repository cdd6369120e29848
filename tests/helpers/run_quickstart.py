"""Run quick-start apps on a grid: python run_quickstart.py GRID CLIENTS OUT RUNS [RUNS ...].

A run is the folder of an app and its config; one process does many, since starting takes longest.
More RUNS are done by processes that know nothing of those before, forked from one that has loaded
the libraries alone.

OUT gets, for every run, the accuracy of every round, the weights that the strategy got, and how far
its means are from means by hand with real counts.
"""

import importlib
import json
import logging
import os
import random
import sys
from pathlib import Path

import flwr_datasets  # noqa: F401 - loaded before the forks
import torch
import torch._dynamo
from flwr.app import Context, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg

from fedeas.train.flower.backends import run_on_backend

CONFIG = {
    "num-server-rounds": 2,
    "local-epochs": 1,
    "batch-size": 32,
    "learning-rate": 0.05,
    "num-samples": 12_000,
}


def load(app: str) -> list:
    """Import the app in a folder, and forget the one before."""
    for name in [name for name in sys.modules if name.split(".")[0] == "quickstart"]:
        del sys.modules[name]
    sys.path[0] = app
    return [
        importlib.import_module(f"quickstart.{n}") for n in ("client_app", "server_app", "task")
    ]


def configured(inner: ClientApp, config: dict) -> ClientApp:
    """Return the app with a run config, which `flwr run` would read from pyproject.toml."""
    outer = ClientApp()

    def call(message, context):
        node = context.node_id, context.node_config, context.state
        return inner(message, Context(context.run_id, *node, run_config=config))

    outer.train()(call)
    outer.evaluate()(call)
    return outer


def real_sizes(task, clients: int, config: dict) -> list[int]:
    """N_k of every client, counted without fedeas."""
    dataset = task.federated_dataset(clients, config["num-samples"], config["alpha"])
    parts = [dataset.load_partition(k) for k in range(clients)]
    return [len(p.train_test_split(test_size=0.2, seed=42)["train"]) for p in parts]


def run(kind: str, clients: int, app: str, config: dict) -> dict:
    client_app, server_app, task = load(app)
    sizes = real_sizes(task, clients, config)
    noted = {"real": sizes, "trained": [], "tested": [], "off": []}

    class Noting(FedAvg):
        def aggregate_train(self, server_round, replies):
            replies = list(replies)
            if failed := [reply.error.reason for reply in replies if reply.has_error()]:
                raise RuntimeError(failed[0])
            said = {r.metadata.src_node_id: r.content["metrics"]["num-examples"] for r in replies}
            noted["trained"].append([said[node] for node in sorted(said)])
            arrays, metrics = super().aggregate_train(server_round, replies)
            if kind == "inline":  # node ids follow the partitions
                noted["off"].append(self.off(arrays, replies, dict(zip(sorted(said), sizes))))  # noqa: B905
            return arrays, metrics

        def off(self, arrays, replies, weights):
            total, worst = sum(weights.values()), 0.0
            for name, mean in arrays.to_torch_state_dict().items():
                parts = [
                    r.content["arrays"].to_torch_state_dict()[name].double()
                    * (weights[r.metadata.src_node_id] / total)
                    for r in replies
                ]
                worst = max(worst, (mean - sum(parts)).abs().max().item())
            return worst

        def aggregate_evaluate(self, server_round, replies):
            replies = list(replies)
            said = {r.metadata.src_node_id: r.content["metrics"]["num-examples"] for r in replies}
            noted["tested"].append([said[node] for node in sorted(said)])
            return super().aggregate_evaluate(server_round, replies)

        def start(self, **arguments):
            result = super().start(**arguments)
            scores = result.evaluate_metrics_serverapp
            noted["accuracy"] = [scores[r]["accuracy"] for r in sorted(scores)]
            noted["loss"] = [scores[r]["loss"] for r in sorted(scores)]
            return result

    server_app.FedAvg = Noting
    random.seed(1)  # the strategy's order of clients
    torch.manual_seed(1)  # the first weights, and inline all shuffling
    context = Context(run_id=1, node_id=1, node_config={}, state=RecordDict(), run_config=config)
    configured_app = configured(client_app.app, config)
    run_on_backend(kind, configured_app, clients, 1, lambda grid: server_app.app(grid, context))
    return noted


def run_all(kind: str, clients: str, out: Path, runs: str) -> None:
    done = [run(kind, int(clients), app, CONFIG | config) for app, config in json.loads(runs)]
    out.write_text(json.dumps(done))


def main(kind: str, clients: str, out: str, *parts: str) -> None:
    logging.getLogger("flwr").setLevel(logging.CRITICAL)
    places = [Path(f"{out}.{number}") for number in range(len(parts))]
    for place, runs in zip(places, parts, strict=True):
        child = os.fork()
        if child == 0:
            return run_all(kind, clients, place, runs)
        _, status = os.waitpid(child, 0)
        if status:
            sys.exit(1)
    found = [noted for place in places for noted in json.loads(place.read_text())]
    Path(out).write_text(json.dumps(found))
    return None


if __name__ == "__main__":
    main(*sys.argv[1:])
