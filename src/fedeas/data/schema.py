"""`Schema`: what the columns of a table hold.

A row is a vector of float32 with one entry per column: a number's value, or the code of a category,
0, 1, ...; a missing value is NaN.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedeas._internal.files import atomic_write, check_regular, parse_json
from fedeas.counts.label_counts import names as check_names
from fedeas.errors import InputError

Indices = NDArray[np.intp]
LARGEST_WHOLE = 2**24  # float32 holds all whole numbers up to here exactly
_BLOCK = 65_536  # rows that are checked at a time
_LARGEST_FILE = 1 << 28  # bytes


def all_whole(values: NDArray[np.floating[Any]]) -> bool:
    """Tell whether there are values, all of them whole numbers."""
    return bool(values.size) and bool((np.floor(values) == values).all())


@dataclass(frozen=True)
class Column:
    """One column of a table: numbers, or categories if it has any.

    Parameters
    ----------
    name : str
        The column's name.
    categories : tuple of str
        Its categories, in the order of their codes; empty for a column of numbers.
    whole : bool
        Whether its numbers are whole.
    """

    name: str
    categories: tuple[str, ...] = ()
    whole: bool = False

    def __post_init__(self) -> None:
        check_names((self.name,), 1, "column")
        if not isinstance(self.whole, bool) or (self.whole and self.categories):
            raise InputError(
                f"column {self.name!r}: `whole` is for numbers", got=self.whole, allowed="False"
            )
        check_names(self.categories, len(self.categories), f"{self.name!r} category")
        if len(self.categories) > LARGEST_WHOLE:
            raise InputError(
                f"column {self.name!r} has too many categories",
                got=len(self.categories),
                allowed=f"at most {LARGEST_WHOLE:,}",
            )

    def word(self, value: np.float32) -> str:
        """Return a value of this column as people read it."""
        if self.categories:
            return self.categories[int(value)]
        return str(int(value)) if float(value).is_integer() else str(value)


def check_columns(ours: "Schema | None", theirs: "Schema | None", nouns: tuple[str, str]) -> None:
    """Refuse rows of other columns, or in another order, or whose categories have other codes.

    Parameters
    ----------
    ours, theirs : Schema, optional
        The columns; None: images.
    nouns : pair of str
        What an error calls them.

    >>> age, term = Column("age"), Column("term", ("36", "60"))
    >>> check_columns(Schema((age, term)), Schema((term, age)), ("data", "generator"))
    Traceback (most recent call last):
    fedeas.errors.InputError: column 1 is 'age' in the data and 'term' in the generator; ...
    """
    a, b = nouns
    if ours is None or theirs is None:
        if ours is not theirs:
            kinds = ["images" if schema is None else "rows" for schema in (ours, theirs)]
            raise InputError(f"the {a} has {kinds[0]}, and the {b} {kinds[1]}")
        return
    if len(ours) != len(theirs):
        raise InputError(f"the {a} has {len(ours)} columns, and the {b} {len(theirs)}")
    for place, (one, other) in enumerate(zip(ours.columns, theirs.columns, strict=True), 1):
        if one.name != other.name:
            raise InputError(
                f"column {place} is {one.name!r} in the {a} and {other.name!r} in the {b}",
                fix=f"bring the columns of the {a} into the names and the order of the {b}'s",
            )
        if one.categories != other.categories:
            raise InputError(
                f"column {one.name!r} has other categories in the {a} than in the {b}",
                got=_listed(one.categories),
                allowed=_listed(other.categories),
                fix="give the columns of both: --schema FILE, or `schema`",
            )


def _listed(categories: tuple[str, ...]) -> str:
    """Return some of a column's categories; it has numbers if there are none."""
    more = ", ..." if len(categories) > 8 else ""
    return ", ".join(categories[:8]) + more if categories else "numbers"


