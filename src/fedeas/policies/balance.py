"""Policies without a budget: balance everything, fill up to the mean, generate nothing."""

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from fedeas.policies.policy import Floats, LocalPolicy
from fedeas.policy_settings import OPTIONAL
from fedeas.scalars import keep
from fedeas.targets import TargetLike, make_target

_ROUNDING = 1e-12  # of a product that would be a whole number


@dataclass(frozen=True, repr=False)
class FullBalance(LocalPolicy):
    """Fill every class up to the client's largest one: max_c n_k^c - n_k^c samples.

    For a target t, up to t_c max_b n_k^b / t_b: the smallest amounts that match it, rounded.

    Parameters
    ----------
    target : Target, str, path, mapping or sequence, optional
        The class distribution to aim at, uniform by default.

    >>> FullBalance().local([90, 10, 0])
    array([ 0, 80, 90])
    """

    name: ClassVar[str] = "full-balance"
    target: TargetLike = field(default=None, metadata=OPTIONAL)

    def __post_init__(self) -> None:
        keep(self, target=make_target(self.target))

    def fill(self, n: Floats) -> Floats:
        """Return the distance of every class from the largest of its row."""
        if (t := self.shares(n.shape[-1])) is not None:
            size = (n / t).max(axis=-1, keepdims=True)
            missing: Floats = np.maximum(np.rint(size * t) - n, 0.0)
            return missing
        samples: Floats = n.max(axis=-1, keepdims=True) - n
        return samples


@dataclass(frozen=True, repr=False)
class FillToMean(LocalPolicy):
    """Fill every class up to the client's mean count, floor(N_k / C).

    For a target t, up to floor(N_k t_c).

    Parameters
    ----------
    target : Target, str, path, mapping or sequence, optional
        The class distribution to aim at, uniform by default.

    >>> FillToMean().local([90, 10, 0])
    array([ 0, 23, 33])
    """

    name: ClassVar[str] = "fill-to-mean"
    target: TargetLike = field(default=None, metadata=OPTIONAL)

    def __post_init__(self) -> None:
        keep(self, target=make_target(self.target))

    def fill(self, n: Floats) -> Floats:
        """Return the distance of every class below the mean from the mean."""
        t = self.shares(n.shape[-1])
        N = n.sum(axis=-1, keepdims=True)
        mean = np.floor(N / n.shape[-1] if t is None else N * t * (1 + _ROUNDING))
        samples: Floats = np.maximum(mean - n, 0.0)
        return samples


@dataclass(frozen=True, repr=False)
class NoGeneration(LocalPolicy):
    """Generate nothing, as plain FedAvg does.

    Parameters
    ----------
    target : Target, str, path, mapping or sequence, optional
        The class distribution to aim at, uniform by default.

    >>> NoGeneration().local([90, 10, 0])
    array([0, 0, 0])
    """

    name: ClassVar[str] = "none"
    target: TargetLike = field(default=None, metadata=OPTIONAL)

    def __post_init__(self) -> None:
        keep(self, target=make_target(self.target))

    def fill(self, n: Floats) -> Floats:
        """Return zeros."""
        return np.zeros_like(n)
