"""Choose the paper's beta over Flower's simulation on Ray: python secure_on_ray.py FOLDER."""

import sys
from functools import partial
from pathlib import Path

from flwr.clientapp import ClientApp

from fedeas import LabelCounts
from fedeas.flower.grids import on_grid
from fedeas.flower.negotiate import Holding, answer_negotiation, negotiate_beta

COUNTS = LabelCounts.load(Path(__file__).parent / "data" / "cifar10-k20-a0.1-counts.csv").n


def hold(folder: Path, counts: object, context: object) -> Holding:
    number = int(context.node_config["partition-id"])
    return Holding(counts[number], folder / str(number))


if __name__ == "__main__":
    app = ClientApp()
    answer_negotiation(app, partial(hold, Path(sys.argv[1]), COUNTS))
    found = on_grid(
        "ray", app, 20, 1, lambda grid: negotiate_beta(grid, grid.get_node_ids(), classes=10)
    )
    print(found.choice.policy.beta, found.choice.samples)
