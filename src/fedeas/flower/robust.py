"""Averages that a single hostile site cannot dominate: clipped updates, and a trimmed mean.

A site's weight bounds how much its update counts, not how long it is: one that sends
before + 5 (X - before) with a fifth of the weight makes the model X. So updates are scaled down to
a norm: a fixed one, or a multiple of the round's median.

    Yin, Chen, Ramchandran, Bartlett: Byzantine-Robust Distributed Learning: Towards Optimal
    Statistical Rates, 2018 (the coordinate-wise trimmed mean).

Both are functions of the replies alone, whatever their order, so a run can be replayed bit by bit.
"""

import math
from collections.abc import Mapping
from typing import Protocol

import torch

from fedeas.errors import InputError
from fedeas.flower.sums import ExactSum, whole_or_float
from fedeas.methods.method import Method
from fedeas.specs import parse
from fedeas.tensors import Tensors
from fedeas.training.models import Classifier

MEAN, TRIMMED = "mean", "trimmed-mean"


class Aggregate(Protocol):
    """Combines the replies of a round, one after the other."""

    weight: int  # of all that was added

    def add(self, tensors: Tensors, weight: int) -> None:
        """Add the tensors of a reply."""
        ...

    def mean(self, like: Tensors) -> Tensors:
        """Return the combined tensors, in the dtypes of `like`."""
        ...


class TrimmedMean:
    """The mean of every number without its `share` largest and smallest values.

    All sites have the same weight, whatever number of samples they report. Unlike the plain mean
    it holds all replies of a round.
    """

    def __init__(self, share: float = 0.2) -> None:
        if not (isinstance(share, int | float) and 0 < share < 0.5):
            raise InputError(
                "share of a trimmed mean is out of range", got=share, allowed="0 to 0.5"
            )
        self._share, self._replies = share, list[Tensors]()
        self.weight = 0

    def add(self, tensors: Tensors, weight: int) -> None:
        """Keep the tensors of a reply."""
        self._replies.append(tensors)
        self.weight += weight

    def mean(self, like: Tensors) -> Tensors:
        """Return the trimmed mean of every number."""
        cut = math.floor(self._share * len(self._replies) + 1e-9)
        found = {}
        for name in like:
            values = torch.stack([reply[name].double() for reply in self._replies])
            middle = values.sort(dim=0).values[cut : len(values) - cut]
            found[name] = whole_or_float(middle.mean(dim=0), like[name].dtype)
        return found


def make_aggregate(spec: str, most: int, method: Method, model: Classifier) -> Aggregate:
    """Return 'mean' or 'trimmed-mean(share=0.2)'; `most` bounds the sum of the weights."""
    name, settings = parse(spec, "aggregation")
    if name == MEAN and not settings:
        return ExactSum(most)
    if name != TRIMMED or settings.keys() - {"share"}:
        raise InputError("unknown aggregation", got=spec, allowed=f"{MEAN}, {TRIMMED}(share=0.2)")
    if method.added_like(model) or method.shown_like(model):
        raise InputError(
            f"{TRIMMED} works only with methods that send nothing but weights",
            got=method.name,
            allowed="fedavg, fedprox, moon",
        )
    return TrimmedMean(**settings)


def clip_update(before: Mapping[str, torch.Tensor], after: Tensors, most: float) -> Tensors:
    """Scale an update down to a norm of at most `most`, over all floating-point tensors.

    >>> clipped = clip_update({"w": torch.zeros(2)}, {"w": torch.tensor([3.0, 4.0])}, 1.0)
    >>> clipped["w"]
    tensor([0.6000, 0.8000])
    """
    moved = _moved(before, after)
    norm = _norm(moved)
    if not norm > most:
        return after
    scale = most / norm
    clipped = {k: (before[k].double() + d * scale).to(after[k].dtype) for k, d in moved.items()}
    return {**after, **clipped}


def update_norm(before: Mapping[str, torch.Tensor], after: Tensors) -> float:
    """Return the norm of an update, over all floating-point tensors.

    >>> update_norm({"w": torch.zeros(2)}, {"w": torch.tensor([3.0, 4.0])})
    5.0
    """
    return _norm(_moved(before, after))


def _moved(before: Mapping[str, torch.Tensor], after: Tensors) -> Tensors:
    return {k: v.double() - before[k].double() for k, v in after.items() if v.is_floating_point()}


def _norm(moved: Tensors) -> float:
    return math.sqrt(sum(float(d.square().sum()) for d in moved.values()))
