"""`fedeas report`: a self-contained page about runs."""

from pathlib import Path

import typer

from fedeas.cli import show


def report(
    runs: list[Path] | None = typer.Argument(
        None, metavar="[RUNS]...", help="Folders of runs or sweeps, or files from `sweep --export`."
    ),
    out: Path = typer.Option(Path("report"), help="Output folder."),
    title: str = typer.Option("Synthetic samples for skewed clients", help="Title of the page."),
    mixed: bool = typer.Option(
        False, "--mixed", help="Allow runs in one table that differ in code, counts or generator."
    ),
    quality: bool = typer.Option(
        False,
        "--quality",
        help="Measure how good the synthetic samples are: trains a judge, reads the runs' data.",
    ),
    paper: bool = typer.Option(
        False, "--paper", help="Add the paper's accuracies, claims and partition to your runs."
    ),
) -> None:
    """Write a report on runs: a self-contained HTML page, Markdown, and CSV.

    RUNS are folders of `fedeas run` or `fedeas sweep`. Without any, the report shows the recorded
    runs that come with fedeas, next to the paper's figures. The page has tables, figures, accuracy
    per class, samples and cost.

    Example: `fedeas report --out report`
    """
    from fedeas.errors import InputError
    from fedeas.experiments.runs import find_runs
    from fedeas.experiments.tables import make_tables
    from fedeas.paper.claims import RECORDED
    from fedeas.paper.sections import TABLE_1, paper_sections
    from fedeas.report.assemble import Sweep, assemble

    found = [find_runs(path) for path in runs or sorted(RECORDED.glob("*.jsonl"))]
    sweeps = []
    for name, own, missing in found:
        for line in missing:
            show.note(line)
        if not own:
            raise InputError(f"{name}: no finished run", fix="let at least one run finish")
        sweeps.append(Sweep(name, own, make_tables(own, mixed=mixed)))
    paper = paper or not runs
    everything = [run for sweep in sweeps for run in sweep.runs]
    extra = paper_sections(everything) if paper else ()
    path = assemble(out, title, sweeps, TABLE_1 if paper else None, extra, quality=quality)
    tables = sum(len(sweep.tables) for sweep in sweeps)
    typer.echo(f"wrote {path}, report.md and tables.csv ({show.count_of(tables, 'table')})")
