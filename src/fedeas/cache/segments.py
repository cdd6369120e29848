"""Samples by number: which clients, classes and indices are there, wanted, missing or there twice.

A segment is consecutive samples of one class of one client. Many of them are four arrays, and what
is missing is found by sorting, never by a Python object a sample.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


class Segment(NamedTuple):
    """Consecutive samples of one class: indices start to stop - 1."""

    label: int
    start: int
    stop: int

    @property
    def size(self) -> int:
        """The number of samples."""
        return self.stop - self.start


@dataclass(frozen=True)
class Segments:
    """Segments of many clients: a client by its number in `names`, its class, its indices."""

    names: tuple[str, ...]
    clients: Ints
    labels: Ints
    starts: Ints
    stops: Ints

    @classmethod
    def of(cls, names: Sequence[str], *columns: Iterable[int] | Ints) -> "Segments":
        """Make segments from four columns of numbers."""
        clients, labels, starts, stops = (np.asarray(column, np.int64) for column in columns)
        return cls(tuple(names), clients, labels, starts, stops)

    @classmethod
    def wanted(cls, samples: Mapping[str, Sequence[int]]) -> "Segments":
        """Return the first samples of every class of every client, as many as are wanted."""
        columns = -1 if samples else 0
        counts = np.array(list(samples.values()), np.int64).reshape(len(samples), columns)
        clients, labels = np.nonzero(counts)
        return cls.of(tuple(samples), clients, labels, clients * 0, counts[clients, labels])

    def __len__(self) -> int:
        return len(self.clients)

    @property
    def sizes(self) -> Ints:
        """The number of samples of each segment."""
        return self.stops - self.starts

    @property
    def total(self) -> int:
        """The number of samples of all segments."""
        return int(self.sizes.sum())

    def take(self, rows: Ints | NDArray[np.bool_]) -> "Segments":
        """Return some of the segments."""
        columns = (self.clients, self.labels, self.starts, self.stops)
        return Segments(self.names, *(column[rows] for column in columns))

    def compacted(self) -> "Segments":
        """Return the same with the names of its own clients alone."""
        used, number = np.unique(self.clients, return_inverse=True)
        names = tuple(self.names[k] for k in used.tolist())
        return Segments(names, number.astype(np.int64), self.labels, self.starts, self.stops)

    def renamed(self, names: Sequence[str]) -> "Segments":
        """Return the segments of those clients that are among the names, numbered as these are."""
        if tuple(names) == self.names:
            return self
        places = {name: place for place, name in enumerate(names)}
        number = np.array([places.get(name, -1) for name in self.names], np.int64)
        clients = number[self.clients] if len(self.names) else self.clients
        kept = clients >= 0
        columns = (clients, self.labels, self.starts, self.stops)
        return Segments(tuple(names), *(column[kept] for column in columns))


# Beyond any plan, and small enough that places of samples are whole numbers of 64 bits.
MOST_CLASSES, MOST_INDEX = 2**20, 2**38


def check_segments(segments: Segments) -> None:
    """Refuse segments that somebody may have made up, with ValueError."""
    if not len(segments) or len(set(segments.names)) < len(segments.names):
        raise ValueError("no samples, or a client twice")
    for column, most in (
        (segments.clients, len(segments.names)),
        (segments.labels, MOST_CLASSES),
        (segments.starts, MOST_INDEX),
        (segments.stops, MOST_INDEX),
    ):
        if column.min() < 0 or column.max() >= most:
            raise ValueError("clients, classes or indices that cannot be")
    if (segments.sizes <= 0).any():
        raise ValueError("an empty segment")
    if stand_twice(segments):
        raise ValueError("a sample twice")


def union(parts: Iterable[Segments], names: Sequence[str]) -> Segments:
    """Return the segments of all parts, numbered by these names of clients."""
    renamed = [part.renamed(names) for part in parts]
    if not renamed:
        return Segments.of(tuple(names), [], [], [], [])
    columns = zip(*((s.clients, s.labels, s.starts, s.stops) for s in renamed), strict=True)
    return Segments.of(names, *(np.concatenate(column) for column in columns))


def subtract(wanted: Segments, held: Segments) -> Segments:
    """Return what is wanted and not held, in the order of clients, classes and indices.

    >>> wanted = Segments.wanted({"a": [7], "b": [2]})
    >>> rest = subtract(wanted, Segments.of(("b", "a"), [1, 1], [0, 0], [0, 5], [2, 9]))
    >>> rest.clients.tolist(), rest.starts.tolist(), rest.stops.tolist()
    ([0, 1], [2, 0], [5, 2])
    """
    held = held.renamed(wanted.names)
    classes = 1 + max(wanted.labels.max(initial=0), held.labels.max(initial=0))
    key, taken = wanted.clients * classes + wanted.labels, held.clients * classes + held.labels
    # A gap lies between where all held segments before it have ended and where the next one begins.
    # The wanted ones frame it: each begins with a held segment of no length, and ends with one.
    keys = np.concatenate([key, taken, key])
    starts = np.concatenate([wanted.starts, held.starts, wanted.stops])
    stops = np.concatenate([wanted.starts, held.stops, wanted.stops])
    order = np.lexsort((np.repeat([0, 1, 2], [len(key), len(taken), len(key)]), starts, keys))
    keys, starts, stops = keys[order], starts[order], stops[order]
    reach = _running_maximum(keys, stops)
    gap = np.flatnonzero((keys[1:] == keys[:-1]) & (starts[1:] > reach[:-1]))
    low, high = reach[gap], starts[gap + 1]
    # What lies between two wanted segments of a class, or beyond the last, is not wanted.
    inside = overlaps(
        Segments.of(wanted.names, keys[gap] // classes, keys[gap] % classes, low, high), wanted
    )
    return Segments.of(
        wanted.names,
        wanted.clients[inside.other],
        wanted.labels[inside.other],
        inside.starts,
        inside.stops,
    )


class Overlaps(NamedTuple):
    """Where segments meet: the number of one, the number of the other, and the indices of both."""

    one: Ints
    other: Ints
    starts: Ints
    stops: Ints


def overlaps(one: Segments, other: Segments) -> Overlaps:
    """Return where segments meet others, which are disjoint among themselves."""
    other_names = other.renamed(one.names) if other.names != one.names else other
    if len(other_names) != len(other):
        raise ValueError("segments of unknown clients")
    classes = 1 + max(one.labels.max(initial=0), other.labels.max(initial=0))
    beyond = 1 + max(one.stops.max(initial=0), other.stops.max(initial=0))
    own, key = one.clients * classes + one.labels, other_names.clients * classes + other.labels
    order = np.lexsort((other.starts, key))
    known, key = np.unique(key[order], return_inverse=True)
    # Numbered by rank, since places would not fit into 64 bits; one without others ranks between.
    rank = np.searchsorted(known, own)
    there = rank < len(known)
    there[there] = known[rank[there]] == own[there]
    place, at = key * beyond, rank * beyond
    first = np.searchsorted(place + other.stops[order], at + one.starts, side="right")
    last = np.searchsorted(place + other.starts[order], at + one.stops, side="left")
    last = np.where(there, last, first)
    number = np.maximum(last - first, 0)
    rows = np.repeat(np.arange(len(one)), number)
    within = np.arange(len(rows)) - np.repeat(np.cumsum(number) - number, number)
    met = order[first[rows] + within] if len(rows) else rows
    return Overlaps(
        rows,
        met,
        np.maximum(one.starts[rows], other.starts[met]),
        np.minimum(one.stops[rows], other.stops[met]),
    )


def stand_twice(held: Segments) -> bool:
    """Tell whether a sample is in two segments.

    >>> stand_twice(Segments.of(("a",), [0, 0], [0, 0], [0, 3], [4, 5]))
    True
    """
    key = held.clients * (1 + held.labels.max(initial=0)) + held.labels
    order = np.lexsort((held.starts, key))
    key, starts = key[order], held.starts[order]
    reach = _running_maximum(key, held.stops[order])
    return bool(((key[1:] == key[:-1]) & (starts[1:] < reach[:-1])).any())


def _running_maximum(keys: Ints, values: Ints) -> Ints:
    """Return the largest value so far among the rows of each key, which are sorted by key."""
    _, group = np.unique(keys, return_inverse=True)
    lift = group * (1 + values.max(initial=0))
    largest: Ints = np.maximum.accumulate(values + lift) - lift
    return largest


def runs(labels: Ints, indices: Ints) -> Segments:
    """Return the consecutive indices among sorted rows of one client.

    >>> runs(np.array([0, 0, 0, 2]), np.array([4, 5, 8, 0])).stops.tolist()
    [6, 9, 1]
    """
    new = np.ones(len(labels), bool)
    new[1:] = (labels[1:] != labels[:-1]) | (indices[1:] != indices[:-1] + 1)
    first = np.flatnonzero(new)
    last = np.append(first[1:], len(labels)) - 1 if len(first) else first
    return Segments.of(("",), first * 0, labels[first], indices[first], indices[last] + 1)
