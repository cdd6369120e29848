"""`fedeas sweep`: run a grid of configs, and show them in one table."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import typer

from fedeas.cli import show


def sweep(
    sweep_file: Path = typer.Argument(..., metavar="SWEEP", help="A base and its grids (.toml)."),
    out: Path = typer.Option(Path("runs"), help="Folder of all runs; a folder each."),
    only: list[str] | None = typer.Option(
        None, "--grid", help="Only this grid of the file; may be repeated."
    ),
    jobs: int | None = typer.Option(
        None, help="Runs at once; as many as there are cores or GPUs unless given."
    ),
) -> None:
    """Run a grid of configs: what is finished is skipped, what was cut off goes on.

    Example: `fedeas sweep configs/cpu/fashion.toml --dry-run`
    """
    from fedeas.generators.generator import heavy

    sweeps = heavy("fedeas.experiments.sweep", "federated training", "train")
    crew = heavy("fedeas.experiments.crew", "federated training", "train")
    read = sweeps.read_sweep(sweep_file)
    planned = [run for run in sweeps.plan_runs(read) if not only or run.grid.name in only]
    with show.progress("sharing out") as update:
        cells = sweeps.fill_in(planned, update)
    runs = crew.run_cells(cells, out, jobs, _Lines())
    failed = [run for run in runs if run.state == crew.FAILED]
    for run in failed:
        show.note(f"{run.cell.name}: {run.wrong}")
    if failed:
        raise typer.Exit(1)


class _Lines:
    """Where nobody watches: a line when a run begins or ends."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}

    def __call__(self, runs: Sequence[Any]) -> None:
        for run in runs:
            if self._known.get(run.cell.name) != run.state and run.state != "waiting":
                self._known[run.cell.name] = run.state
                at = time.strftime("%H:%M:%S")
                show.note(f"{at} {run.state:<8} {run.cell.name} {run.wrong}")
