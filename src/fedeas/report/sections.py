"""What a report says about runs: tables, pictures, and settings."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedeas.cost import duration
from fedeas.experiments.generation import generations
from fedeas.experiments.results import PLUS_MINUS, Mean, Result
from fedeas.experiments.runs import Run
from fedeas.experiments.tables import Row, Table, common_setting, make_tables
from fedeas.report import curves
from fedeas.report.page import Grid, Picture, Section

_LEAST_MARKS, _MOST_MARKS = 3, 6  # that show a relation, and whose names still fit


@dataclass(frozen=True)
class ReferenceColumn:
    """Reference accuracies, for a column next to runs of the same setting.

    `accuracy` returns one in percent, or None, for a row and the settings of its runs. `note` is
    printed below a table that has any.
    """

    heading: str
    note: str
    accuracy: Callable[[Row, Mapping[str, Any]], float | None]


def sweep_sections(
    name: str,
    runs: Sequence[Run],
    tables: Sequence[Table],
    reference: ReferenceColumn | None = None,
) -> Iterator[Section]:
    """Yield what a report says about the runs of a sweep and their tables."""
    for table in tables:
        own = [run for run in runs if run.entry.grid == table.grid]
        yield _table_section(name, table, own, runs, reference)
    yield Section(f"{name}: what ran", [_what_ran(runs)])


def summary(name: str, tables: Sequence[Table]) -> Iterator[str]:
    """Yield the outcome, a sentence per table that compares policies in one setting."""
    for table in tables:
        rows = {row.policy: row for row in table.rows}
        if "none" not in rows or not curves.several_policies(table):
            continue
        plain = rows["none"]
        better = sorted(
            (row for row in table.rows if row.generated.value),
            key=lambda row: -row.accuracy.value,
        )
        listed = ", ".join(
            f"{curves.label(row)} {100 * row.accuracy.value:.1f} % "
            f"({row.generated.value:,.0f} samples)"
            for row in better
        )
        where = name if name == table.grid else f"{name}, {table.grid}"
        yield (f"{where}: without synthetic samples {100 * plain.accuracy.value:.1f} %; {listed}.")


def _what_ran(runs: Sequence[Run]) -> Grid:
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
             spread([f"{s['data']['name']}, protocol {s['data']['protocol']}" for s in settings])),
            ("generator", spread([r["generator"] for r in results if r["generated"]]) or "none"),
            ("model", spread([f["model"]["name"] for f in federated])),
            ("rounds x epochs", spread([f"{f['rounds']} x {f['local']['epochs']}"
                                        for f in federated])),
            ("clients in a round", spread([f"{f['fraction']:.0%} of {s['partition']['clients']}"
                                           for f, s in zip(federated, settings, strict=True)])),
            ("learning rate", spread([f["local"]["learning_rate"] for f in federated])),
            ("seeds", spread(sorted({result["seed"] for result in results}))),
            ("hardware", spread([f"{o['machine']}, {o['device']}, {o['threads']} thread(s) per run"
                                 for o in on])),
            ("PyTorch", spread([o["torch"] for o in on])),
            ("code", spread([result["code_hash"][:8] for result in results])),
            ("total training time", duration(seconds)),
            ("samples generated", _generated(results)),
        ],
        facts=True,
    )  # fmt: skip


def _generated(results: Sequence[Result]) -> str:
    """Return how many samples were generated for some runs and in what time, each sample once."""
    found = list(generations(results))
    if not found:
        return "none"
    made, by_runs = sum(one.made for one in found), sum(one.by_runs for one in found)
    if not all(one.made for one in found):
        return f"{made:,} by these runs; the time of the others was not measured"
    took = duration(sum(one.seconds for one in found))
    if by_runs == made:
        return f"{made:,} in {took}"
    if not by_runs:
        return f"{made:,}, generated beforehand in {took}"
    return f"{made:,} in {took}, {made - by_runs:,} of them beforehand"


def _table_section(
    name: str,
    table: Table,
    runs: Sequence[Run],
    everything: Sequence[Run],
    reference: ReferenceColumn | None,
) -> Section:
    section = Section(f"{name}: {table.title or table.grid}")
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
    rounds = curves.last_rounds(runs)
    several = any(row.seeds > 1 for row in table.rows)
    spread = f" {PLUS_MINUS}." if several else ""
    notes.insert(0, f"Accuracy is the mean of the last {rounds} evaluated rounds.{spread}")
    if reference:
        notes.append(reference.note)
    section.parts.extend(notes)
    if len(table.rows) > 1:
        section.parts.extend(_figures(f"{name}-{table.grid}", table, runs, everything))
        section.parts.append("Accuracy of every class in the last rounds, %:")
        section.parts.append(_by_class(table))
    return section


def _results(table: Table, beside: Sequence[float | None], heading: str) -> Grid:
    """Return the rows of a table, with reference accuracies if they have a heading."""
    names = [name.rpartition(".")[2] for name, _ in table.rows[0].column] if table.rows else []
    head = [*names, "method", "policy", "seeds", "accuracy %"]
    head += [heading] if heading else []
    buffers = any(row.drift_all for row in table.rows)
    head += ["gain", "eta", "drift", *(["drift with buffers"] if buffers else [])]
    head += [f"rounds to {100 * table.threshold:g} %"] if table.threshold else []
    head += ["generated", "generation", "training"]
    rows = []
    for row, other in zip(table.rows, beside, strict=True):
        cells = [*(str(value) for _, value in row.column), row.method, _policy(row, table)]
        cells += [str(row.seeds), row.accuracy.points()]
        if heading:
            cells.append("" if other is None else f"{other:.2f}")
        cells.append(row.gain.points("+") if row.gain else "")
        cells.append("" if row.eta is None else f"{row.eta.value:.2f}")
        cells.append(f"{row.drift.value:.3f}")
        if buffers:
            cells.append("" if row.drift_all is None else f"{row.drift_all.value:.3g}")
        if table.threshold:
            cells.append(f"{row.arrived.value:.0f}" if row.arrived else "never")
        cells.append(f"{row.generated.value:,.0f}")
        cells += [_minutes(row.generation_seconds), _minutes(row.training_seconds)]
        rows.append(cells)
    return Grid(head, rows)


def _settings(row: Row, runs: Sequence[Run]) -> Mapping[str, Any]:
    """Return the settings of the first run of a row."""
    found: Mapping[str, Any] = next(
        run.result["settings"]
        for run in runs
        if (run.entry.column, run.entry.method, run.entry.policy)
        == (row.column, row.method, row.policy)
    )
    return found


def _policy(row: Row, table: Table) -> str:
    several = len({r.match for r in table.rows} - {""}) > 1
    return f"{row.policy} = {row.match}" if row.match and several else row.policy


def _references(everything: Sequence[Run], runs: Sequence[Run]) -> list[Row]:
    """Return FedAvg without samples and with full balance in the setting of some runs."""
    setting = common_setting(runs[0].result)
    beside = {
        run.entry.folder: run
        for run in everything
        if run.entry.policy in ("none", "full-balance")
        and run.entry.method == "fedavg"
        and common_setting(run.result) == setting
    }
    return [row for table in make_tables(list(beside.values())) for row in table.rows]


def _figures(
    name: str, table: Table, runs: Sequence[Run], everything: Sequence[Run]
) -> Iterator[Picture]:
    """Yield the figures that a table's rows can fill."""
    rows = table.rows
    if len({row.match for row in rows} - {""}) > 1:
        lines = _references(everything, runs)
        yield Picture(f"{name}-budget", curves.budget(rows, lines), "Accuracy against budget.")
        return
    yield Picture(
        f"{name}-allocation",
        curves.allocation(rows),
        "Accuracy of each row as a bar: "
        + ", ".join(f"{curves.label(row)} {100 * row.accuracy.value:.1f} %" for row in rows),
    )
    if not curves.several_policies(table):
        return
    yield Picture(
        f"{name}-convergence", curves.convergence(runs, table.threshold), "Accuracy by round."
    )
    if _LEAST_MARKS <= len(rows) <= _MOST_MARKS:
        yield Picture(f"{name}-drift", curves.drift(rows), "Drift against accuracy.")
    yield Picture(f"{name}-cost", curves.cost(rows), "Minutes of generation and training.")


def _by_class(table: Table) -> Grid:
    head = ["", *table.classes]
    rows, shades = [], []
    for row in table.rows:
        setting = "".join(f"{value}, " for _, value in row.column)
        rows.append(
            [f"{setting}{curves.label(row)}"]
            + ["" if a is None else f"{100 * a:.0f}" for a in row.per_class]
        )
        shades.append([None, *row.per_class])
    return Grid(head, rows, shades)


def _minutes(mean: Mean | None) -> str:
    if mean is None:
        return "not measured"
    if mean.value < 60:
        return f"{mean.value:.0f} s" if mean.value else ""
    return f"{mean.value / 60:.1f} min"
