"""`diffusion`: a class-conditional DDPM on diffusers, sampled with classifier-free guidance.

    Ho, Jain, Abbeel: Denoising Diffusion Probabilistic Models, 2020.
    Ho, Salimans: Classifier-Free Diffusion Guidance, 2022.

A model is a folder: `unet/` and `scheduler/` as diffusers' `save_pretrained` writes them, and the
generator's card.
"""

import copy
import hashlib
import json
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from diffusers import DDIMScheduler, DPMSolverMultistepScheduler, UNet2DModel
from diffusers.utils.torch_utils import randn_tensor
from numpy.typing import NDArray
from safetensors import safe_open
from safetensors.torch import load_file
from torch.nn import functional

from fedeas._internal.names import choice
from fedeas._internal.scalars import integer
from fedeas.errors import InputError, first_line
from fedeas.generators.card import (
    GeneratorCard,
    TrainingData,
    TrainingRecord,
    find_model,
)
from fedeas.train.models import Denoiser, make_model
from fedeas.train.models.unet import UNetConfig
from fedeas.train.samples import Task
from fedeas.train.settings import Federated
from fedeas.train.tensors import Tensors, autocast, choose_device, precision, seeded

_LARGEST_SIDE = 4096  # of an image that a card may ask for
_SAMPLERS = {"ddim": 250, "dpm": 20}  # with their usual numbers of steps


def save_model(
    folder: Path,
    network: UNet2DModel,
    design: UNetConfig,
    classes: Sequence[str],
    shape: Sequence[int],
    training: TrainingRecord,
) -> None:
    """Write a model's folder; weights in half precision, half the size without a loss of quality.

    The card comes last: a folder without it is not a model.
    """
    folder.mkdir(parents=True, exist_ok=True)
    half = copy.deepcopy(network).cpu()
    for weight in half.parameters():
        weight.data = weight.data.half()
    half.save_pretrained(folder / "unet", safe_serialization=True)
    design.noise().save_pretrained(folder / "scheduler")
    settings = {"design": asdict(design)}
    card = GeneratorCard("diffusion", tuple(classes), tuple(shape), settings, training=training)
    card.save(folder)


def design_of(card: GeneratorCard) -> UNetConfig:
    """Return the network's design; refuse a card that does not describe one."""
    try:
        design = dict(card.settings["design"])
        for key in ("channels", "attention"):
            design[key] = tuple(design[key])
        if len(card.shape) != 3 or not 1 <= min(card.shape) <= max(card.shape) <= _LARGEST_SIDE:
            raise ValueError("not the shape of an image")
        return UNetConfig(**design)
    except (InputError, ValueError, KeyError, TypeError):
        raise InputError(
            "not the card of a diffusion model", fix="pass a folder of `fedeas generator train`"
        ) from None


