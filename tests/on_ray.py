"""Train a test federation on Ray with every method: python on_ray.py FOLDER METHODS."""

import json
import sys
from dataclasses import replace
from pathlib import Path

from fedeas.flower.client import make_client_app
from fedeas.flower.grids import on_grid
from federations import CLIENTS, federation, run, settings


def main(folder: Path, methods: list[tuple[str, int]]) -> None:
    """Leave a checkpoint of every method in FOLDER/ray."""
    made = federation(folder, policy="fedeas(beta=12)")
    own = folder / "ray"
    own.mkdir()
    app = make_client_app(replace(made.simulation, folder=str(own / "clients")).opener())
    on_grid(
        "ray",
        app,
        CLIENTS,
        1,
        lambda grid: [run(made, own, settings(m, p), grid) for m, p in methods],
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]), json.loads(sys.argv[2]))
