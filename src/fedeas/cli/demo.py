"""`fedeas demo`: the full pipeline on a federation of real sites."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import typer

from fedeas._internal.files import make_folder, read_json, write_json
from fedeas._internal.optional import import_extra
from fedeas.cli import result_tables, show


def demo(
    out: Path = typer.Option(Path("fedeas-demo"), help="Output folder."),
    data: Path | None = typer.Option(
        None, metavar="FOLDER", help="Forest data that you have: train.parquet and test.parquet."
    ),
) -> None:
    """Run the full pipeline on 14 real sites: skew, plan, generator, training, gain.

    A row is a patch of forest, its label the kind of forest. Sites are wilderness areas by climatic
    zone, from the data that scikit-learn's fetch_covtype downloads once (or
    FEDEAS_DATA/natural/covertype_areas, or --data). Compared are real samples alone, copies, and
    FedEAS with a generator that the sites make together at epsilon 1: no row leaves its site. Takes
    two minutes; run again to resume.

    Example: `fedeas demo --out fedeas-demo`
    """
    import_extra("fedeas.lab.resolve", "the demo", "lab")  # before anything is written
    make_folder(out)
    clock = _Clock(out / "seconds.json")
    try:
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
    forest = import_extra("fedeas.lab.forest", "the demo", "lab")
    resolving = import_extra("fedeas.lab.resolve", "the demo", "lab")
    from fedeas.lab.report.story import story_figure
    from fedeas.planning.policies import copyable
    from fedeas.plots.canvas import save_figure

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
    result_tables.print_tables(tables, as_json=False)
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


def _show_skew(counts: Any, title: str) -> None:
    """Print the classes of the first clients."""
    table = show.new_table(
        title,
        ("client", False), *((name[:7], True) for name in counts.class_names),
    )  # fmt: skip
    for name, row in list(zip(counts.client_names, counts.n.tolist(), strict=True))[:14]:
        table.add_row(name, *(str(n) if n else "." for n in row))
    show.print_table(table)


def _train(
    base: Any, changes: Sequence[Mapping[str, Any]], out: Path, clock: _Clock,
    match: tuple[str, ...] = (),
) -> tuple[Any, Any]:  # fmt: skip
    """Run a config with each of some changes, several at once; return the runs and their table."""
    from fedeas.cli.sweep import live_table
    from fedeas.errors import FedeasError
    from fedeas.lab import results as finished
    from fedeas.lab import runner, sweep, tables

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
