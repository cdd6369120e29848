"""Filling a cache: from a plan to samples, each generated once.

The batches of a fill are fixed when it starts and noted in a journal. A fill that was killed goes
on with the same batches, so that it ends with the same bytes as one that was not: samples depend,
in the last digit, on the batch that they were made in.
"""

import errno
import hashlib
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from fedeas.cache.locking import lock_cache, lock_client
from fedeas.cache.manifest import Request, read_journal
from fedeas.cache.private import narrow
from fedeas.cache.shard import SUFFIX, Segment, Shard, read_form
from fedeas.cache.spent import Meter
from fedeas.cache.store import Cache, Ints
from fedeas.data.kinds import Array
from fedeas.errors import InputError
from fedeas.files import write_json
from fedeas.generators import Generator
from fedeas.plan import Plan

Wanted = Mapping[str, Sequence[int]]  # samples of every class, by client
Progress = Callable[[int, int], None]
_READ_ONLY = {errno.EACCES, errno.EPERM, errno.EROFS}


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
    """
    check_classes(plan, generator)
    _check_settings(generator, cache, batch_size)
    wanted = dict(zip(plan.client_names, plan.samples.tolist(), strict=True))
    with lock_cache(cache.folder, waiting):
        mended = cache.check()
        filled = _fill(wanted, generator, cache, cache.journal, batch_size, progress, like)
    return replace(filled, mended=(*mended, *filled.mended))


def client_samples(
    client: str,
    wanted: Sequence[int],
    generator: Generator,
    cache: Cache,
    batch_size: int = 64,
    like: Array | None = None,
) -> tuple[Array, Ints]:
    """Return the samples that one client wants and their labels, generated on first use."""
    own = cache.client(client)
    narrow(cache.folder)
    try:
        cache.check_about()
        return own.samples(wanted)
    except InputError as error:  # a fill generates, mends or refuses
        wrong = error
    try:
        _check_settings(generator, cache, batch_size)
        with lock_client(own):  # others may do the same for themselves
            _fill({client: list(wanted)}, generator, cache, own.journal, batch_size, None, like)
    except OSError as error:
        here = str(error.filename).startswith(str(cache.folder))  # not a file of the generator's
        if error.errno not in _READ_ONLY or not here:
            raise
        raise InputError(
            f"{wrong.what}, and {cache.folder} cannot be written to: {error.strerror}",
            fix="make it writable, or choose another folder of caches",
        ) from None
    return own.samples(wanted)


def _fill(
    wanted: Wanted,
    generator: Generator,
    cache: Cache,
    journal: Path,
    batch_size: int,
    progress: Progress | None,
    like: Array | None,
) -> Filled:
    """Fill while the lock is held."""
    mended = [line for name in wanted for line in cache.client(name).check()]
    missing = _missing(cache, wanted)
    reused = sum(map(sum, wanted.values())) - sum(segment.size for _, segment in missing)
    generated, seconds = 0, 0.0
    shelf, meter = _Shelf(cache, like), Meter(cache.folder)
    # Twice where a fill that was killed left a journal, and more has gone missing since.
    for _ in range(2):
        requests = _noted(journal, wanted, batch_size, missing)
        total = sum(segment.size for _, segment in requests)
        done = 0
        try:
            for batch in batches(requests, batch_size):
                size = sum(segment.size for _, segment in batch)
                if not shelf.holds(batch):
                    begun = time.monotonic()
                    shelf.put(batch, _draw(cache, generator, batch))
                    took = time.monotonic() - begun
                    meter.add(size, took)
                    seconds += took
                    generated += size
                done += size
                if progress is not None:
                    progress(done, total)
        finally:
            meter.write()
            shelf.list_all()
        journal.unlink(missing_ok=True)
        if not (missing := _missing(cache, wanted)):
            break
    return Filled(generated, reused, tuple(mended), seconds)


def _check_settings(generator: Generator, cache: Cache, batch_size: int) -> None:
    """Refuse what no fill can do, before anything is locked or written."""
    if batch_size < 1:
        raise InputError("not a batch size", got=batch_size, allowed="a whole number from 1")
    if generator.fingerprint != cache.about["generator"]:
        raise InputError(
            "the cache belongs to another generator",
            got=generator.fingerprint,
            allowed=str(cache.about["generator"]),
        )


def batches(requests: Sequence[Request], size: int) -> Iterator[list[Request]]:
    """Cut requests into batches of `size` samples, splitting segments where a batch is full.

    >>> list(batches([("a", Segment(0, 0, 3)), ("b", Segment(1, 5, 6))], 2))
    [[('a', Segment(label=0, start=0, stop=2))], \
[('a', Segment(label=0, start=2, stop=3)), ('b', Segment(label=1, start=5, stop=6))]]
    """
    batch: list[Request] = []
    room = size
    for client, (label, first, stop) in requests:
        start = first
        while start < stop:
            end = min(stop, start + room)
            batch.append((client, Segment(label, start, end)))
            room -= end - start
            start = end
            if not room:
                yield batch
                batch, room = [], size
    if batch:
        yield batch


def check_classes(plan: Plan, generator: Generator) -> None:
    """Refuse a generator that says it knows other classes than the plan."""
    known = getattr(generator, "classes", None)
    if known is None:
        return
    if len(known) != len(plan.class_names) or (plan.classes and tuple(known) != plan.classes):
        raise InputError(
            "the plan and the generator have different classes",
            got=plan.class_names,
            allowed=", ".join(known),
        )


def _missing(cache: Cache, wanted: Wanted) -> list[Request]:
    """Return what is wanted and the cache does not hold, client by client."""
    return [
        (name, segment)
        for name, own in wanted.items()
        for segment in cache.client(name).missing(own)
    ]


def _noted(journal: Path, wanted: Wanted, batch_size: int, missing: list[Request]) -> list[Request]:
    """Return the requests of the fill under way for the same wishes, or begin one."""
    key = [hashlib.sha256(json.dumps(wanted).encode()).hexdigest(), batch_size]
    # Without one, or with one that is damaged, the batches are those of a new fill.
    with suppress(InputError):
        return read_journal(journal, key, wanted)
    if missing:
        write_json(journal, {"key": key, "requests": missing})
    return missing


class _Shelf:
    """Puts samples where they belong and lists them when a client's part is done.

    Listing every shard at once would write a client's manifest once a batch, which is quadratic.
    What is not listed when a fill is killed is found by the next one, and listed then.
    """

    def __init__(self, cache: Cache, like: Array | None) -> None:
        self._cache, self._like = cache, like
        self._shards: dict[str, list[Shard]] = {}
        self._held: dict[str, set[Segment]] = {}
        self._form = next(_forms(cache), None)

    def holds(self, batch: Sequence[Request]) -> bool:
        """Tell whether every sample of a batch is there; the batches of a journal never change."""
        return all(segment in self._segments(name) for name, segment in batch)

    def put(self, batch: Sequence[Request], samples: Array) -> None:
        """Store each client's part of a batch."""
        form = samples.shape[1:], samples.dtype
        if self._like is not None and form != (self._like.shape[1:], self._like.dtype):
            raise InputError(
                "the generator's samples do not look like the data's",
                got=f"{form[0]} of {form[1]}",
                allowed=f"{self._like.shape[1:]} of {self._like.dtype}",
            )
        if self._form is not None and form != self._form:
            raise InputError(
                "the generator changed the shape or number format of its samples",
                got=f"{form[0]} of {form[1]}",
                allowed=f"{self._form[0]} of {self._form[1]}",
                fix=f"give it another fingerprint, or delete {self._cache.folder}",
            )
        self._form = form
        at = 0
        for name, group in groupby(batch, key=lambda request: request[0]):
            segments = [segment for _, segment in group]
            stop = at + sum(segment.size for segment in segments)
            self._segments(name).update(segments)
            self._shards[name].append(self._cache.client(name).store(segments, samples[at:stop]))
            at = stop
        # Requests come client by client: all but the last one of a batch are complete.
        self._list([name for name in self._shards if name != batch[-1][0]])

    def list_all(self) -> None:
        """Write the manifests that are still to be written."""
        self._list(list(self._shards))

    def _segments(self, name: str) -> set[Segment]:
        if name not in self._held:
            self._shards[name] = self._cache.client(name).shards()
            self._held[name] = {s for shard in self._shards[name] for s in shard.segments}
        return self._held[name]

    def _list(self, names: Sequence[str]) -> None:
        for name in names:
            del self._held[name]
            client = self._cache.client(name)
            shards = {shard.name: shard for shard in self._shards.pop(name)}
            if shards and list(shards) != [shard.name for shard in client.shards()]:
                client.list_shards(list(shards.values()))


def _forms(cache: Cache) -> Iterator[tuple[tuple[int, ...], np.dtype[Any]]]:
    """Yield the forms of the samples that a cache holds, reading no more than is asked for."""
    for path in cache.clients_folder.glob(f"*/*{SUFFIX}"):
        with suppress(InputError):  # of a client that this plan does not touch
            yield read_form(path)


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
