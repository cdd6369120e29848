"""Frames of pandas and polars and NumPy arrays as rows, and back with all their types.

A frame's own methods are used, so that neither library is imported here.
"""

import sys
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedeas.data.identifiers import numbers_name_rows, texts_name_rows
from fedeas.data.schema import Column, Schema, all_whole
from fedeas.errors import InputError

Rows = NDArray[np.float32]


def is_frame(data: object) -> bool:
    """Tell whether something is a frame of pandas or polars."""
    return any(
        name in sys.modules and isinstance(data, sys.modules[name].DataFrame)
        for name in ("pandas", "polars")
    )


def is_rows(data: object) -> bool:
    """Tell whether something is a frame, or a NumPy array of rows of a table."""
    if not isinstance(data, np.ndarray):
        return is_frame(data)
    return data.ndim == 2 and data.dtype.kind in "fiubO"


@dataclass(frozen=True, eq=False)
class Frame:
    """A frame or array as rows of float32, with what is needed to add rows to it.

    Columns that name a row are not among those of the schema: rows that are added have gaps there.
    """

    data: Any
    schema: Schema
    categories: tuple[tuple[Any, ...], ...]  # of every column, as values of its own type
    rows: Rows
    places: tuple[int, ...]  # of the schema's columns among those of the data
    blank: frozenset[int]  # columns that rows which are added leave empty

    @classmethod
    def of(cls, data: Any, schema: Schema | None = None) -> "Frame":
        """Read a frame; what its columns hold is found, or given by a schema."""
        names = column_names(data)
        blank = frozenset(
            at for at, name in enumerate(names) if _names_rows(name, _column(data, at))
        )
        known = {} if schema is None else {column.name: column for column in schema.columns}
        places = tuple(at for at, name in enumerate(names) if at not in blank or name in known)
        if schema is not None and schema.names != tuple(names[at] for at in places):
            raise InputError(
                "the table has other columns than the generator",
                got=[name for name in names if name not in known] or list(names),
                allowed=", ".join(schema.names),
            )
        if not places:
            raise InputError("every column names its row: nothing can be learnt", got=list(names))
        _say_blank(data, sorted(blank))
        found = [_read(names[at], _column(data, at), known.get(names[at])) for at in places]
        columns, categories, values = zip(*found, strict=True)
        rows = np.column_stack(values).astype(np.float32)
        schema = schema or Schema(tuple(columns))
        return cls(data, schema, tuple(categories), rows, places, blank)

    def with_rows(self, rows: Rows) -> Any:
        """Return the frame or array with further rows at its end, all columns of their own type."""
        columns: list[Any] = [[None] * len(rows) for _ in column_names(self.data)]
        for at, place in enumerate(self.places):
            if place not in self.blank:
                columns[place] = _written(rows[:, at], self.categories[at])
        if isinstance(self.data, np.ndarray):
            more = np.empty((len(rows), len(columns)), self.data.dtype)
            for at, values in enumerate(columns):
                more[:, at] = values
            return np.concatenate([self.data, more])
        library = sys.modules[type(self.data).__module__.split(".", maxsplit=1)[0]]
        own = self.data
        if hasattr(own, "iloc"):
            more = library.DataFrame(
                {
                    at: library.Series(_typed(values, dtype), dtype=dtype)
                    for at, (values, dtype) in enumerate(zip(columns, own.dtypes, strict=True))
                }
            )
            more.columns = own.columns
            return library.concat([own, more], ignore_index=True)
        series = [
            library.Series(name, _or_none(values), dtype=dtype, strict=False)
            for name, values, dtype in zip(own.columns, columns, own.dtypes, strict=True)
        ]
        return library.concat([own, library.DataFrame(series)])


def _names_rows(name: str, values: Any) -> bool:
    """Tell whether a column names its rows."""
    numbers = _numbers(values)
    if numbers is not None:
        return numbers_name_rows(name, numbers)
    items = [item for item in _items(name, values) if item is not None]
    if all(isinstance(item, str) for item in items):
        return texts_name_rows(name, len(set(items)), len(items))
    if all(type(item) in (int, float) for item in items):  # of an array of objects
        return numbers_name_rows(name, np.array(items, np.float64))
    return False


