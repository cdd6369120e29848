"""One block: the samples of one client that one batch made, as bytes that say what they are.

A block is a line of JSON with the hash of its content, then raw numbers. So the index is only there
to find blocks: it can be rebuilt from them, and no damage to it leads to wrong samples.
"""

import hashlib
import math
import mmap
import os
import re
import stat
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedeas.data.kinds import Array
from fedeas.errors import InputError
from fedeas.files import sealed, unsealed

Ints = NDArray[np.int64]
REPAIR = "run `fedeas fill` or `augment` again: damaged or missing samples are generated again"
# Samples are integers or floating-point numbers, little-endian.
_DTYPE = re.compile(r"\|[ui]1|<[ui][248]|<f[248]")
_START = b'{"sha256": "'  # of every block
_LARGEST = 2**53
_LONGEST_HEAD = 1 << 24  # bytes
# Blocks that this process has hashed, by file, and what the file looked like then.
_verified: dict[Path, tuple[tuple[int, ...], set[int]]] = {}
# A file may change twice within one tick of the clock that dates it: only older ones are trusted.
_SETTLED = 2_000_000_000  # nanoseconds


class Segment(NamedTuple):
    """Consecutive samples of one class: indices start to stop - 1."""

    label: int
    start: int
    stop: int

    @property
    def size(self) -> int:
        """The number of samples."""
        return self.stop - self.start


@dataclass(frozen=True)
class Block:
    """A client's segments, in this order, and where their samples are in a file."""

    client: str
    segments: tuple[Segment, ...]
    offset: int
    size: int  # bytes


class DamagedError(InputError):
    """A file of a cache is not as it was written."""

    def __init__(self, path: Path, why: str = "") -> None:
        super().__init__(f"{path} is damaged{': ' if why else ''}{why}", fix=REPAIR)


def missing_segments(held: Sequence[Segment], wanted: Sequence[int]) -> list[Segment]:
    """Return what of 0 .. wanted[c] - 1 is in no segment, in order.

    >>> missing_segments([Segment(0, 0, 2), Segment(0, 5, 9)], [7])
    [Segment(label=0, start=2, stop=5)]
    """
    by_label: dict[int, list[tuple[int, int]]] = {}
    for label, start, stop in held:
        by_label.setdefault(label, []).append((start, stop))
    missing = []
    for label, end in enumerate(int(w) for w in wanted):
        at = 0
        for start, stop in sorted(by_label.get(label, ())):
            if at < min(start, end):
                missing.append(Segment(label, at, min(start, end)))
            at = max(at, stop)
        if at < end:
            missing.append(Segment(label, at, end))
    return missing


def parse_segment(value: object) -> Segment:
    """Return a segment from untrusted values; ValueError if it is not one."""
    # `type`, since True is an instance of int.
    if not isinstance(value, list | tuple) or [type(n) for n in value] != [int] * 3:
        raise ValueError("not a segment")
    segment = Segment(*value)
    if not (0 <= segment.label < _LARGEST and 0 <= segment.start < segment.stop < _LARGEST):
        raise ValueError("not a segment")
    return segment


def encode(client: str, segments: Sequence[Segment], samples: Array) -> bytes:
    """Return a block; the same samples give the same bytes."""
    samples = np.ascontiguousarray(samples, samples.dtype.newbyteorder("<"))
    values = samples.tobytes()
    head = {
        "client": client,
        "segments": segments,
        "shape": samples.shape,
        "dtype": samples.dtype.str,
        "samples": _digest(values),
    }
    return sealed(head).encode() + values


@contextmanager
def mapped(path: Path) -> Iterator["Blocks"]:
    """Map a file of blocks into memory."""
    try:
        # Opening a pipe would wait for its other end.
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    except FileNotFoundError:
        raise DamagedError(path, "it is gone") from None
    except OSError as error:
        raise DamagedError(path, error.strerror or "it cannot be read") from None
    try:
        info = os.fstat(handle)
        if not stat.S_ISREG(info.st_mode):
            raise DamagedError(path, "it is not a file")
        if not info.st_size:
            yield Blocks(path, b"", (0,))
            return
        looks = (info.st_mtime_ns, info.st_ctime_ns, info.st_size, info.st_ino, info.st_dev)
        with mmap.mmap(handle, 0, access=mmap.ACCESS_READ) as content:
            yield Blocks(path, content, looks)
    finally:
        os.close(handle)


