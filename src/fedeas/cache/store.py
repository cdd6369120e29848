"""`Cache`: a folder of generated samples, known by generator, classes and seed.

    <base>/<key>/index.sqlite                  which samples there are, and where
    <base>/<key>/samples.bin                   the samples of fills for many clients
    <base>/<key>/clients/<client>/samples.bin  the samples of fills for this client alone
    <base>/<key>/lock, clients/<client>/lock   held by the process that fills

Files of samples are only appended to: samples are written and synced first, then entered in the
index. Only the user who made a cache may look into it: how many samples of a class there are tells
about the labels.
"""

import hashlib
import json
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedeas.cache.block import (
    Block,
    DamagedError,
    Ints,
    Segment,
    encode,
    missing_segments,
    read_blocks,
)
from fedeas.cache.index import FILE, SAMPLES, Index, Work, create_index, open_index
from fedeas.cache.private import private_folder, refuse_links
from fedeas.data.kinds import Array
from fedeas.errors import InputError
from fedeas.files import unwritable
from fedeas.generators import Classes, Generator, check_classes, count_classes

FORMAT = "cache/2"
NAME = re.compile(r"[0-9a-f]{16}")  # of a cache's folder


class Cache:
    """The samples of one generator and seed, for all clients on this machine.

    Parameters
    ----------
    base : Path or str
        The folder of caches.
    generator : Generator
        What draws the samples; known by its fingerprint.
    classes : sequence of str or int
        The names of the classes, or how many there are. A generator's own names go before them,
        since data sets spell them differently.
    seed : int
        Another seed gives other samples.

    """

    def __init__(
        self, base: Path | str, generator: Generator, classes: Classes, seed: int = 0
    ) -> None:
        check_classes(classes, generator)
        own = getattr(generator, "classes", None)
        known = count_classes(classes) if own is None else [*own]
        self._open(Path(base), generator.fingerprint, _hash(json.dumps(known)), seed)

    @classmethod
    def at(cls, folder: Path) -> "Cache":
        """Open a cache by its own folder."""
        check_version(folder)
        with open_index(folder / FILE) as index:
            about = parse_about(index, folder / FILE)
        cache = cls.__new__(cls)
        cache._open(folder.parent, about["generator"], about["classes"], int(about["seed"]))
        if cache.folder.name != folder.name:
            raise InputError(f"{folder} was renamed", fix=f"call it {cache.folder.name}")
        return cache

    def _open(self, base: Path, generator: str, classes: str, seed: int) -> None:
        if not isinstance(generator, str) or not generator.isprintable():  # `cache list` shows it
            raise InputError("a generator's fingerprint must be printable text", got=generator)
        self._known_by = [generator, classes, seed]
        # By this name already the first version kept them: it is told from ours.
        known = {"format": "cache/1", "generator": generator, "data": classes, "seed": seed}
        self.folder = base / _hash(json.dumps(known))[:16]
        self.about = {
            "format": FORMAT, "generator": generator, "classes": classes, "seed": str(seed),
        }  # fmt: skip

    @property
    def index(self) -> Path:
        """The database that says which samples there are."""
        return self.folder / FILE

    def client_folder(self, client: str) -> Path:
        """Return where a client has a lock and samples of its own: readable, safe and unique."""
        readable = re.sub(r"[^A-Za-z0-9_-]", "_", client)[:40]
        return self.folder / "clients" / f"{readable}-{_hash(client)[:12]}"

    def samples_file(self, client: str | None = None) -> Path:
        """Return where a fill for this client, or for many, writes samples."""
        return (self.folder if client is None else self.client_folder(client)) / SAMPLES

    def seeds(self, client: str, segment: Segment) -> NDArray[np.uint64]:
        """Return the seeds of samples: the hash of all that a sample is known by."""
        head = hashlib.sha256(json.dumps([*self._known_by, client, segment.label]).encode())
        digests = []
        for index in range(segment.start, segment.stop):
            own = head.copy()
            own.update(b"/%d" % index)
            digests.append(own.digest()[:8])
        return np.frombuffer(b"".join(digests), "<u8").astype(np.uint64)

    def missing(self, client: str, wanted: Sequence[int]) -> list[Segment]:
        """Return the samples that are wanted and not there, class by class."""
        check_client(client)
        held = [s for _, block in self.blocks(client) for s in block.segments]
        return missing_segments(held, wanted)

    def samples(self, client: str, wanted: Sequence[int]) -> tuple[Array, Ints]:
        """Return a client's first `wanted[c]` samples of every class c, and their labels.

        A smaller plan is a prefix of a larger one. Samples that are not as they were written are
        refused.
        """
        check_client(client)
        blocks = self.blocks(client)
        if missing := missing_segments([s for _, b in blocks for s in b.segments], wanted):
            first = missing[0]
            raise InputError(
                f"client {client!r} lacks samples of class {first.label}",
                got=f"{first.start} of {wanted[first.label]}",
                fix="run `fedeas fill` with this plan",
            )
        offsets = np.cumsum([0, *wanted])  # where each class begins
        samples: Array | None = None
        used = (b for b in blocks if any(_wanted(segment, wanted) for segment in b[1].segments))
        for block, values in read_blocks(self.folder, used):
            if samples is None:
                samples = np.empty((int(offsets[-1]), *values.shape[1:]), values.dtype)
            elif (samples.shape[1:], samples.dtype) != (values.shape[1:], values.dtype):
                raise InputError(
                    f"{self.folder} holds samples of several shapes",
                    got=f"{samples.shape[1:]} and {values.shape[1:]}",
                    fix="delete that folder: its samples are then generated again",
                )
            at = 0
            for segment in block.segments:
                if size := _wanted(segment, wanted):
                    begin = offsets[segment.label] + segment.start
                    samples[begin : begin + size] = values[at : at + size]
                at += segment.size
        labels = np.repeat(np.arange(len(wanted), dtype=np.int64), wanted)
        return np.empty((0, 0)) if samples is None else samples, labels

    def blocks(self, client: str) -> list[tuple[str, Block]]:
        """Return what there is of a client: blocks, with the file that each is in."""
        if not self._exists():
            return []
        with self.open() as index:
            return list(index.blocks(client))

    @contextmanager
    def open(self) -> Iterator[Index]:
        """Open the index; that of another cache, moved here, is refused: its samples are wrong."""
        with open_index(self.index) as index:
            found = parse_about(index, self.index)
            for what, ours in self.about.items():
                if found[what] != ours:
                    raise InputError(
                        f"{self.folder} holds samples of another {what}",
                        got=found[what],
                        allowed=ours,
                        fix="move it back to where it was, or choose another folder of caches",
                    )
            yield index

    def prepare(self) -> None:
        """Create the index where there is none; call it while the cache is locked."""
        private_folder(self.folder)
        private_folder(self.folder / "clients")
        refuse_links(self.index)
        if not self._exists():
            create_index(self.index, self.about)

    def _exists(self) -> bool:
        check_version(self.folder)
        return self.index.exists()

    def append(
        self, index: Index, path: Path, parts: Sequence[tuple[str, Sequence[Segment], Array]],
        seconds: float,
    ) -> None:  # fmt: skip
        """Write samples of some clients to a file and enter them, all or none."""
        private_folder(path.parent)
        refuse_links(path)
        blocks, contents = [], []
        at = path.stat().st_size if path.exists() else 0
        for client, segments, samples in parts:
            content = encode(client, segments, samples)
            blocks.append(Block(client, tuple(segments), at, len(content)))
            contents.append(content)
            at += len(content)
        try:
            with open(path, "ab", opener=_private) as file:
                file.writelines(contents)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise unwritable(path, error) from None
        made = sum(len(samples) for _, _, samples in parts)
        index.add(path.relative_to(self.folder).as_posix(), blocks, Work(made, seconds))


