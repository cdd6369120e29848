"""The random features of `privacy/queries/features.py` once more, differentiable, for training."""

import math

import torch
from torch import nn
from torch.nn import functional

from fedeas.privacy.queries.embedding import EmbeddingSum
from fedeas.privacy.queries.features import ORIENTATIONS, banks, reduction

_TINY = 1.0  # of a square of strengths: a root has no slope at zero


class Features(nn.Module):
    """Images, N x height x width x channels from 0 to 255, to features on circles of radius 1."""

    def __init__(self, query: EmbeddingSum) -> None:
        super().__init__()
        self._shape = query.shape
        self._banks = [
            (torch.tensor(bank.matrix, dtype=torch.float32), bank.places, bank.part / 512)
            for bank in (banks(query.shape) if query.edges else ())
        ]
        self._directions = [
            torch.tensor(circle.directions * (2 * math.pi / circle.turn), dtype=torch.float32)
            for circle in query.circles
        ]

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return (cos, sin) pairs in the order of the sum's words."""
        found = []
        for view, directions in zip(self._views(images), self._directions, strict=True):
            angles = view @ directions
            found.append(torch.stack([angles.cos(), angles.sin()], 2).flatten(1))
        return torch.cat(found, 1)

    def _views(self, images: torch.Tensor) -> list[torch.Tensor]:
        """Return pixels, and the strength of edges where it is asked for."""
        if not self._banks:
            return [images.flatten(1)]
        grey = images.sum(3)
        factor = reduction(*self._shape[:2])
        if factor > 1:
            grey = functional.avg_pool2d(grey[:, None], factor)[:, 0]
        edges = []
        for matrix, (down, across), part in self._banks:
            phases = (grey.flatten(1) @ matrix).view(len(images), ORIENTATIONS, 2, down, across)
            strength = (phases.square().sum(2) + _TINY).sqrt()
            edges.append(functional.avg_pool2d(strength, 2).flatten(1) * (4 * part))
        return [images.flatten(1), torch.cat(edges, 1)]
