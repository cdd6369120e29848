"""Policies without a budget: balance everything, fill up to the mean, generate nothing."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fedeas.policies.policy import Floats, LocalPolicy


@dataclass(frozen=True)
class FullBalance(LocalPolicy):
    """Fill every class up to the client's largest one: max_c n_k^c - n_k^c samples.

    >>> FullBalance().local([90, 10, 0])
    array([ 0, 80, 90])
    """

    name: ClassVar[str] = "full-balance"

    def fill(self, n: Floats) -> Floats:
        """Return the distance of every class from the largest of its row."""
        samples: Floats = n.max(axis=-1, keepdims=True) - n
        return samples


@dataclass(frozen=True)
class FillToMean(LocalPolicy):
    """Fill every class up to the client's mean count, floor(N_k / C).

    >>> FillToMean().local([90, 10, 0])
    array([ 0, 23, 33])
    """

    name: ClassVar[str] = "fill-to-mean"

    def fill(self, n: Floats) -> Floats:
        """Return the distance of every class below the mean from the mean."""
        mean = np.floor(n.sum(axis=-1, keepdims=True) / n.shape[-1])
        samples: Floats = np.maximum(mean - n, 0.0)
        return samples


@dataclass(frozen=True)
class NoGeneration(LocalPolicy):
    """Generate nothing, as plain FedAvg does.

    >>> NoGeneration().local([90, 10, 0])
    array([0, 0, 0])
    """

    name: ClassVar[str] = "none"

    def fill(self, n: Floats) -> Floats:
        """Return zeros."""
        return np.zeros_like(n)
