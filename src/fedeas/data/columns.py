"""The schema of a table: found in its columns, corrected by whoever knows better, or given."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedeas.data.identifiers import numbers_name_rows, texts_name_rows
from fedeas.data.schema import LARGEST_WHOLE, Column, Schema, all_whole
from fedeas.errors import InputError
from fedeas.parquet import OpenTable, Values
from fedeas.specs import did_you_mean

Rows = NDArray[np.float32]
Codes = NDArray[np.int64]
_LONGEST = 200  # characters of a category
_MOST_ALONE = 20  # rows in which all categories may be different by chance


@dataclass(frozen=True)
class TableOptions:
    """What a table's columns are, and which rows are for testing.

    Parameters
    ----------
    label : str
        The column of the label.
    site : str
        The column that says which site a row is from; it is not learnt from.
    numbers, categories, leave_out : tuple of str
        Columns that are numbers, that are categories, and that are not learnt from. What the
        others are is found.
    test_share : float
        The share of every class that is held out for testing, where there is no test set.
    test_seed : int
        Decides which rows those are.
    schema : str
        A JSON file of the columns, as sites agreed on them; nothing is found then.
    """

    label: str = "label"
    site: str = ""
    numbers: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    leave_out: tuple[str, ...] = ()
    test_share: float = 0.2
    test_seed: int = 0
    schema: str = ""

    def __post_init__(self) -> None:
        if not 0 <= self.test_share < 1:
            raise InputError(
                "test_share is out of range", got=self.test_share, allowed="from 0, below 1"
            )
        named = [self.label, self.site, *self.numbers, *self.categories, *self.leave_out]
        for name in filter(None, named):
            if named.count(name) > 1:
                raise InputError(
                    f"column {name!r} is named twice",
                    allowed="one of label, site, numbers, categories, leave_out",
                )
        if self.schema and (self.numbers or self.categories or self.leave_out):
            raise InputError(
                "a schema says what all columns are", fix="drop numbers, categories and leave_out"
            )


ALL_FOUND = TableOptions()  # nothing is corrected


@dataclass
class Encoded:
    """The columns of a table as rows hold them, with what was noticed on the way."""

    columns: list[Column] = field(default_factory=list)
    values: list[Rows] = field(default_factory=list)  # one array per column
    notes: list[str] = field(default_factory=list)

    def add(self, column: Column, values: NDArray[np.float64]) -> None:
        """Append a column; gaps are NaN."""
        with np.errstate(over="ignore"):
            kept = values.astype(np.float32)
        if not np.isfinite(kept[~np.isnan(values)]).all():
            raise InputError(
                f"column {column.name!r} has infinite or very large numbers",
                allowed="numbers below 3e38",
                fix="clean them, or name the column in leave_out",
            )
        if column.whole:
            off = float(np.nanmax(np.abs(kept - values), initial=0.0))
            if off:
                self.notes.append(
                    f"{column.name}: whole numbers above {LARGEST_WHOLE:,} are rounded, by at most "
                    f"{off:,.0f}"
                )
        self.columns.append(column)
        self.values.append(kept)


def encode(table: OpenTable, options: TableOptions) -> Encoded:
    """Find out what the columns of a table are, and encode them."""
    made = Encoded()
    if options.schema:
        for column in read_schema(options.schema).columns:
            _given(table, column, made)
        return made
    aside = (options.label, options.site, *options.leave_out)
    for name in table.names:
        if name not in aside:
            _found(name, table.read(name), options, made)
    if not made.columns:
        raise InputError(
            f"{table.where} has no column to learn from", got="; ".join(made.notes[:3]) or None
        )
    return made


def label_codes(table: OpenTable, name: str) -> tuple[tuple[str, ...], Codes]:
    """Return the different values of a column of labels or sites, and which one each row has."""
    found = table.read(name).as_texts()
    if found.codes is None:
        raise InputError(
            f"{table.where} column {name!r} holds {found.kind}", allowed="text or numbers"
        )
    if (gaps := int((found.codes < 0).sum())) > 0:
        row = int(np.argmax(found.codes < 0))
        raise InputError(
            f"{table.where} column {name!r} has {gaps:,} gaps, the first in row {row + 1:,}",
            fix="remove these rows, or fill the gaps",
        )
    return _in_order(found)


def read_schema(path: str) -> Schema:
    """Read a schema from a JSON file."""
    return Schema.load(Path(path))


def check_columns(table: OpenTable, options: TableOptions) -> None:
    """Refuse options that name columns which a table does not have."""
    given = options.numbers + options.categories + options.leave_out
    for what, names in (("label", (options.label,)), ("site", (options.site,)), ("", given)):
        for name in filter(None, names):
            if name not in table.names:
                raise InputError(
                    f"{table.where} has no column {name!r}",
                    allowed=", ".join(table.names[:20]),
                    fix=did_you_mean(name, table.names) or (f"set {what}" if what else None),
                )


def _found(name: str, values: Values, options: TableOptions, made: Encoded) -> None:
    """Encode one column, or say why it is left out; what is asked for is never left out."""
    asked = name in options.numbers + options.categories
    if name in options.categories:
        values = values.as_texts()
    elif name in options.numbers:
        values = _parsed(name, values)
    why = "" if asked else _useless(name, values)
    if values.numbers is None and values.codes is None:
        why = f"it holds {values.kind}"
        if asked:
            raise InputError(f"column {name!r} cannot be learnt from: {why}", fix="leave it out")
    elif name in options.categories and values.codes is not None:
        _refuse_names(name, len(values.texts), int((values.codes >= 0).sum()))
    if why:
        made.notes.append(f"{name} is left out: {why}")
    elif values.numbers is not None:
        present = values.numbers[~np.isnan(values.numbers)]
        whole = all_whole(present)
        made.add(Column(name, whole=whole), values.numbers)
    else:
        categories, codes = _in_order(values)
        made.add(Column(name, categories), np.where(codes < 0, np.nan, codes))


def _refuse_names(name: str, distinct: int, present: int) -> None:
    """Refuse categories that every row has to itself: synthetic rows would carry them."""
    if distinct == present > _MOST_ALONE:
        raise InputError(
            f"column {name!r} names every row: synthetic rows must not carry real names",
            got=f"{distinct:,} different texts in {present:,} rows",
            fix="leave it out",
        )


def _given(table: OpenTable, column: Column, made: Encoded) -> None:
    """Encode a column as a schema says; what the schema does not know is refused."""
    if column.name not in table.names:
        raise InputError(
            f"{table.where} has no column {column.name!r}", allowed=", ".join(table.names[:20])
        )
    values = table.read(column.name)
    if values.kind == "nothing":
        made.add(column, np.full(sum(table.sizes), np.nan))
        return
    if not column.categories:
        numbers = _parsed(column.name, values).numbers
        if numbers is None:
            raise InputError(f"column {column.name!r} holds {values.kind}", allowed="numbers")
        if column.whole and (np.floor(numbers) != numbers)[~np.isnan(numbers)].any():
            raise InputError(f"column {column.name!r} has fractions", allowed="whole numbers")
        made.add(column, numbers)
        return
    values = values.as_texts()
    place = {text: code for code, text in enumerate(column.categories)}
    if values.codes is None or (strange := [t for t in values.texts if t not in place]):
        raise InputError(
            f"column {column.name!r} has a category that the schema does not know",
            got=values.kind if values.codes is None else strange[0],
            allowed=", ".join(column.categories[:10]),
        )
    _refuse_names(column.name, len(values.texts), int((values.codes >= 0).sum()))
    codes = np.array([*(place[text] for text in values.texts), -1])[values.codes]
    made.add(column, np.where(codes < 0, np.nan, codes))


def _useless(name: str, values: Values) -> str:
    """Say why nothing can be learnt from a column, if that is so."""
    if values.numbers is not None:
        present = values.numbers[~np.isnan(values.numbers)]
        if not present.size:
            return "it has no values"
        if present.size == values.numbers.size and (present == present[0]).all():
            return f"it is {present[0]:g} in every row"
        if numbers_name_rows(name, values.numbers):
            return "it numbers the rows"
    elif values.codes is not None:
        present_rows, distinct = int((values.codes >= 0).sum()), len(values.texts)
        if not distinct:
            return "it has no values"
        if distinct == 1 and present_rows == values.codes.size:
            return f"it is {values.texts[0][:40]!r} in every row"
        if texts_name_rows(name, distinct, present_rows):
            return f"{distinct:,} different texts in {present_rows:,} rows, as of an identifier"
        if any(len(text) > _LONGEST or not text.isprintable() for text in values.texts):
            return f"it holds texts of more than {_LONGEST} or with unprintable characters"
    return ""


def _parsed(name: str, values: Values) -> Values:
    """Return texts as the numbers that they spell."""
    if values.codes is None:
        return values
    spelt = []
    for text in values.texts:
        try:
            spelt.append(float(text))
        except ValueError:
            raise InputError(
                f"column {name!r} has text",
                got=text,
                allowed="numbers",
                fix="name the column in categories",
            ) from None
    return Values("number", numbers=np.array([*spelt, np.nan])[values.codes])


def _in_order(values: Values) -> tuple[tuple[str, ...], Codes]:
    """Sort texts, those that are whole numbers by value, and renumber the codes."""
    texts: Sequence[str] = values.texts
    codes = values.codes
    if codes is None or values.ordered:
        return values.texts, np.empty(0, np.int64) if codes is None else codes
    whole = all(text.lstrip("-").isdecimal() and text.isascii() for text in texts)
    order = sorted(range(len(texts)), key=lambda i: (int(texts[i]) if whole else 0, texts[i]))
    ranks = np.empty(len(texts) + 1, np.int64)
    ranks[order], ranks[-1] = np.arange(len(texts)), -1
    return tuple(texts[i] for i in order), ranks[codes]
