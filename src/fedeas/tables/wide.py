"""A row per client and a column per class, as text: headings, ids, counts."""

import itertools
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NoReturn

import numpy as np

from fedeas.errors import InputError
from fedeas.tables.advice import Advice
from fedeas.tables.arguments import argument
from fedeas.tables.cells import Cells, is_number, listed, shown
from fedeas.tables.doubts import check_to_add
from fedeas.tables.headings import (
    is_holder,
    is_period,
    names_classes,
    names_clients,
    names_holders,
    names_periods,
    names_places,
    says_clients,
)
from fedeas.tables.rows import Rows, check_width
from fedeas.tables.table import WIDE, Doubt, Options, Table
from fedeas.tables.values import Counts, Shares

_INDEX = ("", "index", "Unnamed: 0")  # above the index of a data frame
_TRANSPOSE = (
    f"pass {argument('transpose', True)} if rows are classes, or {argument('transpose', False)} if "
    "they are clients"
)


def read_wide(rows: Rows, options: Options, advise: Callable[[], Advice]) -> Table:
    """Read the rows of a file as a wide table."""
    head, body = _head(rows, options, advise)
    cells = Cells[int](rows, head.names, options.rules, advise)
    has_ids = head.has_ids
    lines: dict[str, int] = {}  # of every row, by its name
    clients: list[str] = []  # of every row, where those of one client are added up
    dropped: set[str] = set()
    doubts: list[Doubt] = list(head.hidden(rows))
    counts = Counts(cells) if options.size_column is None else Shares(cells, head.size)
    for number, full in enumerate(body):
        if full[0] in options.drop_rows and len(full) != head.width:  # a note below the table
            dropped.add(full[0])
            continue
        check_width(rows, full, head.width)
        if head.indexed and full[0] != str(number):
            _refuse_two_ids(rows.path, ["", *(head.names or ())])
        row = [full[place] for place in head.places]
        if has_ids is None:  # no heading told: a first cell that is not a number is an id
            has_ids = not is_number(row[0])
        name = row[0] if has_ids else str(number)
        if name in options.drop_rows:
            dropped.add(name)
            continue
        if has_ids:
            _check_id(rows, row, lines, options, (head.names or [""])[0])
        if rows.line in rows.hidden_rows:
            doubts.append(Doubt(f"row {rows.line} ({shown(name)}) is hidden", drop=("row", name)))
        lines.setdefault(name, rows.line)
        if options.by is not None:
            clients.append(name)
        counts.add(row, int(has_ids))
    check_dropped(options.drop_rows, dropped, lines, "row", str(rows.path))
    matrix = counts.matrix(len(clients) or len(lines))
    if not matrix.size:
        raise InputError(
            f"{rows.path} has no counts", got=head.names, allowed="a row of counts per client"
        )
    if not has_ids and not (head.names and names_classes(head.names[0])):
        _check_numbered(rows.path, matrix)
    slack = _slack(matrix, cells.hidden, options)
    if options.by is not None:
        check_to_add(str(rows.path), matrix, (head.names or ())[1:], clients, head.before)
    added = len(clients) > len(lines)
    if added:
        matrix = _added(matrix, clients)
        slack = None if slack is None else _added(slack, clients)
        rows.assume(f"rows added up by {options.by!r}")
    table = _table(head, tuple(lines) if has_ids else None, matrix, options)
    return replace(
        table,
        assumed=(*rows.assumed, *cells.assumed, *counts.assumed),
        notes=cells.notes,
        slack=slack,
        added=added,
        doubts=(*doubts, *table.doubts),
    )


def _added(matrix: np.ndarray, clients: Sequence[str]) -> np.ndarray:
    """Add up the rows of each client."""
    place = {name: k for k, name in enumerate(dict.fromkeys(clients))}
    sums = np.zeros((len(place), matrix.shape[1]), np.int64)
    np.add.at(sums, [place[name] for name in clients], matrix)
    return sums


def _slack(
    matrix: np.ndarray, hidden: Sequence[tuple[int, int]], options: Options
) -> np.ndarray | None:
    """Return by how much the cells of a table may be wrong."""
    if not hidden or options.size_column is not None:
        return None
    slack = np.zeros_like(matrix)
    for at, amount in hidden:
        slack.flat[at] = amount
    return slack.T.copy() if options.transpose else slack


