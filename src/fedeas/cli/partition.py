"""`fedeas partition`: split a data set into clients."""

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from fedeas._internal.names import ending
from fedeas._internal.progress import progress
from fedeas.cli import show

if TYPE_CHECKING:
    from fedeas import LabelCounts, Partition
    from fedeas.partition import Recipe


def partition(
    labels: list[str] = typer.Argument(
        ...,
        metavar="DATA...",
        help="The name of a data set; label files, joined in this order; or balanced:10x6000.",
    ),
    recipe: str = typer.Option(
        "dirichlet",
        help="flbench (the paper's), dirichlet, iid, shards, column(NAME); NAME@VERSION pins one.",
    ),
    clients: int | None = typer.Option(None, help="Number of clients; not for column(NAME)."),
    alpha: float | None = typer.Option(None, help="Concentration: small means skewed."),
    seed: int = typer.Option(42, help="Seed of every random stream."),
    min_samples: int | None = typer.Option(None, help="Minimum number of samples per client."),
    shards_per_client: int | None = typer.Option(None, help="For shards: number per client."),
    label: str | None = typer.Option(None, help="Label column of a table."),
    out: Path | None = typer.Option(None, help="Write the indices (.npz)."),
    counts: Path | None = typer.Option(
        None, help="Write the counts (.csv, .tsv, .json, .parquet)."
    ),
    as_json: bool = show.json_option(),
) -> None:
    """Split a data set into clients with a named recipe, and print how skewed they are.

    DATA is the name of a data set, as in a config: clients share its training set. Or it is files
    with a label per sample (.parquet, .csv, .tsv, .npy), which are shared out whole.

    Example: `fedeas partition balanced:10x6000 --recipe flbench --clients 20 --alpha 0.1`
    """
    from fedeas.partition import make_partition, site_column

    if out is not None:
        ending(out, ".npz")
    site = site_column(recipe)
    maker = make_partition(
        recipe,
        clients=clients,
        alpha=alpha,
        seed=None if site else seed,
        min_samples=min_samples,
        shards_per_client=shards_per_client,
    )
    split, label_counts = _split(labels, label, site, maker)
    if out is not None:
        split.save(out)
    if counts is not None:
        label_counts.save(counts)
    _show(split, label_counts, as_json)
    for written in filter(None, (out, counts)):
        show.note(f"wrote {written}")


def _split(
    sources: list[str], label: str | None, site: str, recipe: "Recipe"
) -> "tuple[Partition, LabelCounts]":
    """Partition label files or a data set."""
    from fedeas import LabelCounts
    from fedeas.data import TableOptions, federate, open_dataset
    from fedeas.data.labels import is_label_source, read_labels
    from fedeas.partition import FLBench, NaturalId

    if len(sources) == 1 and not is_label_source(sources[0]):
        options = TableOptions(label=label or "label", site=site)
        with progress("decoding") as update:
            data = open_dataset(sources[0], options=options, progress=update)
        federation = federate(data, recipe)
        show.note(federation.describe())
        return federation.partition, federation.counts
    labels = read_labels(sources, label, site)
    if isinstance(recipe, FLBench):
        with progress("partitioning: tries") as update:
            split = recipe.partition(labels.codes, lambda tries: update(tries, None))
    elif isinstance(recipe, NaturalId):
        split = recipe.partition(labels.codes, labels.sites)
    else:
        split = recipe.partition(labels.codes)
    counts = split.counts(labels.codes)
    return split, LabelCounts(counts.n, counts.clients, labels.classes)


def _show(partition: "Partition", counts: "LabelCounts", as_json: bool) -> None:
    """Print how skewed the clients are."""
    import numpy as np

    from fedeas.planning import skew

    skews = skew.skewness(counts)
    parts = skew.split(counts)
    if as_json:
        show.print_json(
            {
                "recipe": partition.recipe,
                "settings": dict(partition.settings),
                "clients": counts.K,
                "classes": counts.C,
                "train": counts.total,
                "test": 0 if partition.test is None else len(partition.test.indices),
                "counts_hash": counts.fingerprint,
                "imbalance": parts.cross_client + parts.overall,
                "cross_client": parts.cross_client,
                "overall": parts.overall,
                "counts": counts.n.tolist(),
            }
        )
    else:
        low, median, high = np.percentile(counts.sizes, [0, 50, 100])
        score = f"{parts.cross_client + parts.overall:.4f}"
        typer.echo(str(partition)[len("Partition(") : -1])
        typer.echo(f"client sizes     {low:,.0f} to {high:,.0f}, median {median:,.10g}")
        typer.echo(
            f"skew             {skews.min():.2f} to {skews.max():.2f} (0 balanced, 1 one class)"
        )
        typer.echo(
            f"imbalance        {score} = {parts.cross_client:.4f} between clients "
            f"+ {parts.overall:.4f} overall"
        )
        typer.echo(f"absent pairs     {int((counts.n == 0).sum()):,} of {counts.n.size:,}")
