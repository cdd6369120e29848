"""Train with every method on Ray.

python train_on_ray.py FOLDER ROUNDS METHODS POLICY KIND

METHODS is a JSON list of [method, projection] or [method, projection, model].
"""

import json
import sys
from dataclasses import replace
from pathlib import Path

from fedeas.train.flower.backends import run_on_backend
from fedeas.train.flower.client import make_client_app
from helpers.small_federations import CLIENTS, federation, run, settings


def main(folder: Path, rounds: int, methods: list[list[object]], policy: str, kind: str) -> None:
    """Leave a checkpoint of every method in FOLDER/ray."""
    made = federation(folder, policy=policy, kind=kind)
    own = folder / "ray"
    own.mkdir()
    opener = replace(made.simulation, folder=str(own / "clients")).opener()
    app = make_client_app(opener)

    def work(grid: object) -> None:
        for given in methods:
            run(made, own, settings(*given).replace(rounds=rounds), grid)

    run_on_backend("ray", app, CLIENTS, 1, work)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), json.loads(sys.argv[3]), *sys.argv[4:6])
