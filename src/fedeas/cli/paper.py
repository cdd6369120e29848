"""`fedeas paper`: the paper's numbers beside ours."""

from dataclasses import asdict
from pathlib import Path

import typer
from rich.text import Text

from fedeas.cli import show

paper = typer.Typer(no_args_is_help=True, help="The paper's numbers beside ours.")


@paper.callback()
def _group() -> None:
    """Hold the subcommands of `fedeas paper`."""


@paper.command()
def counts(
    walk: bool = typer.Option(
        False, "--walk", help="Make every random try of the partition from the first (slower)."
    ),
    plot: Path | None = typer.Option(
        None, metavar="FOLDER", help="Draw the four count-level figures there (needs fedeas[plot])."
    ),
    as_json: bool = show.json_option(),
) -> None:
    """Print every count-level number of the paper beside ours; exit 1 if one differs.

    Example: `fedeas paper counts`
    """
    from fedeas.experiments.paper_counts import claims, disagreements

    found, apart = list(claims(walk)), list(disagreements())
    differing = [claim for claim in found if not claim.agrees]
    if plot is not None:
        from fedeas.report import figures

        figures.paper_figures(plot)
    if as_json:
        show.print_json(
            {
                "agree": not differing,
                "claims": [{**asdict(claim), "agrees": claim.agrees} for claim in found],
                "disagreements": [asdict(claim) for claim in apart],
            }
        )
    else:
        table = show.new_table(
            "The paper's numbers from label counts alone",
            ("where", False), ("what", False), ("paper", True), ("ours", True), ("", False),
        )  # fmt: skip
        for claim in found:
            verdict = Text("equal", "green") if claim.agrees else Text("DIFFERS", "bold red")
            table.add_row(claim.where, claim.what, claim.paper, claim.ours, verdict)
        show.print_table(table)
        table = show.new_table(
            "Where the paper disagrees with its own partition (listed, not counted)",
            ("where", False), ("what", False), ("paper", True), ("ours", True), ("reason", False),
        )  # fmt: skip
        for claim in apart:
            table.add_row(claim.where, claim.what, claim.paper, claim.ours, claim.reason)
        show.print_table(table)
        typer.echo(f"{len(found) - len(differing)} of {len(found)} numbers are equal")
    if plot is not None:
        show.note(f"wrote four figures to {plot}")
    if differing:
        raise typer.Exit(1)
