"""`diffusion`: a class-conditional DDPM on diffusers, sampled with classifier-free guidance.

    Ho, Jain, Abbeel: Denoising Diffusion Probabilistic Models, 2020.
    Ho, Salimans: Classifier-Free Diffusion Guidance, 2022.

A model is a folder: `unet/` and `scheduler/` as diffusers' `save_pretrained` writes them, and
`generator.json` with the classes and the size of images.
"""

import copy
import hashlib
import json
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from diffusers import DDIMScheduler, DPMSolverMultistepScheduler, UNet2DModel
from diffusers.utils.torch_utils import randn_tensor
from numpy.typing import NDArray
from safetensors.torch import load_file
from torch.nn import functional

from fedeas.errors import InputError, first_line
from fedeas.files import atomic_write, read_text
from fedeas.generators.training_data import TrainingData
from fedeas.tensors import autocast, choose_device, fresh_weights, precision
from fedeas.training.models.unet import UNetConfig

_HEAD = "generator.json"
_FORMAT = "diffusion/1"
_SHIPPED = Path(__file__).parent / "models"
_SAMPLERS = {"ddim": 250, "dpm": 20}  # with their usual numbers of steps


@dataclass(frozen=True)
class ModelMetadata:
    """A model's metadata: its classes, its images and its training."""

    classes: tuple[str, ...]
    shape: tuple[int, int, int]  # height, width, colours
    data: str  # fingerprint of the data that it was trained on
    design: UNetConfig
    steps: int  # of training
    samples: int = 0  # that it was trained on; 0: not recorded


def save_model(folder: Path, network: UNet2DModel, head: ModelMetadata) -> None:
    """Write a model's folder; weights in half precision, half the size without a loss of quality.

    The metadata comes last: a folder without it is not a model.
    """
    half = copy.deepcopy(network).cpu()
    for weight in half.parameters():
        weight.data = weight.data.half()
    half.save_pretrained(folder / "unet", safe_serialization=True)
    head.design.noise().save_pretrained(folder / "scheduler")
    with atomic_write(folder / _HEAD) as temporary:
        text = json.dumps({"format": _FORMAT, **asdict(head)}, indent=1)
        temporary.write_text(text + "\n", encoding="utf-8")


