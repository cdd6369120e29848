"""Filling a cache: from a plan to samples, each generated once.

The batches of a fill are fixed when it starts and noted in the index. A fill that was killed goes
on with the same batches, so that it ends with the same bytes as one that was not: samples depend,
in the last digit, on the batch that they were made in.
"""

import errno
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np

from fedeas.cache.block import DamagedError, Ints, Segment, mapped, missing_segments
from fedeas.cache.index import Index, Request
from fedeas.cache.locking import lock_cache, lock_client
from fedeas.cache.mend import mend
from fedeas.cache.private import narrow
from fedeas.cache.store import Cache, check_client
from fedeas.data.kinds import Array
from fedeas.errors import InputError
from fedeas.files import content_hash
from fedeas.generators import Generator, check_classes
from fedeas.plan import Plan
from fedeas.progress import Progress

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

    Batches mix clients and classes, so that small requests do not cost a batch each. `progress`
    hears the samples made and to be made in all, `waiting` that another process fills this cache.
    A generator whose samples do not look `like` the real ones is refused at its first batch.

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
    progress, waiting : callable, optional
        Called with the samples made and wanted; called when another process is filling.
    like : array, optional
        Real samples, whose shape and dtype are compared.
    """
    check_classes(plan.classes or plan.samples.shape[1], generator)
    _check_settings(generator, cache, batch_size)
    wanted = dict(zip(plan.client_names, plan.samples.tolist(), strict=True))
    for name in wanted:
        check_client(name)
    with lock_cache(cache.folder, waiting):
        mended = mend(cache)
        work = _Fill(cache, None, generator, _batch(generator, batch_size), like)
        return work.run(wanted, mended, progress)


def client_samples(
    client: str,
    wanted: Sequence[int],
    generator: Generator,
    cache: Cache,
    batch_size: int = 64,
    like: Array | None = None,
    generating: Callable[[], AbstractContextManager[Progress | None]] = nullcontext,
    check: Callable[[Array], None] | None = None,
) -> tuple[Array, Ints]:
    """Return the samples that one client wants and their labels, generated on first use.

    `generating` is entered only if they are not all there, and gives what is told the progress.
    `check` is given the first batch before anything is stored, and may refuse it.
    """
    narrow(cache.folder)
    try:
        return cache.samples(client, wanted)
    except InputError as error:  # a fill generates, mends or refuses
        wrong = error
    try:
        _check_settings(generator, cache, batch_size)
        work = _Fill(cache, client, generator, _batch(generator, batch_size), like, check)
        with generating() as progress:
            _fill_client(client, wanted, work, progress)
    except OSError as error:
        here = str(error.filename).startswith(str(cache.folder))  # not a file of the generator's
        if error.errno not in _READ_ONLY or not here:
            raise
        raise InputError(
            f"{wrong.what}, and {cache.folder} cannot be written to: {error.strerror}",
            fix="make it writable, or choose another folder of caches",
        ) from None
    return cache.samples(client, wanted)


def _fill_client(
    client: str, wanted: Sequence[int], work: "_Fill", progress: Progress | None
) -> None:
    """Fill one client's part; others may do the same for themselves."""
    try:
        with lock_client(work.cache, client):
            work.run({client: list(wanted)}, mend(work.cache, client), progress)
    except DamagedError:  # the index, which is everybody's
        with lock_cache(work.cache.folder):
            work.run({client: list(wanted)}, mend(work.cache), progress)


