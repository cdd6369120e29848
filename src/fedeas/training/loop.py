"""The one training loop, and evaluation. What an FL method changes is a `Correction`."""

import ctypes
import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fedeas.data.kinds import Array
from fedeas.settings.training import Local
from fedeas.tensors import autocast, precision, seeded
from fedeas.training.models import Classifier, Denoiser
from fedeas.training.optimizers import make_optimizer
from fedeas.training.samples import Samples

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


class Correction:
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
    correction: Correction | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> int:
    """Train a model in place and return the number of steps taken."""
    correction = correction or Correction()
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
                loss = correction.loss(called, batch.to(device), labels.to(device))
            optimizer.zero_grad(set_to_none=True)
            loss.backward()  # type: ignore[no-untyped-call]
            correction.after_backward(model)
            optimizer.step()
            steps += 1
    return steps


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
        places = order[start : start + size]
        if len(places) > 1:
            batch, labels = samples.take(places)
            yield torch.from_numpy(batch), torch.from_numpy(labels)


@torch.inference_mode()
def predict(model: Classifier, samples: Array, batch: int = 512, dtype: str = "float32") -> Ints:
    """Return the most likely class of every sample."""
    model.eval()
    device = next(model.parameters()).device
    with repeatable(device), autocast(device, precision(dtype)):
        found = [
            model(torch.from_numpy(np.array(samples[i : i + batch])).to(device)).argmax(1)
            for i in range(0, len(samples), batch)
        ]
    return torch.cat(found).cpu().numpy() if found else np.empty(0, np.int64)


def accuracy(
    model: Classifier, samples: Samples, block: int = 2048, dtype: str = "float32"
) -> tuple[float, Floats]:
    """Return the accuracy on samples, and that of every class (nan where there are none)."""
    classes = len(samples.data.classes)
    right, total = np.zeros(classes), np.zeros(classes)
    for start in range(0, len(samples), block):
        part, labels = samples.take(np.arange(start, min(start + block, len(samples))))
        hit = predict(model, part, dtype=dtype) == labels
        right += np.bincount(labels[hit], minlength=classes)
        total += np.bincount(labels, minlength=classes)
    per_class = np.divide(right, total, out=np.full(classes, np.nan), where=total > 0)
    return float(right.sum() / max(1.0, total.sum())), per_class


def scores(model: Classifier, samples: Samples, dtype: str = "float32") -> dict[str, Any]:
    """Return what a log says of a model on held-out samples.

    The accuracy in all and by class, None for an empty class; of a diffusion model its loss.
    """
    if isinstance(model, Denoiser):
        return {"loss": held_out_loss(model, samples, dtype)}
    overall, per_class = accuracy(model, samples, dtype=dtype)
    shown = [None if np.isnan(a) else round(float(a), 5) for a in per_class]
    return {"accuracy": overall, "per_class": shown}


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
            loss = model.held_out_loss(batch.to(device), labels, rng)
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
