"""How long a sweep will take: from the runs that are finished, or from a few steps timed now."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fedeas._internal.seeds import child_rng
from fedeas.errors import FedeasError
from fedeas.lab.config import Config
from fedeas.lab.resolve import (
    Run,
    open_data,
    partition_data,
    resolve,
)
from fedeas.lab.runner import finished_result
from fedeas.lab.sweep import Cell, unique
from fedeas.train.loop import fit, keep_memory, scores, use_threads
from fedeas.train.models import make_model
from fedeas.train.samples import Samples, Task
from fedeas.train.tensors import choose_device

_STEPS = 8  # of training, timed after two that are not
_TESTED = 1024  # images evaluated to time that
_IMAGES = 16  # generated to time a generator

Kind = tuple[Any, ...]


@dataclass(frozen=True)
class RunEstimate:
    """Seconds that a run takes; None where a part cannot be timed, and why."""

    cell: Cell
    finished: bool
    start: float  # imports, opening the data and sharing them out
    training: float  # all rounds, with the evaluations between them
    generation: float | None
    why: str = ""
    uncounted: str = ""  # a method that takes more than the plain training that was timed

    @property
    def seconds(self) -> float:
        """The sum of all known parts."""
        return self.start + self.training + (self.generation or 0.0)


def estimate(
    cells: Sequence[Cell],
    root: Path,
    progress: Callable[[int, int], None] | None = None,
    importing: float = 0.0,
) -> list[RunEstimate]:
    """Estimate the time of every run of a sweep, from finished runs where there are any.

    If no similar run is finished, a few plain training steps, the evaluation of some images and a
    few generated ones are timed. A method that takes more than plain steps is then underestimated,
    until a run of it is finished. `importing` is the time to import PyTorch and the rest, which
    every run does again.
    """
    runs = unique(cells)
    results = {cell.name: finished_result(cell, root) for cell in runs}
    steps, images = _Rates(), _Rates()
    for cell in runs:
        if (result := results[cell.name]) is not None:
            curves, generation = result["curves"], result["generation"]
            local = cell.config.federated.local
            passes = cell.passes if local.steps else sum(curves["trained_on"]) * local.epochs
            steps.add(_step_kind(cell.config), sum(curves["seconds"]), passes)
            images.add(cell.config.augment.generator, generation["seconds"], generation["made"])
    timed = _Timings(steps, images)
    estimates = []
    for number, cell in enumerate(runs, start=1):
        estimates.append(timed.estimate(cell, results[cell.name] is not None, importing))
        if progress is not None:
            progress(number, len(runs))
    return estimates


class _Timings:
    """Times of finished runs, and times measured for the others, each once."""

    def __init__(self, steps: "_Rates", images: "_Rates") -> None:
        self._finished, self._images = steps, images
        self._steps, self._tests = _Rates(), _Rates()
        self._starts: dict[Kind, tuple[float, int]] = {}

    def estimate(self, cell: Cell, done: bool, importing: float) -> RunEstimate:
        generation, why = self._generation(cell)
        a_step = self._finished.rate(_step_kind(cell.config))
        if done:
            return RunEstimate(cell, done, 0.0, (a_step or 0.0) * cell.passes, generation, why)
        opening, tested = self._start(cell.config)
        if a_step is not None:
            return RunEstimate(
                cell, done, importing + opening, a_step * cell.passes, generation, why
            )
        training = self._training(cell, tested)
        method = cell.config.federated.method
        uncounted = "" if method == "fedavg" else method.split("(")[0]
        return RunEstimate(cell, done, importing + opening, training, generation, why, uncounted)

    def _training(self, cell: Cell, tested: int) -> float:
        """Return the seconds of all rounds with FedAvg's steps."""
        federated = cell.config.federated
        plain = cell.config.replace(federated=federated.replace(method="fedavg"))
        kind = _step_kind(plain)
        if (rate := self._finished.rate(kind)) is not None:
            return rate * cell.passes
        if self._steps.rate(kind) is None:
            self._steps.add(kind, _time_training(plain), 1)
            self._tests.add(kind, _time_evaluation(plain), 1)
        evaluations = -(-federated.rounds // federated.eval_every)
        step, test = self._steps.rate(kind) or 0.0, self._tests.rate(kind) or 0.0
        return step * cell.passes + test * tested * evaluations

    def _start(self, config: Config) -> tuple[float, int]:
        """Return the seconds to open a run's data, and how many images it is tested on."""
        kind = (config.data, config.partition)
        if kind not in self._starts:
            begun = time.monotonic()
            tested = len(partition_data(config).test)
            self._starts[kind] = time.monotonic() - begun, tested
        return self._starts[kind]

    def _generation(self, cell: Cell) -> tuple[float | None, str]:
        if not cell.generated:
            return 0.0, ""
        name = cell.config.augment.generator
        an_image = self._images.rate(name)
        if an_image is None:
            try:
                an_image = _time_generation(resolve(cell.config))
                self._images.add(name, an_image, 1)
            except FedeasError as error:
                return None, str(error)
        return an_image * cell.generated, ""


class _Rates:
    """Seconds and pieces of work by kind."""

    def __init__(self) -> None:
        self._totals: dict[Kind | str, tuple[float, float]] = {}

    def add(self, kind: Kind | str, seconds: float, pieces: float) -> None:
        before = self._totals.get(kind, (0.0, 0.0))
        self._totals[kind] = before[0] + seconds, before[1] + pieces

    def rate(self, kind: Kind | str) -> float | None:
        seconds, pieces = self._totals.get(kind, (0.0, 0.0))
        return seconds / pieces if pieces else None


def _step_kind(config: Config) -> Kind:
    """Return what the cost of a training step depends on."""
    federated = config.federated
    method = federated.method.split("(")[0]
    local = federated.local.replace(epochs=1, steps=0, learning_rate=1.0)
    return config.data.name, federated.model, local, federated.threads, config.device, method


def _time_training(config: Config) -> float:
    """Return the seconds that an image takes in plain training."""
    data = open_data(config)
    task = Task.of(data)
    federated = config.federated
    keep_memory()
    use_threads(federated.threads)
    settings = federated.model.replace(weights="")
    device = choose_device(config.device)
    model = make_model(settings, task, 0).to(device)
    once = federated.local.replace(epochs=1, steps=0)
    for steps in (2, _STEPS):
        samples = Samples.of(data, np.arange(min(steps * once.batch, data.train_size)))
        begun = time.monotonic()
        fit(model, samples, once, child_rng(0, "timing"))
        _wait_for(device)
    return (time.monotonic() - begun) / len(samples)


def _wait_for(device: torch.device) -> None:
    """Wait until a GPU has finished: its steps are only queued when `fit` returns."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _time_evaluation(config: Config) -> float:
    """Return the seconds that an image takes in an evaluation."""
    data = open_data(config)
    model = make_model(config.federated.model.replace(weights=""), Task.of(data), 0)
    model = model.to(choose_device(config.device))
    samples = Samples.of(data, np.arange(min(_TESTED, data.train_size)))
    for _ in range(2):  # the first one warms up
        begun = time.monotonic()
        scores(model, samples, config.federated.local.precision)
    return (time.monotonic() - begun) / len(samples)


def _time_generation(run: Run) -> float:
    """Return the seconds that an image takes to generate; those made while training take none."""
    if run.generator is None or run.cache is None:
        return 0.0
    labels = np.arange(_IMAGES) % len(run.federation.data.classes)
    begun = time.monotonic()
    run.generator.sample(labels, np.arange(_IMAGES, dtype=np.uint64))
    return (time.monotonic() - begun) / _IMAGES
