"""Samples that were generated elsewhere: a cache at a folder or an address, or images by class."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fedeas._internal.files import (
    IMAGE_FILES,
    atomic_write,
    content_hash,
    private_folder,
    store_folder,
)
from fedeas._internal.seeds import child_rng
from fedeas.cache.segments import Ints
from fedeas.cache.storage import LocalStorage, Storage, open_storage, plain_name
from fedeas.cache.store import Cache, caches, is_cache
from fedeas.data.decode import decode_images
from fedeas.data.kinds import Array
from fedeas.errors import InputError


def stored_samples(
    place: Path | str,
    client: str,
    wanted: Sequence[int],
    classes: Sequence[str] | int,
) -> tuple[Array, Ints]:
    """Return as many samples of every class as a client wants, and their labels.

    Parameters
    ----------
    place : Path or str
        A cache, a folder with one cache in it, or a folder of images by class.
    client : str
        The client: of images by class, others get others.
    wanted : sequence of int
        How many samples of each class.
    classes : sequence of str or int
        The classes of the data, which folders of images are called by.
    """
    storage = open_storage(place)
    cache = cache_in(storage)
    if cache is None:
        if not isinstance(storage, LocalStorage):
            raise InputError(f"{place} holds no cache")
        if not storage.folders():
            raise InputError(
                f"no samples in {place}",
                got="no folder" if not storage.folder.is_dir() else "no folders in it",
                allowed="a cache, or a folder of images by class",
            )
        return _images_by_class(storage.folder, client, wanted, classes)
    return decoded_once(cache, client, wanted)


def decoded_once(cache: Cache, client: str, wanted: Sequence[int]) -> tuple[Array, Ints]:
    """Return a client's samples, decoded into a memory-mapped file by whoever reads them first.

    The file is known by the places and names of the shards, which are the hashes of their content.
    """
    labels = np.repeat(np.arange(len(wanted), dtype=np.int64), wanted)
    form = cache.form_for(client)  # a cache of another origin is refused
    # Nobody else's files decide what is read for this cache: not even shards of the same names.
    shards = [[entry.shard, entry.storage.place] for entry in cache.all_entries(client)]
    known = [shards, str(form), client, [int(n) for n in wanted]]
    folder = store_folder() / "decoded"
    path = folder / f"{content_hash(known)}.npy"
    if not _is_whole(path, len(labels)):
        samples, _ = cache.samples(client, wanted)
        private_folder(folder)
        with atomic_write(path) as temporary, temporary.open("wb") as file:
            np.save(file, samples, allow_pickle=False)
    # Whoever writes to the samples writes to a copy of their own.
    return np.load(path, mmap_mode="c", allow_pickle=False).view(np.ndarray), labels


def _is_whole(path: Path, samples: int) -> bool:
    """Tell whether a file of decoded samples is there and was not cut off."""
    try:
        return len(np.load(path, mmap_mode="r", allow_pickle=False)) == samples
    except (OSError, ValueError, EOFError):
        return False


def cache_in(storage: Storage) -> Cache | None:
    """Return the cache at a place, or the only one in it; None if there is none."""
    if is_cache(storage):
        return Cache.at(storage)
    found = caches(storage)
    if len(found) > 1:
        raise InputError(
            f"{storage} holds {len(found)} caches",
            got=", ".join(each.name for each in found),
            fix="name one of them",
        )
    return Cache.at(found[0]) if found else None


def _images_by_class(
    folder: Path,
    client: str,
    wanted: Sequence[int],
    classes: Sequence[str] | int,
) -> tuple[Array, Ints]:
    """Read images of any program's making; which of a class a client gets, its name decides."""
    names = [str(c) for c in range(classes)] if isinstance(classes, int) else list(classes)
    paths: list[Path] = []
    for label, number in enumerate(wanted):
        here = next(
            (folder / name for name in (names[label], plain_name(names[label]))
             if (folder / name).is_dir()), folder / names[label],
        )  # fmt: skip
        files = sorted(p for p in here.glob("*") if p.suffix.lower() in IMAGE_FILES)
        if len(files) < number:
            raise InputError(
                f"{folder} has too few images of class {names[label]!r}",
                got=len(files),
                allowed=f"at least {number:,}, in {here}",
            )
        order = child_rng(0, "stored", client, label).permutation(len(files))[:number]
        paths += [files[k] for k in sorted(order.tolist())]
    labels = np.repeat(np.arange(len(wanted), dtype=np.int64), wanted)
    return decode_images(paths), labels
