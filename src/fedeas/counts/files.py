"""The strict reader and writer of counts: one form, or a refusal that names the cell.

A table is *wide*, whose first column names the clients and whose other columns are a class each, or
*long*, with exactly the columns `client,class,count`. Anything else is refused in one sentence:
`fedeas counts` reads the tables that people have, and writes this form.
"""

import csv
import hashlib
import io
import json
import math
import re
import shlex
import sys
import zipfile
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedeas._internal.files import (
    MAX_TEXT,
    atomic_write,
    check_cells,
    check_regular,
    parse_json,
    unreadable,
)
from fedeas._internal.frames import client_heading
from fedeas._internal.optional import import_extra
from fedeas._internal.scalars import LARGEST
from fedeas.counts.plausibility import LONG, find_doubts, heading_problem
from fedeas.errors import InputError, first_line

Ints = NDArray[np.int64]
_LONGEST = 400  # characters of what is wrong
NumberedRow = tuple[int, list[str]]  # where a row stands in its file, and its cells
# What the column of clients is called in a plan that is written as text.
PLAN_HEADING = "samples to generate"
READABLE = ".csv, .tsv, .json, .parquet, .xlsx"
WRITABLE = ".csv, .tsv, .json, .parquet"


@dataclass(frozen=True)
class Table:
    """A K x C matrix with the names of its rows and columns, where there are any."""

    values: Ints
    clients: tuple[str, ...] | None = None
    classes: tuple[str, ...] | None = None
    # What a plan adds, which as text is nothing; None for counts.
    meta: Mapping[str, Any] | None = None


def people_out(path: Path | str) -> str:
    """Return where `fedeas counts` is to write what it reads from a file: not over it."""
    return "clean.csv" if Path(path).name == "counts.csv" else "counts.csv"


class TableError(InputError):
    """A file that is not in the strict form."""

    def __init__(self, path: Path | str, what: str) -> None:
        self.path = path
        file = "FILE" if str(path) == "-" else shlex.quote(str(path))
        command = f"fedeas counts {file} --out {people_out(path)}"
        short = what if len(what) <= _LONGEST else f"{what[: _LONGEST - 3]}..."
        super().__init__(short, fix=f"`{command}` reads such tables")


# Reading


def read(path: Path | str) -> Table:
    """Read a table in the strict form; the ending of its name tells the format."""
    path = Path(path)
    if path.suffix.lower() == ".parquet":
        from fedeas.counts import parquet

        return parquet.read(path)
    return parse(path, read_raw(path))


def read_raw(path: Path) -> "RawTable":
    """Read a file that is not Parquet once: the rows of cells that it holds, or what is in JSON."""
    if str(path) == "-":
        return _raw_csv(path, sys.stdin.read(), ",")
    if path.is_dir():
        raise InputError(f"{path} is a folder", allowed=f"a file: {READABLE}")
    ending = path.suffix.lower()
    if ending not in READABLE.split(", "):
        raise InputError("unknown kind of file", got=path.name, allowed=READABLE)
    check_regular(path, MAX_TEXT, "use Parquet for a table of that size")
    if ending == ".xlsx":
        return RawTable.of(_sheet_rows(path))
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError:
        raise TableError(path, f"{path} is not text in UTF-8") from None
    except OSError as error:
        raise unreadable(path, error) from None
    if ending == ".json":
        return _raw_json(path, text)
    return _raw_csv(path, text, "\t" if ending == ".tsv" else ",")


@dataclass(frozen=True)
class RawTable:
    """A file as it was read: its heading and the rows below, each with its line; or JSON."""

    head: list[str]
    rows: Iterable[NumberedRow]
    content: Mapping[str, Any] | None = None

    @classmethod
    def of(cls, rows: Iterable[NumberedRow]) -> "RawTable":
        """Take the first row that is not empty for the heading."""
        rows = iter(rows)
        return cls(next(([cell.strip() for cell in row] for _, row in rows if any(row)), []), rows)


def parse(path: Path, raw: RawTable) -> Table:
    """Return the table of a file that was read, checked."""
    if raw.content is not None:
        return _parse_json(path, raw.content)
    return checked(path, read_rows(path, raw.head, iter(raw.rows)))


def _raw_csv(path: Path, text: str, delimiter: str) -> RawTable:
    def rows() -> Iterator[NumberedRow]:
        reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
        try:
            for row in reader:
                yield reader.line_num, row
        except csv.Error as error:
            raise TableError(path, f"{path} is not CSV: {error}") from None

    return RawTable.of(rows())


def read_rows(path: Path | str, head: list[str], rows: Iterator[NumberedRow]) -> Table:
    """Return the table that rows of cells hold below a heading, wide or long."""
    if not head:
        raise InputError(f"{path} is empty", allowed="a heading, and a row per client")
    if head[0] == PLAN_HEADING:
        return replace(_read_wide(path, head, rows), meta={})
    if problem := heading_problem(head):
        raise TableError(path, f"{path}: {problem}")
    return read_long(path, rows) if head == LONG else _read_wide(path, head, rows)