@dataclass(frozen=True)
class _Fill:
    """A fill for many clients, or for the one that is its owner, while the lock is held."""

    cache: Cache
    owner: str | None
    generator: Generator
    batch_size: int
    like: Array | None
    check: Callable[[Array], None] | None = None

    def run(self, wanted: Wanted, mended: Sequence[str], progress: Progress | None) -> Filled:
        """Generate what is missing."""
        generated, seconds = 0, 0.0
        with self.cache.open() as index:
            missing = _missing(index, wanted)
            reused = sum(map(sum, wanted.values())) - sum(s.size for _, s in missing)
            form = _form(self.cache, index)
            # Twice where a fill was killed, and more has gone missing since.
            for _ in range(2):
                requests = self._requests(index, wanted, missing)
                total = sum(segment.size for _, segment in requests)
                done = 0
                for batch in batches(requests, self.batch_size):
                    if not index.holds(batch):
                        begun = time.monotonic()
                        samples = _draw(self.cache, self.generator, batch)
                        form = self._checked_form(samples, form)
                        if self.check is not None and not generated:
                            self.check(samples)
                        self._store(index, batch, samples, begun)
                        seconds += time.monotonic() - begun
                        generated += len(samples)
                    done += sum(segment.size for _, segment in batch)
                    if progress is not None:
                        progress(done, total)
                index.end_fill(self.owner or "")
                if not (missing := _missing(index, wanted)):
                    break
        return Filled(generated, reused, tuple(mended), seconds)

    def _requests(self, index: Index, wanted: Wanted, missing: list[Request]) -> list[Request]:
        """Return the requests of an interrupted fill for the same samples, or begin one."""
        known, owner = content_hash([wanted, self.batch_size]), self.owner or ""
        if (noted := index.fill_under_way(owner, known, wanted)) is not None:
            return noted
        if missing:
            index.begin_fill(owner, known, missing)
        return missing

    def _store(self, index: Index, batch: Sequence[Request], samples: Array, begun: float) -> None:
        """Store each client's part of a batch."""
        parts, at = [], 0
        for name, group in groupby(batch, key=lambda request: request[0]):
            segments = [segment for _, segment in group]
            stop = at + sum(segment.size for segment in segments)
            parts.append((name, segments, samples[at:stop]))
            at = stop
        path = self.cache.samples_file(self.owner)
        self.cache.append(index, path, parts, time.monotonic() - begun)

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


def _check_settings(generator: Generator, cache: Cache, batch_size: int) -> None:
    """Refuse what no fill can do, before anything is locked or written."""
    if batch_size < 1:
        raise InputError("not a batch size", got=batch_size, allowed="a whole number from 1")
    if generator.fingerprint != cache.about["generator"]:
        raise InputError(
            "the cache belongs to another generator",
            got=generator.fingerprint,
            allowed=cache.about["generator"],
        )


def _batch(generator: Generator, size: int) -> int:
    """Return how many samples are drawn at once: as many as pay, where samples are small."""
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


def _missing(index: Index, wanted: Wanted) -> list[Request]:
    """Return what is wanted and the cache does not hold, client by client."""
    return [
        (name, segment)
        for name, own in wanted.items()
        for segment in missing_segments(index.segments(name), own)
    ]


def _form(cache: Cache, index: Index) -> _Form | None:
    """Return the shape and number format of the samples that a cache holds, from any of them."""
    for file, block in index.blocks():
        with suppress(InputError), mapped(cache.folder / file) as content:
            values = content.read(block)
            return values.shape[1:], values.dtype
    return None


def _draw(cache: Cache, generator: Generator, batch: Sequence[Request]) -> Array:
    """Draw one batch, each sample with the seed of its identity."""
    sizes = [segment.size for _, segment in batch]
    labels = np.repeat([segment.label for _, segment in batch], sizes).astype(np.int64)
    seeds = np.concatenate([cache.seeds(name, segment) for name, segment in batch])
    return _checked(generator.sample(labels, seeds), len(labels))


def _checked(samples: object, wanted: int) -> Array:
    if (
        not isinstance(samples, np.ndarray)
        or samples.dtype.kind not in "uif"
        or samples.ndim < 2
        or len(samples) != wanted
        or not samples.size
    ):
        form = f"{samples.shape} of {samples.dtype}" if isinstance(samples, np.ndarray) else samples
        raise InputError(
            "the generator returned something else than samples",
            got=form,
            allowed=f"an array of {wanted} samples: numbers, all of one shape",
        )
    return samples
