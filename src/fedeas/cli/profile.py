"""`fedeas profile`: a page about label counts for people who decide."""

from pathlib import Path

import typer

from fedeas.cli import label_counts, show


def profile(
    counts_file: label_counts.CountsPath,
    out: Path = typer.Option(..., help="Write the page (.html)."),
    threshold: int = typer.Option(10, help="Withhold counts from 1 to below this; 1 shows all."),
    target: label_counts.TargetOption = None,
    cost: str | None = typer.Option(None, help="Cost of one sample: 0.8s, 0.002EUR."),
    title: str | None = typer.Option(None, help="Title of the page."),
) -> None:
    """Write a page about the labels of a federation, for people who decide and do not program.

    COUNTS is what `fedeas plan` reads. Where a table of label sets says how many people there are,
    people are counted.

    Who has what, who is short of what, what would help, what a plan would generate and cost, and
    whom to ask next: one file that needs no other, to be read on a screen, a phone or on paper.

    Example: `fedeas profile counts.csv --out labels.html`
    """
    from fedeas import LabelCounts
    from fedeas import profile as make_page
    from fedeas.planning.targets import make_target
    from fedeas.plots.label_report import check_page

    check_page(out)
    counts = label_counts.load_any_counts(counts_file)
    if isinstance(counts, LabelCounts):
        label_counts.note_counts(counts_file, counts)
    make_page(counts, threshold, make_target(target), cost, title).save(out)
    show.note(f"wrote {out}")
