"""The advice of `fedeas plan` beside what paid in the recorded studies.

    python benchmarks/advice.py [--out docs/data/advice.csv]

For every setting of tables-study.csv, own-federated.csv, free.csv and of the study at equal steps,
study.csv (all in reproduction/recorded), the clients are shared out again, by the seeds of the
runs, and diagnosed. Beside it is what generated samples and class weights were ahead by: points of
accuracy with half of the 95 % interval, paired by seed, bold where the whole interval above copies
is above 0. Copies are for nothing, so generated samples have to be half a point ahead to be worth
it: `threshold` is the part `lacking` from which on generating is best advised by that measure, in
the settings of all other data sets.

The table is printed as Markdown; `--record` prints that of a file.
"""

import argparse
import csv
import statistics
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path

from private_federated import ALPHA, images
from tables_study import TABLES, base, named, settings_of

from fedeas._internal.settings import read_settings, read_toml
from fedeas.lab.config import Config
from fedeas.lab.resolve import partition_data
from fedeas.lab.results import Mean
from fedeas.planning.diagnosis import LITTLE, diagnose
from reproduction.evidence import minus
from reproduction.study import RECORD, read_rows

ROOT = Path(__file__).parents[1]
RECORDED = ROOT / "reproduction" / "recorded"
EVIDENCE = ROOT / "reproduction" / "configs" / "evidence"
# The study's sweep files and data sets whose names are not the same.
FILES = {"CIFAR-10": "cifar10", "Fashion-MNIST": "fashion"}
NAMES = {"CIFAR-10": "cifar10", "Fashion-MNIST": "fashion_mnist"}
WEIGHTS = "class-weights"
WORTH = 0.5  # points that generated samples have to be ahead by
FREE_SEED = 42  # of reproduction/configs/cpu/free.toml
BySeed = dict[int, float]
HEADS = (
    "setting", "seeds", "between", "lacking", "threshold", "advice", "generated - copies", "half",
    "generated - none", "copies - none", "weights - none",
)  # fmt: skip


