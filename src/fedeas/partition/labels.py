"""The labels of a data set: from Parquet, NumPy or CSV files, or made up with given class sizes."""

import re
import zipfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedeas import parquet
from fedeas.errors import InputError
from fedeas.files import read_text, unreadable
from fedeas.partition.partition import check_labels

Ints = NDArray[np.int64]
_BALANCED = re.compile(r"balanced:(\d{1,6})x(\d{1,9})")


def balanced_labels(classes: int, per_class: int) -> Ints:
    """Return the labels of a made-up data set, class after class.

    >>> balanced_labels(2, 3)
    array([0, 0, 0, 1, 1, 1])
    """
    if classes < 2 or per_class < 1 or classes * per_class > 10**9:
        raise InputError(
            "not a size of a data set",
            got=f"{classes} x {per_class}",
            allowed="at least 2 classes and 1 sample each, at most 10**9 samples",
        )
    return np.repeat(np.arange(classes, dtype=np.int64), per_class)


def read_labels(sources: Sequence[str], column: str | None = None) -> Ints:
    """Read the labels of all sources, joined in the order given.

    A source is a file ending in .parquet, .npy or .csv, or 'balanced:CLASSESxSAMPLES'.

    >>> len(read_labels(["balanced:10x6000"]))
    60000
    """
    return check_labels(np.concatenate([_read(source, column) for source in sources]))


def _read(source: str, column: str | None) -> Ints:
    if made := _BALANCED.fullmatch(source):
        return balanced_labels(int(made[1]), int(made[2]))
    path = Path(source)
    match path.suffix.lower():
        case ".parquet":
            return parquet.read_column(path, column)
        case ".npy":
            return _read_npy(path)
        case ".csv":
            return _read_csv(path)
    raise InputError(
        "unknown source of labels",
        got=source,
        allowed="a file ending in .parquet, .npy or .csv, or balanced:CLASSESxSAMPLES",
    )


def _read_npy(path: Path) -> Ints:
    try:
        found = np.load(path, allow_pickle=False)
        if not isinstance(found, np.ndarray):
            raise ValueError("an archive instead of an array")
        return check_labels(found)
    except FileNotFoundError as error:
        raise unreadable(path, error) from None
    except (ValueError, OSError, EOFError, MemoryError, zipfile.BadZipFile):
        raise InputError(f"{path} is not a NumPy file of numbers") from None


def _read_csv(path: Path) -> Ints:
    lines = read_text(path).split()
    if lines and not re.fullmatch(r"[-+.\d]+", lines[0]):
        del lines[0]  # a heading
    if not lines or not all(line.isascii() and line.isdigit() and len(line) < 10 for line in lines):
        bad = next((line for line in lines if not line.isdigit()), None)
        raise InputError(
            f"{path} is not a column of labels", got=bad, allowed="a whole number a line"
        )
    return np.array(lines, dtype=np.int64)
