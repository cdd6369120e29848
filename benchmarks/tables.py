"""A large table end to end: a million rows of 50 columns on 1,000 sites.

    python benchmarks/tables.py [--rows 1000000] [--sites 1000] [--folder /tmp/tables]

The table has 40 columns of numbers, half of them whole, and 10 of categories; one value in twenty
is missing. Every stage is a process of its own, one thread each, and is measured from the start of
its work (imports are not counted) to its end, with the peak of its memory: reading the table into a
data set, sharing it out by site and planning, learning `gaussian` from all training rows and making
those of a plan of 5 %, and one round in which all sites train for one epoch. Target: at most 4 GiB
each. The last line is JSON; the exit code is 1 when the target is missed.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

NUMBERS, CATEGORICAL, CLASSES = 40, 10, 10
BLOCK = 50_000
MOST = 4 * 2**30  # bytes


def write(path: Path, rows: int, sites: int) -> None:
    """Write the table, a block of rows at a time."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng = np.random.default_rng(0)
    homes = np.array([f"kind {i}" for i in range(20)])
    middles = rng.normal(0, 1, (CLASSES, NUMBERS))
    writer = None
    for start in range(0, rows, BLOCK):
        size = min(BLOCK, rows - start)
        site = rng.integers(0, sites, size)
        # Every site sees a few classes more often than the rest.
        label = np.where(rng.random(size) < 0.7, (site + rng.integers(0, 2, size)) % CLASSES,
                         rng.integers(0, CLASSES, size))  # fmt: skip
        values = middles[label] + rng.normal(0, 1, (size, NUMBERS))
        values[:, ::2] = np.round(100 * values[:, ::2])
        columns = {
            f"x{i:02}": pa.array(values[:, i], mask=rng.random(size) < 0.05) for i in range(NUMBERS)
        }
        for i in range(CATEGORICAL):
            codes = (label + rng.integers(0, 10, size)) % len(homes)
            columns[f"c{i:02}"] = pa.array(homes[codes], mask=rng.random(size) < 0.05)
        columns["site"] = pa.array([f"site {k:04}" for k in site])
        columns["label"] = pa.array([f"class {y}" for y in label])
        table = pa.table(columns)
        writer = writer or pq.ParquetWriter(path, table.schema)
        writer.write_table(table)
    writer.close()


def config(folder: Path):
    """Return the config of the run."""
    from fedeas.lab.config import Augment, Config, Data, PartitionConfig
    from fedeas.train.settings import Federated, Local, ModelSettings

    return Config(
        data=Data("table", str(folder / "table.parquet")),
        partition=PartitionConfig("column(site)"),
        augment=Augment(cache=str(folder / "cache")),
        federated=Federated(
            rounds=1, fraction=1.0, model=ModelSettings("mlp"), local=Local(epochs=1, batch=64)
        ),
        device="cpu",
    )


def read(folder: Path) -> Callable[[], object]:
    """Read the table into a data set."""
    from fedeas.lab.resolve import open_data

    return lambda: open_data(config(folder))


def plan(folder: Path) -> Callable[[], object]:
    """Share the rows out by site, and plan."""
    from fedeas.lab.resolve import partition_data
    from fedeas.planning.policies import FedEAS

    return lambda: FedEAS(beta=4).plan(partition_data(config(folder)).counts)


def fill(folder: Path) -> Callable[[], object]:
    """Learn the generator of rows, and make those of a plan of 5 %."""
    import pyarrow.parquet as pq

    from fedeas import Cache, FedEAS, choose_beta
    from fedeas import fill as fill_cache
    from fedeas.generators import make_generator
    from fedeas.lab.resolve import partition_data

    counts = partition_data(config(folder)).counts
    table = folder / "table.parquet"
    total = pq.read_metadata(table).num_rows // 20

    def work() -> int:
        made = FedEAS(beta=choose_beta(counts, total=total).beta).plan(counts)
        generator = make_generator(f"gaussian(data={table}, site=site)")
        cache = Cache(folder / "filled", generator, counts.class_names)
        return fill_cache(made, generator, cache).generated

    return work


def one_round(folder: Path) -> Callable[[], object]:
    """Train one round."""
    from fedeas.lab.experiment import run

    return lambda: run(config(folder), folder / "run")


STAGES = {"read": read, "plan": plan, "fill": fill, "round": one_round}


def stage(name: str, folder: Path) -> None:
    """Do one stage and print what it took."""
    work = STAGES[name](folder)
    begun = time.monotonic()
    made = work()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    spent = {"seconds": round(time.monotonic() - begun, 1), "peak_mb": round(peak / 1e6)}
    if isinstance(made, int):
        spent["generated"] = made
    sys.stdout.write(json.dumps(spent | {"cpu_seconds": round(time.process_time(), 1)}) + "\n")


def main() -> int:
    """Run all stages."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--sites", type=int, default=1_000)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--stage", choices=STAGES)
    given = parser.parse_args()
    if given.stage:
        stage(given.stage, given.folder)
        return 0
    found = {"rows": given.rows, "columns": NUMBERS + CATEGORICAL, "sites": given.sites}
    with tempfile.TemporaryDirectory(dir=given.folder) as made:
        folder = Path(made)
        write(folder / "table.parquet", given.rows, given.sites)
        environment = {**os.environ, "FEDEAS_STORE": str(folder / "store"), "OMP_NUM_THREADS": "1"}
        for name in STAGES:
            command = [sys.executable, "-W", "ignore", __file__, "--stage", name]
            done = subprocess.run(
                [*command, "--folder", folder],
                env=environment, capture_output=True, text=True, check=False,
            )  # fmt: skip
            if done.returncode:
                sys.stderr.write(done.stderr)
                return 2
            found[name] = json.loads(done.stdout.splitlines()[-1])
            sys.stdout.write(f"{name:<6} {found[name]}\n")
    found["met"] = all(found[name]["peak_mb"] * 1e6 <= MOST for name in STAGES)
    sys.stdout.write(json.dumps(found) + "\n")
    return 0 if found["met"] else 1


if __name__ == "__main__":
    sys.exit(main())
