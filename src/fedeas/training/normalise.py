"""Normalisation as part of the model: it runs on its device, so only bytes are transferred."""

import torch
from torch import nn

from fedeas.training.task import Task


class Normalise(nn.Module):
    """Turn samples, as data sets hold them, into what the first layer of a network sees.

    An image (height x width x channels, bytes) becomes channels x height x width of floats; any
    other sample, such as a row of a table, keeps its shape. Mean and spread are constants of the
    data, not weights: they are neither saved nor averaged.
    """

    mean: torch.Tensor
    spread: torch.Tensor

    def __init__(self, task: Task, channels_last: bool) -> None:
        super().__init__()
        self._is_image, self._channels_last = task.kind == "image", channels_last
        for name, values in (("mean", task.mean), ("spread", task.spread)):
            shaped = torch.tensor(values, dtype=torch.float32)
            shaped = shaped.view(1, -1, 1, 1) if self._is_image else shaped
            self.register_buffer(name, shaped, persistent=False)

    def forward(self, samples: torch.Tensor) -> torch.Tensor:
        """Return what the first layer sees."""
        if not self._is_image:
            return (samples.float() - self.mean) / self.spread
        x = samples.permute(0, 3, 1, 2)
        # The bytes are already channels last: that layout is free, the other needs a copy.
        x = x.float() if self._channels_last else x.float().contiguous()
        return (x / 255 - self.mean) / self.spread
