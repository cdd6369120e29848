"""`fedeas compare`: several policies at the same total, without training."""

import textwrap
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from fedeas.cli import label_counts, show

if TYPE_CHECKING:
    from fedeas import Comparison, FedEAS, Policy


def compare(
    counts_file: label_counts.CountsPath,
    beta: float | None = typer.Option(
        None, help="Beta of FedEAS, chosen if not given; the other policies get the same total."
    ),
    total: int | None = typer.Option(
        None, help="Match the largest FedEAS plan that stays within this total."
    ),
    target: label_counts.TargetOption = None,
    policy: list[str] | None = typer.Option(
        None, help="A policy to compare, NAME or 'NAME(setting=value)'; may be repeated."
    ),
    plot: Path | None = show.plot_option("the imbalance removed against the samples spent"),
    as_json: bool = show.json_option(),
) -> None:
    """Compare policies at the same total: imbalance removed, and samples wasted.

    COUNTS has a row per client and a column per class, or the columns client,class,count (.csv,
    .tsv, .xlsx, .json, .parquet).

    Example: `fedeas compare counts.csv --policy fedeas --policy uniform`
    """
    from fedeas import compare as compare_policies
    from fedeas.planning.comparison import DEFAULT_POLICIES
    from fedeas.planning.planner import choose_policy
    from fedeas.planning.targets import make_target

    if plot is not None:
        show.check_picture(plot)
    counts = label_counts.load_counts(counts_file, "compare")
    chosen = choose_policy(counts, "fedeas", total, beta=beta, target=make_target(target))
    table = compare_policies(counts, policy or DEFAULT_POLICIES, chosen.policy)
    if chosen.instead:
        show.note(f"note: the total is that of equal reduction: {chosen.instead}")
    if plot is not None:
        from fedeas.plots import figures

        figures.reduction(counts, plot, mark=table.total, rule=_rule(chosen.policy))
    label_counts.note_counts(counts_file, counts)
    if as_json:
        show.print_json([asdict(row) for row in table])
    else:
        _print(table)
    if plot is not None:
        show.note(f"wrote {plot}")


def _rule(policy: "Policy") -> "FedEAS":
    """Return the rule whose path of beta is drawn."""
    from fedeas import FedEAS

    return policy if isinstance(policy, FedEAS) else FedEAS(target=getattr(policy, "target", None))


def _print(comparison: "Comparison") -> None:
    table = show.new_table(
        f"Policies at a matched total of {comparison.total:,} samples",
        ("policy", False), ("total", True), ("removed", True), ("", False), ("share", True),
        ("negative\ngain", True), ("max/min\nper client", True), ("clients x\nclasses", True),
    )  # fmt: skip
    for row in comparison:
        if row.total is None or row.reduction is None:
            table.add_row(row.policy, "-", "-", "", "-", "-", "-", "-")
            continue
        table.add_row(
            row.policy,
            f"{row.total:,}",
            show.percent(row.reduction),
            show.bar(row.reduction, 7),
            show.percent(row.synthetic_share),
            f"{row.negative_gain:,}",
            "-" if row.budget_ratio is None else f"{row.budget_ratio:.1f}x",
            f"{row.clients:,} x {row.classes:,}" if row.total else "-",
        )
    show.print_table(table)
    typer.echo(
        "removed: reduction of the imbalance score; share: synthetic share of all samples;\n"
        "negative gain: samples that raise the score, to first order;\n"
        "max/min per client: most over fewest samples, among clients that generate any;\n"
        "clients x classes: how many of each generate anything"
    )
    for row in comparison:
        if remark := row.note or row.remark:
            typer.echo(textwrap.fill(f"{row.policy}: {remark}", 80))
