"""`Cache`: a folder of generated samples, known by generator, data and seed, one folder a client.

    <base>/<key>/cache.json                    what the samples come from
    <base>/<key>/journal.json                  the batches of a fill that is under way
    <base>/<key>/spent.jsonl                   what the samples took to make
    <base>/<key>/lock                          held by the one process that fills
    <base>/<key>/clients/<client>/manifest.json
    <base>/<key>/clients/<client>/<sha256>.shard
    <base>/<key>/clients/<client>/journal.json, lock    of a fill for this client alone
    <base>/<key>/quarantine/                   what was found damaged

Every file is written whole or not at all, and every JSON file carries the hash of its content. Only
the user who made a cache may look into it: how many samples of a class there are tells about the
labels.
"""

import hashlib
import json
import re
import secrets
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedeas.cache.manifest import make_about, read_about, read_manifest, write_manifest
from fedeas.cache.private import private_folder
from fedeas.cache.shard import (
    SUFFIX,
    Segment,
    Shard,
    check_shard,
    damaged,
    read_shard,
    write_shard,
)
from fedeas.data.kinds import Array
from fedeas.errors import InputError
from fedeas.files import write_json

Ints = NDArray[np.int64]


class Cache:
    """The samples of one generator, data set and seed, for all clients on this machine."""

    def __init__(self, base: Path | str, generator: str, data: str, seed: int = 0) -> None:
        self.about = make_about(generator, data, seed)
        key = hashlib.sha256(json.dumps(self.about).encode()).hexdigest()[:16]
        self.folder = Path(base) / key

    @classmethod
    def at(cls, folder: Path) -> "Cache":
        """Open a cache by its own folder."""
        about = read_about(folder / "cache.json")
        cache = cls(folder.parent, str(about["generator"]), str(about["data"]), int(about["seed"]))
        if cache.folder.name != folder.name:
            raise InputError(f"{folder} was renamed", fix=f"call it {cache.folder.name}")
        return cache

    @classmethod
    def of_client(
        cls, base: Path | str, generator: str, classes: Sequence[str] | int, seed: int = 0
    ) -> "Cache":
        """Return the cache of clients that know their own labels only.

        It is known by the classes, their names or how many there are, and not by label counts: more
        real samples leave what was generated as it is, and nothing on disk follows from the counts.
        """
        known = json.dumps(classes if isinstance(classes, int) else list(classes))
        return cls(base, generator, hashlib.sha256(known.encode()).hexdigest(), seed)

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

    def check_about(self) -> None:
        """Refuse a whole cache of something else that was moved here: what it holds is wrong."""
        found = read_about(self.folder / "cache.json")
        for what, ours in self.about.items():
            if found[what] != ours:
                raise InputError(
                    f"{self.folder} holds samples of another {what}",
                    got=found[what],
                    allowed=str(ours),
                    fix="move it back to where it was, or choose another folder of caches",
                )

    def check(self) -> list[str]:
        """Mend the head, and say what was wrong with it. Call it while the cache is locked."""
        remove_half_written(self.folder)
        path, wrong = self.folder / "cache.json", []
        try:
            read_about(path)
        except InputError as error:
            if path.exists():
                wrong.append(error.what)
                self.quarantine(path)
            write_json(path, self.about)
        self.check_about()
        return wrong

    def quarantine(self, path: Path) -> None:
        """Set a damaged file aside, where it can be looked at and does no harm."""
        aside = self.folder / "quarantine"
        private_folder(aside)
        # Clients that fill at the same time may set aside files of the same name.
        path.rename(aside / f"{secrets.token_hex(4)}-{path.name}")


