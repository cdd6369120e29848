"""What a generator's training data are worth without a federation.

Beside every generator that saw more than a client may: a classifier that is trained centrally on
the very samples that the generator saw, and one trained on its samples alone. Both are of the
study's model and rate, and take as many steps as one pass over all clients' samples has, times the
federation's rounds and epochs.
"""

import csv
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from fedeas._util.seeds import child_rng
from fedeas.errors import InputError
from fedeas.training.loop import accuracy, fit, steps_of
from fedeas.training.models import make_model
from fedeas.training.samples import Samples
from fedeas_lab.resolve import Run, resolve
from fedeas_lab.sweep import read_sweep, run_specs
from reproduction.study import DATA, write_record

RECORD = Path(__file__).parent / "recorded" / "central.csv"
MOST_DRAWN = 10_000  # a diffusion model takes a minute for 1,000 images on one core


@dataclass(frozen=True)
class CentralRun:
    """A classifier that was trained in one place."""

    data: str
    trained_on: str
    samples: int
    seed: int
    steps: int
    learning_rate: float
    accuracy: float
    class_mean: float


def central_runs(sweep: Path, seeds: Sequence[int]) -> Iterator[CentralRun]:
    """Train both classifiers of a sweep of the study, once a seed."""
    specs = list(run_specs(read_sweep(sweep)))
    by_grid = {spec.grid.name: spec for spec in reversed(specs)}  # the first run of each grid
    config = by_grid["central" if "central" in by_grid else "where"].config
    run = resolve(config)
    if run.generator is None:
        raise InputError(f"{sweep} generates nothing")
    rounds, local = config.federated.rounds, config.federated.local
    per_pass = steps_of(int(run.federation.counts.n.sum()), local.replace(epochs=1))
    local = local.replace(epochs=1, steps=rounds * local.epochs * per_pass)
    real = seen(run)
    labels = np.asarray(run.federation.data.labels)[real]
    for seed in seeds:
        rng = child_rng(seed, "central")
        wanted = labels if len(labels) <= MOST_DRAWN else rng.choice(labels, MOST_DRAWN, False)
        seeds_of_samples = rng.integers(2**62, size=len(wanted), dtype=np.uint64)
        batch = config.augment.batch
        drawn = np.concatenate(
            [
                run.generator.sample(wanted[i : i + batch], seeds_of_samples[i : i + batch])
                for i in range(0, len(wanted), batch)
            ]
        )
        for what, samples in (
            ("the generator's data", Samples.of(run.federation.data, real)),
            ("synthetic samples alone", Samples.of(run.federation.data, real[:0], drawn, wanted)),
        ):
            model = make_model(config.federated.model, run.task, seed)
            fit(model, samples, local, child_rng(seed, "central", what))
            share, by_class = accuracy(model, Samples.of(run.federation.data, run.federation.test))
            yield CentralRun(
                DATA[config.data.name], what, len(samples), seed, local.steps, local.learning_rate,
                round(share, 5), round(float(np.nanmean(by_class)), 5),
            )  # fmt: skip


def seen(run: Run) -> NDArray[np.int64]:
    """Return the samples that the generator was trained on."""
    federation = run.federation
    # The diffusion model of CIFAR-10 saw what no client holds; the others saw all training samples.
    return (
        federation.pool
        if federation.data.name == "cifar10"
        else np.arange(federation.data.train_size)
    )


def read_central(path: Path = RECORD) -> list[CentralRun]:
    """Read the runs of a record; a record that is not there has none."""
    if not path.exists():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        return [msgspec.convert(line, CentralRun, strict=False) for line in csv.DictReader(file)]


def write_central(path: Path, runs: Sequence[CentralRun]) -> None:
    """Write every run as a line of CSV, after those of other data sets that are there."""
    data = {run.data for run in runs}
    every = [*(run for run in read_central(path) if run.data not in data), *runs]
    write_record(path, [f.name for f in fields(CentralRun)], map(asdict, every))
