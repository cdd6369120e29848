"""Train the first of some small fixed configs, and keep a hash of each: pinned_runs.py FOLDER RUNS.

Weights are the same on every processor that torch's plainest kernels run on: no oneDNN, no vector
instructions of one processor alone, one thread. `test_pinned_runs.py` sets what must be set before
torch is loaded.

The hashes were recorded when a run's samples were known by its label counts, which chose other
seeds for them. Runs are pinned with these seeds, so that they are held against what they were, and
one with the seeds of now.
"""

import hashlib
import json
import os
import sys
from contextlib import contextmanager
from pathlib import Path

import torch
from safetensors.torch import load_file

from fedeas import augment
from fedeas.cache import store
from fedeas.cli.main import main
from fedeas.lab import experiment
from helpers.image_sets import draw_shapes
from helpers.small_federations import Shapes, write_shapes

RUNS = [
    ("fedavg", "none"),
    *((method, "fedeas(beta=6)") for method in (
        "fedavg", "scaffold", "fedprox(mu=0.1)", "moon(mu=1, tau=0.5)", "fedgen(weight=0.2)",
        "fedmix",
    )),
]  # fmt: skip
COUNTS = Path(__file__).parents[1] / "data" / "cifar10-k20-a0.1-counts.csv"
CONFIG = """
seed = 7
device = "cpu"

[data]
name = "shapes"
folder = "{folder}/set"
pool_per_class = 12

[partition]
recipe = "dirichlet"
clients = 4
alpha = 0.3

[augment]
policy = "{policy}"
generator = "pool"
cache = "{folder}/cache-{cache}"
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


@contextmanager
def seeds_of_then():
    """Let samples of runs have the seeds that they had when the hashes were recorded."""
    now, resolve = store.Cache.__init__, experiment.resolve
    counts = {}

    def noted(config):
        run = resolve(config)
        counts["hash"] = run.plan.counts_hash
        return run

    def then(self, base, generator, classes, seed=0):
        now(self, base, generator, classes, seed)
        self._identity = [generator.fingerprint, counts["hash"], 0]

    store.Cache.__init__, experiment.resolve = then, noted
    try:
        yield
    finally:
        store.Cache.__init__, experiment.resolve = now, resolve


def trained(folder: Path, name: str, method: str, policy: str) -> str:
    """Run a config and return the hash of its weights."""
    config, out = folder / f"{name}.toml", folder / name
    cache = name.rstrip("0123456789")
    config.write_text(CONFIG.format(folder=folder, cache=cache, method=method, policy=policy))
    fedeas("run", config, "--out", out)
    return weights_hash(out / "checkpoint.safetensors")


def pins(folder: Path, runs: int) -> dict[str, str]:
    """Run so many configs and the rest, and return the hashes."""
    write_shapes(folder / "set")
    found = {}
    with seeds_of_then():
        for number, (method, policy) in enumerate(RUNS[:runs]):
            name = f"{method}, {policy}"
            found[name] = trained(folder, f"then{number}", method, policy)
    found["fedavg, fedeas(beta=6), now"] = trained(folder, "now", *RUNS[1])
    fedeas("plan", COUNTS, "--out", folder / "plan.csv")
    found["plan.csv"] = hashlib.sha256((folder / "plan.csv").read_bytes()).hexdigest()
    images, labels = draw_shapes(90)
    mine = labels < 2  # a class that this client lacks
    more, _ = augment(
        images[mine], labels=labels[mine], generator=Shapes(), beta=12, client="pin",
        cache=folder / "images", seed=0,  # the default when the hash was recorded
    )  # fmt: skip
    found["samples"] = hashlib.sha256(more[int(mine.sum()) :].tobytes()).hexdigest()
    return found


if __name__ == "__main__":
    torch.backends.mkldnn.enabled = False
    where = Path(sys.argv[1])
    os.chdir(where)
    made = pins(where, int(sys.argv[2]))
    (where / "pins.json").write_text(json.dumps(made, indent=2) + "\n")
