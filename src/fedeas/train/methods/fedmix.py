"""FedMix: mixup with averages of other clients' images.

    Yoon, Shin, Hwang, Yang: FedMix: Approximation of Mixup under Mean Augmented Federated Learning,
    2021, algorithm 2.

Before training every client gives the server averages of `mash` samples and their labels: no sample
leaves a client, but averages of them do. The original's CIFAR-10 runs average all images of a
client: mash = 0. With a mashed pair (x_g, y_g) the loss is
(1 - l) CE(f((1 - l) x), y) + l CE(f((1 - l) x), y_g) + l * <d/dx of the first term, x_g>.
The derivative is by x and not by (1 - l) x, so the last term has a factor 1 - l, 0.95 by default,
that a Taylor expansion around (1 - l) x would not have.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional

from fedeas.data.kinds import Array, find_kind
from fedeas.errors import InputError
from fedeas.train.loop import LocalObjective
from fedeas.train.methods.method import ClientContext, Method, check_range
from fedeas.train.models import Classifier
from fedeas.train.samples import Samples, Task
from fedeas.train.tensors import Tensors, stream

_LEAST = 16  # images of an average: a server cannot ask for less and see single images
_SENT = 64  # mashed images that go to the clients of a round


@dataclass(frozen=True)
class FedMix(Method):
    """Mixup with weight `share` (the paper's lambda); share = 0 is FedAvg.

    `mash` images make an average (the paper's M_k); 0 stands for all images of a client.
    """

    averages_samples: ClassVar[bool] = True
    needs_one_class: ClassVar[bool] = True
    share: float = 0.05
    mash: int = 64

    def __post_init__(self) -> None:
        valid = 0 <= self.share < 1 and (self.mash == 0 or self.mash >= _LEAST)
        allowed = f"share from 0 to below 1, mash from {_LEAST}, or 0 for all of a client"
        check_range(self, valid, allowed)

    def client_init(self, samples: Samples, rng: np.random.Generator) -> Tensors:
        """Average the client's real samples in groups of `mash`; too small a rest stays private.

        Missing values are left out of an average; a column without any value stays missing.
        """
        self.check_data(samples.data)
        order = rng.permutation(len(samples))
        size = self.mash or len(order)
        groups = [order[i : i + size] for i in range(0, len(order), size)]
        groups = [group for group in groups if len(group) >= _LEAST]
        classes = len(samples.data.classes)
        means = np.empty((len(groups), *samples.data.samples.shape[1:]), np.float32)
        labels = np.empty((len(groups), classes), np.float32)
        for row, group in enumerate(groups):
            values, classes_of = samples.take(group)
            means[row] = _mean(values)
            labels[row] = np.bincount(classes_of, minlength=classes) / len(group)
        return {"samples": torch.from_numpy(means), "labels": torch.from_numpy(labels)}

    def validate_client_init(self, init: Tensors, task: Task, num_examples: int) -> None:
        """Refuse averages of the wrong shape, or more of them than the client has images for."""
        rows = len(init["samples"]) if init.keys() == {"samples", "labels"} else -1
        shapes = {"samples": (rows, *task.shape), "labels": (rows, task.classes)}
        groups = num_examples // _LEAST
        if not 0 <= rows <= (groups if self.mash else min(1, groups)) or any(
            init[key].shape != shape or init[key].dtype != torch.float32
            for key, shape in shapes.items()
        ):
            raise InputError("not averages of samples", got=sorted(init))
        samples = init["samples"]
        if task.schema is not None:
            samples = samples.nan_to_num(0.0, torch.inf, -torch.inf)  # in tables, missing values
        for key, averages, (least, largest) in (
            ("samples", samples, find_kind(task.kind).limits),
            ("labels", init["labels"], (0.0, 1.0)),
        ):
            if rows and not (float(averages.min()) >= least and float(averages.max()) <= largest):
                raise InputError(
                    f"averages of {key} out of range", allowed=f"{least:g} to {largest:g}"
                )

    def server_init(
        self, model: Classifier, task: Task, client_inits: Sequence[Tensors], seed: int
    ) -> Tensors:
        """Put all clients' averages together."""
        pool = {k: torch.cat([init[k] for init in client_inits]) for k in ("samples", "labels")}
        if not len(pool["samples"]):
            raise InputError(f"no client has {_LEAST} samples to average", fix="use another method")
        return pool

    def broadcast(self, state: Tensors, server_round: int, seed: int) -> Tensors:
        """Send some of the averages, different ones each round."""
        order = torch.randperm(len(state["samples"]), generator=stream(seed, "mash", server_round))
        return {key: values[order[:_SENT]] for key, values in state.items()}

    def local_objective(self, context: ClientContext) -> LocalObjective:
        """Return the mixed loss."""
        return _Mixup(context.broadcast, self.share, context.rng)


def _mean(values: Array) -> NDArray[np.float64]:
    """Return the average of samples, without missing values."""
    if values.dtype.kind != "f":
        mean: NDArray[np.float64] = values.mean(axis=0, dtype=np.float64)
        return mean
    present = ~np.isnan(values)
    count = present.sum(axis=0)
    total = np.where(present, values, 0).sum(axis=0, dtype=np.float64)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


class _Mixup(LocalObjective):
    def __init__(self, averages: Tensors, share: float, rng: np.random.Generator) -> None:
        self._averages, self._share, self._rng = averages, share, rng

    def loss(self, model: Classifier, batch: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        share, samples = self._share, self._averages["samples"]
        rows = torch.from_numpy(self._rng.integers(len(samples), size=len(batch)))
        rows = rows.to(samples.device)
        x_g: torch.Tensor = model.normalise(samples[rows].to(batch.device))
        y_g = self._averages["labels"][rows].to(batch.device)
        x: torch.Tensor = model.normalise(batch).requires_grad_()
        logits = model.logits((1 - share) * x)
        first = (1 - share) * functional.cross_entropy(logits, labels)
        (slope,) = torch.autograd.grad(first, x, create_graph=True)
        return first + share * functional.cross_entropy(logits, y_g) + share * (slope * x_g).sum()
