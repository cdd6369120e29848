"""Tables of label counts as files: read a clean one, refuse any other with the fix, write.

`LabelCounts` and `Plan` are both a `Table` of whole numbers per client and class; a plan adds
metadata (`meta`). CSV, TSV and JSON need nothing else, Parquet and Excel an extra each. JSON may
also be NVFlare's federated statistics.
"""

import csv
from collections.abc import Callable, Mapping
from contextlib import ExitStack, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedeas._util.files import atomic_write, check_regular, parse_json
from fedeas.countfiles import parquet, sidecar
from fedeas.countfiles.nvflare import is_statistics, read_statistics
from fedeas.countfiles.people import read_rows
from fedeas.countfiles.read import (
    delimiter_of,
    is_records,
    load_json,
    matrix_rows,
    read_matrix,
    record_rows,
    text_rows,
    write_json_table,
    written_hash,
)
from fedeas.countfiles.sidecar import content_hash, facts_file
from fedeas.countfiles.table import LARGEST, Options, Table, TableError
from fedeas.countfiles.validate import find_doubts, refusal, unknown_classes
from fedeas.countfiles.workbook import sheet_rows
from fedeas.errors import InputError

__all__ = ["LARGEST", "Options", "Table", "TableError", "facts_file", "read", "write"]

_META = "# fedeas "  # before the metadata of a plan, in files of version 0.1.0
_READ_BACK = 200_000  # cells
_SPREADSHEETS = (".xls", ".xlsb", ".ods", ".numbers")


def read(path: Path | str, options: Options = Options()) -> Table:  # noqa: B008 - frozen
    """Read a table; the ending of the name tells the format."""
    path = Path(path)
    if path.is_dir():
        raise InputError(f"{path} is a folder", allowed="a file ending in " + ", ".join(_FORMATS))
    read_as = _format(path)[0]
    check_regular(path)
    table = read_as(path, options)
    if table.saved:
        return table
    doubts = tuple(find_doubts(table))
    if doubts and not options.keep and table.meta is None:
        raise refusal(str(path), doubts)
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
            facts.write_text(sidecar.facts_text(table, table.meta), encoding="utf-8")
    if not beside and save is _write_csv:
        sidecar.remove_facts(path)


def _reads_back(path: Path, table: Table) -> bool:
    """Tell whether a text table says all by itself; a large one is not read to find out."""
    try:
        return table.values.size <= _READ_BACK and content_hash(read(path)) == content_hash(table)
    except InputError:
        return False


def _read_csv(path: Path, options: Options) -> Table:
    facts = sidecar.find_facts(path)
    if facts is not None and options.as_saved:
        table = sidecar.read_saved(path, facts)
        if table is not None:
            return replace(table, saved=True)
    options.check_unused(f"{path}, which is text", "sheet")
    table = read_rows(lambda: text_rows(path, options), options)
    if not table.wide:
        return table
    with text_rows(path, options) as rows:
        next(iter(rows), None)
        meta = _parse_meta(path, rows.comments)
    if meta is None and facts is not None:
        meta = sidecar.checked_facts(path, facts, table)
    return replace(table, meta=meta)


def _parse_meta(path: Path, lines: list[str]) -> Mapping[str, Any] | None:
    for line in lines:
        if line.startswith(_META):
            meta = parse_json(line.removeprefix(_META), str(path))
            return meta if isinstance(meta, dict) else None
    return None


def _write_csv(path: Path, table: Table) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, delimiter=delimiter_of(path))
        rows, columns = table.values.shape
        writer.writerow(["client", *(table.classes or map(str, range(columns)))])
        clients = table.clients or map(str, range(rows))
        for client, values in zip(clients, table.values, strict=True):
            writer.writerow([client, *values.tolist()])


def _read_json(path: Path, options: Options) -> Table:
    options.check_unused(f"{path}, which is JSON", "delimiter", "encoding", "sheet")
    sidecar.check_not_facts(path)
    content = load_json(path)
    if is_statistics(content):
        table, options = read_statistics(path, content, options.label), replace(options, label=None)
        if options.as_saved:
            return table
        rows = read_rows(lambda: nullcontext(matrix_rows(path, table)), options)
        return replace(rows, doubts=table.doubts + rows.doubts, description=table.description)
    if is_records(content):
        return read_rows(lambda: nullcontext(record_rows(path, content)), options)
    table = read_matrix(path, content)
    if not options.as_saved:
        return read_rows(lambda: nullcontext(matrix_rows(path, table)), options)
    return replace(table, saved=content_hash(table) == written_hash(content))


def _write_json(path: Path, table: Table) -> None:
    write_json_table(path, table, content_hash(table))


def _read_parquet(path: Path, options: Options) -> Table:
    options.check_unused(f"{path}, which is Parquet", "delimiter", "encoding", "sheet")
    if parquet.is_clean(path) and (options.as_saved or not parquet.has_clients(path)):
        table, digest = parquet.read(path)
        if options.as_saved:
            return replace(table, saved=content_hash(table) == digest)
        return read_rows(lambda: nullcontext(matrix_rows(path, table)), options)
    return read_rows(lambda: nullcontext(parquet.cell_rows(path, options)), options)


def _write_parquet(path: Path, table: Table) -> None:
    parquet.write(path, table.values, table.clients, table.classes, table.meta, content_hash(table))


def _read_excel(path: Path, options: Options) -> Table:
    options.check_unused(f"{path}, which is a workbook", "delimiter", "encoding")
    return read_rows(lambda: sheet_rows(path, options), options)


def _write_nothing(path: Path, table: Table) -> None:
    written = ", ".join(ending for ending, (_, save) in _FORMATS.items() if save != _write_nothing)
    raise InputError("fedeas does not write workbooks", got=path.suffix, allowed=written)


_Format = tuple[Callable[[Path, Options], Table], Callable[[Path, Table], None]]
_FORMATS: dict[str, _Format] = {
    ".csv": (_read_csv, _write_csv),
    ".tsv": (_read_csv, _write_csv),
    ".json": (_read_json, _write_json),
    ".parquet": (_read_parquet, _write_parquet),
    ".xlsx": (_read_excel, _write_nothing),
    ".xlsm": (_read_excel, _write_nothing),
}


def _format(path: Path) -> _Format:
    ending = path.suffix.lower()
    allowed = ", ".join(_FORMATS)
    if ending in _SPREADSHEETS:
        raise InputError(
            f"{path.name} is a spreadsheet", allowed=allowed, fix="save it as .xlsx or as CSV"
        )
    if ending not in _FORMATS:
        raise InputError("unknown kind of file", got=path.name, allowed=allowed)
    return _FORMATS[ending]
