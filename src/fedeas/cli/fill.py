"""`fedeas fill`: from a plan, or one client's counts, to samples on disk."""

import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import typer

from fedeas._internal import defaults
from fedeas._internal.progress import progress
from fedeas.cli import label_counts, show
from fedeas.errors import InputError

if TYPE_CHECKING:
    from fedeas.cache import Cache, Filled
    from fedeas.generators import Generator
    from fedeas.planning.plan import PlanRows

_TIMED = 3  # batches of a dry run, after one to warm up
_CLIENT, _RAY = "One client by itself", "Workers"  # groups of options


def fill(
    plan_file: Path | None = typer.Argument(
        None, metavar="[PLAN]", help="A plan written by `fedeas plan --out`."
    ),
    generator: str = typer.Option(
        ...,
        metavar="SPEC",
        help="'diffusion(model=FOLDER)', 'turbo(model=FOLDER, data=NAME)', 'pool(data=NAME)'; for "
        "tables 'gaussian(model=FOLDER)', 'gaussian(data=FILE, label=COLUMN)'; an installed "
        "generator, or package.module:Name.",
    ),
    cache: str | None = typer.Option(
        None, metavar="PLACE",
        help="Folder or address (s3://...) of the caches; .cache/fedeas/samples at home.",
    ),
    seed: int = typer.Option(defaults.SEED, min=0, metavar="N", help="Seed of the samples."),
    batch: int = typer.Option(64, min=1, metavar="N", help="Batch size of the generator."),
    png: bool = typer.Option(False, "--png", help="Store images as PNG."),
    per_client: bool = typer.Option(
        False, "--per-client", help="Keep the samples of each client in a folder of its own."
    ),
    dry_run: bool = typer.Option(
        False, "--dry-run", help="Only time a few batches: seconds per sample."
    ),
    workers: int = typer.Option(
        0, min=0, metavar="N", rich_help_panel=_RAY,
        help="Processes of Ray that generate; 0: this one alone.",
    ),
    gpus_per_worker: float = typer.Option(
        0.0, min=0, metavar="N", rich_help_panel=_RAY, help="GPUs of each worker."
    ),
    threads: int | None = typer.Option(
        None, min=1, metavar="N", rich_help_panel=_RAY, help="Threads of each worker."
    ),
    address: str | None = typer.Option(
        None, metavar="HOST:PORT", rich_help_panel=_RAY, help="A Ray cluster that exists, or auto."
    ),
    counts: Path | None = typer.Option(
        None, metavar="FILE", rich_help_panel=_CLIENT,
        help="The client's own counts, in place of a plan.",
    ),
    client: str | None = typer.Option(
        None, metavar="NAME", rich_help_panel=_CLIENT, help="The client."
    ),
    reduction: float | None = typer.Option(
        None, metavar="PART", rich_help_panel=_CLIENT,
        help="The part of its own imbalance that it removes.",
    ),
    beta: float | None = typer.Option(
        None, metavar="BETA", rich_help_panel=_CLIENT, help="The paper's rule."
    ),
    as_json: bool = show.json_option(),
) -> None:  # fmt: skip
    """Generate the samples of a plan; those already in the cache are reused.

    PLAN is a file of `fedeas plan --out`. If interrupted, run again to resume. Samples
    are Parquet files that any program reads. A client that knows its own counts alone gives them
    in place of a plan: `--counts own.csv --client north --reduction 0.5`.

    Example: `fedeas fill plan.json --generator 'diffusion(model=fashion_mnist)'`
    """
    from fedeas.cache import Cache
    from fedeas.cache.storage import samples_place
    from fedeas.generators import check_stated_classes, make_generator
    from fedeas.planning.plan import PlanRows

    if not workers and (gpus_per_worker or address is not None):
        raise InputError("--gpus-per-worker and --address are of workers", fix="give --workers N")
    if plan_file is not None and counts is None:
        plan = PlanRows.load(plan_file)
        if client is not None:
            plan = plan.only(client)
    else:
        plan = _plan_alone(plan_file, counts, client, reduction, beta)
    classes = plan.classes or plan.samples.shape[1]
    check_stated_classes(classes, generator)
    source = make_generator(generator)
    if dry_run:
        _show_timing(plan, source, batch, as_json)
        return
    target = Cache(samples_place(cache), source, classes, seed)
    if not target.exists():
        for other in target.nearly_the_same():
            show.note(other)
    settings = {
        "batch_size": batch, "workers": workers, "gpus_per_worker": gpus_per_worker,
        "address": address, "threads": threads, "encoding": "png" if png else "raw",
    }  # fmt: skip
    done = _fill(plan, generator if workers else source, target, per_client, settings)
    _show_filled(done, plan, target, plan_file, per_client, as_json)
    if done.failed:
        raise typer.Exit(1)


