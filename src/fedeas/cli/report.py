"""`fedeas report`: a self-contained page about runs."""

from pathlib import Path

import typer

from fedeas.cli import show


def report(
    runs: list[Path] = typer.Argument(
        ..., metavar="RUNS...", help="Folders of runs or sweeps, or files from `sweep --export`."
    ),
    out: Path = typer.Option(Path("report"), help="Output folder."),
    title: str = typer.Option("Synthetic samples for skewed clients", help="Title of the page."),
    mixed: bool = typer.Option(
        False,
        "--mixed",
        help="Allow runs of other versions, counts or generators in one table.",
    ),
    quality: bool = typer.Option(
        False,
        "--quality",
        help="Measure how good the synthetic samples are: trains a judge, reads the runs' data.",
    ),
) -> None:
    """Write a report on runs: a self-contained HTML page, Markdown, and CSV.

    RUNS are folders of `fedeas run` or `fedeas sweep`. The page has tables, figures, accuracy per
    class, samples and cost.

    Example: `fedeas report runs/cifar10 --out report`
    """
    from fedeas.lab.report.page import assemble, read_sweeps

    sweeps = read_sweeps(runs, mixed, show.note)
    page = assemble(out, title, sweeps, quality=quality)
    tables = sum(len(sweep.tables) for sweep in sweeps)
    typer.echo(f"wrote {page}, report.md and tables.csv ({show.count_of(tables, 'table')})")
