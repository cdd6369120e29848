"""`fedeas demo`: the full pipeline on a federation of real sites, or on images."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import typer

from fedeas._util.files import make_folder, read_json, write_json
from fedeas._util.optional import import_extra
from fedeas._util.progress import progress
from fedeas.cli import show
from fedeas.errors import InputError
from fedeas_lab.cli import results


def demo(
    out: Path = typer.Option(Path("fedeas-demo"), help="Output folder."),
    data: Path | None = typer.Option(
        None, metavar="FOLDER", help="Forest data that you have: train.parquet and test.parquet."
    ),
    images: bool = typer.Option(
        False, "--images", help="Images instead, drawn by a model trained in one place."
    ),
) -> None:
    """Run the full pipeline on 14 real sites: skew, plan, generator, training, gain.

    A row is a patch of forest, its label the kind of forest. Sites are wilderness areas by climatic
    zone, from the data that scikit-learn's fetch_covtype downloads once (or
    FEDEAS_DATA/natural/covertype_areas, or --data). Compared are real samples alone, copies, and
    FedEAS with a generator that the sites make together at epsilon 1: no row leaves its site. Takes
    two minutes; run again to resume.

    --images: Fashion-MNIST if it is in FEDEAS_DATA, otherwise scikit-learn's digits, with a
    diffusion model that was trained in one place on all training images, most of which no client
    has.

    Example: `fedeas demo --out fedeas-demo`
    """
    if images and data is not None:
        raise InputError("give --data or --images, not both", got=str(data))
    import_extra("fedeas_lab.resolve", "the demo", "demo")  # before anything is written
    make_folder(out)
    clock = _Clock(out / "seconds.json")
    try:
        if images:
            _demo_images(out, clock)
        else:
            _demo_forest(out, data, clock)
    finally:
        clock.save()


class _Clock:
    """Seconds of this call and of earlier ones, which a file in the demo's folder holds."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._begun = self._saved = time.monotonic()
        self._earlier = float(read_json(file)["seconds"]) if file.exists() else 0.0

    def save(self) -> None:
        """Write the seconds down."""
        self._saved = time.monotonic()
        write_json(self._file, {"seconds": round(self._earlier + self._saved - self._begun, 1)})

    def tick(self) -> None:
        """Write them down from time to time, so that a killed demo has them too."""
        if time.monotonic() > self._saved + 2:
            self.save()

    def __str__(self) -> str:
        now = time.monotonic() - self._begun
        total = show.seconds_text(self._earlier + now)
        return f"{total}, {show.seconds_text(now)} of it this time" if self._earlier else total


def _demo_forest(out: Path, data: Path | None, clock: _Clock) -> None:
    forest = import_extra("fedeas_lab.forest", "the demo", "demo")
    resolving = import_extra("fedeas_lab.resolve", "the demo", "demo")
    from fedeas.planning.policies import copyable
    from fedeas.plots.canvas import save_figure
    from fedeas_lab.report.story import story_figure

    configs = forest.forest_configs(out, data)
    federation = resolving.partition_data(configs["fedeas"])
    counts = federation.counts
    show.note(f"1. The skew. Forest cover by area and zone: {federation.describe()}")
    _show_skew(counts, "Rows per site and class")
    show.note("")
    show.note("2. The generator: noisy sums of the sites at epsilon 1. No row leaves its site.")
    run = resolving.resolve(configs["fedeas"])
    show.note("")
    show.note("3. The plan, from label counts alone.")
    plan = run.plan
    copies = int(copyable(plan.samples, counts.n).sum())
    typer.echo(
        f"FedEAS with beta = {plan.settings['beta']:g}: {plan.total:,} samples remove "
        f"{show.percent(plan.reduction)} of the imbalance; copies could make {copies:,}, "
        f"{plan.total - copies:,} must be generated"
    )
    show.note("")
    show.note("4. Training on Flower, with as many steps for each of the three.")
    changes = [
        {
            "augment.policy": config.augment.policy,
            "augment.generator": config.augment.generator,
            "federated.local.learning_rate": [forest.RATE],  # a list: it stands in the table
        }
        for config in configs.values()
    ]
    trained, tables = _train(configs["fedeas"], changes, out, clock, (forest.POLICY,))
    show.note("")
    show.note("5. The gain.")
    results.print_tables(tables, as_json=False)
    typer.echo(
        "gain: points of accuracy over none, real samples alone with as many steps; one seed"
    )
    typer.echo(
        "learning_rate: each way at its own best, or level with it, of "
        f"{', '.join(f'{rate:g}' for rate in forest.GRID)}, chosen on rows that nobody is tested on"
    )
    curves = {way: {config.seed: _accuracies(trained, config)} for way, config in configs.items()}
    title = f"Forest cover: {counts.K} sites, {counts.C} classes"
    save_figure(story_figure(counts, plan, curves, title), out / "picture.png")
    typer.echo(f"picture          {out / 'picture.png'} ({clock})")


