"""`ImageData`: a data set as memory-mapped arrays in a folder, written once and checksummed."""

import hashlib
import json
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedeas.errors import InputError

Bytes = NDArray[np.uint8]
_FORMAT = "images/1"
_FILES = ("images.npy", "labels.npy")


@dataclass(frozen=True, eq=False, repr=False)
class ImageData:
    """Images (N x height x width x channels, uint8) and labels; official training images first.

    The arrays are maps of files: however many processes and clients use them, there is one copy.
    """

    images: Bytes
    labels: NDArray[np.int64]
    name: str
    classes: tuple[str, ...]
    train_size: int
    fingerprint: str

    @classmethod
    def open(cls, folder: Path) -> "ImageData":
        """Open a folder that `write` made; cheap, since nothing is read but the heads of files."""
        try:
            head = json.loads((folder / "meta.json").read_text(encoding="utf-8"))
            body = head["body"]
            if head["sha256"] != _digest(body) or body["format"] != _FORMAT:
                raise ValueError("another head")
            images, labels = (
                np.load(folder / f, mmap_mode="r", allow_pickle=False) for f in _FILES
            )
            if not (isinstance(images, np.ndarray) and isinstance(labels, np.ndarray)):
                raise ValueError("an archive instead of an array")
        except (OSError, ValueError, KeyError, TypeError, EOFError) as error:
            raise InputError(f"{folder} holds no whole data set: {error}") from None
        if list(images.shape) != body["shape"] or images.dtype != np.uint8:
            raise InputError(f"{folder} holds other images than its head says", got=images.shape)
        if labels.shape != images.shape[:1] or labels.dtype != np.int64:
            raise InputError(f"{folder} holds other labels than its head says", got=labels.shape)
        return cls(
            images,
            labels,
            body["name"],
            tuple(body["classes"]),
            body["train_size"],
            _digest(body["sha256"]),
        )

    @classmethod
    def write(
        cls,
        folder: Path,
        name: str,
        classes: tuple[str, ...],
        sizes: tuple[int, int],
        batches: Iterator[tuple[Bytes, NDArray[np.int64]]],
    ) -> "ImageData":
        """Write batches of images and labels, `sizes` = (training, test) in all, and open them.

        The folder appears whole or not at all; when two processes write the same one, one wins.
        """
        folder.parent.mkdir(parents=True, exist_ok=True)
        temporary = folder.with_name(f".{folder.name}.{secrets.token_hex(4)}")
        temporary.mkdir()
        try:
            body = _fill(temporary, sum(sizes), len(classes), batches)
            body |= {"name": name, "classes": list(classes), "train_size": sizes[0]}
            head = {"sha256": _digest(body), "body": body}
            (temporary / "meta.json").write_text(json.dumps(head, indent=1), encoding="utf-8")
            with suppress(OSError):  # another process was first: its folder serves as well
                temporary.rename(folder)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
        return cls.open(folder)

    def verify(self, folder: Path) -> list[str]:
        """Read everything and return the files whose contents are not what was written."""
        body = json.loads((folder / "meta.json").read_text(encoding="utf-8"))["body"]
        return [f for f in _FILES if _file_digest(folder / f) != body["sha256"][f]]

    @property
    def train_labels(self) -> NDArray[np.int64]:
        """The labels of the official training set."""
        return self.labels[: self.train_size]

    def __repr__(self) -> str:
        size = "x".join(map(str, self.images.shape[1:]))
        test = len(self.labels) - self.train_size
        return (
            f"ImageData({self.name}: {self.train_size:,} training and {test:,} test images "
            f"of {size}, {len(self.classes)} classes)"
        )


def _fill(
    folder: Path, total: int, classes: int, batches: Iterator[tuple[Bytes, NDArray[np.int64]]]
) -> dict[str, Any]:
    """Write the arrays batch by batch and return what describes them."""
    images: np.memmap[Any, Any] | None = None
    labels = np.empty(total, np.int64)
    done = 0
    for pictures, marks in batches:
        if images is None:
            images = np.lib.format.open_memmap(
                folder / _FILES[0], mode="w+", dtype=np.uint8, shape=(total, *pictures.shape[1:])
            )
            _reserve(folder / _FILES[0])
        if pictures.shape[1:] != images.shape[1:] or done + len(marks) > total:
            raise InputError(
                "images of different sizes", got=pictures.shape[1:], allowed=str(images.shape[1:])
            )
        if not (marks.min() >= 0 and marks.max() < classes):
            raise InputError(
                "a label without a class", got=int(marks.max()), allowed=f"{classes} classes"
            )
        images[done : done + len(marks)] = pictures
        labels[done : done + len(marks)] = marks
        done += len(marks)
    if images is None or done != total:
        raise InputError("images are missing", got=done, allowed=f"{total} of them")
    images.flush()
    np.save(folder / _FILES[1], labels)
    return {
        "format": _FORMAT,
        "shape": list(images.shape),
        "sha256": {f: _file_digest(folder / f) for f in _FILES},
    }


def _reserve(path: Path) -> None:
    """Take the disk space of a file now: writing into a map of a full disk ends the process."""
    with path.open("r+b") as file:
        os.posix_fallocate(file.fileno(), 0, path.stat().st_size)


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def _file_digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
