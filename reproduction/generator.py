"""The generator of the CIFAR-10 study: a diffusion model of images that no client holds.

    python -m reproduction generator --out generators/cifar10

The same 30,000 images whatever the seed of a run. Interrupted, it resumes.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

from fedeas._internal.files import content_hash
from fedeas.data import Dataset, open_dataset
from fedeas.data.federation import pool_indices
from fedeas.train.diffusion.train import PRESETS, TrainingProgress, train
from fedeas.train.loop import use_threads

PER_CLASS, POOL_SEED, STEPS = 3000, 0, 6_000


def held_out(data: Dataset, per_class: int = PER_CLASS) -> Dataset:
    """Return the images that no client of the study holds, as a data set of their own."""
    pool = pool_indices(data, per_class, POOL_SEED)
    return replace(
        data,
        samples=np.asarray(data.samples[pool]),
        labels=np.asarray(data.labels)[pool],
        name=f"{data.name}, {len(pool):,} images that no client holds",
        train_size=len(pool),
        fingerprint=content_hash({"of": data.fingerprint, "indices": pool.tolist()}),
    )


def train_held_out(out: Path, threads: int, say: Callable[[str], None]) -> Path:
    """Train it, from the last checkpoint if there is one, and return the model's folder."""
    use_threads(threads)
    training = replace(PRESETS["tiny"], steps=STEPS, precision="float32")

    def report(progress: TrainingProgress) -> None:
        if progress.step % 50 == 0:
            say(
                f"step {progress.step:,} of {progress.steps:,}: loss {progress.loss:.4f}, "
                f"{progress.images_per_second:.0f} images a second"
            )

    return train(held_out(open_dataset("cifar10")), out, training, 42, "cpu", 200, report)
