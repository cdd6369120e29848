"""Samples of a cache as files that other programs read: PNG by client and class, or Parquet.

One block of samples is in memory at a time.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedeas.cache.block import Ints, Segment, read_blocks
from fedeas.cache.store import Cache
from fedeas.data.decode import encode_png
from fedeas.data.kinds import Array, kind_of
from fedeas.errors import InputError
from fedeas.files import atomic_write, make_folder, unwritable
from fedeas.parquet import SampleWriter, sample_writer
from fedeas.progress import Progress

FORMATS = ("png", "parquet")
PARQUET_FILE = "samples.parquet"
# A name that is safe as a folder's on every system; others get one with a hash.
_SAFE = re.compile(r"(?!\.)[\w .-]{1,80}(?<![. ])")


@dataclass(frozen=True)
class Part:
    """Consecutive samples of a client and class."""

    client: str
    segment: Segment
    samples: Array


def export(
    cache: Cache,
    out: Path,
    form: str,
    clients: Sequence[str] = (),
    classes: Sequence[str] | None = None,
    progress: Progress | None = None,
) -> int:
    """Write the samples of a cache, and return how many they are.

    Parameters
    ----------
    cache : Cache
        Where they are.
    out : Path
        A folder that is empty or does not exist yet.
    form : str
        'png': an image `client/class/index.png` each; 'parquet': one file, a row per sample with
        its client, class, index and the sample, as PNG if it is an image and otherwise as numbers.
    clients : sequence of str, optional
        Only these clients.
    classes : sequence of str, optional
        The names of the classes; by default they are numbers.
    progress : callable, optional
        Is told how many samples are written, and of how many.
    """
    if form not in FORMATS:
        raise InputError("unknown format", got=form, allowed=", ".join(FORMATS))
    total = _count(cache, clients, classes)
    _check_empty(out)
    make_folder(out)
    done = 0
    with ExitStack() as stack:
        if form == "png":
            write: Callable[[Part, Sequence[str]], None] = _Folders(cache, out, classes).add
        else:
            temporary = stack.enter_context(atomic_write(out / PARQUET_FILE))
            write = _Table(stack.enter_context(sample_writer(temporary))).add
        for part in _parts(cache, clients):
            label = part.segment.label
            name = str(label) if classes is None else classes[label]
            write(part, [name] * len(part.samples))
            done += len(part.samples)
            if progress is not None:
                progress(done, total)
    return done


def all_samples(cache: Cache) -> tuple[Array, Ints]:
    """Return all samples of a cache, and their labels."""
    _count(cache, (), None)
    parts = list(_parts(cache, ()))
    labels = [np.full(len(part.samples), part.segment.label) for part in parts]
    return np.concatenate([part.samples for part in parts]), np.concatenate(labels)


def _count(cache: Cache, clients: Sequence[str], classes: Sequence[str] | None) -> int:
    """Count the samples, and refuse clients and classes that are not there."""
    total = 0
    known: set[str] = set()
    with cache.open() as index:
        for client in clients or (None,):
            for _, block in index.blocks(client):
                known.add(block.client)
                total += sum(segment.size for segment in block.segments)
                largest = max(segment.label for segment in block.segments)
                if classes is not None and largest >= len(classes):
                    raise InputError(
                        f"{cache.folder} has samples of class {largest}",
                        got=f"{len(classes)} names of classes",
                    )
    if missing := [client for client in clients if client not in known]:
        raise InputError(f"{cache.folder} has no samples of this client", got=missing[0])
    if not total:
        raise InputError(f"{cache.folder} is empty", fix="run `fedeas fill` first")
    return total


def _check_empty(out: Path) -> None:
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise InputError(f"{out} is not an empty folder", fix="choose another one with --out")


def _parts(cache: Cache, clients: Sequence[str]) -> Iterator[Part]:
    """Yield the samples block by block; every block is verified as it is read."""
    with cache.open() as index:
        for client in clients or (None,):
            for block, samples in read_blocks(cache.folder, index.blocks(client)):
                at = 0
                for segment in block.segments:
                    yield Part(block.client, segment, samples[at : at + segment.size])
                    at += segment.size


class _Folders:
    """Writes every sample as a PNG file."""

    def __init__(self, cache: Cache, out: Path, classes: Sequence[str] | None) -> None:
        self._cache, self._out = cache, out
        self._classes = None if classes is None else folder_names(classes)
        self._taken: dict[str, str] = {}  # names of folders, whatever their case

    def add(self, part: Part, classes: Sequence[str]) -> None:
        _check_image(part)
        label = part.segment.label
        name = str(label) if self._classes is None else self._classes[label]
        folder = self._out / self._name(part.client) / name
        make_folder(folder)
        for index, sample in enumerate(part.samples, start=part.segment.start):
            path = folder / f"{index}.png"
            try:
                with path.open("xb") as file:  # never over another sample
                    file.write(encode_png(sample))
            except OSError as error:
                raise unwritable(path, error) from None

    def _name(self, client: str) -> str:
        hashed = self._cache.client_folder(client).name
        name = _safe(client, hashed)
        return name if self._taken.setdefault(name.casefold(), client) == client else hashed


def folder_names(classes: Sequence[str]) -> list[str]:
    """Return a folder for every class, each of its own on every system: its name where that is one.

    >>> folder_names(["a/b", "0", "cat", "Cat"])
    ['0-1', '0', 'cat', 'Cat-1']
    """
    names = [_safe(name, "") for name in classes]
    taken: set[str] = set()
    for label, name in enumerate(names):
        if name.casefold() in taken:
            names[label] = ""
        elif name:
            taken.add(name.casefold())
    for label, name in enumerate(names):
        if not name:
            base = _safe(classes[label], str(label))
            number = 0
            while (chosen := f"{base}-{number}" if number else base).casefold() in taken:
                number += 1
            names[label] = chosen
            taken.add(chosen.casefold())
    return names


class _Table:
    """Writes samples as rows of a Parquet file."""

    def __init__(self, writer: SampleWriter) -> None:
        self._writer = writer

    def add(self, part: Part, classes: Sequence[str]) -> None:
        segment = part.segment
        image = _is_image(part)
        self._writer.add(
            part.client,
            classes,
            range(segment.start, segment.stop),
            [encode_png(sample) for sample in part.samples] if image else part.samples,
        )


def _is_image(part: Part) -> bool:
    kind = kind_of(part.samples.shape[1:], part.samples.dtype)
    return kind is not None and kind.name == "image"


def _check_image(part: Part) -> None:
    if not _is_image(part):
        raise InputError(
            "these samples are not images",
            got=f"{part.samples.shape[1:]} of {part.samples.dtype}",
            fix="pass --format parquet",
        )


def _safe(name: str, otherwise: str) -> str:
    return name if _SAFE.fullmatch(name) else otherwise
