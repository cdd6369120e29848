"""Tables of samples with several labels: what they look like, and reading and writing them.

Three forms have one reading each, and in all of them a client has several rows:

- label sets: a column of clients, a column per label that holds 0 or 1, a column of counts (also of
  people), such as `site,flu,cough,images,people`
- lists: a column of clients, one of labels ('flu|cough'), and perhaps one of counts
- a row per sample: a column of clients and a column per label, where some rows have several

A table of samples may have a column that tells whose they are. Any other table is left to the
reader of label counts.
"""

import csv
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedeas._util.files import atomic_write, check_cells, check_regular
from fedeas._util.frames import client_heading
from fedeas.countfiles import parquet
from fedeas.countfiles.read import (
    Rows,
    delimiter_of,
    is_records,
    load_json,
    record_rows,
    text_rows,
)
from fedeas.countfiles.table import (
    LARGEST,
    Options,
    names_clients,
    names_counts,
    names_labels,
    shown,
    words_of,
)
from fedeas.countfiles.validate import is_missing, one_spelling
from fedeas.countfiles.workbook import sheet_rows
from fedeas.errors import InputError

SEPARATOR = "|"  # between the labels of a cell
NO_LABEL = "no label"  # what the set without a label is called
_PEOPLE = frozenset(("people", "person", "persons", "patient", "patients", "subject", "subjects"))
_NUMBERS = ("0", "1")


@dataclass(frozen=True)
class LabelSetColumns:
    """Which columns of a table hold what, by their places."""

    head: tuple[str, ...]
    client: int
    labels: tuple[int, ...]  # one column of lists, or a column of 0 and 1 per label
    lists: bool
    count: int | None = None
    people: int | None = None  # numbers beside a column of counts, else the person of the sample


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


def find_label_sets(path: Path, *, certain: bool = False) -> LabelSetColumns | None:
    """Return the columns of a table of samples with several labels; None if it is another one.

    Parameters
    ----------
    path : Path
        The table.
    certain : bool
        Whether the caller knows that it is one. Otherwise a table that may hold label counts, with
        a row per client or a label per row, is another one.
    """
    if certain:
        check_regular(path)
    elif not path.is_file():
        return None
    try:
        with _open(path) as rows:
            body = iter(rows)
            columns = _columns(tuple(next(body, [])))
            return columns if columns and _has_form(columns, body, certain) else None
    except InputError:
        if certain:
            raise
        return None  # the reader of label counts says what is wrong


def _open(path: Path) -> AbstractContextManager[Rows]:
    """Open a table of any kind as rows of cells."""
    ending = path.suffix.lower()
    if ending in (".csv", ".tsv"):
        return text_rows(path, Options())
    if ending in (".xlsx", ".xlsm"):
        return sheet_rows(path, Options())
    if ending == ".parquet":
        return nullcontext(parquet.cell_rows(path, Options()))
    content: Any = load_json(path) if ending == ".json" else None
    if not is_records(content):
        raise InputError("not a table of rows", got=path.name)
    return nullcontext(record_rows(path, content))


def _columns(head: tuple[str, ...]) -> LabelSetColumns | None:
    """Return what the columns hold by their headings; None if those leave a doubt."""
    clients = [place for place, name in enumerate(head) if names_clients(name)]
    if len(clients) != 1 or len(set(head)) < len(head) or not all(head):
        return None
    rest = [place for place in range(len(head)) if place != clients[0]]
    people = [place for place in rest if _names_people(head[place])]
    counts = [place for place in rest if names_counts(head[place]) and place not in people]
    labels = [place for place in rest if place not in (*people, *counts)]
    if len(people) > 1 or len(counts) > 1 or not labels:
        return None
    if people and not counts and words_of(head[people[0]])[-1] in ("people", "patients"):
        counts, people = people, []
    listed = len(labels) == 1 and names_labels(head[labels[0]])
    count, person = (places[0] if places else None for places in (counts, people))
    return LabelSetColumns(head, clients[0], tuple(labels), listed, count, person)


def _person(cell: str, where: str) -> str:
    """Return who a sample is of, in one spelling; nobody is not a person."""
    name = one_spelling(cell)
    if is_missing(name):
        raise InputError(
            f"{where} does not say whose the sample is",
            got=cell,
            fix="write an id in every row, or leave the column out to count samples",
        )
    return name


def _names_people(heading: str) -> bool:
    words = words_of(heading)
    return bool(words) and words[0] in _PEOPLE and words[1:] in ([], ["id"])


