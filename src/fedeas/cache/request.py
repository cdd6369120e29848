"""A request: what a fill generates, and in which batches.

A sample's last bits depend on the batch that it is generated in. So the batches of a fill are fixed
and written down before its first one, and a sample that is missing later is generated with its
whole batch again, whoever does it.
"""

import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any

import msgspec
import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from fedeas.cache.segments import Ints, Segment, Segments, check_segments, overlaps
from fedeas.cache.shards import DamagedError, Rows
from fedeas.cache.storage import Storage
from fedeas.cache.store import Cache
from fedeas.errors import InputError, first_line
from fedeas.generators import Generator

FOLDER = ".fedeas/requests"
_NAME = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class Request:
    """Segments of samples, one after the other, cut into batches of a size.

    Parameters
    ----------
    segments : Segments
        What is generated.
    batch_size : int
        How many samples are generated at once.
    threads : int
        How many threads the generator computes with.
    """

    segments: Segments
    batch_size: int
    threads: int

    @cached_property
    def name(self) -> str:
        """The hash of all that it says."""
        digest = hashlib.sha256(json.dumps([self.batch_size, self.threads]).encode())
        digest.update("\0".join(self.segments.names).encode())
        for column in _columns(self.segments):
            digest.update(np.ascontiguousarray(column, "<i8").data)
        return digest.hexdigest()

    @cached_property
    def _ends(self) -> Ints:
        """Where each segment ends among all samples."""
        return np.cumsum(self.segments.sizes)

    @property
    def total(self) -> int:
        """How many samples there are."""
        return int(self._ends[-1])

    @property
    def batches(self) -> int:
        """How many batches there are."""
        return -(-self.total // self.batch_size)

    def batch(self, number: int) -> Segments:
        """Return what is generated in one batch."""
        first = number * self.batch_size
        last = min(first + self.batch_size, self.total)
        ends = self._ends
        low = int(np.searchsorted(ends, first, side="right"))
        high = int(np.searchsorted(ends, last, side="left")) + 1
        part = self.segments.take(np.arange(low, high))
        begins = ends[low:high] - part.sizes
        starts = part.starts + np.maximum(first - begins, 0)
        stops = part.stops - np.maximum(ends[low:high] - last, 0)
        return Segments(part.names, part.clients, part.labels, starts, stops)

    def batches_with(self, missing: Segments) -> tuple[Ints, Segments]:
        """Return the batches with missing samples, and what of those is in this request."""
        met = overlaps(missing, self.segments)
        begins = self._ends[met.other] - self.segments.sizes[met.other]
        low = begins + met.starts - self.segments.starts[met.other]
        high = begins + met.stops - self.segments.starts[met.other]
        first, last = low // self.batch_size, (high - 1) // self.batch_size
        number = last - first + 1
        within = np.arange(number.sum()) - np.repeat(np.cumsum(number) - number, number)
        columns = missing.clients[met.one], missing.labels[met.one], met.starts, met.stops
        return np.unique(np.repeat(first, number) + within), Segments(missing.names, *columns)

    def save(self, storage: Storage) -> None:
        """Write it under its name, if it is not there: a line of JSON, then four columns."""
        place = f"{FOLDER}/{self.name}"
        if storage.size(place):
            return
        head = {
            "names": self.segments.names, "batch_size": self.batch_size, "threads": self.threads,
            "segments": len(self.segments),
        }  # fmt: skip
        columns = np.stack(_columns(self.segments)).astype("<i8")
        storage.write(place, msgspec.json.encode(head) + b"\n" + columns.tobytes())

    def remove(self, storage: Storage) -> None:
        """Remove it."""
        storage.remove(f"{FOLDER}/{self.name}")

    @classmethod
    def load(cls, storage: Storage, name: str) -> "Request":
        """Read a request; one that is not what its name says is refused."""
        place = f"{FOLDER}/{name}"
        line, _, content = storage.read(place).partition(b"\n")
        try:
            head = msgspec.json.decode(line, type=_Head)
            columns = np.frombuffer(content, "<i8").reshape(4, head.segments).astype(np.int64)
            segments = Segments.of(head.names, *columns)
            check_segments(segments)
            request = cls(segments, head.batch_size, head.threads)
            if request.name != name:
                raise ValueError("its content is not that of its name")
        except (msgspec.DecodeError, UnicodeDecodeError, ValueError) as error:
            raise DamagedError(storage, place, first_line(error)) from None
        return request


class _Head(msgspec.Struct, forbid_unknown_fields=True):
    names: tuple[str, ...]
    batch_size: Annotated[int, Meta(ge=1, le=2**20)]
    threads: Annotated[int, Meta(ge=1, lt=2**16)]
    segments: Annotated[int, Meta(ge=1, lt=2**40)]


def _columns(segments: Segments) -> tuple[Ints, Ints, Ints, Ints]:
    return segments.clients, segments.labels, segments.starts, segments.stops


def load_requests(storage: Storage) -> Iterator[Request]:
    """Yield the requests of a place, by their names; those that are damaged are left out."""
    for name in filter(_NAME.fullmatch, storage.names(FOLDER)):
        try:
            yield Request.load(storage, name)
        except (DamagedError, FileNotFoundError):
            continue


def generate(cache: Cache, generator: Generator, batch: Segments) -> Rows:
    """Generate one batch, each sample with the seed of its identity."""
    sizes = batch.sizes
    clients, labels = np.repeat(batch.clients, sizes), np.repeat(batch.labels, sizes)
    within = np.arange(len(labels)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    indices = np.repeat(batch.starts, sizes) + within
    seeds = np.concatenate(
        [
            cache.seeds(batch.names[client], Segment(label, start, stop))
            for client, label, start, stop in zip(
                *(column.tolist() for column in _columns(batch)), strict=True
            )
        ]
    )
    return Rows(clients, labels, indices, seeds, _checked(generator.sample(labels, seeds), labels))


def _checked(samples: Any, labels: Ints) -> NDArray[Any]:
    """Return what a generator returned, if it is one sample a label."""
    if (
        isinstance(samples, np.ndarray)
        and samples.dtype.kind in "uif"
        and samples.ndim > 1
        and len(samples) == len(labels)
        and samples.size
    ):
        return samples
    form = f"{samples.shape} of {samples.dtype}" if isinstance(samples, np.ndarray) else samples
    raise InputError(
        "the generator returned something else than samples",
        got=form,
        allowed=f"an array of {len(labels)} samples: numbers, all of one shape",
    )
