"""`unet`: a class-conditional diffusion model, trained to take noise out of images.

    Ho, Jain, Abbeel: Denoising Diffusion Probabilistic Models, 2020.
    Ho, Salimans: Classifier-Free Diffusion Guidance, 2022.

The network, its noise and its loss: `fedeas generator train` trains them on one machine, a
federation in its rounds. Diffusers is loaded when a network is made, since classifiers need none.
"""

from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from fedeas._internal.names import choice
from fedeas.errors import InputError, MissingExtraError
from fedeas.train.models.classifiers import Classifier
from fedeas.train.samples import Task

# A server may name the channels, a card all of a design: what a network takes of somebody's memory
# is bounded.
_WIDEST, _DEEPEST = 1024, 6
_MOST = {"layers": 8, "patch": 16, "timesteps": 100_000}
_PREDICTIONS = ("epsilon", "v_prediction")
_SCHEDULES = ("linear", "scaled_linear", "squaredcos_cap_v2")


def _are_channels(levels: tuple[int, ...]) -> bool:
    """Tell whether these are widths of levels that a network may have."""
    fit = (type(w) is int and 8 <= w <= _WIDEST and w % 8 == 0 for w in levels)
    return 1 <= len(levels) <= _DEEPEST and all(fit)


@dataclass(frozen=True)
class UNetConfig:
    """The network and its noise: all that is fixed before training.

    `patch` x `patch` pixels are folded into channels, which makes small images cheap on a CPU.
    """

    channels: tuple[int, ...]
    layers: int
    attention: tuple[bool, ...]
    patch: int = 1
    prediction: str = "epsilon"
    schedule: str = "squaredcos_cap_v2"  # the cosine schedule
    timesteps: int = 1000

    def __post_init__(self) -> None:
        sizes = [(getattr(self, name), most) for name, most in _MOST.items()]
        if (
            not _are_channels(self.channels)
            or len(self.attention) != len(self.channels)
            or not all(type(size) is int and 1 <= size <= most for size, most in sizes)
            or self.prediction not in _PREDICTIONS
            or self.schedule not in _SCHEDULES
        ):
            raise InputError("not the design of a U-Net", got=self)

    def network(self, classes: int, colours: int, side: int) -> Any:
        """Return a network with fresh weights; class number `classes` stands for 'any class'."""
        down = ["AttnDownBlock2D" if a else "DownBlock2D" for a in self.attention]
        up = ["AttnUpBlock2D" if a else "UpBlock2D" for a in reversed(self.attention)]
        folded = colours * self.patch**2
        return _diffusers().UNet2DModel(
            sample_size=side // self.patch,
            in_channels=folded,
            out_channels=folded,
            block_out_channels=self.channels,
            layers_per_block=self.layers,
            down_block_types=tuple(down),
            up_block_types=tuple(up),
            norm_num_groups=8,
            num_class_embeds=classes + 1,
        )

    def noise(self) -> Any:
        """Return the noise schedule that the network is trained with."""
        return _diffusers().DDPMScheduler(
            num_train_timesteps=self.timesteps,
            beta_schedule=self.schedule,
            prediction_type=self.prediction,
        )

    def padded(self, height: int, width: int) -> int:
        """Return the side of the square that images are padded to, so that levels halve evenly."""
        unit: int = self.patch * 2 ** (len(self.channels) - 1)
        return -(-max(height, width) // unit) * unit


DESIGNS = {
    # The paper's: dim multipliers 1, 2, 4, 8; what it does not print is the public code's.
    "paper": UNetConfig((64, 128, 256, 512), 2, (False, True, True, True)),
    # For two CPU cores: 2.5 million weights.
    "tiny": UNetConfig((48, 96, 96), 1, (False, False, True), patch=2, prediction="v_prediction"),
}


@dataclass(frozen=True)
class Draw:
    """What is random about a batch: the labels with some hidden, a time and noise per image."""

    labels: torch.Tensor
    times: torch.Tensor
    noise: torch.Tensor

    @classmethod
    def of(
        cls,
        labels: torch.Tensor,
        classes: int,
        shape: tuple[int, ...],
        design: UNetConfig,
        drop: float,
        rng: torch.Generator | None = None,
    ) -> "Draw":
        """Draw it for images of a shape; `drop` of the labels become 'any class'.

        Without `rng` it comes from PyTorch's global random state.
        """
        hidden = torch.rand(len(labels), generator=rng) < drop
        height, width, colours = shape
        side = design.padded(height, width) // design.patch
        size = (len(labels), colours * design.patch**2, side, side)
        return cls(
            torch.where(hidden, classes, labels),
            torch.randint(design.timesteps, (len(labels),), generator=rng),
            torch.randn(size, generator=rng),
        )


def denoising_loss(
    network: nn.Module, design: UNetConfig, schedule: Any, images: torch.Tensor, draw: Draw
) -> torch.Tensor:
    """Return how far the network is from the noise in a batch, or from its velocity."""
    device = images.device
    x, noise, times = to_pixels(images, design), draw.noise.to(device), draw.times.to(device)
    noisy = schedule.add_noise(x, noise, times)
    velocity = design.prediction == "v_prediction"
    target = schedule.get_velocity(x, noise, times) if velocity else noise
    predicted = network(noisy, times, class_labels=draw.labels.to(device)).sample
    return functional.mse_loss(predicted.float(), target)


def to_pixels(images: torch.Tensor, design: UNetConfig) -> torch.Tensor:
    """Turn uint8 images (N x height x width x colours) into what the network sees, -1 to 1."""
    x = images.permute(0, 3, 1, 2).float() / 127.5 - 1
    height, width = x.shape[2:]
    side = design.padded(height, width)
    top, left = (side - height) // 2, (side - width) // 2
    # The edge is repeated: a black frame around a bright image would have to be learnt.
    x = functional.pad(x, (left, side - width - left, top, side - height - top), "replicate")
    return functional.pixel_unshuffle(x, design.patch)


class Denoiser(Classifier):
    """A diffusion model for the training loop: it has a loss of its own, and no logits.

    Parameters
    ----------
    task : Task
        Size and classes of the images.
    preset : str
        The design: 'tiny' or 'paper'.
    channels : str
        Width of every level instead of the design's, as in 48:96:96.
    drop : float
        Share of labels that are hidden in training, for classifier-free guidance.
    """

    def __init__(
        self,
        task: Task,
        preset: str = "tiny",
        channels: str | int = "",
        drop: float = 0.15,
    ) -> None:
        if task.kind != "image":
            raise InputError("this model is for images", got=task.kind)
        task = task.of_sets
        super().__init__(task)
        if not isinstance(drop, int | float) or not 0 <= drop < 1:
            raise InputError("not a share of labels", got=drop, allowed="drop from 0, below 1")
        self.design = _design(preset, str(channels))
        self.shape, self.classes, self.drop = task.shape, task.classes, float(drop)
        height, width, colours = task.shape
        side = self.design.padded(height, width)
        self.network = self.design.network(task.classes, colours, side)
        self._schedule = self.design.noise()

    @staticmethod
    def batch_loss(model: Any, samples: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Return the denoising loss of a batch, some of its labels hidden."""
        loss: torch.Tensor = model.loss(samples, labels, model.drop)
        return loss

    def loss(
        self,
        samples: torch.Tensor,
        labels: torch.Tensor,
        drop: float = 0.0,
        rng: torch.Generator | None = None,
    ) -> torch.Tensor:
        """Return the denoising loss, with `drop` of the labels hidden."""
        draw = Draw.of(labels.cpu(), self.classes, self.shape, self.design, drop, rng)
        return denoising_loss(self.network, self.design, self._schedule, samples, draw)

    def logits(self, x: torch.Tensor) -> torch.Tensor:
        """Refuse: a method that asks for logits or features needs a classifier."""
        raise InputError("a diffusion model has no logits", fix='set method = "fedavg"')

    body = logits


def _design(preset: str, channels: str) -> UNetConfig:
    """Return a preset's design, with other channels where they are named."""
    design = DESIGNS[choice(preset, "preset", DESIGNS)]
    if not channels:
        return design
    levels = tuple(int(p) if p.isdigit() else 0 for p in channels.split(":"))
    if not _are_channels(levels):
        raise InputError(
            "not the channels of a U-Net",
            got=channels,
            allowed=f"up to {_DEEPEST} multiples of 8 up to {_WIDEST}, as in 48:96:96",
        )
    # As many of the lowest levels have attention as in the design.
    deep = min(sum(design.attention), len(levels))
    with_attention = tuple(level >= len(levels) - deep for level in range(len(levels)))
    return replace(design, channels=levels, attention=with_attention)


def _diffusers() -> Any:
    try:
        return import_module("diffusers")
    except ModuleNotFoundError:
        raise MissingExtraError("the model 'unet'", "generate") from None
