"""`ClientSamples`: a policy, a generator and a cache; a client's synthetic samples.

The drop-in, a simulated client and a deployed site all use it, so that the same client gets the
same samples in all three.
"""

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, is_dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike

from fedeas._internal import defaults
from fedeas._internal.progress import Progress, progress
from fedeas.cache.fill import client_samples
from fedeas.cache.segments import Ints, Segment
from fedeas.cache.store import Cache, folder_size
from fedeas.cache.stored import stored_samples
from fedeas.data.kinds import Array
from fedeas.errors import InputError
from fedeas.generators import (
    Classes,
    Generator,
    LocalSamples,
    Resampler,
    check_shape,
    check_stated_classes,
    open_generator,
)
from fedeas.planning.plan import ClientPlan
from fedeas.planning.policies import LocalPolicy
from fedeas.planning.resolve import resolve_client

_LOG = logging.getLogger(__name__)


class RowPlanner(Protocol):
    """A policy that needs one client's label counts alone."""

    def local(self, n: ArrayLike) -> Ints:
        """Return the samples of every class to generate."""
        ...


@dataclass(frozen=True)
class ClientSamples:
    """The synthetic samples of one client.

    They are known by the generator's fingerprint, the classes, the client's name and the seed:
    every later request, from any process, reads the same samples from disk. If the label counts
    change, samples that are still wanted are kept.
    """

    client: str
    policy: RowPlanner | ClientPlan
    generator: str | Generator
    cache: Path | str  # a folder, or an address
    seed: int = defaults.SEED
    batch_size: int = 64
    max_samples: int | None = None
    offered: tuple[tuple[str, object], ...] = ()  # settings for a generator named by a spec
    show_progress: bool = False  # on standard error
    max_bytes: int | None = None  # of all that is in the folder of caches
    stored: Path | str | None = None  # where samples are read from, in the place of a generator

    def draw(
        self,
        n: ArrayLike,
        classes: Classes,
        like: Array | None = None,
        own: LocalSamples | None = None,
        check: Callable[[Array], object] | None = None,
    ) -> tuple[Array, Ints]:
        """Return samples and labels for a client with these label counts, generated where missing.

        Samples that do not look `like` the real ones are refused, and so are those of which `check`
        refuses the first batch. Copies and the like are made of the client's `own` samples, each
        time anew: no real sample is written to the cache.
        """
        planned = self.planned(n, classes)
        self._warn_of_fewer(n, classes, planned)
        if self.stored is not None and planned.any():
            return stored_samples(self.stored, self.client, planned.tolist(), classes)
        if planned.any() and isinstance(self.generator, str):
            check_stated_classes(classes, self.generator)
        generator = self.open_generator() if planned.any() else None
        if like is not None:
            check_shape(like.shape[1:], generator)
        if isinstance(generator, Resampler):
            planned = self._feasible(generator, planned, np.asarray(n))
        if generator is None or not planned.any():
            _LOG.info("client %s: nothing to generate", self.client)
            nothing = np.empty((0, 0)) if like is None else like[:0]
            return nothing, np.empty(0, np.int64)
        cache = self.open_cache(classes)
        if isinstance(generator, Resampler):
            return self._sample_from(generator, own, cache, planned)
        wanted = planned.tolist()
        generating = partial(self._generating, cache, wanted, like)
        return client_samples(
            self.client, wanted, generator, cache, self.batch_size, like, generating, check
        )

    def planned(self, n: ArrayLike, classes: Classes) -> Ints:
        """Return how many samples of every class a client with these label counts generates."""
        return self._affordable(self._asked(n, classes))

    def _asked(self, n: ArrayLike, classes: Classes) -> Ints:
        """Return how many samples of every class the policy or the plan asks for."""
        if isinstance(self.policy, ClientPlan):
            return self.policy.for_classes(classes)
        policy = resolve_client(self.policy, classes, self.client)
        return (
            policy.local(n, client=self.client)
            if isinstance(policy, LocalPolicy)
            else policy.local(n)
        )

    def _warn_of_fewer(self, n: ArrayLike, classes: Classes, planned: Ints) -> None:
        """Warn of samples that are not generated: beyond the cap, or said to be worth little."""
        asked = self._asked(n, classes)
        if planned.sum() < asked.sum():
            _LOG.warning(
                "client %s: %s samples are asked for and max_samples is %s, so each class is "
                "reduced proportionally", self.client, f"{asked.sum():,}", f"{self.max_samples:,}",
            )  # fmt: skip
        if getattr(self.policy, "quality", None) is None or not is_dataclass(self.policy):
            return
        without: Any = replace(self.policy, quality=None)  # type: ignore[call-arg]
        full = replace(self, policy=without).planned(n, classes)
        if planned.sum() < full.sum():
            _LOG.warning(
                "client %s: %s of %s samples are generated: the quality of the generator is low in "
                "%s of %s classes", self.client, int(planned.sum()), int(full.sum()),
                int((planned < full).sum()), planned.size,
            )  # fmt: skip

    def known_classes(self) -> Sequence[str] | None:
        """Return the names of the classes: the generator's, or without one the plan's."""
        if self.stored is not None:
            return self.policy.classes if isinstance(self.policy, ClientPlan) else None
        return getattr(self.open_generator(), "classes", None)

    def open_cache(self, classes: Classes) -> Cache:
        """Return the cache of these samples; refuse a generator of other classes."""
        return Cache(self.cache, self.open_generator(), classes, self.seed)

    def open_generator(self) -> Generator:
        """Return the generator, opened where it is named by a spec; only once."""
        return self._generator

    @cached_property
    def _generator(self) -> Generator:
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

    def _feasible(self, generator: Resampler, wanted: Ints, n: Ints) -> Ints:
        """Return what can be made of what the policy wants, and say what cannot."""
        feasible = generator.feasible(wanted, n)
        if lost := int((wanted - feasible).sum()):
            _LOG.warning(
                "client %s: %s: %s of %s samples cannot be made: %s of its classes lack %s",
                self.client, type(generator).__name__.lower(), lost,
                int(wanted.sum()), int((wanted > feasible).sum()), generator.lacks,
            )  # fmt: skip
        return feasible

    def _sample_from(
        self, generator: Resampler, own: LocalSamples | None, cache: Cache, wanted: Ints
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
        # Python's whole numbers: a product of two large ones has no other room.
        each, most = [int(x) for x in wanted], self.max_samples
        if most is None or (total := sum(each)) <= most:
            return wanted
        return np.array([x * most // total for x in each], np.int64)

    @contextmanager
    def _generating(
        self, cache: Cache, wanted: Sequence[int], like: Array | None
    ) -> Iterator[Progress | None]:
        """Log what is generated and how long that took, and show the progress if that is wanted."""
        missing = sum(wanted)
        if not cache.exists():
            for other in cache.nearly_the_same():
                _LOG.warning("client %s: %s", self.client, other)
        if names := cache.clients_by_table(self.client):
            _LOG.warning(
                "client %s: all samples are generated, although %s has samples of clients by "
                "name (%s); pass client= as in the plan", self.client, cache.place,
                ", ".join(names[:3]),
            )  # fmt: skip
        missing = cache.missing(self.client, wanted).total
        self._check_room(missing, like)
        total = f"{sum(wanted):,} samples"
        _LOG.info("client %s: generating %s of %s, kept in %s",
                  self.client, f"{missing:,}", total, cache.place)  # fmt: skip
        start = time.monotonic()
        name = f"client {self.client}: generating samples"
        with progress(name) if self.show_progress else nullcontext() as update:
            yield update
        seconds = time.monotonic() - start
        _LOG.info("client %s: %s ready after %.1f s", self.client, total, seconds)

    def _check_room(self, missing: int, like: Array | None) -> None:
        """Refuse to generate more than the folder of caches may hold."""
        if self.max_bytes is None or like is None:
            return
        total = missing * int(np.prod(like.shape[1:])) * like.dtype.itemsize
        total += folder_size(self.cache)
        if total > self.max_bytes:
            raise InputError(
                f"{self.cache} would hold too much",
                got=f"{total:,} bytes",
                allowed=f"{self.max_bytes:,}",
                fix="raise max-cache-mb, or remove caches: fedeas cache prune",
            )
