"""Training a diffusion model: interrupted at any moment, it resumes exactly where it was.

Which images a step sees, with which noise, is a function of (seed, step) alone. So a checkpoint
is the weights, their average and the optimiser's moments; there is no state of a random stream or
a loader to restore, and several GPUs share one batch without changing what is in it.
"""

import copy
import json
import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from accelerate import Accelerator
from diffusers import UNet2DModel
from diffusers.training_utils import EMAModel
from numpy.typing import NDArray

from fedeas.data.dataset import Dataset
from fedeas.errors import InputError
from fedeas.generators.diffusion import Diffusion, ModelMetadata, save_model
from fedeas.seeds import child_rng
from fedeas.tensors import (
    Tensors,
    autocast,
    choose_device,
    fresh_weights,
    load_tensors,
    precision,
    save_tensors,
)
from fedeas.training.models.unet import DESIGNS, Draw, UNetConfig, denoising_loss

Ints = NDArray[np.int64]
_MOMENTS = ("exp_avg", "exp_avg_sq")


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
    if name not in PRESETS:
        raise InputError("unknown preset", got=name, allowed=", ".join(PRESETS))
    return PRESETS[name]


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
    look: Callable[[int, Diffusion], None] | None = None,
) -> Path:
    """Train on the official training images and return the model's folder.

    Called again with the same arguments it resumes from its last checkpoint. `report` is called
    with the progress, `look` with the generator at every checkpoint.
    """
    _check(training, checkpoint_every)
    about = json.loads(json.dumps({**asdict(training), "seed": seed, "data": data.fingerprint}))
    checkpoint, model = out / "checkpoint.safetensors", out / "model"
    if model.exists() and not checkpoint.exists():
        raise InputError(f"{out} holds a model, but no checkpoint", fix="choose another folder")
    accelerator = Accelerator(cpu=choose_device(device).type == "cpu", mixed_precision="no")
    if training.batch % accelerator.num_processes:
        raise InputError(
            "the batch size is not divisible by the number of processes", got=training.batch
        )
    if accelerator.is_main_process:
        out.mkdir(parents=True, exist_ok=True)
    head = _head(data, training, 0)
    run = _Run(training, head, seed, accelerator)
    first = run.restore(checkpoint, about)
    losses, since, seen = torch.zeros((), device=accelerator.device), time.monotonic(), 0
    order = _Order(data.train_size, seed)
    for step in range(first, training.steps):
        losses += run.step(step, _batch(data, order, training, seed, step))
        seen += 1
        done = step + 1
        ending = done % checkpoint_every == 0 or done == training.steps
        if accelerator.is_main_process and (ending or time.monotonic() - since > 1):
            elapsed = time.monotonic() - since
            if report is not None:
                rate = seen * training.batch / elapsed
                report(TrainingProgress(done, training.steps, float(losses) / seen, rate))
            losses.zero_()
            since, seen = time.monotonic(), 0
        if ending and accelerator.is_main_process:
            run.save(checkpoint, done, about)
            if look is not None:
                look(done, run.generator(head))
            since = time.monotonic()
    accelerator.wait_for_everyone()
    if accelerator.is_main_process:
        save_model(model, run.averaged(), _head(data, training, training.steps))
    accelerator.wait_for_everyone()
    return model


