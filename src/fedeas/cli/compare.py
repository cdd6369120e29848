"""`fedeas compare`: several policies at the same total, without training."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from fedeas.cli import show
from fedeas.errors import InputError

if TYPE_CHECKING:
    from fedeas import Comparison


def compare(
    counts_file: Path = show.counts_argument(),
    beta: float | None = typer.Option(
        None, help="Beta of FedEAS, whose total the others are given (12 unless given)."
    ),
    total: int | None = typer.Option(None, help="Match the largest FedEAS plan within this total."),
    policy: list[str] | None = typer.Option(
        None, help="A policy to compare, NAME or 'NAME(setting=value)'; may be repeated."
    ),
    plot: Path | None = show.plot_option("the imbalance removed against the samples spent"),
    delimiter: str | None = show.delimiter_option(),
    client_column: str | None = show.column_option("client"),
    label_column: str | None = show.column_option("label"),
    as_json: bool = show.json_option(),
) -> None:
    """Compare policies at a matched total: what each removes, and what it wastes.

    COUNTS has a row per client and a column per class (.csv, .tsv, .json, .parquet).

    Example: `fedeas compare counts.csv --beta 12 --policy fedeas --policy uniform`
    """
    from fedeas import FedEAS, beta_for_total
    from fedeas import compare as compare_policies
    from fedeas.comparison import DEFAULT_POLICIES

    if plot is not None:
        show.check_picture(plot)
    if beta is not None and total is not None:
        raise InputError("give --beta or --total, not both", got=(beta, total))
    counts, understood = show.load_counts(counts_file, client_column, label_column, delimiter)
    reference = FedEAS() if beta is None else FedEAS(beta=beta)
    if total is not None:
        reference = FedEAS(beta=beta_for_total(counts, total))
    table = compare_policies(counts, policy or DEFAULT_POLICIES, reference)
    if plot is not None:
        from fedeas.report import figures

        figures.reduction(counts, plot, mark=table.total)
    show.note_counts(counts_file, counts, understood)
    if as_json:
        show.print_json([asdict(row) for row in table])
    else:
        _print(table)
    if plot is not None:
        show.note(f"wrote {plot}")


def _print(comparison: "Comparison") -> None:
    shown = show.new_table(
        f"Policies at a matched total of {comparison.total:,} samples",
        ("policy", False), ("total", True), ("removed", True), ("", False), ("share", True),
        ("harmful", True), ("ratio", True), ("touched", True),
    )  # fmt: skip
    for row in comparison:
        if row.total is None or row.reduction is None:
            shown.add_row(row.policy, "-", "-", "", "-", "-", "-", "-")
            continue
        shown.add_row(
            row.policy,
            f"{row.total:,}",
            show.percent(row.reduction),
            show.bar(row.reduction, 10),
            show.percent(row.synthetic_share),
            f"{row.negative_gain:,}",
            "-" if row.budget_ratio is None else f"{row.budget_ratio:.1f}x",
            f"{row.clients:,} x {row.classes:,}",
        )
    show.print_table(shown)
    typer.echo(
        "removed: part of the imbalance score; share: synthetic among all samples;\n"
        "harmful: samples at a negative gain; ratio: most over fewest samples of a client;\n"
        "touched: clients and classes that get any"
    )
    for row in comparison:
        if row.note:
            typer.echo(f"{row.policy}: {row.note}")
