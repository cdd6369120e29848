"""`fedeas generator private`: a generator from a noisy sum over the clients of a federation."""

import math
from pathlib import Path

import typer

from fedeas._internal.progress import progress
from fedeas.cli import show


def private_generator(
    config_file: Path = typer.Argument(
        ..., metavar="CONFIG", help="Config with the federation's data and partition (.toml)."
    ),
    out: Path = typer.Option(..., help="Output folder; if interrupted, run again to resume."),
    epsilon: float = typer.Option(
        1.0, help="Privacy budget: one sample of a site, added or removed; inf: no noise."
    ),
    delta: float | None = typer.Option(None, help="The delta of the guarantee (default 1e-6)."),
    seeded_noise: bool = typer.Option(
        False, "--seeded-noise", help="Draw the noise from the config's seed: no guarantee."
    ),
    classifier: bool = typer.Option(
        False,
        "--classifier",
        help="Make a classifier of the same budget: half of it for images, free for rows.",
    ),
) -> None:
    """Make a generator from noisy sums over the samples of a simulated federation.

    CONFIG is one of `fedeas run`. Nothing but the sums is used, and their noise comes from the
    operating system, so that their guarantee is the generator's.

    Example: `fedeas generator private examples/private.toml --out generator`
    """
    from fedeas._internal.optional import import_extra
    from fedeas._internal.scalars import share
    from fedeas._internal.specs import quoted
    from fedeas.lab.config import read_config
    from fedeas.lab.resolve import partition_data

    config = read_config(config_file)
    make = import_extra("fedeas.private.generator.make", "the generator 'private'", "private")
    delta = make.DELTA if delta is None else delta
    share(delta, "delta")
    federation = partition_data(config)
    show.note(federation.describe())
    with progress("making the generator") as update:
        generator = make.make_private(
            federation.data,
            list(federation.partition.train),
            epsilon,
            delta,
            config.seed,
            out,
            update,
            seeded_noise,
            classifier=classifier,
        )
    card = generator.card
    if math.isinf(epsilon):
        typer.echo("guarantee        none: the sums have no noise")
    elif seeded_noise:
        typer.echo("guarantee        none: anybody can draw the noise of a seed again")
    else:
        typer.echo(f"guarantee        {card.privacy}")
    worst, best = min(card.quality), max(card.quality)
    least = card.classes[card.quality.index(worst)]
    typer.echo(f"sites            {card.training.sites:,}")
    typer.echo(f"quality          {worst:g} ({least}) to {best:g}, of 1")
    typer.echo(f"generator        private(model={quoted(str(out))})")
    if classifier:
        typer.echo(f"classifier       {out / make.CLASSIFIER_FOLDER}")
