"""Normalisation as part of the model: it runs on its device, so only bytes are transferred."""

import torch
from torch import nn
from torch.nn import functional

from fedeas.training.task import Task


class Normalise(nn.Module):
    """Turn samples, as data sets hold them, into what the first layer of a network sees.

    An image (height x width x channels, bytes) becomes channels x height x width of floats. A row
    of a table becomes its numbers, standardised, 0 for a gap; a 1 for every number that is a gap;
    and its categories one-hot, a gap being one category more: `Task.width` entries in this order.
    Any other sample keeps its shape. Mean and spread are constants of the data, not weights: they
    are neither saved nor averaged.
    """

    mean: torch.Tensor
    spread: torch.Tensor
    numbers: torch.Tensor

    def __init__(self, task: Task, channels_last: bool) -> None:
        super().__init__()
        self._sizes = {}
        if task.schema is not None:
            columns = task.schema.columns
            self._sizes = {int(i): len(columns[i].categories) for i in task.schema.categorical}
            places = torch.from_numpy(task.schema.numbers.astype("int64"))
            self.register_buffer("numbers", places, persistent=False)
        self._of_table = task.schema is not None
        self._is_image, self._channels_last = task.kind == "image", channels_last
        for name, values in (("mean", task.mean), ("spread", task.spread)):
            shaped = torch.tensor(values, dtype=torch.float32)
            shaped = shaped.view(1, -1, 1, 1) if self._is_image else shaped
            self.register_buffer(name, shaped, persistent=False)

    def forward(self, samples: torch.Tensor) -> torch.Tensor:
        """Return what the first layer sees."""
        if self._of_table:
            return self._row(samples)
        if not self._is_image:
            return (samples.float() - self.mean) / self.spread
        x = samples.permute(0, 3, 1, 2)
        # The bytes are already channels last: that layout is free, the other needs a copy.
        x = x.float() if self._channels_last else x.float().contiguous()
        return (x / 255 - self.mean) / self.spread

    def _row(self, rows: torch.Tensor) -> torch.Tensor:
        """Return what the first layer sees of rows."""
        gaps = rows.isnan()
        scaled = ((rows - self.mean) / self.spread).masked_fill(gaps, 0.0)
        parts = [scaled[:, self.numbers], gaps[:, self.numbers].float()]
        for place, size in self._sizes.items():
            codes = torch.where(gaps[:, place], size, rows[:, place]).long()
            parts.append(functional.one_hot(codes, size + 1).float())
        return torch.cat(parts, 1)