class _Run:
    """The weights, their average and the optimiser, on whatever devices there are."""

    def __init__(
        self, training: Training, head: ModelMetadata, seed: int, accelerator: Accelerator
    ) -> None:
        self._training, self._accelerator = training, accelerator
        height, width, colours = head.shape
        side = training.design.padded(height, width)
        with fresh_weights(int(child_rng(seed, "weights").integers(2**62))):
            network = training.design.network(len(head.classes), colours, side)
        self._network = network.to(accelerator.device)
        self._average = EMAModel(self._network.parameters(), decay=training.average, foreach=True)
        self._optimizer = torch.optim.AdamW(
            self._network.parameters(), training.learning_rate, weight_decay=0.0, foreach=True
        )
        self._wrapped = accelerator.prepare_model(self._network)
        self._noise = training.design.noise()
        self._dtype = precision(training.precision)

    def step(self, step: int, batch: "_Batch") -> torch.Tensor:
        """Take one step on this process's part of the batch and return its loss."""
        accelerator, training = self._accelerator, self._training
        own = slice(accelerator.process_index, None, accelerator.num_processes)
        draw = Draw(batch.draw.labels[own], batch.draw.times[own], batch.draw.noise[own])
        images = batch.images[own].to(accelerator.device)
        with autocast(accelerator.device, self._dtype):
            loss = denoising_loss(self._wrapped, training.design, self._noise, images, draw)
        self._optimizer.param_groups[0]["lr"] = _learning_rate(training, step)
        self._optimizer.zero_grad(set_to_none=True)
        accelerator.backward(loss)
        torch.nn.utils.clip_grad_norm_(self._network.parameters(), training.clip)
        self._optimizer.step()
        self._average.step(self._network.parameters())
        return loss.detach()

    def save(self, path: Path, step: int, about: object) -> None:
        """Write the checkpoint, replacing the one before."""
        state: Tensors = {}
        for place, (name, weight) in enumerate(self._network.named_parameters()):
            state[f"weight.{name}"] = weight
            state[f"average.{name}"] = self._average.shadow_params[place]
            for moment in _MOMENTS:
                state[f"{moment}.{name}"] = self._optimizer.state[weight][moment]
        save_tensors(path, state, {"step": step, "training": about})

    def restore(self, path: Path, about: object) -> int:
        """Load the checkpoint if there is one; return the first step to take."""
        if not path.exists():
            return 0
        state, noted = load_tensors(path)
        _same(path, about, noted["training"])
        step = int(noted["step"])
        with torch.no_grad():
            for place, (name, weight) in enumerate(self._network.named_parameters()):
                weight.copy_(state[f"weight.{name}"])
                self._average.shadow_params[place].copy_(state[f"average.{name}"])
                own = {m: state[f"{m}.{name}"].to(weight.device) for m in _MOMENTS}
                self._optimizer.state[weight] = {"step": torch.tensor(float(step)), **own}
        self._average.optimization_step = step
        return step

    def averaged(self) -> UNet2DModel:
        """Return a network with the averaged weights."""
        network = copy.deepcopy(self._network)
        self._average.copy_to(network.parameters())
        return network

    def generator(self, head: ModelMetadata) -> Diffusion:
        """Return the generator as it is now, for looking at its images."""
        return Diffusion(
            self.averaged(),
            head,
            weights="in training",
            precision_name=self._training.precision,
            device=self._accelerator.device,
        )


@dataclass(frozen=True)
class _Batch:
    images: torch.Tensor
    draw: Draw


class _Order:
    """A new permutation of the images every epoch, a function of (seed, epoch)."""

    def __init__(self, size: int, seed: int) -> None:
        self._size, self._seed = size, seed
        self._epoch, self._permutation = -1, np.empty(0, np.int64)

    def at(self, places: Ints) -> Ints:
        """Return the images at these places of the endless order."""
        found = np.empty_like(places)
        for epoch in np.unique(places // self._size):
            if epoch != self._epoch:
                rng = child_rng(self._seed, "epoch", int(epoch))
                self._epoch, self._permutation = epoch, rng.permutation(self._size)
            own = places // self._size == epoch
            found[own] = self._permutation[places[own] % self._size]
        return found


def _batch(data: Dataset, order: _Order, training: Training, seed: int, step: int) -> _Batch:
    """Draw everything random of one step from (seed, step)."""
    chosen = order.at(np.arange(step * training.batch, (step + 1) * training.batch))
    rng = torch.Generator().manual_seed(int(child_rng(seed, "step", step).integers(2**62)))
    labels = torch.from_numpy(np.asarray(data.labels)[chosen])
    shape = data.samples.shape[1:]
    return _Batch(
        torch.from_numpy(np.asarray(data.samples[chosen])),
        Draw.of(labels, len(data.classes), shape, training.design, training.drop, rng),
    )


def _learning_rate(training: Training, step: int) -> float:
    rate = training.learning_rate * min(1.0, (step + 1) / max(1, training.warmup))
    if training.decay:
        rate *= 0.5 * (1 + math.cos(math.pi * step / training.steps))
    return rate


def _head(data: Dataset, training: Training, steps: int) -> ModelMetadata:
    height, width, colours = data.samples.shape[1:]
    return ModelMetadata(
        data.classes,
        (height, width, colours),
        data.fingerprint,
        training.design,
        steps,
        data.train_size,
    )


def _check(training: Training, checkpoint_every: int) -> None:
    for name, value in (
        ("steps", training.steps),
        ("batch", training.batch),
        ("checkpoint_every", checkpoint_every),
    ):
        if value < 1:
            raise InputError(f"not a number of {name}", got=value, allowed="a whole number from 1")


def _same(path: Path, wanted: object, found: object) -> None:
    """Refuse to resume another training run."""
    if wanted == found:
        return
    differ = "its settings"
    if isinstance(wanted, dict) and isinstance(found, dict):
        differ = ", ".join(sorted(k for k in wanted if wanted[k] != found.get(k)))
    raise InputError(
        f"{path} is from another training run: {differ}", fix="choose another folder, or remove it"
    )
