"""A data set by name: local Parquet where there is some, otherwise the Hugging Face hub."""

import hashlib
import io
import json
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedeas import hub, parquet
from fedeas.data.images import Bytes, ImageData
from fedeas.errors import InputError, MissingExtraError
from fedeas.files import IMAGE_FILES, folders, store_folder

Progress = Callable[[int, int], None]
_PARTS = ("train", "test")
_PARQUET = ".parquet"
_SHARD = re.compile(r"-(\d+)-of-(\d+)$")
_EVERY = 5  # of a class's images, one is for testing
_AT_ONCE = 256  # files


def load_images(
    name: str,
    folder: Path | str | None = None,
    store: Path | str | None = None,
    progress: Progress | None = None,
    parts: Sequence[str] = _PARTS,
) -> ImageData:
    """Open a data set as memory-mapped arrays, decoding it on first use.

    Parquet in the schema of the Hugging Face data set `name` is looked for in `folder`, then in
    the folder `name` below the environment variable FEDEAS_DATA; otherwise the hub is asked. A
    folder may also hold images by class: `train/CLASS/` and `test/CLASS/`, or `CLASS/` alone, of
    which every fifth is then for testing. The decoded arrays are kept in `store` (FEDEAS_STORE, or
    .cache/fedeas in the home folder). Whoever holds only training or only test images says so in
    `parts`; then all images of `CLASS/` are of that part.
    """
    files = _local_files(name, folder, parts) or _hub_files(name)
    target = store_folder(store) / "data" / f"{Path(name).name}-{_key(files)}"
    try:
        return ImageData.open(target)
    except InputError:
        shutil.rmtree(target, ignore_errors=True)  # half of something, or of an older format
    paths = [path for part in _PARTS for path in files[part]]
    if paths[0].suffix != _PARQUET:
        classes = tuple(sorted({path.parent.name for path in paths}))
        sizes = (len(files["train"]), len(files["test"]))
        encoded = _encoded_files(paths, classes)
    else:
        heads = {part: parquet.image_head(own) for part, own in files.items() if own}
        classes = next(iter(heads.values())).classes
        if any(head.classes != classes for head in heads.values()):
            raise InputError(f"{name}: training and test set name different classes")
        train, test = (heads[part].rows if part in heads else 0 for part in _PARTS)
        sizes = (train, test)
        encoded = ((path, *batch) for path in paths for batch in parquet.image_batches(path))
    batches = _decoded(encoded, sum(sizes), progress)
    return ImageData.write(target, name, classes, sizes, batches)


def at_hand(name: str) -> bool:
    """Say whether a data set is below FEDEAS_DATA, without asking the hub."""
    return _local_files(name, None) is not None


def _local_files(
    name: str, folder: Path | str | None, parts: Sequence[str] = _PARTS
) -> dict[str, list[Path]] | None:
    """Find the files of the parts in the given folder, or below FEDEAS_DATA."""
    if folder is None:
        if (root := os.environ.get("FEDEAS_DATA")) is None:
            return None
        folder = Path(root) / name
        if not folder.is_dir():
            return None
    files = {part: sorted(Path(folder).rglob(f"{part}-*.parquet")) for part in parts}
    if not any(files.values()):
        files = _image_files(Path(folder), parts)
    if missing := [part for part in parts if not files[part]]:
        raise InputError(
            f"{folder} holds no {missing[0]} set",
            allowed="train-*.parquet and test-*.parquet, or images in train/CLASS/ and "
            "test/CLASS/, or in CLASS/",
        )
    for own in files.values():
        _check_complete(own)
    return {part: files.get(part, []) for part in _PARTS}


