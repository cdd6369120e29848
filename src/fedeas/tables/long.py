"""A row per sample, or a row per client and class with a count: rows that are added up."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedeas import parquet
from fedeas.errors import InputError
from fedeas.tables.cells import LARGEST, Cells, shown, whole_number
from fedeas.tables.headings import names_total
from fedeas.tables.layout import Reading
from fedeas.tables.rows import Rows, check_width
from fedeas.tables.table import Doubt, Options, Table
from fedeas.tables.wide import check_dropped

Entry = tuple[object, object, int]  # a client, a label, and how many


def read_long(rows: Rows, head: Sequence[str], reading: Reading, options: Options) -> Table:
    """Read the rows below a heading."""
    cells = Cells[tuple[str, str]](rows, head, options.rules)
    body = _Body(rows, head, reading, options)
    table = added_up(_entries(body, cells), reading.understood)
    dropped = [name for name in options.drop_columns if name not in head]
    if cells.hidden:
        table = replace(table, slack=_slack(table, cells.hidden))
    left = [name for name in options.drop_rows if name not in body.remarks]
    table = without(table, dropped, left, str(rows.path))
    return replace(
        table,
        assumed=rows.assumed + cells.assumed,
        notes=cells.notes,
        doubts=tuple(body.doubts()),
    )


class _Body:
    """The rows below a heading, without remarks; and what there is to doubt about them."""

    def __init__(self, rows: Rows, head: Sequence[str], reading: Reading, options: Options) -> None:
        self.rows = rows
        self.remarks: set[str] = set()  # below the table, left out
        self._width, self._drop_rows = len(head), options.drop_rows
        names = [name for name in (reading.client, reading.label, reading.count) if name]
        self.places = [list(head).index(name) for name in names]
        beside = [n for n in head if n not in names and n not in options.drop_columns]
        self._groups = _Groups(beside if reading.count else ())
        self._beside = [list(head).index(name) for name in self._groups.names]
        self._hidden = 0

    def __iter__(self) -> Iterator[list[str]]:
        for row in self.rows:
            if row[0] in self._drop_rows and len(row) != self._width:
                self.remarks.add(row[0])
                continue
            check_width(self.rows, row, self._width)
            self._hidden += self.rows.line in self.rows.hidden_rows
            self._groups.add(row[place] for place in self._beside)
            yield row

    def doubts(self) -> Iterator[Doubt]:
        """Yield what there is to doubt, once the rows are read."""
        yield from self._groups.doubts()
        if self._hidden:
            yield Doubt(f"{self._hidden} rows are hidden", fix="show them or delete them")


def read_long_parquet(path: Path, reading: Reading, options: Options) -> Table:
    """Read a Parquet file whose columns are known."""
    columns = [name for name in (reading.client, reading.label, reading.count) if name]
    kinds = parquet.column_kinds(path)
    groups = _Groups(
        name
        for name, kind in kinds.items()
        if reading.count and kind == "text" and name not in (*columns, *options.drop_columns)
    )
    entries = (
        (client, label, whole_number(count[0], f"{path} column {reading.count!r}") if count else 1)
        for client, label, *count in parquet.value_rows(path, columns)
    )
    table = added_up(entries, reading.understood)
    if groups.names:
        for row in parquet.value_rows(path, groups.names, allow_null=True):
            groups.add("" if cell is None else str(cell) for cell in row)
    dropped = [name for name in options.drop_columns if name not in kinds]
    table = without(table, dropped, options.drop_rows, str(path))
    return replace(table, doubts=tuple(groups.doubts()))


class _Groups:
    """Columns beside a count: a count for men, one for women, and one for all of them."""

    def __init__(self, names: Iterable[str]) -> None:
        self.names = list(names)
        self._totals: dict[str, str] = {}

    def add(self, cells: Iterable[str]) -> None:
        """Look at the cells of a row."""
        for name, cell in zip(self.names, cells, strict=True):
            if names_total(cell):
                self._totals.setdefault(name, cell)

    def doubts(self) -> Iterator[Doubt]:
        """Doubt rows that are totals."""
        for name, value in self._totals.items():
            yield Doubt(
                f"rows with {shown(value)} in column {shown(name)} seem to be totals of others",
                fix="remove these rows",
            )


def added_up(entries: Iterable[Entry], understood: str) -> Table:
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
    values = np.zeros((len(clients), len(labels)), np.int64)
    row = {client: k for k, client in enumerate(clients)}
    column = {label: c for c, label in enumerate(labels)}
    for (client, label), count in sums.items():
        values[row[client], column[label]] = count
    return Table(values, tuple(map(str, clients)), tuple(map(str, labels)), understood=understood)


def without(table: Table, columns: Sequence[str], rows: Sequence[str], where: str) -> Table:
    """Leave out classes and clients by their names."""
    clients, classes = table.clients or (), table.classes or ()
    check_dropped(columns, classes, classes, "column or class", where)
    check_dropped(rows, clients, clients, "row", where)
    kept_rows = [k for k, name in enumerate(clients) if name not in rows]
    kept = [c for c, name in enumerate(classes) if name not in columns]
    return replace(
        table,
        values=table.values[np.ix_(kept_rows, kept)],
        slack=None if table.slack is None else table.slack[np.ix_(kept_rows, kept)],
        clients=tuple(clients[k] for k in kept_rows),
        classes=tuple(classes[c] for c in kept),
    )


def _entries(body: _Body, cells: Cells[tuple[str, str]]) -> Iterator[Entry]:
    first, second, *counts = body.places
    count = counts[0] if counts else None
    for row in body:
        client, label = row[first], row[second]
        if not (client and label):
            raise InputError(
                f"{body.rows.where} lacks a client or a label",
                got=row[:4],
                fix="write it in every row; of merged cells only the first holds it",
            )
        yield client, label, 1 if count is None else cells.count(row[count], count, (client, label))
    for (client, label), amount in cells.settle():
        yield client, label, amount


def _slack(table: Table, hidden: Iterable[tuple[tuple[str, str], int]]) -> NDArray[np.int64]:
    """Return by how much the cells of a table may be wrong."""
    slack = np.zeros_like(table.values)
    row = {name: k for k, name in enumerate(table.clients or ())}
    column = {name: c for c, name in enumerate(table.classes or ())}
    for (client, label), amount in hidden:
        slack[row[client], column[label]] += amount
    return slack


def _in_order(names: set[object]) -> list[object]:
    """Sort names, numbers as numbers."""
    if all(str(name).isascii() and str(name).isdigit() for name in names):
        return sorted(names, key=lambda name: int(str(name)))
    return sorted(names, key=str)
