"""The data that a generator was trained on: they may be more than the clients of a run have.

A generator that saw 60,000 images, of which the clients hold 2,000, brings in what the federation
does not have. Its gain is not that of a federation on its own, so every report says so.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedeas.data import Federation
from fedeas.generators.own_samples import OwnSampleGenerator

Ints = NDArray[np.int64]
NOT_STATED = "not stated by the generator"


@dataclass(frozen=True, eq=False)
class TrainingData:
    """What a generator says of its training data, in its attribute `training_data`.

    Parameters
    ----------
    what : str
        The data in words.
    samples : int
        How many there were; 0 if that is not known.
    fingerprint : str
        The data set that they are from; '' if that is not known.
    indices : array of int, optional
        Where they are in it; the training part by default, if it has as many samples.
    """

    what: str
    samples: int = 0
    fingerprint: str = ""
    indices: Ints | None = None

    def __str__(self) -> str:
        return f"{self.samples:,} {self.what}" if self.samples else self.what


def describe_training(generator: object, federation: Federation) -> str:
    """Say what data a run's generator was trained on, and how many of them its clients hold.

    Parameters
    ----------
    generator : object
        The generator.
    federation : Federation
        The run's clients.
    """
    if isinstance(generator, OwnSampleGenerator):
        return "each client's own samples"
    stated = getattr(generator, "training_data", None)
    if not isinstance(stated, TrainingData):
        return NOT_STATED
    if not stated.fingerprint:
        return str(stated)
    data, held = federation.data, federation.partition.train.indices
    if stated.fingerprint != data.fingerprint:
        return f"{stated} of another data set than the clients'"
    indices = stated.indices
    if indices is None and stated.samples != data.train_size:
        return f"{stated}, of which the clients hold at most {min(stated.samples, len(held)):,}"
    seen = np.arange(data.train_size) if indices is None else indices
    return f"{stated}, of which the clients hold {int(np.isin(held, seen).sum()):,}"
