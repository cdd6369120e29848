"""`Cache`: generated samples, known by generator, classes and seed, in Parquet that anybody reads.

    <base>/<key>/<hash>.parquet            shards: the samples
    <base>/<key>/.fedeas/about.json        what they come from, their shape and number format
    <base>/<key>/.fedeas/entries/<hash>.json   which samples a shard holds
    <base>/<key>/.fedeas/requests/<hash>   what fills were asked for, and in which batches
    <base>/<key>/.fedeas/filling/<name>    a fill is under way; until it ends, rows may stand twice

The base is a folder, or an address such as s3://bucket/prefix. There is no lock: files are written
whole, never changed, and a row that stands twice counts once, as the shard with the smallest name
has it. In a folder only the user who made a cache may look into it: how many samples of a class
there are tells about the labels.
"""

import hashlib
import json
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from fedeas._internal import defaults
from fedeas._internal.files import private_folder, sealed, unsealed
from fedeas.cache.segments import Ints, Segment, Segments, subtract, union
from fedeas.cache.shards import (
    ENTRIES,
    DamagedError,
    Entry,
    Form,
    parse_entry,
    read_shard,
    verify_shard,
)
from fedeas.cache.storage import LocalStorage, Storage, open_storage
from fedeas.data.kinds import Array
from fedeas.errors import InputError, first_line
from fedeas.generators import Classes, Generator, check_classes, count_classes

NAME = re.compile(r"[0-9a-f]{16}")  # of a cache's folder
_ENTRY = re.compile(r"[0-9a-f]{64}\.json")
FORMAT = "cache/4"
_ABOUT = ".fedeas/about.json"
_TRIES = 3  # of reading while somebody compacts
_CLIENTS = "clients"  # folders of clients that fill by themselves


