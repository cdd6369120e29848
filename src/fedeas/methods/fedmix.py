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

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional

from fedeas.data import Schema
from fedeas.data.kinds import Array, find_kind
from fedeas.errors import InputError
from fedeas.methods.method import Method, Turn, stream
from fedeas.tensors import Tensors
from fedeas.training.loop import Correction
from fedeas.training.models import Classifier
from fedeas.training.samples import Samples
from fedeas.training.task import Task

_LEAST = 16  # images of an average: a server cannot ask for less and see single images
_SENT = 64  # mashed images that go to the clients of a round


@dataclass(frozen=True)
class FedMix(Method):
    """Mixup with weight `share` (the paper's lambda); share = 0 is FedAvg.

    `mash` images make an average (the paper's M_k); 0 stands for all images of a client.
    """

    share: float = 0.05
    mash: int = 64

    def __post_init__(self) -> None:
        if not (0 <= self.share < 1 and (self.mash == 0 or self.mash >= _LEAST)):
            raise InputError(
                "FedMix's settings are out of range",
                got=(self.share, self.mash),
                allowed=f"share from 0 to below 1, mash from {_LEAST}, or 0 for all of a client",
            )

    def check_data(self, schema: Schema | None) -> None:
        """Refuse tables with categories: their codes have no average."""
        if schema is not None and len(schema.categorical):
            raise InputError(
                "FedMix averages samples, and categories have no average",
                got=schema.names[schema.categorical[0]],
                fix="use another method, or name these columns in leave_out",
            )

    def introduce(self, samples: Samples, rng: np.random.Generator) -> Tensors:
        """Average the client's real samples in groups of `mash`; too small a rest stays private.

        Gaps are left out of an average; a column of gaps alone stays one.
        """
        self.check_data(samples.data.schema)
        order = rng.permutation(len(samples))
        size = self.mash or len(order)
        groups = [order[i : i + size] for i in range(0, len(order), size)]
        groups = [group for group in groups if len(group) >= _LEAST]
        classes = len(samples.data.classes)
        means = np.empty((len(groups), *samples.data.samples.shape[1:]), np.float32)
        labels = np.empty((len(groups), classes), np.float32)
        for row, group in enumerate(groups):
            values, marks = samples.take(group)
            means[row] = _mean(values)
            labels[row] = np.bincount(marks, minlength=classes) / len(marks)
        return {"samples": torch.from_numpy(means), "labels": torch.from_numpy(labels)}

    def start(self, model: Classifier, task: Task, known: Sequence[Tensors], seed: int) -> Tensors:
        """Put all clients' averages together."""
        found = {key: torch.cat([one[key] for one in known]) for key in ("samples", "labels")}
        if not len(found["samples"]):
            raise InputError(f"no client has {_LEAST} samples to average", fix="use another method")
        return found

    def check_known(self, known: Tensors, task: Task, real: int) -> None:
        """Refuse averages of the wrong shape, or more of them than the client has images for."""
        rows = len(known["samples"]) if known.keys() == {"samples", "labels"} else -1
        forms = {"samples": (rows, *task.shape), "labels": (rows, task.classes)}
        most = real // _LEAST if self.mash else min(1, real // _LEAST)
        if not 0 <= rows <= most or any(
            known[key].shape != form or known[key].dtype != torch.float32
            for key, form in forms.items()
        ):
            raise InputError("not averages of samples", got=sorted(known))
        samples = known["samples"]
        if task.schema is not None:
            samples = samples.nan_to_num(0.0, torch.inf, -torch.inf)  # a table may have gaps
        for key, found, (least, largest) in (
            ("samples", samples, find_kind(task.kind).limits),
            ("labels", known["labels"], (0.0, 1.0)),
        ):
            if rows and not (float(found.min()) >= least and float(found.max()) <= largest):
                raise InputError(
                    f"averages of {key} out of range", allowed=f"{least:g} to {largest:g}"
                )

    def send(self, state: Tensors, number: int, seed: int) -> Tensors:
        """Send some of the averages, different ones each round."""
        order = torch.randperm(len(state["samples"]), generator=stream(seed, "mash", number))
        return {key: values[order[:_SENT]] for key, values in state.items()}

    def correction(self, turn: Turn) -> Correction:
        """Return the mixed loss."""
        return _Mixed(turn.received, self.share, turn.rng)


def _mean(values: Array) -> NDArray[np.float64]:
    """Return the average of samples, without gaps."""
    if values.dtype.kind != "f":
        found: NDArray[np.float64] = values.mean(axis=0, dtype=np.float64)
        return found
    there = ~np.isnan(values)
    count = there.sum(axis=0)
    total = np.where(there, values, 0).sum(axis=0, dtype=np.float64)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


class _Mixed(Correction):
    def __init__(self, mashed: Tensors, share: float, rng: np.random.Generator) -> None:
        self._mashed, self._share, self._rng = mashed, share, rng

    def loss(self, model: Classifier, batch: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        share = self._share
        drawn = self._rng.integers(len(self._mashed["samples"]), size=len(batch))
        chosen = torch.from_numpy(drawn).to(self._mashed["samples"].device)
        others: torch.Tensor = model.normalise(self._mashed["samples"][chosen].to(batch.device))
        their_labels = self._mashed["labels"][chosen].to(batch.device)
        x: torch.Tensor = model.normalise(batch).requires_grad_()
        logits = model.logits((1 - share) * x)
        own = (1 - share) * functional.cross_entropy(logits, labels)
        (slope,) = torch.autograd.grad(own, x, create_graph=True)
        mixed = functional.cross_entropy(logits, their_labels)
        return own + share * mixed + share * (slope * others).sum()
