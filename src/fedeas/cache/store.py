"""`Cache`: a folder of generated images, known by generator, data and seed, one folder a client.

    <base>/<key>/cache.json                    what the images come from
    <base>/<key>/journal.json                  the batches of a fill that is under way
    <base>/<key>/spent.jsonl                   what the images took to make
    <base>/<key>/lock                          held by the one process that fills
    <base>/<key>/clients/<client>/manifest.json
    <base>/<key>/clients/<client>/<sha256>.shard
    <base>/<key>/clients/<client>/journal.json, lock    of a fill for this client alone
    <base>/<key>/quarantine/                   what was found damaged

Every file is written whole or not at all, and every JSON file carries the hash of its content.
"""

import fcntl
import hashlib
import json
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedeas.cache.shard import SUFFIX, Bytes, Segment, Shard, check_shard, read_shard, write_shard
from fedeas.errors import InputError
from fedeas.files import read_json, write_json

Ints = NDArray[np.int64]
_FORMAT = "cache/1"


class Cache:
    """The images of one generator, data set and seed, for all clients on this machine."""

    def __init__(self, base: Path | str, generator: str, data: str, seed: int = 0) -> None:
        self.about = {"format": _FORMAT, "generator": generator, "data": data, "seed": seed}
        key = hashlib.sha256(json.dumps(self.about).encode()).hexdigest()[:16]
        self.folder = Path(base) / key

    @classmethod
    def at(cls, folder: Path) -> "Cache":
        """Open a cache by its own folder."""
        about = read_json(folder / "cache.json")
        if not isinstance(about, dict) or about.get("format") != _FORMAT:
            raise InputError(f"{folder} is no cache", fix="name a folder that `fedeas fill` made")
        cache = cls(folder.parent, about["generator"], about["data"], about["seed"])
        if cache.folder.name != folder.name:
            raise InputError(f"{folder} was renamed", fix=f"call it {cache.folder.name}")
        return cache

    @property
    def clients_folder(self) -> Path:
        """Where the clients' folders are."""
        return self.folder / "clients"

    @property
    def journal(self) -> Path:
        """Where the batches of a fill under way are noted."""
        return self.folder / "journal.json"

    def client(self, name: str) -> "ClientCache":
        """Return the part of one client."""
        return ClientCache(self, name)

    def seeds(self, client: str, segment: Segment) -> NDArray[np.uint64]:
        """Return the seeds of samples: the hash of all that a sample is known by."""
        known_by = [self.about["generator"], self.about["data"], self.about["seed"], client]
        head = hashlib.sha256(json.dumps([*known_by, segment.label]).encode())
        seeds = []
        for index in range(segment.start, segment.stop):
            own = head.copy()
            own.update(f"/{index}".encode())
            seeds.append(int.from_bytes(own.digest()[:8], "little"))
        return np.array(seeds, dtype=np.uint64)

    def quarantine(self, path: Path) -> None:
        """Set a damaged file aside, where it can be looked at and does no harm."""
        aside = self.folder / "quarantine"
        aside.mkdir(exist_ok=True)
        free = next(i for i in range(10**6) if not (aside / f"{i}-{path.name}").exists())
        with suppress(FileNotFoundError):  # another client set it aside at the same moment
            path.rename(aside / f"{free}-{path.name}")


