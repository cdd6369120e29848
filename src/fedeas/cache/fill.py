"""Filling a cache: from a plan to samples, each generated once.

The batches of a fill are fixed when it starts and noted in the file. A fill that was killed goes
on with the same batches, so that it ends with the same bytes as one that was not: samples depend,
in the last digit, on the batch that they were made in.
"""

import errno
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np

from fedeas._internal.files import content_hash, narrow
from fedeas._internal.progress import Progress
from fedeas.cache.database import (
    DamagedError,
    Database,
    Ints,
    Request,
    Segment,
    missing_segments,
)
from fedeas.cache.store import Cache, check_client, lock_cache, lock_client
from fedeas.data.kinds import Array
from fedeas.errors import InputError
from fedeas.generators import Generator, check_classes
from fedeas.planning.plan import Plan

Wanted = Mapping[str, Sequence[int]]  # samples of every class, by client
_READ_ONLY = {errno.EACCES, errno.EPERM, errno.EROFS}
_Form = tuple[tuple[int, ...], np.dtype[Any]]


@dataclass(frozen=True)
class Filled:
    """What a fill did: samples generated now, samples that were there, and what it mended."""

    generated: int
    reused: int
    mended: tuple[str, ...]
    seconds: float  # of generating and writing, without waiting for others


def fill(
    plan: Plan,
    generator: Generator,
    cache: Cache,
    batch_size: int = 64,
    progress: Progress | None = None,
    waiting: Callable[[], None] | None = None,
    like: Array | None = None,
) -> Filled:
    """Generate what the plan wants and the cache does not hold yet.

    Batches mix clients and classes, so that small requests do not cost a batch each. A generator
    whose samples do not look `like` the real ones is refused at its first batch.

    Parameters
    ----------
    plan : Plan
        What every client needs.
    generator : Generator
        Draws the samples.
    cache : Cache
        Where they are kept.
    batch_size : int
        Samples that are drawn at once; a generator's `least_batch` goes before a smaller one.
    progress : callable, optional
        `progress(done, total)` is called after each batch.
    waiting : callable, optional
        `waiting()` is called once if another process fills this cache.
    like : array, optional
        Real samples, whose shape and dtype are compared.
    """
    check_classes(plan.classes or plan.samples.shape[1], generator)
    batch_size = _checked_batch_size(batch_size, generator, cache)
    wanted = dict(zip(plan.client_names, plan.samples.tolist(), strict=True))
    for name in wanted:
        check_client(name)
    with lock_cache(cache.folder, waiting):
        return _Fill(cache, generator, batch_size, wanted, like).run(cache.mend(), progress)


def client_samples(
    client: str,
    wanted: Sequence[int],
    generator: Generator,
    cache: Cache,
    batch_size: int = 64,
    like: Array | None = None,
    generating: Callable[[], AbstractContextManager[Progress | None]] = nullcontext,
    check: Callable[[Array], object] | None = None,
) -> tuple[Array, Ints]:
    """Return the samples that one client wants and their labels, generated on first use.

    `generating` is entered only if they are not all there, and gives what is told the progress.
    `check` is given the first batch before anything is stored, and may refuse it.
    """
    narrow(cache.folder)
    try:
        return cache.samples(client, wanted)
    except InputError as error:  # a fill generates, mends or refuses
        reason = error.what
    try:
        batch_size = _checked_batch_size(batch_size, generator, cache)
        job = _Fill(cache, generator, batch_size, {client: list(wanted)}, like, check, client)
        with generating() as progress:
            try:
                with lock_client(cache, client):
                    job.run(cache.mend(client), progress)
            except DamagedError:  # the structure of the file, which is everybody's
                with lock_cache(cache.folder):
                    job.run(cache.mend(), progress)
    except OSError as error:
        here = str(error.filename).startswith(str(cache.folder))  # not a file of the generator's
        if error.errno not in _READ_ONLY or not here:
            raise
        raise InputError(
            f"{reason}, and {cache.folder} cannot be written to: {error.strerror}",
            fix="make it writable, or choose another folder of caches",
        ) from None
    return cache.samples(client, wanted)


