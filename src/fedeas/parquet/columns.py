"""Tables column by column, from Parquet, CSV, a data frame or a Hugging Face data set.

A table can be larger in memory than what is made of it, so one column is decoded at a time.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedeas.errors import InputError, first_line
from fedeas.files import check_regular
from fedeas.limits import MAX_TEXT, check_cells
from fedeas.parquet.arrow import open_file, pyarrow, readable, text_columns

TABLE_FILES = (".parquet", ".csv", ".tsv")
_DELIMITERS = (",", ";", "\t", "|")


@dataclass(frozen=True)
class Values:
    """One column: numbers with NaN for gaps, or codes of texts with -1 for gaps.

    `kind` is 'number', 'text', or what else the column holds, in words; then there are no values.
    """

    kind: str
    numbers: NDArray[np.float64] | None = None
    codes: NDArray[np.int64] | None = None
    texts: tuple[str, ...] = ()
    ordered: bool = False  # whether the order of texts means something

    def as_texts(self) -> "Values":
        """Return numbers as texts: 36 and 36.0 are '36'."""
        if self.numbers is None:
            return self
        found, codes = np.unique(self.numbers, return_inverse=True)
        gaps = np.isnan(found)
        texts = (str(int(x)) if float(x).is_integer() else repr(float(x)) for x in found[~gaps])
        return Values("text", codes=np.where(gaps[codes], -1, codes), texts=tuple(texts))


@dataclass(frozen=True)
class OpenTable:
    """A table whose columns are read one at a time.

    Parameters
    ----------
    where : str
        What an error calls the table.
    names : tuple of str
        Its columns.
    sizes : tuple of int
        The rows of its parts, one after the other.
    """

    where: str
    names: tuple[str, ...]
    sizes: tuple[int, ...]
    _column: Callable[[str], Any]  # as a chunked array of Arrow's
    _class_names: dict[str, tuple[str, ...]]  # of Hugging Face's ClassLabel columns

    def read(self, name: str) -> Values:
        """Read one column."""
        refused = pyarrow("").ArrowException
        try:
            column = self._column(name)
            known = self._class_names.get(name)
            return _classes(column, known) if known else _values(column)
        except refused as error:
            raise InputError(f"{self.where} column {name!r}: {first_line(error)}") from None


def open_tables(paths: Sequence[Path]) -> OpenTable:
    """Open files that together are one table; all have the columns of the first."""
    opened = [_open_csv(p) if p.suffix.lower() != ".parquet" else _open_parquet(p) for p in paths]
    for path, one in zip(paths, opened, strict=True):
        if set(one.names) != set(opened[0].names):
            odd = sorted(set(one.names) ^ set(opened[0].names))
            raise InputError(f"{path} and {paths[0]} have different columns", got=odd[:5])

    def column(name: str) -> Any:
        parts = [one._column(name) for one in opened]
        return parts[0] if len(parts) == 1 else _joined(parts)

    where = str(paths[0]) if len(paths) == 1 else str(paths[0].parent)
    known = {k: v for one in opened for k, v in one._class_names.items()}
    sizes = tuple(size for one in opened for size in one.sizes)
    return _checked(OpenTable(where, opened[0].names, sizes, column, known))


def open_frame(frame: Any) -> OpenTable:
    """Open a frame of pandas or polars, an Arrow table, or a Hugging Face data set."""
    pa = pyarrow("")
    known: dict[str, tuple[str, ...]] = {}
    if isinstance(frame, pa.Table):
        names, column = frame.column_names, frame.column
    elif hasattr(frame, "features") and hasattr(frame, "with_format"):  # a Hugging Face data set
        names = list(frame.column_names)
        known = {k: tuple(f.names) for k, f in frame.features.items() if hasattr(f, "names")}
        plain = frame.with_format("arrow")

        def column(name: str) -> Any:
            return plain.select_columns([name])[:].column(name)

    elif hasattr(frame, "to_arrow") and hasattr(frame, "columns"):  # polars
        names = list(frame.columns)

        def column(name: str) -> Any:
            return frame.select(name).to_arrow().column(0)

    elif hasattr(frame, "iloc") and hasattr(frame, "columns"):  # pandas
        names = [str(name) for name in frame.columns]

        def column(name: str) -> Any:
            series = frame.iloc[:, names.index(name)]
            found = pa.Array.from_pandas(series)
            return found if isinstance(found, pa.ChunkedArray) else pa.chunked_array([found])

    else:
        raise InputError(
            "not a table",
            got=type(frame).__name__,
            allowed="a frame of pandas or polars, an Arrow table, or a Hugging Face data set",
            fix="pass one of its splits, e.g. data['train']" if hasattr(frame, "keys") else None,
        )
    return _checked(OpenTable("the table", tuple(names), (len(frame),), column, known))


def _checked(table: OpenTable) -> OpenTable:
    if len(set(table.names)) < len(table.names):
        twice = next(n for n in table.names if table.names.count(n) > 1)
        raise InputError(f"{table.where} has two columns of the same name", got=twice)
    rows = sum(table.sizes)
    if not rows or not table.names:
        raise InputError(f"{table.where} has no rows", allowed="a row per sample")
    check_cells(rows * len(table.names), table.where)
    return table


def _open_parquet(path: Path) -> OpenTable:
    with readable(path):
        schema = open_file(path).schema_arrow
        file = open_file(path, text_columns(schema, schema.names))

    def column(name: str) -> Any:
        with readable(path):
            return file.read([name]).column(0)

    known = _known_classes(schema.metadata)
    return OpenTable(str(path), tuple(schema.names), (file.metadata.num_rows,), column, known)


def _open_csv(path: Path) -> OpenTable:
    check_regular(path, MAX_TEXT, "save it as Parquet")
    refused = pyarrow("").ArrowException
    csv = pyarrow("csv")
    with path.open("rb") as file:
        first = file.readline(1 << 20).decode(errors="replace")
    delimiter = "\t" if path.suffix.lower() == ".tsv" else max(_DELIMITERS, key=first.count)
    try:
        table = csv.read_csv(
            path,
            parse_options=csv.ParseOptions(delimiter=delimiter),
            convert_options=csv.ConvertOptions(strings_can_be_null=True),
        )
    except refused as error:
        raise InputError(f"{path} is not CSV in UTF-8: {first_line(error)}") from None
    names = tuple(name.strip() for name in table.column_names)
    renamed = table.rename_columns(list(names))
    return OpenTable(str(path), names, (len(table),), renamed.column, {})


def _known_classes(metadata: Any) -> dict[str, tuple[str, ...]]:
    """Read the names of classes that Hugging Face data sets keep in a file's header."""
    try:
        features = json.loads((metadata or {}).get(b"huggingface", b"{}"))["info"]["features"]
        return {
            str(name): tuple(map(str, about["names"]))
            for name, about in features.items()
            if isinstance(about, dict) and isinstance(about.get("names"), list)
        }
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {}


