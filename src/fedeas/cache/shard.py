"""One shard: the images of one client that one batch made, in a file named by its own hash.

A shard says itself what it holds (a line of JSON, then raw pixels), and its name says whether it is
whole. So a lost manifest is rebuilt from shards, and a flipped byte anywhere is noticed.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedeas.errors import InputError
from fedeas.files import atomic_write

Bytes = NDArray[np.uint8]
SUFFIX = ".shard"


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


def write_shard(folder: Path, client: str, segments: Sequence[Segment], images: Bytes) -> Shard:
    """Write images as a shard; the same images give the same file."""
    head = {"client": client, "segments": segments, "shape": images.shape}
    content = json.dumps(head).encode() + b"\n" + np.ascontiguousarray(images).tobytes()
    name = hashlib.sha256(content).hexdigest() + SUFFIX
    with atomic_write(folder / name) as temporary:
        temporary.write_bytes(content)
    return Shard(name, tuple(segments))


def check_shard(path: Path, client: str) -> Shard:
    """Read a shard's head if the file is whole and belongs to the client; refuse it otherwise."""
    content = path.read_bytes()
    if hashlib.sha256(content).hexdigest() + SUFFIX != path.name:
        raise InputError(f"{path} is damaged")
    head = json.loads(content.partition(b"\n")[0])
    if head["client"] != client:
        raise InputError(f"{path} belongs to client {head['client']!r}")
    return Shard(path.name, tuple(Segment(*segment) for segment in head["segments"]))


def read_shard(path: Path) -> Bytes:
    """Map a shard's images into memory."""
    try:
        with path.open("rb") as file:
            head = file.readline()
        shape = tuple(map(int, json.loads(head)["shape"]))
        return np.memmap(path, np.uint8, "r", offset=len(head), shape=shape)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path} is no whole shard: {error}", fix="`fedeas fill` again") from None
