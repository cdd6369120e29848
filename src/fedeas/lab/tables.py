"""Tables of a sweep: runs that can be compared, averaged over seeds.

A table holds runs of one version of the code; runs that are compared were trained on the same
counts with samples of the same generator. Other runs are refused or, on request, noted.
"""

import csv
import json
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedeas._internal.files import atomic_write
from fedeas.errors import InputError
from fedeas.lab.results import (
    FinishedRun,
    Mean,
    Result,
    SweepEntry,
    efficiency,
    rounds_to,
    summarise,
)


@dataclass(frozen=True)
class ResultRow:
    """A method with a policy: means over its seeds."""

    column: tuple[tuple[str, Any], ...]
    method: str
    policy: str
    match: str
    seeds: int
    accuracy: Mean  # of the last rounds
    peak: Mean
    gain: Mean | None  # over FedAvg without synthetic samples, seed by seed
    eta: Mean | None
    drift: Mean
    arrived: Mean | None  # rounds to the threshold, of the seeds that arrived
    never: int  # seeds that did not
    generated: Mean
    generation_seconds: Mean | None  # at the measured seconds per sample; None: never measured
    training_seconds: Mean
    per_class: tuple[float | None, ...]
    drift_all: Mean | None = None  # running statistics included, where the model has some


@dataclass(frozen=True)
class ResultTable:
    """The rows of one grid."""

    grid: str
    title: str
    threshold: float | None
    rows: tuple[ResultRow, ...]
    notes: tuple[str, ...]  # notes for the reader
    classes: tuple[str, ...] = ()  # names, or numbers if runs have different ones


def make_tables(
    runs: Sequence[FinishedRun], entries: Sequence[SweepEntry] | None = None, mixed: bool = False
) -> list[ResultTable]:
    """Return a table per grid.

    `entries` are all runs that were planned, finished or not. Runs that cannot be compared are
    refused, or with `mixed` put together anyway; the table then says so.
    """
    planned = entries if entries is not None else [run.entry for run in runs]
    plain = _without_generation(runs)
    rates = seconds_per_sample(runs)
    tables = []
    for grid in dict.fromkeys(entry.grid for entry in planned):
        finished = [run for run in runs if run.entry.grid == grid]
        notes = _not_comparable(finished)
        if notes and not mixed:
            raise InputError(
                f"grid {grid}: {notes[0]}",
                fix="run them again, or allow mixed tables with --mixed",
            )
        distinct, copies = distinct_runs(finished, _row_key)
        notes += copies
        first = next(entry for entry in planned if entry.grid == grid)
        keys = dict.fromkeys(_row_key(entry) for entry in planned if entry.grid == grid)
        rows = []
        for key in keys:
            members = [run for run in distinct if _row_key(run.entry) == key]
            if members:
                rows.append(_row(members, first.threshold, plain, rates))
        notes += _quality_cuts(finished)
        if (wanted := sum(entry.grid == grid for entry in planned)) > len(finished):
            notes.append(f"{len(finished)} of {wanted} runs are finished")
        tables.append(
            ResultTable(
                grid, first.title, first.threshold, tuple(rows), tuple(notes), _classes(distinct)
            )
        )
    return tables


def _classes(runs: Sequence[FinishedRun]) -> tuple[str, ...]:
    """Return the classes' names if all runs have the same, otherwise their numbers."""
    stated = {tuple(run.result.get("classes", ())) for run in runs}
    names = stated.pop() if len(stated) == 1 else ()
    most = max((len(run.result["curves"]["per_class"]) for run in runs), default=0)
    return names if len(names) == most else tuple(str(c) for c in range(most))


_Key = tuple[tuple[tuple[str, Any], ...], str, str, str]


def _row_key(entry: SweepEntry) -> _Key:
    return entry.column, entry.method, entry.policy, entry.match


def _quality_cuts(runs: Sequence[FinishedRun]) -> list[str]:
    """Say which runs generated fewer samples than planned, for what their generator's are worth."""
    return [
        f"quality cut: {run.entry.policy}, seed {run.entry.seed}, generated "
        f"{run.result['generated']:,} of the {asked:,} samples that it asks for"
        for run in runs
        if (asked := run.result.get("asked"))
    ]


