"""Models by name. Each turns images into features, and features into a logit per class."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import nn
from torch.nn import functional

from fedeas.data.images import ImageData
from fedeas.errors import InputError
from fedeas.tensors import fresh_weights
from fedeas.training.samples import channel_statistics

Norm = Callable[[int], nn.Module]
_NORMS: dict[str, Norm] = {
    "batch": nn.BatchNorm2d,
    "group": lambda width: nn.GroupNorm(8, width),
}


@dataclass(frozen=True)
class ModelSettings:
    """Which model; `stem` and `norm` are a ResNet's, `projection` is a head before the last layer.

    MOON compares what leaves the head, or the features where there is none. Its authors give every
    method of a comparison the head; so should a sweep.
    """

    name: str = "cnn"  # or resnet18
    norm: str = "batch"  # or group
    stem: str = "cifar"  # or imagenet
    projection: int = 0  # width of MOON's head: 256, or 0 for none
    weights: str = ""  # a safetensors file with torchvision's names


@dataclass(frozen=True)
class Task:
    """What a model is made for: the classes and the images, with their mean and spread."""

    classes: int
    shape: tuple[int, int, int]  # height, width, colours
    mean: tuple[float, ...]
    spread: tuple[float, ...]

    @classmethod
    def of(cls, data: ImageData) -> "Task":
        """Return the task of a data set, normalised by its training images."""
        return cls(len(data.classes), data.images.shape[1:], *channel_statistics(data))


class Classifier(nn.Module):
    """Images (uint8, N x height x width x colours) to logits; `fc` is the last layer.

    Normalisation is a part of the model and happens on its device: one byte a pixel travels.
    """

    mean: torch.Tensor
    spread: torch.Tensor
    fc: nn.Module
    channels_last = False

    def __init__(self, task: Task) -> None:
        super().__init__()
        # Constants of the data, not weights: they are neither saved nor averaged.
        for name, values in (("mean", task.mean), ("spread", task.spread)):
            shaped = torch.tensor(values, dtype=torch.float32).view(1, -1, 1, 1)
            self.register_buffer(name, shaped, persistent=False)

    def normalise(self, images: torch.Tensor) -> torch.Tensor:
        """Return what the first layer sees."""
        x = images.permute(0, 3, 1, 2)
        # The bytes already lie channels last: that layout is free, the other is a copy.
        x = x.float() if self.channels_last else x.float().contiguous()
        return (x / 255 - self.mean) / self.spread

    def body(self, x: torch.Tensor) -> torch.Tensor:
        """Return one feature vector per normalised image."""
        raise NotImplementedError

    def features(self, images: torch.Tensor) -> torch.Tensor:
        """Return one feature vector per image."""
        return self.body(self.normalise(images))

    @property
    def last(self) -> nn.Linear:
        """The linear layer that gives the logits, behind a projection head if there is one."""
        layer = self.fc[-1] if isinstance(self.fc, nn.Sequential) else self.fc
        return cast(nn.Linear, layer)

    def represent(self, images: torch.Tensor) -> torch.Tensor:
        """Return what the last layer sees: the projection head's output, or the features."""
        found = self.features(images)
        if isinstance(self.fc, nn.Sequential):
            found = self.fc[:-1](found)
        return found

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return one logit per image and class."""
        logits: torch.Tensor = self.fc(self.features(images))
        return logits


class SmallCNN(Classifier):
    """Three convolutions and a hidden layer: enough to tell methods apart on a CPU."""

    channels_last = True  # 1.6 times as fast on the CPUs that we measured

    def __init__(self, task: Task, settings: ModelSettings) -> None:
        super().__init__(task)
        self.conv1 = nn.Conv2d(task.shape[2], 32, 3, padding=1)
        self.conv2 = nn.Conv2d(32, 64, 3, padding=1)
        self.conv3 = nn.Conv2d(64, 64, 3, padding=1)
        self.hidden = nn.Linear(64 * (task.shape[0] // 8) * (task.shape[1] // 8), 128)
        self.fc = _head(128, settings.projection, task.classes)

    def body(self, x: torch.Tensor) -> torch.Tensor:
        """Return one feature vector per normalised image."""
        for convolution in (self.conv1, self.conv2, self.conv3):
            x = functional.max_pool2d(functional.relu(convolution(x)), 2)
        return functional.relu(self.hidden(x.flatten(1)))


class BasicBlock(nn.Module):
    """Two convolutions beside a shortcut."""

    def __init__(self, before: int, width: int, stride: int, norm: Norm) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(before, width, 3, stride, 1, bias=False)
        self.bn1 = norm(width)
        self.conv2 = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.bn2 = norm(width)
        self.downsample: nn.Module | None = None
        if stride != 1 or before != width:
            self.downsample = nn.Sequential(
                nn.Conv2d(before, width, 1, stride, bias=False), norm(width)
            )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the block's output."""
        shortcut = x if self.downsample is None else self.downsample(x)
        x = functional.relu(self.bn1(self.conv1(x)))
        return functional.relu(self.bn2(self.conv2(x)) + shortcut)


