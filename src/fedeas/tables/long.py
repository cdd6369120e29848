"""A row per sample, or a row per client and class with a count: rows that are added up."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedeas import parquet
from fedeas.errors import InputError
from fedeas.tables.cells import LARGEST, Cells, whole_number
from fedeas.tables.layout import Reading
from fedeas.tables.rows import Rows, check_width
from fedeas.tables.table import Options, Table
from fedeas.tables.wide import check_dropped

Entry = tuple[object, object, int]  # a client, a label, and how many


def read_long(rows: Rows, head: Sequence[str], reading: Reading, options: Options) -> Table:
    """Read the rows below a heading."""
    cells = Cells[tuple[str, str]](rows, head, options.rules)
    table = added_up(_entries(rows, head, reading, cells), reading.understood)
    dropped = [name for name in options.drop_columns if name not in head]
    if cells.hidden:
        table = replace(table, slack=_slack(table, cells.hidden))
    table = without(table, dropped, options.drop_rows, str(rows.path))
    return replace(table, assumed=rows.assumed + cells.assumed, notes=cells.notes)


def read_long_parquet(path: Path, reading: Reading, options: Options) -> Table:
    """Read a Parquet file whose columns are known."""
    columns = [name for name in (reading.client, reading.label, reading.count) if name]
    entries = (
        (client, label, whole_number(count[0], f"{path} column {reading.count!r}") if count else 1)
        for client, label, *count in parquet.value_rows(path, columns)
    )
    table = added_up(entries, reading.understood)
    known = parquet.column_names(path)
    dropped = [name for name in options.drop_columns if name not in known]
    return without(table, dropped, options.drop_rows, str(path))


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


def _entries(
    rows: Rows, head: Sequence[str], reading: Reading, cells: Cells[tuple[str, str]]
) -> Iterator[Entry]:
    places = [list(head).index(name) for name in (reading.client, reading.label)]
    count = list(head).index(reading.count) if reading.count else None
    for row in rows:
        check_width(rows, row, len(head))
        client, label = (row[place] for place in places)
        if not (client and label):
            raise InputError(
                f"{rows.where} lacks a client or a label",
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
