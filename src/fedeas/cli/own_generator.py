"""`fedeas generator own`: a generator from a noisy sum over the clients of a federation."""

import math
from pathlib import Path

import typer

from fedeas.cli import show
from fedeas.errors import InputError
from fedeas.progress import progress
from fedeas.specs import quoted


def own_generator(
    config_file: Path = typer.Argument(
        ..., metavar="CONFIG", help="Config with the federation's data and partition (.toml)."
    ),
    out: Path = typer.Option(..., help="Output folder; if interrupted, run again to resume."),
    epsilon: float = typer.Option(
        1.0, help="What the sum may cost one sample of a site, added or removed; inf: no noise."
    ),
    delta: float = typer.Option(1e-6, help="The delta of the guarantee."),
    way: str = typer.Option("", help="moments, features or embedding (default: moments)."),
    steps: int | None = typer.Option(None, min=1, help="Steps of an embedding or of features."),
    seeded_noise: bool = typer.Option(
        False, "--seeded-noise", help="Draw the noise from the config's seed: no guarantee."
    ),
) -> None:
    """Make a generator from noisy sums over the samples of a simulated federation.

    CONFIG is one of `fedeas run`. Nothing but the sums is used, and their noise comes from the
    operating system, so that their guarantee is the generator's. With --seeded-noise the same
    command makes the same generator, which then has no guarantee: anybody can draw that noise.

    Example: `fedeas generator own examples/own.toml --out own`
    """
    from fedeas.experiments.sharing import share_out
    from fedeas.generators.generator import heavy
    from fedeas.settings.config import read_config

    config = read_config(config_file)
    own = heavy("fedeas.generators.own.make", "the generator 'own'", "train")
    if not 0 < delta < 1:
        raise InputError("delta is out of range", got=delta, allowed="between 0 and 1")
    federation = share_out(config)
    show.note(federation.describe())
    with progress("making the generator") as update:
        made = own.make_own(
            federation.data,
            list(federation.partition.train),
            epsilon,
            delta,
            way,
            config.seed,
            own.training_of(steps),
            out,
            update,
            seeded_noise,
        )
    card = made.card
    if math.isinf(epsilon):
        typer.echo("guarantee        none: the sums have no noise")
    elif seeded_noise:
        typer.echo("guarantee        none: anybody can draw the noise of a seed again")
    else:
        typer.echo(f"guarantee        {card.cost}")
    worst, best = min(card.quality), max(card.quality)
    least = card.classes[card.quality.index(worst)]
    typer.echo(f"sites            {card.sites:,}")
    typer.echo(f"quality          {worst:g} ({least}) to {best:g}, of 1")
    typer.echo(f"generator        own(model={quoted(str(out))})")
