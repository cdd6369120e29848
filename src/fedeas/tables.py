"""Whole numbers per client and class as a file: CSV or TSV, JSON, and Parquet with its extra.

`LabelCounts` and `Plan` are both such a table; a plan adds a few facts (`meta`).
"""

import csv
import json
import re
from array import array
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from fedeas import parquet
from fedeas.errors import InputError
from fedeas.files import atomic_write, check_regular, read_text, unreadable

# A heading with one of these words names a column of client ids; see `names_clients`.
_HOLDERS = frozenset({
    "client", "clients", "site", "node", "hospital", "bank", "user", "device", "party", "partition",
    "worker", "silo", "group", "organisation", "organization", "participant", "member",
})  # fmt: skip
_ALONE = frozenset(("id", "cid", "name", "index"))
_NUMBERING = _ALONE | {"ids", "no", "nr", "number"}
LARGEST = parquet.LARGEST
_COUNT = f"whole numbers from 0 to 2**53 ({LARGEST:,})"
_DECIMAL = re.compile(r"[0-9]{1,17}(\.[0-9]*)?([eE][+-]?[0-9]{1,3})?")
_META = "# fedeas "


@dataclass(frozen=True)
class Table:
    """A K x C matrix with the names of its rows and columns, where the file gave them."""

    values: NDArray[np.int64]
    clients: tuple[str, ...] | None = None
    classes: tuple[str, ...] | None = None
    meta: Mapping[str, Any] | None = None


def read(path: Path | str, delimiter: str | None = None) -> Table:
    """Read a table; the ending of the name tells the format."""
    path = Path(path)
    if path.is_dir():
        raise InputError(f"{path} is a folder", allowed="a file ending in " + _endings())
    read_as = _format(path)[0]
    check_regular(path)
    return read_as(path, delimiter)


def write(path: Path | str, table: Table) -> None:
    """Write a table, whole or not at all; the ending of the name tells the format."""
    path = Path(path)
    save = _format(path)[1]
    with atomic_write(path) as temporary:
        save(temporary, table)


def _read_csv(path: Path, delimiter: str | None) -> Table:
    if delimiter is None:
        delimiter = "\t" if path.suffix.lower() == ".tsv" else ","
    if len(delimiter) != 1 or delimiter in '"\r\n' or delimiter.isalnum():
        raise InputError("not a delimiter", got=delimiter, allowed="one character such as ;")
    meta: list[str] = []
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            return _parse_csv(
                path, csv.reader(_without_meta(file, meta), delimiter=delimiter), meta
            )
    except UnicodeDecodeError:
        raise InputError(f"{path} is not a text file", allowed="CSV in UTF-8") from None
    except csv.Error as error:
        raise InputError(f"{path} is not CSV: {error}") from None
    except OSError as error:
        raise unreadable(path, error) from None


def _without_meta(lines: Iterator[str], meta: list[str]) -> Iterator[str]:
    """Pass on the lines of a CSV file, setting aside the comments above its first row."""
    in_head = True
    for line in lines:
        if in_head and line.startswith(("# ", "#\n", "#\r")):
            meta.append(line)
            continue
        in_head = False
        yield line


def _parse_csv(path: Path, rows: Any, meta: list[str]) -> Table:
    first = next((row for row in rows if row), None)
    if first is None:
        raise InputError(f"{path} is empty", allowed="a row of counts per client")
    first = [cell.strip() for cell in first]
    if len(first) == 1 and (seen := re.search(r"[;\t| ]", first[0])):
        raise InputError(
            f"{path} has one cell per line, with {seen[0]!r} in it",
            got=first[0],
            allowed="cells separated by commas",
            fix=f"pass --delimiter {seen[0]!r} if that is what separates them",
        )
    heading = _is_heading(path, first)
    if heading and not first[0] and (more := [c for c in first[1:] if c and names_clients(c)]):
        raise InputError(
            f"{path} has two columns of ids",
            got=first[:4],
            fix=f"remove the one before {more[0]!r}",
        )
    body = rows if heading else _chain(first, rows)
    has_ids: bool | None = True if heading and names_clients(first[0]) else None
    clients: list[str] = []
    values = array("q")
    for row in body:
        if not row:
            continue
        where = f"{path} line {rows.line_num}"
        if len(row) != len(first):
            raise InputError(
                f"{where} has {len(row)} cells, the first line has {len(first)}", got=row
            )
        if has_ids is None:  # no heading told: a first cell that is no number is an id
            has_ids = not _numeric(row[0].strip())
        if has_ids:
            clients.append(row[0].strip())
        values.extend(_whole(cell.strip(), where) for cell in row[has_ids:])
    width = len(first) - bool(has_ids)
    if not values:
        raise InputError(f"{path} has no counts", got=first, allowed="a row of counts per client")
    matrix = np.frombuffer(values, dtype=np.int64).reshape(-1, width)
    if not has_ids and len(matrix) > 2 and np.all(np.diff(matrix[:, 0]) == 1) and matrix[0, 0] < 2:
        raise InputError(
            f"{path}: the first column counts {matrix[0, 0]}, {matrix[1, 0]}, {matrix[2, 0]}, ...",
            allowed="the heading 'client' above it if these are clients",
        )
    return Table(
        matrix,
        tuple(clients) if has_ids else None,
        tuple(first[bool(has_ids) :]) if heading else None,
        _parse_meta(path, meta),
    )


