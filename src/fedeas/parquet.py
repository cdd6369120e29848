"""The one place that touches Parquet: whole tables, single columns, and streams of row blocks.

A table has one column of whole numbers per class and, if clients have names, one of names.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedeas.errors import InputError, MissingExtraError
from fedeas.files import unreadable

_META = b"fedeas"
_NAMED = b"fedeas.named"  # whether the first column holds the names of clients
LABEL_COLUMNS = ("label", "labels", "fine_label")
LARGEST = 2**53  # whole numbers up to here are exact in double precision
# Cells that are decoded at a time when streaming; a few such batches are held.
BATCH_CELLS = 1 << 20


class Batch(NamedTuple):
    """Some consecutive rows: one array per class, and the names of the clients if asked for."""

    columns: list[NDArray[np.integer]]
    clients: list[str] | None


class Source:
    """An open Parquet file of counts: its size, its names, and its rows in batches."""

    def __init__(
        self, path: Path, names_clients: Callable[[str], bool], drop: Sequence[str] = ()
    ) -> None:
        self._path = path
        # Read ahead would hold the whole file in the end.
        self._file = _pyarrow("parquet").ParquetFile(path, pre_buffer=False)
        schema = self._file.schema_arrow
        types = _pyarrow("types")
        if len(set(schema.names)) < len(schema.names):
            raise InputError(f"{path} has two columns of one name", got=schema.names)
        for name in drop:
            if name not in schema.names:
                raise InputError(
                    f"{path} has no such column", got=name, allowed=", ".join(schema.names[:20])
                )
            schema = schema.remove(schema.get_field_index(name))
        self.id_column = _id_column(schema, names_clients)
        self.columns: list[str] = [name for name in schema.names if name != self.id_column]
        if not self.columns:
            raise InputError(f"{path} has no counts", allowed="a column of counts per class")
        for name in self.columns:
            kind = schema.field(name).type
            if not types.is_integer(kind):
                raise InputError(
                    f"{path} column {name!r} is of type {kind}",
                    allowed="whole numbers, and one first column of client names",
                )
        self.rows: int = self._file.metadata.num_rows
        self.meta = _load_meta(self._file.metadata.metadata)

    def batches(self, *, named: bool = False) -> Iterator[Batch]:
        """Yield the rows as they are decoded; names of clients only if asked for."""
        named = named and self.id_column is not None
        columns = [self.id_column, *self.columns] if named else self.columns
        rows = max(1, BATCH_CELLS // max(1, len(self.columns)))
        for batch in self._file.iter_batches(rows, columns=columns):
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
            clients = [str(name) for name in batch.columns[0].to_pylist()] if named else None
            yield Batch(counts, clients)


def _id_column(schema: Any, names_clients: Callable[[str], bool]) -> str | None:
    """Find the column of client names: marked by us, of text, a frame's index, or headed so."""
    marked = (schema.metadata or {}).get(_NAMED)
    if marked is not None:
        return str(schema.names[0]) if marked == b"yes" else None
    types = _pyarrow("types")
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
    except (ValueError, KeyError, TypeError, IndexError):
        return None
    return index if isinstance(index, str) else None


@contextmanager
def opened(
    path: Path, names_clients: Callable[[str], bool], drop: Sequence[str] = ()
) -> Iterator[Source]:
    """Open a Parquet file of counts; whatever is wrong with it ends in one clear line."""
    with _readable(path):
        yield Source(path, names_clients, drop)


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Turn what pyarrow or the system say against a file into our own error."""
    pyarrow = _pyarrow("")
    try:
        yield
    except pyarrow.ArrowException as error:
        first_line = str(error).partition("\n")[0]
        raise InputError(f"{path} is not a readable Parquet file: {first_line}") from None
    except OSError as error:
        raise unreadable(path, error) from None


def read(
    path: Path, names_clients: Callable[[str], bool], drop: Sequence[str] = ()
) -> tuple[NDArray[np.int64], tuple[str, ...] | None, tuple[str, ...], Mapping[str, Any] | None]:
    """Read a whole table: values, client names, class names, and what a plan adds."""
    with opened(path, names_clients, drop) as source:
        values = np.empty((source.rows, len(source.columns)), np.int64)
        clients: list[str] = []
        start = 0
        for batch in source.batches(named=True):
            stop = start + len(batch.columns[0])
            for c, column in enumerate(batch.columns):
                values[start:stop, c] = column
            clients.extend(batch.clients or ())
            start = stop
        names = tuple(clients) if source.id_column else None
        return values, names, tuple(source.columns), source.meta


def read_column(path: Path, name: str | None) -> NDArray[np.int64]:
    """Read one column of whole numbers, the labels of a data set, without its images."""
    with _readable(path):
        file = _pyarrow("parquet").ParquetFile(path)
        names = file.schema_arrow.names
        chosen = name or next((n for n in LABEL_COLUMNS if n in names), None)
        if chosen not in names:
            raise InputError(f"{path} has no column of labels", got=name, allowed=", ".join(names))
        column = file.read([chosen]).column(0)
        if not _pyarrow("types").is_integer(column.type) or column.null_count:
            raise InputError(f"{path} column {chosen!r} is not whole numbers throughout")
        return np.asarray(column.to_numpy(), dtype=np.int64)


class ImageHead(NamedTuple):
    """What is known of a set of images before any is read."""

    rows: int
    classes: tuple[str, ...]


def column_names(path: Path) -> list[str]:
    """Return the names of a file's columns."""
    with _readable(path):
        return list(_pyarrow("parquet").ParquetFile(path).schema_arrow.names)


