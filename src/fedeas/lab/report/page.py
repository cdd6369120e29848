"""A report on sweeps: the headline, then what tables, figures, samples and settings show."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from fedeas._internal.progress import duration
from fedeas.errors import InputError
from fedeas.lab.report import curves
from fedeas.lab.report.curves import label, several_policies
from fedeas.lab.report.quality import quality_section
from fedeas.lab.report.samples import folder_sections
from fedeas.lab.results import PLUS_MINUS, FinishedRun, Mean, Result, find_runs, private_epsilon
from fedeas.lab.tables import (
    ResultRow,
    ResultTable,
    common_setting,
    generations,
    make_tables,
    write_csv,
)
from fedeas.plots.page import Grid, Numbers, Picture, Section, write_report


@dataclass(frozen=True)
class ReferenceColumn:
    """Reference accuracies, for a column next to runs of the same setting.

    `accuracy` returns one in percent, or None, for a row and the settings of its runs. `note` is
    printed below a table that has any.
    """

    heading: str
    note: str
    accuracy: Callable[[ResultRow, Mapping[str, Any]], float | None]


@dataclass(frozen=True)
class SweepResults:
    """Finished runs with a name and their tables."""

    name: str
    runs: Sequence[FinishedRun]
    tables: Sequence[ResultTable]


def read_sweeps(
    paths: Iterable[Path], mixed: bool, log: Callable[[str], None]
) -> list[SweepResults]:
    """Read finished runs and make their tables; `log` is given a line for every other run."""
    sweeps = []
    for path in paths:
        name, runs, missing = find_runs(path)
        for line in missing:
            log(line)
        if not runs:
            raise InputError(f"{name}: no finished run", fix="let at least one run finish")
        sweeps.append(SweepResults(name, runs, make_tables(runs, mixed=mixed)))
    return sweeps


def assemble(
    folder: Path,
    title: str,
    sweeps: Sequence[SweepResults],
    reference: ReferenceColumn | None = None,
    extra: Iterable[Section] = (),
    *,
    quality: bool = False,
) -> Path:
    """Write the report on some sweeps and return the page's path.

    `extra` sections come last, those of installed packages before them. `quality` measures the
    synthetic samples of runs.
    """
    first = [_in_short(sweep) for sweep in sweeps]
    parts = [
        section
        for sweep in sweeps
        for section in (
            *table_sections(sweep.name, sweep.runs, sweep.tables, reference),
            *folder_sections(sweep.name, sweep.runs),
            *([quality_section(sweep.name, sweep.runs)] if quality else []),
            what_ran(sweep.name, sweep.runs),
        )
        if section.parts
    ]
    sections = [section for section in first if section.parts] + parts
    if len(sweeps) == 1:  # nothing to tell apart
        sections = [replace(section, group="") for section in sections]
    path = write_report(folder, title, [*sections, *extra])
    write_csv(folder / "tables.csv", [table for sweep in sweeps for table in sweep.tables])
    return path


def _in_short(sweep: SweepResults) -> Section:
    """Return the numbers of a sweep that come first."""
    numbers = headline(sweep.tables)
    sentences = list(summary(sweep.tables))
    return Section("", [*([numbers] if numbers else []), *sentences], group=sweep.name)


# The headline


def headline(tables: Sequence[ResultTable]) -> Numbers | None:
    """Return the numbers that matter: those of the first table with and without samples.

    The row with samples is FedEAS's where there is one, otherwise the most accurate. Without a
    comparison, the numbers are those of the most accurate row of all.
    """
    for table in tables:
        if compared := _compared(table):
            plain, rows = compared
            chosen = next((row for row in rows if row.policy.startswith("fedeas")), rows[0])
            return Numbers([*_gained(plain, chosen), *_spent(chosen)])
    rows = [row for table in tables for row in table.rows]
    if not rows:
        return None
    best = max(rows, key=lambda row: row.accuracy.value)
    return Numbers([(f"{best.accuracy.points()} %", f"accuracy, {label(best)}"), *_spent(best)])


def summary(tables: Sequence[ResultTable]) -> Iterator[str]:
    """Yield a sentence per table that compares several policies in one setting."""
    for table in tables:
        compared = _compared(table)
        if not compared or len(compared[1]) == 1:
            continue  # the headline says as much
        plain, rows = compared
        listed = ", ".join(
            f"{label(row)} {100 * row.accuracy.value:.1f} % ({row.generated.value:,.0f} samples)"
            for row in rows
        )
        title = table.title or table.grid
        yield f"{title}: no synthetic samples {100 * plain.accuracy.value:.1f} %; {listed}."


def took(mean: Mean | None) -> str:
    """Return a time in a readable form.

    >>> took(Mean.of([26.2])), took(Mean.of([178.0])), took(Mean.of([9000.0])), took(None)
    ('26 s', '3.0 min', '2h 30min', 'not measured')
    """
    if mean is None:
        return "not measured"
    seconds = mean.value
    if seconds >= 7200:
        return duration(seconds)
    if seconds >= 120:
        return f"{seconds / 60:.1f} min"
    return f"{seconds:.0f} s" if seconds >= 1 else "< 1 s"


def _compared(table: ResultTable) -> tuple[ResultRow, list[ResultRow]] | None:
    """Return the row without samples and those with some, the most accurate first."""
    plain = next((row for row in table.rows if row.policy == "none"), None)
    rows = [row for row in table.rows if row.generated.value]
    if plain is None or not rows or not several_policies(table):
        return None
    return plain, sorted(rows, key=lambda row: -row.accuracy.value)


def _gained(plain: ResultRow, row: ResultRow) -> Iterator[tuple[str, str]]:
    before, after = 100 * plain.accuracy.value, 100 * row.accuracy.value
    yield f"{before:.1f} → {after:.1f} %", "accuracy without and with synthetic samples"
    gain = f"{after - before:+.1f}" if row.gain is None else row.gain.points("+")
    yield f"{gain} points", "gain" if row.seeds == 1 else f"mean gain of {row.seeds} seeds"


def _spent(row: ResultRow) -> Iterator[tuple[str, str]]:
    if row.generated.value:
        yield f"{row.generated.value:,.0f} samples", f"generated in all, {row.policy}"
        yield took(row.generation_seconds), "of generation"


# Tables, figures and settings


_GENERATOR = "augment.generator"
_LEAST_MARKS, _MOST_MARKS = 3, 6  # that show a relation, and whose names still fit


def table_sections(
    name: str,
    runs: Sequence[FinishedRun],
    tables: Sequence[ResultTable],
    reference: ReferenceColumn | None = None,
) -> Iterator[Section]:
    """Yield what a report says about the tables of a sweep."""
    for table in tables:
        of_table = [run for run in runs if run.entry.grid == table.grid]
        yield _table_section(name, table, of_table, runs, reference)


def what_ran(name: str, runs: Sequence[FinishedRun]) -> Section:
    """Return what a report says about the settings and the cost of a sweep."""
    return Section("What ran", [_what_ran(runs)], group=name)


def _what_ran(runs: Sequence[FinishedRun]) -> Grid:
    def spread(values: Sequence[object]) -> str:
        return ", ".join(dict.fromkeys(str(value) for value in values))

    results = list({run.result["experiment"]: run.result for run in runs}.values())
    settings = [result["settings"] for result in results]
    federated = [s["federated"] for s in settings]
    seconds = sum(sum(result["curves"]["seconds"]) for result in results)
    on = [result["on"] for result in results]
    return Grid(
        ("", ""),
        [
            ("runs", f"{len(results)}"),
            ("data", results[0]["data"] if len({r["data"] for r in results}) == 1 else
             spread([f"{s['data']['name']}, {s['data']['split']} split" for s in settings])),
            ("generator", spread([r["generator"] for r in results if r["generated"]]) or "none"),
            ("generator trained on", spread([r.get("generator_trained_on", "not recorded")
                                             for r in results if r["generated"]]) or "nothing"),
            ("model", spread([f["model"]["name"] for f in federated])),
            ("first weights", spread([_first_weights(r) for r in results])),
            ("rounds x epochs", spread([f"{f['rounds']} x {f['local']['epochs']}"
                                        for f in federated])),
            ("clients in a round", spread([_in_a_round(s) for s in settings])),
            ("learning rate", spread([f["local"]["learning_rate"] for f in federated])),
            ("seeds", spread(sorted({result["seed"] for result in results}))),
            ("hardware", spread([f"{o['machine']}, {o['device']}, {_threads(o['threads'])} per run"
                                 for o in on])),
            ("PyTorch", spread([o["torch"] for o in on])),
            ("versions", spread([result["versions"] for result in results])),
            ("total training time", duration(seconds)),
            ("samples generated", _generated(results)),
        ],
        facts=True,
    )  # fmt: skip


def _first_weights(result: Result) -> str:
    """Say what the first weights of a run are, and of which samples a private start is made."""
    path = result["settings"]["federated"]["model"].get("weights", "")
    if "start_made_of" in result:
        return f"learnt from samples of the private generator in {path}: {result['start_made_of']}"
    return path or "random"


def _in_a_round(settings: Mapping[str, Any]) -> str:
    """Say which share of how many clients trains in a round."""
    cut = settings["partition"]
    by_site = str(cut.get("recipe", "")).startswith("column")
    clients = "all sites" if by_site else cut["clients"]
    return f"{100 * settings['federated']['fraction']:.0f} % of {clients}"


def _threads(number: int) -> str:
    return "1 thread" if number == 1 else f"{number} threads"


def _generated(results: Sequence[Result]) -> str:
    """Return how many samples were generated for some runs and in what time, each sample once."""
    parts = list(generations(results))
    if not parts:
        return "none"
    made, by_runs = sum(part.made for part in parts), sum(part.by_runs for part in parts)
    if not all(part.made for part in parts):
        return f"{made:,} by these runs; the time of the others was not measured"
    took = duration(sum(part.seconds for part in parts))
    if by_runs == made:
        return f"{made:,} in {took}"
    if not by_runs:
        return f"{made:,}, generated beforehand in {took}"
    return f"{made:,} in {took}, {made - by_runs:,} of them beforehand"


def _table_section(
    name: str,
    table: ResultTable,
    runs: Sequence[FinishedRun],
    everything: Sequence[FinishedRun],
    reference: ReferenceColumn | None,
) -> Section:
    section = Section(table.title or table.grid, group=name)
    beside = [
        reference.accuracy(row, _settings(row, runs)) if reference else None for row in table.rows
    ]
    if not any(beside):
        reference = None
    section.parts.append(_results(table, beside, reference.heading if reference else ""))
    notes = list(table.notes)
    references = {row.match for row in table.rows} - {""}
    if references:
        notes.insert(0, f"Matched policies spend the total of {', '.join(sorted(references))}.")
    notes.insert(0, _how(table.rows, curves.last_rounds(runs)))
    if reference:
        notes.append(reference.note)
    section.parts.extend(notes)
    if len(table.rows) > 1:
        section.parts.extend(_figures(f"{name}-{table.grid}", table, runs, everything))
        section.parts.append("Accuracy of every class in the last rounds, %:")
        section.parts.append(_by_class(table))
    return section


def _how(rows: Sequence[ResultRow], rounds: int) -> str:
    """Say what the numbers of a table are, and what all its rows share."""
    shared = [f"Accuracy is the mean of the last {rounds} evaluated rounds."]
    methods, seeds = {row.method for row in rows}, {row.seeds for row in rows}
    if len(methods) == 1:
        shared.append(f"Method: {methods.pop()}.")
    if len(seeds) == 1:
        shared.append(f"Seeds: {seeds.pop()}.")
    if any(row.seeds > 1 for row in rows):
        shared.append(f"{PLUS_MINUS}.")
    return " ".join(shared)


def _results(table: ResultTable, beside: Sequence[float | None], heading: str) -> Grid:
    """Return the rows of a table, what matters first; reference accuracies if they have a heading.

    A method or a number of seeds that all rows share is in a note instead.
    """
    rows = table.rows
    shown: list[tuple[str, Callable[[int, ResultRow], str]]] = []
    for index, (name, _) in enumerate(rows[0].column if rows else ()):
        shown.append((name.rpartition(".")[2], partial(_setting, index)))
    if len({row.method for row in rows}) > 1:
        shown.append(("method", lambda _, row: row.method))
    shown.append(("policy", lambda _, row: _policy(row, table)))
    shown.append(("accuracy %", lambda _, row: row.accuracy.points()))
    if heading:
        shown.append((heading, lambda n, _: _optional(beside[n], "{:.2f}")))
    shown += [
        ("gain", lambda _, row: row.gain.points("+") if row.gain else ""),
        ("samples", lambda _, row: f"{row.generated.value:,.0f}"),
        ("generation", lambda _, row: took(row.generation_seconds) if row.generated.value else ""),
        ("training", lambda _, row: took(row.training_seconds)),
        ("eta, gain per 1,000", lambda _, row: _optional(row.eta and row.eta.value, "{:.2f}")),
    ]
    if table.threshold:
        arrival = f"rounds to {100 * table.threshold:g} %"
        shown.append((arrival, lambda _, row: _optional(row.arrived, "{.value:.0f}") or "never"))
    shown.append(("drift", lambda _, row: f"{row.drift.value:.3f}"))
    if any(row.drift_all for row in rows):
        buffers = "drift with buffers"
        shown.append((buffers, lambda _, row: _optional(row.drift_all, "{.value:.3g}")))
    if len({row.seeds for row in rows}) > 1:
        shown.append(("seeds", lambda _, row: str(row.seeds)))
    cells = [[cell(n, row) for _, cell in shown] for n, row in enumerate(rows)]
    return Grid([name for name, _ in shown], cells)


def _setting(index: int, _: int, row: ResultRow) -> str:
    return str(row.column[index][1])


def _optional(value: Any, form: str) -> str:
    return "" if value is None else form.format(value)


def _settings(row: ResultRow, runs: Sequence[FinishedRun]) -> Mapping[str, Any]:
    """Return the settings of the first run of a row."""
    settings: Mapping[str, Any] = next(
        run.result["settings"]
        for run in runs
        if (run.entry.column, run.entry.method, run.entry.policy)
        == (row.column, row.method, row.policy)
    )
    return settings


def _policy(row: ResultRow, table: ResultTable) -> str:
    several = len({r.match for r in table.rows} - {""}) > 1
    return f"{row.policy} = {row.match}" if row.match and several else row.policy


def _references(
    everything: Sequence[FinishedRun],
    runs: Sequence[FinishedRun],
    wanted: Callable[[FinishedRun], bool],
) -> list[ResultRow]:
    """Return rows of FedAvg in the setting of some runs, of those runs that are wanted."""
    settings = {common_setting(run.result) for run in runs}
    beside = {
        run.entry.folder: run
        for run in everything
        if run.entry.method == "fedavg" and wanted(run) and common_setting(run.result) in settings
    }
    return [row for table in make_tables(list(beside.values())) for row in table.rows]


def _private_epsilons(rows: Sequence[ResultRow]) -> dict[float, ResultRow]:
    """Return the rows of a federation's own generator by epsilon."""
    by_epsilon = {}
    for row in rows:
        spec = dict(row.column).get(_GENERATOR)
        if spec and (epsilon := private_epsilon(spec)) is not None:
            by_epsilon[epsilon] = row
    return by_epsilon