class Diffusion:
    """Draws images from a trained model; each image's noise comes from its own seed."""

    def __init__(
        self,
        network: UNet2DModel,
        card: GeneratorCard,
        weights: str,
        sampler: str = "dpm",
        steps: int | None = None,
        guidance: float = 2.0,
        precision_name: str = "float32",
        device: torch.device | str = "auto",
    ) -> None:
        choice(sampler, "sampler", _SAMPLERS)
        design = design_of(card)
        most = design.timesteps
        steps = min(_SAMPLERS[sampler], most) if steps is None else steps
        steps = integer(steps, "not a number of steps", f"1 to {most}", low=1, high=most)
        if not 0 <= guidance <= 100:
            raise InputError("not a guidance scale", got=guidance, allowed="0 to 100; 1 is none")
        self.classes, self.card, self._design = card.classes, card, design
        self._sampler, self._steps, self._guidance = sampler, steps, float(guidance)
        self._dtype = precision(precision_name)
        self._device = choose_device(str(device))
        self._network = network.to(self._device).eval()
        training = card.training
        # Only what images depend on, in the order that cached samples are known by.
        model = {
            "classes": card.classes, "shape": card.shape, "data": training.data,
            "design": asdict(design), "steps": training.steps,
        }  # fmt: skip
        settings = [weights, model, sampler, steps, float(guidance), precision_name]
        self.training_data = TrainingData("training images", training.samples, training.data)
        self.fingerprint = f"diffusion-{hashlib.sha256(json.dumps(settings).encode()).hexdigest()}"

    @classmethod
    def load(cls, model: Path | str, **settings: Any) -> "Diffusion":
        """Open a model's folder, or one that an installed package brings, by its name."""
        folder = find_model(model)
        card = GeneratorCard.load(folder, "diffusion")
        design = design_of(card)
        weights = folder / "unet" / "diffusion_pytorch_model.safetensors"
        height, width, colours = card.shape
        try:
            # The card defines the network; `unet/config.json` is for other programs.
            network_of = partial(
                design.network, len(card.classes), colours, design.padded(height, width)
            )
            with torch.device("meta"):  # what a card claims takes no memory before it is checked
                expected = network_of().state_dict()
            _check_shapes(weights, {name: tuple(w.shape) for name, w in expected.items()})
            with seeded(0):
                network = network_of()
            with weights.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
            network.load_state_dict(load_file(weights))
        except Exception as error:  # libraries can raise anything on a hostile file
            raise InputError(
                f"the weights in {folder} cannot be used: {first_line(error)}"
            ) from None
        return cls(network, card, digest, **settings)

    @torch.inference_mode()
    def sample(self, labels: NDArray[np.int64], seeds: NDArray[np.uint64]) -> NDArray[np.uint8]:
        """Draw one image per label, all of a batch together."""
        noises = [torch.Generator().manual_seed(int(seed)) for seed in seeds]
        config = self._network.config
        shape = (len(noises), config.in_channels, config.sample_size, config.sample_size)
        x = randn_tensor(shape, generator=noises, device=self._device)
        wanted = torch.as_tensor(np.asarray(labels), device=self._device)
        scheduler = self._scheduler()
        # eta = 1 adds noise at every step, from each image's own stream.
        settings = {"eta": 1.0, "generator": noises} if self._sampler == "ddim" else {}
        for t in scheduler.timesteps:
            predicted = self._predict(scheduler.scale_model_input(x, t), t, wanted)
            x = scheduler.step(predicted, t, x, **settings).prev_sample
        return to_images(x, self._design, self.card.shape)

    def _predict(self, x: torch.Tensor, t: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Predict the noise: uncond + guidance * (cond - uncond)."""
        guided = self._guidance != 1.0
        if guided:
            any_class = torch.full_like(labels, len(self.classes))
            x, labels = torch.cat([x, x]), torch.cat([labels, any_class])
        with autocast(self._device, self._dtype):
            predicted: torch.Tensor = self._network(x, t, class_labels=labels).sample.float()
        if guided:
            conditional, unconditional = predicted.chunk(2)
            predicted = torch.lerp(unconditional, conditional, self._guidance)
        return predicted

    def _scheduler(self) -> Any:
        schedule = self._design.noise().config
        scheduler: Any
        if self._sampler == "ddim":
            scheduler = DDIMScheduler.from_config(schedule, timestep_spacing="trailing")
        else:
            # A threshold of at most 1 is plain clipping; the bound keeps the cosine schedule's
            # first steps finite (diffusers' advice for it).
            scheduler = DPMSolverMultistepScheduler.from_config(
                schedule,
                algorithm_type="dpmsolver++",
                thresholding=True,
                sample_max_value=1.0,
                lambda_min_clipped=-5.1,
            )
        with warnings.catch_warnings():
            # diffusers hands tensors to NumPy in a way that NumPy 2 is about to drop.
            warnings.simplefilter("ignore", DeprecationWarning)
            scheduler.set_timesteps(self._steps, device=self._device)
        return scheduler


def _check_shapes(weights: Path, expected: Mapping[str, tuple[int, ...]]) -> None:
    """Refuse a file of other weights by its head alone."""
    with safe_open(weights, framework="pt") as file:
        shapes = {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
    if shapes != expected:
        odd = sorted(dict(shapes.items() ^ expected.items()))[0]
        raise InputError(
            f"{odd!r} is not as the card says", got=shapes.get(odd), allowed=str(expected.get(odd))
        )


def to_images(x: torch.Tensor, design: UNetConfig, shape: Sequence[int]) -> NDArray[np.uint8]:
    """Turn what the network draws into uint8 images of the data's size."""
    x = functional.pixel_shuffle(x, design.patch)
    height, width, _ = shape
    top, left = (x.shape[2] - height) // 2, (x.shape[3] - width) // 2
    x = x[:, :, top : top + height, left : left + width]
    pixels = ((x.clamp(-1, 1) + 1) * 127.5).round().to(torch.uint8)
    return pixels.permute(0, 2, 3, 1).cpu().numpy()


def save_federated_model(
    folder: Path,
    weights: Tensors,
    federated: Federated,
    task: Task,
    classes: Sequence[str],
    training: TrainingRecord,
) -> Path:
    """Write the weights that a federation trained as `fedeas generator train` writes a model."""
    model = make_model(federated.model, task, 0)
    assert isinstance(model, Denoiser)  # noqa: S101 - only `is_generator` models come here
    model.load_state_dict(weights)
    save_model(folder, model.network, model.design, classes, task.shape, training)
    return folder
