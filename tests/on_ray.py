"""Choose beta and train with every method on Ray: python on_ray.py FOLDER ROUNDS METHODS.

METHODS is a JSON list of [method, projection] or [method, projection, model].
"""

import json
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

from fedeas.flower.client import make_client_app
from fedeas.flower.grids import on_grid
from fedeas.flower.negotiate import Holding, answer_negotiation, negotiate_beta
from federations import CLIENTS, counts_of, federation, run, settings


def hold(counts: object, folder: Path, context: object) -> Holding:
    """What a client negotiates with."""
    number = int(context.node_config["partition-id"])
    return Holding(counts[number], folder / str(number))


def main(folder: Path, rounds: int, methods: list[list[object]]) -> None:
    """Leave the chosen beta and a checkpoint of every method in FOLDER/ray."""
    made = federation(folder, policy="fedeas(beta=12)")
    own = folder / "ray"
    own.mkdir()
    app = make_client_app(replace(made.simulation, folder=str(own / "clients")).opener())
    answer_negotiation(app, partial(hold, counts_of(folder).n, own / "negotiated"))

    def work(grid: object) -> None:
        chosen = negotiate_beta(grid, grid.get_node_ids(), classes=3).choice
        (own / "beta.json").write_text(json.dumps([chosen.policy.beta, chosen.samples]))
        for given in methods:
            run(made, own, settings(*given).replace(rounds=rounds), grid)

    on_grid("ray", app, CLIENTS, 1, work)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), json.loads(sys.argv[3]))
