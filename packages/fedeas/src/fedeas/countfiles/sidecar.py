"""What a text file cannot say of itself: `plan.csv` is a plain table, `plan.csv.json` has the rest.

The second file holds a plan's metadata, and the hash of the table that it belongs to, so that a
mismatched pair is noticed, whatever program wrote the table again. Counts have such a file only
where their table could be read in two ways, or seems to hold totals: the hash then says that it is
as fedeas wrote it.
"""

import csv
import hashlib
import json
from array import array
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from fedeas._util.files import MAX_TEXT, read_json, sealed
from fedeas.countfiles.read import delimiter_of
from fedeas.countfiles.table import Table
from fedeas.errors import InputError

_FORMAT = "facts/1"


def facts_file(path: Path) -> Path:
    """Return the metadata file that belongs to a table."""
    return path.with_name(f"{path.name}.json")


def written_files(path: Path) -> list[Path]:
    """Return the files of a saved table: some text tables have a second one."""
    second = facts_file(path)
    has_second = path.suffix.lower() in (".csv", ".tsv") and second.exists()
    return [path, second] if has_second else [path]


def facts_text(table: Table, facts: Mapping[str, Any] | None) -> str:
    """Return the content of a metadata file; counts have no facts."""
    return sealed({"format": _FORMAT, "table": content_hash(table), "facts": facts})


def find_facts(path: Path) -> dict[str, Any] | None:
    """Return the content of a table's metadata file; None if there is none."""
    return _body(facts_file(path))


def read_saved(path: Path, body: dict[str, Any]) -> Table | None:
    """Read a text table as fedeas writes it; None if it is not the one that `body` belongs to."""
    try:
        with path.open(encoding="utf-8", newline="") as file:
            rows = csv.reader(file, delimiter=delimiter_of(path), strict=True)
            classes = tuple(next(rows)[1:])
            clients: list[str] = []
            cells = array("q")
            for name, *row in rows:
                clients.append(name)
                cells.extend(map(int, row))
        values = np.array(cells, np.int64).reshape(len(clients), len(classes))
        facts = body.get("facts")
        meta = facts if isinstance(facts, dict) else None
        table = Table(values, tuple(clients), classes, meta)
    except (ValueError, StopIteration, OverflowError, csv.Error, OSError):
        return None
    return table if content_hash(table) == body.get("table") else None


def checked_facts(path: Path, body: dict[str, Any], table: Table) -> Mapping[str, Any] | None:
    """Return the metadata of a table; refuse that of another one."""
    file = facts_file(path)
    if body.get("facts") is None:
        return None  # of counts that were changed since: a file like any other
    if body.get("table") != content_hash(table):
        raise InputError(
            f"{path} and {file.name} do not belong together: one of them was changed",
            fix=f"make the plan again, or delete {file.name} if {path.name} holds label counts",
        )
    facts = body.get("facts")
    return facts if isinstance(facts, dict) else None


def check_not_facts(path: Path) -> None:
    """Refuse a metadata file given instead of its table."""
    if _body(path) is not None:
        table = path.name.removesuffix(".json")
        raise InputError(f"{path} belongs to {table}", fix=f"pass {table}")


def remove_facts(path: Path) -> None:
    """Remove the metadata of a table that is gone, unless fedeas did not write the file."""
    file = facts_file(path)
    with suppress(InputError):
        if _body(file) is not None:
            file.unlink()


def content_hash(table: Table) -> str:
    """Return the hash of a table's numbers and names, however they are written down."""
    rows, columns = table.values.shape
    names = [
        list(table.clients or map(str, range(rows))),
        list(table.classes or map(str, range(columns))),
    ]
    digest = hashlib.sha256(json.dumps(names).encode())
    digest.update(np.ascontiguousarray(table.values, dtype="<i8").data)
    return digest.hexdigest()


def _body(file: Path) -> dict[str, Any] | None:
    """Return the content of a metadata file; None if there is none, or fedeas did not write it."""
    if not file.is_file() or file.stat().st_size > MAX_TEXT:
        return None
    try:
        body = read_json(file)
    except (InputError, RecursionError):  # a file from elsewhere may be anything
        if f'"format": "{_FORMAT}"' not in file.read_text(errors="replace"):
            return None
        raise InputError(f"{file} is damaged", fix="make the plan again") from None
    return body if isinstance(body, dict) and body.get("format") == _FORMAT else None
