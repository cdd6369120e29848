"""`fedeas demo`: the full pipeline on real images, in minutes."""

import time
from pathlib import Path
from typing import Any

import typer

from fedeas.cli import results, show
from fedeas.progress import progress


def demo(
    out: Path = typer.Option(Path("fedeas-demo"), help="Output folder."),
) -> None:
    """Run the full pipeline on real images: skew, plan, samples, training, gain.

    Uses Fashion-MNIST if it is in FEDEAS_DATA, otherwise scikit-learn's digits. A diffusion model
    that comes with fedeas draws the samples; it was trained in one place on all training images,
    most of which no client has. Ends with a report. Takes minutes; run again to resume.

    Example: `fedeas demo --out fedeas-demo`
    """
    from fedeas.files import make_folder
    from fedeas.generators.generator import heavy

    scenes = heavy("fedeas.experiments.demo", "the demo", "demo")
    runs = heavy("fedeas.experiments.run", "the demo", "demo")
    from fedeas.experiments.sharing import share_out
    from fedeas.report.assemble import Sweep, assemble

    begun = time.monotonic()
    make_folder(out)
    scene = scenes.find_scene(out / "digits")
    base = _base(scene, out)
    federation = share_out(base)
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
    _draw(runs, base, plan, out)
    show.note("")
    show.note("4. Training on Flower, with and without.")
    trained, tables = _train(base, beta, out)
    show.note("")
    show.note("5. The gain.")
    results.give(tables, None, False)
    title = f"{scene.about}, with and without synthetic samples"
    page = assemble(out / "report", title, [Sweep("demo", trained, tables)])
    minutes = (time.monotonic() - begun) / 60
    # What an earlier call did, and what it took, is in the report's own tables.
    typer.echo(f"report           {page} ({minutes:.1f} minutes this time)")


def _base(scene: Any, out: Path) -> Any:
    """Return the config that all runs of the demo share."""
    from fedeas.settings.config import Augment, Config, Data, PartitionConfig
    from fedeas.settings.training import Federated, Local

    return Config(
        data=Data(scene.data, scene.folder, hold_out=scene.hold_out),
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
    from fedeas import FedEAS, InfeasibleError, admissible_betas

    try:
        beta = admissible_betas(counts).choice
    except InfeasibleError:
        beta = 8.0
    return beta, FedEAS(beta=beta).plan(counts)


def _full(counts: Any) -> int:
    from fedeas import FullBalance

    total: int = FullBalance().plan(counts).total
    return total


def _draw(runs: Any, base: Any, plan: Any, out: Path) -> None:
    """Fill the cache with progress, and write a picture of the first samples."""
    from fedeas.cache import fill
    from fedeas.report.folders import first_images
    from fedeas.report.samples import save_grid

    beta = plan.settings["beta"]
    augment = base.augment.replace(policy=f"fedeas(beta={beta:g})")
    config = base.replace(augment=augment)
    ready = runs.prepare(config)
    cache = ready.open_cache(config)
    with progress("generating samples") as update:
        done = fill(ready.plan, ready.generator, cache, augment.batch, update)
    path = out / "samples.png"
    save_grid(first_images(cache, ready.plan), ready.plan.class_names, path)
    typer.echo(
        f"generated {done.generated:,} images in {done.seconds:.0f} s, {done.reused:,} already "
        f"cached; the first of each class are in {path}"
    )


def _train(base: Any, beta: float, out: Path) -> tuple[Any, Any]:
    """Run both at once and return the runs and their table."""
    from fedeas.cli.sweep import watching
    from fedeas.errors import FedeasError
    from fedeas.experiments import runner, sweep, tables
    from fedeas.experiments import runs as finished_runs
    from fedeas.settings.sweep import Grid, Sweep

    policies = ["none", f"fedeas(beta={beta:g})"]
    grid = Grid(
        "demo", "With and without synthetic samples", (policies[1],), None,
        {"augment.policy": policies},
    )  # fmt: skip
    planned = sweep.plan_runs(Sweep(name="demo", base=base.to_dict(), grids=(grid,)))
    cells = sweep.fill_in(list(planned))
    entries = [cell.entry for cell in cells]
    finished_runs.write_index(out / "runs", "demo", grid.title, entries)
    with watching() as watch:
        ended = runner.run_cells(cells, out / "runs", watch=watch)
    for run in ended:
        if run.state == runner.FAILED:
            raise FedeasError(f"{run.cell.name} failed: {run.wrong}")
    found, _ = finished_runs.read_runs(out / "runs", entries)
    return found, tables.make_tables(found, entries)
