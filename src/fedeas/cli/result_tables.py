"""Tables of results on the terminal."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import typer
from rich.table import Table as RichTable

from fedeas.cli import show

if TYPE_CHECKING:
    from fedeas.lab.tables import ResultTable


def print_tables(tables: "Sequence[ResultTable]", as_json: bool) -> None:
    """Print tables and the notes on them."""
    from dataclasses import asdict

    from fedeas.lab.results import PLUS_MINUS

    if as_json:
        show.print_json([asdict(table) for table in tables])
        return
    for table in tables:
        show.print_table(rich_table(table))
        for line in table.notes:
            typer.echo(f"note: {line}")
    if any(row.seeds > 1 for table in tables for row in table.rows):
        typer.echo(PLUS_MINUS)


def rich_table(table: "ResultTable") -> RichTable:
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
    rows = show.new_table(
        f"{table.grid}: {table.title}{matched}",
        *((name.rpartition(".")[2], False) for name in names),
        ("method", False), ("policy", False), *([("total of", False)] if several else []),
        *((name, True) for name in numbers),
    )  # fmt: skip
    for row in table.rows:
        cells = [*(str(value) for _, value in row.column), row.method]
        cells += [row.policy, *([row.match or row.policy] if several else []), str(row.seeds)]
        # What gains are over; what a way that generates nothing gains a sample is not a number.
        unknown = "baseline" if (row.method, row.policy) == ("fedavg", "none") else "-"
        cells += [row.accuracy.points(), row.gain.points("+") if row.gain else unknown]
        cells.append(unknown if row.eta is None else f"{row.eta.value:.2f}")
        cells.append(f"{row.drift.value:.3f}")
        if buffers:
            cells.append("-" if row.drift_all is None else f"{row.drift_all.value:.3g}")
        if table.threshold:
            late = f" ({row.never} never)" if row.never and row.arrived else ""
            cells.append(f"{row.arrived.value:.0f}{late}" if row.arrived else "never")
        cells.append(f"{row.generated.value:,.0f}")
        seconds = row.generation_seconds
        cells += [show.seconds_text(seconds.value) if seconds else "not measured"]
        cells += [show.seconds_text(row.training_seconds.value)]
        rows.add_row(*cells)
    return rows