class ResNet18(Classifier):
    """He et al. 2016, with torchvision's parameter names.

    The `imagenet` stem (7 x 7, stride 2, pooling) is torchvision's and the paper's; the `cifar` one
    (3 x 3, stride 1) keeps small images large, and is some ten points better on them.
    """

    def __init__(self, task: Task, settings: ModelSettings) -> None:
        super().__init__(task)
        norm = _NORMS[settings.norm]
        colours = task.shape[2]
        self._pooled = settings.stem == "imagenet"
        size, stride, padding = (7, 2, 3) if self._pooled else (3, 1, 1)
        self.conv1 = nn.Conv2d(colours, 64, size, stride, padding, bias=False)
        self.bn1 = norm(64)
        before = 64
        for number, (width, step) in enumerate(((64, 1), (128, 2), (256, 2), (512, 2)), start=1):
            blocks = BasicBlock(before, width, step, norm), BasicBlock(width, width, 1, norm)
            setattr(self, f"layer{number}", nn.Sequential(*blocks))
            before = width
        self.fc = _head(512, settings.projection, task.classes)

    def body(self, x: torch.Tensor) -> torch.Tensor:
        """Return one feature vector per normalised image."""
        x = functional.relu(self.bn1(self.conv1(x)))
        if self._pooled:
            x = functional.max_pool2d(x, 3, 2, 1)
        for number in range(1, 5):
            x = getattr(self, f"layer{number}")(x)
        return x.mean((2, 3))


_MODELS: dict[str, Callable[[Task, ModelSettings], Classifier]] = {
    "cnn": SmallCNN,
    "resnet18": ResNet18,
}


def make_model(settings: ModelSettings, task: Task, seed: int) -> Classifier:
    """Make a model with fresh weights that depend on the seed alone, or with those of a file."""
    for name, value, allowed in (
        ("model", settings.name, tuple(_MODELS)),
        ("norm", settings.norm, tuple(_NORMS)),
        ("stem", settings.stem, ("cifar", "imagenet")),
    ):
        if value not in allowed:
            raise InputError(f"unknown {name}", got=value, allowed=", ".join(allowed))
    if settings.projection < 0:
        raise InputError("not a width", got=settings.projection, allowed="projection from 0")
    if min(task.shape[:2]) < 8:
        raise InputError("images too small for a model", got=task.shape, allowed="8 x 8 and more")
    with fresh_weights(seed):
        model = _MODELS[settings.name](task, settings)
    if settings.weights:
        load_weights(model, Path(settings.weights))
    if model.channels_last:
        model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return model


def load_weights(model: Classifier, path: Path) -> None:
    """Load a safetensors file with the same names; a last layer of other classes stays fresh."""
    try:
        found = load_file(path)
    except (OSError, SafetensorError) as error:
        raise InputError(f"cannot read {path}: {error}", allowed="a safetensors file") from None
    own = model.state_dict()
    fitting = {k: v for k, v in found.items() if k in own and own[k].shape == v.shape}
    # torchvision's files from before BatchNorm counted batches lack its counters.
    missing = {k for k in own if k not in fitting and not k.startswith("fc.")}
    missing = {k for k in missing if not k.endswith("num_batches_tracked")}
    if missing:
        raise InputError(
            f"{path} holds other weights than the model needs",
            got=sorted(missing)[0],
            fix="check `stem` and `norm`",
        )
    model.load_state_dict(fitting, strict=False)


def _head(width: int, projection: int, classes: int) -> nn.Module:
    """Return the last layer, behind MOON's two-layer projection where one is asked for."""
    if not projection:
        return nn.Linear(width, classes)
    return nn.Sequential(
        nn.Linear(width, width), nn.ReLU(), nn.Linear(width, projection),
        nn.Linear(projection, classes),
    )  # fmt: skip
