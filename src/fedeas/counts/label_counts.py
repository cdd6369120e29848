"""`LabelCounts`: how many samples of each class each client holds."""

import hashlib
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedeas._internal.blocks import row_slices
from fedeas._internal.files import LARGEST_LABEL, check_cells
from fedeas._internal.frames import data_frame, html_table, is_frame
from fedeas._internal.scalars import LARGEST, integer
from fedeas.errors import InputError

if TYPE_CHECKING:
    from fedeas.counts.files import Table


@dataclass(frozen=True, eq=False, repr=False)
class LabelCounts:
    """A K x C matrix of label counts, clients in rows, checked once and never changed.

    Parameters
    ----------
    n : array_like
        Whole numbers, clients x classes. A pandas frame's index and columns are taken as names, and
        so is the first column of a polars frame if it holds clients.
    clients : sequence of str, optional
        A name per client; by default 0, 1, 2, ...
    classes : sequence of str, optional
        A name per class.

    >>> counts = LabelCounts([[90, 10, 0], [30, 40, 30]], clients=["north", "south"])
    >>> counts
    LabelCounts(2 clients x 3 classes, 200 samples, 1 absent pair)
    >>> counts.sizes
    array([100, 100])
    """

    n: NDArray[np.int64]
    clients: tuple[str, ...] | None = None
    classes: tuple[str, ...] | None = None

    def __init__(
        self,
        n: ArrayLike,
        clients: Sequence[str] | None = None,
        classes: Sequence[str] | None = None,
    ) -> None:
        if isinstance(n, LabelCounts) or is_frame(n):
            n, rows, columns = _split(n)
            clients = rows if clients is None else clients
            classes = columns if classes is None else classes
        matrix = whole_matrix(n, "counts")
        K, C = matrix.shape
        if K < 1:
            raise InputError("the counts have no clients", allowed="at least one client")
        if C < 2:
            raise InputError(
                "the counts have only one class", got=f"{K} x {C}", allowed="at least two classes"
            )
        total = float(matrix.sum(dtype=np.float64))
        if total > LARGEST:
            raise InputError("counts too large", got=total, allowed="a sum of at most 2**53")
        if total == 0:
            raise InputError("no client has samples", allowed="at least one sample")
        object.__setattr__(self, "n", matrix)
        object.__setattr__(self, "clients", names(clients, K, "client"))
        object.__setattr__(self, "classes", names(classes, C, "class"))

    @classmethod
    def of(cls, counts: "CountsLike") -> "LabelCounts":
        """Return counts as they are, or make them from a matrix or a data frame.

        >>> LabelCounts.of([[90, 10, 0], [30, 40, 30]]).K
        2
        """
        if isinstance(counts, str | Path):
            raise InputError(
                "not a matrix of counts", got=counts, fix="read a file with LabelCounts.load(path)"
            )
        return counts if isinstance(counts, LabelCounts) else cls(counts)

    @classmethod
    def from_labels(
        cls, labels: ArrayLike, clients: ArrayLike, classes: Sequence[str] | int | None = None
    ) -> "LabelCounts":
        """Count from two columns, the label and the client of every sample.

        Parameters
        ----------
        labels : array_like
            The label of every sample.
        clients : array_like
            The client of every sample, in the same order.
        classes : sequence of str or int, optional
            The names of all classes in their order, or their number where labels count from 0.
            Each has a column, even if no client has it; any other label is an error. By default
            the classes are the labels that occur.

        >>> LabelCounts.from_labels([0, 1, 1, 0], ["b", "a", "a", "a"], classes=3).n
        array([[1, 2, 0],
               [1, 0, 0]])
        """
        class_names, label = _columns(labels, classes)
        client_names, client = distinct(clients, "client")
        if label.shape != client.shape or label.ndim != 1 or not label.size:
            raise InputError(
                "labels and clients differ in length, or there are none",
                got=(label.shape, client.shape),
                allowed="two columns of the same length",
            )
        C = len(class_names)
        check_cells(
            C * len(client_names), f"a table of {len(client_names):,} clients x {C:,} classes"
        )
        n = np.bincount(client * C + label, minlength=C * len(client_names))
        return cls(n.reshape(-1, C), [str(k) for k in client_names], class_names)

    @classmethod
    def from_pandas(cls, frame: Any) -> "LabelCounts":
        """Read a data frame with a row per client and a column per class, as from `to_pandas`.

        The index names the clients; if it only numbers the rows, the first column does, if it holds
        text or is called 'client'. A frame may also have the columns client, class and count. For a
        row per sample use `from_labels`.
        """
        if not is_frame(frame):
            raise InputError("not a data frame", got=type(frame).__name__, fix="use LabelCounts(n)")
        return cls(frame)

    @classmethod
    def load(cls, path: Path | str) -> "LabelCounts":
        """Read a table from CSV, TSV, JSON, Parquet or Excel.

        Its first column names the clients and the others are a class each, or it has the columns
        client, class and count. `fedeas counts` turns any other table into this form.
        """
        from fedeas.counts import files

        return cls.from_table(files.read(path), path)

    @classmethod
    def from_table(cls, table: "Table", path: Path | str) -> "LabelCounts":
        """Return the counts of a table that was read from a file; refuse a plan."""
        if table.meta is not None:
            raise InputError(f"{path} is a plan", allowed="the label counts that clients hold")
        return cls(table.values, table.clients, table.classes)

    def save(self, path: Path | str) -> None:
        """Write counts as CSV, TSV, JSON or Parquet.

        A table that would not be read back from text, such as one with a class called Total, is
        refused: JSON and Parquet say that it is right.
        """
        from fedeas.counts import files

        files.write(path, files.Table(self.n, self.clients, self.classes))

    def to_pandas(self) -> Any:
        """Return a pandas data frame with a row per client and a column per class."""
        from fedeas.counts.files import Table, content_hash
        from fedeas.counts.frames import FRAME_MARK

        frame = data_frame(self.n, self.client_names, self.class_names)
        frame.attrs[FRAME_MARK] = content_hash(Table(self.n, self.clients, self.classes))
        return frame

    def plot(self) -> Any:
        """Return a heat map of the counts, clients x classes, as a matplotlib figure."""
        from fedeas.plots.heatmap import label_heatmap

        return label_heatmap(self)

    @property
    def K(self) -> int:  # noqa: N802 - the paper's name
        """The number of clients."""
        return int(self.n.shape[0])

    @property
    def C(self) -> int:  # noqa: N802 - the paper's name
        """The number of classes."""
        return int(self.n.shape[1])

    @cached_property
    def sizes(self) -> NDArray[np.int64]:
        """N_k, the number of samples of every client."""
        sizes: NDArray[np.int64] = self.n.sum(axis=1)
        sizes.setflags(write=False)
        return sizes

    @property
    def total(self) -> int:
        """The number of samples of all clients together."""
        return int(self.sizes.sum())

    @cached_property
    def client_names(self) -> tuple[str, ...]:
        """The name of every client."""
        return self.clients or tuple(map(str, range(self.K)))

    @cached_property
    def class_names(self) -> tuple[str, ...]:
        """The name of every class."""
        return self.classes or tuple(map(str, range(self.C)))

    @property
    def empty(self) -> tuple[str, ...]:
        """The clients without samples: they generate nothing and have no weight."""
        return tuple(self.client_names[k] for k in np.flatnonzero(self.sizes == 0))

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of the matrix and its names; equal exactly when the counts are equal."""
        running = Fingerprint()
        for rows in row_slices(self.K, self.C):
            running.add(self.n[rows], self.client_names[rows] if self.clients else None)
        return running.digest(self.classes)

    def __array__(self, dtype: object = None, copy: bool | None = None) -> NDArray[np.int64]:
        """Let NumPy functions take counts as a matrix."""
        return np.array(self.n, dtype=dtype, copy=copy)  # type: ignore[call-overload, no-any-return]

    def __reduce__(self) -> tuple[Any, ...]:
        # A copy is checked and read-only too; an array that was pickled could be written to.
        return type(self), (self.n, self.clients, self.classes)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LabelCounts) and self.fingerprint == other.fingerprint

    def __hash__(self) -> int:
        return hash(self.fingerprint)

    def _repr_html_(self) -> str:
        return html_table(repr(self), self.n, self.client_names, self.class_names)

    def __repr__(self) -> str:
        absent = int((self.n[self.sizes > 0] == 0).sum())
        return (
            f"LabelCounts({self.K:,} clients x {self.C:,} classes, {self.total:,} samples, "
            f"{absent:,} absent pair{'s' * (absent != 1)})"
        )


# What `LabelCounts.of` and every policy take: counts, a matrix, or a data frame.
CountsLike: TypeAlias = LabelCounts | ArrayLike


class Fingerprint:
    """The fingerprint of counts that arrive in blocks of rows, of any size."""

    def __init__(self) -> None:
        self._rows = 0
        self._matrix = hashlib.sha256()
        self._names = hashlib.sha256()
        self._numbered = True  # so far every name is the default one

    def add(self, n: NDArray[np.int64], clients: Sequence[str] | None = None) -> None:
        """Add the next rows and the names of their clients."""
        self._matrix.update(np.ascontiguousarray(n, dtype="<i8").data)
        if clients is not None:
            self._names.update("".join(f"{name}\0" for name in clients).encode())
            self._numbered &= all(name == str(k) for k, name in enumerate(clients, self._rows))
        self._rows += len(n)

    def digest(self, classes: Sequence[str] | None) -> str:
        """Return the fingerprint of all rows together."""
        names = None if self._numbered else self._names.hexdigest()
        parts = [self._rows, self._matrix.hexdigest(), names, classes]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def _split(n: Any) -> tuple[Any, Sequence[str] | None, Sequence[str] | None]:
    """Return the matrix and the names of counts or of a data frame."""
    if isinstance(n, LabelCounts):
        return n.n, n.clients, n.classes
    from fedeas.counts.frames import read_frame

    table = read_frame(n)
    return table.values, table.clients, table.classes


def whole_matrix(values: ArrayLike, what: str) -> NDArray[np.int64]:
    """Return a read-only K x C matrix of whole numbers from 0 to 2**53, or refuse `values`."""
    try:
        array = np.asarray(values)
    except (ValueError, TypeError):
        raise InputError(
            f"{what} with rows of different lengths", allowed="one row per client"
        ) from None
    if array.ndim != 2:
        raise InputError(
            f"{what} of {array.ndim} dimensions",
            got=type(values).__name__,
            allowed="a matrix, clients x classes",
        )
    if array.dtype.kind not in "iuf":
        raise InputError(f"{what} of type {array.dtype}", allowed="whole numbers")
    if array.size:
        low, high = array.min(), array.max()
        if not (low >= 0 and high <= LARGEST):  # also refuses NaN
            bad = low if low < 0 else high
            raise InputError(f"{what} out of range", got=bad.item(), allowed="0 to 2**53")
        if array.dtype.kind == "f" and (fraction := array[array != np.floor(array)]).size:
            raise InputError(
                f"{what} with a fraction", got=fraction[0].item(), allowed="whole numbers"
            )
    # A read-only matrix is used as it is: a million clients are not copied.
    owned = array.base is None and not array.flags.writeable
    matrix = array.astype(np.int64, order="C", copy=not owned)
    matrix.setflags(write=False)
    return matrix


def names(given: Sequence[str] | None, size: int, what: str) -> tuple[str, ...] | None:
    """Check names: one each, all different, printable. The default 0, 1, 2, ... become None."""
    if given is None:
        return None
    texts = tuple(map(str, given))
    if len(texts) != size:
        raise InputError(f"{len(texts)} {what} names for {size}", allowed="one name each")
    if len(set(texts)) != size:
        twice = next(name for name, count in Counter(texts).items() if count > 1)
        raise InputError(f"{what} names must be different", got=f"{twice!r} twice")
    # Names are printed to terminals: control codes in an untrusted file must not reach them.
    bad = [n for n in texts if not n.isprintable() or n != n.strip() or not 0 < len(n) <= 200]
    if bad:
        raise InputError(f"not a {what} name", got=bad[0], allowed="1 to 200 printable characters")
    return None if texts == tuple(map(str, range(size))) else texts


def distinct(values: ArrayLike, what: str) -> tuple[NDArray[Any], NDArray[np.intp]]:
    """Return the different labels or clients in order, and which of them every sample has.

    >>> distinct(["b", "a", "b"], "label")[1]
    array([1, 0, 1])
    """
    # NumPy would make the text 'nan' of a missing value among text.
    array = np.asarray(values, dtype=object if isinstance(values, list | tuple) else None)
    if array.dtype.kind in "fcmM":
        missing = np.isnan(array) if array.dtype.kind in "fc" else np.isnat(array)
    elif array.dtype.kind == "O":
        missing = np.array([_is_missing(value) for value in array.reshape(-1).tolist()], bool)
    else:
        missing = np.zeros(0, bool)
    if isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values):
        missing = np.ma.getmaskarray(values)
    if count := int(missing.sum()):
        raise InputError(
            f"samples without a {what}",
            got=f"{count:,} of {array.size:,}",
            fix=f"leave these samples out, or name the {what} that they have",
        )
    try:
        return np.unique(
            np.array(array.tolist()) if array.dtype == object else array, return_inverse=True
        )
    except (TypeError, ValueError):
        raise InputError(f"{what}s of different types", fix="make all of them text") from None


def _is_missing(value: object) -> bool:
    """Tell whether a value is missing: None, NaN, NaT or pandas' NA."""
    try:
        return value is None or bool(value != value)  # noqa: PLR0124 - NaN is not equal to itself
    except (TypeError, ValueError):
        return True


def _columns(
    labels: ArrayLike, classes: Sequence[str] | int | None
) -> tuple[list[str], NDArray[np.intp]]:
    """Return the names of the classes, and the column of every label."""
    different, index = distinct(labels, "label")
    if classes is None:
        return [str(label) for label in different], index
    if isinstance(classes, int | Integral | str):
        allowed = "the names of all classes, or a whole number from 2"
        class_names = [
            str(c) for c in range(integer(classes, "invalid classes", allowed, 2, LARGEST_LABEL))
        ]
    else:
        class_names = [str(name) for name in classes]
    columns = {name: c for c, name in enumerate(class_names)}
    if unknown := [label for label in different if str(label) not in columns]:
        raise InputError(
            "a label that is not among the classes",
            got=str(unknown[0]),
            allowed=", ".join(class_names[:20]) + (", ..." if len(class_names) > 20 else ""),
        )
    return class_names, np.array([columns[str(label)] for label in different], np.intp)[index]
