"""Where generating rows pays: four real tables, several skews, ten seeds, paired and corrected.

    python benchmarks/tables_study.py [OUT] [--seeds 10] [--tables letter loans] [--jobs 2]

Tables are in FEDEAS_DATA/tables. For each, learning rates are chosen on a validation part, one for
FedAvg and one for class weights: the test rows are taken away first, and a fifth of the rest takes
their place. Then every way to train runs on every seed, as a sweep in OUT: called again, it
resumes. Beta is what `fedeas plan` chooses for the first seed; policies of a total get that of
FedEAS. A way is compared with none and with copies, and FedEAS and water-filling with uniform, seed
by seed, by Student's t, corrected by Holm's method over all comparisons.

The tables are printed as Markdown: gains in points with half of the 95 % interval, bold where they
survive the correction. The class mean is that of the classes' accuracies, in which rare classes
count as much as others. OUT/study.csv has every run, and `--record` prints the tables of such a
file; the last line is JSON.
"""

import argparse
import csv
import json
import statistics
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from fedeas._internal.settings import read_settings
from fedeas.lab.config import Config
from fedeas.lab.resolve import open_data, partition_data
from fedeas.lab.results import read_result, summarise
from fedeas.lab.runner import FAILED, run_cells
from fedeas.lab.sweep import Cell, GridConfig, SweepConfig, make_cells, run_specs
from fedeas.planning.beta import choose_beta
from reproduction.evidence import PairedTest, holm, minus, points

Scores = dict[str, dict[str, dict[int, float]]]  # setting, way, seed
# What a way is compared with; with uniform, where as many rows go elsewhere.
COMPARED = {"none": None, "copies": None, "uniform": ("fedeas", "waterfill")}
COLUMNS = ("accuracy", "class mean", "generated")  # of a record, as they are printed
TABLES = ("letter", "penbased", "satimage", "loans")
ALPHAS = (0.05, 0.1, 0.3)
RATES = (0.1, 0.3, 1.0, 3.0)
FIRST = 1  # seed
CHOSEN_ON = (101, 102)  # seeds that the learning rate is chosen on
# Name -> policy, generator, method.
WAYS = {
    "none": ("none", "gaussian", "fedavg"),
    "copies": ("copies", "copies", "fedavg"),
    "smote": ("match", "smote", "fedavg"),
    "class-weights": ("none", "gaussian", "class-weights"),
    "uniform": ("uniform", "gaussian", "fedavg"),
    "fedeas": ("match", "gaussian", "fedavg"),
    "waterfill": ("waterfill", "gaussian", "fedavg"),
    "full-balance": ("full-balance", "gaussian", "fedavg"),
}


def base(table: str, alpha: float | None, cache: Path, rounds: int, rate: float) -> dict:
    """Return the config that all runs of a table have in common."""
    partition = (
        {"recipe": "column(state)"}
        if alpha is None
        else {"recipe": "dirichlet", "clients": 20, "alpha": alpha}
    )
    return {
        "seed": FIRST,
        "device": "cpu",
        "data": {"name": f"tables/{table}"},
        "partition": partition,
        "augment": {"policy": "none", "generator": "gaussian", "cache": str(cache), "batch": 4096},
        "federated": {
            "rounds": rounds,
            "fraction": 1.0,
            "model": {"name": "mlp"},
            "local": {"epochs": 2, "batch": 256, "learning_rate": rate},
        },
    }


def named(number: float) -> str:
    """Return a number as part of a grid's name, which may have no point."""
    return str(number).replace(".", "_")


def settings_of(table: str) -> list[float | None]:
    """Return the skews that a table is shared out with; None: its real sites."""
    return [None] if table == "loans" else list(ALPHAS)


def beta_for(config: dict) -> float:
    """Return what `fedeas plan` chooses for the first seed's counts."""
    return choose_beta(partition_data(read_settings(Config, config)).counts).beta


def choose_rates(table: str, out: Path, rounds: int, jobs: int | None) -> dict[str, float]:
    """Choose the learning rate of every method on a part of the training rows.

    FedAvg's is the best one for none and FedEAS together.
    """
    methods = dict.fromkeys(method for _, _, method in WAYS.values())
    return {method: choose_rate(table, method, out, rounds, jobs) for method in methods}