@dataclass(frozen=True)
class _Fill:
    """A fill for many clients, or for one that has its own lock, while the lock is held."""

    cache: Cache
    generator: Generator
    batch_size: int
    wanted: Wanted
    like: Array | None
    check: Callable[[Array], object] | None = None
    client: str | None = None

    def run(self, mended: Sequence[str], progress: Progress | None) -> Filled:
        """Generate what is missing."""
        generated, seconds = 0, 0.0
        with self.cache.open() as database:
            blocks = database.blocks(self.client)
            held = {(block.client, s) for block in blocks for s in block.segments}
            form = None
            for block in (blocks or database.blocks())[:1]:
                form = block.shape[1:], np.dtype(block.dtype)
            missing = _missing(held, self.wanted)
            reused = sum(map(sum, self.wanted.values())) - sum(s.size for _, s in missing)
            # Twice where a fill was killed, and more has gone missing since.
            for _ in range(2):
                requests = self._requests(database, missing)
                total = sum(segment.size for _, segment in requests)
                done = 0
                for batch in batches(requests, self.batch_size):
                    if not held.issuperset(batch):
                        begun = time.monotonic()
                        samples = _draw(self.cache, self.generator, batch)
                        form = self._checked_form(samples, form)
                        if self.check is not None and not generated:
                            self.check(samples)
                        database.add(_by_client(batch, samples), time.monotonic() - begun)
                        held.update(batch)
                        seconds += time.monotonic() - begun
                        generated += len(samples)
                    done += sum(segment.size for _, segment in batch)
                    if progress is not None:
                        progress(done, total)
                database.end_fill(self.client or "")
                if not (missing := _missing(held, self.wanted)):
                    break
        return Filled(generated, reused, tuple(mended), seconds)

    def _requests(self, database: Database, missing: list[Request]) -> list[Request]:
        """Return the requests of an interrupted fill for the same samples, or begin one."""
        key, owner = content_hash([self.wanted, self.batch_size]), self.client or ""
        requests = database.fill_under_way(owner, key, self.wanted)
        if requests is None and missing:
            database.begin_fill(owner, key, missing)
        return missing if requests is None else requests

    def _checked_form(self, samples: Array, before: _Form | None) -> _Form:
        """Return the shape and number format of samples; refuse others than before."""
        form = samples.shape[1:], samples.dtype
        if self.like is not None and form != (self.like.shape[1:], self.like.dtype):
            raise InputError(
                "the generator's samples do not look like the data's",
                got=f"{form[0]} of {form[1]}",
                allowed=f"{self.like.shape[1:]} of {self.like.dtype}",
            )
        if before is not None and form != before:
            raise InputError(
                "the generator changed the shape or number format of its samples",
                got=f"{form[0]} of {form[1]}",
                allowed=f"{before[0]} of {before[1]}",
                fix=f"give it another fingerprint, or delete {self.cache.folder}",
            )
        return form


def _checked_batch_size(size: int, generator: Generator, cache: Cache) -> int:
    """Return how many samples to draw at once; refuse what no fill can do, before it begins."""
    if size < 1:
        raise InputError("not a batch size", got=size, allowed="a whole number from 1")
    if generator.fingerprint != cache.about["generator"]:
        raise InputError(
            "the cache belongs to another generator",
            got=generator.fingerprint,
            allowed=cache.about["generator"],
        )
    return max(size, getattr(generator, "least_batch", 1))


def batches(requests: Sequence[Request], size: int) -> Iterator[list[Request]]:
    """Cut requests into batches of `size` samples, splitting segments where a batch is full.

    >>> list(batches([("a", Segment(0, 0, 3)), ("b", Segment(1, 5, 6))], 2))
    [[('a', Segment(label=0, start=0, stop=2))], \
[('a', Segment(label=0, start=2, stop=3)), ('b', Segment(label=1, start=5, stop=6))]]
    """
    batch: list[Request] = []
    left = size
    for client, (label, first, stop) in requests:
        start = first
        while start < stop:
            end = min(stop, start + left)
            batch.append((client, Segment(label, start, end)))
            left -= end - start
            start = end
            if not left:
                yield batch
                batch, left = [], size
    if batch:
        yield batch


def _missing(held: set[Request], wanted: Wanted) -> list[Request]:
    """Return what is wanted and the cache does not hold, client by client."""
    by_client: dict[str, list[Segment]] = {}
    for client, segment in held:
        by_client.setdefault(client, []).append(segment)
    return [
        (client, segment)
        for client, counts in wanted.items()
        for segment in missing_segments(by_client.get(client, ()), counts)
    ]


def _by_client(batch: Sequence[Request], samples: Array) -> list[tuple[str, list[Segment], Array]]:
    """Cut a batch into each client's part."""
    parts, at = [], 0
    for client, group in groupby(batch, key=lambda request: request[0]):
        segments = [segment for _, segment in group]
        stop = at + sum(segment.size for segment in segments)
        parts.append((client, segments, samples[at:stop]))
        at = stop
    return parts


def _draw(cache: Cache, generator: Generator, batch: Sequence[Request]) -> Array:
    """Draw one batch, each sample with the seed of its identity."""
    sizes = [segment.size for _, segment in batch]
    labels = np.repeat([segment.label for _, segment in batch], sizes).astype(np.int64)
    seeds = np.concatenate([cache.seeds(name, segment) for name, segment in batch])
    samples: object = generator.sample(labels, seeds)
    if (
        not isinstance(samples, np.ndarray)
        or samples.dtype.kind not in "uif"
        or samples.ndim < 2
        or len(samples) != len(labels)
        or not samples.size
    ):
        form = f"{samples.shape} of {samples.dtype}" if isinstance(samples, np.ndarray) else samples
        raise InputError(
            "the generator returned something else than samples",
            got=form,
            allowed=f"an array of {len(labels)} samples: numbers, all of one shape",
        )
    return samples