def main() -> None:
    """Diagnose all settings and write the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "data" / "advice.csv")
    parser.add_argument("--record", type=Path, help="print this file instead")
    given = parser.parse_args()
    if given.record is None:
        rows = [dict(row) for row in settings()]
        for row in rows:
            others = [other for other in rows if data_of(other) != data_of(row)]
            others = [other for other in others if by_lacking(other)]
            row["threshold"] = f"{threshold(others):.2f}"
        with given.out.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, HEADS, lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
    print(markdown(given.record or given.out))
    print(f"\n{wrong_rate(given.record or given.out)}")


def settings() -> Iterator[dict[str, object]]:
    """Yield a row per setting of the studies."""
    with tempfile.TemporaryDirectory() as folder:
        cache = Path(folder)
        scores = read(RECORDED / "tables-study.csv")
        for table in TABLES:
            for alpha in settings_of(table):
                name = f"{table}-sites" if alpha is None else f"{table}-{named(alpha)}"
                yield row_of(name, base(table, alpha, cache, 30, 0.1), scores[name], "fedeas")
        for name, runs in read(RECORDED / "own-federated.csv").items():
            table = name in TABLES
            content = base(name, ALPHA, cache, 30, 0.1) if table else images(60_000, cache, 5)
            yield row_of(f"{name}-{named(ALPHA)} (own)", content, runs, "own-1")
    content = read_toml(ROOT / "reproduction" / "configs" / "cpu" / "free.toml")["base"]
    yield row_of("cifar10-0_1 (real images)", content, read_free(RECORDED / "free.csv"), "fedeas")
    for data, runs in read_study().items():
        content = read_toml(EVIDENCE / f"{FILES.get(data, data)}.toml")["base"]
        yield row_of(f"{NAMES.get(data, data)}-equal steps", content, runs, "fedeas")


def row_of(
    name: str, content: Mapping[str, object], runs: Mapping[str, BySeed], generated: str
) -> dict[str, object]:
    """Return the diagnosis of a setting, and what paid."""
    ahead = minus(runs[generated], runs["copies"])
    found = [
        diagnose(partition_data(read_settings(Config, {**content, "seed": seed})).counts)
        for seed in ahead
    ]
    mean = Mean.of(list(ahead.values()))
    row = {
        "setting": name,
        "seeds": len(ahead),
        "between": f"{statistics.mean(d.between for d in found):.2f}",
        "lacking": f"{statistics.mean(d.lacking for d in found):.2f}",
        "advice": Counter(d.advice for d in found).most_common(1)[0][0],
        "generated - copies": f"{100 * mean.value:+.3f}",
        "half": "" if mean.half is None else f"{100 * mean.half:.3f}",
    }
    for title, way in (("generated", generated), ("copies", "copies"), ("weights", WEIGHTS)):
        gains = minus(runs[way], runs["none"]).values() if way in runs else ()
        row[f"{title} - none"] = f"{100 * statistics.mean(gains):+.1f}" if gains else ""
    return row


def read(record: Path) -> dict[str, dict[str, BySeed]]:
    """Return the accuracies of a study by setting, way and seed."""
    found: dict[str, dict[str, BySeed]] = {}
    with record.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            way = found.setdefault(row["setting"], {}).setdefault(row["way"], {})
            way[int(row["seed"])] = float(row["accuracy"])
    return found


def read_study() -> dict[str, dict[str, BySeed]]:
    """Return the accuracies of the study at equal steps, by data set, way and seed."""
    found: dict[str, dict[str, BySeed]] = {}
    for row in read_rows(RECORD) if RECORD.exists() else ():
        if row.grid != "again":
            way = WEIGHTS if row.way == "class weights" else row.way
            found.setdefault(row.data, {}).setdefault(way, {})[row.seed] = row.accuracy
    compared = {"none", "copies", "fedeas"}
    return {data: ways for data, ways in found.items() if compared <= ways.keys()}


def read_free(record: Path) -> dict[str, BySeed]:
    """Return the accuracies of CIFAR-10, whose record is a summary of one seed."""
    ways = {
        ("pool", "fedavg", "none"): "none",
        ("pool", "fedavg", "fedeas(beta=8)"): "fedeas",
        ("copies", "fedavg", "copies"): "copies",
        ("pool", WEIGHTS, "none"): WEIGHTS,
    }
    with record.open(newline="", encoding="utf-8") as file:
        keys = (
            ((row["setting"].split("=")[1], row["method"], row["policy"]), float(row["accuracy"]))
            for row in csv.DictReader(file)
        )
        return {ways[key]: {FREE_SEED: accuracy} for key, accuracy in keys if key in ways}


def ahead_of_copies(row: Mapping[str, object]) -> bool:
    """Tell whether generating was ahead of copies, the whole interval of it."""
    return bool(row["half"]) and float(str(row["generated - copies"])) > float(str(row["half"]))


def by_lacking(row: Mapping[str, object]) -> bool:
    """Tell whether enough lies between clients for `lacking` to decide."""
    return float(str(row["between"])) >= LITTLE


def data_of(row: Mapping[str, object]) -> str:
    """Return which data set a setting is of."""
    return str(row["setting"]).split("-")[0]


def threshold(rows: Sequence[Mapping[str, object]]) -> float:
    """Return the part `lacking` from which on generating is best advised: the middle of the gap."""
    edges = [0.0, *sorted({float(str(row["lacking"])) for row in rows}), 1.0]

    def worth(gap: tuple[float, float]) -> float:
        above = (row for row in rows if float(str(row["lacking"])) >= gap[1])
        return sum(float(str(row["generated - copies"])) - WORTH for row in above)

    return sum(max(pairwise(edges), key=worth)) / 2


def wrong(row: Mapping[str, object]) -> bool:
    """Tell whether the advice was not what paid: generated samples against copies."""
    return (row["advice"] == "generate") != (float(str(row["generated - copies"])) >= WORTH)


def wrong_rate(record: Path) -> str:
    """Return a sentence with the share of settings whose advice was not what paid."""
    with record.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    return f"The advice was wrong in {sum(map(wrong, rows))} of {len(rows)} settings."


def markdown(record: Path) -> str:
    """Return the table of a record."""
    lines = [
        "| setting | between | lacking | threshold | advice | generated - copies | generated "
        "| copies | class weights |",
        "|---" * 9 + "|",
    ]
    with record.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            half = f" ± {float(row['half']):.1f}" if row["half"] else ", one seed"
            ahead = f"{float(row['generated - copies']):+.1f}{half}"
            ahead = f"**{ahead}**" if ahead_of_copies(row) else ahead
            gains = " | ".join(row[f"{way} - none"] for way in ("generated", "copies", "weights"))
            parts = f"{row['between']} | {row['lacking']} | {row['threshold']} | {row['advice']}"
            lines.append(f"| {row['setting']} | {parts} | {ahead} | {gains} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