@dataclass(frozen=True)
class _Head:
    """The columns that are read, by their places, and their names where there is a heading."""

    width: int  # cells of every row
    places: Sequence[int]
    names: Sequence[str] | None
    has_ids: bool | None  # None if the first row has to tell
    size: int = -1  # the place of the sizes, where cells are shares
    indexed: bool = False  # whether a data frame's index, 0, 1, 2, ..., comes first

    @property
    def before(self) -> str | None:
        """The first column of the file, if clients stand in another one."""
        if not self.names or self.places[0] == min(self.places):
            return None
        return self.names[list(self.places).index(min(self.places))]

    def hidden(self, rows: Rows) -> Iterator[Doubt]:
        """Doubt the columns that a workbook hides."""
        for place, name in zip(self.places, self.names or (), strict=False):
            if place in rows.hidden_columns:
                yield Doubt(f"column {shown(name)} is hidden", drop=("column", name))


def _head(
    rows: Rows, options: Options, advise: Callable[[], Advice]
) -> tuple[_Head, Iterator[list[str]]]:
    iterator = iter(rows)
    first = next(iterator, None)
    if first is None:
        raise InputError(f"{rows.path} is empty", allowed="a row of counts per client")
    heading = _is_heading(rows, first)
    names = first if heading else [str(c) for c in range(len(first))]
    places = kept_columns(names, options.drop_columns, str(rows.path))
    if not heading:
        _size_place(rows, names, options)
        if options.by is not None:
            raise InputError(f"{rows.path} has no heading", got=first, fix="leave out `by`")
        return _Head(len(first), places, None, None), itertools.chain([first], iterator)
    kept = [names[place] for place in places]
    if not kept:
        raise InputError(f"{rows.path} has no columns left", got=options.drop_columns)
    indexed = places[0] == 0 and kept[0] in _INDEX and len(kept) > 1 and names_holders(kept[1])
    if options.by is not None:
        places, indexed = _by_first(rows, places, kept, options.by), False
        kept = [names[place] for place in places]
    if indexed:
        places, kept = places[1:], kept[1:]
    if not all(kept[1:]):
        _refuse_gap(rows, kept, next(iterator, []))
    _check_headings(rows.path, kept, options.layout == WIDE, advise)
    ids = names_clients(kept[0]) or (options.transpose and names_classes(kept[0]))
    ids = ids or options.by is not None
    size = _size_place(rows, kept, options)
    return _Head(len(first), places, kept, True if ids else None, size, indexed), iterator


def _by_first(rows: Rows, places: Sequence[int], names: Sequence[str], by: str) -> list[int]:
    """Put the column of clients first."""
    if by not in names:
        raise InputError(f"{rows.path} has no such column", got=by, allowed=listed(names))
    first = places[list(names).index(by)]
    return [first, *(place for place in places if place != first)]


def _refuse_gap(rows: Rows, names: Sequence[str], below: Sequence[str]) -> NoReturn:
    """Refuse a heading with gaps; the second row of a heading fills them."""
    gap = next(place for place, name in enumerate(names[1:], start=2) if not name)
    if any(below[1:]) and not any(is_number(cell) for cell in below[1:]):
        raise InputError(
            f"{rows.path} has two rows of headings",
            got=[*names[:3], *below[:3]],
            allowed="one name above each column",
            fix="write one row, such as 'client, 2023 flu, 2023 cold'",
        )
    dropping = f", or pass {argument('drop_columns', [''])}" if names[0] else ""
    raise InputError(
        f"{rows.path} column {gap} has no heading",
        got=list(names),
        fix=f"name or remove it{dropping}",
    )


def _size_place(rows: Rows, names: Sequence[str], options: Options) -> int:
    """Return the place of the column of sizes."""
    if options.size_column is None:
        return -1
    if options.size_column not in names:
        raise InputError(
            f"{rows.path} has no such column", got=options.size_column, allowed=listed(names)
        )
    return list(names).index(options.size_column)


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


def _is_heading(rows: Rows, first: list[str]) -> bool:
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
                f"{rows.where} is a heading, or the counts of a client",
                got=first,
                fix="head the columns with names, the first one 'client' if it holds clients",
            )
        return counting and (len(numbers) >= 3 or not corner)
    if len(words) < len(rest) or (corner and is_number(corner)):
        raise InputError(
            f"{rows.where} mixes words and numbers",
            got=first,
            allowed="either the names of all classes or the counts of one client",
            fix="head the first column with 'client' if this is a heading",
        )
    return True


