"""Normalisation as part of the model: it runs on its device, so only bytes are transferred."""

import torch
from torch import nn

from fedeas.data import Schema
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
    numbers: torch.Tensor  # places of columns
    categorical: torch.Tensor
    starts: torch.Tensor  # where the entries of a column of categories begin
    gap_codes: torch.Tensor  # of every column

    def __init__(self, task: Task, channels_last: bool) -> None:
        super().__init__()
        self._of_table, self._width = task.schema is not None, task.width
        if task.schema is not None:
            self._place_columns(task.schema)
        self._is_image, self._channels_last = task.kind == "image", channels_last
        for name, values in (("mean", task.mean), ("spread", task.spread)):
            shaped = torch.tensor(values, dtype=torch.float32)
            shaped = shaped.view(1, -1, 1, 1) if self._is_image else shaped
            self.register_buffer(name, shaped, persistent=False)

    def _place_columns(self, schema: Schema) -> None:
        sizes = torch.tensor([len(column.categories) for column in schema.columns])
        numbers, categorical = (
            torch.from_numpy(places.astype("int64"))
            for places in (schema.numbers, schema.categorical)
        )
        taken = sizes[categorical] + 1  # a gap is one more
        starts = 2 * len(numbers) + taken.cumsum(0) - taken
        for name, values in (
            ("numbers", numbers), ("categorical", categorical), ("starts", starts),
            ("gap_codes", sizes.float()),
        ):  # fmt: skip
            self.register_buffer(name, values, persistent=False)

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
        if not len(self.categorical):  # nothing to sort, which would take most of the time
            return torch.cat([scaled, gaps], 1)
        x = scaled.new_zeros(len(rows), self._width)
        count = len(self.numbers)
        x[:, :count] = scaled[:, self.numbers]
        x[:, count : 2 * count] = gaps[:, self.numbers]
        codes = torch.where(gaps, self.gap_codes, rows)[:, self.categorical].long()
        return x.scatter_(1, codes + self.starts, 1.0)
