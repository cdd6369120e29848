"""Whole numbers per client and class as a file: CSV, JSON, and with extras Parquet and Excel.

`LabelCounts` and `Plan` are both such a table; a plan adds metadata (`meta`). Users' files come in
several layouts: a table that can be read in two ways is refused, with the option that settles it.
"""

import csv
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from fedeas import parquet
from fedeas.errors import InputError
from fedeas.files import atomic_write, check_regular
from fedeas.tables.advice import Advice
from fedeas.tables.cells import LARGEST
from fedeas.tables.delimited import opened
from fedeas.tables.doubts import find_doubts, refusal, unknown_classes
from fedeas.tables.facts import (
    check_not_facts,
    checked_facts,
    content_hash,
    delimiter_of,
    facts_file,
    facts_text,
    find_facts,
    read_saved,
    remove_facts,
)
from fedeas.tables.headings import names_classes, names_clients
from fedeas.tables.json_table import (
    frame_rows,
    load_json,
    loads,
    open_frame,
    read_json_table,
    saved_hash,
    write_json_table,
)
from fedeas.tables.layout import Reading, choose
from fedeas.tables.long import Entry, added_up, read_long, read_long_parquet, without
from fedeas.tables.rows import Rows
from fedeas.tables.table import COUNTS, LAYOUTS, LONG, WIDE, Columns, Options, Table
from fedeas.tables.wide import may_be_transposed, read_wide
from fedeas.tables.workbook import opened_sheet

__all__ = [
    "COUNTS", "LARGEST", "LAYOUTS", "LONG", "WIDE", "Columns", "Entry", "Options", "Table",
    "added_up", "check_start", "facts_file", "names_clients", "parquet_layout", "read", "write",
]  # fmt: skip

_META = "# fedeas "  # before the metadata of a plan, in files of version 0.1.0
_READ_BACK = 200_000  # cells
_SPREADSHEETS = (".xls", ".xlsb", ".ods", ".numbers")
_TEXT_ONLY = ("delimiter", "encoding")
_CELLS_ONLY = ("thousands", "blank", "suppressed", "size_column")


def read(path: Path | str, options: Options | None = None) -> Table:
    """Read a table; the ending of the name tells the format."""
    path, options = Path(path), options or Options()
    if path.is_dir():
        raise InputError(f"{path} is a folder", allowed="a file ending in " + _endings())
    read_as = _format(path)[0]
    check_regular(path)
    table, layout = read_as(path, options)
    if table.saved:
        return table
    doubts = tuple(find_doubts(table, layout))
    if doubts and options.layout is None and table.meta is None:
        raise refusal(str(path), doubts, layout)
    return replace(table, doubts=doubts, notes=(*table.notes, *unknown_classes(table.classes)))


def write(path: Path | str, table: Table) -> None:
    """Write a table atomically, so that `read` returns the same; the ending tells the format."""
    path = Path(path)
    save = _format(path)[1]
    with ExitStack() as stack:
        temporary = stack.enter_context(atomic_write(path))
        save(temporary, table)
        beside = save is _write_csv and (
            table.meta is not None or not _reads_back(temporary, table)
        )
        if beside:
            facts = stack.enter_context(atomic_write(facts_file(path)))
            facts.write_text(facts_text(table, table.meta), encoding="utf-8")
    if not beside and save is _write_csv:
        remove_facts(path)


def _reads_back(path: Path, table: Table) -> bool:
    """Tell whether a text table says all by itself; a large one is not read to find out."""
    try:
        return table.values.size <= _READ_BACK and content_hash(read(path)) == content_hash(table)
    except InputError:
        return False


