"""Samples in Parquet: tables column by column, images as the Hugging Face hub has them, exports.

A table can be larger in memory than what is made of it, so one column is decoded at a time.
Tables are also read from CSV, a data frame or a Hugging Face data set.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedeas._internal.arrow import (
    most_frequent_delimiter,
    open_file,
    pyarrow,
    readable,
    text_columns,
)
from fedeas._internal.files import MAX_TEXT, check_cells, check_regular
from fedeas._internal.names import did_you_mean
from fedeas.errors import InputError, first_line

TABLE_FILES = (".parquet", ".csv", ".tsv")
_MOST_BYTES, _MOST_IMAGES = 1 << 28, 512  # of encoded images that are read at a time


@dataclass(frozen=True)
class Values:
    """One column: numbers with NaN for gaps, or codes of texts with -1 for gaps.

    `kind` is 'number', 'text', or what else the column holds, in words; then there are no values.
    """

    kind: str
    size: int
    numbers: NDArray[np.float64] | None = None
    codes: NDArray[np.int64] | None = None
    texts: tuple[str, ...] = ()
    ordered: bool = False  # whether the order of texts means something

    def as_texts(self) -> "Values":
        """Return numbers as texts: 36 and 36.0 are '36'."""
        if self.numbers is None:
            return self
        values, codes = np.unique(self.numbers, return_inverse=True)
        gaps = np.isnan(values)
        texts = (str(int(x)) if float(x).is_integer() else repr(float(x)) for x in values[~gaps])
        codes = np.where(gaps[codes], -1, codes)
        return Values("text", self.size, codes=codes, texts=tuple(texts))


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
    # The same as it is written, if what a column holds depends on all of its rows.
    _written: Callable[[str], Any] | None = None

    def checked(self) -> "OpenTable":
        """Return this table if it has rows, distinct names, and fits into memory."""
        twice = [name for name in self.names if self.names.count(name) > 1]
        if twice:
            raise InputError(f"{self.where} has two columns of the same name", got=twice[0])
        rows = sum(self.sizes)
        if not rows or not self.names:
            raise InputError(f"{self.where} has no rows", allowed="a row per sample")
        check_cells(rows * len(self.names), self.where)
        return self

    def check_column(self, name: str, fix: str | None = None) -> None:
        """Refuse the name of a column that the table does not have."""
        if name not in self.names:
            raise InputError(
                f"{self.where} has no column {name!r}",
                allowed=", ".join(self.names[:20]),
                fix=did_you_mean(name, self.names) or fix,
            )

    def read(self, name: str) -> Values:
        """Read one column."""
        with self._named(name):
            column = self._column(name)
            known = self._class_names.get(name)
            return _classes(column, known) if known else _values(column)

    def read_ids(self, name: str) -> Values:
        """Read a column of ids: what is 007 stays so, whatever ids the other rows have."""
        if name in self._class_names:
            return self.read(name)
        with self._named(name):
            return _values(_with_all_digits((self._written or self._column)(name))).as_texts()

    @contextmanager
    def _named(self, name: str) -> Iterator[None]:
        refused = pyarrow("").ArrowException
        try:
            yield
        except refused as error:
            raise InputError(f"{self.where} column {name!r}: {first_line(error)}") from None


def open_tables(paths: Sequence[Path]) -> OpenTable:
    """Open files that together are one table; all have the columns of the first."""
    opened = [_open_csv(p) if p.suffix.lower() != ".parquet" else _open_parquet(p) for p in paths]
    for path, one in zip(paths, opened, strict=True):
        odd = sorted(set(one.names) ^ set(opened[0].names))
        if odd or one._class_names != opened[0]._class_names:
            raise InputError(
                f"{path} and {paths[0]} have different columns or classes", got=odd[:5]
            )

    def column(name: str) -> Any:
        return _joined([one._column(name) for one in opened])

    def written(name: str) -> Any:
        return _joined([_with_all_digits((one._written or one._column)(name)) for one in opened])

    where = str(paths[0]) if len(paths) == 1 else str(paths[0].parent)
    known = opened[0]._class_names
    sizes = tuple(size for one in opened for size in one.sizes)
    return OpenTable(where, opened[0].names, sizes, column, known, written).checked()


def open_frame(frame: Any) -> OpenTable:
    """Open a frame of pandas or polars, an Arrow table, or a Hugging Face data set."""
    pa = pyarrow("")
    known: dict[str, tuple[str, ...]] = {}
    if hasattr(frame, "iloc"):  # pandas: a column of mixed types cannot be read, and may be dropped
        names = tuple(map(str, frame.columns))

        def column(name: str) -> Any:
            array = pa.Array.from_pandas(frame.iloc[:, names.index(name)])
            return array if isinstance(array, pa.ChunkedArray) else pa.chunked_array([array])

        return OpenTable("the table", names, (len(frame),), column, known).checked()
    if hasattr(frame, "features") and hasattr(frame, "with_format"):  # a Hugging Face data set
        known = {k: tuple(f.names) for k, f in frame.features.items() if hasattr(f, "names")}
        frame = frame.with_format("arrow")[:]
    elif hasattr(frame, "to_arrow"):  # polars
        frame = frame.to_arrow()
    if not isinstance(frame, pa.Table):
        raise InputError(
            "not a table",
            got=type(frame).__name__,
            allowed="a frame of pandas or polars, an Arrow table, or a Hugging Face data set",
            fix="pass one of its splits, e.g. data['train']" if hasattr(frame, "keys") else None,
        )
    names = tuple(frame.column_names)
    return OpenTable("the table", names, (len(frame),), frame.column, known).checked()


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
    pa, csv = pyarrow(""), pyarrow("csv")
    with path.open("rb") as file:
        first = file.readline(1 << 20).decode(errors="replace")
    delimiter = "\t" if path.suffix.lower() == ".tsv" else most_frequent_delimiter(first)
    parsing = csv.ParseOptions(delimiter=delimiter)
    try:
        table = csv.read_csv(
            path,
            parse_options=parsing,
            convert_options=csv.ConvertOptions(strings_can_be_null=True),
        )
        names = tuple(name.strip() for name in table.column_names)
    except (pa.ArrowException, UnicodeDecodeError) as error:
        raise InputError(f"{path} is not CSV in UTF-8: {first_line(error)}") from None
    given = dict(zip(names, table.column_names, strict=True))
    renamed = table.rename_columns(list(names))

    def written(name: str) -> Any:
        text = csv.ConvertOptions(
            include_columns=[given[name]], column_types={given[name]: pa.string()},
            strings_can_be_null=True,
        )  # fmt: skip
        return csv.read_csv(path, parse_options=parsing, convert_options=text).column(0)

    return OpenTable(str(path), names, (len(table),), renamed.column, {}, written)


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


def _with_all_digits(column: Any) -> Any:
    """Return whole numbers as text: beyond 2**53, different ones are the same fraction."""
    pa, types = pyarrow(""), pyarrow("types")
    if types.is_dictionary(column.type) and not _is_text(column.type.value_type):
        column = column.cast(column.type.value_type)
    whole = types.is_integer(column.type) or (
        types.is_decimal(column.type) and column.type.scale <= 0
    )
    return column.cast(pa.string()) if whole else column


def _joined(parts: Sequence[Any]) -> Any:
    """Return chunked arrays one after the other; whole numbers and fractions become fractions."""
    if len(parts) == 1:
        return parts[0]
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
        numbers = column.cast(pa.float64(), safe=False).to_numpy()
        return Values("number", len(column), numbers=np.asarray(numbers, np.float64))
    if types.is_null(kind):
        return Values("nothing", len(column))
    return Values("dates or times" if types.is_temporal(kind) else str(kind), len(column))


def _classes(column: Any, names: tuple[str, ...]) -> Values:
    """Return the values of a ClassLabel column, which has whole numbers for names; -1 is a gap."""
    values = _values(column)
    if values.numbers is None:
        return values
    codes = np.where(np.isnan(values.numbers), -1, values.numbers).astype(np.int64)
    if codes.min() < -1 or codes.max() >= len(names):
        raise InputError(
            "a label out of range", got=int(codes.max()), allowed=f"0 to {len(names) - 1}"
        )
    return Values("text", len(column), codes=codes, texts=names, ordered=True)


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
    indices = whole.indices.cast(pa.int64()).fill_null(len(raw)).to_numpy(zero_copy_only=False)
    used = np.bincount(indices, minlength=len(raw) + 1)
    texts = tuple(dict.fromkeys(t for t, times in zip(raw, used, strict=False) if t and times))
    code_of = {text: code for code, text in enumerate(texts)}
    codes = np.array([*(code_of.get(text, -1) for text in raw), -1], np.int64)
    return Values("text", len(column), codes=codes[indices], texts=texts)


# Images


def has_images(path: Path) -> bool:
    """Tell whether a file holds images, and not only rows of a table."""
    with readable(path):
        return bool(_images_in(open_file(path).schema_arrow))


def encoded_images(path: Path) -> Iterator[bytes]:
    """Yield the encoded images of a file, a few hundred in memory at a time."""
    with readable(path):
        file = open_file(path)
        if not (columns := _images_in(file.schema_arrow)):
            raise InputError(f"{path} has no column of images", got=file.schema_arrow.names)
        for batch in file.iter_batches(_images_at_once(file, columns[0]), columns=columns[:1]):
            images = batch.column(0).field("bytes").to_pylist()
            if None in images:
                raise InputError(f"{path} has rows without an image")
            yield from images


def _images_at_once(file: Any, image: str) -> int:
    """Return how many images are read at a time, so that they fit in memory however large one is.

    A file may hold one value and repeat it: none is larger than its column in one row group.
    """
    groups = map(file.metadata.row_group, range(file.metadata.num_row_groups))
    chunks = (group.column(c) for group in groups for c in range(group.num_columns))
    sizes: list[int] = [
        c.total_uncompressed_size for c in chunks if c.path_in_schema.startswith(f"{image}.")
    ]
    return max(1, min(_MOST_IMAGES, _MOST_BYTES // max([1, *sizes])))


def write_images(
    path: Path, encoded: Sequence[bytes], labels: Sequence[int], classes: Sequence[str]
) -> None:
    """Write encoded images and their labels as data sets of the Hugging Face hub have them."""
    features = {"label": {"names": list(classes), "_type": "ClassLabel"}}
    metadata = {b"huggingface": json.dumps({"info": {"features": features}}).encode()}
    images = [{"bytes": content, "path": None} for content in encoded]
    table = pyarrow("").table({"image": images, "label": list(labels)})
    pyarrow("parquet").write_table(table.replace_schema_metadata(metadata), path)


def _images_in(schema: Any) -> list[str]:
    """Return the columns that hold encoded images."""
    types = pyarrow("types")
    return [
        f.name
        for f in schema
        if types.is_struct(f.type)
        and f.type.get_field_index("bytes") >= 0
        and types.is_binary(f.type.field("bytes").type)
    ]
