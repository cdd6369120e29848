"""`fedeas fill`: from a plan to samples on disk."""

import statistics
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from fedeas._internal import defaults
from fedeas._internal.progress import progress
from fedeas.cli import show
from fedeas.errors import InputError

if TYPE_CHECKING:
    from fedeas.generators import Generator
    from fedeas.planning.plan import Plan

_TIMED = 3  # batches of a dry run, after one to warm up


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
    cache: Path | None = typer.Option(
        None, help="Folder that holds the caches; by default .cache/fedeas/samples at home."
    ),
    seed: int = typer.Option(defaults.SEED, min=0, help="Seed of the samples."),
    batch: int = typer.Option(64, min=1, help="Batch size of the generator."),
    dry_run: bool = typer.Option(
        False, "--dry-run", help="Generate a few batches only: seconds per sample, and in all."
    ),
    as_json: bool = show.json_option(),
) -> None:
    """Generate the samples of a plan; those already in the cache are reused.

    PLAN is a .json or .parquet of `fedeas plan --out`. If interrupted, run again to resume. `fedeas
    generator train` makes the folder of a diffusion model, or of `gaussian` for a table. What
    `--dry-run --json` prints is a cost for `fedeas plan --cost FILE`.

    Example: `fedeas fill plan.json --generator 'diffusion(model=fashion_mnist)'`
    """
    from fedeas._internal.files import samples_folder
    from fedeas.cache import Cache
    from fedeas.cache.fill import fill as fill_cache
    from fedeas.generators import check_stated_classes, make_generator
    from fedeas.planning.plan import Plan

    plan = Plan.load(plan_file)
    classes = plan.classes or plan.samples.shape[1]
    check_stated_classes(classes, generator)
    source = make_generator(generator)
    if dry_run:
        _show_timing(plan, source, batch, as_json)
        return
    target = Cache(samples_folder(cache), source, classes, seed)
    if not target.file.exists():
        for other in target.nearly_the_same():
            show.note(other)
    with progress("generating samples") as update:
        note = "another process is filling this cache; waiting for it"
        done = fill_cache(plan, source, target, batch, update, lambda: show.note(note))
    for line in done.mended:
        show.note(f"repaired: {line}")
    if as_json:
        show.print_json({**asdict(done), "cache": str(target.folder), "total": plan.total})
    else:
        typer.echo(f"generated {done.generated:,} samples, {done.reused:,} already cached")
        typer.echo(f"cache            {target.folder}")


def _show_timing(plan: "Plan", source: "Generator", batch: int, as_json: bool) -> None:
    """Time a few batches of the plan's classes; print seconds per sample and of the plan."""
    import numpy as np

    from fedeas.planning.cost import Cost

    wanted = np.flatnonzero(plan.samples.sum(axis=0))
    if not wanted.size:
        raise InputError("the plan generates nothing", fix="nothing to time")
    batch = max(batch, getattr(source, "least_batch", 1))  # as a fill does
    labels = np.resize(wanted, batch)
    times = []
    with progress("timing batches") as update:
        for n in range(_TIMED + 1):
            start = time.perf_counter()
            source.sample(labels, np.arange(n * batch, (n + 1) * batch, dtype=np.uint64))
            times.append(time.perf_counter() - start)
            update(n + 1, _TIMED + 1)
    per_sample = statistics.median(times[1:]) / batch
    cost = Cost.parse(f"{per_sample!r}s")
    if as_json:
        show.print_json(
            {
                "seconds_per_sample": per_sample,
                "samples": plan.total,
                "hours": per_sample * plan.total / 3600,
                "batch": batch,
                "generator": source.fingerprint,
            }
        )
        return
    typer.echo(f"{per_sample:.4g} s per sample, {1 / per_sample:,.1f} samples/s at batch {batch}")
    typer.echo(f"plan             {plan.total:,} samples: {cost.of(plan.total)}")
    typer.echo(f"use it           fedeas plan COUNTS --cost {per_sample:.4g}s")
