"""Choose beta and train with every method on Ray.

python on_ray.py FOLDER ROUNDS METHODS POLICY KIND

METHODS is a JSON list of [method, projection] or [method, projection, model].
"""

import json
import math
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

from fedeas.flower.backends import run_on_backend
from fedeas.flower.client import make_client_app
from fedeas_private.flower.queries import QueryContext, answer_queries, negotiate_beta
from fedeas_private.flower.secure_client import (
    simulated_app,
    simulated_identities,
    simulated_members,
)
from federations import CLIENTS, counts_of, federation, run, settings


def hold(counts: object, folder: Path, context: object) -> QueryContext:
    """What a client negotiates with."""
    number = int(context.node_config["partition-id"])
    who = simulated_identities(len(counts))[number]
    return QueryContext(counts[number], folder / str(number) / "sums", who, None, ("beta", "exact"))


def main(folder: Path, rounds: int, methods: list[list[object]], policy: str, kind: str) -> None:
    """Leave the chosen beta and a checkpoint of every method in FOLDER/ray."""
    made = federation(folder, policy=policy, kind=kind)
    plain = settings(model="" if kind == "table" else "cnn")
    own = folder / "ray"
    own.mkdir()
    opener = replace(made.simulation, folder=str(own / "clients")).opener()
    app = make_client_app(opener)
    answer_queries(app, partial(hold, counts_of(folder).n, own / "clients"))

    def work(grid: object) -> None:
        nodes, members = grid.get_node_ids(), simulated_members(CLIENTS)
        chosen = negotiate_beta(grid, nodes, 3, members, epsilon=math.inf).choice
        (own / "beta.json").write_text(json.dumps([chosen.policy.beta, chosen.samples.value]))
        for given in methods:
            run(made, own, settings(*given).replace(rounds=rounds), grid)

    def work_securely(grid: object) -> None:
        (own / "secure").mkdir()
        run(made, own / "secure", plain.replace(fraction=1.0, secure=True), grid)

    run_on_backend("ray", app, CLIENTS, 1, work)
    # Clients that answer queries are sites, which show no direction of their updates.
    run_on_backend("ray", simulated_app(opener, CLIENTS), CLIENTS, 1, work_securely)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), json.loads(sys.argv[3]), *sys.argv[4:6])
