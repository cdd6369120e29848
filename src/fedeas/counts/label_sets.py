"""`LabelSetCounts`: how many samples of each set of labels each client holds."""

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedeas._internal.files import check_cells
from fedeas._internal.frames import html_lines, is_frame
from fedeas._internal.names import choice
from fedeas.counts.files import read_raw
from fedeas.counts.label_counts import CountsLike, LabelCounts, distinct, names, whole_matrix
from fedeas.counts.label_set_files import (
    NO_LABEL,
    SEPARATOR,
    label_sets_of,
    parse_label_sets,
    split_labels,
    write_label_sets,
)
from fedeas.errors import InputError

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
_SHOWN = 20  # label sets of a printed table


@dataclass(frozen=True, eq=False, repr=False)
class LabelSetCounts:
    """Clients x label sets, for samples with none, one or several labels; checked, never changed.

    A label set that is listed may be generated, even if no client holds one: of all others nothing
    is known. Sets are put in order, those of fewer labels first, so equal counts are equal.

    Parameters
    ----------
    sets : array_like
        Label sets x labels, 0 or 1: which labels a sample of the set has. All 0 is the set of
        samples without a label.
    n : array_like
        Whole numbers, clients x label sets.
    clients : sequence of str, optional
        A name per client; by default 0, 1, 2, ...
    labels : sequence of str, optional
        A name per label.
    people : array_like, optional
        As `n`, the number of people whose samples these are. Somebody with samples of two sets is
        counted in both.

    >>> counts = LabelSetCounts([[0, 0], [1, 0], [1, 1]], [[60, 30, 10]], labels=["flu", "cough"])
    >>> counts
    LabelSetCounts(1 client x 3 label sets of 2 labels, 100 samples, 0.50 labels per sample)
    >>> counts.positives.n
    array([[40, 10, 60]])
    """

    sets: Bools
    n: Ints
    clients: tuple[str, ...] | None = None
    labels: tuple[str, ...] | None = None
    people: Ints | None = None

    def __init__(
        self,
        sets: ArrayLike,
        n: ArrayLike,
        clients: Sequence[str] | None = None,
        labels: Sequence[str] | None = None,
        people: ArrayLike | None = None,
    ) -> None:
        table = zero_or_one(sets, "label sets")
        matrix = whole_matrix(n, "counts")
        S, L = table.shape
        if matrix.shape[1] != S:
            raise InputError(
                "the counts do not fit the label sets", got=matrix.shape, allowed=f"clients x {S}"
            )
        order = _order(table)
        held = None if people is None else whole_matrix(people, "people")
        if held is not None:
            _check_people(held, matrix)
        for name, value in (("sets", table), ("n", matrix), ("people", held)):
            part = value if value is None else value[order] if name == "sets" else value[:, order]
            if part is not None:
                part.setflags(write=False)
            object.__setattr__(self, name, part)
        object.__setattr__(self, "clients", names(clients, len(matrix), "client"))
        object.__setattr__(self, "labels", names(labels, L, "label"))
        _check_label_names(self.label_names)
        _ = self.positives  # refuses what cannot be counted: no samples, too many, a single label

    @classmethod
    def from_columns(
        cls,
        columns: Any,
        clients: ArrayLike,
        labels: Sequence[str] | None = None,
        people: ArrayLike | None = None,
    ) -> "LabelSetCounts":
        """Count samples with a column per label that holds 0 or 1.

        Parameters
        ----------
        columns : array_like or data frame
            Samples x labels, 0 or 1. The columns of a frame are taken as names.
        clients : array_like
            The client of every sample, in the same order.
        labels : sequence of str, optional
            The names of the labels.
        people : array_like, optional
            The person of every sample.

        >>> LabelSetCounts.from_columns([[1, 1], [0, 1], [1, 1]], ["a", "a", "b"]).n
        array([[1, 1],
               [0, 1]])
        """
        if is_frame(columns):
            labels = list(map(str, columns.columns)) if labels is None else labels
            columns = columns.to_numpy()
        held = zero_or_one(columns, "columns of labels")
        client_names, client = distinct(clients, "client")
        _check_length(len(held), client, "clients")
        packed, place = np.unique(np.packbits(held, axis=1), axis=0, return_inverse=True)
        sets = np.unpackbits(packed, axis=1, count=held.shape[1])
        K, S = len(client_names), len(sets)
        check_cells(K * S, f"a table of {K:,} clients x {S:,} label sets")
        cell = client * S + place.reshape(-1)
        n = np.bincount(cell, minlength=K * S).reshape(K, S)
        counts_of_people = None
        if people is not None:
            person = distinct(people, "person")[1]
            _check_length(len(held), person, "people")
            once = np.unique(np.stack([cell, person]), axis=1)[0]
            counts_of_people = np.bincount(once, minlength=K * S).reshape(K, S)
        return cls(sets, n, [str(k) for k in client_names], labels, counts_of_people)

    @classmethod
    def from_lists(
        cls,
        lists: Iterable[str | Iterable[object]],
        clients: ArrayLike,
        labels: Sequence[str] | None = None,
        people: ArrayLike | None = None,
    ) -> "LabelSetCounts":
        """Count samples with a list of labels each, as text also 'flu|cough'.

        Parameters
        ----------
        lists : iterable of str or of iterables
            The labels of every sample: ['flu', 'cough'], 'flu|cough', or 'no label'.
        clients : array_like
            The client of every sample, in the same order.
        labels : sequence of str, optional
            The names of all labels in their order; by default those that occur, sorted.
        people : array_like, optional
            The person of every sample.

        >>> LabelSetCounts.from_lists(["flu|cough", "no label"], ["a", "a"]).set_names
        ('no label', 'cough|flu')
        """
        given = [split_labels(each) for each in lists]
        found = sorted({label for each in given for label in each})
        columns = list(map(str, found if labels is None else labels))
        for label in found:
            choice(label, "label", columns)
        check_cells(len(given) * len(columns), f"{len(given):,} samples x {len(columns):,} labels")
        place = {label: c for c, label in enumerate(columns)}
        held = np.zeros((len(given), len(columns)), bool)
        for row, each in enumerate(given):
            held[row, [place[label] for label in each]] = True
        return cls.from_columns(held, clients, columns, people)

    @classmethod
    def from_counts(cls, counts: CountsLike) -> "LabelSetCounts":
        """Return label counts as counts of label sets; a class may be one, such as 'flu|cough'.

        >>> LabelSetCounts.from_counts([[90, 10, 0]]).set_names
        ('0', '1', '2')
        """
        table = LabelCounts.of(counts)
        sets = label_sets_of(table.class_names)
        if sets is not None:
            return cls(sets.table, table.n, table.clients, sets.labels)
        return cls(np.eye(table.C, dtype=bool), table.n, table.clients, table.classes)

    @classmethod
    def load(cls, path: Path | str) -> "LabelSetCounts":
        """Read a table of label sets: CSV, TSV, or JSON records.

        Its first column names the client, then comes a column per label that holds 0 or 1, one of
        counts headed `samples`, `images` or `count`, and perhaps one of `people`. For a row per
        sample use `from_lists` or `from_columns`.
        """
        return cls(**parse_label_sets(Path(path), read_raw(Path(path))))

    def save(self, path: Path | str) -> None:
        """Write a table of label sets: CSV, TSV, or JSON records."""
        numbers = {"samples": self.n} | ({} if self.people is None else {"people": self.people})
        write_label_sets(Path(path), self.client_names, self.label_names, self.sets, numbers)

    @property
    def K(self) -> int:  # noqa: N802 - the paper's name
        """The number of clients."""
        return int(self.n.shape[0])

    @property
    def L(self) -> int:  # noqa: N802 - as K
        """The number of labels."""
        return int(self.sets.shape[1])

    @cached_property
    def sizes(self) -> Ints:
        """N_k, the number of samples of every client."""
        sizes: Ints = self.n.sum(axis=1)
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
    def label_names(self) -> tuple[str, ...]:
        """The name of every label."""
        return self.labels or tuple(map(str, range(self.L)))

    @cached_property
    def set_names(self) -> tuple[str, ...]:
        """What every label set is called: its labels, as in 'flu|cough'."""
        label_names = self.label_names
        listed = ([label_names[c] for c in np.flatnonzero(row)] for row in self.sets)
        return tuple(SEPARATOR.join(each) or NO_LABEL for each in listed)

    @cached_property
    def holds(self) -> Bools:
        """Which sets have each label: labels x label sets, with a last row of sets without one."""
        none = ~self.sets.any(axis=1)
        table: Bools = np.vstack([self.sets.T, none]) if none.any() else self.sets.T.copy()
        table.setflags(write=False)
        return table

    @cached_property
    def positives(self) -> LabelCounts:
        """How many samples of each client have each label, and how many have none.

        With one label per sample these are the label counts. The column of samples without a label
        stands last, and only where such samples are listed.
        """
        columns = (*self.label_names, NO_LABEL)[: len(self.holds)]
        return LabelCounts(
            self.n @ self.holds.T.astype(np.int64),
            self.clients,
            None if columns == tuple(map(str, range(self.L))) else columns,
        )

    @cached_property
    def prevalence(self) -> NDArray[np.float64]:
        """The part of each client's samples that has each label; columns as in `positives`."""
        return self.positives.n / np.maximum(self.sizes, 1)[:, np.newaxis]

    def co_occurrence(self, client: str | None = None) -> Ints:
        """Return how many samples have each pair of labels, labels x labels.

        Parameters
        ----------
        client : str, optional
            Count this client's samples alone.
        """
        if client is not None:
            choice(client, "client", self.client_names)
        n = self.n.sum(axis=0) if client is None else self.n[self.client_names.index(client)]
        sets = self.sets.astype(np.int64)
        pairs: Ints = sets.T @ (n[:, np.newaxis] * sets)
        return pairs

    def of_people(self) -> "LabelSetCounts":
        """Return the same table with people in the place of samples."""
        if self.people is None:
            raise InputError("the number of people is not known", fix="give a column of people")
        return LabelSetCounts(self.sets, self.people, self.clients, self.labels)

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of the numbers and names; equal exactly when the counts are equal."""
        digest = hashlib.sha256(json.dumps([self.clients, self.labels, self.n.shape]).encode())
        for part in (self.sets, self.n, self.people):
            digest.update(b"-" if part is None else np.ascontiguousarray(part, "<i8").data)
        return digest.hexdigest()

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.sets, self.n, self.clients, self.labels, self.people)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LabelSetCounts) and self.fingerprint == other.fingerprint

    def __hash__(self) -> int:
        return hash(self.fingerprint)

    def _rows(self) -> list[list[str]]:
        """Return the most frequent label sets, a row each, and what the rest adds up to."""
        order = np.argsort(-self.n.sum(axis=0), kind="stable")
        rows = [[self.set_names[s], *(f"{x:,}" for x in self.n[:, s])] for s in order[:_SHOWN]]
        if len(order) > _SHOWN:
            rest = self.n[:, order[_SHOWN:]].sum(axis=1)
            rows.append([f"{len(order) - _SHOWN:,} more", *(f"{x:,}" for x in rest)])
        return rows

    def _repr_html_(self) -> str:
        return html_lines(repr(self), self._rows(), ["labels", *self.client_names])

    def __str__(self) -> str:
        rows = [["labels", *self.client_names], *self._rows()]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        return "\n".join(
            "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])])
            for row in rows
        )

    def __repr__(self) -> str:
        clients = f"{self.K:,} client{'s' * (self.K != 1)}"
        each = int((self.n @ self.sets.sum(axis=1)).sum()) / self.total
        return (
            f"LabelSetCounts({clients} x {len(self.sets):,} label sets of {self.L:,} "
            f"label{'s' * (self.L != 1)}, {self.total:,} samples, {each:.2f} labels per sample)"
        )


def name_label_sets(columns: ArrayLike, labels: Sequence[object]) -> NDArray[np.str_]:
    """Return the class of every sample, the name of its label set, from a column per label.

    Parameters
    ----------
    columns : array_like
        Samples x labels, 0 or 1.
    labels : sequence
        The name of every label.

    >>> name_label_sets([[1, 1], [0, 0], [0, 1]], ["flu", "cough"]).tolist()
    ['cough|flu', 'no label', 'cough']
    >>> name_label_sets([[1, 1]], range(2)).tolist()
    ['0|1']
    """
    held = zero_or_one(columns, "columns of labels")
    texts = tuple(map(str, labels))
    names(texts, held.shape[1], "label")
    _check_label_names(texts)
    order = np.argsort(texts)
    ordered = np.array(texts, object)[order]
    return np.array([SEPARATOR.join(ordered[row]) or NO_LABEL for row in held[:, order]])


def zero_or_one(values: ArrayLike, what: str) -> Bools:
    """Return a matrix of booleans from one that holds 0 and 1, or refuse it."""
    try:
        array = np.asarray(values)
    except (ValueError, TypeError):
        raise InputError(f"{what} with rows of different lengths") from None
    if array.ndim != 2 or not array.size:
        raise InputError(f"{what} are not a matrix", got=array.shape, allowed="rows x labels")
    if array.dtype == object or array.dtype.kind not in "biuf":
        raise InputError(f"{what} of type {array.dtype}", allowed="0 or 1")
    other = ~((array == 0) | (array == 1))  # also NaN
    if other.any():
        raise InputError(
            f"{what} must be 0 or 1",
            got=array[other][0].item(),
            fix="decide what a missing or uncertain label counts as, and write 0 or 1",
        )
    return array.astype(bool)


def _order(sets: Bools) -> NDArray[np.intp]:
    """Return the order of label sets: fewer labels first, then by their places; none twice."""
    order = np.lexsort([*(~sets.T[::-1]), sets.sum(axis=1)])
    same = (sets[order][1:] == sets[order][:-1]).all(axis=1)
    if same.any():
        twice = np.flatnonzero(sets[order[1:][same][0]]).tolist()
        raise InputError("a label set twice", got=f"labels {twice}", fix="add its counts up")
    return order


def _check_label_names(given: Sequence[str]) -> None:
    for name in given:
        if name == NO_LABEL or SEPARATOR in name:
            raise InputError("not a label name", got=name, fix="give the label another name")


def _check_people(people: Ints, n: Ints) -> None:
    """Refuse a number of people that cannot be: of another shape, or more than samples."""
    if people.shape != n.shape:
        raise InputError("people do not fit the counts", got=people.shape, allowed=f"{n.shape}")
    if (bad := (people > n) | ((people == 0) & (n > 0))).any():
        pair = f"{people[bad][0]} people with {n[bad][0]} samples"
        raise InputError("not a number of people", got=pair, allowed="from 1 to the samples")


def _check_length(rows: int, column: NDArray[Any], what: str) -> None:
    if column.shape != (rows,):
        raise InputError(
            f"samples and {what} differ in length", got=(rows, column.shape), allowed="one each"
        )
