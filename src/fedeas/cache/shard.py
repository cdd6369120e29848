"""One shard: the samples of one client that one batch made, in a file named by its own hash.

A shard says itself what it holds (a line of JSON, then raw numbers), and its name says whether it
is whole. So a lost manifest is rebuilt from shards, and a flipped byte anywhere is noticed.
"""

import hashlib
import json
import math
import os
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedeas.data.kinds import Array
from fedeas.errors import InputError
from fedeas.files import atomic_write

SUFFIX = ".shard"
REPAIR = "run `fedeas fill` or `augment` again: samples that are damaged or missing are made again"
# Of samples: whole or floating-point numbers, least byte first. Version 1 held bytes alone.
_DTYPE = re.compile(r"\|[ui]1|<[ui][248]|<f[248]")
_BYTES = "|u1"
_NAME = re.compile(rf"[0-9a-f]{{64}}\{SUFFIX}")
_LARGEST = 2**53
# Files that this process has hashed, and what they looked like then.
_verified: dict[Path, tuple[int, ...]] = {}
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
class Shard:
    """A shard's name and the segments that it holds, in this order."""

    name: str
    segments: tuple[Segment, ...]


def damaged(path: Path, why: str = "") -> InputError:
    """Return the error for a file of a cache that is not as it was written."""
    return InputError(f"{path} is damaged{': ' if why else ''}{why}", fix=REPAIR)


def parse_shard(name: object, segments: object) -> Shard:
    """Return a shard from untrusted JSON; ValueError if it is not one.

    >>> parse_shard("../../etc/passwd", [[0, 0, 3]])
    Traceback (most recent call last):
    ValueError: not the name of a shard
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ValueError("not the name of a shard")
    return Shard(name, parse_segments(segments))


def parse_segments(value: object) -> tuple[Segment, ...]:
    """Return segments from untrusted JSON; ValueError if they are not segments."""
    if not isinstance(value, list) or not value:
        raise ValueError("not a list of segments")
    return tuple(map(parse_segment, value))


def parse_segment(value: object) -> Segment:
    """Return a segment from untrusted JSON; ValueError if it is not one."""
    # `type`, since True is an instance of int.
    if not isinstance(value, list) or [type(n) for n in value] != [int] * 3:
        raise ValueError("not a segment")
    segment = Segment(*value)
    if not (0 <= segment.label < _LARGEST and 0 <= segment.start < segment.stop < _LARGEST):
        raise ValueError("not a segment")
    return segment


def write_shard(folder: Path, client: str, segments: Sequence[Segment], samples: Array) -> Shard:
    """Write samples as a shard; the same samples give the same file."""
    samples = np.ascontiguousarray(samples, samples.dtype.newbyteorder("<"))
    head = {"client": client, "segments": segments, "shape": samples.shape}
    head["dtype"] = samples.dtype.str
    content = json.dumps(head).encode() + b"\n" + samples.tobytes()
    name = hashlib.sha256(content).hexdigest() + SUFFIX
    with atomic_write(folder / name) as temporary:
        temporary.write_bytes(content)
    return Shard(name, tuple(segments))


def check_shard(path: Path, client: str) -> Shard:
    """Return what a shard holds if the file is whole and the client's; refuse it otherwise."""
    _verified.pop(path, None)
    return read_shard(path, client)[0]


def read_shard(path: Path, client: str) -> tuple[Shard, Array]:
    """Return what a shard holds and its samples; refuse one that is damaged or another client's.

    The file is hashed when this process first reads it, and again whenever it has changed since.
    """
    owner, shard, values = _load(path)
    if owner != client:
        raise damaged(path, f"it belongs to client {owner!r}")
    return shard, values


def read_form(path: Path) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Return the shape and number format of a shard's samples, whoever's they are."""
    values = _load(path)[2]
    return values.shape[1:], values.dtype


def _load(path: Path) -> tuple[str, Shard, Array]:
    """Return a shard's client, what it holds and its samples."""
    content, looks = _read(path)
    if _verified.get(path) != looks:
        if _digest(content) + SUFFIX != path.name:
            raise damaged(path)
        if time.time_ns() - looks[0] > _SETTLED:
            _verified[path] = looks
    try:
        end = content.index(b"\n")
        owner, shard, shape, dtype = _parse_head(path.name, json.loads(content[:end]))
        values = np.frombuffer(content, dtype, offset=end + 1).reshape(shape)
    except (ValueError, RecursionError) as error:
        raise damaged(path, str(error)) from None
    return owner, shard, values


def _read(path: Path) -> tuple[bytes, tuple[int, ...]]:
    """Return a file's content, and what tells it from a changed one: its time first."""
    try:
        if not path.is_file():  # opening a pipe would wait for its other end
            raise damaged(path, "it is not a file" if path.exists() else "it is gone")
        with path.open("rb") as file:
            info = os.fstat(file.fileno())
            content = file.read()
    except OSError as error:
        raise damaged(path, error.strerror or "it cannot be read") from None
    looks = (info.st_mtime_ns, info.st_ctime_ns, info.st_size, info.st_ino, info.st_dev)
    return content, looks


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _parse_head(name: str, head: Any) -> tuple[str, Shard, tuple[int, ...], str]:
    """Return a shard's client, itself, shape and number format from untrusted JSON."""
    if not isinstance(head, dict) or head.keys() - {"dtype"} != {"client", "segments", "shape"}:
        raise ValueError("not the head of a shard")
    client, shape, dtype = head["client"], head["shape"], head.get("dtype", _BYTES)
    if not isinstance(client, str) or not isinstance(shape, list):
        raise ValueError("not the head of a shard")
    if not isinstance(dtype, str) or not _DTYPE.fullmatch(dtype):
        raise ValueError("not a number format of samples")
    whole = [type(n) for n in shape] == [int] * len(shape)
    if len(shape) < 2 or not whole or min(shape) < 1 or math.prod(shape) > _LARGEST:
        raise ValueError("not the shape of samples")
    shard = parse_shard(name, head["segments"])
    if sum(segment.size for segment in shard.segments) != shape[0]:
        raise ValueError("its segments are not its samples")
    return client, shard, tuple(shape), dtype
