"""`LabelCounts`: how many samples of each class each client holds."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from numbers import Integral
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedeas import plotting, tables
from fedeas.blocks import row_slices
from fedeas.errors import InputError
from fedeas.limits import LARGEST_LABEL, check_cells
from fedeas.notebook import data_frame, html_table, polars_frame
from fedeas.scalars import integer
from fedeas.tables.frames import frame_mark, is_frame, split_frame


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
            own = (n.n, n.clients, n.classes) if isinstance(n, LabelCounts) else split_frame(n)
            n = own[0]
            clients = own[1] if clients is None else clients
            classes = own[2] if classes is None else classes
        matrix = whole_matrix(n, "counts")
        K, C = matrix.shape
        if K < 1:
            raise InputError("the counts have no clients", allowed="at least one client")
        if C < 2:
            raise InputError(
                "the counts have only one class", got=f"{K} x {C}", allowed="at least two classes"
            )
        total = float(matrix.sum(dtype=np.float64))
        if total > tables.LARGEST:
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

        Its index and columns are the names. For a row per sample use `from_labels`.
        """
        if not is_frame(frame):
            raise InputError("not a data frame", got=type(frame).__name__, fix="use LabelCounts(n)")
        return cls(frame)

    @classmethod
    def from_polars(cls, frame: Any) -> "LabelCounts":
        """Read a polars data frame with a row per client, as from `to_polars`.

        The first column names the clients if it is called 'client', 'hospital' or the like, or if
        it holds text; each of the others is a class. For a row per sample use `from_labels`.
        """
        if not is_frame(frame) or hasattr(frame, "index"):
            raise InputError(
                "not a polars data frame",
                got=type(frame).__name__,
                fix="call collect() first" if hasattr(frame, "collect") else "use LabelCounts(n)",
            )
        return cls(frame)

    @classmethod
    def load(
        cls,
        path: Path | str,
        delimiter: str | None = None,
        layout: str | None = None,
        **options: Any,
    ) -> "LabelCounts":
        """Read counts from CSV, TSV, JSON, Parquet or Excel.

        `layout` is 'wide' (a row per client), 'long' (a row per sample) or 'counts' (a row per
        client and class). By default it is inferred, and a file that can be read in two ways, or
        that seems to hold totals, is refused. `options` are those of `fedeas.read_counts`, such as
        `drop_columns=["Total"]`.
        """
        table = tables.read(path, tables.Options(delimiter, layout, **options))
        if table.meta is not None:
            raise InputError(f"{path} is a plan", allowed="the label counts that clients hold")
        return cls(table.values, table.clients, table.classes)

    def save(self, path: Path | str) -> None:
        """Write counts as CSV, TSV, JSON or Parquet."""
        tables.write(path, tables.Table(self.n, self.clients, self.classes))

    def to_pandas(self) -> Any:
        """Return a pandas data frame with a row per client and a column per class."""
        frame = data_frame(self.n, self.client_names, self.class_names)
        frame.attrs |= frame_mark(self.n, self.client_names, self.class_names)
        return frame

    def to_polars(self) -> Any:
        """Return a polars data frame: a column of clients, then a column per class."""
        return polars_frame(self.n, self.client_names, self.class_names)

    def plot(self) -> Any:
        """Return a matplotlib figure of the share of each class in each client's samples."""
        return plotting.figure(self)

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


def whole_matrix(values: ArrayLike, what: str) -> NDArray[np.int64]:
    """Return a read-only K x C matrix of whole numbers from 0 to 2**53, or refuse `values`."""
    try:
        given = np.asarray(values)
    except (ValueError, TypeError):
        raise InputError(
            f"{what} with rows of different lengths", allowed="one row per client"
        ) from None
    if given.ndim != 2:
        raise InputError(
            f"{what} of {given.ndim} dimensions",
            got=type(values).__name__,
            allowed="a matrix, clients x classes",
        )
    if given.dtype.kind not in "iuf":
        raise InputError(f"{what} of type {given.dtype}", allowed="whole numbers")
    if given.size:
        low, high = given.min(), given.max()
        if not (low >= 0 and high <= tables.LARGEST):  # also refuses NaN
            bad = low if low < 0 else high
            raise InputError(f"{what} out of range", got=bad.item(), allowed="0 to 2**53")
        if given.dtype.kind == "f" and (fraction := given[given != np.floor(given)]).size:
            raise InputError(
                f"{what} with a fraction", got=fraction[0].item(), allowed="whole numbers"
            )
    # A read-only matrix is used as it is: a million clients are not copied.
    own = given.base is None and not given.flags.writeable
    matrix = given.astype(np.int64, order="C", copy=not own)
    matrix.setflags(write=False)
    return matrix