def _not_comparable(runs: Sequence[FinishedRun]) -> list[str]:
    """Return why runs cannot share a table."""
    notes = []
    if len(used := {run.result["versions"] for run in runs}) > 1:
        notes.append(f"runs of different versions: {' and '.join(sorted(used))}")
    groups: dict[tuple[Any, ...], list[FinishedRun]] = {}
    for run in runs:
        groups.setdefault((run.entry.column, run.entry.seed), []).append(run)
    for (column, seed), group in groups.items():
        where = ", ".join([*(f"{name}={value}" for name, value in column), f"seed {seed}"])
        if len({run.result["counts_hash"] for run in group}) > 1:
            notes.append(f"runs on different label counts ({where})")
        generators = {run.result["generator_hash"] for run in group} - {""}
        if len(generators) > 1:
            notes.append(f"runs with samples of different generators ({where})")
    return notes


def _without_generation(runs: Iterable[FinishedRun]) -> dict[str, float]:
    """Return FedAvg's accuracy without synthetic samples, by everything else a run depends on."""
    return {
        common_setting(run.result): summarise(run.result["curves"])["accuracy_last"]
        for run in runs
        if run.result["method"] == "fedavg" and run.result["policy"] == "none"
    }


def common_setting(result: Result) -> str:
    """Return what a run and its FedAvg have in common, including versions."""
    settings = dict(result["settings"])
    settings.pop("augment")
    federated = {k: v for k, v in settings["federated"].items() if k != "method"}
    shared = [settings | {"federated": federated}, result["versions"]]
    return json.dumps(shared, sort_keys=True)


def _row(
    runs: Sequence[FinishedRun],
    threshold: float | None,
    plain: Mapping[str, float],
    rates: Mapping[str, float],
) -> ResultRow:
    entry = runs[0].entry
    results = [run.result for run in runs]
    forms = {
        tuple(map(len, map(result["curves"].get, ("accuracy", "per_class")))) for result in results
    }
    if len(forms) > 1:
        raise InputError(
            f"grid {entry.grid}: runs of {entry.policy} differ in rounds or classes",
            fix="put runs of one setting into one table",
        )
    figures = [summarise(result["curves"]) for result in results]
    gains, etas = [], []
    for result, summary in zip(results, figures, strict=True):
        without = plain.get(common_setting(result))
        if without is not None and (result["method"], result["policy"]) != ("fedavg", "none"):
            gains.append(summary["accuracy_last"] - without)
            eta = efficiency(summary["accuracy_last"], without, result["generated"])
            etas += [] if eta is None else [eta]
    arrived = [
        rounds_to(result["curves"]["accuracy"], threshold) if threshold else None
        for result in results
    ]
    reached = [float(number) for number in arrived if number is not None]
    by_class = zip(*(result["curves"]["per_class"] for result in results), strict=True)
    all_drifts = [
        summary["drift_all_median"] for summary in figures if "drift_all_median" in summary
    ]
    return ResultRow(
        entry.column,
        entry.method,
        entry.policy,
        entry.match,
        len(runs),
        accuracy=Mean.of([summary["accuracy_last"] for summary in figures]),
        peak=Mean.of([summary["accuracy_peak"] for summary in figures]),
        gain=Mean.of(gains) if len(gains) == len(runs) else None,
        eta=Mean.of(etas) if len(etas) == len(runs) else None,
        drift=Mean.of([summary["drift_median"] for summary in figures]),
        arrived=Mean.of(reached) if reached else None,
        never=len(arrived) - len(reached),
        generated=Mean.of([float(result["generated"]) for result in results]),
        generation_seconds=_generation_seconds(results, rates),
        training_seconds=Mean.of([summary["seconds"] for summary in figures]),
        per_class=tuple(
            None if None in summary else sum(summary) / len(summary) for summary in by_class
        ),
        drift_all=Mean.of(all_drifts) if len(all_drifts) == len(runs) else None,
    )


def _generation_seconds(results: Sequence[Result], rates: Mapping[str, float]) -> Mean | None:
    """Return what a row's samples took, even if they came from a cache."""
    if any(result["generated"] and result["generator"] not in rates for result in results):
        return None
    return Mean.of([r["generated"] * rates.get(r["generator"], 0.0) for r in results])


_COLUMNS = (
    "accuracy", "peak", "gain", "eta", "drift", "arrived", "generated", "generation_seconds",
    "training_seconds", "drift_all",
)  # fmt: skip