class About(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the samples of a cache come from; their form is known from the first one on."""

    format: str
    generator: str
    classes: str  # the hash of their names
    seed: int
    form: Form
    names: tuple[str, ...] = ()  # of the classes, where they are known
    trained_on: str = ""  # what the generator says of its training data

    @property
    def origin(self) -> dict[str, object]:
        """What makes it this cache."""
        return {"generator": self.generator, "classes": self.classes, "seed": self.seed}


class Cache:
    """The samples of one generator and seed, for all clients.

    Parameters
    ----------
    base : Path or str
        The folder of caches, or its address, as s3://bucket/prefix.
    generator : Generator
        What draws the samples; known by its fingerprint.
    classes : sequence of str or int
        The names of the classes, or how many there are. A generator's own names go before them,
        since data sets spell them differently.
    seed : int
        Another seed gives other samples.

    """

    names: tuple[str, ...] = ()  # of the classes, where they are known
    trained_on = ""  # what the generator says of its training data

    def __init__(
        self, base: Path | str, generator: Generator, classes: Classes, seed: int = defaults.SEED
    ) -> None:
        check_classes(classes, generator)
        names = getattr(generator, "classes", None)
        identity = count_classes(classes) if names is None else [*names]
        origin = generator.fingerprint, _hash(json.dumps(identity)), seed
        self._open(open_storage(base), *origin)
        self.names = () if isinstance(classes, int) else tuple(map(str, classes))
        self.trained_on = str(getattr(generator, "training_data", ""))

    @classmethod
    def at(cls, place: Path | str | Storage) -> "Cache":
        """Open a cache by its own folder or address, or the part of one client."""
        storage = open_storage(place)
        try:
            about = about_of(storage)
        except FileNotFoundError:
            raise InputError(f"no cache in {storage}") from None
        cache = cls.__new__(cls)
        cache._set(storage, about.generator, about.classes, about.seed)
        cache.names, cache.trained_on = about.names, about.trained_on
        return cache

    @classmethod
    def elsewhere(cls, said: Mapping[str, Any]) -> "Cache":
        """Return the cache in another process, which was told what `to_tell` returned."""
        cache = cls.__new__(cls)
        cache._set(open_storage(said["place"]), *said["origin"].values())
        cache.names, cache.trained_on = said["names"], said["trained_on"]
        return cache

    def to_tell(self) -> dict[str, Any]:
        """Return plain values that another process opens this cache by."""
        return {
            "place": self.place,
            "origin": self.origin,
            "names": self.names,
            "trained_on": self.trained_on,
        }

    def _open(self, base: Storage, generator: str, classes: str, seed: int) -> None:
        if not isinstance(generator, str) or not generator.isprintable():  # `cache list` shows it
            raise InputError("a generator's fingerprint must be printable text", got=generator)
        if base.size(_ABOUT):
            raise InputError(
                f"{base} is a cache, not a folder of caches", fix="pass the folder above"
            )
        # The first version named folders so; that of every version since is the same.
        key = {"format": "cache/1", "generator": generator, "data": classes, "seed": seed}
        self.base = base
        self._set(base.below(_hash(json.dumps(key))[:16]), generator, classes, seed)

    def _set(self, storage: Storage, generator: str, classes: str, seed: int) -> None:
        self._identity = generator, classes, seed
        self._known: dict[str, Entry] = {}  # by name, whose content never changes
        self.storage = self.root = storage
        self.origin = {"generator": generator, "classes": classes, "seed": seed}

    @property
    def folder(self) -> Path:
        """The folder of a cache on this machine."""
        if not isinstance(self.storage, LocalStorage):
            raise InputError(f"{self.storage} is no folder of this machine")
        return self.storage.folder

    @property
    def place(self) -> str:
        """The folder or the address."""
        return self.storage.place

    def exists(self) -> bool:
        """Tell whether anything was generated into it."""
        return self.storage.size(_ABOUT) > 0

    def about(self) -> About | None:
        """Return what the samples are, if there are any; refuse those of another origin."""
        try:
            about = read_about(self.storage)
        except FileNotFoundError:
            return None
        for what, ours in self.origin.items():
            if about.origin[what] != ours:
                raise InputError(
                    f"{self.storage} holds samples of another {what}",
                    got=about.origin[what],
                    allowed=str(ours),
                    fix="move it back to where it was, or choose another folder of caches",
                )
        return about

    def refuse_links(self) -> None:
        """Refuse to write where a link leads: that may be anybody's folder."""
        if isinstance(self.root, LocalStorage) and self.root.folder.exists():
            private_folder(self.root.folder)

    def begin(self, form: Form) -> None:
        """Write what the samples are, or refuse samples that are something else."""
        about = self.about()
        if about is None:
            body = {
                "format": FORMAT, **self.origin, "form": msgspec.to_builtins(form),
                "names": self.names, "trained_on": self.trained_on,
            }  # fmt: skip
            self.storage.write_first(_ABOUT, sealed(body).encode())
            about = self.about()  # perhaps of another fill that began at the same moment
        if about is not None and about.form != form:
            raise InputError(
                "the generator changed the shape or number format of its samples",
                got=str(form),
                allowed=str(about.form),
                fix=f"give it another fingerprint, or delete {self.storage}",
            )

    def of_client(self, client: str) -> "ClientPart":
        """Return the part that one client fills by itself, whatever others do."""
        return ClientPart(self, client)

    def nearly_the_same(self) -> list[str]:
        """Say which caches beside this one differ from it in the seed or classes alone.

        Whoever is about to generate everything again may have meant one of them.
        """
        said = []
        for storage in caches(self.base):
            with suppress(InputError, OSError):
                other = about_of(storage).origin
                differing = [what for what, ours in self.origin.items() if other[what] != ours]
                if differing == ["seed"]:
                    said.append(f"{storage} has this generator's samples for seed {other['seed']}")
                elif differing == ["classes"]:
                    said.append(f"{storage} has this generator's samples for other classes")
        return [f"all samples are generated, although {other}" for other in said]

    def clients_by_table(self, client: str) -> tuple[str, ...]:
        """Return the clients of this cache if they have names as in a table, and `client` a number.

        `fedeas fill` takes names from the plan, and an app may number the same clients.
        """
        if not client.isdecimal():
            return ()
        names = dict.fromkeys(name for entry in self.entries() for name in entry.segments.names)
        return () if any(name.isdecimal() for name in names) else tuple(names)

    def seeds(self, client: str, segment: Segment) -> NDArray[np.uint64]:
        """Return the seeds of samples: the hash of all that a sample is known by."""
        head = hashlib.sha256(json.dumps([*self._identity, client, segment.label]).encode())
        digests = []
        for index in range(segment.start, segment.stop):
            digest = head.copy()
            digest.update(b"/%d" % index)
            digests.append(digest.digest()[:8])
        return np.frombuffer(b"".join(digests), "<u8").astype(np.uint64)

    def entries(self, damaged: dict[str, str] | None = None) -> list[Entry]:
        """Return what every shard holds, by the names of shards.

        An entry that is not as it was written is left out if `damaged` is given, which then says
        by its name what is wrong; otherwise it is refused. So is one whose shard is gone.
        """
        return list(read_entries(self.storage, damaged, self._known))

    def missing(self, client: str, wanted: Sequence[int]) -> Segments:
        """Return the samples that are wanted and not there."""
        held = [entry.segments for entry in self.all_entries(client)]
        return subtract(Segments.wanted({client: wanted}), union(held, (client,)))

    def samples(self, client: str, wanted: Sequence[int]) -> tuple[Array, Ints]:
        """Return a client's first `wanted[c]` samples of every class c, and their labels.

        A smaller plan is a prefix of a larger one. Samples that are not as they were written are
        refused.
        """
        check_client(client)
        labels = np.repeat(np.arange(len(wanted), dtype=np.int64), wanted)
        form = self.form_for(client)
        missing = self.missing(client, wanted)
        if len(missing):
            self._refuse_missing(client, wanted, missing)
        if form is None or not len(labels):
            return np.empty((0, 0)), labels
        for _ in range(_TRIES):
            try:
                return self._read(client, wanted, form), labels
            except DamagedError as error:
                if not error.gone:  # otherwise somebody compacts: the samples are elsewhere
                    raise
        return self._read(client, wanted, form), labels

    def _refuse_missing(self, client: str, wanted: Sequence[int], missing: Segments) -> None:
        fix = "run `fedeas fill` with this plan, or ask whoever made them"
        if not self.all_entries(client):
            held = dict.fromkeys(name for e in self.all_entries() for name in e.segments.names)
            raise InputError(
                f"{self.place} has no samples of this client", got=client,
                allowed=", ".join([*held][:5]) or "nothing is in it", fix=fix,
            )  # fmt: skip
        label = int(missing.labels[0])
        known = dict(enumerate(self.names or read_names(self)))
        raise InputError(
            f"client {client!r} lacks {missing.total:,} of {sum(wanted):,} samples, the first of "
            f"them of class {known.get(label, label)}",
            got=f"{int(missing.starts[0])} of {wanted[label]}",
            fix=fix,
        )

    def form_for(self, client: str) -> Form | None:
        """Return what the samples of a client are; refuse those of another origin."""
        abouts = [part.about() for part in (self, self.of_client(client))]
        return next((about.form for about in abouts if about is not None), None)

    def _read(self, client: str, wanted: Sequence[int], form: Form) -> Array:
        """Return samples class by class; of one that stands twice, that of the smallest name."""
        offsets = np.cumsum([0, *wanted])  # where each class begins
        samples = np.empty((int(offsets[-1]), *form.shape), form.dtype)
        there = np.zeros(len(samples), bool)
        limits = np.asarray(wanted)
        for entry in reversed(self.all_entries(client)):
            for _, rows in read_shard(entry, form, client):
                inside = rows.labels < len(limits)
                inside &= rows.indices < limits[np.minimum(rows.labels, len(limits) - 1)]
                places = offsets[rows.labels[inside]] + rows.indices[inside]
                samples[places] = rows.samples[inside]
                there[places] = True
        if not there.all():
            raise DamagedError(self.storage, client, "shards hold other samples than their entries")
        return samples

    def all_entries(self, client: str | None = None) -> list[Entry]:
        """Return the entries with samples of a client, or of all, by the names of shards."""
        if client is None:
            found = [entry for part in parts(self.storage) for entry in read_entries(part, {})]
        else:
            found = [*self.entries({}), *self.of_client(client).entries({})]
            found = [entry for entry in found if client in entry.segments.names]
        return sorted(found, key=lambda entry: entry.shard)


class ClientPart(Cache):
    """The part of a cache that one client fills by itself: its cost does not grow with others."""

    def __init__(self, cache: Cache, client: str) -> None:
        part = cache.storage.below(f"{_CLIENTS}/{_hash(client)[:16]}")
        self._set(part, *cache._identity)
        self.names, self.trained_on = cache.names, cache.trained_on
        self.root = cache.root


def read_about(storage: Storage) -> About:
    """Read what a cache is; FileNotFoundError if there is none."""
    content = storage.read(_ABOUT)
    try:
        about = msgspec.convert(unsealed(content.decode(), _ABOUT), About)
        if about.format != FORMAT:
            raise InputError(f"its format is {about.format}, not {FORMAT}")
    except (InputError, UnicodeDecodeError, msgspec.ValidationError) as error:
        raise DamagedError(
            storage, _ABOUT, first_line(error), f"remove {storage}, and fill it again"
        ) from None
    return about


def read_names(cache: Cache) -> tuple[str, ...]:
    """Return the names of a cache's classes, where it says them."""
    with suppress(FileNotFoundError):
        return about_of(cache.root).names
    return ()


def about_of(storage: Storage) -> About:
    """Read what a cache is where any of its parts says so; FileNotFoundError if none does."""
    for part in parts(storage):
        with suppress(FileNotFoundError):
            return read_about(part)
    raise FileNotFoundError(f"{storage}/{_ABOUT}")


def read_entries(
    storage: Storage, damaged: dict[str, str] | None = None, known: dict[str, Entry] | None = None
) -> Iterator[Entry]:
    """Yield the entries of a place, by the names of their shards; those `known` are not read."""
    known = {} if known is None else known
    names = list(filter(_ENTRY.fullmatch, storage.names(ENTRIES)))
    shards = set(storage.names())  # listed after the entries, each of which comes after its shard
    new = storage.read_many([f"{ENTRIES}/{name}" for name in names if name not in known])
    for name in names:
        content = new.get(f"{ENTRIES}/{name}")
        if content is None and name not in known:  # removed since it was listed
            continue
        try:
            if content is not None:
                known[name] = parse_entry(storage, name, content)
            entry = known[name]
            if entry.file not in shards:
                if not storage.size(entry.name):  # both were removed meanwhile
                    continue
                raise DamagedError(storage, entry.file, "it is gone")
        except DamagedError as error:
            if damaged is None:
                raise
            damaged[f"{ENTRIES}/{name}"] = error.what
            continue
        yield entry


# Maintenance: what caches there are, what they hold, what is damaged, and removing them.


@dataclass(frozen=True)
class Summary:
    """What a cache holds; `wrong` says why it cannot be told."""

    place: str
    generator: str
    seed: int | None
    clients: int
    samples: int
    size: int  # bytes
    wrong: str | None = None


@dataclass(frozen=True)
class Work:
    """How many samples were generated into a cache, and the seconds that this took."""

    made: int
    seconds: float


def caches(base: Path | str | Storage) -> list[Storage]:
    """Return all caches below a folder or an address."""
    storage = open_storage(base)
    named = (storage.below(name) for name in storage.folders() if NAME.fullmatch(name))
    return [each for each in named if is_cache(each)]


def is_cache(storage: Storage) -> bool:
    """Tell whether a place is a cache, or has parts of one that clients filled by themselves."""
    return bool(storage.names(".fedeas")) or _CLIENTS in storage.folders()


def parts(storage: Storage) -> list[Storage]:
    """Return the parts of a cache: that of all clients, and those that each fills by itself."""
    clients = type(storage)(f"{storage}/{_CLIENTS}")
    return [storage, *(clients.below(name) for name in clients.folders())]


def folder_size(base: Path | str) -> int:
    """Return the bytes of all shards below a folder or an address."""
    return sum(
        part.size(name)
        for storage in caches(base)
        for part in parts(storage)
        for name in part.names()
    )


def verify(storage: Storage, repair: bool = False) -> Iterator[str]:
    """Read everything in a cache and yield what is damaged; to `repair` is to remove that."""
    for part in parts(storage):
        try:
            about = read_about(part)
        except FileNotFoundError:
            continue
        except InputError as error:
            yield error.what
            continue
        damaged: dict[str, str] = {}
        for entry in read_entries(part, damaged):
            try:
                verify_shard(entry, about.form)
            except DamagedError as error:
                yield error.what
                if repair:
                    entry.drop()
        for name, what in damaged.items():
            yield what
            if repair:
                part.remove(name)


def summary(storage: Storage) -> Summary:
    """Count what a cache holds."""
    entries: list[Entry] = []
    size = 0
    try:
        about = about_of(storage)
        for part in parts(storage):
            size += sum(part.size(name) for name in part.names())
            entries += read_entries(part)
    except FileNotFoundError:
        return Summary(str(storage), "?", None, 0, 0, size, f"{storage} says nothing of itself")
    except (InputError, OSError) as error:
        return Summary(str(storage), "?", None, 0, 0, size, str(error))
    clients = {name for entry in entries for name in entry.segments.names}
    samples = sum(entry.segments.total for entry in entries)
    return Summary(str(storage), about.generator, about.seed, len(clients), samples, size)


def work(cache: Cache) -> Work:
    """Return how many samples were generated into a cache, and how long that took."""
    entries = [entry for part in parts(cache.storage) for entry in read_entries(part, {})]
    return Work(
        sum(entry.segments.total for entry in entries),
        round(sum(entry.seconds for entry in entries), 3),
    )


def remove(storage: Storage) -> None:
    """Remove a cache; a fill that is under way then has nothing to end with, and says so."""
    if isinstance(storage, LocalStorage):
        if storage.folder.is_symlink():
            raise InputError(f"{storage} is a link", fix="remove it by hand, and what it leads to")
        shutil.rmtree(storage.folder)
        return
    for part in parts(storage):
        for folder in ("", ".fedeas", ENTRIES, ".fedeas/requests", ".fedeas/filling"):
            for name in part.names(folder):
                part.remove(f"{folder}/{name}".lstrip("/"))


def check_client(name: str) -> None:
    """Refuse what cannot be stored as a client's name."""
    try:
        name.encode()
    except UnicodeEncodeError:
        raise InputError("not the name of a client", got=ascii(name)) from None


def check_clients(names: Mapping[str, object]) -> None:
    """Refuse names of clients that cannot be stored."""
    for name in names:
        check_client(name)


def _hash(text: str) -> str:
    # `surrogatepass`: the text may come from a hostile file.
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()
