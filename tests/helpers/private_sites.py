"""Real sites that answer noisy sums: each has its own configuration, and images or a table."""

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from fedeas.private.flower.deployed import client_app
from fedeas.private.flower.site_config import SiteConfig
from fedeas.train.flower.backends import InlineGrid
from helpers.deployed_sites import COUNTS, config
from helpers.table_sets import CLASSES as LEVELS
from helpers.table_sets import SCHEMA, draw_rows, to_table

USED = (
    "partition_id", "classes", "data", "state", "generator", "device", "identity_key", "members",
    "epsilon", "allow",
)  # fmt: skip
GIVEN = {"generator-epsilon": 20.0, "policy": "fedeas(beta=12)", "rounds": 1}


class RealSites(InlineGrid):
    """The app of real sites, each with the configuration of its own node."""

    def __init__(self, place: Path, state: Path, **changed: object) -> None:
        own = {"epsilon": 30.0} | changed
        self.open([config(place, state, k, **own) for k in range(len(COUNTS))])

    def open(self, nodes: list[SiteConfig]) -> None:
        """Start the sites."""
        super().__init__(client_app(), len(nodes))
        for mine, context in zip(nodes, self._contexts.values(), strict=True):
            used = {name: getattr(mine, name) for name in (*USED, "schema")}
            context.node_config = {name.replace("_", "-"): v for name, v in used.items()}
            context.run_config = {"classes": mine.classes}


class SitesWithTables(RealSites):
    """Four sites with a table each, of which two lack a class."""

    def __init__(self, folder: Path, keys: Path) -> None:
        SCHEMA.save(folder / "schema.json")
        rows, labels = draw_rows(2000)
        parts = np.array_split(np.argsort(labels, kind="stable"), 4)
        for k, part in enumerate([*parts, np.arange(0, 2000, 9)]):
            pq.write_table(to_table(rows[part], labels[part]), folder / f"{k}.parquet")
        self.configs = [
            config(
                keys, folder / "state", k, epsilon=30.0, generator="private",
                classes=",".join(LEVELS), data=str(folder / f"{k}.parquet"),
                schema=str(folder / "schema.json"),
            )
            for k in range(4)
        ]  # fmt: skip
        self.open(self.configs)
