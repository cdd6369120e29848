"""`pool`: real samples held out from the clients. An oracle, for studying allocation alone.

It shows what a plan would be worth if every generated sample were as good as a real one. Its
samples are real, so never report its results as those of synthetic data.
"""

import hashlib

import numpy as np
from numpy.typing import NDArray

from fedeas.data import ALL_FOUND, TableOptions, load_data
from fedeas.data.dataset import Dataset
from fedeas.data.kinds import Array
from fedeas.data.protocol import held_out
from fedeas.errors import InputError
from fedeas.generators.training_data import TrainingData


class Pool:
    """Draws from held-out real samples of the requested class, the seed choosing which."""

    def __init__(self, data: Dataset, indices: NDArray[np.int64]) -> None:
        labels = np.asarray(data.labels)[indices]
        self._samples = data.samples
        self.classes = data.classes
        self._by_class = [indices[labels == c] for c in range(len(data.classes))]
        if empty := [data.classes[c] for c, own in enumerate(self._by_class) if not own.size]:
            raise InputError(
                f"the pool has no samples of class {empty[0]!r}", fix="set hold_out in [data]"
            )
        chosen = hashlib.sha256(np.ascontiguousarray(indices, dtype="<i8").data).hexdigest()
        self.training_data = TrainingData(
            "real held-out samples, drawn as they are", len(indices), data.fingerprint, indices
        )
        self.fingerprint = f"pool-{data.fingerprint[:16]}-{chosen[:16]}"

    def sample(self, labels: NDArray[np.int64], seeds: NDArray[np.uint64]) -> Array:
        """Return one held-out sample per label; the same seed always chooses the same one."""
        pools = [self._by_class[label] for label in labels]
        chosen = [own[int(seed) % len(own)] for own, seed in zip(pools, seeds, strict=True)]
        return np.asarray(self._samples[chosen])


def pool_of_data(
    data: str,
    hold_out: int = 2000,
    seed: int = 42,
    protocol: str = "clean",
    folder: str | None = None,
    table: TableOptions = ALL_FOUND,
) -> Pool:
    """Hold out samples as `federate` does with the same hold_out, seed and protocol.

    Only clients that were partitioned in that way are sure to hold none of them.
    """
    loaded = load_data(data, folder, table)
    return Pool(loaded, held_out(loaded, hold_out, seed, protocol))
