"""Tables of samples with several labels: their one form, and reading and writing it.

The first column names the client, a column per label holds 0 or 1, then comes a column of counts
headed `samples`, `images` or `count`, and perhaps one of `people`: `site,flu,cough,images,people`.
A row is a label set of a client, so a client has several rows.
"""

import csv
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedeas._internal.files import atomic_write, check_cells
from fedeas._internal.frames import client_heading
from fedeas._internal.scalars import LARGEST
from fedeas.counts.files import PLAN_HEADING, RawTable, read_raw
from fedeas.errors import InputError

SEPARATOR = "|"  # between the labels of a sample
NO_LABEL = "no label"  # what the set without a label is called
COUNTS, PEOPLE = ("samples", "images", "count"), "people"
_ENDINGS = (".csv", ".tsv", ".json")


class LabelSets(NamedTuple):
    """Labels, sorted, and which of them each class has: classes x labels."""

    labels: tuple[str, ...]
    table: NDArray[np.bool_]


def label_sets_of(classes: Sequence[str]) -> LabelSets | None:
    """Return the labels of classes that are label sets; None where a class is one label.

    They are label sets if the name of one lists several labels: a sample then still has one class.

    >>> label_sets_of(["cough", "flu|cough", "no label"]).table.astype(int).tolist()
    [[1, 0], [1, 1], [0, 0]]
    """
    if not any(SEPARATOR in name for name in classes):
        return None
    lists = [frozenset(split_labels(name)) for name in classes]
    if len(set(lists)) < len(lists):
        twice = Counter(lists).most_common(1)[0][0]
        same = [name for name, each in zip(classes, lists, strict=True) if each == twice]
        raise InputError("two classes are the same label set", got=same, fix="use one name")
    labels = tuple(sorted({label for each in lists for label in each}))
    return LabelSets(labels, np.array([[label in each for label in labels] for each in lists]))


def kept_label_sets(raw: RawTable) -> tuple[RawTable, bool]:
    """Tell whether a file that was read is a table of label sets, by its heading and its cells.

    Its rows are read, and kept, only if the heading is one of label sets. Where no client has
    several rows, the counts must not be the numbers of labels: a total.
    """
    places = None if raw.content is not None else _places(raw.head)
    if places is None:
        return raw, False
    raw = replace(raw, rows=list(raw.rows))
    rows = [[cell.strip() for cell in row] for _, row in raw.rows if any(row)]
    labels = slice(1, 1 + places.labels)
    if not rows or not all(set(row[labels]) <= {"0", "1"} for row in rows):
        return raw, False
    if len({row[0] for row in rows if row}) < len(rows):
        return raw, True
    counts = [row[1 + places.labels : 2 + places.labels] for row in rows]
    sums = [[str(row[labels].count("1"))] for row in rows]
    return raw, counts != sums and any(count not in (["0"], ["1"]) for count in counts)


def holds_label_sets(path: Path) -> bool:
    """Tell whether a file is a table of label sets."""
    try:
        return kept_label_sets(read_raw(path))[1]
    except InputError:  # the reader of label counts says what is wrong
        return False


class _Places(NamedTuple):
    labels: int  # how many columns of labels there are, from the second on
    people: bool


def _places(head: list[str]) -> _Places | None:
    """Return what the columns hold by their heading; None if it is another table."""
    people = head[-1:] == [PEOPLE]
    labels = len(head) - 2 - people
    if (
        labels < 2
        or head[-1 - people] not in COUNTS
        or not all(head[1:])
        or len(set(head)) < len(head)
    ):
        return None
    return _Places(labels, people)


