"""`fedeas compare`: several policies at the same total, without training."""

import textwrap
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from fedeas.cli import label_counts, show
from fedeas.errors import InputError

if TYPE_CHECKING:
    from fedeas import Comparison, Cost


@label_counts.with_counts_options
def compare(
    counts_file: Path = label_counts.counts_argument(),
    beta: float | None = typer.Option(
        None, help="Beta of FedEAS, chosen if not given; the other policies get the same total."
    ),
    total: int | None = typer.Option(
        None, help="Match the largest FedEAS plan that stays within this total."
    ),
    target: str | None = label_counts.target_option(),
    cost: str | None = typer.Option(
        None, help="Cost of one sample: 0.8s, 0.002EUR, or a file from `generator bench`."
    ),
    policy: list[str] | None = typer.Option(
        None, help="A policy to compare, NAME or 'NAME(setting=value)'; may be repeated."
    ),
    plot: Path | None = show.plot_option("the imbalance removed against the samples spent"),
    *,
    options: label_counts.CountsOptions,
    as_json: bool = show.json_option(),
) -> None:
    """Compare policies at the same total: imbalance removed, and samples wasted.

    COUNTS has a row per client and a column per class (.csv, .tsv, .xlsx, .json, .parquet).

    Example: `fedeas compare counts.csv --beta 12 --policy fedeas --policy uniform`
    """
    from fedeas import FedEAS, beta_for_total, choose_beta
    from fedeas import compare as compare_policies
    from fedeas.comparison import DEFAULT_POLICIES
    from fedeas.targets import make_target

    if plot is not None:
        show.check_picture(plot)
    if beta is not None and total is not None:
        raise InputError("give --beta or --total, not both", got=(beta, total))
    price = show.read_cost(cost)
    found = options.load(counts_file)
    counts = found.counts
    reference = FedEAS(12.0 if beta is None else beta, target=make_target(target))
    if total is not None:
        reference = replace(reference, beta=beta_for_total(counts, total, reference))
    elif beta is None:
        reference = replace(reference, beta=choose_beta(counts, policy=reference).beta)
    table = compare_policies(counts, policy or DEFAULT_POLICIES, reference)
    if plot is not None:
        from fedeas.report import figures

        figures.reduction(counts, plot, mark=table.total, rule=reference)
    label_counts.note_counts(counts_file, found)
    if as_json:
        show.print_json([
            asdict(row) | {"cost": price and row.total and price.amount(row.total)} for row in table
        ])  # fmt: skip
    else:
        _print(table, price)
    if plot is not None:
        show.note(f"wrote {plot}")


def _print(comparison: "Comparison", cost: "Cost | None") -> None:
    shown = show.new_table(
        f"Policies at a matched total of {comparison.total:,} samples",
        ("policy", False), ("total", True), ("removed", True), ("", False), ("share", True),
        ("negative\ngain", True), ("max/min\nper client", True), ("clients x\nclasses", True),
        *([("cost", True)] if cost else []),
    )  # fmt: skip
    for row in comparison:
        if row.total is None or row.reduction is None:
            shown.add_row(row.policy, "-", "-", "", "-", "-", "-", "-", *(["-"] if cost else []))
            continue
        shown.add_row(
            row.policy,
            f"{row.total:,}",
            show.percent(row.reduction),
            show.bar(row.reduction, 7),
            show.percent(row.synthetic_share),
            f"{row.negative_gain:,}",
            "-" if row.budget_ratio is None else f"{row.budget_ratio:.1f}x",
            f"{row.clients:,} x {row.classes:,}" if row.total else "-",
            *([cost.of(row.total)] if cost else []),
        )
    show.print_table(shown)
    typer.echo(
        "removed: reduction of the imbalance score; share: synthetic share of all samples;\n"
        "negative gain: samples that raise the score, to first order;\n"
        "max/min per client: most over fewest samples, among clients that generate any;\n"
        "clients x classes: how many of each generate anything"
    )
    for row in comparison:
        if said := row.note or row.remark:
            typer.echo(textwrap.fill(f"{row.policy}: {said}", 80))