def _beside_private(
    everything: Sequence[FinishedRun], runs: Sequence[FinishedRun]
) -> dict[str, ResultRow]:
    """Return what a federation's own generator is compared with: what needs none."""
    wanted: dict[str, Callable[[FinishedRun], bool]] = {
        "no synthetic samples": lambda run: run.entry.policy == "none",
        "noise": lambda run: (
            run.result["settings"]["augment"]["generator"] == "noise"
            and bool(run.result["generated"])
        ),
        "copies": lambda run: run.entry.policy.startswith("copies"),
    }
    rows_of = {name: _references(everything, runs, choice) for name, choice in wanted.items()}
    return {name: rows[0] for name, rows in rows_of.items() if rows}


def _figures(
    name: str, table: ResultTable, runs: Sequence[FinishedRun], everything: Sequence[FinishedRun]
) -> Iterator[Picture]:
    """Yield the figures that a table's rows can fill."""
    rows, height = table.rows, curves.height_of(table.rows)
    if len({row.match for row in rows} - {""}) > 1:
        plain = ("none", "full-balance")
        lines = _references(everything, runs, lambda run: run.entry.policy in plain)
        yield Picture(f"{name}-budget", curves.budget(rows, lines), "Accuracy against budget.")
        return
    if len(by_epsilon := _private_epsilons(rows)) > 1:
        content = curves.epsilons(by_epsilon, _beside_private(everything, runs), height)
        yield Picture(f"{name}-epsilon", content, "Accuracy against epsilon.")
    yield Picture(
        f"{name}-allocation",
        curves.allocation(rows, height),
        "Accuracy of each row as a bar: "
        + ", ".join(f"{curves.label(row)} {100 * row.accuracy.value:.1f} %" for row in rows),
    )
    if not curves.several_policies(table):
        return
    yield Picture(
        f"{name}-convergence",
        curves.convergence(runs, table.threshold, height),
        "Accuracy by round.",
    )
    if _LEAST_MARKS <= len(rows) <= _MOST_MARKS:
        yield Picture(f"{name}-drift", curves.drift(rows, height), "Drift against accuracy.")
    yield Picture(f"{name}-cost", curves.cost(rows, height), "Minutes of generation and training.")


def _by_class(table: ResultTable) -> Grid:
    head = ["", *table.classes]
    rows, shades = [], []
    for row in table.rows:
        rows.append(
            [curves.label(row)] + ["" if a is None else f"{100 * a:.0f}" for a in row.per_class]
        )
        shades.append([None, *row.per_class])
    return Grid(head, rows, shades)