def write_csv(path: Path, tables: Sequence[ResultTable]) -> None:
    """Write tables as one CSV file: a row per row, a mean and half an interval per figure."""
    head = ["grid", "setting", "method", "policy", "match", "seeds"]
    for name in _COLUMNS:
        head += [name, f"{name}_half"]
    with atomic_write(path) as temporary, temporary.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(head)
        for table in tables:
            for row in table.rows:
                setting = "; ".join(f"{name}={value}" for name, value in row.column)
                cells: list[Any] = [table.grid, setting, row.method, row.policy, row.match]
                cells.append(row.seeds)
                for name in _COLUMNS:
                    mean: Mean | None = getattr(row, name)
                    cells += ["", ""] if mean is None else [_short(mean.value), _short(mean.half)]
                writer.writerow(cells)


def _short(value: float | None) -> str:
    return "" if value is None else f"{value:.6g}"


# Duplicate runs: copies of a run, and runs of one seed on two grids, count once


def distinct_runs(
    runs: Sequence[FinishedRun], row: Callable[[SweepEntry], Hashable]
) -> tuple[list[FinishedRun], list[str]]:
    """Return the runs that count, one per row of a table and seed, and a note on every other one.

    A run is identified by its experiment: settings, data and generator, wherever it ran.
    """
    kept: dict[Hashable, FinishedRun] = {}
    notes: list[str] = []
    for run in runs:
        first = kept.setdefault((row(run.entry), run.entry.seed), run)
        if first is not run:
            notes.append(_note(first, run))
    return list(kept.values()), notes


def _note(first: FinishedRun, other: FinishedRun) -> str:
    names = f"{_name(first)} and {_name(other)}"
    seed = first.entry.seed
    if first.result["experiment"] != other.result["experiment"]:
        return f"{names} both have seed {seed}: only the first is counted"
    if first.result["curves"]["accuracy"] == other.result["curves"]["accuracy"]:
        return f"{names} are the same run: it is counted once"
    accuracies = [100 * summarise(run.result["curves"])["accuracy_last"] for run in (first, other)]
    return (
        f"{names} claim to be the same run but differ ({accuracies[0]:.1f} and "
        f"{accuracies[1]:.1f} %): only the first is counted"
    )


def _name(run: FinishedRun) -> str:
    return str(run.path) if run.path is not None else run.entry.folder


# The cost of generation


@dataclass(frozen=True)
class Generation:
    """Samples of one generator, each counted once, and the seconds that they took."""

    generator: str
    made: int
    seconds: float
    by_runs: int  # of these, made while the runs ran


def generations(results: Iterable[Result]) -> Iterator[Generation]:
    """Yield what was generated for some runs, cache by cache; a copy of a run counts once."""
    by_cache: dict[tuple[str, ...], list[Result]] = {}
    for result in {result["experiment"]: result for result in results}.values():
        if result["generated"]:
            seed = str(result["settings"]["augment"].get("seed", 0))
            # Results of an earlier version do not name their cache: every federation had its own.
            cache = result["generation"].get("cache") or result["counts_hash"]
            key = (result["generator"], result["generator_hash"], str(cache), seed)
            by_cache.setdefault(key, []).append(result)
    for (generator, *_), runs in by_cache.items():
        by_runs = sum(result["generation"]["made"] for result in runs)
        during_runs = (by_runs, sum(result["generation"]["seconds"] for result in runs))
        # A cache grows: the result with the most samples is the latest.
        totals = [*(_in_cache(result) for result in runs), during_runs]
        made, seconds = max(totals, key=lambda pair: pair[0])
        yield Generation(generator, made, seconds, min(made, by_runs))


def seconds_per_sample(runs: Iterable[FinishedRun]) -> dict[str, float]:
    """Return the seconds per sample of every generator that was timed."""
    sums: dict[str, tuple[int, float]] = {}
    for generation in generations(run.result for run in runs):
        made, seconds = sums.get(generation.generator, (0, 0.0))
        sums[generation.generator] = made + generation.made, seconds + generation.seconds
    return {name: seconds / made for name, (made, seconds) in sums.items() if made}


def _in_cache(result: Result) -> tuple[int, float]:
    stated: Any = result["generation"].get("in_cache")
    try:
        return int(stated["made"]), float(stated["seconds"])
    except (KeyError, TypeError, ValueError):
        return 0, 0.0  # a result of an earlier version
