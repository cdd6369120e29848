"""Rows of cells as a table of counts: a clean table as it is, any other by the options given."""

from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np

from fedeas._util.files import check_cells
from fedeas.countfiles.cells import CountReader, Survey, apportion, read_shares
from fedeas.countfiles.read import Rows
from fedeas.countfiles.table import (
    LARGEST,
    Doubt,
    Options,
    Table,
    TableError,
    Way,
    listed,
    names_clients,
    names_labels,
    shown,
)
from fedeas.countfiles.validate import (
    check_to_add,
    is_missing,
    label_doubts,
    names_times,
    names_total,
)
from fedeas.errors import InputError

Entry = tuple[object, object, int]  # a client, a label, and how many
OpenRows = Callable[[], AbstractContextManager[Rows]]
_LOOKED_AT = 20_000  # rows, once a table is refused


def read_rows(open_rows: OpenRows, options: Options) -> Table:
    """Read a table; `open_rows` is called again to look at a table that is refused."""

    def survey() -> Survey:
        with open_rows() as again:
            body = _Body(again, options)
            head = next(body)
            return Survey(head, [r for r in islice(body, _LOOKED_AT) if len(r) == len(head)])

    with open_rows() as rows:
        body = _Body(rows, options)
        head = next(body, None)
        if head is None:
            raise InputError(f"{rows.path} is empty", allowed="a heading, and a row per client")
        columns = _find_columns(rows, head, options, survey)
        body.columns = columns
        cells = CountReader(rows, head, options, survey)
        read = _read_wide if columns.label is None else _read_long
        table = read(rows, body, columns, cells, options)
        body.check_dropped(table)
    sheet = "" if rows.sheet is None else f", sheet {rows.sheet!r}"
    return replace(table, notes=cells.notes, description=table.description + sheet)


@dataclass(frozen=True)
class _Columns:
    """The columns that are read, by their places in a row."""

    head: Sequence[str]
    client: int
    values: Sequence[int]  # of the classes; none in a long table
    label: int | None = None
    count: int | None = None

    def names(self, places: Iterable[int]) -> list[str]:
        return [self.head[place] for place in places]


class _Body:
    """The rows of a table without those to drop: by their first cell, or by their client."""

    def __init__(self, rows: Rows, options: Options) -> None:
        self._rows, self._drop = rows, options.drop_rows
        self._iterator = iter(rows)
        self._dropped: set[str] = set()
        self.columns: _Columns | None = None

    def __iter__(self) -> Iterator[list[str]]:
        return self

    def __next__(self) -> list[str]:
        for row in self._iterator:
            names = {row[0]} if self.columns is None or self.columns.client == 0 else set()
            if len(filled := [cell for cell in row if cell]) == 1:
                names.add(filled[0])
            if self.columns is not None and len(row) == len(self.columns.head):
                names.add(row[self.columns.client])
            if names.isdisjoint(self._drop):
                return row
            self._dropped |= names
        raise StopIteration

    def check_dropped(self, table: Table) -> None:
        """Refuse to drop rows that are not there."""
        for name in self._drop:
            if name not in self._dropped:
                names = table.classes if table.transposed else table.clients
                raise InputError(
                    f"{self._rows.path} has no such row", got=name, allowed=listed(names or ())
                )


# Headings


def _find_columns(
    rows: Rows, head: list[str], options: Options, survey: Callable[[], Survey]
) -> _Columns:
    """Return what the columns hold, by the heading and the options; refuse what is not certain."""
    where = str(rows.path)
    for name in (options.client, options.label, options.count, options.sizes):
        if name is not None and name not in head:
            raise InputError(f"{where} has no such column", got=name, allowed=listed(head))
    kept = [place for place, name in enumerate(head) if name not in options.drop_columns]
    long = _is_long(head, kept) and options.client is None and not options.transpose
    if options.label is None and not long:  # in a long table, classes may be dropped too
        _check_columns(options.drop_columns, head, where)
    if not kept:
        raise InputError(f"{where} has no columns left", got=options.drop_columns)
    _check_title(rows, head)
    if options.label is not None:
        return _long_columns(head, options, survey, where)
    if long:
        if survey().may_be_wide(head):
            names = dict(zip(("client", "label", "count"), head, strict=True))
            raise TableError(
                f"{where} can be read in two ways",
                (names, "if rows hold counts"),
                ({"client": head[0]}, f"if {head[1]} and {head[2]} are classes"),
            )
        return _Columns(head, 0, (), 1, 2)
    _check_headings(rows, head, kept, options)
    client = kept[0] if options.client is None else head.index(options.client)
    if options.client is None and not options.transpose and not names_clients(head[client]):
        raise _not_clients(where, head, client, survey())
    return _Columns(head, client, [place for place in kept if place != client])