def parquet_layout(path: Path, options: Options) -> Reading:
    """Return how a Parquet file is read."""
    kinds = parquet.column_kinds(path)
    names = list(kinds)
    plain = [name for name, kind in kinds.items() if kind != "other"]

    def rows() -> Iterable[Sequence[str]]:
        for row in parquet.value_rows(path, plain, allow_null=True):
            cells = dict(zip(plain, row, strict=True))
            yield ["" if cells.get(n) is None else str(cells[n]) for n in names]

    return choose(names, rows(), options, str(path))


def check_start(path: Path, options: Options) -> None:
    """Refuse a Parquet file with doubtful columns, by its first rows, before it is streamed.

    Only columns can be judged from some of the rows.
    """
    with parquet.opened(path, names_clients) as source:
        batch = next(source.batches(), None)
        if batch is None or options.layout is not None:
            return
        values = np.column_stack(batch.columns).astype(np.int64)
        clients = tuple(f"row {k}" for k in range(len(values)))
        table = Table(values, clients, tuple(source.columns))
    if doubts := tuple(find_doubts(table, WIDE)):
        raise refusal(str(path), doubts, WIDE)


def _read_csv(path: Path, options: Options) -> tuple[Table, str]:
    facts = None if options.layout in (LONG, COUNTS) else find_facts(path)
    if facts is not None and options.plain and (saved := read_saved(path, facts)) is not None:
        return replace(saved, saved=True), WIDE
    if options.layout is None and facts is not None and facts.get("facts") is not None:
        # A plan written by fedeas, whatever its classes are called.
        options = replace(options, layout=WIDE)
    options.check_unused(f"{path}, which is text", "sheet")
    comments: list[str] = []

    @contextmanager
    def open_rows() -> Iterator[Rows]:
        with opened(path, options) as rows:
            yield rows
            comments[:] = rows.comments

    table, layout = _read_rows(path, options, open_rows)
    if layout != WIDE:
        return table, layout
    meta = _parse_meta(path, comments)
    if meta is None and facts is not None:
        meta = checked_facts(path, facts, table)
    return replace(table, meta=meta), layout


def _read_excel(path: Path, options: Options) -> tuple[Table, str]:
    options.check_unused(f"{path}, which is a workbook", *_TEXT_ONLY)
    return _read_rows(path, options, lambda: opened_sheet(path, options))


def _read_rows(
    path: Path, options: Options, open_rows: Callable[[], AbstractContextManager[Rows]]
) -> tuple[Table, str]:
    """Read rows of cells: once to see how they are laid out, and once more for their counts."""
    with open_rows() as rows:
        iterator = iter(rows)
        head = next(iterator, [])
        reading = choose(head, iterator, options, str(path))
    with open_rows() as rows:
        if reading.layout == WIDE:

            def advise() -> Advice:
                with open_rows() as again:
                    iterator = iter(again)
                    return Advice(next(iterator, []), iterator)

            return read_wide(rows, options, advise), WIDE
        options.check_unused("a table that is not a row per client", "size_column")
        next(iter(rows))
        return read_long(rows, head, reading, options), reading.layout


def _parse_meta(path: Path, lines: list[str]) -> Mapping[str, Any] | None:
    for line in lines:
        if line.startswith(_META):
            meta = loads(path, line.removeprefix(_META))
            if isinstance(meta, dict):
                return meta
    return None


def _write_csv(path: Path, table: Table) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, delimiter=delimiter_of(path))
        rows, columns = table.values.shape
        writer.writerow(["client", *(table.classes or map(str, range(columns)))])
        clients = table.clients or map(str, range(rows))
        for client, values in zip(clients, table.values, strict=True):
            writer.writerow([client, *values.tolist()])


def _read_json(path: Path, options: Options) -> tuple[Table, str]:
    options.check_unused(f"{path}, which is JSON", *_TEXT_ONLY, "sheet")
    check_not_facts(path)
    content = load_json(path)
    frame = frame_rows(path, content, options)
    if frame is not None:
        return _read_rows(path, options, lambda: nullcontext(open_frame(path, frame)))
    if options.layout in (LONG, COUNTS) or options.columns.given:
        raise InputError(f"{path} holds a row per client", fix="leave out `layout`")
    options.check_unused(f"{path}, which is JSON of whole numbers", *_CELLS_ONLY)
    table = read_json_table(path, content)
    if options.plain and content_hash(table) == saved_hash(content):
        return replace(table, saved=True), WIDE
    return _adjusted(table, options, path), WIDE


