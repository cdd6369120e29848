"""Frames of pandas and polars and NumPy arrays as rows, and back with all their types.

A frame's own methods are used, so that neither library is imported here.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

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
    """A frame or array as rows of float32, with what is needed to add rows to it."""

    data: Any
    schema: Schema
    categories: tuple[tuple[Any, ...], ...]  # of every column, as values of its own type
    rows: Rows

    @classmethod
    def of(cls, data: Any, schema: Schema | None = None) -> "Frame":
        """Read a frame; what its columns hold is found, or given by a schema."""
        names = column_names(data)
        if schema is not None and schema.names != names:
            raise InputError(
                "the table has other columns than the generator",
                got=list(names),
                allowed=", ".join(schema.names),
            )
        found = [
            _read(name, _column(data, at), None if schema is None else schema.columns[at])
            for at, name in enumerate(names)
        ]
        columns, categories, values = zip(*found, strict=True)
        rows = np.column_stack(values).astype(np.float32)
        return cls(data, schema or Schema(tuple(columns)), tuple(categories), rows)

    def with_rows(self, rows: Rows) -> Any:
        """Return the frame or array with further rows at its end, all columns of their own type."""
        columns = [
            _written(rows[:, at], self.categories[at]) for at in range(len(self.schema.columns))
        ]
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