def _read_wide(path: Path | str, head: list[str], rows: Iterator[NumberedRow]) -> Table:
    lines: dict[str, int] = {}
    cells = array("q")
    for line, row in rows:
        if not any(row):
            continue
        name = row[0].strip()
        if len(row) != len(head):
            raise TableError(
                path, f"{path} line {line} has {len(row)} cells, the heading has {len(head)}"
            )
        if not name:
            raise TableError(path, f"{path} line {line} names no client: its first cell is empty")
        if name in lines:
            raise TableError(
                path, f"{path}: client {name!r} is in line {lines[name]} and in line {line}"
            )
        lines[name] = line
        counts = row[1:]
        digits = "".join(counts)
        plain = digits.isascii() and digits.isdigit() and "" not in counts
        if plain and len(max(counts, key=len)) < len(str(LARGEST)):
            cells.extend(map(int, counts))
        else:
            pairs = zip(head[1:], counts, strict=True)
            cells.extend([_checked_count(path, line, column, cell) for column, cell in pairs])
    if not lines:
        raise InputError(f"{path} has a heading and no clients", got=head[:6])
    values = np.frombuffer(cells, np.int64).reshape(len(lines), len(head) - 1)
    return Table(values, tuple(lines), tuple(head[1:]))


def read_long(path: Path | str, rows: Iterator[NumberedRow]) -> Table:
    """Return the table in rows of client, class and count."""
    lines: dict[tuple[str, str], int] = {}
    counts: list[int] = []
    for line, row in rows:
        if not any(row):
            continue
        if len(row) != len(LONG):
            raise TableError(path, f"{path} line {line} has {len(row)} cells, the heading has 3")
        client, label, cell = (text.strip() for text in row)
        if not client or not label:
            raise TableError(path, f"{path} line {line} lacks a client or a class")
        if (client, label) in lines:
            first = lines[client, label]
            raise TableError(
                path, f"{path}: class {label!r} of {client!r} is in line {first} and in line {line}"
            )
        lines[client, label] = line
        counts.append(_checked_count(path, line, "count", cell))
    if not lines:
        raise InputError(f"{path} has a heading and no clients", got=", ".join(LONG))
    return table_of_pairs(list(lines), counts)


def table_of_pairs(pairs: Sequence[tuple[str, str]], counts: Sequence[int]) -> Table:
    """Return the table of counts by client and class; both are sorted, pairs may repeat."""
    clients, classes = (_sorted({pair[at] for pair in pairs}) for at in (0, 1))
    check_cells(
        len(clients) * len(classes),
        f"a table of {len(clients):,} clients x {len(classes):,} classes",
    )
    row_of = {name: k for k, name in enumerate(clients)}
    column_of = {name: c for c, name in enumerate(classes)}
    values = np.zeros((len(clients), len(classes)), np.int64)
    places = [row_of[client] for client, _ in pairs], [column_of[label] for _, label in pairs]
    np.add.at(values, places, counts)
    return Table(values, tuple(clients), tuple(classes))


def _sorted(names: Iterable[str]) -> list[str]:
    """Sort names; numbers by their value."""
    names = list(names)
    numbers = all(name.isascii() and name.isdigit() for name in names)
    return sorted(names, key=int) if numbers else sorted(names)


def _checked_count(path: Path | str, line: int, column: str, cell: str) -> int:
    """Return the whole number in a cell; a data frame writes 12 as 12.0."""
    text = cell.strip()
    if re.fullmatch(r"[0-9]{1,16}(\.0)?", text):
        number = int(text.removesuffix(".0"))
        if number <= LARGEST:
            return number
    shown = text if len(text) <= 40 else f"{text[:37]}..."
    raise TableError(
        path, f"{path} line {line}, column {column!r} holds {shown!r}, not a whole number"
    )


def checked(path: Path | str, table: Table) -> Table:
    """Return a table; refuse one of counts with totals, years and the like."""
    if table.meta is not None:
        return table
    for doubt in find_doubts(table.values, table.clients, table.classes):
        raise TableError(path, f"{path}: {doubt.what}")
    return table


# JSON and workbooks


def _raw_json(path: Path, text: str) -> RawTable:
    """Return records as rows of cells, and anything else as it is."""
    content = parse_json(text, str(path))
    if isinstance(content, list) and content and all(isinstance(row, dict) for row in content):
        head = list(dict.fromkeys(name for row in content for name in row))
        check_cells(len(head) * len(content), f"{path}: {len(content):,} records")
        body = ([cell_text(row.get(name)) for name in head] for row in content)
        return RawTable(head, enumerate(body, start=1))
    if not isinstance(content, dict) or not isinstance(content.get("counts"), list):
        raise TableError(path, f"{path} holds no table of counts")
    return RawTable([], iter(()), content)


