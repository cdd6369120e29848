"""Duplicate runs: copies of a run, and runs of one seed on two grids, count once."""

from collections.abc import Callable, Hashable, Sequence

from fedeas.experiments.results import summarise
from fedeas.experiments.runs import Entry, Run


def distinct_runs(
    runs: Sequence[Run], row: Callable[[Entry], Hashable]
) -> tuple[list[Run], list[str]]:
    """Return the runs that count, one per row of a table and seed, and a note on every other one.

    A run is identified by its experiment: settings, data, generator and code, wherever it ran.
    """
    kept: dict[Hashable, Run] = {}
    notes: list[str] = []
    for run in runs:
        first = kept.setdefault((row(run.entry), run.entry.seed), run)
        if first is not run:
            notes.append(_note(first, run))
    return list(kept.values()), notes


def _note(first: Run, other: Run) -> str:
    names = f"{_name(first)} and {_name(other)}"
    seed = first.entry.seed
    if first.result["experiment"] != other.result["experiment"]:
        return f"{names} both have seed {seed}: only the first is counted"
    if first.result["curves"]["accuracy"] == other.result["curves"]["accuracy"]:
        return f"{names} are the same run: it is counted once"
    accuracies = [100 * summarise(run.result["curves"])["accuracy_last"] for run in (first, other)]
    return (
        f"{names} claim to be the same run but differ ({accuracies[0]:.1f} and "
        f"{accuracies[1]:.1f} %): only the first is counted"
    )


def _name(run: Run) -> str:
    return str(run.place) if run.place is not None else run.entry.folder
