"""A row per client and a column per class, as text: headings, ids, counts."""

import itertools
from array import array
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedeas.errors import InputError
from fedeas.tables.cells import Cells, is_number, listed, quoted, shown
from fedeas.tables.delimited import Rows, check_title, check_width
from fedeas.tables.headings import names_classes, names_clients, names_holders
from fedeas.tables.table import WIDE, Doubt, Options, Table


def read_wide(rows: Rows, options: Options) -> Table:
    """Read the rows of a file as a wide table."""
    head, body = _head(rows, options)
    cells = Cells(rows.path, head.names, _if_words(head.names))
    has_ids = head.has_ids
    lines: dict[str, int] = {}  # of every row, by its name
    dropped: set[str] = set()
    values = array("q")
    for number, full in enumerate(body):
        check_width(rows, full, head.width)
        row = [full[place] for place in head.places]
        if has_ids is None:  # no heading told: a first cell that is not a number is an id
            has_ids = not is_number(row[0])
        name = row[0] if has_ids else str(number)
        if name in options.drop_rows:
            dropped.add(name)
            continue
        if has_ids:
            _check_id(rows, row, lines, "class" if options.transpose else "client")
        lines[name] = rows.line
        for place in range(has_ids, len(row)):
            values.append(cells.whole(row[place], rows.line, place))
    cells.check()
    check_dropped(options.drop_rows, dropped, lines, "row", str(rows.path))
    if not values:
        raise InputError(
            f"{rows.path} has no counts", got=head.names, allowed="a row of counts per client"
        )
    matrix = np.frombuffer(values, dtype=np.int64).reshape(-1, len(head.places) - bool(has_ids))
    if not has_ids and not (head.names and names_classes(head.names[0])):
        _check_numbered(rows.path, matrix)
    return _table(head, tuple(lines) if has_ids else None, matrix, options)


@dataclass(frozen=True)
class _Head:
    """The columns that are read, by their places, and their names where there is a heading."""

    width: int  # cells of every row
    places: Sequence[int]
    names: Sequence[str] | None
    has_ids: bool | None  # None if the first row has to tell


def _head(rows: Rows, options: Options) -> tuple[_Head, Iterator[list[str]]]:
    iterator = iter(rows)
    first = next(iterator, None)
    if first is None:
        raise InputError(f"{rows.path} is empty", allowed="a row of counts per client")
    second = next(iterator, None)
    check_title(rows, first, second)
    body = iterator if second is None else itertools.chain([second], iterator)
    heading = _is_heading(rows.path, first)
    names = first if heading else [str(c) for c in range(len(first))]
    places = kept_columns(names, options.drop_columns, str(rows.path))
    if not heading:
        return _Head(len(first), places, None, None), itertools.chain([first], body)
    kept = [names[place] for place in places]
    if not kept:
        raise InputError(f"{rows.path} has no columns left", got=options.drop_columns)
    _check_headings(rows.path, kept, exactly=options.layout == WIDE)
    ids = names_clients(kept[0]) or (options.transpose and names_classes(kept[0]))
    return _Head(len(first), places, kept, True if ids else None), body


def kept_columns(names: Sequence[str], dropped: Sequence[str], where: str) -> list[int]:
    """Return the places of the columns that are not left out."""
    check_dropped(dropped, names, names, "column", where)
    return [place for place, name in enumerate(names) if name not in dropped]


def check_dropped(
    wanted: Iterable[str], found: Container[str], known: Iterable[str], what: str, where: str
) -> None:
    """Refuse to leave out what is not there."""
    for name in wanted:
        if name not in found:
            raise InputError(f"{where} has no such {what}", got=name, allowed=listed(known))


