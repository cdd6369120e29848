"""Tables of a sweep: runs that can be compared, averaged over seeds.

A table holds runs of one version of the code; runs that are compared were trained on the same
counts with samples of the same generator. Other runs are refused or, on request, noted.
"""

import csv
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedeas.errors import InputError
from fedeas.experiments import generation
from fedeas.experiments.distinct import distinct_runs
from fedeas.experiments.results import (
    Mean,
    Result,
    efficiency,
    rounds_to,
    summarise,
)
from fedeas.experiments.runs import Entry, Run
from fedeas.files import atomic_write


@dataclass(frozen=True)
class Row:
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
class Table:
    """The rows of one grid."""

    grid: str
    title: str
    threshold: float | None
    rows: tuple[Row, ...]
    notes: tuple[str, ...]  # notes for the reader
    classes: tuple[str, ...] = ()  # names, or numbers if runs have different ones


def make_tables(
    runs: Sequence[Run], entries: Sequence[Entry] | None = None, mixed: bool = False
) -> list[Table]:
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
        own, copies = distinct_runs(finished, _row_key)
        notes += copies
        first = next(entry for entry in planned if entry.grid == grid)
        keys = dict.fromkeys(_row_key(entry) for entry in planned if entry.grid == grid)
        rows = []
        for key in keys:
            members = [run for run in own if _row_key(run.entry) == key]
            if members:
                rows.append(_row(members, first.threshold, plain, rates))
        if (wanted := sum(entry.grid == grid for entry in planned)) > len(finished):
            notes.append(f"{len(finished)} of {wanted} runs are finished")
        tables.append(
            Table(grid, first.title, first.threshold, tuple(rows), tuple(notes), _classes(own))
        )
    return tables


def _classes(runs: Sequence[Run]) -> tuple[str, ...]:
    """Return the classes' names if all runs have the same, otherwise their numbers."""
    known = {tuple(run.result.get("classes", ())) for run in runs}
    names = known.pop() if len(known) == 1 else ()
    most = max((len(run.result["curves"]["per_class"]) for run in runs), default=0)
    return names if len(names) == most else tuple(str(c) for c in range(most))


_Key = tuple[tuple[tuple[str, Any], ...], str, str, str]


def _row_key(entry: Entry) -> _Key:
    return entry.column, entry.method, entry.policy, entry.match


def _not_comparable(runs: Sequence[Run]) -> list[str]:
    """Return why runs cannot share a table."""
    notes = []
    if len(codes := {run.result["code_hash"][:8] for run in runs}) > 1:
        notes.append(f"runs of different code: {', '.join(sorted(codes))}")
    beside: dict[tuple[Any, ...], list[Run]] = {}
    for run in runs:
        beside.setdefault((run.entry.column, run.entry.seed), []).append(run)
    for (column, seed), own in beside.items():
        where = ", ".join([*(f"{name}={value}" for name, value in column), f"seed {seed}"])
        if len({run.result["counts_hash"] for run in own}) > 1:
            notes.append(f"runs on different label counts ({where})")
        drawn = {run.result["generator_hash"] for run in own} - {""}
        if len(drawn) > 1:
            notes.append(f"runs with samples of different generators ({where})")
    return notes


def _without_generation(runs: Iterable[Run]) -> dict[str, float]:
    """Return FedAvg's accuracy without synthetic samples, by everything else a run depends on."""
    return {
        common_setting(run.result): summarise(run.result["curves"])["accuracy_last"]
        for run in runs
        if run.result["method"] == "fedavg" and run.result["policy"] == "none"
    }


def common_setting(result: Result) -> str:
    """Return what a run and its FedAvg have in common, including the code."""
    settings = dict(result["settings"])
    settings.pop("augment")
    federated = {k: v for k, v in settings["federated"].items() if k != "method"}
    shared = [settings | {"federated": federated}, result["code_hash"]]
    return json.dumps(shared, sort_keys=True)


def seconds_per_sample(runs: Iterable[Run]) -> dict[str, float]:
    """Return the seconds per sample of every generator that was timed."""
    return generation.seconds_per_sample(run.result for run in runs)


def _row(
    runs: Sequence[Run],
    threshold: float | None,
    plain: Mapping[str, float],
    rates: Mapping[str, float],
) -> Row:
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
    found = [summarise(result["curves"]) for result in results]
    gains, etas = [], []
    for result, own in zip(results, found, strict=True):
        without = plain.get(common_setting(result))
        if without is not None and (result["method"], result["policy"]) != ("fedavg", "none"):
            gains.append(own["accuracy_last"] - without)
            eta = efficiency(own["accuracy_last"], without, result["generated"])
            etas += [] if eta is None else [eta]
    arrived = [
        rounds_to(result["curves"]["accuracy"], threshold) if threshold else None
        for result in results
    ]
    reached = [float(number) for number in arrived if number is not None]
    by_class = zip(*(result["curves"]["per_class"] for result in results), strict=True)
    all_drifts = [own["drift_all_median"] for own in found if "drift_all_median" in own]
    return Row(
        entry.column,
        entry.method,
        entry.policy,
        entry.match,
        len(runs),
        accuracy=Mean.of([own["accuracy_last"] for own in found]),
        peak=Mean.of([own["accuracy_peak"] for own in found]),
        gain=Mean.of(gains) if len(gains) == len(runs) else None,
        eta=Mean.of(etas) if len(etas) == len(runs) else None,
        drift=Mean.of([own["drift_median"] for own in found]),
        arrived=Mean.of(reached) if reached else None,
        never=len(arrived) - len(reached),
        generated=Mean.of([float(result["generated"]) for result in results]),
        generation_seconds=_generation_seconds(results, rates),
        training_seconds=Mean.of([own["seconds"] for own in found]),
        per_class=tuple(None if None in own else sum(own) / len(own) for own in by_class),
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


def write_csv(path: Path, tables: Sequence[Table]) -> None:
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
