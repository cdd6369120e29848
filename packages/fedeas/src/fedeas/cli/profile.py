"""`fedeas profile`: a page about label counts for people who decide."""

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from fedeas.cli import label_counts, show
from fedeas.cli.label_sets import holds_label_sets
from fedeas.errors import InputError

if TYPE_CHECKING:
    from fedeas import LabelCounts, LabelSetCounts
    from fedeas.planning.published import NoisyCounts


def profile(
    counts_file: label_counts.CountsPath,
    out: Path = typer.Option(..., help="Write the page (.html)."),
    threshold: int = typer.Option(
        10, help="Withhold counts from 1 to below this, and what would give them away; 1 shows all."
    ),
    target: label_counts.TargetOption = None,
    cost: str | None = typer.Option(None, help="Cost of one sample: 0.8s, 0.002EUR."),
    data: str | None = typer.Option(
        None, help="The data of a partition, as `fedeas partition` took it."
    ),
    title: str | None = typer.Option(None, help="Title of the page."),
) -> None:
    """Write a page about the labels of a federation, for people who decide and do not program.

    COUNTS is what `fedeas plan` reads; or a partition (.npz), NVFlare's statistics or noisy counts
    (.json). Where a table of label sets says how many people there are, people are counted.

    Who has what, how sites differ, what would help and why, what it costs, and what is not known:
    one file that needs no other, to be read on a screen, a phone or on paper.

    Example: `fedeas profile counts.csv --out labels.html`
    """
    from fedeas import profile as make_page
    from fedeas.planning.targets import make_target
    from fedeas.plots.label_report import check_page

    check_page(out)
    counts = _read(counts_file, data)
    make_page(counts, threshold, make_target(target), cost, title).save(out)
    show.note(f"wrote {out}")


def _read(path: Path, data: str | None) -> "LabelCounts | LabelSetCounts | NoisyCounts":
    """Read counts from any source."""
    from fedeas import LabelSetCounts
    from fedeas.planning.published import NoisyCounts, has_noisy_counts

    if path.suffix.lower() == ".npz":
        return _partition(path, data)
    if data is not None:
        raise InputError("--data belongs to a partition", got=str(path), fix="leave it out")
    if has_noisy_counts(path):
        return NoisyCounts.load(path)
    if holds_label_sets(path):
        return LabelSetCounts.load(path)
    counts = label_counts.load_counts(path)
    label_counts.note_counts(path, counts)
    return counts


def _partition(path: Path, data: str | None) -> "LabelCounts":
    """Count the labels of a partition."""
    from fedeas import LabelCounts, Partition
    from fedeas.data import open_dataset
    from fedeas.data.labels import is_label_source, read_labels

    if data is None:
        raise InputError(
            f"{path} has indices, not labels", fix="add --data, as `fedeas partition` took it"
        )
    split = Partition.load(path)
    if is_label_source(data):
        labels = read_labels([data])
        codes, classes = labels.codes, labels.classes
    else:
        samples = open_dataset(data)
        codes, classes = samples.labels, samples.classes
    counts = split.counts(codes)
    return LabelCounts(counts.n, counts.clients, classes)