def parse_label_sets(path: Path, raw: RawTable) -> dict[str, Any]:
    """Return the arguments of `LabelSetCounts` from a table of label sets that was read."""
    head = raw.head
    if head[:1] == [PLAN_HEADING]:
        raise InputError(f"{path} is a plan", allowed="the label sets that clients hold")
    places = None if raw.content is not None else _places(head)
    if places is None:
        raise InputError(
            f"{path} is not a table of label sets",
            got=", ".join(head) or None,
            allowed="a client, labels with 0 or 1, samples, and perhaps people",
            fix="for a row per sample use LabelSetCounts.from_lists or from_columns",
        )
    sums: dict[tuple[str, tuple[str, ...]], tuple[int, int]] = {}
    for line, cells in raw.rows:
        if not any(cells):
            continue
        row, where = [cell.strip() for cell in cells], f"{path} line {line}"
        if len(row) != len(head) or not row[0]:
            raise InputError(f"{where} lacks a client or cells", got=row, allowed=", ".join(head))
        labels = row[1 : 1 + places.labels]
        if not set(labels) <= {"0", "1"}:
            raise InputError(f"{where}: a label is neither 0 nor 1", got=", ".join(labels))
        numbers = [_number(cell, where) for cell in row[1 + places.labels :]]
        if (key := (row[0], tuple(labels))) in sums:
            given = SEPARATOR.join(n for n, x in zip(head[1:], labels, strict=False) if x == "1")
            raise InputError(
                f"{where}: a label set of a client for the second time",
                got=f"{row[0]}: {given or NO_LABEL}",
                fix="add the two rows up if both are counts, or remove one",
            )
        sums[key] = numbers[0], numbers[-1]
    clients = list(dict.fromkeys(client for client, _ in sums))
    sets = list(dict.fromkeys(each for _, each in sums))
    check_cells(len(clients) * len(sets), f"{len(clients):,} clients x {len(sets):,} sets")
    row_of = {client: k for k, client in enumerate(clients)}
    place_of = {labels: s for s, labels in enumerate(sets)}
    n, people = np.zeros((2, len(clients), len(sets)), np.int64)
    for (client, held_labels), (count, held) in sums.items():
        cell = row_of[client], place_of[held_labels]
        n[cell], people[cell] = count, held
    return {
        "sets": np.array(sets).reshape(len(sets), places.labels).astype(np.int64),
        "n": n,
        "clients": clients,
        "labels": head[1 : 1 + places.labels],
        "people": people if places.people else None,
    }


def _number(cell: str, where: str) -> int:
    if not (cell.isascii() and cell.isdigit()) or int(cell) > LARGEST:
        raise InputError(f"{where}: not a count", got=cell, allowed="0 to 2**53, as 1200")
    return int(cell)


def split_labels(given: str | Iterable[object]) -> list[str]:
    """Return the labels of a sample, from a list of them or from 'flu|cough'.

    >>> split_labels("flu | cough"), split_labels("no label")
    (['flu', 'cough'], [])
    """
    if isinstance(given, str):
        parts = [] if given.strip() == NO_LABEL else [p.strip() for p in given.split(SEPARATOR)]
    elif isinstance(given, Iterable):
        parts = list(map(str, given))
    else:
        raise InputError(
            "a sample without a list of labels", got=str(given), allowed=f"flu|cough, {NO_LABEL}"
        )
    if "" in parts:
        raise InputError(
            "an empty label",
            got=given,
            allowed=f"flu|cough, {NO_LABEL}",
            fix=f"write '{NO_LABEL}' for a sample that has none",
        )
    if len(set(parts)) < len(parts):
        twice = Counter(parts).most_common(1)[0][0]
        raise InputError("a label twice on one sample", got=twice, fix="write it once")
    return parts


def write_label_sets(
    path: Path,
    clients: Sequence[str],
    labels: Sequence[str],
    sets: NDArray[np.bool_],
    numbers: Mapping[str, NDArray[np.int64]],
    heading: str | None = None,
) -> None:
    """Write a row per client and label set that has samples, as `parse_label_sets` reads it."""
    if clash := [name for name in labels if name in numbers]:
        raise InputError("a label is called as a count is", got=clash[0], fix="rename the label")
    ending = path.suffix.lower()
    if ending not in _ENDINGS:
        raise InputError("unknown kind of file", got=path.name, allowed=", ".join(_ENDINGS))
    head = [heading or client_heading(labels), *labels, *numbers]
    first, *_ = numbers.values()
    kept = first > 0
    # What is held nowhere is listed all the same: a label set once, and a client once.
    kept[0, ~kept.any(axis=0)] = True
    kept[~kept.any(axis=1), 0] = True
    rows = [
        [clients[k], *sets[s].astype(int).tolist(), *(int(each[k, s]) for each in numbers.values())]
        for k, s in np.argwhere(kept)
    ]
    with atomic_write(path) as temporary:
        if ending == ".json":
            records = [dict(zip(head, row, strict=True)) for row in rows]
            temporary.write_text(json.dumps(records, indent=1) + "\n", encoding="utf-8")
            return
        with temporary.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, delimiter="\t" if ending == ".tsv" else ",")
            writer.writerows([head, *rows])
