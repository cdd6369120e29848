"""A noisy sum over sites that are all here: what a simulation releases, and what that costs."""

import math
import os
from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol

import numpy as np

from fedeas.privacy.accounting import DELTA, rho_for, sigma_for
from fedeas.privacy.noise import Noise
from fedeas.privacy.queries.query import Ints
from fedeas.privacy.queries.sample_sum import SampleSum
from fedeas.seeds import child_rng


class Sum(Protocol):
    """What is asked of every site."""

    @property
    def length(self) -> int:
        """How many words an answer has."""
        ...

    @property
    def sensitivity(self) -> float:
        """The most that one sample moves an answer, in the Euclidean norm."""
        ...


class Release(NamedTuple):
    """A sum with the noise of all sites, and what it costs one sample of a site."""

    sums: Ints
    sigma: float  # standard deviation of the noise of a word; 0 without noise
    sites: int
    epsilon: float  # infinite without a guarantee: no noise, or noise that can be drawn again
    delta: float
    samples: int | None = None  # that the sites in the sum say they have, where that is known


# Asks all sites a query, for a part of the whole cost.
Ask = Callable[[SampleSum, float], Release]


def release(
    query: Sum,
    answers: Iterable[Ints],
    sites: int,
    epsilon: float,
    delta: float = DELTA,
    part: float = 1.0,
    noise_seed: int | None = None,
) -> Release:
    """Add up the sites' answers, each with its part of the noise.

    Parameters
    ----------
    query
        What the sites were asked.
    answers
        An answer per site, read one after the other.
    sites
        How many there are. All of them are counted on for the noise: none drops out or colludes in
        a simulation.
    epsilon, delta
        What the sum may cost one sample of a site, added or removed; an infinite epsilon releases
        the plain sum.
    part
        The part of that cost, in rho, that this sum has where several of them share it.
    noise_seed
        Draws the same noise again, for experiments. Whoever has the seed can subtract the noise, so
        that such a release has no guarantee: its epsilon is infinite. By default noise comes from
        the operating system, as at real sites.
    """
    noise = None
    if not math.isinf(epsilon):
        rho = part * rho_for(epsilon, delta)
        sigma = sigma_for(rho, query.sensitivity, honest=sites, words=query.length)
        noise = Noise(sigma, sites)
    sums = np.zeros(query.length, np.int64)
    for site, answer in enumerate(answers):
        sums += answer
        if noise is not None:
            source = (
                os.urandom if noise_seed is None else child_rng(noise_seed, "noise", site).bytes
            )
            sums += noise.part(query.length, source)
    guarantee = epsilon if noise_seed is None else math.inf
    return Release(sums, 0.0 if noise is None else noise.sigma, sites, guarantee, delta)
