"""`fedeas fill`: from a plan to images on disk."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from fedeas.cli import show
from fedeas.errors import InputError

if TYPE_CHECKING:
    from fedeas.generators import Generator
    from fedeas.generators.quality import Filtered


def fill(
    plan_file: Path = typer.Argument(..., metavar="PLAN", help="A plan of `fedeas plan --out`."),
    generator: str = typer.Option(
        ...,
        help="'diffusion(model=FOLDER)', 'turbo(model=FOLDER, data=NAME)', 'pool(data=NAME)', an "
        "installed generator, or package.module:Name.",
    ),
    cache: Path = typer.Option(Path("cache"), help="Folder of the caches."),
    seed: int = typer.Option(0, min=0, help="Another seed gives other images."),
    batch: int = typer.Option(64, min=1, help="Images that are generated at a time."),
    judge: Path | None = typer.Option(
        None, help="A judge of `generator judge`: what it takes for another class is drawn again."
    ),
    tries: int = typer.Option(4, min=1, help="Draws of an image at most, with a judge."),
    as_json: bool = show.json_option(),
) -> None:
    """Generate the images of a plan, each once; what the cache holds is not made again.

    PLAN is a file that `fedeas plan --out` wrote. A fill that was stopped goes on where it was.

    Example: `fedeas fill plan.csv --generator 'diffusion(model=fashion_mnist)'`
    """
    from fedeas.cache import Cache
    from fedeas.cache import fill as fill_cache
    from fedeas.generators import make_generator
    from fedeas.plan import Plan

    plan = Plan.load(plan_file)
    made = make_generator(generator)
    if judge is not None:
        made = judged = _filtered(made, judge, tries)
    target = Cache(cache, made, plan.classes or plan.samples.shape[1], seed)
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
        typer.echo(f"generated {done.generated:,} samples, {done.reused:,} already cached")
        typer.echo(f"cache            {target.folder}")
    if judge is not None and done.generated:
        show.note(
            f"judged: {judged.drawn:,} draws; {judged.unmet:,} images stayed wrong after {tries}"
        )


def _filtered(made: "Generator", judge: Path, tries: int) -> "Filtered":
    from fedeas.generators.generator import heavy
    from fedeas.generators.quality import Filtered

    known = heavy("fedeas.generators.judge", "a judge", "diffusion").Judge.load(judge)
    names = getattr(made, "classes", None)
    if names is not None and tuple(names) != known.classes:
        raise InputError(
            "the judge and the generator know different classes",
            got=known.classes,
            allowed=", ".join(names),
        )
    return Filtered(made, known, known.fingerprint, tries)
