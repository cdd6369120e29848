"""`fedeas fill`: from a plan to samples on disk."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from fedeas.cli import show
from fedeas.errors import InputError
from fedeas.progress import progress

if TYPE_CHECKING:
    from fedeas.generators import Generator
    from fedeas.generators.quality import Filtered


def fill(
    plan_file: Path = typer.Argument(
        ..., metavar="PLAN", help="A plan written by `fedeas plan --out`."
    ),
    generator: str = typer.Option(
        ...,
        help="'diffusion(model=FOLDER)', 'turbo(model=FOLDER, data=NAME)', 'pool(data=NAME)'; for "
        "tables 'gaussian(model=FOLDER)', 'gaussian(data=FILE, label=COLUMN)'; an installed "
        "generator, or package.module:Name.",
    ),
    cache: Path = typer.Option(Path("cache"), help="Folder that holds the caches."),
    seed: int = typer.Option(0, min=0, help="Seed of the samples."),
    batch: int = typer.Option(64, min=1, help="Batch size of the generator."),
    judge: Path | None = typer.Option(
        None,
        help="A judge from `generator judge`: samples that it takes for another class are redrawn.",
    ),
    tries: int = typer.Option(4, min=1, help="With a judge: draws per sample at most."),
    as_json: bool = show.json_option(),
) -> None:
    """Generate the samples of a plan; those already in the cache are reused.

    PLAN is a file written by `fedeas plan --out`. If interrupted, run again to resume. `fedeas
    generator train` makes the folder of a diffusion model, or of `gaussian` for a table.

    Example: `fedeas fill plan.csv --generator 'diffusion(model=fashion_mnist)'`
    """
    from fedeas.cache import Cache
    from fedeas.cache import fill as fill_cache
    from fedeas.generators import check_stated_classes, make_generator
    from fedeas.plan import Plan

    plan = Plan.load(plan_file)
    check_stated_classes(plan.classes or plan.samples.shape[1], generator)
    made = make_generator(generator)
    if judge is not None:
        made = judged = _filtered(made, judge, tries)
    target = Cache(cache, made, plan.classes or plan.samples.shape[1], seed)
    with progress("generating samples") as update:
        done = fill_cache(
            plan,
            made,
            target,
            batch,
            update,
            lambda: show.note("another process is filling this cache; waiting for it"),
        )
    for line in done.mended:
        show.note(f"repaired: {line}")
    if as_json:
        show.print_json({**asdict(done), "cache": str(target.folder), "total": plan.total})
    else:
        typer.echo(f"generated {done.generated:,} samples, {done.reused:,} already cached")
        typer.echo(f"cache            {target.folder}")
    if judge is not None and done.generated:
        show.note(
            f"judged: {judged.drawn:,} draws; {judged.unmet:,} samples still wrong after {tries}"
        )


def _filtered(made: "Generator", judge: Path, tries: int) -> "Filtered":
    from fedeas.generators.generator import heavy
    from fedeas.generators.quality import Filtered

    known = heavy("fedeas.generators.judge", "a judge", "diffusion").Judge.load(judge)
    names = getattr(made, "classes", None)
    if names is not None and tuple(names) != known.classes:
        raise InputError(
            "the judge and the generator have different classes",
            got=known.classes,
            allowed=", ".join(names),
        )
    return Filtered(made, known, known.fingerprint, tries)
