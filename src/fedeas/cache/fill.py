"""Filling a cache: from a plan to images, each generated once.

The batches of a fill are fixed when it starts and noted in a journal. A fill that was killed goes
on with the same batches, so that it ends with the same bytes as one that was not: images depend,
in the last digit, on the batch that they were made in.
"""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from fedeas.cache.shard import Segment
from fedeas.cache.store import Cache, overlap, read_json, remove_half_written, write_json
from fedeas.errors import InputError
from fedeas.generators import Generator
from fedeas.plan import Plan

Request = tuple[str, Segment]
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Filled:
    """What a fill did: images generated now, images that were there, and what it mended."""

    generated: int
    reused: int
    mended: tuple[str, ...]


def fill(
    plan: Plan,
    generator: Generator,
    cache: Cache,
    batch_size: int = 64,
    progress: Progress | None = None,
    waiting: Callable[[], None] | None = None,
) -> Filled:
    """Generate what the plan wants and the cache does not hold yet.

    Batches mix clients and classes, so that small requests do not cost a batch each. `progress`
    hears the images made and to be made in all, `waiting` that another process fills this cache.
    """
    if batch_size < 1:
        raise InputError("not a batch size", got=batch_size, allowed="a whole number from 1")
    if generator.fingerprint != cache.about["generator"]:
        raise InputError("the cache belongs to another generator", got=generator.fingerprint)
    _check_classes(plan, generator)
    with cache.locked(waiting):
        mended = _check(cache, plan)
        missing = _missing(cache, plan)
        reused = plan.total - sum(segment.size for _, segment in missing)
        generated = 0
        # Twice where a fill that was killed left a journal, and more has gone missing since.
        for _ in range(2):
            requests = _journal(cache, plan, batch_size, missing)
            total = sum(segment.size for _, segment in requests)
            done = 0
            for batch in batches(requests, batch_size):
                size = sum(segment.size for _, segment in batch)
                if not _present(cache, batch):
                    _generate(cache, generator, batch)
                    generated += size
                done += size
                if progress is not None:
                    progress(done, total)
            cache.journal.unlink(missing_ok=True)
            if not (missing := _missing(cache, plan)):
                break
    return Filled(generated, reused, tuple(mended))


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


def _check(cache: Cache, plan: Plan) -> list[str]:
    """Set aside what is damaged, for all clients of the plan."""
    mended: list[str] = []
    remove_half_written(cache.folder)
    about = cache.folder / "cache.json"
    try:
        if read_json(about) != cache.about:
            raise InputError(f"{about} is damaged")
    except InputError as error:
        if about.exists():
            mended.append(str(error))
            cache.quarantine(about)
        write_json(about, cache.about)
    for name in plan.client_names:
        mended += cache.client(name).check()
    return mended


def _check_classes(plan: Plan, generator: Generator) -> None:
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


def _missing(cache: Cache, plan: Plan) -> list[Request]:
    """Return what the plan wants and the cache does not hold, client by client."""
    return [
        (name, segment)
        for name, wanted in zip(plan.client_names, plan.samples, strict=True)
        for segment in cache.client(name).missing(wanted)
    ]


def _journal(cache: Cache, plan: Plan, batch_size: int, missing: list[Request]) -> list[Request]:
    """Return the requests of the fill under way for this plan and batch size, or begin one."""
    plan_key = hashlib.sha256(plan.samples.tobytes() + repr(plan.client_names).encode())
    key = [plan_key.hexdigest(), batch_size]
    try:
        noted = read_json(cache.journal)
        if noted["key"] == key:
            return [(name, Segment(*s)) for name, s in noted["requests"]]
    except (InputError, KeyError, TypeError):
        pass  # there is none, or it is damaged: then the batches are those of a new fill
    write_json(cache.journal, {"key": key, "requests": missing})
    return missing


def _present(cache: Cache, batch: Sequence[Request]) -> bool:
    """Tell whether every sample of a batch is in the cache."""
    for name, group in groupby(batch, key=lambda request: request[0]):
        segments = [segment for _, segment in group]
        wanted = np.zeros(1 + max(s.label for s in segments), np.int64)
        for segment in segments:
            wanted[segment.label] = segment.stop
        lacking = cache.client(name).missing(wanted.tolist())
        if any(overlap(a, b) for a in lacking for b in segments):
            return False
    return True


def _generate(cache: Cache, generator: Generator, batch: Sequence[Request]) -> None:
    """Draw one batch and store each client's part of it."""
    sizes = [segment.size for _, segment in batch]
    labels = np.repeat([segment.label for _, segment in batch], sizes).astype(np.int64)
    seeds = np.concatenate([cache.seeds(name, segment) for name, segment in batch])
    images = _checked(generator.sample(labels, seeds), len(labels))
    at = 0
    for name, group in groupby(batch, key=lambda request: request[0]):
        segments = [segment for _, segment in group]
        stop = at + sum(segment.size for segment in segments)
        cache.client(name).add(segments, images[at:stop])
        at = stop


def _checked(images: object, wanted: int) -> NDArray[np.uint8]:
    if (
        not isinstance(images, np.ndarray)
        or images.dtype != np.uint8
        or images.ndim != 4
        or len(images) != wanted
    ):
        shape = getattr(images, "shape", type(images).__name__)
        raise InputError(
            "the generator returned something else than images",
            got=shape,
            allowed=f"{wanted} x height x width x channels of uint8",
        )
    return images
