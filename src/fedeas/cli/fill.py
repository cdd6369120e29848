"""`fedeas fill`: from a plan to images on disk."""

from dataclasses import asdict
from pathlib import Path

import typer

from fedeas.cli import show


def fill(
    plan_file: Path = typer.Argument(..., metavar="PLAN", help="A plan of `fedeas plan --out`."),
    generator: str = typer.Option(
        ...,
        help="'pool(data=NAME, hold_out=2000)', an installed generator, or package.module:Name.",
    ),
    cache: Path = typer.Option(Path("cache"), help="Folder of the caches."),
    seed: int = typer.Option(0, min=0, help="Another seed gives other images."),
    batch: int = typer.Option(64, min=1, help="Images that are generated at a time."),
    as_json: bool = show.json_option(),
) -> None:
    """Generate the images of a plan, each once; what the cache holds is not made again.

    PLAN is a file that `fedeas plan --out` wrote. A fill that was stopped goes on where it was.

    Example: `fedeas fill plan.csv --generator 'pool(data=cifar10)' --cache cache`
    """
    from fedeas.cache import Cache
    from fedeas.cache import fill as fill_cache
    from fedeas.generators import make_generator
    from fedeas.plan import Plan

    plan = Plan.load(plan_file)
    made = make_generator(generator)
    target = Cache(cache, made.fingerprint, plan.counts_hash, seed)
    with show.progress("images") as update:
        done = fill_cache(
            plan,
            made,
            target,
            batch,
            update,
            lambda: show.note("another process fills this cache; waiting for it"),
        )
    for line in done.mended:
        show.note(f"mended: {line}")
    if as_json:
        show.print_json({**asdict(done), "cache": str(target.folder), "total": plan.total})
    else:
        typer.echo(f"{done.generated:,} images generated, {done.reused:,} were there")
        typer.echo(f"cache            {target.folder}")
