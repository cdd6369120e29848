"""`fedeas select`: which beta."""

from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.text import Text

from fedeas.cli import label_counts, show
from fedeas.errors import InputError

if TYPE_CHECKING:
    from fedeas import BetaChoice, BetaInterval, Cost, FedEAS, LabelCounts
    from fedeas.beta_path import BetaPath
    from fedeas.overfill import Overfill

_SWEEP = (4.0, 8.0, 12.0, 16.0, 20.0)


@label_counts.with_counts_options
def select(
    counts_file: Path = label_counts.counts_argument(),
    min_reduction: float | None = typer.Option(
        None, help="Smallest share of the imbalance to remove (default 0.5)."
    ),
    max_share: float | None = typer.Option(
        None, help="Upper bound on the synthetic share of all samples (default 0.25)."
    ),
    target: str | None = label_counts.target_option(),
    quality: Path | None = label_counts.quality_option(),
    total: int | None = typer.Option(None, help="Instead: the largest beta within this total."),
    cost: str | None = typer.Option(
        None, help="Cost of one sample: 0.8s, 0.002EUR, or a file from `generator bench`."
    ),
    spend: str | None = typer.Option(None, help="Instead: the largest beta within 3h, 100EUR, ..."),
    plot: Path | None = show.plot_option("the choice of beta"),
    *,
    options: label_counts.CountsOptions,
    as_json: bool = show.json_option(),
) -> None:
    """Choose beta: by the paper's two conditions, by a total, or by time or money.

    It says so where the best budget is nothing: clients are close to the target already, or the
    samples are worth too little.

    COUNTS has a row per client and a column per class (.csv, .tsv, .xlsx, .json, .parquet).

    Example: `fedeas select counts.csv --cost 0.8s --spend 3h`
    """
    from fedeas import FedEAS, beta_for_total, choose_beta
    from fedeas.overfill import overfilled
    from fedeas.per_name import make_per_name
    from fedeas.targets import make_target

    if plot is not None:
        show.check_picture(plot)
    found = options.load(counts_file)
    counts = found.counts
    price = show.read_cost(cost)
    total = label_counts.affordable_total(total, price, spend)
    rule = FedEAS(target=make_target(target), quality=make_per_name(quality, "quality"))
    conditions = _conditions(min_reduction, max_share)
    best = choose_beta(counts, *conditions, rule) if total is None else None
    if best is not None and best.nothing:
        label_counts.note_counts(counts_file, found)
        _say_nothing(best.reason, as_json)
        return
    if total is not None:
        if min_reduction is not None or max_share is not None:
            raise InputError("give a total or the two conditions, not both", got=total)
        choice, interval = beta_for_total(counts, total, rule), None
    else:
        interval = _interval(counts, conditions, rule, best)
        choice = interval.choice
    rule = replace(rule, beta=choice)
    if plot is not None:
        from fedeas.report import figures

        figures.beta_selection(counts, plot, choice, interval, rule)
    label_counts.note_counts(counts_file, found)
    plan = rule.plan(counts)
    if total is not None:
        label_counts.note_share(plan.synthetic_share)
    label_counts.note_overfilled(counts, plan, rule)
    _report(counts, rule, interval, price, as_json, overfilled(counts, plan))
    if plot is not None:
        show.note(f"wrote {plot}")


def _say_nothing(why: str, as_json: bool) -> None:
    if as_json:
        show.print_json({"beta": None, "total": 0, "reason": why})
    else:
        typer.echo(f"best budget: nothing, since {why}")


def _interval(
    counts: "LabelCounts", conditions: tuple[float, float], rule: "FedEAS",
    best: "BetaChoice | None",
) -> "BetaInterval":  # fmt: skip
    """Return all betas that meet the conditions; the search for them says why there are none."""
    from fedeas import admissible_betas

    known = best.interval if best is not None else None
    return known or admissible_betas(counts, *conditions, rule)


def _conditions(min_reduction: float | None, max_share: float | None) -> tuple[float, float]:
    reduction = 0.5 if min_reduction is None else min_reduction
    return reduction, 0.25 if max_share is None else max_share


def _report(
    counts: "LabelCounts",
    rule: "FedEAS",
    interval: "BetaInterval | None",
    cost: "Cost | None",
    as_json: bool,
    beyond: "Overfill | None",
) -> None:
    import numpy as np

    from fedeas.beta_path import path
    from fedeas.targets import target_name

    choice = rule.beta
    betas = np.array(sorted({*_SWEEP, choice}))
    found = path(counts, betas, rule)
    if as_json:
        show.print_json(
            {
                "beta": choice,
                "target": target_name(rule.target),
                "interval": None if interval is None else asdict(interval),
                "overfilled": asdict(beyond) if beyond else None,
                "path": [
                    {
                        "beta": float(betas[i]),
                        "total": int(found.totals[i]),
                        "reduction": float(found.reductions[i]),
                        "synthetic_share": float(found.shares[i]),
                        "cost": cost and found.totals[i] * cost.per_sample,
                    }
                    for i in range(len(betas))
                ],
            }
        )
        return
    _print(found, choice, cost)
    if interval is not None:
        low, high = interval.rounded()
        typer.echo(
            f"at least {interval.min_reduction:.3g} of the imbalance removed and a synthetic share "
            f"below {interval.max_share:.3g}:\nboth hold from beta = {low:.12g} to {high:.12g}"
        )
        if interval.others:
            typer.echo(f"and for {len(interval.others):,} shorter intervals (see --json)")
    typer.echo(f"beta = {choice:.12g}")


def _print(found: "BetaPath", choice: float, cost: "Cost | None") -> None:
    columns = [("beta", True), ("samples", True), ("removed", True), ("", False), ("share", True)]
    if cost:
        columns.append(("cost", True))
    table = show.new_table("What each beta buys", *columns, ("", False))
    for i, beta in enumerate(found.betas):
        row: list[str | Text] = [
            f"{beta:.9g}",
            f"{int(found.totals[i]):,}",
            show.percent(found.reductions[i]),
            show.bar(found.reductions[i]),
            show.percent(found.shares[i]),
        ]
        if cost:
            row.append(cost.of(int(found.totals[i])))
        table.add_row(*row, "<- chosen" if beta == choice else "")
    show.print_table(table)