def _check_columns(names: Iterable[str], head: Sequence[str], where: str) -> None:
    for name in names:
        if name not in head:
            raise InputError(f"{where} has no such column", got=name, allowed=listed(head))


def _is_long(head: Sequence[str], kept: Sequence[int]) -> bool:
    return (
        len(kept) == len(head) == 3
        and names_clients(head[0])
        and head[1].lower() in ("class", "label")
        and head[2].lower() == "count"
    )


def _long_columns(
    head: list[str], options: Options, survey: Callable[[], Survey], where: str
) -> _Columns:
    label = options.label or ""
    client = options.client or next((n for n in head if names_clients(n) and n != label), None)
    if client is None or client == label:
        names = [name for name in head if name != label]
        raise TableError(
            f"{where}: which column holds the clients?",
            *(({"client": name, "label": label}, "for example") for name in names[:1]),
            allowed=listed(names),
        )
    count = None if options.count is None else head.index(options.count)
    return _Columns(head, head.index(client), (), head.index(label), count)


def _check_title(rows: Rows, head: list[str]) -> None:
    """Refuse a first row that is a title, or one of two rows of headings."""
    filled = [cell for cell in head if cell]
    if len(filled) == 1:
        raise TableError(
            f"{rows.where} has one cell only, where the names of the classes are expected",
            ({"drop_rows": filled}, "if it is a title"),
            got=filled[0],
        )


def _check_headings(rows: Rows, head: list[str], kept: Sequence[int], options: Options) -> None:
    """Refuse columns without a name, numbers in the place of names, and a name twice."""
    names = [head[place] for place in kept]
    empty = [place for place in kept if not head[place] and head[place] != options.client]
    if empty and (empty[0] != kept[0] or len(empty) > 1):
        following = next(iter(rows), [])
        if following and not any(cell.isdigit() for cell in following):
            raise InputError(
                f"{rows.path} has two rows of headings",
                got=names[:6],
                fix="write them as one row, with a name for every column",
            )
        unfilled = all(len(following) <= place or not following[place] for place in empty)
        raise TableError(
            f"{rows.path}: column {empty[-1] + 1} has no heading",
            ({"drop_columns": [""]}, "to leave it out")
            if unfilled
            else ({"drop_rows": head[:1]}, "if this row is a title"),
            got=names[:6],
        )
    others = [name for name in names if name != (options.client or names[0])]
    numbers = bool(others) and all(name.replace(".", "").isdigit() for name in others)
    if numbers and not names_clients(names[0]) and others != list(map(str, range(len(others)))):
        raise InputError(
            f"{rows.path} has no heading: its first row holds numbers",
            got=names[:6],
            fix="write the names of the columns above it: client, then the classes",
        )
    for place, name in enumerate(names):
        if name in names[:place]:
            raise InputError(
                f"{rows.path}: column {shown(name)} appears twice",
                got=f"columns {kept[names.index(name)] + 1} and {kept[place] + 1}",
                fix="rename one of them, or remove what is above the heading",
            )


