"""A client's training: the loop, its optimisers, and evaluation.

What an FL method changes is a `LocalObjective`. Optimisers have torch's names: 'sgd', 'adamw',
'rmsprop(alpha=0.9)', ...
"""

import ctypes
import inspect
import itertools
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.optim import Optimizer

from fedeas._internal.names import choice
from fedeas._internal.specs import parse
from fedeas.counts.label_set_files import LabelSets
from fedeas.data.dataset import Sites
from fedeas.data.kinds import Array
from fedeas.errors import InputError
from fedeas.train.models import Classifier, Denoiser
from fedeas.train.samples import Samples
from fedeas.train.settings import Local
from fedeas.train.tensors import autocast, precision, seeded

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
_LEFT_OUT = ("optimizer", "lbfgs")  # the base class; needs the loss once more within a step


class LocalObjective:
    """Plain local training. A method overrides what it changes."""

    def loss(self, model: Classifier, batch: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Return the loss of a batch."""
        return model.batch_loss(model, batch, labels)

    def after_backward(self, model: Classifier) -> None:
        """Change gradients before the step."""


def fit(
    model: Classifier,
    samples: Samples,
    local: Local,
    rng: np.random.Generator,
    objective: LocalObjective | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> int:
    """Train a model in place and return the number of steps taken."""
    objective = objective or LocalObjective()
    device = next(model.parameters()).device
    dtype = precision(local.precision)
    called: Classifier = torch.compile(model) if local.compile else model  # type: ignore[assignment]
    optimizer = make_optimizer(local, model.parameters())
    model.train()
    steps = 0
    # Dropout, and the noise of a diffusion model: the order of samples is not affected.
    stream = int(rng.spawn(1)[0].integers(2**62))
    with repeatable(device), seeded(stream, device):
        for batch, labels in _all_batches(samples, local, rng, progress):
            with autocast(device, dtype):
                loss = objective.loss(called, batch.to(device), labels.to(device))
            optimizer.zero_grad(set_to_none=True)
            loss.backward()  # type: ignore[no-untyped-call]
            objective.after_backward(model)
            optimizer.step()
            steps += 1
    return steps


def make_optimizer(local: Local, parameters: Iterable[torch.nn.Parameter]) -> Optimizer:
    """Make the optimiser of a client's training.

    >>> weight = torch.nn.Parameter(torch.zeros(2))
    >>> type(make_optimizer(Local(optimizer="adamw(eps=1e-6)"), [weight])).__name__
    'AdamW'
    """
    kind, settings = find_optimizer(local)
    try:
        optimizer: Optimizer = kind(parameters, lr=local.learning_rate, **settings)
    except (TypeError, ValueError) as error:
        raise InputError(f"optimizer {local.optimizer!r} cannot be made: {error}") from None
    return optimizer


def find_optimizer(local: Local) -> tuple[type[Any], dict[str, Any]]:
    """Return an optimiser's class and settings, and refuse what torch does not have.

    Momentum and weight decay of 0 are left to the optimiser.
    """
    name, given = parse(local.optimizer, "optimizer")
    shared = {k: v for k in ("momentum", "weight_decay") if (v := getattr(local, k))}
    optimizers = _optimizers()
    kind = optimizers[choice(name.lower(), "optimizer", optimizers)]
    takes = [k for k in inspect.signature(kind).parameters if k not in ("params", "lr")]
    for key in (*given, *shared):
        if key not in takes:
            raise InputError(f"optimizer {name!r} has no setting {key!r}", allowed=", ".join(takes))
        if key in given and key in shared:
            raise InputError(f"{key!r} is set twice", got=local.optimizer, fix="set it once")
    return kind, given | shared


@cache
def _optimizers() -> dict[str, type[Optimizer]]:
    """Return torch's optimisers by their names in lower case."""
    kinds = {
        name.lower(): kind
        for name, kind in sorted(vars(torch.optim).items())
        if isinstance(kind, type) and issubclass(kind, Optimizer)
    }
    return {name: kind for name, kind in kinds.items() if name not in _LEFT_OUT}


def steps_of(samples: int, local: Local) -> int:
    """Return how many steps a client with that many samples takes in a round.

    >>> steps_of(129, Local(epochs=2, batch=64)), steps_of(130, Local(epochs=2, batch=64))
    (4, 6)
    """
    if local.steps:
        return local.steps if samples > 1 else 0
    whole, rest = divmod(samples, local.batch)
    return local.epochs * (whole + (rest > 1))


def _all_batches(
    samples: Samples,
    local: Local,
    rng: np.random.Generator,
    progress: Callable[[int, int], None] | None,
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yield the batches of all epochs, or of as many as a fixed number of steps takes."""
    if local.steps:
        # A single sample makes no batch, in any number of epochs.
        epochs = itertools.count() if len(samples) > 1 else range(0)
        endless = (batch for _ in epochs for batch in batches(samples, local.batch, rng))
        yield from itertools.islice(endless, local.steps)
        return
    for epoch in range(local.epochs):
        yield from batches(samples, local.batch, rng)
        if progress is not None:
            progress(epoch + 1, local.epochs)


def batches(
    samples: Samples, size: int, rng: np.random.Generator
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yield shuffled batches; a last one of a single sample is left out, for batch norm's sake."""
    order = rng.permutation(len(samples))
    for start in range(0, len(order), size):
        positions = order[start : start + size]
        if len(positions) > 1:
            batch, labels = samples.take(positions)
            yield torch.from_numpy(batch), torch.from_numpy(labels)


def predict(model: Classifier, samples: Array, batch: int = 512, dtype: str = "float32") -> Ints:
    """Return the most likely class of every sample."""
    classes = [logits.argmax(1) for logits in _logits(model, samples, batch, dtype)]
    return torch.cat(classes).cpu().numpy() if classes else np.empty(0, np.int64)


@torch.inference_mode()
def _logits(model: Classifier, samples: Array, batch: int, dtype: str) -> list[torch.Tensor]:
    """Return the logits of samples, batch by batch."""
    model.eval()
    device = next(model.parameters()).device
    with repeatable(device), autocast(device, precision(dtype)):
        return [
            model(torch.from_numpy(np.array(samples[i : i + batch])).to(device))
            for i in range(0, len(samples), batch)
        ]


def accuracy(
    model: Classifier, samples: Samples, block: int = 2048, dtype: str = "float32"
) -> tuple[float, Floats]:
    """Return the accuracy on samples, and that of every class (nan where there are none)."""
    if model.label_sets is not None:
        raise InputError("samples with several labels have no accuracy", fix="use `scores`")
    hits = _hits(model, samples, block, dtype)
    overall = float(hits.sum() / max(1, len(hits)))
    return overall, _shares(hits, samples.labels, len(samples.data.classes))


def scores(
    model: Classifier, samples: Samples, dtype: str = "float32", sites: Sites | None = None
) -> dict[str, Any]:
    """Return what a log says of a model on held-out samples.

    The accuracy in all, by class and, where it is known, by the site that samples are from; None
    for an empty class or site. Where samples have several labels, the AUROC of every label, their
    mean and the least; None for a label that all samples have, or none. Of a diffusion model its
    loss.
    """
    if isinstance(model, Denoiser):
        return {"loss": held_out_loss(model, samples, dtype)}
    if samples.data.label_sets is not None:
        return _label_scores(model, samples, samples.data.label_sets, dtype)
    hits = _hits(model, samples, 2048, dtype)
    line: dict[str, Any] = {
        "accuracy": float(hits.sum() / max(1, len(hits))),
        "per_class": _shown(_shares(hits, samples.labels, len(samples.data.classes))),
    }
    if sites is not None:
        line["per_site"] = _shown(_shares(hits, sites.codes[samples.indices], len(sites.names)))
    return line


def _label_scores(
    model: Classifier, samples: Samples, sets: LabelSets, dtype: str
) -> dict[str, Any]:
    """Return the AUROC of every label, their mean, and the label with the least."""
    held = sets.table[samples.labels]
    blocks = (np.arange(i, min(i + 2048, len(samples))) for i in range(0, len(samples), 2048))
    parts = [logits for b in blocks for logits in _logits(model, samples.take(b)[0], 512, dtype)]
    logits = torch.cat(parts).float().cpu().numpy()
    areas = np.array([auroc(logits[:, c], held[:, c]) for c in range(held.shape[1])])
    if np.isnan(areas).all():
        raise InputError("no label is there both with and without it", fix="use more test samples")
    worst = int(np.nanargmin(areas))
    return {
        "auroc": float(np.nanmean(areas)),
        "worst_auroc": float(areas[worst]),
        "worst_label": sets.labels[worst],
        "per_label": _shown(areas),
        "left_out": [sets.labels[c] for c in np.flatnonzero(np.isnan(areas))],
    }


def auroc(scores: NDArray[np.floating[Any]], positive: NDArray[np.bool_]) -> float:
    """Return how often a positive sample scores above a negative one; nan without both.

    >>> auroc(np.array([0.1, 0.4, 0.4, 0.9]), np.array([False, False, True, True]))
    0.875
    """
    count = int(positive.sum())
    pairs = count * (len(positive) - count)
    if not pairs:
        return float("nan")
    _, place, ties = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = (ties.cumsum() - (ties - 1) / 2)[place]  # the mean rank of equal scores
    return float((ranks[positive].sum() - count * (count + 1) / 2) / pairs)


def _hits(model: Classifier, samples: Samples, block: int, dtype: str) -> NDArray[np.bool_]:
    """Return which samples a model classifies right."""
    hits = np.empty(len(samples), np.bool_)
    for start in range(0, len(samples), block):
        part, labels = samples.take(np.arange(start, min(start + block, len(samples))))
        hits[start : start + block] = predict(model, part, dtype=dtype) == labels
    return hits


def _shares(hits: NDArray[np.bool_], groups: Ints, size: int) -> Floats:
    """Return the share of hits in each group, nan in an empty one."""
    right, total = (np.bincount(own, minlength=size) for own in (groups[hits], groups))
    shares: Floats = np.divide(right, total, out=np.full(size, np.nan), where=total > 0)
    return shares


def _shown(shares: Floats) -> list[float | None]:
    return [None if np.isnan(share) else round(float(share), 5) for share in shares]


@torch.inference_mode()
def held_out_loss(
    model: Denoiser, samples: Samples, dtype: str = "float32", most: int = 1000
) -> float:
    """Return the denoising loss on at most that many samples, with the same noise every time."""
    model.eval()
    device = next(model.parameters()).device
    rng = torch.Generator().manual_seed(0)
    chosen = np.linspace(0, len(samples) - 1, min(most, len(samples))).astype(np.int64)
    total = 0.0
    with repeatable(device), autocast(device, precision(dtype)):
        for start in range(0, len(chosen), 250):
            batch, labels = map(torch.from_numpy, samples.take(chosen[start : start + 250]))
            loss = model.loss(batch.to(device), labels, rng=rng)
            total += float(loss) * len(labels)
    return total / max(1, len(chosen))


@contextmanager
def repeatable(device: torch.device) -> Iterator[None]:
    """On a GPU, let cuDNN use only algorithms that give the same bits every time.

    The switches belong to the process: they are put back.
    """
    cudnn = torch.backends.cudnn
    before = cudnn.deterministic, cudnn.benchmark
    if device.type == "cuda":
        cudnn.deterministic, cudnn.benchmark = True, False
    try:
        yield
    finally:
        cudnn.deterministic, cudnn.benchmark = before


def use_threads(threads: int) -> None:
    """Compute with that many threads: the rounding of sums depends on their number."""
    if threads != torch.get_num_threads():
        torch.set_num_threads(threads)


def keep_memory() -> bool:
    """Ask the C library not to give freed memory back: every batch needs the same again.

    Worth a quarter of the time of small models on a CPU. Only glibc has the switches; elsewhere
    nothing happens.
    """
    trim_threshold, top_pad, mmap_threshold = -1, -2, -3
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError, TypeError):  # TypeError: Windows has no CDLL(None)
        return False
    done = (
        mallopt(mmap_threshold, 32 << 20),  # the most that glibc takes
        mallopt(trim_threshold, 1 << 30),
        mallopt(top_pad, 64 << 20),
    )
    return all(done)
