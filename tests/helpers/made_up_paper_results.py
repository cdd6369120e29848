"""Finished runs of the paper's sweeps without training: results in the real format, on disk.

Their accuracies are those that the paper prints, with a little noise by seed, so it is known what
every claim has to say.
"""

import random
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import pytest

from fedeas import LabelCounts
from fedeas._internal.files import write_json
from fedeas.lab import experiment, sweep
from fedeas.lab.config import Config, PartitionConfig
from fedeas.lab.resolve import Run
from fedeas.lab.results import curves, summarise, write_index
from fedeas.lab.sweep import Cell, make_cells, read_sweep, run_specs
from fedeas.partition import FLBench
from fedeas.planning.policies import make_policy
from reproduction.tables import BETAS, COMBINED_PEAK, printed

CONFIGS = Path(__file__).parents[2] / "reproduction" / "configs"
SIZES = {"cifar10": [6000] * 10, "cifar100": [600] * 100}
NOISE = 2e-6  # of an accuracy: what the paper prints is then far beyond it
DRIFTS = {"none": 1.42e-4, "uniform": 2.15e-5, "fedeas": 1.95e-5, "full-balance": 1.14e-6}
HOURS = {"fedeas": 187 / 60, "full-balance": 696 / 60}
ARRIVAL = {(20, "fedeas"): 30, (20, "missing-only"): 60, (100, "fedeas"): 59,
           (100, "missing-only"): 100}  # fmt: skip
ABLATION = {"fedeas(beta=8)": 70.86, "entropy": 70.34, "size_exponent": 70.33}
TURBO = {"fedeas": 60.0, "uniform": 60.0 - 2.46}


def counts_of(config: Config) -> LabelCounts:
    """Label counts as the paper's recipe has them, without a data set."""
    return _counts(config.data.name, config.data.split, config.partition, config.seed)


@cache
def _counts(name: str, split: str, cut: PartitionConfig, seed: int) -> LabelCounts:
    paper = split == "merged"
    sizes = [n if paper else n * 5 // 6 for n in SIZES[name]]
    # Some partitions take thousands of tries; with clients of one sample, few.
    least = 10 if seed == 42 and paper else 1
    recipe = FLBench(cut.clients, cut.alpha, seed, 0.25 if paper else 0.0, least)
    return recipe.counts(sizes)


def cells_of(name: str, monkeypatch: pytest.MonkeyPatch) -> list[Cell]:
    """Every cell of reproduction/configs/paper/NAME.toml, with totals of the real class sizes."""
    monkeypatch.setattr(sweep, "partition_data", lambda c: SimpleNamespace(counts=counts_of(c)))
    monkeypatch.setattr(sweep, "_passes", lambda *_: 0)  # of 200 rounds of 600 runs: seconds
    return make_cells(list(run_specs(read_sweep(CONFIGS / "paper" / f"{name}.toml"))))


def levels(cell: Cell) -> tuple[float, float]:
    """The accuracy of the last rounds and the peak that the paper prints for a cell, in parts."""
    config = cell.config
    place = config.data.name, config.partition.clients, config.partition.alpha
    policy, method = cell.entry.policy, cell.entry.method
    name = policy.split("(")[0]
    if config.augment.generator.startswith("turbo"):
        return TURBO[name] / 100, TURBO[name] / 100
    last = printed(*place, method, policy) or 50.0
    peak = printed(*place, method, policy, peak=True) or last
    if (method, name) == ("scaffold", "fedeas"):
        last = peak = COMBINED_PEAK
    swept = {f"fedeas(beta={beta})": (own, other) for beta, own, other in BETAS}
    if policy in swept and policy != "fedeas(beta=12)":
        last = peak = swept[policy][0]
    if policy == "uniform" and cell.entry.match in swept and cell.entry.match != "fedeas(beta=12)":
        last = peak = swept[cell.entry.match][1]
    for setting, value in ABLATION.items():
        if setting in policy:
            last = peak = value
    return last / 100, max(last, peak) / 100


def history(cell: Cell, flip: bool) -> list[dict]:
    """Rounds with the printed accuracies, or with as much below one half as they are above."""
    config, name = cell.config, cell.entry.policy.split("(")[0]
    noise = random.Random(cell.name).gauss(0, NOISE)
    last, peak = levels(cell)
    if flip:
        last, peak = 1 - last, 1 - last
    rounds = config.federated.rounds
    arrived = ARRIVAL.get((config.partition.clients, name), 1)
    accuracy = [min(last, 0.6)] * (arrived - 1) + [last] * (rounds - arrived + 1)
    accuracy[arrived + 10] = peak
    drift = DRIFTS.get(name, 1e-4) * (1 + noise)
    seconds = 3600 * HOURS.get(name, 3.0) / rounds * (1 + noise)
    classes = len(SIZES[config.data.name])
    return [
        {"round": n, "accuracy": a + noise, "drift": drift, "drift_all": drift / 2,
         "seconds": seconds, "trained_on": 10, "per_class": [a] * classes}
        for n, a in enumerate(accuracy, start=1)
    ]  # fmt: skip


def write_results(
    root: Path, cells: list[Cell], wanted: Callable[[Cell], bool], flip: bool = False
) -> Path:
    """Write the results of chosen cells as finished runs of a sweep."""
    for cell in {cell.name: cell for cell in cells if wanted(cell)}.values():
        config = cell.config.replace(device="cpu")
        counts = counts_of(config)
        plan = make_policy(config.augment.policy).plan(counts)
        drawn_by = SimpleNamespace(fingerprint=config.augment.generator) if plan.total else None
        classes = tuple(map(str, range(counts.C)))
        federation = SimpleNamespace(
            describe=lambda: "as the paper's",
            data=SimpleNamespace(classes=classes, fingerprint="", sites=None),
        )
        resolved = Run(
            config, None, federation, plan, drawn_by, None, None, None, versions="fedeas"
        )
        series = curves(history(cell, flip))
        made = {"made": plan.total, "seconds": 0.0}
        result = {
            **experiment.about(resolved),
            **summarise(series),
            "generation": made,
            "curves": series,
        }
        (root / cell.name).mkdir(parents=True)
        write_json(root / cell.name / "result.json", result)
    write_index(root, root.name, "", [cell.entry for cell in cells])
    return root