@dataclass(frozen=True)
class Blocks:
    """The content of a file of blocks."""

    path: Path
    content: mmap.mmap | bytes
    looks: tuple[int, ...]  # what tells the file from a changed one: its time first

    def read(self, block: Block, again: bool = False) -> Array:
        """Return the samples of a block, and refuse one that is not as it was written.

        The block is hashed when this process first reads it, whenever its file has changed, and
        where it is to be hashed `again`.
        """
        if block.offset + block.size > len(self.content):
            raise DamagedError(self.path, "it is too short")
        looks, known = _verified.get(self.path, ((), set()))
        trusted = looks == self.looks and block.offset in known and not again
        found, samples = self._parse(block.offset, not trusted)
        if found != block:
            raise DamagedError(self.path, "it holds other samples than the index says")
        if not trusted and time.time_ns() - self.looks[0] > _SETTLED:
            if looks != self.looks:
                _verified[self.path] = (self.looks, known := set())
            known.add(block.offset)
        return samples

    def whole(self, start: int) -> Iterator[Block]:
        """Yield every whole block from a place on; what is damaged is passed over."""
        at = start
        while (at := self.content.find(_START, at)) >= 0:
            try:
                block = self._parse(at, True)[0]
            except InputError:
                at += 1
            else:
                yield block
                at += block.size

    def _parse(self, offset: int, check: bool) -> tuple[Block, Array]:
        """Read the block at a place, hashed if that is to be checked."""
        try:
            end = self.content.find(b"\n", offset, offset + _LONGEST_HEAD) + 1
            head = unsealed(self.content[offset:end].decode(), str(self.path))
            client, segments, shape, dtype = _parse_head(head)
            size = math.prod(shape) * np.dtype(dtype).itemsize
            values = self.content[end : end + size]
            if len(values) != size or (check and _digest(values) != head["samples"]):
                raise ValueError
        except (ValueError, InputError):
            raise DamagedError(self.path) from None
        block = Block(client, segments, offset, end - offset + size)
        return block, np.frombuffer(values, dtype).reshape(shape)


def read_blocks(folder: Path, blocks: Iterable[tuple[str, Block]]) -> Iterator[tuple[Block, Array]]:
    """Yield blocks and their samples; blocks come file by file, as the index lists them."""
    for file, own in groupby(blocks, key=lambda listed: listed[0]):
        with mapped(folder / file) as content:
            for _, block in own:
                yield block, content.read(block)


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _parse_head(head: Any) -> tuple[str, tuple[Segment, ...], tuple[int, ...], str]:
    """Return a block's client, segments, shape and number format from untrusted JSON."""
    names = {"client", "segments", "shape", "dtype", "samples"}
    if not isinstance(head, dict) or head.keys() != names:
        raise ValueError("not the head of a block")
    client, shape, dtype = head["client"], head["shape"], head["dtype"]
    if not isinstance(client, str) or not isinstance(dtype, str) or not _DTYPE.fullmatch(dtype):
        raise ValueError("not the head of a block")
    if not isinstance(shape, list) or [type(n) for n in shape] != [int] * len(shape):
        raise ValueError("not the shape of samples")
    if len(shape) < 2 or min(shape) < 1 or math.prod(shape) > _LARGEST:
        raise ValueError("not the shape of samples")
    if not isinstance(head["segments"], list):
        raise ValueError("not a list of segments")
    segments = tuple(map(parse_segment, head["segments"]))
    if sum(segment.size for segment in segments) != shape[0]:
        raise ValueError("its segments are not its samples")
    return client, segments, tuple(shape), dtype
