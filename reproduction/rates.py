"""Learning rates of the study: every run that chose one, and what the sweep files have to say.

The accuracy is that on validation samples, in the last tenth of the rounds.
"""

import csv
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from fedeas.lab.results import find_runs
from reproduction.study import DATA, last_tenth, write_record

RECORD = Path(__file__).parent / "recorded" / "rates.csv"
WAYS = {
    "rates-fedeas": "fedeas",
    "rates-none": "none",
    "rates-class-weights": "class weights",
}
# Rates at which runs of the study diverged, though none had when rates were chosen.
DIVERGED = {("satimage", 1.0), ("loans", 0.3), ("rodents", 1.0)}


@dataclass(frozen=True)
class RateRun:
    """A run that helped to choose a learning rate."""

    data: str
    way: str
    learning_rate: float
    seed: int
    accuracy: float
    code: str


def rates(folders: Sequence[Path]) -> Iterator[RateRun]:
    """Yield the finished runs of the grids that choose a rate."""
    for folder in folders:
        _, runs, _ = find_runs(folder)
        for run in runs:
            if (way := WAYS.get(run.entry.grid)) is not None:
                result, settings = run.result, run.result["settings"]
                yield RateRun(
                    DATA.get(settings["data"]["name"], settings["data"]["name"]),
                    way,
                    settings["federated"]["local"]["learning_rate"],
                    result["seed"],
                    round(last_tenth(result["curves"]["accuracy"]), 5),
                    result["versions"],
                )


def mean_accuracy(runs: Sequence[RateRun]) -> dict[tuple[str, str], dict[float, float]]:
    """Return the mean over seeds by data set and way, and in it by rate."""
    values: Mapping[tuple[str, str], dict[float, list[float]]]
    values = defaultdict(lambda: defaultdict(list))
    for run in runs:
        values[run.data, run.way][run.learning_rate].append(run.accuracy)
    return {
        key: {rate: statistics.mean(found) for rate, found in sorted(by_rate.items())}
        for key, by_rate in values.items()
    }


def best_rates(runs: Sequence[RateRun]) -> dict[tuple[str, str], float]:
    """Return the rate with the highest mean, by data set and way; of equal ones the smallest.

    A rate that diverged with any seed has fewer runs than the others, and does not win.
    """
    seeds = Counter((run.data, run.way, run.learning_rate) for run in runs)
    best = {}
    for (data, way), by_rate in mean_accuracy(runs).items():
        most = max(seeds[data, way, rate] for rate in by_rate)
        stable = [
            rate
            for rate in by_rate
            if seeds[data, way, rate] == most and (data, rate) not in DIVERGED
        ]
        best[data, way] = max(stable, key=lambda rate: (by_rate[rate], -rate))
    return best


def write_rates(path: Path, runs: Sequence[RateRun]) -> None:
    """Write every run as a line of CSV."""
    ordered = sorted(runs, key=lambda r: (r.data, r.way, r.learning_rate, r.seed))
    write_record(path, [f.name for f in fields(RateRun)], map(asdict, ordered))


def read_rates(path: Path = RECORD) -> list[RateRun]:
    """Read what `write_rates` wrote."""
    with path.open(newline="", encoding="utf-8") as file:
        return [
            RateRun(
                line["data"], line["way"], float(line["learning_rate"]), int(line["seed"]),
                float(line["accuracy"]), line["code"],
            )
            for line in csv.DictReader(file)
        ]  # fmt: skip
