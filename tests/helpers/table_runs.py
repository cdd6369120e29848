"""Configs of short runs on a table."""

from pathlib import Path

import numpy as np
import pandas as pd

from fedeas._internal.settings import read_settings
from fedeas.lab.config import Config, Data, PartitionConfig
from fedeas.train.settings import Federated, Local, ModelSettings
from helpers.small_tables import SCHEMA, draw_table


def config(data: Path, seed: int, clients: int = 3) -> Config:
    """A run on a table that is there, with nothing generated."""
    return Config(
        data=Data(str(data)),
        partition=PartitionConfig("iid", clients=clients, alpha=None, min_samples=None),
        federated=Federated(
            rounds=1, fraction=1.0, model=ModelSettings("mlp"), local=Local(epochs=2, batch=8)
        ),
        seed=seed,
    )


def loans_config(folder: Path) -> Config:
    """Write a table of loans; return the config of a run on it, with rows of `gaussian`."""
    rows, labels = draw_table(700)
    frame = pd.DataFrame(rows, columns=SCHEMA.names)
    for at in SCHEMA.categorical.tolist():
        names = dict(enumerate(SCHEMA.columns[at].categories))
        frame[SCHEMA.names[at]] = frame[SCHEMA.names[at]].map(names)
    frame["grade"] = np.array(["good", "fair", "bad"])[labels]
    frame.to_parquet(folder / "loans.parquet")
    return read_settings(Config, {
        "seed": 3, "device": "cpu",
        "data": {"name": str(folder / "loans.parquet"), "label": "grade", "categories": ["term"]},
        "partition": {"recipe": "dirichlet", "clients": 5, "alpha": 0.4},
        "augment": {"policy": "fedeas(beta=12)", "generator": "gaussian",
                    "cache": str(folder / "cache")},
        "federated": {"rounds": 1, "model": {"name": "mlp"}, "local": {"epochs": 1, "batch": 16}},
    })  # fmt: skip