def _is_heading(path: Path, first: list[str]) -> bool:
    """Tell whether the first line names the columns; a mixture of words and numbers is refused."""
    corner, rest = first[0], first[1:]
    words = [cell for cell in rest if not is_number(cell)]
    if corner and not is_number(corner) and names_clients(corner):
        return True
    if not words:
        # Numbers only: a heading when they count 0, 1, 2, ..., as data frames write them.
        numbers = first if corner and is_number(corner) else rest
        counting = numbers == [str(i) for i in range(len(numbers))]
        if counting and len(numbers) == 2 and corner:
            raise InputError(
                f"{path}: its first line is a heading, or the counts of a client",
                got=first,
                fix="head the columns with names, the first one 'client' if it holds clients",
            )
        return counting and (len(numbers) >= 3 or not corner)
    if len(words) < len(rest) or (corner and is_number(corner)):
        raise InputError(
            f"{path} line 1 mixes words and numbers",
            got=first,
            allowed="either the names of all classes or the counts of one client",
            fix="head the first column with 'client' if this is a heading",
        )
    return True


def _check_headings(path: Path, names: Sequence[str], exactly: bool) -> None:
    """Refuse missing or duplicate headings, and a second column of ids."""
    more = [] if names_holders(names[0]) else [name for name in names[1:] if names_holders(name)]
    if more and names_clients(names[0]):
        raise InputError(
            f"{path} has two columns of ids",
            got=list(names[:4]),
            fix=f"remove the one before {more[0]!r}",
        )
    if more and not exactly:
        raise InputError(
            f"{path}: column {shown(more[0])} seems to hold the clients, but is not the first",
            got=list(names[:4]),
            fix="put it first, or pass --layout wide if it is a class",
        )
    for place, name in enumerate(names[1:], start=1):
        if not name:
            raise InputError(
                f"{path} column {place + 1} has no heading",
                got=list(names),
                fix="name or remove it",
            )
        if name in names[1:place]:
            raise InputError(
                f"{path}: class {shown(name)} appears twice",
                got=f"columns {names.index(name, 1) + 1} and {place + 1}",
                fix="rename one of them, or remove what is above the heading",
            )


def _check_id(rows: Rows, row: Sequence[str], lines: Mapping[str, int], what: str) -> None:
    """Refuse a row without a name or without counts, and a name that appeared before."""
    name, line = row[0], rows.line
    if name and not any(row[1:]):
        raise InputError(
            f"{rows.path} line {line} has no counts, only a name",
            got=name,
            fix="remove the line, or write 0 for none",
        )
    if not name:
        raise InputError(f"{rows.path} line {line} has no {what} name", got=list(row[:4]))
    if name in lines:
        raise InputError(
            f"{rows.path}: {what} {shown(name)} appears twice (lines {lines[name]}, {line})",
            allowed=f"one row per {what}",
        )


def _check_numbered(path: Path, matrix: np.ndarray) -> None:
    """Refuse a first column that counts up from row to row: it may hold ids."""
    first = matrix[:, 0]
    if len(first) < 2 or not np.all(np.diff(first) == 1) or (len(first) == 2 and first[0] > 1):
        return
    raise InputError(
        f"{path}: the first column counts {', '.join(map(str, first[:3]))}, ...",
        allowed="the heading 'client' above it if these are clients",
    )


def _if_words(names: Sequence[str] | None) -> str | None:
    """Say what to do if a column of counts turns out to hold words."""
    if names is None or len(names) < 2:
        return None
    client = next((n for n in names if n and names_clients(n)), names[0])
    label = next((n for n in names if names_classes(n)), None)
    label = label or next(n for n in names if n != client)
    if client == label:
        return None
    return (
        f"if every row is a sample, pass --client-column {quoted(client)} "
        f"--label-column {quoted(label)}; --drop-column leaves a column out"
    )


def _table(head: _Head, ids: tuple[str, ...] | None, matrix: np.ndarray, options: Options) -> Table:
    names = None if head.names is None else tuple(head.names[bool(ids) :])
    if options.transpose:
        return Table(matrix.T.copy(), names, ids, understood="a row per class")
    doubts: tuple[Doubt, ...] = ()
    if head.names is not None and names_classes(head.names[0]):
        doubts = (
            Doubt(
                f"the first column is headed {shown(head.names[0])}, so that rows are classes",
                "pass --transpose, or --layout wide if rows are clients",
            ),
        )
    return Table(matrix, ids, names, doubts=doubts)
