"""Tables in files: pyarrow and its errors, the rows of a Parquet file, delimiters of text."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fedeas._internal.files import check_regular, unreadable
from fedeas._internal.optional import import_extra
from fedeas.errors import InputError, first_line

LABEL_COLUMNS = ("label", "labels", "fine_label")
_DELIMITERS = (",", ";", "\t", "|")
_LONGEST_NAME = 800  # bytes: 200 characters


def pyarrow(module: str) -> Any:
    """Return a module of pyarrow, or pyarrow itself for an empty name."""
    return import_extra(f"pyarrow.{module}".rstrip("."), "Parquet", "counts")


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


def most_frequent_delimiter(line: str, expected: str = ",") -> str:
    r"""Return the delimiter that a line has most of, `expected` if none has more than that.

    >>> most_frequent_delimiter("client;flu;cold"), most_frequent_delimiter("a;x,b;y")
    (';', ';')
    >>> most_frequent_delimiter("client,a;x,b;y"), most_frequent_delimiter("client")
    (',', ',')
    """
    return max((expected, *_DELIMITERS), key=line.count)
