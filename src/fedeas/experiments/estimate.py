"""How long a sweep will take: from the runs that are finished, or from a few steps timed now."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fedeas.data import load_images
from fedeas.errors import FedeasError
from fedeas.experiments.config import Config
from fedeas.experiments.crew import finished_result
from fedeas.experiments.run import prepare
from fedeas.experiments.sweep import Cell, unique
from fedeas.seeds import child_rng
from fedeas.tensors import choose_device
from fedeas.training.loop import fit, keep_memory, use_threads
from fedeas.training.models import Task, make_model
from fedeas.training.samples import Samples

_STEPS = 8  # of training, timed after two that are not
_IMAGES = 16  # generated to time a generator

Kind = tuple[Any, ...]


@dataclass(frozen=True)
class Estimate:
    """Seconds that a run takes; None where a part cannot be timed, and why."""

    cell: Cell
    finished: bool
    training: float
    generation: float | None
    why: str = ""

    @property
    def seconds(self) -> float:
        """What is known of it."""
        return self.training + (self.generation or 0.0)


def estimate(
    cells: Sequence[Cell], root: Path, progress: Callable[[int, int], None] | None = None
) -> list[Estimate]:
    """Estimate every run of a sweep; what is finished teaches what the rest costs.

    Where nothing of a kind has run yet, plain training steps and a few images are timed. A method
    that takes more than plain steps is then underestimated, until a run of it is finished.
    """
    runs = unique(cells)
    results = {cell.name: finished_result(cell, root) for cell in runs}
    steps, images = _Known(), _Known()
    for cell in runs:
        if (result := results[cell.name]) is not None:
            curves, made = result["curves"], result["generation"]
            passes = sum(curves["trained_on"]) * cell.config.federated.local.epochs
            steps.add(_step_kind(cell.config), sum(curves["seconds"]), passes)
            images.add(cell.config.augment.generator, made["seconds"], made["made"])
    found = []
    for number, cell in enumerate(runs, start=1):
        plain = replace(cell.config, federated=replace(cell.config.federated, method="fedavg"))
        a_step = steps.rate(_step_kind(cell.config)) or steps.rate(_step_kind(plain))
        if a_step is None:
            a_step = _time_training(plain)
            steps.add(_step_kind(plain), a_step, 1)
        an_image, why = 0.0 if not cell.generated else None, ""
        if an_image is None:
            an_image = images.rate(cell.config.augment.generator)
        if an_image is None:
            try:
                an_image = _time_generation(cell.config)
                images.add(cell.config.augment.generator, an_image, 1)
            except FedeasError as error:
                why = str(error)
        generation = None if an_image is None else an_image * cell.generated
        done = results[cell.name] is not None
        found.append(Estimate(cell, done, a_step * cell.passes, generation, why))
        if progress is not None:
            progress(number, len(runs))
    return found


class _Known:
    """Seconds and pieces of work by kind."""

    def __init__(self) -> None:
        self._seen: dict[Kind | str, tuple[float, float]] = {}

    def add(self, kind: Kind | str, seconds: float, pieces: float) -> None:
        before = self._seen.get(kind, (0.0, 0.0))
        self._seen[kind] = before[0] + seconds, before[1] + pieces

    def rate(self, kind: Kind | str) -> float | None:
        seconds, pieces = self._seen.get(kind, (0.0, 0.0))
        return seconds / pieces if pieces else None


def _step_kind(config: Config) -> Kind:
    """Return what the cost of a training step depends on."""
    federated = config.federated
    method = federated.method.split("(")[0]
    local = replace(federated.local, epochs=1, learning_rate=1.0)
    return config.data.name, federated.model, local, federated.threads, config.device, method


def _time_training(config: Config) -> float:
    """Return the seconds that an image takes in plain training."""
    data = load_images(config.data.name, config.data.folder)
    task = Task.of(data)
    federated = config.federated
    keep_memory()
    use_threads(federated.threads)
    settings = replace(federated.model, weights="")
    device = choose_device(config.device)
    model = make_model(settings, task, 0).to(device)
    once = replace(federated.local, epochs=1)
    for steps in (2, _STEPS):
        samples = Samples.of(data, np.arange(min(steps * once.batch, data.train_size)))
        begun = time.monotonic()
        fit(model, samples, once, child_rng(0, "timing"))
        _wait_for(device)
    return (time.monotonic() - begun) / len(samples)


def _wait_for(device: torch.device) -> None:
    """Wait until a GPU has done what it was given: its steps are only queued when `fit` returns."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _time_generation(config: Config) -> float:
    """Return the seconds that an image takes to generate."""
    generator = prepare(config).generator
    if generator is None:
        return 0.0
    classes = len(load_images(config.data.name, config.data.folder).classes)
    labels = np.arange(_IMAGES) % classes
    begun = time.monotonic()
    generator.sample(labels, np.arange(_IMAGES, dtype=np.uint64))
    return (time.monotonic() - begun) / _IMAGES