def _accuracies(runs: Sequence[Any], config: Any) -> dict[int, float]:
    """Return the accuracy by round of the run of a config's policy."""
    policy = config.augment.policy
    result = next(run.result for run in runs if run.entry.policy == policy)
    return dict(enumerate(result["curves"]["accuracy"], start=1))


def _demo_images(out: Path, clock: _Clock) -> None:
    scenes = import_extra("fedeas_lab.demo", "the demo", "demo")
    resolving = import_extra("fedeas_lab.resolve", "the demo", "demo")
    from fedeas_lab.report.page import SweepResults, assemble

    scene = scenes.find_scene(out / "digits")
    base = _base(scene, out)
    federation = resolving.partition_data(base)
    counts = federation.counts
    show.note(f"1. The skew. {scene.about}: {federation.describe()}")
    _show_skew(counts, "Images per client and class")
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
    policies = [{"augment.policy": policy} for policy in ("none", f"fedeas(beta={beta:g})")]
    trained, tables = _train(base, policies, out, clock)
    show.note("")
    show.note("5. The gain.")
    results.print_tables(tables, as_json=False)
    title = f"{scene.about}, with and without synthetic samples"
    page = assemble(out / "report", title, [SweepResults("demo", trained, tables)])
    typer.echo(f"report           {page} ({clock})")


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


def _show_skew(counts: Any, title: str) -> None:
    """Print the classes of the first clients."""
    table = show.new_table(
        title,
        ("client", False), *((name[:7], True) for name in counts.class_names),
    )  # fmt: skip
    for name, row in list(zip(counts.client_names, counts.n.tolist(), strict=True))[:14]:
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


def _train(
    base: Any, changes: Sequence[Mapping[str, Any]], out: Path, clock: _Clock,
    match: tuple[str, ...] = (),
) -> tuple[Any, Any]:  # fmt: skip
    """Run a config with each of some changes, several at once; return the runs and their table."""
    from fedeas.errors import FedeasError
    from fedeas_lab import results as finished
    from fedeas_lab import runner, sweep, tables
    from fedeas_lab.cli.sweep import live_table

    title = "With and without synthetic samples"
    grids = tuple(sweep.GridConfig("demo", title, match, None, dict(change)) for change in changes)
    config = sweep.SweepConfig(name="demo", base=base.to_dict(), grids=grids)
    cells = sweep.make_cells(list(sweep.run_specs(config)))
    entries = [cell.entry for cell in cells]
    finished.write_index(out / "runs", "demo", title, entries)
    with live_table() as on_progress:
        ended = runner.run_cells(cells, out / "runs", on_progress=_both(on_progress, clock))
    for run in ended:
        if run.state == runner.FAILED:
            raise FedeasError(f"{run.cell.name} failed: {run.error}")
    runs, _ = finished.read_runs(out / "runs", entries)
    # Copies and generated samples are compared on purpose, which needs no note.
    compared = tables.make_tables(runs, entries, mixed=True)
    return runs, [replace(table, notes=()) for table in compared]


def _both(on_progress: Callable[[Any], None], clock: _Clock) -> Callable[[Any], None]:
    def look(runs: Any) -> None:
        on_progress(runs)
        clock.tick()

    return look
