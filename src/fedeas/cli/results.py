"""Tables of results on the terminal."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.table import Table as RichTable

from fedeas.cli import show

if TYPE_CHECKING:
    from fedeas.experiments.tables import Row, Table


def give(
    tables: "Sequence[Table]", csv: Path | None, as_json: bool, per_class: bool = False
) -> None:
    """Print tables and the notes on them; also write them to a file if one is given."""
    from dataclasses import asdict

    from fedeas.experiments.results import PLUS_MINUS
    from fedeas.experiments.tables import write_csv

    if csv is not None:
        write_csv(csv, tables)
        show.note(f"wrote {sum(len(t.rows) for t in tables)} rows to {csv}")
    if as_json:
        show.print_json([asdict(table) for table in tables])
        return
    for table in tables:
        show.print_table(shown(table))
        for line in table.notes:
            typer.echo(f"note: {line}")
        if per_class and table.rows:
            show.print_table(_by_class(table))
    if any(row.seeds > 1 for table in tables for row in table.rows):
        typer.echo(PLUS_MINUS)


def shown(table: "Table") -> RichTable:
    """Return a table of results for the terminal."""
    names = [name for name, _ in table.rows[0].column] if table.rows else []
    references = {row.match for row in table.rows} - {""}
    several = len(references) > 1
    matched = f"; matched to {references.pop()}" if len(references) == 1 else ""
    numbers = ["seeds", "accuracy", "gain", "eta", "drift"]
    buffers = any(row.drift_all for row in table.rows)
    if buffers:
        numbers.append("with buffers")
    if table.threshold:
        numbers.append(f"to {100 * table.threshold:g} %")
    numbers += ["generated", "generation", "training"]
    made = show.new_table(
        f"{table.grid}: {table.title}{matched}",
        *((name.rpartition(".")[2], False) for name in names),
        ("method", False), ("policy", False), *([("total of", False)] if several else []),
        *((name, True) for name in numbers),
    )  # fmt: skip
    for row in table.rows:
        cells = [*(str(value) for _, value in row.column), row.method]
        cells += [row.policy, *([row.match or row.policy] if several else []), str(row.seeds)]
        cells += [row.accuracy.points(), row.gain.points("+") if row.gain else "-"]
        cells.append("-" if row.eta is None else f"{row.eta.value:.2f}")
        cells.append(f"{row.drift.value:.3f}")
        if buffers:
            cells.append("-" if row.drift_all is None else f"{row.drift_all.value:.3g}")
        if table.threshold:
            late = f" ({row.never} never)" if row.never and row.arrived else ""
            cells.append(f"{row.arrived.value:.0f}{late}" if row.arrived else "never")
        cells.append(f"{row.generated.value:,.0f}")
        known = row.generation_seconds
        cells += [show.seconds_text(known.value) if known else "not measured"]
        cells += [show.seconds_text(row.training_seconds.value)]
        made.add_row(*cells)
    return made


def _by_class(table: "Table") -> RichTable:
    """Return the accuracy of every class in the last rounds, as a table."""
    made = show.new_table(
        f"{table.grid}: accuracy by class, %",
        ("run", False), *((name, True) for name in table.classes),
    )  # fmt: skip
    for row in table.rows:
        cells = ("-" if a is None else f"{100 * a:.0f}" for a in row.per_class)
        made.add_row(_run(row), *cells)
    return made


def _run(row: "Row") -> str:
    spends = f" = {row.match}" if row.match else ""
    return ", ".join([*(str(v) for _, v in row.column), row.method, f"{row.policy}{spends}"])
