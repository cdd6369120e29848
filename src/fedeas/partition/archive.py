"""A partition's file: a zip archive of arrays, measured by its headers before it is unpacked.

A few megabytes of an archive can unpack to many gigabytes. An array is unpacked only if its own
header says that it holds no more than a data set of the size that the archive's head claims.
"""

import json
import math
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedeas.errors import InputError
from fedeas.files import check_regular, unreadable
from fedeas.limits import check_cells

FORMAT = "partition/1"
_LARGEST_HEAD = 1 << 24  # bytes; names of clients are in it
_FEW_CLIENTS = 10**6  # this many are allowed however few the samples are
_INTEGERS = ("size", "classes")
_TEXTS = ("labels_hash", "recipe")
_LISTS = ("train", "test")
# What reading a damaged or hostile archive can end in.
_DAMAGED = (
    *(KeyError, TypeError, ValueError, AttributeError, NotImplementedError, RecursionError),
    *(EOFError, RuntimeError, zipfile.BadZipFile, zlib.error),
)


def read_archive(path: Path) -> tuple[dict[str, Any], dict[str, NDArray[np.int64]]]:
    """Return the head of a partition's file and its arrays, by name."""
    check_regular(path)
    try:
        with zipfile.ZipFile(path) as archive:
            head = _read_head(archive)
            sizes = {name: _length(archive, name) for name in _members(archive)}
            _check_sizes(path, head["size"], sizes)
            return head, {name: _read(archive, name) for name in sizes}
    except InputError:
        raise
    except _DAMAGED:
        raise InputError(
            f"{path} is not a partition", allowed="a file that `fedeas partition --out` wrote"
        ) from None
    except OSError as error:
        raise unreadable(path, error) from None


def _read_head(archive: zipfile.ZipFile) -> dict[str, Any]:
    if _length(archive, "head") > _LARGEST_HEAD:
        raise ValueError("a head of that size")
    with archive.open("head.npy") as file:
        head = json.loads(bytes(np.lib.format.read_array(file, allow_pickle=False)))
    well_formed = (
        head.pop("format") == FORMAT
        and all(type(head[key]) is int and 0 < head[key] < 2**53 for key in _INTEGERS)
        and all(isinstance(head[key], str) and head[key].isprintable() for key in _TEXTS)
        and isinstance(head["settings"], dict)
    )
    if not well_formed:
        raise ValueError("another head")
    checked: dict[str, Any] = head
    return checked


def _members(archive: zipfile.ZipFile) -> list[str]:
    names = [member.removesuffix(".npy") for member in archive.namelist()]
    return [f"{part}{end}" for part in _LISTS if part in names for end in ("", "_offsets")]


def _length(archive: zipfile.ZipFile, name: str) -> int:
    """Return how many whole numbers an array holds, by its header."""
    with archive.open(f"{name}.npy") as file:
        if np.lib.format.read_magic(file) != (1, 0):
            raise ValueError("an array that `save` does not write")
        shape, _, dtype = np.lib.format.read_array_header_1_0(file)
    if dtype.kind not in "iu" or len(shape) != 1:
        raise ValueError("not a list of whole numbers")
    return math.prod(shape)


def _check_sizes(path: Path, samples: int, sizes: dict[str, int]) -> None:
    """Refuse arrays beyond what a data set of this many samples can need."""
    held = sum(sizes[part] for part in _LISTS if part in sizes)
    clients = max(size for name, size in sizes.items() if name.endswith("_offsets")) - 1
    if held > samples or clients > max(samples, _FEW_CLIENTS):
        raise InputError(
            f"{path} is a damaged partition: {held:,} samples on {clients:,} clients of a data "
            f"set of {samples:,}"
        )
    check_cells(sum(sizes.values()), str(path))


def _read(archive: zipfile.ZipFile, name: str) -> NDArray[np.int64]:
    with archive.open(f"{name}.npy") as file:
        array = np.lib.format.read_array(file, allow_pickle=False)
    return array.astype(np.int64, copy=False)