class ClientCache:
    """The samples of one client: shards, and the manifest that lists them."""

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

    def make_folder(self) -> None:
        """Make the client's folder, for the present user alone."""
        for folder in (self.cache.folder, self.cache.clients_folder, self.folder):
            private_folder(folder)

    def shards(self) -> list[Shard]:
        """Return the shards that the manifest lists; none where there is no manifest."""
        if not self.manifest.exists():
            return []
        client, shards = read_manifest(self.manifest)
        if client != self.name:
            raise damaged(self.manifest, f"it belongs to client {client!r}")
        return shards

    def store(self, segments: Sequence[Segment], samples: Array) -> Shard:
        """Write samples of these segments as a shard; `list_shards` then makes it count."""
        if not self.folder.is_dir():
            self.make_folder()
        return write_shard(self.folder, self.name, segments, samples)

    def list_shards(self, shards: Sequence[Shard]) -> None:
        """Write the manifest, in an order that does not depend on when shards were added."""
        ordered = sorted(shards, key=lambda shard: (shard.segments, shard.name))
        write_manifest(self.manifest, self.name, ordered)

    def missing(self, wanted: Sequence[int]) -> list[Segment]:
        """Return the samples that a plan wants and the cache does not hold, class by class."""
        return missing_segments(self.shards(), wanted)

    def samples(self, wanted: Sequence[int]) -> tuple[Array, Ints]:
        """Return the first `wanted[c]` samples of every class c, and their labels.

        A smaller plan is a prefix of a larger one: samples beyond it are left out. A shard that is
        not as it was written is refused.
        """
        shards = self.shards()
        if missing := missing_segments(shards, wanted):
            first = missing[0]
            raise InputError(
                f"client {self.name!r} lacks samples of class {first.label}",
                got=f"{first.start} of {wanted[first.label]}",
                fix="run `fedeas fill` with this plan",
            )
        offsets = np.cumsum([0, *wanted])  # where each class begins
        samples: Array | None = None
        for listed in shards:
            if not any(_wanted(segment, wanted) for segment in listed.segments):
                continue
            path = self.folder / listed.name
            shard, values = read_shard(path, self.name)
            if shard != listed:
                raise damaged(self.manifest, f"{listed.name} holds other samples")
            if samples is None:
                samples = np.empty((int(offsets[-1]), *values.shape[1:]), values.dtype)
            elif (samples.shape[1:], samples.dtype) != (values.shape[1:], values.dtype):
                raise InputError(
                    f"{self.folder} holds samples of several shapes",
                    got=f"{samples.shape[1:]} and {values.shape[1:]}",
                    fix="delete that folder: its samples are then generated again",
                )
            at = 0
            for segment in shard.segments:
                size = _wanted(segment, wanted)
                if size:
                    begin = offsets[segment.label] + segment.start
                    samples[begin : begin + size] = values[at : at + size]
                at += segment.size
        labels = np.repeat(np.arange(len(wanted), dtype=np.int64), wanted)
        return np.empty((0, 0)) if samples is None else samples, labels

    def check(self) -> list[str]:
        """Mend what can be mended without generating, and say what was wrong.

        Damaged shards go to quarantine; a manifest that is damaged or does not say what the shards
        hold is written anew from whole shards; what a killed process left half-done is removed.
        Call it while the cache or the client is locked.
        """
        if not self.folder.is_dir():
            return []
        wrong: list[str] = []
        remove_half_written(self.folder)
        whole: dict[str, Shard] = {}
        bad: set[str] = set()
        for path in sorted(self.folder.glob(f"*{SUFFIX}")):
            try:
                whole[path.name] = check_shard(path, self.name)
            except InputError as error:
                bad.add(path.name)
                wrong.append(error.what)
                self.cache.quarantine(path)
        try:
            listed = {shard.name: shard for shard in self.shards()}
            if lies := [n for n, shard in listed.items() if whole.get(n, shard) != shard]:
                raise damaged(self.manifest, f"{lies[0]} holds other samples")
        except InputError as error:
            wrong.append(error.what)
            self.cache.quarantine(self.manifest)
            listed = dict(whole)  # every whole shard counts: nothing is generated again
        lost = sorted(listed.keys() - whole.keys() - bad)
        wrong += [f"{self.folder / name} is gone" for name in lost]
        kept = [whole[name] for name in sorted(listed.keys() & whole.keys())]
        # Whole, but not listed: their process was killed in between, or the manifest is lost.
        for shard in (whole[name] for name in sorted(whole.keys() - listed.keys())):
            if any(overlap(a, b) for a in shard.segments for k in kept for b in k.segments):
                (self.folder / shard.name).unlink()
            else:
                kept.append(shard)
        if wrong or {shard.name for shard in kept} != listed.keys():
            self.list_shards(kept)
        return wrong


def _wanted(segment: Segment, wanted: Sequence[int]) -> int:
    """Return how many samples of a segment are wanted: its first ones."""
    if segment.label >= len(wanted):
        return 0
    return max(0, min(segment.stop, wanted[segment.label]) - segment.start)


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
    # `surrogatepass`: the name may come from a hostile file.
    digest = hashlib.sha256(name.encode(errors="surrogatepass")).hexdigest()
    return f"{readable}-{digest[:12]}"