def _show_filled(
    done: "Filled", plan: "PlanRows", target: "Cache", plan_file: Path | None, per_client: bool,
    as_json: bool,
) -> None:  # fmt: skip
    """Print what was generated, where it is, and how an app takes it."""
    for line in done.mended:
        show.note(f"damaged, and generated again: {line}")
    for failed in done.failed:
        show.note(str(failed))
    places = {
        name: target.of_client(name).place
        for name, row in zip(plan.client_names, plan.samples, strict=True)
        if per_client and row.any()
    }
    if as_json:
        failures = [
            {"clients": list(f.segments.names), "labels": f.segments.labels.tolist(),
             "samples": f.segments.total, "reason": f.reason} for f in done.failed
        ]  # fmt: skip
        facts = {
            **asdict(done),
            "failed": failures,
            "cache": target.place,
            "total": plan.total,
            "places": places,
        }
        show.print_json(facts)
    else:
        typer.echo(f"generated {done.generated:,} samples, {done.reused:,} already cached")
        typer.echo(f"cache            {target.place}")
        for name, place in places.items():
            typer.echo(f"{name:<16} {place}")
        if plan_file is not None and not places:
            where = f'samples="{target.place}", plan="{plan_file}"'
            typer.echo(f"in an app        fedeas.augment(train, {where}, client=NAME)")


def _plan_alone(
    plan_file: Path | None, counts: Path | None, client: str | None, reduction: float | None,
    beta: float | None,
) -> "PlanRows":  # fmt: skip
    """Return the plan of a client that sees its own counts alone."""
    from fedeas.planning.policies import EqualReduction, FedEAS

    if plan_file is not None or counts is None:
        raise InputError("give either a plan, or --counts with --client and --reduction")
    if client is None or (reduction is None) == (beta is None):
        raise InputError("--counts needs --client, and --reduction or --beta")
    table = label_counts.load_counts(counts, "fill")
    policy = FedEAS(beta=beta) if beta is not None else EqualReduction(reduction=reduction or 0.0)
    return policy.plan(table).rows.only(client)


def _fill(
    plan: "PlanRows", generator: "str | Generator", target: "Cache", per_client: bool,
    settings: Mapping[str, object],
) -> "Filled":  # fmt: skip
    """Fill with progress: for all clients at once, or for one after the other."""
    from fedeas.cache.fill import FillStatus, fill, fill_by_client

    price = plan.cost
    if price is not None and (price.unit == "s" or price.by_client):  # batches mix clients
        price = None
    with progress("generating") as update:

        def report(moment: FillStatus) -> None:
            spent = "" if price is None else f", {price.of(moment.done)}"
            update(moment.done, moment.total, f"{moment}{spent}")

        how = fill_by_client if per_client else fill
        return how(plan, generator, target, status=report, **settings)  # type: ignore[arg-type]


def _show_timing(plan: "PlanRows", source: "Generator", batch: int, as_json: bool) -> None:
    """Generate and write a few batches of the plan; print seconds per sample and of the plan."""
    import numpy as np

    from fedeas.cache import Cache
    from fedeas.cache.fill import fill
    from fedeas.planning.cost import Cost

    if not plan.total:
        raise InputError("the plan generates nothing", fix="nothing to time")
    batch = max(batch, getattr(source, "least_batch", 1))  # as a fill does
    some = plan.first(_TIMED * batch)
    warm = np.flatnonzero(plan.samples.sum(axis=0))
    source.sample(np.resize(warm, batch), np.arange(batch, dtype=np.uint64))
    with TemporaryDirectory() as folder, progress("timing batches") as update:
        begun = time.perf_counter()
        classes = plan.classes or plan.samples.shape[1]
        fill(some, source, Cache(folder, source, classes), batch, update)
        per_sample = (time.perf_counter() - begun) / some.total
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
