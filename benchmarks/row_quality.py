"""How good generated rows are: letter, penbased, satimage and loans.

    python benchmarks/row_quality.py [--generator gaussian] [--tables letter ...]

Reads `tables/NAME.parquet` below FEDEAS_DATA. For each table a generator draws as many rows as
there are for training, of the same classes; they are measured as `fedeas generator sample --judge
--data --accuracy` does. Prints a row of Markdown per table; the last line is JSON.
"""

import argparse
import json
from typing import Any

import numpy as np

from fedeas.data import Dataset, TableOptions, open_dataset
from fedeas.generators import Generator, find_resampler, make_generator
from fedeas.generators.resampler import BoundResampler
from fedeas.train.diffusion.judge import Judge
from fedeas.train.diffusion.quality import Drawn, Quality, Real, measure

SITES = {"loans": "state"}
HEAD = (
    "table", "judge: synthetic", "judge: real", "trained on synthetic", "trained on real",
    "near a training row", "expected", "median distance", "of unseen rows",
)  # fmt: skip


def open_generator(spec: str, name: str, data: Dataset, options: TableOptions) -> Generator:
    """Fit or open a generator of a table's rows."""
    own = find_resampler(spec, by_owner=True)
    if own is not None:
        return BoundResampler.of_training(own, data)
    return make_generator(spec, data=name, table=options)


def measured(spec: str, table: str) -> Quality:
    """Draw rows like the training rows of a table, and measure them."""
    name, options = f"tables/{table}", TableOptions(site=SITES.get(table, ""))
    data = open_dataset(name, options=options)
    labels = np.asarray(data.train_labels)
    seeds = np.arange(len(labels), dtype=np.uint64)
    rows = open_generator(spec, name, data, options).sample(labels, seeds)
    judge = Judge.train(data)
    return measure(Drawn(rows, labels), data.classes, judge, Real.of(data), accuracy=True)


def line(table: str, found: dict[str, Any]) -> str:
    """Return a row of the table in Markdown."""
    near = found["memorisation"]
    real = float(np.mean([*found["real_agreement"].values()]))
    shares = (
        found["agreement_mean"], real, found["accuracy_on_real"], found["accuracy_of_real"],
        near["share"], near["expected"],
    )  # fmt: skip
    cells = [table, *(f"{100 * share:.1f} %" for share in shares)]
    cells += [f"{near['median']:.2f}", f"{near['real_median']:.2f}"]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Measure, and print a line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--generator", default="gaussian")
    parser.add_argument("--tables", nargs="+", default=["letter", "penbased", "satimage", "loans"])
    chosen = parser.parse_args()
    print(f"| {' | '.join(HEAD)} |", "|---" * len(HEAD) + "|", sep="\n", flush=True)
    found = {}
    for table in chosen.tables:
        found[table] = measured(chosen.generator, table).to_dict()
        print(line(table, found[table]), flush=True)
    print(json.dumps({"generator": chosen.generator, "tables": found}))


if __name__ == "__main__":
    main()