def _not_clients(where: str, head: Sequence[str], place: int, survey: Survey) -> TableError:
    """Return the refusal of a first column that may hold anything: clients, classes, patients."""
    heading = head[place]
    ways = survey.samples_ways()
    ways += [({"client": name}, "if it holds the clients") for name in survey.clients[:1]]
    if not survey.clients and heading not in survey.texts:  # a number in front of names
        ways += [({"client": name}, "if it holds the clients") for name in survey.texts[:1]]
    if not survey.clients:
        either: list[Way] = [({"client": heading}, "if rows are clients"),
                             ({"transpose": True}, "if rows are classes")]  # fmt: skip
        ways += reversed(either) if names_labels(heading) else either
    what = f"is headed {shown(heading)}" if heading else "has no heading"
    return TableError(
        f"{where}: the first column {what}", *ways, allowed="client, site, hospital or the like"
    )


# Wide


def _read_wide(
    rows: Rows, body: _Body, columns: _Columns, cells: CountReader, options: Options
) -> Table:
    lines: dict[str, int] = {}  # of every row, by its name
    clients: list[str] = []
    sizes, shares, counts, slack = array("q"), array("d"), array("q"), array("q")
    places = [place for place in columns.values if columns.head[place] != options.sizes]
    size = None if options.sizes is None else columns.head.index(options.sizes)
    doubts = list(_hidden_columns(rows, columns))
    for row in body:
        _check_width(rows, row, len(columns.head))
        name = row[columns.client]
        _check_name(rows, row, columns, lines, cells, options)
        if rows.line in rows.hidden_rows:
            doubts.append(Doubt(f"row {rows.line} ({shown(name)}) is hidden", drop=("row", name)))
        lines.setdefault(name, rows.line)
        clients.append(name)
        if size is None:
            for place in places:
                counts.append(cells.count(row[place], place))
                slack.append(cells.slack)
        else:
            sizes.append(cells.count(row[size], size))
            texts = [str(cells.count(row[place], place)) if is_missing(row[place]) else row[place]
                     for place in places]  # fmt: skip
            shares.extend(read_shares(texts, rows.where) if texts else ())
    matrix = _matrix(counts, len(clients))
    if size is not None and shares:
        matrix = apportion(
            np.frombuffer(shares).reshape(len(clients), -1), np.frombuffer(sizes, np.int64)
        )
    if not matrix.size:
        raise InputError(
            f"{rows.path} has no counts", got=list(columns.head[:6]), allowed="a count per class"
        )
    unsure = _matrix(slack, len(clients))
    return _named(rows, columns, places, clients, matrix, unsure, doubts, options)


def _matrix(cells: "array[int]", rows: int) -> np.ndarray:
    if not cells:
        return np.empty((0, 0), np.int64)
    return np.frombuffer(cells, dtype=np.int64).reshape(rows, -1)


def _named(
    rows: Rows, columns: _Columns, places: Sequence[int], clients: list[str], matrix: np.ndarray,
    slack: np.ndarray, doubts: list[Doubt], options: Options,
) -> Table:  # fmt: skip
    """Return the table: with rows added up, shares named, or rows and columns exchanged."""
    classes = columns.names(places)
    heading = columns.head[columns.client]
    doubts += _before_clients(columns, places, matrix)
    if options.client is None and not options.transpose:
        doubts += label_doubts(classes)
    if names_times(heading):
        doubts.append(Doubt(f"rows are headed {shown(heading)}: times, not clients"))
    description, added = "a table of counts", False
    if options.add_up:
        check_to_add(str(rows.path), matrix, classes, clients)
        added = len(set(clients)) < len(clients)
        matrix, slack = _added(matrix, clients), _added(slack, clients)
        clients = list(dict.fromkeys(clients))
        description += f", rows added up by {heading!r}"
    if options.sizes is not None:
        description += f", shares of column {shown(options.sizes)}"
    unsure = slack if slack.any() and options.sizes is None else None
    table = Table(
        matrix, tuple(clients), tuple(classes), None, description, tuple(doubts), slack=unsure,
        added=added,
    )  # fmt: skip
    if not options.transpose:
        return table
    return replace(
        table,
        values=matrix.T.copy(),
        clients=table.classes,
        classes=table.clients,
        slack=None if unsure is None else unsure.T.copy(),
        description="a row per class",
        transposed=True,
    )


