"""pyarrow and its errors: the one module that imports it."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fedeas.errors import InputError, MissingExtraError, first_line
from fedeas.files import check_regular, unreadable

_LONGEST_NAME = 800  # bytes: 200 characters


def pyarrow(module: str) -> Any:
    """Return a module of pyarrow, or pyarrow itself for an empty name."""
    try:
        import pyarrow
        import pyarrow.compute
        import pyarrow.csv
        import pyarrow.parquet
        import pyarrow.types
    except ModuleNotFoundError:
        raise MissingExtraError("Parquet", "parquet") from None
    return getattr(pyarrow, module) if module else pyarrow


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """Turn errors of pyarrow or the operating system about a file into our own."""
    refused = pyarrow("").ArrowException
    check_regular(path)
    try:
        yield
    except refused as error:
        raise _damaged(path, error) from None
    except OSError as error:
        if error.errno is None:  # of pyarrow: about the content, not of the system
            raise _damaged(path, error) from None
        raise unreadable(path, error) from None


def _damaged(path: Path, error: Exception) -> InputError:
    return InputError(f"{path} is not a readable Parquet file: {first_line(error)}")


def open_file(path: Path, texts: Sequence[str] = ()) -> Any:
    """Open a file; read ahead would hold all of it in the end.

    Columns of `texts` stay as the file holds them, each different value once.
    """
    return pyarrow("parquet").ParquetFile(path, pre_buffer=False, read_dictionary=list(texts))


def text_columns(schema: Any, names: Sequence[str]) -> list[str]:
    """Return those of the columns that hold text."""
    types = pyarrow("types")
    kinds = {name: schema.field(name).type for name in names}
    return [name for name, t in kinds.items() if types.is_string(t) or types.is_large_string(t)]


def batches_of(path: Path, file: Any, rows: int, columns: Sequence[str]) -> Iterator[Any]:
    """Yield batches of rows; a generator, so that only reading them is blamed on the file."""
    with readable(path):
        yield from file.iter_batches(rows, columns=list(columns))


def values_of(path: Path, column: Any) -> list[Any]:
    """Return a column's values; a long text that a file repeats is refused while there is one."""
    if pyarrow("types").is_dictionary(column.type):
        compute = pyarrow("compute")
        longest = compute.max(compute.binary_length(column.dictionary)).as_py() or 0
        if longest > _LONGEST_NAME:
            raise InputError(
                f"{path} holds a name of {longest:,} bytes", allowed="1 to 200 characters"
            )
        column = column.dictionary_decode()
    values: list[Any] = column.to_pylist()
    return values


def column_names(path: Path) -> list[str]:
    """Return the names of a file's columns."""
    with readable(path):
        return list(open_file(path).schema_arrow.names)


def column_kinds(path: Path) -> dict[str, str]:
    """Return what the columns of a file hold: 'whole' numbers, 'text', or something 'other'."""
    types = pyarrow("types")
    with readable(path):
        schema = open_file(path).schema_arrow
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
    with readable(path):
        file = open_file(path, text_columns(open_file(path).schema_arrow, columns))
    for batch in batches_of(path, file, 65_536, columns):
        decoded = [values_of(path, batch.column(name)) for name in columns]
        for row in zip(*decoded, strict=True):
            if not allow_null and None in row:
                raise InputError(f"{path} has rows without {' or '.join(map(repr, columns))}")
            yield row
