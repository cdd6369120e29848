"""`fedeas demo`: the full pipeline on real images, in minutes."""

import time
from pathlib import Path
from typing import Any

import typer

from fedeas._util.progress import progress
from fedeas.cli import show
from fedeas_lab.cli import results


def demo(
    out: Path = typer.Option(Path("fedeas-demo"), help="Output folder."),
) -> None:
    """Run the full pipeline on real images: skew, plan, samples, training, gain.

    Uses Fashion-MNIST if it is in FEDEAS_DATA, otherwise scikit-learn's digits. A diffusion model
    that comes with fedeas draws the samples; it was trained in one place on all training images,
    most of which no client has. Ends with a report. Takes minutes; run again to resume.

    Example: `fedeas demo --out fedeas-demo`
    """
    from fedeas._util.files import make_folder
    from fedeas._util.optional import import_extra

    scenes = import_extra("fedeas_lab.demo", "the demo", "demo")
    resolving = import_extra("fedeas_lab.resolve", "the demo", "demo")
    from fedeas_lab.report.page import SweepResults, assemble

    begun = time.monotonic()
    make_folder(out)
    scene = scenes.find_scene(out / "digits")
    base = _base(scene, out)
    federation = resolving.partition_data(base)
    counts = federation.counts
    show.note(f"1. The skew. {scene.about}: {federation.describe()}")
    _show_skew(counts)
    beta, plan = _plan(counts)
    show.note("")
    show.note("2. The plan, from label counts alone.")
    typer.echo(
        f"FedEAS with beta = {beta:g}: {plan.total:,} samples remove "
        f"{show.percent(plan.reduction)} of the imbalance; full balance would take "
        f"{_full(counts):,}"
    )
    show.note("")
    show.note(f"3. The samples, drawn by {scene.generator}.")
    show.note(
        f"It was trained in one place on all {federation.data.train_size:,} training images, of "
        f"which the clients hold {counts.total:,}: the gain is not that of balancing alone."
    )
    _draw(resolving, base, plan, out)
    show.note("")
    show.note("4. Training on Flower, with and without.")
    trained, tables = _train(base, beta, out)
    show.note("")
    show.note("5. The gain.")
    results.print_tables(tables, as_json=False)
    title = f"{scene.about}, with and without synthetic samples"
    page = assemble(out / "report", title, [SweepResults("demo", trained, tables)])
    minutes = (time.monotonic() - begun) / 60
    # What an earlier call did, and what it took, is in the report's own tables.
    typer.echo(f"report           {page} ({minutes:.1f} minutes this time)")


def _base(scene: Any, out: Path) -> Any:
    """Return the config that all runs of the demo share."""
    from fedeas.training.settings import Federated, Local
    from fedeas_lab.config import Augment, Config, Data, PartitionConfig

    return Config(
        data=Data(scene.data, scene.folder, pool_per_class=scene.pool_per_class),
        partition=PartitionConfig("dirichlet", clients=scene.clients, alpha=0.1),
        augment=Augment(generator=scene.generator, cache=str(out / "cache"), batch=64),
        federated=Federated(
            rounds=scene.rounds,
            local=Local(scene.epochs, scene.batch, 0.1, precision="bfloat16"),
        ),
    )


def _show_skew(counts: Any) -> None:
    """Print the classes of the first clients."""
    table = show.new_table(
        "Images per client and class",
        ("client", False), *((name[:8], True) for name in counts.class_names),
    )  # fmt: skip
    for name, row in list(zip(counts.client_names, counts.n.tolist(), strict=True))[:10]:
        table.add_row(name, *(str(n) if n else "." for n in row))
    show.print_table(table)


def _plan(counts: Any) -> tuple[float, Any]:
    """Choose beta by the paper's two conditions; if none meets both, take a moderate one."""
    from fedeas import FedEAS, InfeasibleError
    from fedeas.planning.beta import admissible_betas

    try:
        beta = admissible_betas(counts).choice
    except InfeasibleError:
        beta = 8.0
    return beta, FedEAS(beta=beta).plan(counts)


def _full(counts: Any) -> int:
    from fedeas import FullBalance

    total: int = FullBalance().plan(counts).total
    return total


def _draw(resolving: Any, base: Any, plan: Any, out: Path) -> None:
    """Fill the cache with progress, and write a picture of the first samples."""
    from fedeas.cache import fill
    from fedeas.plots.samples import save_grid
    from fedeas_lab.report.samples import first_images

    beta = plan.settings["beta"]
    augment = base.augment.replace(policy=f"fedeas(beta={beta:g})")
    run = resolving.resolve(base.replace(augment=augment))
    with progress("generating samples") as update:
        filled = fill(run.plan, run.generator, run.cache, augment.batch, update)
    path = out / "samples.png"
    save_grid(first_images(run.cache, run.plan), run.plan.class_names, path)
    typer.echo(
        f"generated {filled.generated:,} images in {filled.seconds:.0f} s, {filled.reused:,} "
        f"already cached; the first of each class are in {path}"
    )


def _train(base: Any, beta: float, out: Path) -> tuple[Any, Any]:
    """Run both at once and return the runs and their table."""
    from fedeas.errors import FedeasError
    from fedeas_lab import results as finished
    from fedeas_lab import runner, sweep, tables
    from fedeas_lab.cli.sweep import live_table

    policies = ["none", f"fedeas(beta={beta:g})"]
    grid = sweep.GridConfig(
        "demo", "With and without synthetic samples", (policies[1],), None,
        {"augment.policy": policies},
    )  # fmt: skip
    config = sweep.SweepConfig(name="demo", base=base.to_dict(), grids=(grid,))
    cells = sweep.make_cells(list(sweep.run_specs(config)))
    entries = [cell.entry for cell in cells]
    finished.write_index(out / "runs", "demo", grid.title, entries)
    with live_table() as on_progress:
        ended = runner.run_cells(cells, out / "runs", on_progress=on_progress)
    for run in ended:
        if run.state == runner.FAILED:
            raise FedeasError(f"{run.cell.name} failed: {run.error}")
    runs, _ = finished.read_runs(out / "runs", entries)
    return runs, tables.make_tables(runs, entries)