def _added(matrix: np.ndarray, clients: Sequence[str]) -> np.ndarray:
    """Add up the rows of each client."""
    place = {name: k for k, name in enumerate(dict.fromkeys(clients))}
    sums = np.zeros((len(place), matrix.shape[1]), np.int64)
    np.add.at(sums, [place[name] for name in clients], matrix)
    return sums


def _hidden_columns(rows: Rows, columns: _Columns) -> Iterator[Doubt]:
    for place in (columns.client, *columns.values):
        if place in rows.hidden_columns:
            name = columns.head[place]
            yield Doubt(f"column {shown(name)} is hidden", drop=("column", name))


def _before_clients(
    columns: _Columns, places: Sequence[int], matrix: np.ndarray
) -> Iterator[Doubt]:
    """Doubt columns of different numbers that stand before the clients."""
    for at, place in enumerate(places):
        if place < columns.client and 1 < len(matrix) == len(np.unique(matrix[:, at])):
            name = columns.head[place]
            what = f"column {shown(name)} comes before the clients: it may hold ids"
            yield Doubt(what, drop=("column", name))


def _check_width(rows: Rows, row: list[str], width: int) -> None:
    """Refuse a row that is longer or shorter than the first one."""
    if len(row) == width:
        return
    filled = [cell for cell in row if cell]
    drop: Way = {"drop_rows": filled[:1] if len(filled) == 1 else row[:1]}, "to leave it out"
    if len(filled) == 1:
        raise TableError(f"{rows.where} has one cell only", drop, got=filled[0])
    fix = "put numbers with a comma in them in quotes" if len(row) > width else "fill the cells"
    raise TableError(
        f"{rows.where} has {len(row)} cells, the first line has {width}", drop, got=row, fix=fix
    )


def _check_name(
    rows: Rows,
    row: list[str],
    columns: _Columns,
    lines: dict[str, int],
    cells: CountReader,
    options: Options,
) -> None:
    """Refuse a row without a name or without counts, and a name that appeared before."""
    what = "class" if options.transpose else "client"
    name = row[columns.client]
    drop: Way = {"drop_rows": [name]}, "to leave it out"
    if not name:
        raise TableError(
            f"{rows.where} has no {what} name", drop, got=row[:4], fix="name it if it is one"
        )
    if options.blank is None and not any(row[place] for place in columns.values):
        blank: Way = {"blank": 0}, "if it has no samples"
        raise TableError(f"{rows.where} has no counts, only a name", drop, blank, got=name)
    if name in lines and not options.add_up:
        add_up: Way = {"add_up": True}, "to add up the rows of a client"
        raise TableError(
            f"{rows.path}: {what} {shown(name)} appears twice (lines {lines[name]}, {rows.line})",
            *([] if options.transpose else [*cells.samples_ways(), add_up]),
            allowed=f"one row per {what}",
        )


# Long


