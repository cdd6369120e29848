"""The study of reproduction/plan.md: every run as a row, and the comparisons that were planned.

A row has what a run was and what it reached in the last tenth of its rounds: the accuracy, the mean
over classes, the worst site. Differences are paired by seed.
"""

import csv
import json
import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from scipy import stats

from fedeas._internal.specs import parse
from fedeas.errors import InputError
from fedeas.lab.results import INDEX, FinishedRun, Mean, find_runs, read_index
from reproduction.evidence import holm_p_values

RECORD = Path(__file__).parent / "recorded" / "study.csv"
LEVEL, POWER = 0.05, 0.8
# Data sets of the study by the names in their runs; the generator of the primary comparison.
DATA = {
    "tables/letter": "letter",
    "tables/satimage": "satimage",
    "tables/loans": "loans",
    "natural/covertype_areas": "forest",
    "natural/portal_rodents": "rodents",
    "natural/crohme_sites": "symbols",
    "cifar10": "CIFAR-10",
    "fashion_mnist": "Fashion-MNIST",
}
PRIMARY = ("letter", "satimage", "CIFAR-10", "Fashion-MNIST")
REPLICATION = ("letter, replication", "satimage, replication")
# The first step on a GPU is of the paper's size: another data set, as it were.
FULL_SIZE, FIRST_STEP = "CIFAR-10, full size", ("uniform", "missing-only", "none")
# The ways whose accuracy by round is kept, and the grids that have them at their own rates.
CURVES, _CURVE_GRIDS = ("none", "copies", "fedeas"), ("none", "copies", "where")
REAL_SITES = ("forest", "rodents", "loans", "symbols")  # every policy: private, epsilon 1
SECONDARY = {
    "water-filling minus FedEAS": ("waterfill", "fedeas"),
    "FedEAS minus copies": ("fedeas", "copies"),
    "FedEAS with the private generator, epsilon 1, minus copies": ("fedeas private 1", "copies"),
}


@dataclass(frozen=True)
class StudyRun:
    """A run of the study, and what it reached in the last tenth of its rounds."""

    data: str
    way: str
    seed: int
    learning_rate: float
    generated: int
    accuracy: float
    class_mean: float
    worst_site: float | None
    before_last: float  # accuracy in the tenth of rounds before the last: shows what is flat
    grid: str
    experiment: str
    code: str
    steps: int | None = None  # of all clients, in all rounds


@dataclass(frozen=True)
class Difference:
    """One way minus another, seed by seed, in percentage points."""

    data: str
    what: str
    seeds: int
    mean: float
    half: float  # of the 95 % interval
    p: float
    spread: float

    @property
    def seeds_needed(self) -> int | None:
        """Seeds for a power of 80 % at a lead of this size and spread.

        At the strictest step of the correction over the primary comparisons.
        """
        if self.mean == 0:
            return None
        ratio = abs(self.mean) / self.spread if self.spread else math.inf
        level = LEVEL / len(PRIMARY)
        return next((n for n in range(2, 10_000) if power(ratio, n, level) >= POWER), None)


def power(ratio: float, seeds: int, level: float = LEVEL) -> float:
    """Return the chance that a paired t-test finds a lead of `ratio` standard deviations.

    >>> round(power(1.3, 8), 2), round(power(1.3, 8, LEVEL / 3), 2)
    (0.88, 0.7)
    """
    bound = stats.t.ppf(1 - level / 2, seeds - 1)
    return float(stats.nct.sf(bound, seeds - 1, min(ratio * math.sqrt(seeds), 1e3)))


def rows(
    folders: Sequence[Path], again: Sequence[Path] = (), partial: bool = False
) -> Iterator[StudyRun]:
    """Yield the runs of sweeps; grids that only chose a rate are left out.

    A grid with runs that did not finish is refused, unless it may be partial: what is missing may
    be what diverged, and a comparison of what is left is biased.

    A run belongs to every grid of its file that has its settings, so what repeats the study for the
    noise floor is told by its folder: of `again` only that grid is taken, of the others all else.
    """
    for folder in (*folders, *again):
        _, runs, _ = find_runs(folder)
        if not partial and (folder / INDEX).exists():
            _check_finished(folder, runs)
        for run in runs:
            repeated = run.entry.grid == "again"
            if repeated == (folder in again) and not run.entry.grid.startswith("rates"):
                yield _row(run)


def _check_finished(folder: Path, runs: Sequence[FinishedRun]) -> None:
    """Refuse grids that have finished runs, and others."""
    finished = {run.entry.folder for run in runs}
    begun = {run.entry.grid for run in runs if not run.entry.grid.startswith("rates")}
    entries = (entry for entry in read_index(folder) if entry.grid in begun)
    if missing := [entry.folder for entry in entries if entry.folder not in finished]:
        raise InputError(
            f"{folder} has grids with {len(missing)} runs that did not finish",
            got=missing[0],
            fix="finish the sweep, or say --partial",
        )


