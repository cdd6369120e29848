"""A table as JSON: rows of counts, alone or with the names of clients and classes."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fedeas.errors import InputError
from fedeas.files import read_text
from fedeas.tables.cells import whole_number
from fedeas.tables.table import Table

_ALLOWED = 'rows of counts, or {"clients": [...], "classes": [...], "counts": [[...]]}'


def read_json_table(path: Path) -> Table:
    """Read a table from JSON."""
    content = loads(path, read_text(path))
    _check_not_pandas(path, content)
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


def write_json_table(path: Path, table: Table) -> None:
    """Write a table as JSON."""
    content: dict[str, Any] = {"counts": table.values.tolist()}
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


def _check_not_pandas(path: Path, content: object) -> None:
    """Refuse what `DataFrame.to_json` writes, with what to write instead."""
    records = isinstance(content, list) and content and isinstance(content[0], dict)
    columns = (
        isinstance(content, dict)
        and content
        and all(isinstance(value, dict) for value in content.values())
    )
    split = isinstance(content, dict) and {"columns", "data"} <= content.keys()
    if records or columns or split:
        raise InputError(
            f"{path} looks like a data frame of pandas",
            allowed=_ALLOWED,
            fix="save it with df.to_csv('counts.csv')",
        )


def _names(path: Path, content: Mapping[str, Any], key: str) -> tuple[str, ...] | None:
    names = content.get(key)
    if names is None:
        return None
    if not isinstance(names, list) or not all(isinstance(name, str | int) for name in names):
        raise InputError(f"{path}: {key!r} is not a list of names", got=names)
    return tuple(map(str, names))