def _say_blank(data: Any, blank: Sequence[int]) -> None:
    """Warn of columns that synthetic rows leave empty, and refuse those that cannot be empty."""
    if not blank:
        return
    names = [column_names(data)[at] for at in blank]
    for at, name in zip(blank, names, strict=True):
        dtype = _column(data, at).dtype
        if isinstance(dtype, np.dtype) and dtype.kind in "iu":
            raise InputError(
                f"column {name!r} names its rows, and synthetic rows cannot leave it empty",
                got=str(dtype),
                fix="drop the column, or let its type have gaps, such as Int64 of pandas",
            )
    warnings.warn(
        f"synthetic rows have no value of {', '.join(map(repr, names))}: these columns name real "
        "rows; drop them if a model is not to see them",
        UserWarning,
        stacklevel=2,
    )


def column_names(data: Any) -> tuple[str, ...]:
    """Return the names of columns; an array has numbers."""
    if isinstance(data, np.ndarray):
        return tuple(map(str, range(data.shape[1])))
    return tuple(map(str, data.columns))


def _column(data: Any, at: int) -> Any:
    if isinstance(data, np.ndarray):
        return data[:, at]
    return data.iloc[:, at] if hasattr(data, "iloc") else data[data.columns[at]]


def _read(
    name: str, values: Any, known: Column | None
) -> tuple[Column, tuple[Any, ...], NDArray[np.float64]]:
    """Return what a column holds, its categories as they are, and its values as rows have them."""
    numbers = None if known is not None and known.categories else _numbers(values)
    if numbers is not None:
        present = numbers[~np.isnan(numbers)]
        if not np.isfinite(present).all():
            raise InputError(f"column {name!r} has infinity", allowed="numbers, or gaps")
        whole = all_whole(present)
        return known or Column(name, whole=whole), (), numbers
    items = _items(name, values)
    present_items = {item for item in items if item is not None}
    declared = (
        list(values.cat.categories) if hasattr(values, "iloc") and hasattr(values, "cat") else []
    )
    own = declared or sorted(present_items, key=lambda item: (type(item).__name__, item))
    if known is not None:
        own = _in_order(name, own, present_items, known)
    place = {item: float(code) for code, item in enumerate(own)}
    codes = np.array([place.get(item, np.nan) for item in items], np.float64)
    return known or Column(name, tuple(map(str, own))), tuple(own), codes


def _numbers(values: Any) -> NDArray[np.float64] | None:
    """Return a column of numbers with NaN for gaps; None if it holds something else."""
    dtype = values.dtype
    if hasattr(dtype, "is_numeric"):  # polars
        if not dtype.is_numeric():
            return None
        return np.array([np.nan if v is None else v for v in values.to_list()], np.float64)
    if dtype.kind not in "fiu":
        return None
    if isinstance(values, np.ndarray):
        return values.astype(np.float64)
    found: NDArray[np.float64] = values.to_numpy(dtype=np.float64, na_value=np.nan)
    return found


def _items(name: str, values: Any) -> list[Any]:
    """Return the values of a column of categories, None for gaps."""
    found: list[Any] = values.tolist() if hasattr(values, "tolist") else values.to_list()
    kind = str(values.dtype)
    if hasattr(values, "isna"):  # pandas
        found = [None if gap else v for v, gap in zip(found, values.isna().tolist(), strict=True)]
    found = _or_none(found)
    if odd := [item for item in found if not isinstance(item, str | bool | int | float | None)]:
        raise InputError(
            f"column {name!r} holds {kind}", got=odd[0], allowed="numbers, texts, true or false"
        )
    return found


def _in_order(name: str, own: Sequence[Any], present: set[Any], known: Column) -> list[Any]:
    """Return a column's categories in the order of a schema; one that it lacks is a text."""
    by_text = {str(item): item for item in own}
    if strange := sorted(str(item) for item in present if str(item) not in known.categories):
        raise InputError(
            f"column {name!r} has a category that the generator does not know",
            got=strange[0],
            allowed=", ".join(known.categories[:10]),
        )
    return [by_text.get(text, text) for text in known.categories]


def _written(values: Rows, categories: tuple[Any, ...]) -> list[Any] | NDArray[np.float64]:
    """Return a column's values, or its categories, None for gaps."""
    if not categories:
        return values.astype(np.float64)
    return [None if np.isnan(code) else categories[int(code)] for code in values.tolist()]


def _or_none(values: Any) -> list[Any]:
    return [None if v is None or v != v else v for v in list(values)]  # noqa: PLR0124 - only NaN is


def _typed(values: Any, dtype: Any) -> Any:
    """Return numbers in a form that pandas takes for a type of whole numbers."""
    if isinstance(values, np.ndarray) and getattr(dtype, "kind", "") in "iu":
        return _or_none(values) if np.isnan(values).any() else values.astype(np.int64)
    return values