def _has_form(columns: LabelSetColumns, body: Iterator[list[str]], certain: bool) -> bool:
    """Tell whether a table has one reading: clients have several rows, some several labels."""
    several = repeated = certain
    clients: set[str] = set()
    for row in body:
        if len(row) != len(columns.head):
            return False
        cells = [row[place] for place in columns.labels]
        if columns.lists:
            several |= SEPARATOR in cells[0]
        elif all(cell in _NUMBERS for cell in cells):
            several |= columns.count is not None or cells.count("1") > 1
        else:
            return False
        repeated |= row[columns.client] in clients
        clients.add(row[columns.client])
    return several and repeated


def read_label_sets(path: Path, columns: LabelSetColumns) -> dict[str, Any]:
    """Return the arguments of `LabelSetCounts` from a table whose columns are known."""
    sums: dict[tuple[str, tuple[str, ...]], list[int]] = {}
    persons: dict[tuple[str, tuple[str, ...]], set[str]] = {}
    head = columns.head
    named = [head[place] for place in columns.labels]
    with _open(path) as rows:
        body = iter(rows)
        next(body)
        for row in body:
            client = row[columns.client]
            if not client:
                raise InputError(f"{rows.where} has no client", fix="write it in every row")
            if rows.line in rows.hidden_rows:
                raise InputError(f"{rows.where} is hidden", fix="show it or delete it")
            cells = [row[place] for place in columns.labels]
            if columns.lists:
                with_line = _located(rows.where, cells[0])
                labels = tuple(sorted(split_labels(with_line)))
            else:
                labels = tuple(n for n, cell in zip(named, cells, strict=True) if cell == "1")
            key = client, labels
            if columns.count is None:
                sums.setdefault(key, [0, 0])[0] += 1
                if columns.people is not None:
                    persons.setdefault(key, set()).add(_person(row[columns.people], rows.where))
            elif key in sums:
                name = SEPARATOR.join(labels) or NO_LABEL
                raise InputError(
                    f"{rows.where}: a label set of a client for the second time",
                    got=f"{client}: {name}",
                    fix="add the two rows up if both are counts, or remove one",
                )
            else:
                places = (columns.count, columns.people)
                sums[key] = [0 if p is None else _number(row[p], rows.where) for p in places]
    if columns.lists:
        named = sorted({label for _, labels in sums for label in labels})
    clients = list(dict.fromkeys(client for client, _ in sums))
    listed = list(dict.fromkeys(labels for _, labels in sums))
    check_cells(len(clients) * len(listed), f"{len(clients):,} clients x {len(listed):,} sets")
    row_of = {client: k for k, client in enumerate(clients)}
    place_of = {labels: s for s, labels in enumerate(listed)}
    n, people = np.zeros((2, len(clients), len(listed)), np.int64)
    for (client, labels), (count, held) in sums.items():
        cell = row_of[client], place_of[labels]
        n[cell], people[cell] = count, len(persons.get((client, labels), ())) or held
    sets = np.array([[name in labels for name in named] for labels in listed])
    known = people if columns.people is not None else None
    return {"sets": sets, "n": n, "clients": clients, "labels": named, "people": known}


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


def _located(where: str, cell: str) -> str:
    """Return a cell of labels; an empty one may mean that there are none, or that nobody looked."""
    if not cell:
        raise InputError(
            f"{where} has no labels",
            allowed=f"flu{SEPARATOR}cough, or '{NO_LABEL}'",
            fix=f"write '{NO_LABEL}' if the sample has none; leave it out if nobody looked",
        )
    return cell


def _number(cell: str, where: str) -> int:
    if not (cell.isascii() and cell.isdigit()) or int(cell) > LARGEST:
        raise InputError(f"{where}: not a count", got=shown(cell), allowed="0 to 2**53, as 1200")
    return int(cell)


def write_label_sets(
    path: Path,
    clients: Sequence[str],
    labels: Sequence[str],
    sets: NDArray[np.bool_],
    numbers: Mapping[str, NDArray[np.int64]],
) -> None:
    """Write a row per client and label set that has samples, as `read_label_sets` reads it."""
    if clash := [name for name in labels if names_counts(name) or _names_people(name)]:
        raise InputError("a label is called as a count is", got=clash[0], fix="rename the label")
    ending = path.suffix.lower()
    if ending not in (".csv", ".tsv", ".json"):
        raise InputError("unknown kind of file", got=path.name, allowed=".csv, .tsv, .json")
    head = [client_heading(labels), *labels, *numbers]
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
            writer = csv.writer(file, delimiter=delimiter_of(path))
            writer.writerows([head, *rows])