def _private(path: str, flags: int) -> int:
    """Open a file that only the present user may read; a link is refused."""
    return os.open(path, flags | getattr(os, "O_NOFOLLOW", 0), 0o600)


def is_old(folder: Path) -> bool:
    """Tell whether a cache is of the first version, which was kept in other files."""
    return (folder / "cache.json").exists()


def check_version(folder: Path) -> None:
    """Refuse a cache of the first version."""
    if is_old(folder):
        raise InputError(
            f"{folder} was written by an earlier version of fedeas",
            fix="delete it, or choose another folder: its samples are then generated again",
        )


def parse_about(index: Index, path: Path) -> dict[str, str]:
    """Return what the samples of a cache come from."""
    about = index.about()
    names = {"format", "generator", "classes", "seed"}
    if about.keys() != names or about["format"] != FORMAT or not about["seed"].isdecimal():
        raise DamagedError(path, f"its format is not {FORMAT}")
    return about


def check_client(name: str) -> None:
    """Refuse what cannot be stored as a client's name."""
    try:
        name.encode()
    except UnicodeEncodeError:
        raise InputError("not the name of a client", got=ascii(name)) from None


def _wanted(segment: Segment, wanted: Sequence[int]) -> int:
    """Return how many samples of a segment are wanted: its first ones."""
    if segment.label >= len(wanted):
        return 0
    return max(0, min(segment.stop, wanted[segment.label]) - segment.start)


def _hash(text: str) -> str:
    # `surrogatepass`: the text may come from a hostile file.
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()
