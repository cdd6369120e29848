"""The labels of samples without the samples: from files, or made up with given class sizes."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedeas._internal.arrow import LABEL_COLUMNS
from fedeas._internal.files import check_cells, check_regular, unreadable
from fedeas.data.columns import label_codes, read_labels_of
from fedeas.data.parquet import TABLE_FILES, open_tables
from fedeas.errors import InputError
from fedeas.partition.partition import check_labels

Ints = NDArray[np.int64]
_BALANCED = re.compile(r"balanced:(\d{1,6})x(\d{1,9})")


@dataclass(frozen=True, eq=False)
class Labels:
    """The label of every sample, with the names of classes and the sites where they are known."""

    codes: Ints
    classes: tuple[str, ...] | None = None
    sites: Sequence[str] | None = None


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


def is_label_source(source: str) -> bool:
    """Tell whether `read_labels` reads a source; anything else is the name of a data set.

    >>> [is_label_source(source) for source in ("balanced:10x6000", "train.csv", "cifar10")]
    [True, True, False]
    """
    return source.startswith("balanced:") or Path(source).suffix.lower() in (".npy", *TABLE_FILES)


def read_labels(sources: Sequence[str], label: str | None = None, site: str = "") -> Labels:
    """Read 'balanced:CLASSESxSAMPLES', a .npy file, or a column of tables joined in this order.

    Parameters
    ----------
    sources : sequence of str
        The files.
    label : str, optional
        The label column of tables; by default the first of label, labels and fine_label.
    site : str
        The column that says which site a sample is from, if there is one.

    >>> len(read_labels(["balanced:10x6000"]).codes)
    60000
    """
    paths = [Path(source) for source in sources]
    if len(sources) == 1 and (sizes := _BALANCED.fullmatch(sources[0])):
        return Labels(balanced_labels(int(sizes[1]), int(sizes[2])))
    if len(sources) == 1 and paths[0].suffix.lower() == ".npy":
        return Labels(_read_npy(paths[0]))
    if not all(path.suffix.lower() in TABLE_FILES for path in paths):
        raise InputError(
            "unknown source of labels",
            got=", ".join(sources),
            allowed=f"files ending in {', '.join(TABLE_FILES)}, one .npy file, or "
            "balanced:CLASSESxSAMPLES",
        )
    table = open_tables(paths)
    label = label or next((name for name in LABEL_COLUMNS if name in table.names), LABEL_COLUMNS[0])
    table.check_column(label, "name the label column")
    codes, classes = read_labels_of(table, label)
    sites = None
    if site:
        table.check_column(site)
        names, site_codes = label_codes(table, site)
        sites = np.array(names)[site_codes].tolist()
    return Labels(codes, classes, sites)


def _read_npy(path: Path) -> Ints:
    check_regular(path)
    try:
        # A map: its header says how many there are before any is read.
        labels = np.load(path, mmap_mode="r", allow_pickle=False)
        check_cells(labels.size, str(path))
    except (ValueError, EOFError, AttributeError):  # of another format, or an archive of arrays
        raise InputError(f"{path} is not a NumPy file of numbers") from None
    except OSError as error:
        raise unreadable(path, error) from None
    return check_labels(labels)
