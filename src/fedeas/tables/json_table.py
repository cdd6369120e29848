"""A table as JSON: rows of counts with the names of clients and classes, or a data frame's.

pandas writes frames in several ways (`orient`): all are turned into rows of cells, which are then
read like those of a text file.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedeas.errors import InputError
from fedeas.files import read_text
from fedeas.tables.arguments import argument
from fedeas.tables.cells import whole_number
from fedeas.tables.headings import names_clients
from fedeas.tables.rows import Rows
from fedeas.tables.table import Options, Table

_ALLOWED = (
    'rows of counts, {"clients": [...], "classes": [...], "counts": [[...]]}, or what pandas writes'
)


def read_json_table(path: Path, content: Any) -> Table:
    """Read a table from rows of counts."""
    if isinstance(content, list):
        content = {"counts": content}
    if not isinstance(content, dict) or not isinstance(content.get("counts"), list):
        raise InputError(f"{path} holds no table", allowed=_ALLOWED)
    rows = content["counts"]
    if not rows or not all(isinstance(row, list) and row for row in rows):
        raise InputError(f"{path} has no counts", got=rows, allowed="a list of rows of counts")
    if ragged := [i for i, row in enumerate(rows) if len(row) != len(rows[0])]:
        raise InputError(
            f"{path} row {ragged[0]} has {len(rows[ragged[0]])} cells, the first has {len(rows[0])}"
        )
    values = [[whole_number(cell, f"{path} row {i}") for cell in row] for i, row in enumerate(rows)]
    return Table(
        np.array(values, dtype=np.int64),
        _names(path, content, "clients"),
        _names(path, content, "classes"),
        content["meta"] if isinstance(content.get("meta"), dict) else None,
    )


def saved_hash(content: Any) -> object:
    """Return the hash of the table as fedeas wrote it; None in a file from elsewhere."""
    return content.get("sha256") if isinstance(content, dict) else None


def write_json_table(path: Path, table: Table, saved: str) -> None:
    """Write a table as JSON, with its hash."""
    content: dict[str, Any] = {"sha256": saved, "counts": table.values.tolist()}
    if table.clients:
        content["clients"] = table.clients
    if table.classes:
        content["classes"] = table.classes
    if table.meta is not None:
        content["meta"] = table.meta
    path.write_text(json.dumps(content) + "\n", encoding="utf-8")


def loads(path: Path, text: str) -> Any:
    """Parse JSON."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is not JSON: {error}") from None


def load_json(path: Path) -> Any:
    """Return the content of a JSON file."""
    return loads(path, read_text(path))


def frame_rows(path: Path, content: Any, options: Options) -> list[list[str]] | None:
    """Return a data frame that pandas or polars wrote as rows of cells; None if it is not one."""
    if isinstance(content, dict) and isinstance(content.get("schema"), dict):
        content = content.get("data")  # orient='table'
    if isinstance(content, list) and content and all(isinstance(row, dict) for row in content):
        return _records(path, content)
    if not isinstance(content, dict):
        return None
    if {"columns", "data"} <= content.keys():
        return _split(path, content)
    if content and all(isinstance(value, dict) for value in content.values()):
        return _nested(path, content, options)
    return None


def open_frame(path: Path, rows: Sequence[Sequence[str]]) -> Rows:
    """Return the rows of a data frame; the heading is number 0."""
    return Rows(path, ((number, list(row)) for number, row in enumerate(rows)), "row")


def _records(path: Path, records: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    names = list(dict.fromkeys(name for record in records for name in record))
    rows = [[_text(path, record.get(name)) for name in names] for record in records]
    return [names, *rows]


def _split(path: Path, content: Mapping[str, Any]) -> list[list[str]]:
    names, data = content["columns"], content["data"]
    index = content.get("index") or list(range(len(data) if isinstance(data, list) else 0))
    lists = isinstance(names, list) and isinstance(data, list) and isinstance(index, list)
    if not lists or len(index) != len(data) or not all(isinstance(row, list) for row in data):
        raise InputError(f"{path} holds no table", allowed=_ALLOWED)
    rows = [[_text(path, cell) for cell in row] for row in data]
    return _with_index([_text(path, name) for name in names], map(str, index), rows)


def _nested(
    path: Path, content: Mapping[str, Mapping[str, Any]], options: Options
) -> list[list[str]]:
    """Return rows of {column: {row: cell}}, or of {row: {column: cell}} if a column names clients.

    Which of the two it is cannot be told from names that are neither.
    """
    outer = list(content)
    inner = list(dict.fromkeys(name for value in content.values() for name in value))
    if any(name and names_clients(name) for name in inner):
        return _records(path, list(content.values()))
    named = any(name and names_clients(name) for name in outer)
    if not named and options.transpose is None:
        raise InputError(
            f"{path} can be read in two ways: are {outer[0]!r}, ... classes or clients?",
            fix=f"pass {argument('transpose', False)} if they are classes (what "
            "DataFrame.to_json() makes of a row per client), or "
            f"{argument('transpose', True)} if they are clients",
        )
    rows = [[_text(path, content[name].get(key)) for name in outer] for key in inner]
    return _with_index(outer, iter(inner), rows)


def _with_index(names: list[str], index: Iterator[str], rows: list[list[str]]) -> list[list[str]]:
    """Put the index of a frame before its columns, unless it only numbers the rows."""
    ids = list(index)
    if ids == [str(number) for number in range(len(ids))]:
        return [names, *rows]
    return [["client", *names], *([name, *row] for name, row in zip(ids, rows, strict=True))]


def _text(path: Path, value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise InputError(f"{path}: not a count or a name", got=value, allowed=_ALLOWED)
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _names(path: Path, content: Mapping[str, Any], key: str) -> tuple[str, ...] | None:
    names = content.get(key)
    if names is None:
        return None
    if not isinstance(names, list) or not all(isinstance(name, str | int) for name in names):
        raise InputError(f"{path}: {key!r} is not a list of names", got=names)
    return tuple(map(str, names))
