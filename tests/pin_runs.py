"""Train small fixed configs and print a hash of each: python pin_runs.py FOLDER.

Weights are the same on every processor that torch's plainest kernels run on: no oneDNN, no vector
instructions of one processor alone, one thread. `test_pins.py` sets what must be set before torch
is loaded.
"""

import hashlib
import json
import os
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file

from fedeas import augment
from fedeas.cli import main
from federations import Shapes, write_shapes
from pictures import draw_shapes

RUNS = [
    ("fedavg", "none"),
    *((method, "fedeas(beta=6)") for method in (
        "fedavg", "fedprox(mu=0.1)", "scaffold", "moon(mu=1, tau=0.5)", "fedgen(weight=0.2)",
        "fedmix",
    )),
]  # fmt: skip
COUNTS = Path(__file__).parent / "data" / "cifar10-k20-a0.1-counts.csv"
CONFIG = """
seed = 7
device = "cpu"

[data]
name = "shapes"
folder = "{folder}/set"
hold_out = 12

[partition]
recipe = "dirichlet"
clients = 4
alpha = 0.3

[augment]
policy = "{policy}"
generator = "pool"
cache = "{folder}/cache"
batch = 8

[federated]
method = "{method}"
rounds = 3
fraction = 0.75

[federated.model]
name = "cnn"
projection = 16

[federated.local]
epochs = 1
batch = 8
learning_rate = 0.05
"""


def fedeas(*arguments: object) -> None:
    """Call the command line."""
    sys.argv = ["fedeas", *map(str, arguments)]
    try:
        main()
    except SystemExit as stop:
        if stop.code:
            raise


def weights_hash(file: Path) -> str:
    """Return the hash of a model's weights, by name."""
    digest = hashlib.sha256()
    for name, tensor in sorted(load_file(file).items()):
        if name.startswith("weights."):
            digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
            digest.update(tensor.numpy().tobytes())
    return digest.hexdigest()


def pins(folder: Path) -> dict[str, str]:
    """Run everything and return its hashes."""
    write_shapes(folder / "set")
    found = {}
    for number, (method, policy) in enumerate(RUNS):
        config, out = folder / f"{number}.toml", folder / f"run{number}"
        config.write_text(CONFIG.format(folder=folder, method=method, policy=policy))
        fedeas("run", config, "--out", out)
        found[f"{method}, {policy}"] = weights_hash(out / "checkpoint.safetensors")
    fedeas("plan", COUNTS, "--out", folder / "plan.csv")
    found["plan.csv"] = hashlib.sha256((folder / "plan.csv").read_bytes()).hexdigest()
    images, labels = draw_shapes(90)
    mine = labels < 2  # a class that this client lacks
    more, _ = augment(
        images[mine], labels=labels[mine], generator=Shapes(), beta=12, client="pin",
        cache=folder / "images",
    )  # fmt: skip
    found["samples"] = hashlib.sha256(more[int(mine.sum()) :].tobytes()).hexdigest()
    return found


if __name__ == "__main__":
    torch.backends.mkldnn.enabled = False
    where = Path(sys.argv[1])
    os.chdir(where)
    made = pins(where)
    (where / "pins.json").write_text(json.dumps(made, indent=2) + "\n")