def choose_rate(table: str, method: str, out: Path, rounds: int, jobs: int | None) -> float:
    """Choose the learning rate of a method, or return the one that was chosen before."""
    kept, name = out / "rates.json", f"{table}-{method}"
    known = json.loads(kept.read_text()) if kept.exists() else {}
    if name in known:
        return float(known[name])
    alpha = settings_of(table)[len(settings_of(table)) // 2]
    part = validation_table(table, alpha, out)
    grids, beta = [], 0.0
    for rate in RATES:
        content = base(table, alpha, out / "cache", rounds, rate)
        content["data"] = {"name": table, "folder": str(part.parent)}
        beta = beta or beta_for(content)
        changed = {
            "seed": list(CHOSEN_ON),
            "augment.policy": ["none", *([f"fedeas(beta={beta})"] if method == "fedavg" else [])],
            "federated.method": method,
        }
        grids.append((content, GridConfig(name=f"{name}-{named(rate)}", settings=changed)))
    means = {}
    for rate, (content, grid) in zip(RATES, grids, strict=True):
        sweep = SweepConfig(name="rates", base=content, grids=(grid,))
        cells = make_cells(list(run_specs(sweep)))
        ended = finished(cells, out / "rates", jobs)
        # A run that diverged has learnt nothing.
        means[rate] = sum(outcome(cell, out / "rates").accuracy for cell in ended) / len(cells)
    best = max(means, key=means.__getitem__)
    print(f"{name}: learning rate {best} on validation rows, of {means}", flush=True)
    kept.write_text(json.dumps(known | {name: best}))
    return best


def validation_table(table: str, alpha: float | None, out: Path) -> Path:
    """Write a table without its test rows."""
    path = out / "validation" / f"{table}.parquet"
    config = read_settings(Config, base(table, alpha, out / "cache", 1, 0.1))
    data = open_data(config)
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = data.schema.words(data.samples[: data.train_size])
    frame = pd.DataFrame(rows, columns=data.schema.names)
    # In words, a number would be read as a category.
    numbers = [column.name for column in data.schema.columns if not column.categories]
    frame[numbers] = frame[numbers].apply(pd.to_numeric)
    frame["label"] = [data.classes[c] for c in data.train_labels]
    if data.sites is not None:
        sites = data.sites
        frame[sites.column] = [sites.names[c] for c in sites.codes[: data.train_size]]
    frame.to_parquet(path)
    return path


def planned(
    table: str, out: Path, seeds: int, rounds: int, rates: Mapping[str, float]
) -> Iterator[SweepConfig]:
    """Yield a sweep per skew of a table."""
    for alpha in settings_of(table):
        content = base(table, alpha, out / "cache", rounds, rates["fedavg"])
        where = f"{table}-{'sites' if alpha is None else named(alpha)}"
        yield sweep_of(where, content, WAYS, seeds, beta_for(content), rates)


def sweep_of(
    name: str,
    content: dict,
    ways: Mapping[str, tuple[str, str, str]],
    seeds: int,
    beta: float,
    rates: Mapping[str, float],
) -> SweepConfig:
    """Return a sweep with a grid per way to train; totals are those of FedEAS."""
    grids = tuple(
        GridConfig(
            name=f"{name}-{way}",
            match=(f"fedeas(beta={beta})",),
            settings={
                "seed": list(range(FIRST, FIRST + seeds)),
                "augment.policy": [policy],
                "augment.generator": generator,
                "federated.method": method,
                "federated.local.learning_rate": rates[method],
            },
        )
        for way, (policy, generator, method) in ways.items()
    )
    return SweepConfig(name=name, base=content, grids=grids)


def finished(cells: Sequence[Cell], root: Path, jobs: int | None) -> list[Cell]:
    """Run cells, and return those that finished."""
    said = 0

    def watch(runs: Sequence[object]) -> None:
        nonlocal said
        done = sum(run.state == "finished" for run in runs)
        if done >= said + 10:
            said = done
            print(f"{root.name}: {done} of {len(runs)} runs", flush=True)

    runs = run_cells(cells, root, jobs, watch)
    for run in runs:
        if run.state == FAILED:
            print(f"{run.cell.name} failed: {run.error}", flush=True)
    bad = {run.cell.name for run in runs if run.state == FAILED}
    return [cell for cell in cells if cell.name not in bad]


class Outcome(NamedTuple):
    """What a run reached in its last rounds, and what it spent."""

    accuracy: float
    class_mean: float  # of the classes' accuracies: rare ones count as much as others
    generated: int


def outcome(cell: Cell, root: Path) -> Outcome:
    """Return the outcome of a run."""
    result = read_result(root / cell.name / "result.json")
    of_classes = [a for a in result["curves"]["per_class"] if a is not None]
    last = float(summarise(result["curves"])["accuracy_last"])
    return Outcome(last, statistics.mean(of_classes), int(result["generated"]))


def main() -> None:
    """Run what is missing, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("out", type=Path, nargs="?", help="kept; otherwise a temporary folder")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--tables", nargs="+", choices=TABLES, default=list(TABLES))
    parser.add_argument("--jobs", type=int)
    parser.add_argument("--record", type=Path, help="print the tables of this study.csv instead")
    given = parser.parse_args()
    if given.record:
        print_tables(given.record)
        return
    given.out = given.out or Path(tempfile.mkdtemp())
    given.out.mkdir(parents=True, exist_ok=True)
    sweeps = []
    for table in given.tables:
        rates = choose_rates(table, given.out, given.rounds, given.jobs)
        sweeps += planned(table, given.out, given.seeds, given.rounds, rates)
    study(sweeps, given.out, given.jobs)


def study(sweeps: Sequence[SweepConfig], out: Path, jobs: int | None) -> dict[str, list[Cell]]:
    """Run what is missing of sweeps whose grids are ways to train, and print the tables.

    Return the runs that finished, by the names of sweeps.
    """
    rows = []
    ended: dict[str, list[Cell]] = {}
    for sweep in sweeps:
        ended[sweep.name] = finished(make_cells(list(run_specs(sweep))), out / sweep.name, jobs)
        for cell in ended[sweep.name]:
            way = way_of(cell, sweep.name)
            found = outcome(cell, out / sweep.name)
            rate = cell.config.federated.local.learning_rate
            rows.append([
                sweep.name, way, cell.config.augment.policy, rate, cell.config.seed,
                found.generated, f"{found.accuracy:.4f}", f"{found.class_mean:.4f}",
            ])  # fmt: skip
    with (out / "study.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([
            "setting", "way", "policy", "rate", "seed", "generated", "accuracy", "class mean",
        ])  # fmt: skip
        writer.writerows(rows)
    print_tables(out / "study.csv")
    return ended


def way_of(cell: Cell, sweep: str) -> str:
    """Return the way to train of a run."""
    return cell.spec.grid.name.removeprefix(f"{sweep}-")


def print_tables(record: Path) -> None:
    """Print gains over other ways, bold if they survive the correction, and a summary."""
    scores, of_classes, generated = map(partial(read_record, record), COLUMNS)
    others = [other for other in COMPARED if any(other in ways for ways in scores.values())]
    held = held_gains(scores, others)
    for other in others:
        print(gain_table(scores, f"accuracy over {other}", other, held), end="\n\n")
    of_rare = held_gains(of_classes, ("none",))
    print(gain_table(of_classes, "class mean over none", "none", of_rare), end="\n\n")
    print(generated_table(generated), end="\n\n")
    means = {
        where: {way: round(100 * statistics.mean(own.values()), 2) for way, own in ways.items()}
        for where, ways in scores.items()
    }
    print(json.dumps({"accuracy": means, "tests": len(held), "hold": sum(held.values())}))


def read_record(record: Path, column: str) -> Scores:
    """Return a column of a record by setting, way and seed."""
    found = Scores()
    with record.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            own = found.setdefault(row["setting"], {}).setdefault(row["way"], {})
            own[int(row["seed"])] = float(row[column])
    return found


def held_gains(scores: Scores, others: Sequence[str]) -> dict[tuple[str, str, str], bool]:
    """Return which gains over other ways hold after Holm's correction over all of them."""
    p_values = {
        (where, way, other): PairedTest.of([minus(ways[way], ways[other])]).p_value
        for where, ways in scores.items()
        for other in others
        for way in compared(ways, other)
        if other in ways
    }
    known = {key: p for key, p in p_values.items() if p is not None}
    return dict(zip(known, holm(list(known.values())), strict=True))


def compared(ways: Iterable[str], other: str) -> list[str]:
    """Return the ways that are compared with another one."""
    return [way for way in ways if way not in ("none", other) and way in (COMPARED[other] or ways)]


def gain_table(
    scores: Scores, head: str, other: str, held: Mapping[tuple[str, str, str], bool]
) -> str:
    """Return gains over a way to train, a line per setting, as Markdown."""
    ways = compared(_all_ways(scores), other)
    lines = [f"| {head} | seeds | {other} | {' | '.join(ways)} |", "|---" * (len(ways) + 3) + "|"]
    for where, own in scores.items():
        if other not in own:
            continue
        cells = [
            title(where),
            str(len(own[other])),
            f"{100 * statistics.mean(own[other].values()):.1f}",
        ]
        for way in ways:
            test = PairedTest.of([minus(own.get(way, {}), own[other])])
            gain = points(test.differences[0]).replace(" ", "\N{NO-BREAK SPACE}")
            fewer = f" ({len(test.seeds)} seeds)" if 0 < len(test.seeds) < len(own[other]) else ""
            cells.append((f"**{gain}**" if held.get((where, way, other)) else gain) + fewer)
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def generated_table(generated: Scores) -> str:
    """Return the mean numbers of generated samples as Markdown."""
    spent = [
        way
        for way in _all_ways(generated)
        if any(any(ways.get(way, {}).values()) for ways in generated.values())
    ]
    lines = [f"| generated | {' | '.join(spent)} |", "|---" * (len(spent) + 1) + "|"]
    for where, ways in generated.items():
        means = [statistics.mean(ways[way].values()) if way in ways else None for way in spent]
        cells = ["-" if mean is None else f"{mean:,.0f}" for mean in means]
        lines.append(f"| {title(where)} | {' | '.join(cells)} |")
    return "\n".join(lines)


def title(where: str) -> str:
    """Return the name of a setting for a reader.

    >>> title("letter-0_05"), title("loans-sites"), title("letter")
    ('letter, alpha 0.05', 'loans, real sites', 'letter')
    """
    table, _, skew = where.partition("-")
    named = {"": "", "sites": ", real sites"}
    return table + named.get(skew, f", alpha {skew.replace('_', '.')}")


def _all_ways(scores: Scores) -> list[str]:
    return list(dict.fromkeys(way for ways in scores.values() for way in ways))


if __name__ == "__main__":
    main()
