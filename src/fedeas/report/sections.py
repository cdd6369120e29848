"""What a report says about runs: tables, pictures, and settings."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from fedeas.cost import duration
from fedeas.experiments.generation import generations
from fedeas.experiments.own import own_epsilon
from fedeas.experiments.results import PLUS_MINUS, Result
from fedeas.experiments.runs import Run
from fedeas.experiments.tables import Row, Table, common_setting, make_tables
from fedeas.report import curves
from fedeas.report.headline import took
from fedeas.report.page import Grid, Picture, Section

_GENERATOR = "augment.generator"
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


def table_sections(
    name: str,
    runs: Sequence[Run],
    tables: Sequence[Table],
    reference: ReferenceColumn | None = None,
) -> Iterator[Section]:
    """Yield what a report says about the tables of a sweep."""
    for table in tables:
        own = [run for run in runs if run.entry.grid == table.grid]
        yield _table_section(name, table, own, runs, reference)


def what_ran(name: str, runs: Sequence[Run]) -> Section:
    """Return what a report says about the settings and the cost of a sweep."""
    return Section("What ran", [_what_ran(runs)], group=name)


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
            ("clients in a round", spread([_in_a_round(s) for s in settings])),
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


def _in_a_round(settings: Mapping[str, Any]) -> str:
    """Say which share of how many clients trains in a round."""
    cut = settings["partition"]
    by_site = str(cut.get("recipe", "")).startswith("column")
    clients = "all sites" if by_site else cut["clients"]
    return f"{settings['federated']['fraction']:.0%} of {clients}"


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


def _how(rows: Sequence[Row], rounds: int) -> str:
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


def _results(table: Table, beside: Sequence[float | None], heading: str) -> Grid:
    """Return the rows of a table, what matters first; reference accuracies if they have a heading.

    A method or a number of seeds that all rows share is in a note instead.
    """
    rows = table.rows
    shown: list[tuple[str, Callable[[int, Row], str]]] = []
    for place, (name, _) in enumerate(rows[0].column if rows else ()):
        shown.append((name.rpartition(".")[2], partial(_setting, place)))
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


def _setting(place: int, _: int, row: Row) -> str:
    return str(row.column[place][1])


def _optional(value: Any, form: str) -> str:
    return "" if value is None else form.format(value)


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


def _references(
    everything: Sequence[Run], runs: Sequence[Run], wanted: Callable[[Run], bool]
) -> list[Row]:
    """Return rows of FedAvg in the setting of some runs, of those runs that are wanted."""
    settings = {common_setting(run.result) for run in runs}
    beside = {
        run.entry.folder: run
        for run in everything
        if run.entry.method == "fedavg" and wanted(run) and common_setting(run.result) in settings
    }
    return [row for table in make_tables(list(beside.values())) for row in table.rows]


def _own_epsilons(rows: Sequence[Row]) -> dict[float, Row]:
    """Return the rows of a federation's own generator by epsilon."""
    found = {}
    for row in rows:
        spec = dict(row.column).get(_GENERATOR)
        if spec and (epsilon := own_epsilon(spec)) is not None:
            found[epsilon] = row
    return found


def _beside_own(everything: Sequence[Run], runs: Sequence[Run]) -> dict[str, Row]:
    """Return what a federation's own generator is compared with: what needs none."""
    wanted: dict[str, Callable[[Run], bool]] = {
        "no synthetic samples": lambda run: run.entry.policy == "none",
        "noise": lambda run: (
            run.result["settings"]["augment"]["generator"] == "noise"
            and bool(run.result["generated"])
        ),
        "copies": lambda run: run.entry.policy.startswith("copies"),
    }
    found = {name: _references(everything, runs, choice) for name, choice in wanted.items()}
    return {name: rows[0] for name, rows in found.items() if rows}


def _figures(
    name: str, table: Table, runs: Sequence[Run], everything: Sequence[Run]
) -> Iterator[Picture]:
    """Yield the figures that a table's rows can fill."""
    rows, height = table.rows, curves.height_of(table.rows)
    if len({row.match for row in rows} - {""}) > 1:
        plain = ("none", "full-balance")
        lines = _references(everything, runs, lambda run: run.entry.policy in plain)
        yield Picture(f"{name}-budget", curves.budget(rows, lines), "Accuracy against budget.")
        return
    if len(own := _own_epsilons(rows)) > 1:
        drawn = curves.epsilons(own, _beside_own(everything, runs), height)
        yield Picture(f"{name}-epsilon", drawn, "Accuracy against epsilon.")
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


def _by_class(table: Table) -> Grid:
    head = ["", *table.classes]
    rows, shades = [], []
    for row in table.rows:
        rows.append(
            [curves.label(row)] + ["" if a is None else f"{100 * a:.0f}" for a in row.per_class]
        )
        shades.append([None, *row.per_class])
    return Grid(head, rows, shades)
