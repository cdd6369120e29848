"""The labels of a data set: from Parquet, NumPy or CSV files, or made up with given class sizes."""

import re
import zipfile
from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TextIO

import numpy as np
from numpy.typing import NDArray

from fedeas import parquet
from fedeas.errors import InputError
from fedeas.files import check_regular, unreadable
from fedeas.limits import check_cells
from fedeas.partition.partition import check_labels

Ints = NDArray[np.int64]
_BALANCED = re.compile(r"balanced:(\d{1,6})x(\d{1,9})")
_LONGEST_LINE = 1 << 20  # characters


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
    check_regular(path)
    try:
        # A map: its header says how many there are before any is read.
        found = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError, zipfile.BadZipFile):
        found = None
    except OSError as error:
        raise unreadable(path, error) from None
    if not isinstance(found, np.ndarray):  # an archive of arrays is none
        raise InputError(f"{path} is not a NumPy file of numbers")
    check_cells(found.size, str(path))
    return check_labels(found)


def _read_csv(path: Path) -> Ints:
    """Read one label per line, below a heading if there is one."""
    check_regular(path)
    values = array("q")
    try:
        with path.open(encoding="utf-8-sig") as file:
            for line, label in _words(path, file):
                if label.isascii() and label.isdigit() and len(label) < 10:
                    values.append(int(label))
                elif values or line > 1 or re.fullmatch(r"[-+.\d]+", label):  # not a heading
                    raise InputError(
                        f"{path} line {line} is not a label",
                        got=label,
                        allowed="one whole number per line",
                    )
    except UnicodeDecodeError:
        raise InputError(f"{path} is not a text file", allowed="UTF-8 text") from None
    except OSError as error:
        raise unreadable(path, error) from None
    if not values:
        raise InputError(f"{path} is not a column of labels", allowed="one whole number per line")
    check_cells(len(values), str(path))
    return np.frombuffer(values, dtype=np.int64)


def _words(path: Path, file: TextIO) -> Iterator[tuple[int, str]]:
    """Yield words and the lines that they are on; a file without line breaks is not held whole."""
    number = 1
    while line := file.readline(_LONGEST_LINE):
        if len(line) == _LONGEST_LINE:
            raise InputError(
                f"{path} line {number} is too long", allowed="one whole number per line"
            )
        yield from ((number, word) for word in line.split())
        number += 1