def _row(run: FinishedRun) -> StudyRun:
    result, settings = run.result, run.result["settings"]
    curve, rounds = result["curves"]["accuracy"], len(result["curves"]["accuracy"])
    tenth = max(1, rounds // 10)
    sites = [a for a in result["curves"].get("per_site", ()) if a is not None]
    of_classes = [a for a in result["curves"]["per_class"] if a is not None]
    data = DATA.get(settings["data"]["name"], settings["data"]["name"])
    named = {"first-step": FULL_SIZE, "replication": f"{data}, replication"}
    return StudyRun(
        named.get(run.entry.grid, data),
        way(run),
        result["seed"],
        settings["federated"]["local"]["learning_rate"],
        result["generated"],
        last_tenth(curve),
        statistics.mean(of_classes),
        min(sites) if sites else None,
        _mean(curve[-2 * tenth : -tenth]),
        run.entry.grid,
        result["experiment"],
        result["versions"],
        None if run.path is None else steps_taken(run.path),
    )


def steps_taken(folder: Path) -> int:
    """Return the local steps of all clients in all rounds of a run."""
    lines = (folder / "log.jsonl").read_text(encoding="utf-8").splitlines()
    by_round = {line["round"]: line["steps"] for line in map(json.loads, lines)}
    return sum(by_round.values())


def last_tenth(curve: Sequence[float | None]) -> float:
    """Return the mean of the last tenth of the rounds, of those that were evaluated."""
    return _mean(curve[-max(1, len(curve) // 10) :])


def _mean(values: Sequence[float | None]) -> float:
    known = [value for value in values if value is not None]
    return statistics.mean(known) if known else math.nan


def way(run: FinishedRun) -> str:
    """Name how a run trains: the policy, and the generator where several are compared."""
    augment = run.result["settings"]["augment"]
    policy = parse(augment["policy"], "policy")[0]
    if run.result["settings"]["federated"]["method"] == "class-weights":
        return "class weights"
    if policy == "none":
        return "none" if augment.get("steps_as") else "none, own steps"
    if run.entry.grid == "private":
        return f"{policy} private {parse(augment['generator'], 'generator')[1]['epsilon']}"
    return f"{policy} central" if run.entry.grid == "central" else policy


def difference(
    all_rows: Sequence[StudyRun], data: str, a: str, b: str, figure: str = "accuracy"
) -> Difference | None:
    """Return one way minus another on a data set; None with less than two seeds of both."""
    by_way: dict[str, dict[int, float]] = defaultdict(dict)
    for row in all_rows:
        if row.data == data and row.grid != "again":
            by_way[row.way][row.seed] = getattr(row, figure)
    seeds = sorted(by_way[a].keys() & by_way[b].keys())
    if len(seeds) < 2:
        return None
    points = [100 * (by_way[a][seed] - by_way[b][seed]) for seed in seeds]
    test = stats.ttest_1samp(points, 0)
    interval = test.confidence_interval(1 - LEVEL)
    half = float(interval.high - interval.low) / 2
    mean, spread = statistics.mean(points), statistics.stdev(points)
    return Difference(data, f"{a} - {b}", len(seeds), mean, half, float(test.pvalue), spread)


def primary(all_rows: Sequence[StudyRun]) -> list[tuple[Difference, float, str]]:
    """Return FedEAS minus uniform on each data set, its corrected p, and the verdict."""
    return _family([difference(all_rows, data, "fedeas", "uniform") for data in PRIMARY])


def replication(all_rows: Sequence[StudyRun]) -> list[tuple[Difference, float, str]]:
    """Return FedEAS minus uniform on new federations, corrected over these alone."""
    return _family([difference(all_rows, data, "fedeas", "uniform") for data in REPLICATION])


def first_step(all_rows: Sequence[StudyRun]) -> list[tuple[Difference, float, str]]:
    """Return the comparisons of the first step on a GPU, corrected over them alone."""
    return _family([difference(all_rows, FULL_SIZE, "fedeas", other) for other in FIRST_STEP])


def _family(planned: Sequence[Difference | None]) -> list[tuple[Difference, float, str]]:
    """Correct over all planned comparisons, also while some are not there yet."""
    corrected = holm_p_values([1.0 if d is None else d.p for d in planned])
    pairs = zip(planned, corrected, strict=True)
    return [(d, p, _verdict(d, p)) for d, p in pairs if d is not None]


def _verdict(found: Difference, p: float) -> str:
    if p >= LEVEL:
        return "open"
    return "supported" if found.mean > 0 else "refuted in direction"


def secondary(all_rows: Sequence[StudyRun]) -> list[tuple[str, Difference, float]]:
    """Return the secondary comparisons, each corrected over the data sets that have it."""
    lines = []
    for what, (a, b) in SECONDARY.items():
        known = []
        for data in dict.fromkeys(row.data for row in all_rows):
            first = "fedeas" if data in REAL_SITES and a == "fedeas private 1" else a
            if (d := difference(all_rows, data, first, b)) is not None:
                known.append(d)
        corrected = holm_p_values([d.p for d in known])
        lines += [(what, d, p) for d, p in zip(known, corrected, strict=True)]
    return lines


def means(all_rows: Sequence[StudyRun]) -> dict[str, dict[str, Mean]]:
    """Return the accuracy by data set and way."""
    values: Mapping[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in all_rows:
        if row.grid != "again":
            values[row.data][row.way].append(row.accuracy)
    return {
        data: {way: Mean.of(accuracies) for way, accuracies in ways.items()}
        for data, ways in values.items()
    }


def repeated(all_rows: Sequence[StudyRun]) -> dict[tuple[str, str], list[float]]:
    """Return how far runs that were repeated with their seed are from the first, in points.

    By data set and way, for every seed: the noise that pairing by seed does not remove, and what a
    later version changed.
    """
    first = {(r.data, r.way, r.seed): r.accuracy for r in all_rows if r.grid == "where"}
    apart = defaultdict(list)
    for row in all_rows:
        key = row.data, row.way, row.seed
        if row.grid == "again" and key in first:
            apart[row.data, row.way].append(100 * (row.accuracy - first[key]))
    return dict(apart)


def write_rows(path: Path, all_rows: Sequence[StudyRun]) -> None:
    """Write every run as a line of CSV."""
    lines = []
    for row in sorted(all_rows, key=lambda r: (r.data, r.grid, r.way, r.seed)):
        content = asdict(row)
        for name in ("accuracy", "class_mean", "worst_site", "before_last"):
            content[name] = "" if content[name] is None else f"{content[name]:.5f}"
        lines.append(content)
    write_record(path, [f.name for f in fields(StudyRun)], lines)


def write_record(path: Path, columns: Sequence[str], lines: Iterable[Mapping[str, object]]) -> None:
    """Write lines of a record as CSV, with the same bytes on every system."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(lines)


def write_curves(path: Path, folder: Path) -> None:
    """Write the accuracy by round of one data set's runs: without samples, copies and FedEAS."""
    _, runs, _ = find_runs(folder)
    kept = [run for run in runs if way(run) in CURVES and run.entry.grid in _CURVE_GRIDS]
    names = {run.result["settings"]["data"]["name"] for run in kept}
    if len(names) != 1:
        raise InputError(
            "curves are of one data set", got=f"{folder} with {len(names)}", fix="name its sweep"
        )
    lines = [
        (way(run), number, run.result["seed"], f"{accuracy:.5f}")
        for run in kept
        for number, accuracy in enumerate(run.result["curves"]["accuracy"], start=1)
        if accuracy is not None
    ]
    lines.sort(key=lambda line: (line[0], line[2], line[1]))
    columns = ("way", "round", "seed", "accuracy")
    write_record(path, columns, (dict(zip(columns, line, strict=True)) for line in lines))


def merge_rows(known: Sequence[StudyRun], new: Sequence[StudyRun]) -> list[StudyRun]:
    """Return a record's runs with new ones added, or in the place of the same runs.

    A difference between two versions of the code is not one between ways: all runs of a data set
    are of one version. Those of the grid `again` may be of a later one, and show what it changed.
    """
    by_run = {(r.data, r.grid, r.way, r.seed): r for r in (*known, *new)}
    versions = defaultdict(set)
    for row in by_run.values():
        if row.grid != "again":
            versions[row.data].add(row.code)
    for data, codes in versions.items():
        if len(codes) > 1:
            raise InputError(
                f"runs of several versions of the code on {data}", got=", ".join(sorted(codes))
            )
    once = Counter((r.data, r.way, r.seed) for r in by_run.values() if r.grid != "again")
    if twice := [key for key, count in once.items() if count > 1]:
        raise InputError("a run is in two grids", got=twice[0])
    return list(by_run.values())


def read_rows(path: Path) -> list[StudyRun]:
    """Read what `write_rows` wrote."""
    with path.open(newline="", encoding="utf-8") as file:
        return [
            StudyRun(
                line["data"], line["way"], int(line["seed"]), float(line["learning_rate"]),
                int(line["generated"]), float(line["accuracy"]), float(line["class_mean"]),
                float(line["worst_site"]) if line["worst_site"] else None,
                float(line["before_last"]), line["grid"], line["experiment"], line["code"],
                int(line["steps"]) if line["steps"] else None,
            )
            for line in csv.DictReader(file)
        ]  # fmt: skip