@dataclass(frozen=True)
class Schema:
    """The columns of a table, in their order.

    >>> schema = Schema((Column("age", whole=True), Column("term", ("36", "60"))))
    >>> schema.names, schema.numbers.tolist(), schema.categorical.tolist()
    (('age', 'term'), [0], [1])

    Parameters
    ----------
    columns : tuple of Column
        The columns.
    """

    columns: tuple[Column, ...]

    def __post_init__(self) -> None:
        if not self.columns:
            raise InputError("a table without columns", allowed="at least one besides the label")
        check_names(self.names, len(self.columns), "column")

    def __len__(self) -> int:
        return len(self.columns)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns."""
        return tuple(column.name for column in self.columns)

    @cached_property
    def numbers(self) -> Indices:
        """The indices of the columns of numbers."""
        return np.array([i for i, c in enumerate(self.columns) if not c.categories], np.intp)

    @cached_property
    def categorical(self) -> Indices:
        """The indices of the columns of categories."""
        return np.array([i for i, c in enumerate(self.columns) if c.categories], np.intp)

    @cached_property
    def whole(self) -> Indices:
        """The indices of the columns of whole numbers."""
        return np.array([i for i, c in enumerate(self.columns) if c.whole], np.intp)

    def check(self, rows: NDArray[np.float32]) -> None:
        """Refuse rows with an unknown category, a fraction in a whole column, or infinity."""
        if rows.ndim != 2 or rows.shape[1] != len(self):
            raise InputError("rows of another table", got=rows.shape, allowed=f"(n, {len(self)})")
        sizes = np.array([len(c.categories) or np.inf for c in self.columns])
        exact = np.union1d(self.whole, self.categorical)
        for start in range(0, len(rows), _BLOCK):
            part = rows[start : start + _BLOCK]
            wrong = np.isinf(part) | (part >= sizes)
            wrong[:, self.categorical] |= part[:, self.categorical] < 0
            wrong[:, exact] |= np.floor(part[:, exact]) != part[:, exact]
            wrong &= ~np.isnan(part)
            if wrong.any():
                row, column = np.argwhere(wrong)[0].tolist()
                raise self._wrong_value(column, start + row, float(part[row, column]))

    def _wrong_value(self, index: int, row: int, value: float) -> InputError:
        column = self.columns[index]
        allowed = "a number"
        if column.categories:
            allowed = f"a code from 0 to {len(column.categories) - 1}, or a gap"
        elif column.whole:
            allowed = "a whole number"
        return InputError(f"row {row:,}, column {column.name!r}", got=value, allowed=allowed)

    def words(self, rows: NDArray[np.float32]) -> list[list[str]]:
        """Return rows as people read them: names of categories, nothing for a missing value.

        >>> Schema((Column("age", whole=True), Column("home", ("own", "rent")))).words(
        ...     np.array([[30, 1], [np.nan, 0]], np.float32)
        ... )
        [['30', 'rent'], ['', 'own']]
        """
        return [
            ["" if np.isnan(v) else c.word(v) for c, v in zip(self.columns, row, strict=True)]
            for row in rows
        ]

    def save(self, path: Path | str) -> None:
        """Write the schema to a JSON file, which the sites of a federation can agree on."""
        lines = ",\n ".join(json.dumps(column, ensure_ascii=False) for column in self.to_list())
        with atomic_write(Path(path)) as temporary:
            temporary.write_text(f"[{lines}]\n", encoding="utf-8")

    @classmethod
    def load(cls, path: Path | str) -> "Schema":
        """Read a file that `save` wrote."""
        check_regular(Path(path), _LARGEST_FILE, "leave out columns of many categories")
        columns = parse_json(Path(path).read_bytes(), str(path))
        if not isinstance(columns, list):
            raise InputError(f"{path} is not a schema", allowed="a list of columns")
        return cls.from_list(columns)

    def to_list(self) -> list[dict[str, Any]]:
        """Return plain values of JSON."""
        return [
            {"name": c.name, "categories": list(c.categories), "whole": c.whole}
            for c in self.columns
        ]

    @classmethod
    def from_list(cls, body: Sequence[Mapping[str, Any]]) -> "Schema":
        """Make a schema from what `to_list` returned."""
        try:
            columns = tuple(
                Column(str(one["name"]), tuple(map(str, one["categories"])), one["whole"])
                for one in body
            )
        except (KeyError, TypeError):
            raise InputError(
                "not the schema of a table", allowed="a list of name, categories and whole"
            ) from None
        return cls(columns)
