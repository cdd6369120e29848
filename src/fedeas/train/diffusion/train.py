"""Training a diffusion model: interrupted at any moment, it resumes exactly where it was.

Which images a step sees, with which noise, is a function of (seed, step) alone, so several GPUs
share one batch without changing what is in it.
"""

import copy
import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from accelerate import Accelerator
from diffusers import UNet2DModel
from diffusers.training_utils import EMAModel
from numpy.typing import NDArray

from fedeas._internal.names import choice
from fedeas._internal.seeds import child_rng
from fedeas.data.dataset import Dataset
from fedeas.errors import InputError
from fedeas.generators.card import TrainingRecord
from fedeas.train.checkpointed import AdamTraining, Checkpoint, train_steps
from fedeas.train.diffusion.sample import save_model
from fedeas.train.models.unet import DESIGNS, Draw, UNetConfig, denoising_loss
from fedeas.train.tensors import (
    autocast,
    choose_device,
    precision,
    seeded,
    stream,
    torch_seed,
)

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Training:
    """How a model is trained; `drop` of the labels are hidden, for classifier-free guidance."""

    design: UNetConfig
    steps: int
    batch: int
    learning_rate: float
    warmup: int
    decay: bool  # of the learning rate, to zero along a cosine
    average: float  # the weights' moving average
    drop: float
    precision: str = "float32"
    clip: float = 1.0  # bound on the norm of the gradient


PRESETS = {
    "paper": Training(
        DESIGNS["paper"],
        steps=300_000, batch=128, learning_rate=8e-5, warmup=0, decay=False, average=0.995,
        drop=0.5, precision="bfloat16",
    ),
    # Most of an hour on two CPU cores.
    "tiny": Training(
        DESIGNS["tiny"],
        steps=6_000, batch=64, learning_rate=6e-4, warmup=200, decay=True, average=0.999,
        drop=0.15, precision="bfloat16",
    ),
}  # fmt: skip


def preset(name: str) -> Training:
    """Return a preset by name."""
    return PRESETS[choice(name, "preset", PRESETS)]


@dataclass(frozen=True)
class TrainingProgress:
    """The progress of a training run."""

    step: int
    steps: int
    loss: float  # mean since the last report
    images_per_second: float


def train(
    data: Dataset,
    out: Path,
    training: Training,
    seed: int = 0,
    device: str = "auto",
    checkpoint_every: int = 500,
    report: Callable[[TrainingProgress], None] | None = None,
) -> Path:
    """Train on the official training images and return the model's folder.

    Called again with the same arguments it resumes from its last checkpoint. `report` is called
    at checkpoints, and about once a second.
    """
    model, path = out / "model", out / "checkpoint.safetensors"
    if model.exists() and not path.exists():
        raise InputError(f"{out} holds a model, but no checkpoint", fix="choose another folder")
    accelerator = Accelerator(cpu=choose_device(device).type == "cpu", mixed_precision="no")
    if training.batch % accelerator.num_processes:
        raise InputError(
            "the batch size is not divisible by the number of processes", got=training.batch
        )
    run, first = _Run(data, training, seed, accelerator), accelerator.is_main_process
    about = {**asdict(training), "seed": seed, "data": data.fingerprint}
    if first:
        out.mkdir(parents=True, exist_ok=True)
    checkpoint = Checkpoint(path, about, every_steps=checkpoint_every)
    checkpoint.resume(run.training)
    train_steps(
        run.training,
        training.steps,
        run.loss,
        partial(_learning_rate, training),
        checkpoint if first else None,
        _Reporter(training, checkpoint_every, report) if first and report is not None else None,
        training.clip,
        accelerator.backward,
    )
    accelerator.wait_for_everyone()
    if first:
        record = TrainingRecord(data.fingerprint, data.train_size, training.steps)
        shape = data.samples.shape[1:]
        save_model(model, run.averaged(), training.design, data.classes, shape, record)
    accelerator.wait_for_everyone()
    return model


class _Reporter:
    """Reports the mean loss and the speed, at checkpoints and about once a second.

    To read a loss more often would keep a GPU waiting.
    """

    def __init__(
        self, training: Training, every: int, report: Callable[[TrainingProgress], None]
    ) -> None:
        self._training, self._every, self._report = training, every, report
        self._losses: list[torch.Tensor] = []
        self._since = time.monotonic()

    def __call__(self, done: int, loss: torch.Tensor) -> None:
        self._losses.append(loss)
        steps, elapsed = self._training.steps, time.monotonic() - self._since
        if done % self._every == 0 or done == steps or elapsed > 1:
            images = len(self._losses) * self._training.batch / elapsed
            mean = float(torch.stack(self._losses).mean())
            self._report(TrainingProgress(done, steps, mean, images))
            self._losses, self._since = [], time.monotonic()


class _Run:
    """The network in training, its average, and the batches, on whatever devices there are."""

    def __init__(
        self, data: Dataset, training: Training, seed: int, accelerator: Accelerator
    ) -> None:
        self._data, self._settings, self._seed = data, training, seed
        self._accelerator = accelerator
        height, width, colours = data.samples.shape[1:]
        side = training.design.padded(height, width)
        with seeded(torch_seed(seed, "weights")):
            network = training.design.network(len(data.classes), colours, side)
        self._network = network.to(accelerator.device)
        self._average = EMAModel(self._network.parameters(), decay=training.average, foreach=True)
        optimizer = torch.optim.AdamW(
            self._network.parameters(), training.learning_rate, weight_decay=0.0, foreach=True
        )
        self.training = AdamTraining(self._network, optimizer, self._average)
        self._wrapped = accelerator.prepare_model(self._network)
        self._noise = training.design.noise()
        self._epoch, self._order = -1, np.empty(0, np.int64)

    def loss(self, step: int) -> torch.Tensor:
        """Return the loss of this process's part of a step's batch, drawn from (seed, step)."""
        data, settings, device = self._data, self._settings, self._accelerator.device
        chosen = self._images(np.arange(step * settings.batch, (step + 1) * settings.batch))
        labels = torch.from_numpy(np.asarray(data.labels)[chosen])
        rng, shape = stream(self._seed, "step", step), data.samples.shape[1:]
        draw = Draw.of(labels, len(data.classes), shape, settings.design, settings.drop, rng)
        part = slice(self._accelerator.process_index, None, self._accelerator.num_processes)
        draw = Draw(draw.labels[part], draw.times[part], draw.noise[part])
        images = torch.from_numpy(np.asarray(data.samples[chosen[part]])).to(device)
        with autocast(device, precision(settings.precision)):
            return denoising_loss(self._wrapped, settings.design, self._noise, images, draw)

    def _images(self, positions: Ints) -> Ints:
        """Return the images at positions of an endless order: every epoch has a permutation."""
        images, epochs = np.empty_like(positions), positions // self._data.train_size
        for epoch in np.unique(epochs).tolist():
            if epoch != self._epoch:
                rng = child_rng(self._seed, "epoch", epoch)
                self._epoch, self._order = epoch, rng.permutation(self._data.train_size)
            at = epochs == epoch
            images[at] = self._order[positions[at] % self._data.train_size]
        return images

    def averaged(self) -> UNet2DModel:
        """Return a network with the averaged weights."""
        network = copy.deepcopy(self._network)
        self._average.copy_to(network.parameters())
        return network


def _learning_rate(training: Training, step: int) -> float:
    rate = training.learning_rate * min(1.0, (step + 1) / max(1, training.warmup))
    if training.decay:
        rate *= 0.5 * (1 + math.cos(math.pi * step / training.steps))
    return rate