def _read_long(
    rows: Rows, body: _Body, columns: _Columns, cells: CountReader, options: Options
) -> Table:
    head, label, count = columns.head, columns.label or 0, columns.count
    places = [place for place in (columns.client, label, count) if place is not None]
    beside = [
        place
        for place, name in enumerate(head)
        if count is not None and place not in places and name not in options.drop_columns
    ]
    no_classes = [name for name in options.drop_columns if name not in head]
    totals: dict[str, str] = {}
    numbers = {p for p in range(len(head)) if count is None and p not in places}
    slack: Counter[tuple[str, str]] = Counter()
    first: dict[tuple[str, str], tuple[str, int]] = {}  # where a client's count of a class is
    repeated: list[str] = []
    dropped: set[str] = set()
    names = columns.names(places)
    hidden = 0

    def entries() -> Iterator[Entry]:
        nonlocal hidden
        for row in body:
            _check_width(rows, row, len(head))
            client, name = row[columns.client], row[label]
            if not (client and name):
                raise InputError(
                    f"{rows.where} lacks a client or a label",
                    got=row[:4],
                    fix="write it in every row; of merged cells only the first holds it",
                )
            hidden += rows.line in rows.hidden_rows
            totals.update({head[p]: row[p] for p in beside if names_total(row[p])})
            numbers.difference_update([p for p in numbers if not row[p].isdigit()])
            number = 1 if count is None else cells.count(row[count], count)
            if count is not None and not options.add_up and not repeated:
                earlier = first.setdefault((client, name), (rows.where, number))
                if earlier[0] != rows.where:
                    repeated.append(
                        f"{rows.where} counts {shown(name)} of {shown(client)} again: {number:,}, "
                        f"after {earlier[1]:,} in {earlier[0].removeprefix(f'{rows.path} ')}"
                    )
            if name not in no_classes:
                slack[client, name] += cells.slack
                yield client, name, number
            else:
                dropped.add(name)

    description = f"a row per sample, {names[0]!r} and {names[1]!r}"
    if count is not None:
        description = f"a count per row in {names[2]!r}, of {names[0]!r} and {names[1]!r}"
    table = add_entries(entries(), description)
    if repeated and not totals:
        adding = {**dict(zip(("client", "label", "count"), names, strict=True)), "add_up": True}
        raise TableError(
            repeated[0],
            (adding, "if a count is the sum of such rows"),
            allowed="one row for a client and a class",
        )
    if missing := [name for name in no_classes if name not in dropped]:
        allowed = listed((*head, *(table.classes or ())))
        what = f"{rows.path} has no such column or class"
        raise InputError(what, got=missing[0], allowed=allowed)
    doubts = [
        Doubt(f"rows with {shown(value)} in column {shown(name)} seem to be totals of others",
              fix="remove these rows")
        for name, value in totals.items()
    ]  # fmt: skip
    if numbers and table.values.max() == 1:
        doubts.append(_no_repeats(columns.names(places), columns.names(sorted(numbers))))
    if hidden:
        doubts.append(Doubt(f"{hidden} rows are hidden", fix="show them or delete them"))
    return replace(table, doubts=tuple(doubts), slack=_slack(table, slack))


def _no_repeats(names: Sequence[str], numbers: Sequence[str]) -> Doubt:
    """Doubt that rows are samples: a column holds numbers, and no client has two of a class."""
    options = {"client": names[0], "label": names[1], "count": numbers[0]}
    return Doubt(
        f"no client has two samples of a class, but column {shown(numbers[0])} holds numbers",
        ways=((options, "if they are counts"),),
    )


def _slack(table: Table, unsure: Counter[tuple[str, str]]) -> np.ndarray | None:
    """Return by how much the cells of a table may be wrong."""
    if not any(unsure.values()):
        return None
    return np.array(
        [[unsure[client, name] for name in table.classes or ()] for client in table.clients or ()]
    )


def add_entries(entries: Iterable[Entry], description: str) -> Table:
    """Add up entries as they come; only the sums are held."""
    sums: Counter[tuple[object, object]] = Counter()
    for client, label, count in entries:
        try:
            sums[client, label] += count
        except TypeError:  # a list or a dictionary
            raise InputError(
                "a client or a label is not a name or a number", got=(client, label)
            ) from None
    if not sums:
        raise InputError("there are no samples", allowed="a row per sample")
    if max(sums.values()) > LARGEST:
        raise InputError("counts too large", got=max(sums.values()), allowed="a sum up to 2**53")
    clients = _in_order({client for client, _ in sums})
    labels = _in_order({label for _, label in sums})
    if len(labels) < 2:
        raise InputError("there is only one class", got=labels[0], allowed="two and more")
    size = len(clients) * len(labels)
    check_cells(size, f"a table of {len(clients):,} clients x {len(labels):,} classes")
    values = np.zeros((len(clients), len(labels)), np.int64)
    row = {client: k for k, client in enumerate(clients)}
    column = {label: c for c, label in enumerate(labels)}
    for (client, label), count in sums.items():
        values[row[client], column[label]] = count
    names = tuple(map(str, clients)), tuple(map(str, labels))
    return Table(values, *names, description=description, wide=False)


def _in_order(names: set[object]) -> list[object]:
    """Sort names, numbers as numbers."""
    if all(str(name).isascii() and str(name).isdigit() for name in names):
        return sorted(names, key=lambda name: int(str(name)))
    return sorted(names, key=str)
