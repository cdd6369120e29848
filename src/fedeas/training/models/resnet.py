"""`resnet18`: He, Zhang, Ren, Sun: Deep Residual Learning for Image Recognition, 2016."""

from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional

from fedeas.errors import InputError
from fedeas.training.models.classifier import Classifier, check_image_size, head
from fedeas.training.task import Task

Norm = Callable[[int], nn.Module]
_NORMS: dict[str, Norm] = {
    "batch": nn.BatchNorm2d,
    "group": lambda width: nn.GroupNorm(8, width),
}
_STEMS = ("cifar", "imagenet")


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

    def __init__(
        self, task: Task, norm: str = "batch", stem: str = "cifar", projection: int = 0
    ) -> None:
        check_image_size(task)
        super().__init__(task)
        for name, value, allowed in (("norm", norm, tuple(_NORMS)), ("stem", stem, _STEMS)):
            if value not in allowed:
                raise InputError(f"unknown {name}", got=value, allowed=", ".join(allowed))
        norm_layer = _NORMS[norm]
        colours = task.shape[2]
        self._pooled = stem == "imagenet"
        size, stride, padding = (7, 2, 3) if self._pooled else (3, 1, 1)
        self.conv1 = nn.Conv2d(colours, 64, size, stride, padding, bias=False)
        self.bn1 = norm_layer(64)
        before = 64
        for number, (width, step) in enumerate(((64, 1), (128, 2), (256, 2), (512, 2)), start=1):
            first = BasicBlock(before, width, step, norm_layer)
            second = BasicBlock(width, width, 1, norm_layer)
            setattr(self, f"layer{number}", nn.Sequential(first, second))
            before = width
        self.fc = head(512, projection, task.classes)

    def body(self, x: torch.Tensor) -> torch.Tensor:
        """Return one feature vector per normalised image."""
        x = functional.relu(self.bn1(self.conv1(x)))
        if self._pooled:
            x = functional.max_pool2d(x, 3, 2, 1)
        for number in range(1, 5):
            x = getattr(self, f"layer{number}")(x)
        return x.mean((2, 3))
