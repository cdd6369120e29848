"""Tables, with synthetic rows after the real ones: frames of pandas and polars, NumPy arrays.

A frame's own methods are used, so that neither library is imported here, and all columns keep their
types.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedeas._internal.files import check_cells
from fedeas._internal.frames import is_frame
from fedeas._internal.specs import parse
from fedeas.augmentation.synthetic import Arrays, synthesize
from fedeas.cache import ClientSamples
from fedeas.data.columns import encode_column, infer_column, names_rows, numbers_name_rows
from fedeas.data.parquet import Values
from fedeas.data.schema import Column, Schema
from fedeas.errors import InputError
from fedeas.generators import Classes, Generator, LocalArrays

Rows = NDArray[np.float32]
Ints = NDArray[np.int64]


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
        """Read a frame; what its columns hold is found, or given by a schema.

        A column that names its rows is refused: no synthetic row may have a real one's name.
        """
        names = column_names(data)
        series = [_column(data, at) for at in range(len(names))]
        by_name = {} if schema is None else {column.name: column for column in schema.columns}
        read = [_values(n, v, by_name.get(n)) for n, v in zip(names, series, strict=True)]
        for name, (values, originals) in zip(names, read, strict=True):
            if name not in by_name and _names_rows(name, values, originals):
                raise InputError(
                    f"column {name!r} names its rows, and a synthetic row has no name",
                    fix="drop the column; a model learns nothing from it",
                )
        if schema is not None and schema.names != names:
            raise InputError(
                "the table has other columns than the generator",
                got=[name for name in names if name not in by_name] or list(names),
                allowed=", ".join(schema.names),
            )
        parts = [_encode(n, *each, by_name.get(n)) for n, each in zip(names, read, strict=True)]
        columns, categories, values = zip(*parts, strict=True)
        rows = np.column_stack(values).astype(np.float32)
        return cls(data, schema or Schema(tuple(columns)), tuple(categories), rows)

    def with_rows(self, rows: Rows) -> Any:
        """Return the frame or array with further rows at its end, all columns of their own type."""
        frame = self.data
        columns = [_written(rows[:, at], known) for at, known in enumerate(self.categories)]
        if isinstance(frame, np.ndarray):
            more = np.empty((len(rows), len(columns)), frame.dtype)
            for at, values in enumerate(columns):
                more[:, at] = values
            return np.concatenate([frame, more])
        library = sys.modules[type(frame).__module__.split(".", maxsplit=1)[0]]
        if hasattr(frame, "iloc"):
            more = library.DataFrame(
                {
                    at: library.Series(_typed(values, dtype), dtype=dtype)
                    for at, (values, dtype) in enumerate(zip(columns, frame.dtypes, strict=True))
                }
            )
            more.columns = frame.columns
            return library.concat([frame, more], ignore_index=True)
        series = [
            library.Series(name, _or_none(values), dtype=dtype, strict=False)
            for name, values, dtype in zip(frame.columns, columns, frame.dtypes, strict=True)
        ]
        return library.concat([frame, library.DataFrame(series)])


def _names_rows(name: str, values: Values, originals: dict[str, Any]) -> bool:
    """Tell whether a column names its rows; objects that are all numbers count as numbers."""
    known = list(originals.values())
    if values.codes is None or not known or any(type(item) not in (int, float) for item in known):
        return names_rows(name, values)
    numbers = np.array(known, np.float64)[values.codes[values.codes >= 0]]
    return numbers_name_rows(name, numbers)


def column_names(data: Any) -> tuple[str, ...]:
    """Return the names of columns; an array has numbers."""
    if isinstance(data, np.ndarray):
        return tuple(map(str, range(data.shape[1])))
    return tuple(map(str, data.columns))


def _column(data: Any, at: int) -> Any:
    if isinstance(data, np.ndarray):
        return data[:, at]
    return data.iloc[:, at] if hasattr(data, "iloc") else data[data.columns[at]]


def _encode(
    name: str, values: Values, originals: dict[str, Any], declaration: Column | None
) -> tuple[Column, tuple[Any, ...], NDArray[np.float64]]:
    """Return what a column holds, its categories as they are, and its values as rows have them."""
    if values.numbers is not None and np.isinf(values.numbers).any():
        raise InputError(f"column {name!r} has infinity", allowed="numbers, or gaps")
    if values.numbers is None and declaration is not None and not declaration.categories:
        raise InputError(f"column {name!r} holds texts", allowed="numbers, as the generator has")
    column = declaration or infer_column(name, values)
    categories = tuple(originals.get(text, text) for text in column.categories)
    return column, categories, encode_column(column, values)


def _values(name: str, series: Any, declaration: Column | None) -> tuple[Values, dict[str, Any]]:
    """Return a column's values, and what each of its texts is in the frame.

    Numbers are numbers, unless the frame or what a schema declares calls them categories.
    """
    numbers = None if declaration is not None and declaration.categories else _numbers(series)
    if numbers is not None:
        return Values("number", len(numbers), numbers=numbers), {}
    items = _items(name, series)
    declared = hasattr(series, "iloc") and hasattr(series, "cat")
    known = list(series.cat.categories) if declared else sorted(
        {item for item in items if item is not None},
        key=lambda item: (type(item).__name__, item),
    )  # fmt: skip
    place = {item: code for code, item in enumerate(known)}
    codes = np.array([-1 if item is None else place[item] for item in items], np.int64)
    texts = tuple(map(str, known))
    values = Values("text", len(items), codes=codes, texts=texts, ordered=True)
    return values, {str(item): item for item in known}


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
    numbers: NDArray[np.float64] = values.to_numpy(dtype=np.float64, na_value=np.nan)
    return numbers


def _items(name: str, values: Any) -> list[Any]:
    """Return the values of a column of categories, None for gaps."""
    items: list[Any] = values.tolist() if hasattr(values, "tolist") else values.to_list()
    kind = str(values.dtype)
    if hasattr(values, "isna"):  # pandas
        items = [None if gap else v for v, gap in zip(items, values.isna().tolist(), strict=True)]
    items = _or_none(items)
    if odd := [item for item in items if not isinstance(item, str | bool | int | float | None)]:
        raise InputError(
            f"column {name!r} holds {kind}", got=odd[0], allowed="numbers, texts, true or false"
        )
    return items


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


@dataclass(frozen=True)
class LabelNames:
    """Labels of any type as places in a list of classes, and back."""

    classes: tuple[Any, ...]

    @classmethod
    def of(cls, labels: NDArray[Any], classes: Classes | None) -> "LabelNames":
        """Take the classes that are given, in their order, or those of the labels."""
        refuse_missing(labels)
        present = np.unique(labels).tolist()
        if classes is None:
            return cls(tuple(present))
        if isinstance(classes, int):
            return cls(tuple(range(classes)))
        by_text = {str(label): label for label in present}
        return cls(tuple(by_text.get(str(name), name) for name in classes))

    def encode(self, labels: NDArray[Any]) -> Ints:
        """Return the place of every label."""
        place = {label: at for at, label in enumerate(self.classes)}
        if strange := [label for label in np.unique(labels).tolist() if label not in place]:
            raise InputError(
                "a label without a class",
                got=strange[0],
                allowed=", ".join(map(str, self.classes[:20])),
                fix="say classes= if there are more",
            )
        return np.array([place[label] for label in labels.tolist()], np.int64)

    def decode(self, places: Ints, like: NDArray[Any]) -> NDArray[Any]:
        """Return the labels at places, in the type of other labels where they fit it."""
        names = [self.classes[place] for place in places.tolist()]
        try:
            labels = np.array(names, like.dtype) if like.dtype.kind != "U" else np.array(names, str)
        except ValueError:
            raise InputError(
                "a class that is not like the labels", got=names[0], allowed=str(like.dtype)
            ) from None
        return labels


def refuse_missing(labels: Any) -> None:
    """Refuse labels of which some are missing: None, NaN, or a missing value of pandas."""
    missing = np.array([_is_missing(label) for label in np.asarray(labels).ravel()], bool)
    if missing.any():
        raise InputError(
            f"{int(missing.sum()):,} rows have no label",
            got=f"row {int(missing.argmax())}",
            fix="leave these rows out, or say what they are",
        )


def _is_missing(label: Any) -> bool:
    try:
        return label is None or bool(label != label)  # noqa: PLR0124 - only NaN is not itself
    except TypeError:  # the missing value of pandas is neither
        return True


def tabular(generator: str | Generator) -> str | Generator:
    """Return a generator for one client's rows: `gaussian` without settings learns from them."""
    if isinstance(generator, str) and parse(generator, "generator") == ("gaussian", {}):
        return "local-gaussian"
    return generator