def read_head(folder: Path) -> ModelMetadata:
    """Read a model's metadata."""
    path = folder / _HEAD
    text = read_text(path)
    try:
        content = json.loads(text)
        if content.pop("format") != _FORMAT:
            raise ValueError("another format")
        design = content.pop("design")
        for key in ("channels", "attention"):
            design[key] = tuple(design[key])
        height, width, colours = map(int, content.pop("shape"))
        classes = tuple(map(str, content.pop("classes")))
        content["samples"] = int(content.get("samples", 0))
        return ModelMetadata(
            classes, (height, width, colours), design=UNetConfig(**design), **content
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise InputError(
            f"{path} is not a diffusion model", fix="pass a folder of `fedeas generator train`"
        ) from None


class Diffusion:
    """Draws images from a trained model; each image's noise comes from its own seed."""

    def __init__(
        self,
        network: UNet2DModel,
        head: ModelMetadata,
        weights: str,
        sampler: str = "dpm",
        steps: int | None = None,
        guidance: float = 2.0,
        precision_name: str = "float32",
        device: torch.device | str = "auto",
    ) -> None:
        if sampler not in _SAMPLERS:
            raise InputError("unknown sampler", got=sampler, allowed=", ".join(_SAMPLERS))
        steps = min(_SAMPLERS[sampler], head.design.timesteps) if steps is None else steps
        if isinstance(steps, bool) or not isinstance(steps, int):
            raise InputError("not a number of steps", got=steps, allowed="a whole number")
        if not 1 <= steps <= head.design.timesteps:
            raise InputError(
                "not a number of steps", got=steps, allowed=f"1 to {head.design.timesteps}"
            )
        if not 0 <= guidance <= 100:
            raise InputError("not a guidance scale", got=guidance, allowed="0 to 100; 1 is none")
        self.classes, self._head = head.classes, head
        self._sampler, self._steps, self._guidance = sampler, steps, float(guidance)
        self._dtype = precision(precision_name)
        self._device = choose_device(str(device))
        self._network = network.to(self._device).eval()
        made = asdict(head)
        del made["samples"]  # said of it; no image depends on it
        settings = [weights, made, sampler, steps, float(guidance), precision_name]
        self.training_data = TrainingData("training images", head.samples, head.data)
        self.fingerprint = f"diffusion-{hashlib.sha256(json.dumps(settings).encode()).hexdigest()}"

    @classmethod
    def load(cls, model: Path | str, **settings: Any) -> "Diffusion":
        """Open a model's folder, or one of the models that come with fedeas by its name."""
        folder = Path(model)
        if not folder.is_dir() and (_SHIPPED / str(model)).is_dir():
            folder = _SHIPPED / str(model)
        head = read_head(folder)
        weights = folder / "unet" / "diffusion_pytorch_model.safetensors"
        height, width, colours = head.shape
        try:
            # The metadata defines the network; `unet/config.json` is for other programs.
            with fresh_weights(0):
                side = head.design.padded(height, width)
                network = head.design.network(len(head.classes), colours, side)
            with weights.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
            network.load_state_dict(load_file(weights))
        except Exception as error:  # libraries can raise anything on a hostile file
            raise InputError(
                f"the weights in {folder} cannot be used: {first_line(error)}"
            ) from None
        return cls(network, head, digest, **settings)

    @torch.inference_mode()
    def sample(self, labels: NDArray[np.int64], seeds: NDArray[np.uint64]) -> NDArray[np.uint8]:
        """Draw one image per label, all of a batch together."""
        noises = [torch.Generator().manual_seed(int(seed)) for seed in seeds]
        config = self._network.config
        shape = (len(noises), config.in_channels, config.sample_size, config.sample_size)
        x = randn_tensor(shape, generator=noises, device=self._device)
        asked = torch.as_tensor(np.asarray(labels), device=self._device)
        scheduler = self._scheduler()
        for t in scheduler.timesteps:
            predicted = self._predict(scheduler.scale_model_input(x, t), t, asked)
            x = self._step(scheduler, predicted, t, x, noises)
        return to_images(x, self._head)

    def _predict(self, x: torch.Tensor, t: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Predict the noise: uncond + guidance * (cond - uncond)."""
        guided = self._guidance != 1.0
        if guided:
            any_class = torch.full_like(labels, len(self.classes))
            x, labels = torch.cat([x, x]), torch.cat([labels, any_class])
        with autocast(self._device, self._dtype):
            predicted: torch.Tensor = self._network(x, t, class_labels=labels).sample.float()
        if guided:
            asked, unasked = predicted.chunk(2)
            predicted = torch.lerp(unasked, asked, self._guidance)
        return predicted

    def _scheduler(self) -> Any:
        trained = self._head.design.noise().config
        scheduler: Any
        if self._sampler == "ddim":
            scheduler = DDIMScheduler.from_config(trained, timestep_spacing="trailing")
        else:
            # A threshold of at most 1 is plain clipping; the bound keeps the cosine schedule's
            # first steps finite (diffusers' advice for it).
            scheduler = DPMSolverMultistepScheduler.from_config(
                trained,
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

    def _step(
        self,
        scheduler: Any,
        predicted: torch.Tensor,
        t: torch.Tensor,
        x: torch.Tensor,
        noises: Sequence[torch.Generator],
    ) -> torch.Tensor:
        if self._sampler == "ddim":
            # eta = 1 adds noise at every step, from each image's own stream.
            done = scheduler.step(predicted, t, x, eta=1.0, generator=noises)
        else:
            done = scheduler.step(predicted, t, x)
        after: torch.Tensor = done.prev_sample
        return after


def to_images(x: torch.Tensor, head: ModelMetadata) -> NDArray[np.uint8]:
    """Turn what the network draws into uint8 images of the data's size."""
    x = functional.pixel_shuffle(x, head.design.patch)
    height, width, _ = head.shape
    top, left = (x.shape[2] - height) // 2, (x.shape[3] - width) // 2
    x = x[:, :, top : top + height, left : left + width]
    pixels = ((x.clamp(-1, 1) + 1) * 127.5).round().to(torch.uint8)
    return pixels.permute(0, 2, 3, 1).cpu().numpy()
