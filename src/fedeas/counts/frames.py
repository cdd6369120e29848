"""Data frames of pandas and polars in the strict form; neither library is imported.

The index of a pandas frame names the clients. Where there is none, or it only numbers the rows, the
first column names them, if it holds text or is headed 'client'.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedeas._internal.scalars import LARGEST
from fedeas.counts.files import Table, TableError, cell_text, content_hash, read_long
from fedeas.counts.plausibility import LONG, find_doubts, heading_problem
from fedeas.errors import InputError

FRAME_MARK = "fedeas.sha256"  # among a frame's `attrs`: the hash of the table that we put into it


def read_frame(frame: Any) -> Table:
    """Return the table in a data frame, wide or long; any other is refused."""
    index: Any = getattr(frame, "index", None)
    for names in (frame.columns, index):
        if getattr(names, "nlevels", 1) > 1:
            raise _refusal(f"names have several levels, such as {names[0]!r}")
    head = [cell_text(name) for name in frame.columns]
    if not head:
        raise _refusal("there are no columns")
    places = range(len(head))
    columns = [frame[frame.columns[c]] if index is None else frame.iloc[:, c] for c in places]
    numbered = index is None or list(index) == list(range(len(index)))
    if numbered and (head[0] == "client" or not _is_numeric(columns[0])):
        clients, heading = list(map(cell_text, columns[0].to_list())), head[0]
        head, columns = head[1:], columns[1:]
    elif numbered and "client" in head:
        raise _refusal("the column 'client' is not the first one")
    elif numbered:
        clients, heading = [str(k) for k in range(len(frame))], "client"
    else:
        clients, heading = list(map(cell_text, index)), cell_text(index.name) or "client"
    if [heading, *head] == LONG and not _is_numeric(columns[0]):
        return _checked(frame, _read_long(clients, columns))
    if problem := heading_problem([heading, *head]):
        raise _refusal(problem)
    values = np.column_stack([_counts(*each, clients) for each in zip(head, columns, strict=True)])
    values.setflags(write=False)
    return _checked(frame, Table(values, tuple(clients), tuple(head)))


def _is_numeric(column: Any) -> bool:
    return str(column.dtype).lower().startswith(("int", "uint", "float"))


def _read_long(clients: Sequence[str], columns: Sequence[Any]) -> Table:
    cells = zip(clients, *(column.to_list() for column in columns), strict=True)
    rows = ([client, *map(cell_text, others)] for client, *others in cells)
    try:
        return read_long("the data frame", enumerate(rows))
    except TableError as error:
        raise InputError(error.what, fix="for a row per sample use from_labels") from None


def _counts(name: str, column: Any, clients: Sequence[str]) -> NDArray[np.int64]:
    """Return the counts in a column; a cell that holds none is named."""
    cells = column.to_numpy()
    if cells.dtype.kind not in "iuf":
        cells = np.array([_number(cell) for cell in column.to_list()], np.float64)
    wrong = ~((cells >= 0) & (cells <= LARGEST) & (cells == np.floor(cells)))
    if wrong.any():
        row = int(wrong.argmax())
        cell = str(column.to_list()[row])
        raise _refusal(f"row {clients[row]!r}, column {name!r} holds {cell!r}, not a whole number")
    counts: NDArray[np.int64] = cells.astype(np.int64)
    return counts


def _number(cell: object) -> float:
    """Return the number in a cell of a column of any type; NaN where there is none."""
    is_number = isinstance(cell, int | float | np.number) and not isinstance(cell, bool)
    return float(cell) if is_number else np.nan  # type: ignore[arg-type]


def _checked(frame: Any, table: Table) -> Table:
    """Refuse totals, years and the like, unless fedeas made the frame."""
    if getattr(frame, "attrs", {}).get(FRAME_MARK) != content_hash(table):
        for doubt in find_doubts(table.values, table.clients, table.classes):
            raise _refusal(doubt.what)
    return table


def _refusal(what: str) -> InputError:
    return InputError(
        f"the data frame: {what}",
        fix="leave it out of the frame, or use LabelCounts(matrix, clients, classes); a row per "
        "sample is for LabelCounts.from_labels",
    )
