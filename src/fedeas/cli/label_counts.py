"""Label counts on the command line: options for reading them, and notes about them."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from fedeas.cli import show
from fedeas.errors import InputError

if TYPE_CHECKING:
    from fedeas import Cost, LabelCounts, Plan
    from fedeas.policies import Policy
    from fedeas.sources import Found

_MOST = 0.25  # the share below which `fedeas select` stays


def counts_argument() -> Path:
    """Declare the argument that names a file of counts."""
    argument: Path = typer.Argument(
        ..., metavar="COUNTS", help="Label counts, a row per client: .csv, .tsv, .json or .parquet."
    )
    return argument


def delimiter_option() -> str | None:
    """Declare the option for CSV files that are not separated by commas."""
    option: str | None = typer.Option(None, help="Delimiter of a CSV file: one character, or tab.")
    return option


def layout_option() -> str | None:
    """Declare the option that says how a table is laid out."""
    option: str | None = typer.Option(
        None,
        metavar="wide|long|counts",
        help="wide: a row per client; long: a row per sample; counts: a row per client and class.",
    )
    return option


def drop_option(what: str) -> list[str] | None:
    """Declare the option that leaves out a column or a row."""
    option: list[str] | None = typer.Option(
        None, f"--drop-{what}", help=f"Drop this {what}, e.g. a total; repeatable."
    )
    return option


def transpose_option() -> bool:
    """Declare the option for tables that have classes as rows."""
    option: bool = typer.Option(False, "--transpose", help="The table has a row per class.")
    return option


def column_option(what: str) -> str | None:
    """Declare the option that names a column of a long table."""
    option: str | None = typer.Option(
        None, f"--{what}-column", help=f"Column of the {what}, if rows are not clients."
    )
    return option


def load_counts(
    path: Path,
    client: str | None,
    label: str | None,
    count: str | None,
    delimiter: str | None,
    layout: str | None,
    drop_columns: Sequence[str] | None,
    drop_rows: Sequence[str] | None,
    transpose: bool,
) -> "Found":
    """Read label counts from any supported source; also says how it was parsed."""
    from fedeas.sources import Columns, read_counts

    return read_counts(
        str(path),
        Columns(client, label, count),
        delimiter,
        layout,
        drop_columns=drop_columns or (),
        drop_rows=drop_rows or (),
        transpose=transpose,
    )


def note_counts(path: Path, found: "Found") -> None:
    """Print in one line how the counts were read, and which clients are empty."""
    counts, understood = found.counts, found.understood
    read_as = f"{understood}: " if understood != "a table of counts" else ""
    clients = f"{show.count_of(counts.K, 'client')} ({_first(counts.clients)})"
    classes = f"{show.count_of(counts.C, 'class')} ({_first(counts.classes)})"
    show.note(f"{path}: {read_as}{clients} x {classes}, {show.count_of(counts.total, 'sample')}")
    for line in found.notes:
        show.note(f"note: {line}")
    note_empty(counts.empty, len(counts.empty))


def _first(names: Sequence[str] | None, width: int = 28) -> str:
    """List the first few clients or classes, so that a misread table is noticed."""
    if names is None:
        return "numbered"
    shown = show.shortened(names[0], width)
    for name in names[1:]:
        if len(f"{shown}, {name}") > width:
            return f"{shown}, ..."
        shown = f"{shown}, {name}"
    return shown


def note_empty(empty: Sequence[str], count: int) -> None:
    """List the clients without samples, the first few of `count`."""
    if count:
        more = f" and {count - 10:,} more" if count > 10 else ""
        shown = ", ".join(empty[:10]) + more
        verbs = "has no samples and is" if count == 1 else "have no samples and are"
        show.note(f"{show.count_of(count, 'client')} {verbs} ignored: {shown}")


def affordable_total(total: int | None, cost: "Cost | None", spend: str | None) -> int | None:
    """Return the total to stay within: as given, or what `spend` buys at the cost of a sample."""
    if spend is None:
        return total
    if cost is None:
        raise InputError(f"--spend {spend} also needs --cost", fix="e.g. --cost 0.8s")
    if total is not None:
        raise InputError("give --spend or --total, not both", got=(spend, total))
    return cost.samples_for(spend)


def note_share(share: float) -> None:
    """Warn if more than a quarter of all samples would be synthetic."""
    if share > _MOST:
        show.note(
            f"note: {show.percent(share)} of all samples would be synthetic, above the "
            f"{100 * _MOST:.0f} % that `fedeas select` stays below"
        )


def note_plan(counts: "LabelCounts", plan: "Plan", policy: "Policy") -> None:
    """Print warnings about a plan."""
    note_share(plan.synthetic_share)
    note_overfilled(counts, plan, policy)


def note_overfilled(counts: "LabelCounts", plan: "Plan", policy: "Policy") -> None:
    """Warn if clients get more of a scarce class than they have of any class."""
    from fedeas import FedEAS
    from fedeas.overfill import balancing_beta, overfilled

    found = overfilled(counts, plan)
    if found is None:
        return
    are, such_as = ("is filled beyond its", ":") if found.clients == 1 else (
        "are filled beyond their", ", such as"
    )  # fmt: skip
    name = found.client if counts.clients else f"client {found.client}"
    smaller = "a smaller --total"
    if isinstance(policy, FedEAS):
        limit = balancing_beta(counts, policy)
        digits = 3 - math.floor(math.log10(limit))
        smaller = f"a beta below {math.floor(limit * 10**digits) / 10**digits:g}, {smaller}"
    show.note(
        f"note: {show.count_of(found.clients, 'client')} {are} largest class{such_as} "
        f"{name} (largest {found.largest:,}, filled to {found.filled_to:,}; "
        f"{found.samples:,} samples where full balance takes {found.full:,}); "
        f"use {smaller}, or --policy waterfill"
    )
