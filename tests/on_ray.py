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

from fedeas.flower.client import make_client_app
from fedeas.flower.grids import on_grid
from fedeas.flower.negotiate import negotiate_beta
from fedeas.flower.queries import Holding, answer_queries
from fedeas.flower.simulated import simulated_identities, simulated_members
from federations import CLIENTS, counts_of, federation, run, settings


def hold(counts: object, folder: Path, context: object) -> Holding:
    """What a client negotiates with."""
    number = int(context.node_config["partition-id"])
    who = simulated_identities(len(counts))[number]
    return Holding(counts[number], folder / str(number) / "sums", who, None, ("beta", "train", "exact"))


def main(folder: Path, rounds: int, methods: list[list[object]], policy: str, kind: str) -> None:
    """Leave the chosen beta and a checkpoint of every method in FOLDER/ray."""
    made = federation(folder, policy=policy, kind=kind)
    plain = settings(model="" if kind == "table" else "cnn")
    own = folder / "ray"
    own.mkdir()
    app = make_client_app(replace(made.simulation, folder=str(own / "clients")).opener(),
                          answers_queries=True)  # fmt: skip
    answer_queries(app, partial(hold, counts_of(folder).n, own / "clients"))

    def work(grid: object) -> None:
        nodes, members = grid.get_node_ids(), simulated_members(CLIENTS)
        chosen = negotiate_beta(grid, nodes, 3, members, epsilon=math.inf).choice
        (own / "beta.json").write_text(json.dumps([chosen.policy.beta, chosen.samples.value]))
        for given in methods:
            run(made, own, settings(*given).replace(rounds=rounds), grid)
        (own / "secure").mkdir()
        run(made, own / "secure", plain.replace(fraction=1.0, secure=True), grid)

    on_grid("ray", app, CLIENTS, 1, work)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), json.loads(sys.argv[3]), *sys.argv[4:6])
