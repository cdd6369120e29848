"""Looking after caches: what is damaged, what is there, what is no longer needed."""

import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from fedeas.cache import spent
from fedeas.cache.locking import lock_cache
from fedeas.cache.manifest import read_manifest
from fedeas.cache.shard import check_shard, damaged
from fedeas.cache.store import Cache, client_folder
from fedeas.errors import InputError
from fedeas.files import read_json


@dataclass(frozen=True)
class Problem:
    """A file of a cache that is not as it was written, and what is wrong with it."""

    path: Path
    what: str


@dataclass(frozen=True)
class Summary:
    """What a cache holds; `wrong` says why it cannot be told."""

    folder: Path
    generator: str
    seed: int | None
    clients: int
    samples: int
    size: int  # bytes
    wrong: str | None = None


def caches(base: Path) -> list[Path]:
    """Return the folders of all caches below a folder, also those whose head is lost."""
    named = re.compile(r"[0-9a-f]{16}")  # a folder of somebody else is none of our business
    found = {path.parent for name in ("cache.json", "clients") for path in base.glob(f"*/{name}")}
    return sorted(path for path in found if named.fullmatch(path.name))


def verify(folder: Path) -> Iterator[Problem]:
    """Read every file of a cache and yield what is damaged; nothing is changed."""
    known = {folder / name for name in ("lock", "cache.json", "journal.json", spent.FILE)}
    try:
        Cache.at(folder)
    except InputError as error:
        yield Problem(folder / "cache.json", error.what)
    yield from _damaged_journal(folder)
    for client in sorted((folder / "clients").glob("*")):
        yield from _verify_client(client)
    for path in folder.iterdir():
        if path.is_file() and path not in known:
            yield Problem(path, "is none of ours, or was half-written")


def summary(folder: Path) -> Summary:
    """Count what a cache holds."""
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    samples = clients = 0
    try:
        about = Cache.at(folder).about
        for manifest in (folder / "clients").glob("*/manifest.json"):
            clients += 1
            for shard in read_manifest(manifest)[1]:
                samples += sum(segment.size for segment in shard.segments)
    except InputError as error:
        return Summary(folder, "?", None, clients, samples, size, str(error))
    return Summary(folder, str(about["generator"]), int(about["seed"]), clients, samples, size)


def remove(path: Path, waiting: Callable[[], None]) -> None:
    """Remove a cache, or its quarantine, while nobody fills it; `waiting` raises if somebody does.

    Parameters
    ----------
    path : Path
        The folder of a cache, or the folder `quarantine` in it.
    waiting : callable
        Called if the cache is being filled.

    """
    folder = path.parent if path.name == "quarantine" else path
    if folder.is_symlink():
        raise InputError(f"{folder} is a link", fix="remove it by hand, and what it leads to")
    with lock_cache(folder, waiting):
        # The lock goes last. Windows refuses to remove it while it is held: it stays, alone.
        doomed = [path] if path != folder else [p for p in folder.iterdir() if p.name != "lock"]
        for entry in doomed:
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry)
            else:
                entry.unlink()
        if path == folder:
            with suppress(PermissionError):
                shutil.rmtree(folder)


def _verify_client(folder: Path) -> Iterator[Problem]:
    manifest = folder / "manifest.json"
    try:
        client, shards = read_manifest(manifest)
        if client_folder(client) != folder.name:
            raise damaged(manifest, f"it belongs to client {client!r}")
    except InputError as error:
        yield Problem(manifest, error.what)
        return
    for listed in shards:
        path = folder / listed.name
        try:
            if not path.exists():
                yield Problem(path, "is gone")
            elif check_shard(path, client) != listed:
                yield Problem(manifest, f"says that {listed.name} holds other samples than it does")
        except InputError:
            yield Problem(path, "is damaged")
    yield from _damaged_journal(folder)
    ours = {"manifest.json", "journal.json", "lock", *(shard.name for shard in shards)}
    for path in folder.iterdir():
        if path.name not in ours:
            yield Problem(path, "is not in the manifest")


def _damaged_journal(folder: Path) -> Iterator[Problem]:
    path = folder / "journal.json"
    try:
        if path.exists():
            read_json(path)
    except InputError as error:
        yield Problem(path, error.what)
