"""Generators for tests: any sample follows from its label and seed, and every draw is noted."""

import os
import time
from functools import cache
from pathlib import Path

import numpy as np

from fedeas.generators import Gaussian
from helpers.small_tables import SCHEMA, draw_table


class Counting:
    """Draws noise; notes each sample in a file, and takes its time, so that it can be killed."""

    fingerprint = "counting-1"

    def __init__(self, log: str = "", delay: float = 0.0) -> None:
        self.log, self.delay = log, delay

    def sample(self, labels, seeds):
        if self.delay:
            time.sleep(self.delay)
        samples = self.draw(labels, seeds)
        if self.log:
            lines = "".join(f"{seed}\n" for seed in seeds)
            handle = os.open(self.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
            os.write(handle, lines.encode())
            os.close(handle)
        return samples

    def draw(self, labels, seeds):
        images = np.stack(
            [
                np.random.default_rng([int(label), int(seed)]).integers(0, 256, (4, 4, 1), np.uint8)
                for label, seed in zip(labels, seeds, strict=True)
            ]
        )
        # What depends on the batch, as rounding does in a real generator.
        images[:, 0, 0, 0] = len(labels) + int(labels.sum()) % 7
        return images


class CountingRows(Counting):
    """Draws rows with `gaussian`: numbers, categories, gaps."""

    fingerprint = "counting-rows-1"

    def draw(self, labels, seeds):
        rows = _fitted().sample(labels, seeds)
        # As above: a whole number, in the first column.
        rows[:, 0] = len(labels) + int(labels.sum()) % 7
        return rows


@cache
def _fitted() -> Gaussian:
    return Gaussian.fit(*draw_table(120), ("a", "b", "c"), SCHEMA)


KINDS = {"images": Counting, "rows": CountingRows}


def drawn(log: Path) -> list[int]:
    """Return the seeds of all samples that were drawn, in order."""
    return [int(line) for line in log.read_text().split()] if log.exists() else []