def _parse_json(path: Path, content: Mapping[str, Any]) -> Table:
    try:
        values = np.array([[_json_count(cell) for cell in row] for row in content["counts"]])
        clients, classes = (_json_names(content.get(key)) for key in ("clients", "classes"))
        table = Table(values.astype(np.int64), clients, classes, content.get("meta"))
        rows, columns = table.values.shape
    except (ValueError, TypeError):
        raise InputError(
            f"{path} holds no counts",
            allowed='{"clients": [..], "classes": [..], "counts": [[..]]}',
        ) from None
    if len(clients or range(rows)) != rows or len(classes or range(columns)) != columns:
        raise InputError(f"{path} has other names than counts", got=(rows, columns))
    as_written = content.get("sha256") == content_hash(table)
    return table if as_written else checked(path, table)


def _json_names(names: object) -> tuple[str, ...] | None:
    if names is not None and not isinstance(names, list):
        raise TypeError("not a list of names")
    return None if names is None else tuple(map(str, names))


def _json_count(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError("not a number")
    if not 0 <= value <= LARGEST or value != int(value):  # also refuses NaN
        raise ValueError("not a count")
    return int(value)


def _sheet_rows(path: Path) -> list[NumberedRow]:
    """Return the rows of a workbook that has one filled sheet."""
    sheets = read_sheets(path)
    if len(sheets) > 1:
        raise TableError(path, f"{path} has several sheets: {', '.join(sheets)}")
    return next(iter(sheets.values()), [])


def read_sheets(path: Path) -> dict[str, list[NumberedRow]]:
    """Return the rows of each sheet of a workbook that is shown and not empty."""
    openpyxl = import_extra("openpyxl", "an Excel workbook", "counts")
    try:
        with zipfile.ZipFile(path) as archive:
            if sum(part.file_size for part in archive.infolist()) > MAX_TEXT:
                raise InputError(f"{path} is too large", allowed=f"{MAX_TEXT:,} bytes unpacked")
        book = openpyxl.load_workbook(path, read_only=True, data_only=True)
        sheets = {}
        for sheet in book.worksheets:
            if sheet.sheet_state != "visible":
                continue
            sheet.reset_dimensions()
            rows = enumerate(sheet.iter_rows(values_only=True), start=1)
            filled = [
                (line, [*map(cell_text, row)]) for line, row in rows if any(map(_is_filled, row))
            ]
            if filled:
                width = max(_filled_width(row) for _, row in filled)
                check_cells(width * len(filled), f"{path}, sheet {sheet.title!r}")
                sheets[sheet.title] = [(line, (row + [""] * width)[:width]) for line, row in filled]
        book.close()
    except InputError:
        raise
    except Exception as error:  # a damaged workbook can raise anything
        raise InputError(f"{path} is not a readable workbook: {first_line(error)}") from None
    return sheets


def _is_filled(value: object) -> bool:
    return value is not None and value != ""


def _filled_width(row: Sequence[str]) -> int:
    return max((place + 1 for place, cell in enumerate(row) if cell), default=0)


def cell_text(value: object) -> str:
    """Return the value of a cell as text: 12.0 is '12', nothing is ''."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return "" if str(value) in ("<NA>", "NaT") else str(value).strip()


# Writing


def write(path: Path | str, table: Table) -> None:
    """Write a table atomically, so that `read` returns the same; the ending tells the format.

    JSON and Parquet hold all of it, also a plan's metadata. Text holds the numbers and the names.
    """
    path = Path(path)
    ending = path.suffix.lower()
    if ending not in WRITABLE.split(", "):
        raise InputError("cannot write this kind of file", got=path.name, allowed=WRITABLE)
    if ending in (".csv", ".tsv") and table.meta is None:
        _check_text_form(path, table)
    with atomic_write(path) as temporary:
        if ending == ".parquet":
            from fedeas.counts import parquet

            parquet.write(temporary, table)
        elif ending == ".json":
            temporary.write_text(json.dumps(_json_content(table)) + "\n", encoding="utf-8")
        else:
            with temporary.open("w", encoding="utf-8", newline="") as file:
                writer = csv.writer(file, delimiter="\t" if ending == ".tsv" else ",")
                writer.writerows(_text_rows(table))


def _check_text_form(path: Path, table: Table) -> None:
    """Refuse counts that a reader of plain text would take for something else."""
    doubts = find_doubts(table.values, table.clients, table.classes)
    problem = doubts[0].what if doubts else heading_problem(next(_text_rows(table)))
    if problem:
        fix = f"write {path.with_suffix('.json').name} or .parquet, which say that it is right"
        raise InputError(f"{path.name} would not be read back: {problem}", fix=fix)


def _text_rows(table: Table) -> Iterator[list[str]]:
    rows, columns = table.values.shape
    classes = list(table.classes or map(str, range(columns)))
    heading = client_heading(classes) if table.meta is None else PLAN_HEADING
    yield ["client0" if [heading, *classes] == LONG else heading, *classes]
    for client, values in zip(table.clients or map(str, range(rows)), table.values, strict=True):
        yield [client, *values.tolist()]


def _json_content(table: Table) -> dict[str, Any]:
    content: dict[str, Any] = {"sha256": content_hash(table), "counts": table.values.tolist()}
    parts = {"clients": table.clients, "classes": table.classes, "meta": table.meta}
    return content | {key: part for key, part in parts.items() if part is not None}


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
