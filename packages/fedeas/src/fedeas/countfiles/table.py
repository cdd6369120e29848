"""What a table of counts is, how a file is to be read, and the error that says why it is not.

A clean table is wide (a column of clients, then a column per class) or long (client, class, count).
Any other is refused with a `TableError`, which carries the options that would settle it.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedeas.errors import InputError

LARGEST = 2**53  # whole numbers up to here are exact in double precision
COUNT = "whole numbers from 0 to 2**53"
SEPARATORS = {",": ",", ".": ".", "'": "'", "apostrophe": "'", " ": " ", "space": " ", "none": ""}
# The first column of a clean table is headed by one of these words: rows may also be classes.
_CLIENTS = frozenset({
    "client", "site", "hospital", "clinic", "institution", "organisation", "organization", "bank",
    "node", "device", "user", "party", "partition", "silo", "worker", "writer", "participant",
})  # fmt: skip
_NUMBERING = frozenset(("id", "ids", "name", "no", "nr", "number"))
LABEL_HEADINGS = frozenset({
    "label", "labels", "class", "classes", "target", "category", "y", "fine_label", "diagnosis",
    "finding", "findings", "outcome",
})  # fmt: skip
_COUNT_HEADINGS = frozenset({
    "count", "counts", "n", "freq", "frequency", "number", "samples", "images", "cases", "patients",
    "people", "size", "total",
})  # fmt: skip
THEN = "then"  # an option that is right once the file is corrected
# An option of `fedeas.read_counts` with its value, and when it is the right one.
Way = tuple[Mapping[str, Any], str]


def words_of(heading: str) -> list[str]:
    """Return the words of a heading, in small letters: 'nPatients' has two."""
    return [word.lower() for word in re.findall(r"[A-Z]?[^\W\d_A-Z]+|[A-Z]+|[0-9]+", heading)]


def names_clients(heading: str) -> bool:
    """Tell whether a heading is that of client ids: 'client', 'ClientID', 'hospital_no', 'id'.

    >>> names_clients("Sites"), names_clients("client_1"), names_clients("lymph node")
    (True, False, False)
    """
    match words_of(heading):
        case [word]:
            return word in ("id", "cid") or word in _CLIENTS or word.removesuffix("s") in _CLIENTS
        case [word, numbering]:
            return word in _CLIENTS and numbering in _NUMBERING
    return False


def names_labels(heading: str) -> bool:
    """Tell whether a heading is that of labels: 'label', 'diagnosis_code'."""
    words = words_of(heading)
    return heading.lower() in LABEL_HEADINGS or (
        bool(words) and words[0] in LABEL_HEADINGS and words[1:] in ([], ["code"], ["id"])
    )


def names_counts(heading: str) -> bool:
    """Tell whether a heading is that of counts: 'count', 'n', 'n_samples', 'patients'."""
    words = words_of(heading)
    return bool(words) and set(words) <= _COUNT_HEADINGS


def shown(name: str) -> str:
    """Return a name from a file in a form for messages: short, and without control codes."""
    return name if name.isprintable() and 0 < len(name) <= 40 else repr(name[:40])


def listed(names: Iterable[str]) -> str:
    """Return the first of some names in a form for messages."""
    return ", ".join(map(shown, islice(names, 20)))


class TableError(InputError):
    """A table that is not clean; `ways` are the options that would read it."""

    def __init__(
        self,
        what: str,
        *ways: Way,
        got: object = None,
        allowed: str | None = None,
        fix: str | None = None,
    ) -> None:
        self.ways, self.plain_fix = ways, fix
        super().__init__(what, got=got, allowed=allowed, fix=describe_ways(ways, fix, _in_python))


def describe_ways(ways: Sequence[Way], fix: str | None, render: Any) -> str | None:
    """Return what to do: in the file, or by one of several options, as `render` writes them."""
    parts = []
    for at, (options, when) in enumerate(ways):
        parts.append(render(options, "" if when == THEN else when, first=not at))
    joint = ", then " if ways and ways[0][1] == THEN else ", or "
    return joint.join(filter(None, [fix, ", or ".join(parts)])) or None


def _in_python(options: Mapping[str, Any], when: str, *, first: bool) -> str:
    arguments = ", ".join(f"{name}={_cut(value)!r}" for name, value in options.items())
    call = f"read it with fedeas.read_counts(path, {arguments})" if first else arguments
    return f"{call} {when}".rstrip()


def _cut(value: object) -> object:
    """Cut what nobody would type."""
    if isinstance(value, list):
        return [_cut(one) for one in value[:50]]
    return f"{value[:197]}..." if isinstance(value, str) and len(value) > 200 else value


@dataclass(frozen=True)
class Doubt:
    """Something in a table that may be no class or no client, and how to settle it.

    `drop` leaves it out: 'row' or 'column', and its name. `fix` is what to do in the file, `ways`
    are options, and `frame_fix` is what to do with a data frame.
    """

    what: str
    fix: str = ""
    drop: tuple[str, str] | None = None
    frame_fix: str = ""
    ways: tuple[Way, ...] = ()


@dataclass(frozen=True)
class Table:
    """A K x C matrix with the names of its rows and columns, where the file gave them."""

    values: NDArray[np.int64]
    clients: tuple[str, ...] | None = None
    classes: tuple[str, ...] | None = None
    meta: Mapping[str, Any] | None = None  # what a plan adds
    description: str = "a table of counts"
    doubts: tuple[Doubt, ...] = ()
    notes: tuple[str, ...] = ()  # what options did
    slack: NDArray[np.int64] | None = None  # by how much suppressed cells may be wrong
    wide: bool = True
    transposed: bool = False
    added: bool = False  # whether rows of one client were added up
    saved: bool = False  # whether fedeas wrote it, and nobody changed it: there is nothing to doubt


@dataclass(frozen=True)
class Options:
    """How to read a table that is not clean; see `fedeas.read_counts`."""

    client: str | None = None
    label: str | None = None
    count: str | None = None
    sizes: str | None = None
    add_up: bool = False
    transpose: bool = False
    drop_columns: tuple[str, ...] = ()
    drop_rows: tuple[str, ...] = ()
    thousands: str | None = None
    blank: int | None = None
    suppressed: int | None = None
    delimiter: str | None = None
    encoding: str | None = None
    sheet: str | None = None
    keep: bool = False

    def __post_init__(self) -> None:
        for name in ("drop_columns", "drop_rows"):
            value = getattr(self, name)
            object.__setattr__(self, name, (value,) if isinstance(value, str) else tuple(value))
        for name in ("blank", "suppressed"):
            value = getattr(self, name)
            if value is not None and not 0 <= value <= LARGEST:
                raise InputError(f"`{name}` is not a count", got=value, allowed="0 and above")
        if self.thousands is not None and self.thousands not in SEPARATORS:
            raise InputError(
                "not a thousands separator", got=self.thousands, allowed=" ".join(SEPARATORS)
            )
        for one, other in (
            ("transpose", "client"), ("transpose", "label"), ("transpose", "sizes"),
            ("transpose", "add_up"), ("sizes", "label"), ("sizes", "add_up"),
            *((("add_up", "label"),) if self.count is None else ()),
        ):  # fmt: skip
            if getattr(self, one) and getattr(self, other) is not None and getattr(self, other):
                raise InputError(f"give `{one}` or `{other}`, not both", got=getattr(self, other))
        if self.count is not None and self.label is None:
            raise InputError("`count` needs `label`, the column of the classes", got=self.count)

    @property
    def as_saved(self) -> bool:
        """Whether a file is to be read as it is: a table that fedeas wrote has one reading."""
        return self in (Options(), Options(keep=True))

    def check_unused(self, where: str, *names: str) -> None:
        """Reject options that do not apply to this file type."""
        for name in names:
            if getattr(self, name) is not None:
                raise InputError(f"`{name}` does not apply to {where}", fix=f"leave out `{name}`")