def _chain(first: list[str], rows: Iterator[list[str]]) -> Iterator[list[str]]:
    yield first
    yield from rows


def names_clients(heading: str) -> bool:
    """Tell whether a heading stands above client ids: '', 'client', 'ClientID', 'hospital_no'.

    'client_1' is the id of a client, and 'lymph node' may well be a class.
    """
    words = [word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+|[0-9]+", heading)]
    match words:
        case []:
            return not heading
        case [word]:
            return word in _HOLDERS or word in _ALONE
        case [holder, numbering]:
            return holder in _HOLDERS and numbering in _NUMBERING
    return False


def _is_heading(path: Path, first: list[str]) -> bool:
    """Tell whether the first line names the columns; a mixture of words and numbers is refused."""
    rest = first[1:]
    words = [cell for cell in rest if not _numeric(cell)]
    counting = rest == [str(i) for i in range(len(rest))]
    if first[0] and not _numeric(first[0]) and names_clients(first[0]):
        return True
    if not words:
        # Numbers only: a heading when they count 0, 1, 2, ..., as data frames write them.
        if first[0] and _numeric(first[0]):
            return len(first) >= 3 and first == [str(i) for i in range(len(first))]
        return counting and (not first[0] or len(rest) >= 3)
    if len(words) < len(rest) or (first[0] and _numeric(first[0])):
        raise InputError(
            f"{path} line 1 mixes words and numbers",
            got=first,
            allowed="either the names of all classes or the counts of one client",
            fix="head the first column with 'client' if this is a heading",
        )
    return True


def _numeric(cell: str) -> bool:
    try:
        float(cell or "nan")
    except ValueError:
        return False
    return True


def _whole(cell: str, where: str) -> int:
    if not _DECIMAL.fullmatch(cell):
        _refuse(cell, where)
    if cell.isdigit():
        return whole_number(int(cell), where)
    # 3.0 is a whole number, as data frames write them; a float would round 0.999... to one.
    exact = Decimal(cell)
    if exact > LARGEST or exact != exact.to_integral_value():
        _refuse(cell, where)
    return int(exact)


def whole_number(value: object, where: str) -> int:
    """Return a count as an int, or refuse it: negative, fractional, not a number, too large."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        _refuse(value, where)
    if not 0 <= value <= LARGEST or value != int(value):
        _refuse(value, where)
    return int(value)


def _refuse(value: object, where: str) -> NoReturn:
    raise InputError(f"{where}: not a count", got=value, allowed=_COUNT)


def _parse_meta(path: Path, lines: list[str]) -> Mapping[str, Any] | None:
    for line in lines:
        if line.startswith(_META):
            meta = _loads(path, line.removeprefix(_META))
            if isinstance(meta, dict):
                return meta
    return None


def _write_csv(path: Path, table: Table) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        if table.meta is not None:
            file.write(_META + json.dumps(table.meta) + "\n")
        writer = csv.writer(file, delimiter="\t" if path.suffix.lower() == ".tsv" else ",")
        rows, columns = table.values.shape
        writer.writerow(["client", *(table.classes or map(str, range(columns)))])
        clients = table.clients or map(str, range(rows))
        for client, values in zip(clients, table.values, strict=True):
            writer.writerow([client, *values.tolist()])


def _read_json(path: Path, _: str | None) -> Table:
    content = _loads(path, read_text(path))
    if isinstance(content, list):
        content = {"counts": content}
    if not isinstance(content, dict) or not isinstance(content.get("counts"), list):
        raise InputError(
            f"{path} holds no table",
            allowed='rows of counts, or {"clients": [...], "classes": [...], "counts": [[...]]}',
        )
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
        _json_names(path, content, "clients"),
        _json_names(path, content, "classes"),
        content["meta"] if isinstance(content.get("meta"), dict) else None,
    )


def _json_names(path: Path, content: Mapping[str, Any], key: str) -> tuple[str, ...] | None:
    names = content.get(key)
    if names is None:
        return None
    if not isinstance(names, list) or not all(isinstance(name, str | int) for name in names):
        raise InputError(f"{path}: {key!r} is no list of names", got=names)
    return tuple(map(str, names))


def _loads(path: Path, text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is not JSON: {error}") from None


def _write_json(path: Path, table: Table) -> None:
    content: dict[str, Any] = {"counts": table.values.tolist()}
    if table.clients:
        content["clients"] = table.clients
    if table.classes:
        content["classes"] = table.classes
    if table.meta is not None:
        content["meta"] = table.meta
    path.write_text(json.dumps(content) + "\n", encoding="utf-8")


def _read_parquet(path: Path, _: str | None) -> Table:
    return Table(*parquet.read(path, names_clients))


def _write_parquet(path: Path, table: Table) -> None:
    parquet.write(path, table.values, table.clients, table.classes, table.meta)


_Format = tuple[Callable[[Path, str | None], Table], Callable[[Path, Table], None]]
_FORMATS: dict[str, _Format] = {
    ".csv": (_read_csv, _write_csv),
    ".tsv": (_read_csv, _write_csv),
    ".json": (_read_json, _write_json),
    ".parquet": (_read_parquet, _write_parquet),
}


def _endings() -> str:
    return ", ".join(_FORMATS)


def _format(path: Path) -> _Format:
    try:
        return _FORMATS[path.suffix.lower()]
    except KeyError:
        raise InputError("unknown kind of file", got=path.name, allowed=_endings()) from None