def _check_complete(paths: list[Path]) -> None:
    """Refuse a part of a set, as a download that broke off leaves it: files say how many they are.

    `train-00000-of-00003.parquet` is one of three.
    """
    said = [match for path in paths if (match := _SHARD.search(path.stem))]
    for match in said:
        if len({own[1] for own in said if own[2] == match[2]}) < int(match[2]):
            raise InputError(
                f"{paths[0].parent} lacks files of its set",
                got=", ".join(path.name for path in paths),
                allowed=f"{int(match[2])} of them",
                fix="fetch the rest",
            )


def _image_files(folder: Path, parts: Sequence[str]) -> dict[str, list[Path]]:
    """Find images by class; without a test set of its own, every fifth of a class is one."""
    found_in = {part: _images(folder / part) for part in parts}
    if any(found_in.values()):
        return {
            part: [p for own in found.values() for p in own] for part, found in found_in.items()
        }
    found = _images(folder).values()
    if len(parts) == 1:
        return {parts[0]: [p for own in found for p in own]}
    return {
        "train": [p for own in found for n, p in enumerate(own) if (n + 1) % _EVERY],
        "test": [p for own in found for n, p in enumerate(own) if not (n + 1) % _EVERY],
    }


def _images(folder: Path) -> dict[str, list[Path]]:
    """Return the images of every folder of a folder, by its name."""
    if not folder.is_dir():
        return {}
    found = {
        own.name: sorted(p for p in own.iterdir() if p.suffix.lower() in IMAGE_FILES)
        for own in folders(folder)
    }
    return {name: paths for name, paths in found.items() if paths}


def _encoded_files(
    paths: list[Path], classes: tuple[str, ...]
) -> Iterator[tuple[Path, list[bytes], NDArray[np.int64]]]:
    """Yield image files and their labels, a few hundred at a time."""
    for start in range(0, len(paths), _AT_ONCE):
        own = paths[start : start + _AT_ONCE]
        labels = np.array([classes.index(path.parent.name) for path in own], np.int64)
        yield own[0].parent, [path.read_bytes() for path in own], labels


def _hub_files(name: str) -> dict[str, list[Path]]:
    """Fetch the Parquet files of a data set of the Hugging Face hub."""
    fetched = hub.fetch(name, "dataset", [f"*{part}-*.parquet" for part in _PARTS])
    files = _local_files(name, fetched)
    if files is None:
        raise InputError(f"the data set {name!r} has no Parquet files")
    return files


def _key(files: dict[str, list[Path]]) -> str:
    """Name a state of the source files, so that changed files are decoded anew."""
    states = [
        (part, path.name, path.stat().st_size, path.stat().st_mtime_ns)
        for part in _PARTS
        for path in files[part]
    ]
    return hashlib.sha256(json.dumps(states).encode()).hexdigest()[:16]


def _decoded(
    encoded: Iterable[tuple[Path, list[bytes], NDArray[np.int64]]],
    total: int,
    progress: Progress | None,
) -> Iterator[tuple[Bytes, NDArray[np.int64]]]:
    done = 0
    for path, contents, labels in encoded:
        pixels = [_decode(content, path) for content in contents]
        if len(shapes := {image.shape for image in pixels}) > 1:
            raise InputError(f"{path} holds images of different sizes", got=sorted(shapes))
        yield np.stack(pixels), labels
        done += len(labels)
        if progress is not None:
            progress(done, total)


def _decode(content: bytes, path: Path) -> Bytes:
    """Decode one PNG, WebP or JPEG to height x width x channels; grey stays one channel."""
    image_module = _pillow()
    try:
        with image_module.open(io.BytesIO(content)) as image:
            pixels = np.asarray(image if image.mode == "L" else image.convert("RGB"))
    except (OSError, ValueError, SyntaxError, image_module.DecompressionBombError) as error:
        raise InputError(f"{path} holds an image that cannot be decoded: {error}") from None
    return pixels if pixels.ndim == 3 else pixels[:, :, np.newaxis]


def _pillow() -> Any:
    try:
        from PIL import Image
    except ImportError:
        raise MissingExtraError("decoding images", "data") from None
    return Image
