"""`ClientSamples`: a policy, a generator and a cache; a client's synthetic samples.

The drop-in, a simulated client and a deployed site all use it, so that the same client gets the
same samples in all three.
"""

import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike

from fedeas.cache.block import Ints, Segment
from fedeas.cache.fill import client_samples
from fedeas.cache.store import Cache
from fedeas.data.kinds import Array
from fedeas.errors import InputError
from fedeas.generators import (
    Classes,
    Generator,
    OwnSampleGenerator,
    OwnSamples,
    open_generator,
)
from fedeas.policy_settings import settle_row
from fedeas.progress import Progress, progress

_LOG = logging.getLogger(__name__)


class Local(Protocol):
    """A policy that needs one client's label counts alone."""

    def local(self, n: ArrayLike) -> Ints:
        """Return the samples of every class to generate."""
        ...


@dataclass(frozen=True)
class Planned:
    """What a plan says for one client, as a policy."""

    samples: Ints  # of every class

    def local(self, n: ArrayLike) -> Ints:
        """Return the samples of every class to generate, whatever the counts."""
        return self.samples


@dataclass(frozen=True)
class ClientSamples:
    """The synthetic samples of one client.

    They are known by the generator's fingerprint, the classes, the client's name and the seed:
    every later request, from any process, reads the same samples from disk. If the label counts
    change, samples that are still wanted are kept.
    """

    client: str
    policy: Local
    generator: str | Generator
    cache: Path
    seed: int = 0
    batch_size: int = 64
    max_samples: int | None = None
    offered: tuple[tuple[str, object], ...] = ()  # settings for a generator named by a spec
    show_progress: bool = False  # on standard error

    def draw(
        self,
        n: ArrayLike,
        classes: Classes,
        like: Array | None = None,
        own: OwnSamples | None = None,
    ) -> tuple[Array, Ints]:
        """Return samples and labels for a client with these label counts, generated where missing.

        Samples that do not look `like` the real ones are refused. Copies and the like are made of
        the client's `own` samples, each time anew: no real sample is written to the cache.
        """
        policy = settle_row(self.policy, classes, self.client)
        planned = self._affordable(policy.local(n))
        generator = self.open_generator() if planned.any() else None
        if isinstance(generator, OwnSampleGenerator):
            planned = self._feasible(generator, planned, np.asarray(n))
        if generator is None or not planned.any():
            nothing = np.empty((0, 0)) if like is None else like[:0]
            return nothing, np.empty(0, np.int64)
        cache = self.open_cache(classes)
        if isinstance(generator, OwnSampleGenerator):
            return self._sample_from(generator, own, cache, planned)
        wanted = planned.tolist()
        generating = partial(self._generating, cache, wanted)
        return client_samples(
            self.client, wanted, generator, cache, self.batch_size, like, generating
        )

    def open_cache(self, classes: Classes) -> Cache:
        """Return the cache of these samples; refuse a generator of other classes."""
        return Cache(self.cache, self.open_generator(), classes, self.seed)

    def open_generator(self) -> Generator:
        """Return the generator, opened where it is named by a spec."""
        if isinstance(self.generator, str):
            return open_generator(self.generator, self.offered)
        if not isinstance(self.generator, Generator):
            raise InputError(
                "not a generator",
                got=type(self.generator).__name__,
                allowed="a spec such as 'diffusion(model=fashion_mnist)', or an object with "
                "`fingerprint` and `sample`",
            )
        return self.generator

    def _feasible(self, generator: OwnSampleGenerator, wanted: Ints, n: Ints) -> Ints:
        """Return what can be made of what the policy wants, and say what cannot."""
        made = generator.feasible(wanted, n)
        if lost := int((wanted - made).sum()):
            _LOG.warning(
                "client %s: %s makes %s of %s samples; for the other %s, of %s classes, the client "
                "has not %s", self.client, type(generator).__name__.lower(), int(made.sum()),
                int(wanted.sum()), lost, int((wanted > made).sum()), generator.lacks,
            )  # fmt: skip
        return made

    def _sample_from(
        self, generator: OwnSampleGenerator, own: OwnSamples | None, cache: Cache, wanted: Ints
    ) -> tuple[Array, Ints]:
        """Use the client's own samples, with the seeds that generated ones would have."""
        labels = np.repeat(np.arange(len(wanted)), wanted)
        parts = [Segment(label, 0, size) for label, size in enumerate(wanted.tolist())]
        seeds = np.concatenate([cache.seeds(self.client, part) for part in parts])
        if own is None:
            return generator.sample(labels, seeds), labels  # which says what is missing
        return generator.sample_from(own, labels, seeds), labels

    def _affordable(self, wanted: Ints) -> Ints:
        """Return what is generated of what the policy wants: every class is cut in proportion."""
        total, most = int(wanted.sum()), self.max_samples
        if most is None or total <= most:
            return wanted
        _LOG.warning("the policy wants %s samples; this site generates at most %s", total, most)
        return wanted * most // total

    @contextmanager
    def _generating(self, cache: Cache, wanted: Sequence[int]) -> Iterator[Progress | None]:
        """Log what is generated and how long that took, and show the progress if that is wanted."""
        total, missing = f"{sum(wanted):,} samples", 0
        with suppress(InputError):  # damaged: how many can be kept is known when they are mended
            missing = sum(segment.size for segment in cache.missing(self.client, wanted))
        to_do = f"generating {missing:,} of {total}" if missing else f"mending {total}"
        _LOG.info("client %s: %s, kept in %s", self.client, to_do, cache.folder)
        begun = time.monotonic()
        name = f"client {self.client}: generating samples"
        with progress(name) if self.show_progress else nullcontext() as update:
            yield update
        took = time.monotonic() - begun
        _LOG.info("client %s: %s ready after %.1f s", self.client, total, took)
