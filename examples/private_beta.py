"""Twenty sites choose beta by a noisy secure sum, simulated in one process: `choose(grid)`."""

from pathlib import Path

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from flwr.app import Context
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid

from fedeas_private import (
    Identity,
    Ledger,
    Members,
    QueryContext,
    answer_queries,
    negotiate_beta,
)

# Real sites read their own key and members.toml: Members.load("members.toml").
keys = [Ed25519PrivateKey.generate() for _ in range(20)]
public = {f"site-{k}": key.public_key().public_bytes_raw() for k, key in enumerate(keys)}
members = Members.of(public)
histograms = np.random.default_rng(0).integers(0, 500, (20, 3))

app = ClientApp()


def hold(context: Context) -> QueryContext:
    """Return what a site answers with: its counts, a folder of its own, its key, its ledger."""
    k = int(context.node_config["partition-id"])
    folder = Path("sites") / str(k)
    identity = Identity.of(keys[k].private_bytes_raw(), members)
    ledger = Ledger.open(folder / "ledger", epsilon=3.0)
    return QueryContext(histograms[k], folder / "sums", identity, ledger)


answer_queries(app, hold)


def choose(grid: Grid) -> float:
    """Choose beta at the server, before the first round."""
    chosen = negotiate_beta(grid, grid.get_node_ids(), 3, members, epsilon=1.0)
    return chosen.choice.policy.beta