def known_classes(classes: Classes | None, generator: Generator) -> Classes | None:
    """Return all classes: those that are given, or those that the generator knows."""
    names: Sequence[str] | None = getattr(generator, "classes", None)
    return names if classes is None else classes


def augment_table(
    data: Any, labels: Any, samples: ClientSamples, classes: Classes | None
) -> Arrays:
    """Append synthetic rows to a frame of pandas or polars, or to an array of numbers."""
    values = np.asarray(labels)
    if len(values) != len(data) or values.ndim != 1:
        raise InputError(
            "rows and labels differ in length",
            got=(len(data), values.shape),
            allowed="a label per row",
            fix="join the labels of a row: fedeas.counts.label_sets.name_label_sets",
        )
    samples = replace(samples, generator=tabular(samples.generator))
    generator = samples.open_generator()
    frame = Frame.of(data, getattr(generator, "schema", None))
    known = known_classes(classes, generator)
    names = LabelNames.of(values, known)
    real = names.encode(values)
    texts = [str(name) for name in names.classes]
    samples = replace(samples, generator=generator)
    wanted = int(samples.planned(np.bincount(real, minlength=len(texts)), texts).sum())
    check_cells(wanted * len(frame.schema), f"a table of {wanted:,} synthetic rows", "lower beta")
    own = LocalArrays(frame.rows, real, frame.schema)
    synthetic = synthesize(real, texts, samples, None if known is None else texts, own)
    if not len(synthetic.labels):
        return Arrays(data, labels, len(values))
    new = names.decode(synthetic.labels, values)
    return Arrays(
        frame.with_rows(synthetic.images.astype(np.float32)),
        _joined(labels, values, new),
        len(values),
    )


def _joined(labels: Any, values: NDArray[Any], new: NDArray[Any]) -> Any:
    """Append labels to a list, an array, or a series of pandas or polars."""
    if isinstance(labels, list):
        return labels + new.tolist()
    if hasattr(labels, "iloc"):
        both = np.concatenate([values, new]).tolist()
        return type(labels)(both, name=labels.name, dtype=labels.dtype)
    if hasattr(labels, "to_list") and hasattr(labels, "dtype"):
        return type(labels)(labels.name, labels.to_list() + new.tolist(), dtype=labels.dtype)
    return np.concatenate([values, new])