def _joined(parts: Sequence[Any]) -> Any:
    """Return chunked arrays one after the other; whole numbers and fractions become fractions."""
    pa, types = pyarrow(""), pyarrow("types")
    numeric = [types.is_integer(p.type) or types.is_floating(p.type) for p in parts]
    if all(numeric) and any(p.type != parts[0].type for p in parts):
        parts = [part.cast(pa.float64(), safe=False) for part in parts]
    return pa.chunked_array([chunk for part in parts for chunk in part.chunks])


def _values(column: Any) -> Values:
    """Return the values of a column of any type."""
    pa, types, kind = pyarrow(""), pyarrow("types"), column.type
    if types.is_dictionary(kind) and not _is_text(kind.value_type):
        return _values(column.cast(kind.value_type)).as_texts()
    if types.is_boolean(kind):
        return _texts(column.cast(pa.string()))
    if types.is_dictionary(kind) or _is_text(kind):
        return _texts(column)
    if types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind):
        found = column.cast(pa.float64(), safe=False).to_numpy()
        return Values("number", numbers=np.asarray(found, np.float64))
    if types.is_null(kind):
        return Values("nothing")
    return Values("dates or times" if types.is_temporal(kind) else str(kind))


def _classes(column: Any, names: tuple[str, ...]) -> Values:
    """Return the values of a ClassLabel column, which has whole numbers for names; -1 is a gap."""
    found = _values(column).numbers
    if found is None:
        return _values(column)
    codes = np.where(np.isnan(found), -1, found).astype(np.int64)
    if codes.min() < -1 or codes.max() >= len(names):
        raise InputError(
            "a label out of range", got=int(codes.max()), allowed=f"0 to {len(names) - 1}"
        )
    return Values("text", codes=codes, texts=names, ordered=True)


def _is_text(kind: Any) -> bool:
    types = pyarrow("types")
    is_view = getattr(types, "is_string_view", lambda _: False)
    return bool(types.is_string(kind) or types.is_large_string(kind) or is_view(kind))


def _texts(column: Any) -> Values:
    """Return texts without spaces around them, each different one once; an empty one is a gap."""
    pa, types = pyarrow(""), pyarrow("types")
    if not types.is_dictionary(column.type):
        column = pa.chunked_array(
            [chunk.cast(pa.large_string()).dictionary_encode() for chunk in column.chunks],
            pa.dictionary(pa.int32(), pa.large_string()),
        )
    whole = column.unify_dictionaries().combine_chunks()
    whole = whole.chunk(0) if isinstance(whole, pa.ChunkedArray) else whole
    raw = [(text or "").strip() for text in whole.dictionary.to_pylist()]
    found = whole.indices.cast(pa.int64()).fill_null(len(raw)).to_numpy(zero_copy_only=False)
    used = np.bincount(found, minlength=len(raw) + 1)
    texts = tuple(dict.fromkeys(t for t, times in zip(raw, used, strict=False) if t and times))
    place = {text: code for code, text in enumerate(texts)}
    codes = np.array([*(place.get(text, -1) for text in raw), -1], np.int64)
    return Values("text", codes=codes[found], texts=texts)