def _read_parquet(path: Path, options: Options) -> tuple[Table, str]:
    options.check_unused(f"{path}, which is Parquet", *_TEXT_ONLY, *_CELLS_ONLY, "sheet")
    if options.plain and (saved := parquet.saved_hash(path)) is not None:
        table = Table(*parquet.read(path, names_clients))
        if content_hash(table) == saved:
            return replace(table, saved=True), WIDE
    if options.layout == WIDE and options.by is not None:
        return _read_rows(path, options, lambda: nullcontext(_parquet_rows(path)))
    reading = parquet_layout(path, options)
    if reading.layout != WIDE:
        return read_long_parquet(path, reading, options), reading.layout
    table = Table(*parquet.read(path, names_clients, options.drop_columns))
    heading, indexed = parquet.client_column(path, names_clients, options.drop_columns)
    tells = heading is not None and (names_classes(heading) or not indexed)
    if options.transpose is None and table.clients and table.classes and heading and tells:
        doubts = may_be_transposed(heading, table.clients, table.classes)
        table = replace(table, doubts=tuple(doubts))
    return _adjusted(table, replace(options, drop_columns=()), path), WIDE


def _parquet_rows(path: Path) -> Rows:
    names = parquet.column_names(path)
    cells = parquet.value_rows(path, names, allow_null=True)
    rows = (["" if cell is None else str(cell) for cell in row] for row in cells)
    return Rows(path, enumerate(chain([names], rows)), "row")


def _adjusted(table: Table, options: Options, path: Path) -> Table:
    """Drop rows and columns of a table from a file without text cells, and transpose it."""
    if options.drop_columns or options.drop_rows:
        rows, columns = table.values.shape
        named = replace(
            table,
            clients=table.clients or tuple(map(str, range(rows))),
            classes=table.classes or tuple(map(str, range(columns))),
        )
        table = without(named, options.drop_columns, options.drop_rows, str(path))
    if options.transpose:
        table = Table(
            table.values.T.copy(), table.classes, table.clients, understood="a row per class"
        )
    return table


def _write_parquet(path: Path, table: Table) -> None:
    saved = content_hash(table)
    parquet.write(path, table.values, table.clients, table.classes, table.meta, saved)


def _write_json(path: Path, table: Table) -> None:
    write_json_table(path, table, content_hash(table))


def _write_nothing(path: Path, table: Table) -> None:
    written = ", ".join(ending for ending, (_, save) in _FORMATS.items() if save != _write_nothing)
    raise InputError("fedeas does not write workbooks", got=path.suffix, allowed=written)


_Format = tuple[Callable[[Path, Options], tuple[Table, str]], Callable[[Path, Table], None]]
_FORMATS: dict[str, _Format] = {
    ".csv": (_read_csv, _write_csv),
    ".tsv": (_read_csv, _write_csv),
    ".json": (_read_json, _write_json),
    ".parquet": (_read_parquet, _write_parquet),
    ".xlsx": (_read_excel, _write_nothing),
    ".xlsm": (_read_excel, _write_nothing),
}


def _endings() -> str:
    return ", ".join(_FORMATS)


def _format(path: Path) -> _Format:
    ending = path.suffix.lower()
    if ending in _SPREADSHEETS:
        raise InputError(
            f"{path.name} is a spreadsheet", allowed=_endings(), fix="save it as .xlsx or as CSV"
        )
    try:
        return _FORMATS[ending]
    except KeyError:
        raise InputError("unknown kind of file", got=path.name, allowed=_endings()) from None