class ClientCache:
    """The images of one client: shards, and the manifest that lists them."""

    def __init__(self, cache: Cache, name: str) -> None:
        self.cache, self.name = cache, name
        self.folder = cache.clients_folder / client_folder(name)

    @property
    def manifest(self) -> Path:
        """The list of the client's shards."""
        return self.folder / "manifest.json"

    @property
    def journal(self) -> Path:
        """Where the batches of the client's own fill are noted."""
        return self.folder / "journal.json"

    def shards(self) -> list[Shard]:
        """Return the shards that the manifest lists; none where there is no manifest."""
        if not self.manifest.exists():
            return []
        content = read_json(self.manifest)
        if content.get("client") != self.name:
            raise InputError(f"{self.manifest} belongs to another client")
        return [
            Shard(shard["name"], tuple(Segment(*s) for s in shard["segments"]))
            for shard in content["shards"]
        ]

    def store(self, segments: Sequence[Segment], images: Bytes) -> Shard:
        """Write images of these segments as a shard; `list_shards` then makes it count."""
        self.folder.mkdir(parents=True, exist_ok=True)
        return write_shard(self.folder, self.name, segments, images)

    def list_shards(self, shards: Sequence[Shard]) -> None:
        """Write the manifest, in an order that does not depend on when shards were added."""
        ordered = sorted(shards, key=lambda shard: (shard.segments, shard.name))
        listed = [{"name": shard.name, "segments": shard.segments} for shard in ordered]
        write_json(self.manifest, {"client": self.name, "shards": listed})

    def missing(self, wanted: Sequence[int]) -> list[Segment]:
        """Return the samples that a plan wants and the cache does not hold, class by class."""
        return missing_segments(self.shards(), wanted)

    def images(self, wanted: Sequence[int]) -> tuple[Bytes, Ints]:
        """Return the first `wanted[c]` images of every class c, and their labels.

        A smaller plan is a prefix of a larger one: images beyond it are left out.
        """
        if missing := self.missing(wanted):
            first = missing[0]
            raise InputError(
                f"client {self.name!r} lacks images of class {first.label}",
                got=f"{first.start} of {wanted[first.label]}",
                fix="run `fedeas fill` with this plan",
            )
        pieces: dict[tuple[int, int], Bytes] = {}
        for shard in self.shards():
            pixels = read_shard(self.folder / shard.name)
            at = 0
            for label, start, stop in shard.segments:
                if start < wanted[label]:
                    pieces[label, start] = pixels[at : at + min(stop, wanted[label]) - start]
                at += stop - start
        ordered = sorted(pieces)
        if not ordered:
            return np.empty((0, 0, 0, 0), np.uint8), np.empty(0, np.int64)
        labels = np.concatenate([np.full(len(pieces[key]), key[0], np.int64) for key in ordered])
        return np.concatenate([pieces[key] for key in ordered]), labels

    def check(self) -> list[str]:
        """Mend what can be mended without generating, and say what was wrong.

        Damaged shards go to quarantine; a damaged manifest is written anew from whole shards; what
        a killed process left half-done is removed. Call it while the cache is locked.
        """
        if not self.folder.is_dir():
            return []
        wrong: list[str] = []
        remove_half_written(self.folder)
        whole: dict[str, Shard] = {}
        damaged: set[str] = set()
        for path in sorted(self.folder.glob(f"*{SUFFIX}")):
            try:
                whole[path.name] = check_shard(path, self.name)
            except (InputError, ValueError, KeyError, TypeError, OSError):
                damaged.add(path.name)
                wrong.append(f"{path} is damaged")
                self.cache.quarantine(path)
        try:
            listed = {shard.name for shard in self.shards()}
        except InputError as error:
            wrong.append(str(error))
            self.cache.quarantine(self.manifest)
            listed = set(whole)  # every whole shard counts: nothing is generated again
        wrong += [f"{self.folder / name} is gone" for name in listed - whole.keys() - damaged]
        kept = [whole[name] for name in sorted(listed & whole.keys())]
        # Whole, but not listed: their process was killed in between, or the manifest is lost.
        for shard in (whole[name] for name in sorted(whole.keys() - listed)):
            if any(overlap(a, b) for a in shard.segments for k in kept for b in k.segments):
                (self.folder / shard.name).unlink()
            else:
                kept.append(shard)
        if wrong or {shard.name for shard in kept} != listed:
            self.list_shards(kept)
        return wrong


@contextmanager
def locked(
    folder: Path, waiting: Callable[[], None] | None = None, shared: bool = False
) -> Iterator[None]:
    """Hold a folder alone, or together with others that share it.

    The system frees the lock of a process that dies.
    """
    handle = _lock(folder, waiting, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
    try:
        yield
    finally:
        os.close(handle)


def _lock(folder: Path, waiting: Callable[[], None] | None, kind: int) -> int:
    path = folder / "lock"
    for _ in range(100):
        folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(handle, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            try:
                if waiting is not None:
                    waiting()
                fcntl.flock(handle, kind)
            except BaseException:
                os.close(handle)
                raise
        # The folder may have been removed while we waited: then this is nobody's lock.
        if path.exists() and os.fstat(handle).st_ino == path.stat().st_ino:
            return handle
        os.close(handle)
    raise InputError(f"{folder} is removed again and again")


def overlap(a: Segment, b: Segment) -> bool:
    """Tell whether two segments share a sample."""
    return a.label == b.label and a.start < b.stop and b.start < a.stop


def remove_half_written(folder: Path) -> None:
    """Remove what killed processes left half-written; nothing else."""
    for path in folder.glob(".*"):
        if path.is_file() and re.match(r"\.[0-9a-f]{8}\.", path.name):
            path.unlink()


def missing_segments(shards: Sequence[Shard], wanted: Sequence[int]) -> list[Segment]:
    """Return what of 0 .. wanted[c] - 1 is in no shard, as segments in order."""
    held: dict[int, list[tuple[int, int]]] = {}
    for shard in shards:
        for label, start, stop in shard.segments:
            held.setdefault(label, []).append((start, stop))
    missing = []
    for label, end in enumerate(int(w) for w in wanted):
        at = 0
        for start, stop in sorted(held.get(label, ())):
            if at < min(start, end):
                missing.append(Segment(label, at, min(start, end)))
            at = max(at, stop)
        if at < end:
            missing.append(Segment(label, at, end))
    return missing


def client_folder(name: str) -> str:
    """Return a safe folder name for a client: readable, and different for different clients."""
    readable = re.sub(r"[^A-Za-z0-9_-]", "_", name)[:40]
    return f"{readable}-{hashlib.sha256(name.encode()).hexdigest()[:12]}"
