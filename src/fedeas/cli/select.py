"""`fedeas select`: which beta."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.text import Text

from fedeas.cli import show
from fedeas.errors import InputError

if TYPE_CHECKING:
    from fedeas import BetaInterval, Cost, LabelCounts
    from fedeas.select import Path as BetaPath

_SWEEP = (4.0, 8.0, 12.0, 16.0, 20.0)


def select(
    counts_file: Path = show.counts_argument(),
    min_reduction: float = typer.Option(0.5, help="Part of the imbalance to remove at least."),
    max_share: float = typer.Option(0.25, help="Synthetic part of all samples to stay below."),
    total: int | None = typer.Option(None, help="Instead: the largest beta within this total."),
    cost: str | None = typer.Option(None, help="Cost of one sample: 0.8s, 0.002EUR."),
    spend: str | None = typer.Option(None, help="Instead: the largest beta within 3h, 100EUR, ..."),
    plot: Path | None = show.plot_option("the choice of beta"),
    delimiter: str | None = show.delimiter_option(),
    as_json: bool = show.json_option(),
) -> None:
    """Choose beta: by the paper's two conditions, by a total, or by time or money.

    COUNTS has a row per client and a column per class (.csv, .tsv, .json, .parquet).

    Example: `fedeas select counts.csv --cost 0.8s --spend 3h`
    """
    from fedeas import Cost, LabelCounts, admissible_betas, beta_for_total

    if plot is not None:
        show.check_picture(plot)
    counts = LabelCounts.load(counts_file, delimiter)
    show.note_counts(counts_file, counts)
    price = Cost.parse(cost) if cost else None
    if spend is not None:
        if price is None or total is not None:
            raise InputError("--spend needs --cost, and goes without --total", got=spend)
        total = price.samples_for(spend)
    interval = None
    if total is not None:
        choice = beta_for_total(counts, total)
    else:
        interval = admissible_betas(counts, min_reduction, max_share)
        choice = interval.choice
    if plot is not None:
        from fedeas.report import figures

        figures.beta_selection(counts, plot, choice, interval)
    _report(counts, choice, interval, price, as_json)
    if plot is not None:
        show.note(f"wrote {plot}")


def _report(
    counts: "LabelCounts",
    choice: float,
    interval: "BetaInterval | None",
    cost: "Cost | None",
    as_json: bool,
) -> None:
    import numpy as np

    from fedeas.select import path

    betas = np.array(sorted({*_SWEEP, choice}))
    found = path(counts, betas)
    if as_json:
        show.print_json(
            {
                "beta": choice,
                "interval": None if interval is None else asdict(interval),
                "path": [
                    {"beta": b, "total": int(t), "reduction": r, "synthetic_share": s}
                    for b, t, r, s in zip(
                        betas.tolist(),
                        found.totals,
                        found.reductions.tolist(),
                        found.shares.tolist(),
                        strict=True,
                    )
                ],
            }
        )
        return
    _print(found, choice, cost)
    if interval is not None:
        typer.echo(
            f"at least {interval.min_reduction:.3g} of the imbalance removed and a synthetic share "
            f"below {interval.max_share:.3g}:\n"
            f"both hold for {interval.low:.4g} <= beta < {interval.high:.4g}"
        )
    typer.echo(f"beta = {choice:g}")


def _print(found: "BetaPath", choice: float, cost: "Cost | None") -> None:
    columns = [("beta", True), ("samples", True), ("removed", True), ("", False), ("share", True)]
    if cost:
        columns.append(("cost", True))
    table = show.new_table("What each beta buys", *columns, ("", False))
    for i, beta in enumerate(found.betas):
        row: list[str | Text] = [
            f"{beta:g}",
            f"{int(found.totals[i]):,}",
            show.percent(found.reductions[i]),
            show.bar(found.reductions[i]),
            show.percent(found.shares[i]),
        ]
        if cost:
            row.append(cost.of(int(found.totals[i])))
        table.add_row(*row, "<- chosen" if beta == choice else "")
    show.print_table(table)