def _check_headings(
    path: Path, names: Sequence[str], exactly: bool, advise: Callable[[], Advice]
) -> None:
    """Refuse duplicate headings, and a second column of ids."""
    more = [] if names_holders(names[0]) else [name for name in names[1:] if names_holders(name)]
    if more and names_clients(names[0]):
        _refuse_two_ids(path, names)
    if more and not exactly:
        raise InputError(
            f"{path}: column {shown(more[0])} seems to hold the clients, but is not the first",
            got=list(names[:4]),
            fix=f"{advise().for_clients(more[0])}, or {argument('layout', WIDE)} if it is a class",
        )
    seen: set[str] = set()
    for place, name in enumerate(names[1:], start=1):
        if name in seen:
            raise InputError(
                f"{path}: class {shown(name)} appears twice",
                got=f"columns {names.index(name, 1) + 1} and {place + 1}",
                fix="rename one of them, or remove what is above the heading",
            )
        seen.add(name)


def _refuse_two_ids(path: Path, names: Sequence[str]) -> NoReturn:
    raise InputError(
        f"{path} has two columns of ids",
        got=list(names[:4]),
        fix=f"leave one of them out: {argument('drop_columns', list(names[:1]))}",
    )


def _check_id(
    rows: Rows, row: Sequence[str], lines: Mapping[str, int], options: Options, heading: str
) -> None:
    """Refuse a row without a name or without counts, and a name that appeared before."""
    what = "class" if options.transpose else "client"
    name, line = row[0], rows.line
    if name and not any(row[1:]) and options.blank is None:
        raise InputError(
            f"{rows.where} has no counts, only a name",
            got=name,
            fix=f"pass {argument('drop_rows', [name])} to leave it out, or "
            f"{argument('blank', 0)} if it has no samples",
        )
    if not name:
        raise InputError(
            f"{rows.where} has no {what} name",
            got=list(row[:4]),
            fix=f"name it, or pass {argument('drop_rows', [''])} if it is a total",
        )
    if name in lines and options.by is None:
        adding = f"{argument('layout', WIDE)}, {argument('by', heading)}"
        raise InputError(
            f"{rows.path}: {what} {shown(name)} appears twice (lines {lines[name]}, {line})",
            allowed=f"one row per {what}",
            fix=f"pass {adding} to add the rows of a client up" if heading else None,
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


def _may_be_ids(heading: str, first: np.ndarray) -> bool:
    """Tell whether numbers in a first column may be those of clients: all different, in order."""
    increasing = len(first) >= 4 and bool(np.all(np.diff(first) > 0))
    return increasing or (names_places(heading) and len(set(first.tolist())) == len(first) > 1)


def _table(head: _Head, ids: tuple[str, ...] | None, matrix: np.ndarray, options: Options) -> Table:
    names = None
    if head.names is not None:
        first = int(ids is not None)
        names = tuple(n for at, n in enumerate(head.names) if at >= first and at != head.size)
    if options.transpose:
        return Table(matrix.T.copy(), names, ids, understood="a row per class")
    corner = (head.names or [""])[0]
    doubts: list[Doubt] = []
    if ids and all(map(is_period, ids)):
        pass  # that is a doubt already
    elif ids and names_periods(corner):
        doubts.append(
            Doubt(f"rows are headed {shown(corner)}: times, not clients", "give counts by client")
        )
    elif ids is None and names and _may_be_ids(corner, matrix[:, 0]):
        what = f"column {shown(corner)} may hold clients, not counts: it is read as a class"
        doubts.append(Doubt(what, "head it 'client' if it does"))
    elif options.transpose is None and options.by is None and ids and names:
        doubts += may_be_transposed(corner, ids, names)
    return Table(matrix, ids, names, doubts=tuple(doubts))


def may_be_transposed(
    heading: str, clients: Sequence[str], classes: Sequence[str]
) -> Iterator[Doubt]:
    """Doubt that rows are clients, unless the heading of their names says so, or the names do."""
    if says_clients(heading) and not all(map(is_holder, classes)):
        return
    if all(map(is_holder, clients)) or all(map(is_number, clients)) or all(map(is_number, classes)):
        return
    what = f"the first column is headed {shown(heading)}" if heading else "rows have no heading"
    yield Doubt(f"{what}: are rows classes, or clients?", _TRANSPOSE)
