"""`fedeas sweep`: run a grid of configs, and show them in one table."""

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.table import Table as RichTable

from fedeas._internal.progress import progress
from fedeas.cli import result_tables, show

_STATES = (
    "failed",
    "running",
    "finished",
    "waiting",
)  # the order if not all runs fit on the screen


def sweep(
    sweep_file: Path = typer.Argument(..., metavar="SWEEP", help="Base config and grids (.toml)."),
    out: Path | None = typer.Option(None, help="Folder of all runs (default runs/NAME)."),
    only: list[str] | None = typer.Option(
        None, "--grid", help="Only this grid of the file; may be repeated."
    ),
    seeds: list[int] | None = typer.Option(
        None, "--seed", help="Only runs of this seed; may be repeated."
    ),
    jobs: int | None = typer.Option(
        None, help="Runs at the same time (default: one per core or GPU)."
    ),
    dry_run: bool = typer.Option(
        False, "--dry-run", help="List the runs, what they generate and how long they will take."
    ),
    tables_only: bool = typer.Option(
        False, "--tables", help="Run nothing; show the tables of finished runs."
    ),
    mixed: bool = typer.Option(
        False,
        "--mixed",
        help="Allow runs of other versions, counts or generators in one table.",
    ),
    export: Path | None = typer.Option(
        None, help="Write all finished runs to one file (.jsonl), with their curves."
    ),
    as_json: bool = show.json_option(),
) -> None:
    """Run a grid of configs; finished runs are skipped, interrupted ones resume.

    SWEEP is a TOML file with a table `[base]`, a config, and a `[[grid]]` for every set of runs.

    Example: `fedeas sweep reproduction/configs/cpu/tables.toml --dry-run`
    """
    from fedeas._internal.optional import import_extra
    from fedeas.lab import results as finished
    from fedeas.lab import tables

    begun = time.monotonic()
    sweeps = import_extra("fedeas.lab.sweep", "federated training", "train")
    runner = import_extra("fedeas.lab.runner", "federated training", "train")
    importing = time.monotonic() - begun
    config = sweeps.read_sweep(sweep_file)
    show.check_known("grid", only, [grid.name for grid in config.grids])
    root = out or Path("runs") / config.name
    with progress("partitioning") as update:
        cells = sweeps.make_cells(list(sweeps.run_specs(config)), update)
    chosen = [cell for cell in cells if not only or cell.spec.grid.name in only]
    if seeds:
        known = sorted({cell.spec.config.seed for cell in chosen})
        show.check_known("seed", [str(seed) for seed in seeds], [str(seed) for seed in known])
        chosen = [cell for cell in chosen if cell.spec.config.seed in seeds]
    if config.title and not as_json:
        typer.echo(config.title)
    if dry_run:
        _list(chosen, root, as_json, importing)
        return
    entries = [cell.entry for cell in cells]
    finished.write_index(root, config.name, config.title, entries)
    failed = [] if tables_only else _run(runner, chosen, root, jobs)
    runs, missing = finished.read_runs(root, entries)
    for line in (line for line in missing if "not finished" not in line):
        show.note(line)
    shown = tables.make_tables(runs, [cell.entry for cell in chosen], mixed)
    if export is not None:
        finished.export(export, runs)
        show.note(f"wrote {len(runs)} runs to {export}")
    result_tables.print_tables(shown, as_json)
    if failed:
        raise typer.Exit(1)


def _run(runner: Any, cells: Sequence[Any], root: Path, jobs: int | None) -> list[Any]:
    """Run what is not finished, and return what failed."""
    with live_table() as on_progress:
        runs = runner.run_cells(cells, root, jobs, on_progress)
    failed = [run for run in runs if run.state == runner.FAILED]
    for run in failed:
        show.note(f"{run.cell.name} failed: {run.error}")
    return failed


