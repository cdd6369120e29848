"""`fedeas partition`: split a data set into clients."""

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from fedeas.cli import show
from fedeas.errors import InputError
from fedeas.progress import progress

if TYPE_CHECKING:
    from fedeas import LabelCounts, Partition


def partition(
    labels: list[str] = typer.Argument(
        ...,
        metavar="LABELS...",
        help="Labels, joined in this order: .parquet, .npy or .csv files, or balanced:10x6000.",
    ),
    recipe: str = typer.Option(
        "dirichlet", help="flbench (the paper's), dirichlet, iid, shards; NAME@VERSION pins one."
    ),
    clients: int = typer.Option(..., help="Number of clients."),
    alpha: float | None = typer.Option(None, help="Concentration: small means skewed."),
    seed: int = typer.Option(42, help="Seed of every random stream."),
    min_samples: int | None = typer.Option(None, help="Minimum number of samples per client."),
    shards_per_client: int | None = typer.Option(None, help="For shards: number per client."),
    column: str | None = typer.Option(None, help="Label column of a Parquet file."),
    out: Path | None = typer.Option(None, help="Write the indices (.npz)."),
    counts: Path | None = typer.Option(
        None, help="Write the counts (.csv, .tsv, .json, .parquet)."
    ),
    as_json: bool = show.json_option(),
) -> None:
    """Split a data set into clients with a named recipe, and print how skewed they are.

    LABELS are joined in the order given: .parquet, .npy or .csv files, or balanced:10x6000.

    Example: `fedeas partition balanced:10x6000 --recipe flbench --clients 20 --alpha 0.1`
    """
    from fedeas.partition import FLBench, make_recipe, read_labels

    if out is not None and out.suffix.lower() != ".npz":
        raise InputError("unknown kind of file", got=out.name, allowed=".npz")
    y = read_labels(labels, column)
    chosen = make_recipe(
        recipe,
        clients=clients,
        alpha=alpha,
        seed=seed,
        min_samples=min_samples,
        shards_per_client=shards_per_client,
    )
    if isinstance(chosen, FLBench):
        with progress("partitioning: tries") as update:
            made = chosen.partition(y, lambda tries: update(tries, None))
    else:
        made = chosen.partition(y)
    found = made.counts(y)
    if out is not None:
        made.save(out)
    if counts is not None:
        found.save(counts)
    _say(made, found, as_json)
    for written in filter(None, (out, counts)):
        show.note(f"wrote {written}")


def _say(made: "Partition", found: "LabelCounts", as_json: bool) -> None:
    """Print how skewed the clients are."""
    import numpy as np

    from fedeas.skew import skewness, split

    skews = skewness(found)
    parts = split(found)
    if as_json:
        show.print_json(
            {
                "recipe": made.recipe,
                "settings": dict(made.settings),
                "clients": found.K,
                "classes": found.C,
                "train": found.total,
                "test": 0 if made.test is None else len(made.test.indices),
                "counts_hash": found.fingerprint,
                "imbalance": parts.cross_client + parts.overall,
                "cross_client": parts.cross_client,
                "overall": parts.overall,
                "counts": found.n.tolist(),
            }
        )
    else:
        low, median, high = np.percentile(found.sizes, [0, 50, 100])
        score = f"{parts.cross_client + parts.overall:.4f}"
        typer.echo(str(made)[len("Partition(") : -1])
        typer.echo(f"client sizes     {low:,.0f} to {high:,.0f}, median {median:,.10g}")
        typer.echo(
            f"skew             {skews.min():.2f} to {skews.max():.2f} (0 balanced, 1 one class)"
        )
        typer.echo(
            f"imbalance        {score} = {parts.cross_client:.4f} between clients "
            f"+ {parts.overall:.4f} overall"
        )
        typer.echo(f"absent pairs     {int((found.n == 0).sum()):,} of {found.n.size:,}")
