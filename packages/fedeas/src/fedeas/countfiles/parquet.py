"""Tables of counts in Parquet: whole, or as a stream of row blocks.

A table has one column of whole numbers per class and, if clients have names, one of names.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedeas._util.arrow import (
    batches_of,
    column_kinds,
    open_file,
    pyarrow,
    readable,
    text_columns,
    value_rows,
    values_of,
)
from fedeas._util.files import check_cells, parse_json
from fedeas._util.frames import client_heading
from fedeas.countfiles.read import Rows
from fedeas.countfiles.sidecar import content_hash
from fedeas.countfiles.table import LARGEST, Options, Table, TableError, names_clients
from fedeas.countfiles.validate import find_doubts, label_doubts, refusal
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
        if len(set(schema.names)) < len(schema.names):
            raise InputError(f"{path} has two columns of the same name", got=schema.names)
        self.id_column = _id_column(schema)
        self.columns: list[str] = [name for name in schema.names if name != self.id_column]
        if not self.columns:
            raise InputError(f"{path} has no counts", allowed="a column of counts per class")
        for name in self.columns:
            kind = schema.field(name).type
            if not types.is_integer(kind):
                raise TableError(
                    f"{path} column {name!r} is of type {kind}",
                    ({"drop_columns": [name]}, "to leave it out"),
                    allowed="whole numbers, and one first column of client names",
                )
        self.rows: int = self._file.metadata.num_rows
        self.meta = _load_meta(path, self._file.metadata.metadata)
        digest = (schema.metadata or {}).get(_SAVED)
        self.written_hash = None if digest is None else digest.decode(errors="replace")
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
            if empty := [
                name
                for name, column in zip(columns, batch.columns, strict=True)
                if column.null_count
            ]:
                raise InputError(
                    f"{self._path} column {empty[0]!r} has empty cells",
                    allowed="a whole number in every cell",
                )
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
    """Find the column of client names: marked by us, of text, a frame's index, or headed so."""
    marked = (schema.metadata or {}).get(_NAMED)
    if marked is not None:
        return str(schema.names[0]) if marked == b"yes" else None
    types = pyarrow("types")
    for field in schema:
        if types.is_string(field.type) or types.is_large_string(field.type):
            return str(field.name)
    index = _frame_index(schema)
    if index in schema.names:
        if more := [name for name in schema.names if name != index and names_clients(name)]:
            raise InputError("two columns of ids", got=[index, *more], fix="remove one of them")
        return index
    if schema.names and names_clients(schema.names[0]):
        return str(schema.names[0])
    return None


def _frame_index(schema: Any) -> str | None:
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


def is_clean(path: Path) -> bool:
    """Tell whether a file has a row per client and a column of whole numbers per class.

    Its first column is that of the clients, if they have names; a data frame has them as its index.
    """
    with readable(path):
        schema = open_file(path).schema_arrow
    if len(set(schema.names)) < len(schema.names):
        raise InputError(f"{path} has two columns of the same name", got=schema.names)
    clients, index = _id_column(schema), _frame_index(schema)
    if clients is not None and (schema.metadata or {}).get(_NAMED) is None:
        unnamed = clients == index and (not clients or clients.startswith("__index"))
        if not unnamed and not (names_clients(clients) and clients in (schema.names[0], index)):
            return False
    counts = [name for name in schema.names if name != clients]
    types = pyarrow("types")
    return all(types.is_integer(schema.field(name).type) for name in counts)


def has_clients(path: Path) -> bool:
    """Tell whether a clean file names its clients."""
    with opened(path) as source:
        return source.id_column is not None


def cell_rows(path: Path, options: Options) -> Rows:
    """Return the rows of a file as text; of samples only the columns that are needed."""
    needed = (options.client, options.label) if options.client and not options.count else ()
    kinds = column_kinds(path)
    with readable(path):
        index = _frame_index(open_file(path).schema_arrow)
    # A data frame's index is its last column.
    kinds = {name: kinds[name] for name in sorted(kinds, key=lambda name: name != index)}
    names = [name for name in kinds if name in needed or not all(needed) or not needed]
    readable_names = [name for name in names if not kinds[name].startswith("nested")]

    def rows() -> Iterator[list[str]]:
        yield names
        for row in value_rows(path, readable_names, allow_null=True):
            cells = dict(zip(readable_names, row, strict=True))
            yield ["" if cells.get(n, n) is None else str(cells.get(n, "(nested)")) for n in names]

    return Rows(path, enumerate(rows()), "row")


def check_start(path: Path) -> None:
    """Refuse a file with doubtful columns, by its first rows, before it is streamed.

    Only columns can be judged from some of the rows.
    """
    with opened(path) as source:
        batch = next(source.batches(), None)
        if batch is None:
            return
        values = np.column_stack(batch.columns).astype(np.int64)
        clients = tuple(f"row {k}" for k in range(len(values)))
        table = Table(values, clients, tuple(source.columns))
    doubts = tuple(find_doubts(table))
    if doubts and not is_as_written(path):
        raise refusal(str(path), doubts)


def is_as_written(path: Path) -> bool:
    """Tell whether fedeas wrote a file, and nobody changed it since."""
    with opened(path) as source:
        if source.written_hash is None:
            return False
    table, digest = read(path)
    return content_hash(table) == digest


def read(path: Path) -> tuple[Table, str | None]:
    """Read a whole table, and its hash as fedeas wrote it; None in a file from elsewhere."""
    with opened(path) as source:
        width = len(source.columns) + (_NAME_CELLS if source.id_column is not None else 0)
        check_cells(
            source.rows * width,
            f"{path} with {source.rows:,} clients",
            "plan it as a stream (`fedeas plan FILE` with a local policy, or plan_stream)",
        )
        values = np.empty((source.rows, len(source.columns)), np.int64)
        names: list[str] = []
        start = 0
        for batch in source.batches(named=True):
            stop = start + len(batch.columns[0])
            for c, column in enumerate(batch.columns):
                values[start:stop, c] = column
            names.extend(batch.clients or ())
            start = stop
        values.setflags(write=False)  # so that `LabelCounts` need not copy it
        clients, classes = None if source.id_column is None else tuple(names), tuple(source.columns)
        doubts = tuple(label_doubts(classes))
        return Table(values, clients, classes, source.meta, doubts=doubts), source.written_hash


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


def write(
    path: Path,
    values: NDArray[np.int64],
    clients: Sequence[str] | None,
    classes: Sequence[str] | None,
    meta: Mapping[str, Any] | None,
    saved: str | None = None,
) -> None:
    """Write a whole table, with its hash if it is given."""
    names = classes or [str(c) for c in range(values.shape[1])]
    with Writer(path, names, named=clients is not None, meta=meta, saved=saved) as writer:
        writer.add(values, clients)


def _dump_meta(meta: Mapping[str, Any] | None) -> dict[bytes, bytes]:
    return {} if meta is None else {_META: json.dumps(meta).encode()}


def _load_meta(path: Path, metadata: Mapping[bytes, bytes] | None) -> Mapping[str, Any] | None:
    meta = parse_json((metadata or {}).get(_META, b"null"), f"the plan's metadata in {path}")
    return meta if isinstance(meta, dict) else None