def _list(cells: Sequence[Any], root: Path, as_json: bool, importing: float) -> None:
    """Print the runs with what they generate and an estimate of time."""
    from fedeas._internal.optional import import_extra

    estimates = import_extra("fedeas.lab.estimate", "federated training", "train")
    with progress("timing") as update:
        runs = estimates.estimate(cells, root, update, importing)
    open_runs = [one for one in runs if not one.finished]
    seconds = sum(one.seconds for one in open_runs)
    if as_json:
        show.print_json(
            [
                {
                    "run": one.cell.name,
                    "finished": one.finished,
                    "generated": one.cell.generated,
                    "passes": one.cell.passes,
                    "start_seconds": round(one.start, 1),
                    "training_seconds": round(one.training, 1),
                    "generation_seconds": one.generation and round(one.generation, 1),
                    "why": one.why,
                }
                for one in runs
            ]
        )
        return
    table = show.new_table(
        f"{show.count_of(len(runs), 'run')}, {len(runs) - len(open_runs)} of them finished",
        ("grid", False), ("run", False), ("samples to generate", True), ("start", True),
        ("generation", True), ("training", True), ("", False),
    )  # fmt: skip
    for one in runs:
        generation = "?" if one.generation is None else show.seconds_text(one.generation)
        table.add_row(
            one.cell.spec.grid.name,
            one.cell.name,
            f"{one.cell.generated:,}",
            show.seconds_text(one.start),
            generation if one.cell.generated else "-",
            show.seconds_text(one.training),
            "finished" if one.finished else "",
        )
    show.print_table(table)
    typer.echo(
        f"{show.count_of(len(open_runs), 'run')} to do: "
        f"{sum(one.cell.generated for one in open_runs):,} samples at most, about "
        f"{show.seconds_text(seconds)} one after the other (start, generation, training with its "
        "evaluations)"
    )
    if methods := dict.fromkeys(one.uncounted for one in open_runs if one.uncounted):
        show.note(
            f"not counted: what {', '.join(methods)} takes beyond plain training, until a run "
            "is finished"
        )
    for why in dict.fromkeys(one.why for one in runs if one.why):
        show.note(f"generation cannot be timed: {why}")


@contextmanager
def live_table() -> Iterator[Any]:
    """Yield a function that shows all runs: a live table on a terminal, otherwise plain lines."""
    from rich.live import Live

    console = Console(stderr=True)
    if not console.is_terminal:
        yield _Lines()
        return
    with Live(console=console, refresh_per_second=4, transient=True) as live:
        yield lambda runs: live.update(_live(runs, console.height - 4))


class _Lines:
    """A line when a run begins or ends."""

    def __init__(self) -> None:
        self._states: dict[str, str] = {}

    def __call__(self, runs: Sequence[Any]) -> None:
        for run in runs:
            if self._states.get(run.cell.name) != run.state and run.state != "waiting":
                self._states[run.cell.name] = run.state
                done = sum(one.state == "finished" for one in runs)
                at = time.strftime("%H:%M:%S")
                show.note(f"{at} {run.state:<8} {run.cell.name} ({done} of {len(runs)} finished)")
        sys.stderr.flush()


def _live(runs: Sequence[Any], height: int) -> RichTable:
    """Return the table of all runs; if they do not fit, failed and running ones come first."""
    from fedeas.lab.runner import seconds_left

    now = time.monotonic()
    done = sum(run.state == "finished" for run in runs)
    table = show.new_table(
        f"{done} of {len(runs)} runs finished",
        ("run", False), ("", False), ("round", True), ("accuracy", True), ("left", True),
    )  # fmt: skip
    ordered = list(runs)
    if len(ordered) > height:
        ordered.sort(key=lambda run: _STATES.index(run.state))
    for run in ordered[: max(1, height)]:
        line = run.line
        number = f"{line['round']}/{run.rounds}" if line.get("round") else ""
        if run.state == "running" and line.get("of") and not number:
            number = f"{line['made']:,}/{line['of']:,} samples"
        remaining = seconds_left(run, now)
        table.add_row(
            run.cell.name,
            run.error or run.state,
            number,
            show.percent(line["accuracy"]) if "accuracy" in line else "",
            "" if remaining is None else show.seconds_text(remaining),
        )
    return table
