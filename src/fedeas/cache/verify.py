"""Looking after caches: what is damaged, what is there, what is no longer needed."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from fedeas.cache import spent
from fedeas.cache.shard import SUFFIX, check_shard
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
    images: int
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
        yield Problem(folder / "cache.json", str(error))
    if (folder / "journal.json").exists():
        yield from _damaged_json(folder / "journal.json")
    for client in sorted((folder / "clients").glob("*")):
        yield from _verify_client(client)
    for path in folder.iterdir():
        if path.is_file() and path not in known:
            yield Problem(path, "is none of ours, or was half-written")


def summary(folder: Path) -> Summary:
    """Count what a cache holds."""
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    images = clients = 0
    try:
        about = Cache.at(folder).about
        for manifest in (folder / "clients").glob("*/manifest.json"):
            clients += 1
            for shard in read_json(manifest)["shards"]:
                images += sum(stop - start for _, start, stop in shard["segments"])
    except InputError as error:
        return Summary(folder, "?", None, clients, images, size, str(error))
    return Summary(folder, str(about["generator"]), int(str(about["seed"])), clients, images, size)


def _verify_client(folder: Path) -> Iterator[Problem]:
    manifest = folder / "manifest.json"
    try:
        content = read_json(manifest)
        if client_folder(content["client"]) != folder.name:
            raise InputError(f"{manifest} belongs to another client")
    except InputError as error:
        yield Problem(manifest, str(error))
        return
    listed = {shard["name"] for shard in content["shards"]}
    for name in sorted(listed):
        path = folder / name
        try:
            if not path.exists():
                yield Problem(path, "is gone")
            else:
                check_shard(path, content["client"])
        except (InputError, ValueError, KeyError, TypeError):
            yield Problem(path, "is damaged")
    if (folder / "journal.json").exists():
        yield from _damaged_json(folder / "journal.json")
    ours = {"manifest.json", "journal.json", "lock"}
    for path in folder.iterdir():
        if path.name not in ours and not (path.suffix == SUFFIX and path.name in listed):
            yield Problem(path, "is not in the manifest")


def _damaged_json(path: Path) -> Iterator[Problem]:
    try:
        read_json(path)
    except InputError as error:
        yield Problem(path, str(error))