def column_kinds(path: Path) -> dict[str, str]:
    """Return what the columns of a file hold: 'whole' numbers, 'text', or something 'other'."""
    types = _pyarrow("types")
    with _readable(path):
        schema = _pyarrow("parquet").ParquetFile(path).schema_arrow
    kinds = {}
    for field in schema:
        kind = field.type
        text = types.is_string(kind) or types.is_large_string(kind) or types.is_dictionary(kind)
        kinds[str(field.name)] = "whole" if types.is_integer(kind) else "text" if text else "other"
    return kinds


def value_rows(
    path: Path, columns: Sequence[str], allow_null: bool = False
) -> Iterator[tuple[Any, ...]]:
    """Yield the values of some columns row by row, a few thousand decoded at a time."""
    with _readable(path):
        file = _pyarrow("parquet").ParquetFile(path, pre_buffer=False)
        for batch in file.iter_batches(65_536, columns=list(columns)):
            decoded = [batch.column(name).to_pylist() for name in columns]
            for row in zip(*decoded, strict=True):
                if not allow_null and None in row:
                    raise InputError(f"{path} has rows without {' or '.join(map(repr, columns))}")
                yield row


def image_head(paths: Sequence[Path]) -> ImageHead:
    """Return the size of a set of images and the names of its classes, from the files' heads."""
    rows, classes = 0, tuple[str, ...]()
    for path in paths:
        with _readable(path):
            file = _pyarrow("parquet").ParquetFile(path)
            rows += file.metadata.num_rows
            classes = max(classes, _class_names(path, file), key=len)
    return ImageHead(rows, classes)


def image_batches(path: Path) -> Iterator[tuple[list[bytes], NDArray[np.int64]]]:
    """Yield encoded images and their labels, a few hundred at a time."""
    with _readable(path):
        file = _pyarrow("parquet").ParquetFile(path, pre_buffer=False)
        image, label = _image_columns(path, file)
        for batch in file.iter_batches(512, columns=[image, label]):
            encoded = batch.column(image).field("bytes").to_pylist()
            if batch.column(label).null_count or None in encoded:
                raise InputError(f"{path} has rows without an image or a label")
            yield encoded, np.asarray(batch.column(label).to_numpy(), dtype=np.int64)


def write_images(
    path: Path, encoded: Sequence[bytes], labels: Sequence[int], classes: Sequence[str]
) -> None:
    """Write encoded images and their labels as data sets of the Hugging Face hub have them."""
    features = {"label": {"names": list(classes), "_type": "ClassLabel"}}
    metadata = {b"huggingface": json.dumps({"info": {"features": features}}).encode()}
    images = [{"bytes": content, "path": None} for content in encoded]
    table = _pyarrow("").table({"image": images, "label": list(labels)})
    _pyarrow("parquet").write_table(table.replace_schema_metadata(metadata), path)


def _image_columns(path: Path, file: Any) -> tuple[str, str]:
    schema = file.schema_arrow
    types = _pyarrow("types")
    images = [
        f.name for f in schema if types.is_struct(f.type) and f.type.get_field_index("bytes") >= 0
    ]
    labels = [name for name in LABEL_COLUMNS if name in schema.names]
    if not images or not labels:
        raise InputError(
            f"{path} holds no labelled images",
            got=schema.names,
            allowed="a column of images {bytes, path} and one of labels",
        )
    return images[0], labels[0]


def _class_names(path: Path, file: Any) -> tuple[str, ...]:
    """Read the names of classes that Hugging Face data sets keep in the head of the file."""
    _, label = _image_columns(path, file)
    try:
        head = json.loads((file.schema_arrow.metadata or {}).get(b"huggingface", b"{}"))
        return tuple(map(str, head["info"]["features"][label]["names"]))
    except (ValueError, KeyError, TypeError):
        column = file.read([label]).column(0).to_numpy()
        return tuple(map(str, range(int(column.max()) + 1)))


class Writer:
    """Writes a table block by block; use it as a context."""

    def __init__(
        self,
        path: Path,
        classes: Sequence[str],
        *,
        named: bool,
        meta: Mapping[str, Any] | None = None,
    ) -> None:
        self._pa = _pyarrow("")
        fields = [(name, self._pa.int64()) for name in classes]
        if named:
            # A class may be called "client" too.
            heading = next(
                h for h in ("client", *map("client{}".format, range(10**6))) if h not in classes
            )
            fields.insert(0, (heading, self._pa.string()))
        named_mark = {_NAMED: b"yes" if named else b"no"}
        self._schema = self._pa.schema(fields, metadata=named_mark | _dump_meta(meta))
        self._writer = _pyarrow("parquet").ParquetWriter(path, self._schema)

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
) -> None:
    """Write a whole table."""
    names = classes or [str(c) for c in range(values.shape[1])]
    with Writer(path, names, named=clients is not None, meta=meta) as writer:
        writer.add(values, clients)


def _dump_meta(meta: Mapping[str, Any] | None) -> dict[bytes, bytes]:
    return {} if meta is None else {_META: json.dumps(meta).encode()}


def _load_meta(metadata: Mapping[bytes, bytes] | None) -> Mapping[str, Any] | None:
    try:
        meta = json.loads((metadata or {}).get(_META, b"null"))
    except ValueError:
        return None
    return meta if isinstance(meta, dict) else None


def _pyarrow(module: str) -> Any:
    try:
        import pyarrow
        import pyarrow.parquet
        import pyarrow.types
    except ImportError:
        raise MissingExtraError("Parquet", "parquet") from None
    return getattr(pyarrow, module) if module else pyarrow
