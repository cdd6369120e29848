"""What a generator's training data are worth without a federation.

Beside every generator that saw more than a client may: a classifier that is trained centrally on
the very samples that the generator saw, and one trained on its samples alone. Both are of the
study's model and rate, and take as many steps as one pass over all clients' samples has, times the
federation's rounds and epochs. Samples are drawn once; seeds repeat the training.
"""

import csv
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from fedeas._internal.seeds import child_rng
from fedeas.cache.fill import fill
from fedeas.data.kinds import Array
from fedeas.errors import InputError
from fedeas.lab.resolve import Run, resolve
from fedeas.lab.sweep import read_sweep, run_specs
from fedeas.train.loop import accuracy, fit, steps_of
from fedeas.train.models import make_model
from fedeas.train.samples import Samples
from reproduction.study import DATA, write_record

RECORD = Path(__file__).parent / "recorded" / "central.csv"
MOST_DRAWN = 10_000
REAL = "the generator's data"


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
    agreement: float  # the share of the synthetic samples that it takes for what they are to be


def central_runs(sweep: Path, seeds: Sequence[int]) -> Iterator[CentralRun]:
    """Train both classifiers of a sweep of the study, once a seed."""
    specs = list(run_specs(read_sweep(sweep)))
    by_grid = {spec.grid.name: spec for spec in reversed(specs)}  # the first run of each grid
    config = by_grid["central" if "central" in by_grid else "where"].config
    run = resolve(config)
    rounds, local = config.federated.rounds, config.federated.local
    per_pass = steps_of(int(run.federation.counts.n.sum()), local.replace(epochs=1))
    local = local.replace(epochs=1, steps=rounds * local.epochs * per_pass)
    real = seen(run)
    labels = np.asarray(run.federation.data.labels)[real]
    synthetic = Samples.of(run.federation.data, real[:0], *_synthetic(run, labels))
    for seed in seeds:
        for what, samples in (
            (REAL, Samples.of(run.federation.data, real)),
            ("synthetic samples alone", synthetic),
        ):
            model = make_model(config.federated.model, run.task, seed)
            fit(model, samples, local, child_rng(seed, "central", what))
            share, by_class = accuracy(model, Samples.of(run.federation.data, run.federation.test))
            yield CentralRun(
                DATA[config.data.name], what, len(samples), seed, local.steps, local.learning_rate,
                round(share, 5), round(float(np.nanmean(by_class)), 5),
                round(accuracy(model, synthetic)[0], 5),
            )  # fmt: skip


def _synthetic(run: Run, like: NDArray[np.int64]) -> tuple[Array, NDArray[np.int64]]:
    """Return synthetic samples and their classes: rows as many as there are real ones.

    Images take long: they are those that the run's plan has, from its cache.
    """
    generator, cache = run.generator, run.cache
    if generator is None or cache is None:
        raise InputError("the first run of the sweep generates nothing")
    if run.federation.data.kind == "image":
        fill(run.plan, generator, cache, run.config.augment.batch)
        parts = [
            cache.samples(client, wanted.tolist())
            for client, wanted in zip(run.plan.client_names, run.plan.samples, strict=True)
            if wanted.any()
        ]
        samples, labels = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
        return samples, labels
    rng = child_rng(run.config.seed, "central")
    labels = like if len(like) <= MOST_DRAWN else rng.choice(like, MOST_DRAWN, False)
    return generator.sample(labels, rng.integers(2**62, size=len(labels), dtype="u8")), labels


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
