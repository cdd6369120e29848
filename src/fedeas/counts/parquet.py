"""Tables of counts in Parquet: whole, or as a stream of row blocks for any number of clients.

A wide table has a column of whole numbers per class and, if clients have names, one of names: the
first, or a data frame's index.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedeas._internal.arrow import (
    batches_of,
    open_file,
    pyarrow,
    readable,
    text_columns,
    value_rows,
    values_of,
)
from fedeas._internal.files import check_cells, parse_json
from fedeas._internal.frames import client_heading
from fedeas._internal.scalars import LARGEST
from fedeas.counts.files import Table, TableError, cell_text, checked, content_hash, read_rows
from fedeas.counts.plausibility import LONG, find_doubts, heading_problem, names_clients
from fedeas.errors import InputError

_META = b"fedeas"
_SAVED = b"fedeas.sha256"  # of the table as fedeas wrote it
_NAMED = b"fedeas.named"  # whether the first column holds the names of clients
# Cells that are decoded at a time when streaming; a few such batches are held.
BATCH_CELLS = 1 << 20
_NAME_CELLS = 8  # what a client's name takes in memory, in cells


class Batch(NamedTuple):
    """Some consecutive rows: one array per class, and the names of the clients if asked for."""

    columns: list[NDArray[np.integer]]
    clients: list[str] | None


class Source:
    """An open Parquet file of counts: its size, its names, and its rows in batches."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = open_file(path)
        schema = self._file.schema_arrow
        types = pyarrow("types")
        self.id_column = _id_column(schema)
        self.columns: list[str] = [name for name in schema.names if name != self.id_column]
        self.meta = _load_meta(path, self._file.metadata.metadata)
        digest = (schema.metadata or {}).get(_SAVED)
        self.written_hash = None if digest is None else digest.decode(errors="replace")
        problem = heading_problem([self.id_column or "client", *self.columns])
        if problem and self.written_hash is None and self.meta is None:
            raise TableError(path, f"{path}: {problem}")
        for name in self.columns:
            kind = schema.field(schema.names.index(name)).type
            if not types.is_integer(kind):
                raise TableError(path, f"{path}: column {name!r} holds {kind}, not whole numbers")
        self.rows: int = self._file.metadata.num_rows
        if self.id_column is not None:
            kind = schema.field(self.id_column).type
            if types.is_nested(kind) or types.is_binary(kind) or types.is_large_binary(kind):
                raise InputError(f"{path} names clients by {kind}", allowed="text or numbers")
            self._file = open_file(path, text_columns(schema, [self.id_column]))

    def batches(self, *, named: bool = False) -> Iterator[Batch]:
        """Yield the rows as they are decoded; names of clients only if asked for."""
        named = named and self.id_column is not None
        columns = [str(self.id_column), *self.columns] if named else self.columns
        rows = max(1, BATCH_CELLS // max(1, len(self.columns)))
        for batch in batches_of(self._path, self._file, rows, columns):
            for name, column in zip(columns, batch.columns, strict=True):
                if column.null_count:
                    raise TableError(self._path, f"{self._path}: column {name!r} has empty cells")
            counts = [column.to_numpy() for column in batch.columns[named:]]
            for name, column in zip(self.columns, counts, strict=True):
                if len(column) and not (column.min() >= 0 and column.max() <= LARGEST):
                    raise InputError(
                        f"{self._path} column {name!r} has a count out of range",
                        got=int(column.min() if column.min() < 0 else column.max()),
                        allowed="0 to 2**53",
                    )
            clients = None
            if named:
                clients = [str(name) for name in values_of(self._path, batch.columns[0])]
            yield Batch(counts, clients)


def _id_column(schema: Any) -> str | None:
    """Find the column of client names: marked by us, a frame's index, or a first one that fits."""
    marked = (schema.metadata or {}).get(_NAMED)
    if marked is not None:
        return str(schema.names[0]) if marked == b"yes" else None
    index = frame_index(schema)
    if index in schema.names:
        return index
    first = schema.field(0) if schema.names else None
    types = pyarrow("types")
    if first is not None and (
        names_clients(first.name)
        or types.is_string(first.type)
        or types.is_large_string(first.type)
    ):
        return str(first.name)
    return None


def frame_index(schema: Any) -> str | None:
    """Return the column in which a pandas data frame kept its index, if it did."""
    try:
        index = json.loads((schema.metadata or {})[b"pandas"])["index_columns"][0]
    except (ValueError, KeyError, TypeError, IndexError, RecursionError):
        return None
    return index if isinstance(index, str) else None


@contextmanager
def opened(path: Path) -> Iterator[Source]:
    """Open a Parquet file of counts; any error in it is one clear line.

    Errors in the block itself, such as writing what was read, are not blamed on the file.
    """
    with readable(path):
        source = Source(path)
    yield source


def client_count(path: Path) -> int:
    """Return how many rows a Parquet file has, without reading them."""
    with readable(path):
        return int(open_file(path).metadata.num_rows)


def is_wide(path: Path) -> bool:
    """Tell whether a file has a column of whole numbers per class, without reading its rows."""
    try:
        with opened(path):
            return True
    except TableError:
        return False  # `read` says what is wrong, or it is a long table


def check_start(path: Path) -> None:
    """Refuse a file with doubtful columns, by its first rows, before it is streamed."""
    with opened(path) as source:
        batch = next(source.batches(), None)
        if batch is None or source.written_hash is not None:
            return
        values = np.column_stack(batch.columns).astype(np.int64)
    for doubt in find_doubts(values, None, source.columns):
        if doubt.kind == "column":  # only columns can be judged by some of the rows
            raise TableError(path, f"{path}: {doubt.what}")


def read(path: Path) -> Table:
    """Read a whole table, wide or long."""
    with readable(path):
        schema = open_file(path).schema_arrow
    names = schema.names
    if names == LONG and _SAVED not in (schema.metadata or {}):
        rows = ([cell_text(cell) for cell in row] for row in value_rows(path, names, True))
        return checked(path, read_rows(path, LONG, iter(enumerate(rows, start=1))))
    with opened(path) as source:
        width = len(source.columns) + (_NAME_CELLS if source.id_column is not None else 0)
        check_cells(
            source.rows * width,
            f"{path} with {source.rows:,} clients",
            "plan it as a stream (`fedeas plan FILE` with a local policy, or plan_stream)",
        )
        values = np.empty((source.rows, len(source.columns)), np.int64)
        clients: list[str] = []
        start = 0
        for batch in source.batches(named=True):
            stop = start + len(batch.columns[0])
            for c, column in enumerate(batch.columns):
                values[start:stop, c] = column
            clients.extend(batch.clients or ())
            start = stop
    values.setflags(write=False)  # so that `LabelCounts` need not copy it
    named = None if source.id_column is None else tuple(clients)
    if named is not None and len(set(named)) < len(named):
        raise TableError(path, f"{path}: a client has several rows")
    table = Table(values, named, tuple(source.columns), source.meta)
    as_written = source.written_hash == content_hash(table)
    return table if as_written else checked(path, table)


class Writer:
    """Writes a table block by block; use it as a context."""

    def __init__(
        self,
        path: Path,
        classes: Sequence[str],
        *,
        named: bool,
        meta: Mapping[str, Any] | None = None,
        saved: str | None = None,
    ) -> None:
        self._pa = pyarrow("")
        fields = [(name, self._pa.int64()) for name in classes]
        if named:
            fields.insert(0, (client_heading(classes), self._pa.string()))
        marks = {_NAMED: b"yes" if named else b"no"}
        if saved is not None:
            marks[_SAVED] = saved.encode()
        self._schema = self._pa.schema(fields, metadata=marks | _dump_meta(meta))
        self._writer = pyarrow("parquet").ParquetWriter(path, self._schema)

    def __enter__(self) -> "Writer":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._writer.close()

    def add(self, values: NDArray[np.int64], clients: Sequence[str] | None = None) -> None:
        """Append a block of rows."""
        columns = [self._pa.array(values[:, c]) for c in range(values.shape[1])]
        if clients is not None:
            columns.insert(0, self._pa.array(clients, self._pa.string()))
        self._writer.write_table(self._pa.Table.from_arrays(columns, schema=self._schema))

    def add_meta(self, meta: Mapping[str, Any]) -> None:
        """Attach what is known only after the last block."""
        self._writer.add_key_value_metadata(_dump_meta(meta))


def write(path: Path, table: Table) -> None:
    """Write a whole table, with its hash: it is read back as it is."""
    classes = table.classes or [str(c) for c in range(table.values.shape[1])]
    named, saved = table.clients is not None, content_hash(table)
    with Writer(path, classes, named=named, meta=table.meta, saved=saved) as writer:
        writer.add(table.values, table.clients)


def _dump_meta(meta: Mapping[str, Any] | None) -> dict[bytes, bytes]:
    return {} if meta is None else {_META: json.dumps(meta).encode()}


def _load_meta(path: Path, metadata: Mapping[bytes, bytes] | None) -> Mapping[str, Any] | None:
    meta = parse_json((metadata or {}).get(_META, b"null"), f"the plan's metadata in {path}")
    return meta if isinstance(meta, dict) else None