def names(given: Sequence[str] | None, size: int, what: str) -> tuple[str, ...] | None:
    """Check names: one each, all different, printable. The default 0, 1, 2, ... become None."""
    if given is None:
        return None
    chosen = tuple(map(str, given))
    if len(chosen) != size:
        raise InputError(f"{len(chosen)} {what} names for {size}", allowed="one name each")
    if len(set(chosen)) != size:
        seen: set[str] = set()
        twice = next(name for name in chosen if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise InputError(f"{what} names must be different", got=f"{twice!r} twice")
    # Names are printed to terminals: control codes in an untrusted file must not reach them.
    bad = [n for n in chosen if not n.isprintable() or n != n.strip() or not 0 < len(n) <= 200]
    if bad:
        raise InputError(f"not a {what} name", got=bad[0], allowed="1 to 200 printable characters")
    return None if chosen == tuple(map(str, range(size))) else chosen


def distinct(values: ArrayLike, what: str) -> tuple[NDArray[Any], NDArray[np.intp]]:
    """Return the different labels or clients in order, and which of them every sample has.

    >>> distinct(["b", "a", "b"], "label")[1]
    array([1, 0, 1])
    """
    # NumPy would make the text 'nan' of a gap among text.
    given = np.asarray(values, dtype=object if isinstance(values, list | tuple) else None)
    if given.dtype.kind in "fcmM":
        gaps = np.isnan(given) if given.dtype.kind in "fc" else np.isnat(given)
    elif given.dtype.kind == "O":
        gaps = np.array([_is_gap(value) for value in given.reshape(-1).tolist()], bool)
    else:
        gaps = np.zeros(0, bool)
    if isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values):
        gaps = np.ma.getmaskarray(values)
    missing = int(gaps.sum())
    if missing:
        raise InputError(
            f"samples without a {what}",
            got=f"{missing:,} of {given.size:,}",
            fix=f"leave these samples out, or name the {what} that they have",
        )
    try:
        return np.unique(
            np.array(given.tolist()) if given.dtype == object else given, return_inverse=True
        )
    except (TypeError, ValueError):
        raise InputError(f"{what}s of different types", fix="make all of them text") from None


def _is_gap(value: object) -> bool:
    """Tell whether a value is missing: None, NaN, NaT or pandas' NA."""
    try:
        return value is None or bool(value != value)  # noqa: PLR0124 - NaN is not equal to itself
    except (TypeError, ValueError):
        return True


def _columns(
    labels: ArrayLike, classes: Sequence[str] | int | None
) -> tuple[list[str], NDArray[np.intp]]:
    """Return the names of the classes, and the column of every label."""
    found, place = distinct(labels, "label")
    if classes is None:
        return [str(label) for label in found], place
    if isinstance(classes, int | Integral | str):
        allowed = "the names of all classes, or a whole number from 2"
        chosen = [
            str(c) for c in range(integer(classes, "invalid classes", allowed, 2, LARGEST_LABEL))
        ]
    else:
        chosen = [str(name) for name in classes]
    columns = {name: c for c, name in enumerate(chosen)}
    if strange := [label for label in found if str(label) not in columns]:
        raise InputError(
            "a label that is not among the classes",
            got=str(strange[0]),
            allowed=", ".join(chosen[:20]) + (", ..." if len(chosen) > 20 else ""),
        )
    return chosen, np.array([columns[str(label)] for label in found], np.intp)[place]
