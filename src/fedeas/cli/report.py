"""`fedeas report`: runs as a page that can be passed on."""

from pathlib import Path

import typer

from fedeas.cli import show


def report(
    runs: list[Path] | None = typer.Argument(
        None, metavar="[RUNS]...", help="Folders of runs or sweeps, or files of `sweep --export`."
    ),
    out: Path = typer.Option(Path("report"), help="Folder of the report."),
    title: str = typer.Option("Synthetic samples for skewed clients", help="Of the page."),
    mixed: bool = typer.Option(
        False, "--mixed", help="Put runs into one table that differ in code, counts or generator."
    ),
    paper: bool = typer.Option(
        False, "--paper", help="Add the paper's accuracies, claims and partition to own runs."
    ),
) -> None:
    """Write a report of runs: a page that needs no network, Markdown, and CSV.

    RUNS are folders of `fedeas run` or `fedeas sweep`; without any, the recorded runs that come
    with fedeas, with the paper's figures beside them. The page holds tables, pictures, accuracy by
    class, samples and cost.

    Example: `fedeas report --out report`
    """
    from fedeas.errors import InputError
    from fedeas.experiments.runs import find_runs
    from fedeas.experiments.tables import make_tables
    from fedeas.paper.claims import RECORDED
    from fedeas.paper.sections import TABLE_1, paper_sections
    from fedeas.report import page, sections
    from fedeas.report.folders import folder_sections

    found = [find_runs(path) for path in runs or sorted(RECORDED.glob("*.jsonl"))]
    paper = paper or not runs
    reference = TABLE_1 if paper else None
    parts, tables, said = [], [], []
    for name, own, missing in found:
        for line in missing:
            show.note(line)
        if not own:
            raise InputError(f"{name}: no run is finished", fix="let one come to its end")
        made = make_tables(own, mixed=mixed)
        parts += list(sections.sweep_sections(name, own, made, reference))
        parts += list(folder_sections(name, own))
        said += list(sections.summary(name, made))
        tables += made
    if paper:
        parts += paper_sections([run for _, own, _ in found for run in own])
    if said:
        parts.insert(0, page.Section("In short", [*said]))
    path = page.write_report(out, title, parts, tables)
    typer.echo(f"wrote {path}, report.md and tables.csv ({show.count_of(len(tables), 'table')})")
