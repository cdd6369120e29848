"""The schema of a table: inferred, overridden by options, or read from a schema file.

Columns that name a row, such as a patient's number, are left out: whoever copies or imitates such a
column gives real people's names to synthetic rows. A text names its row if few other rows have it:
a patient may have several rows. Integers do if they are all different and follow each other without
a missing one: an income may be all different too. A column that is called so, `patient_id`, names
rows if it has more than a few values, however often each.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fedeas._internal.scalars import share
from fedeas.counts.label_counts import names as check_names
from fedeas.data.parquet import OpenTable, Values
from fedeas.data.schema import LARGEST_WHOLE, Column, Schema, all_whole
from fedeas.errors import InputError
from fedeas.partition.partition import check_labels

Rows = NDArray[np.float32]
Codes = NDArray[np.int64]
_LONGEST = 200  # characters of a category
_MOST_ALONE = 20  # rows in which all categories may be different by chance
_FEW = 20  # texts that are never too many, and rows below which numbers tell nothing
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_NAMES = {
    "account", "case", "customer", "encounter", "fall", "guid", "id", "identifier", "ids", "index",
    "key", "mrn", "patient", "person", "pid", "record", "ssn", "subject", "uid", "user", "uuid",
}  # fmt: skip
_NUMBER_WORDS = {"no", "nr", "num", "number"}


@dataclass(frozen=True)
class TableOptions:
    """What a table's columns are, and which rows are for testing.

    Parameters
    ----------
    label : str
        The column of the label.
    site : str
        The column that says which site a row is from; it is not learnt from.
    numbers, categories, drop_columns : tuple of str
        Columns that are numbers, that are categories, and that are not learnt from. What the
        others are is inferred.
    test_share : float
        The share of every class that is held out for testing, where there is no test set.
    test_seed : int
        Decides which rows those are.
    schema : str
        A JSON file of the columns, as sites agreed on them; nothing is inferred then.
    """

    label: str = "label"
    site: str = ""
    numbers: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    drop_columns: tuple[str, ...] = ()
    test_share: float = 0.2
    test_seed: int = 0
    schema: str = ""

    def __post_init__(self) -> None:
        share(self.test_share, "test_share", from_zero=True)
        named = [self.label, self.site, *self.numbers, *self.categories, *self.drop_columns]
        for name in filter(None, named):
            if named.count(name) > 1:
                raise InputError(
                    f"column {name!r} is named twice",
                    allowed="each column in one role",
                )
        if self.schema and (self.numbers or self.categories or self.drop_columns):
            raise InputError("a schema says what all columns are", fix="name no other columns")


INFER_ALL = TableOptions()  # nothing is overridden


@dataclass
class Encoded:
    """The columns of a table as rows hold them, with what was noticed on the way."""

    columns: list[Column] = field(default_factory=list)
    values: list[Rows] = field(default_factory=list)  # one array per column
    notes: list[str] = field(default_factory=list)

    def add(self, column: Column, values: NDArray[np.float64]) -> None:
        """Append a column; missing values are NaN."""
        with np.errstate(over="ignore"):
            rows = values.astype(np.float32)
        if not np.isfinite(rows[~np.isnan(values)]).all():
            raise InputError(
                f"column {column.name!r} has infinite or very large numbers",
                allowed="numbers below 3e38",
                fix="clean them, or drop the column",
            )
        rounding = float(np.nanmax(np.abs(rows - values), initial=0.0))
        if column.whole and rounding:
            self.notes.append(
                f"{column.name}: whole numbers above {LARGEST_WHOLE:,} are rounded, by at most "
                f"{rounding:,.0f}"
            )
        self.columns.append(column)
        self.values.append(rows)


def encode(table: OpenTable, options: TableOptions) -> Encoded:
    """Find out what the columns of a table are, or take them from a schema, and encode them."""
    if options.schema:
        encoded = encode_known(table, Schema.load(options.schema))
    else:
        encoded = Encoded()
        aside = (options.label, options.site, *options.drop_columns)
        for name in table.names:
            if name not in aside:
                _encode_inferred(name, table.read(name), options, encoded)
    if not encoded.columns:
        raise InputError(
            f"{table.where} has no column to learn from", got="; ".join(encoded.notes[:3]) or None
        )
    for column, values in zip(encoded.columns, encoded.values, strict=True):
        codes = values[~np.isnan(values)].astype(np.int64) if column.categories else values[:0]
        if codes.size > _MOST_ALONE and np.bincount(codes).max() == 1:
            raise InputError(
                f"column {column.name!r} names every row: synthetic rows must not carry real names",
                got=f"{codes.size:,} different texts in as many rows",
                fix="leave it out",
            )
    return encoded


def encode_known(table: OpenTable, schema: Schema) -> Encoded:
    """Encode the columns of a schema, found by their names; other columns are not read."""
    encoded = Encoded()
    for column in schema.columns:
        table.check_column(column.name)
        encoded.add(column, encode_column(column, table.read(column.name)))
    return encoded


def label_codes(table: OpenTable, name: str) -> tuple[tuple[str, ...], Codes]:
    """Return the different values of a column of labels, and which one each row has."""
    return _codes_of(table, name, table.read(name).as_texts())


def site_codes(table: OpenTable, name: str) -> tuple[tuple[str, ...], Codes]:
    """Return the different ids of a column of sites or people, and which one each row has.

    The name of one does not depend on the others: people's samples are chosen by it.
    """
    return _codes_of(table, name, table.read_ids(name))


def _codes_of(table: OpenTable, name: str, values: Values) -> tuple[tuple[str, ...], Codes]:
    if values.codes is None:
        raise InputError(
            f"{table.where} column {name!r} holds {values.kind}", allowed="text or numbers"
        )
    if (missing := int((values.codes < 0).sum())) > 0:
        row = int(np.argmax(values.codes < 0))
        raise InputError(
            f"{table.where} column {name!r} has {missing:,} gaps, the first in row {row + 1:,}",
            fix="remove these rows, or fill the gaps",
        )
    names = _in_order(values)
    check_names(names, len(names), name)  # printable: they end up on terminals and in reports
    return names, _codes(values, names)


def read_labels_of(table: OpenTable, name: str) -> tuple[Codes, tuple[str, ...] | None]:
    """Return the labels of a column, and the names of classes; None if they are whole numbers."""
    numbers = table.read(name).numbers
    if numbers is not None and all_whole(numbers):  # NaN, a gap, is not
        return check_labels(numbers.astype(np.int64), one_class=True), None
    if numbers is not None and not np.isnan(numbers).any():
        raise InputError(
            f"{table.where} column {name!r} holds fractions", allowed="whole numbers, or text"
        )
    classes, codes = label_codes(table, name)
    return codes, classes


def _encode_inferred(name: str, values: Values, options: TableOptions, encoded: Encoded) -> None:
    """Encode one column, or say why it is left out; what is asked for is never left out."""
    if name in options.categories:
        values = values.as_texts()
    elif name in options.numbers:
        values = _parsed(name, values)
    elif why := _useless(name, values):
        encoded.notes.append(f"{name} is left out: {why}")
        return
    column = infer_column(name, values)
    encoded.add(column, encode_column(column, values))


def infer_column(name: str, values: Values) -> Column:
    """Return what a column is by its values: numbers, whole or not, or categories."""
    if values.numbers is not None:
        return Column(name, whole=all_whole(values.numbers[~np.isnan(values.numbers)]))
    if values.codes is not None:
        return Column(name, _in_order(values))
    raise InputError(
        f"column {name!r} cannot be learnt from: it holds {values.kind}", fix="leave it out"
    )


def encode_column(column: Column, values: Values) -> NDArray[np.float64]:
    """Return values as rows hold them; what does not fit the column is refused."""
    if values.kind == "nothing":
        return np.full(values.size, np.nan)
    if not column.categories:
        numbers = _parsed(column.name, values).numbers
        if numbers is None:
            raise InputError(f"column {column.name!r} holds {values.kind}", allowed="numbers")
        if column.whole and (np.floor(numbers) != numbers)[~np.isnan(numbers)].any():
            raise InputError(f"column {column.name!r} has fractions", allowed="whole numbers")
        return numbers
    values = values.as_texts()
    strange = sorted(set(values.texts) - set(column.categories))
    if values.codes is None or strange:
        raise InputError(
            f"column {column.name!r} has a category that the schema does not know",
            got=strange[0] if strange else values.kind,
            allowed=", ".join(column.categories[:10]),
        )
    codes = _codes(values, column.categories)
    return np.where(codes < 0, np.nan, codes)


def _useless(name: str, values: Values) -> str:
    """Say why nothing can be learnt from a column, if that is so."""
    if values.numbers is not None:
        present = values.numbers[~np.isnan(values.numbers)]
        if not present.size:
            return "it has no values"
        if present.size == values.size and (present == present[0]).all():
            return f"it is {present[0]:g} in every row"
        return "it numbers the rows" if names_rows(name, values) else ""
    if values.codes is None:
        return f"it holds {values.kind}"
    present_rows, distinct = int((values.codes >= 0).sum()), len(values.texts)
    if not distinct:
        return "it has no values"
    if distinct == 1 and present_rows == values.size:
        return f"it is {values.texts[0][:40]!r} in every row"
    if names_rows(name, values):
        return f"{distinct:,} different texts in {present_rows:,} rows, as of an identifier"
    if any(len(text) > _LONGEST or not text.isprintable() for text in values.texts):
        return f"it holds texts of more than {_LONGEST} or with unprintable characters"
    return ""


def _parsed(name: str, values: Values) -> Values:
    """Return texts as the numbers that they spell."""
    if values.codes is None:
        return values
    try:
        numbers = np.array([*map(float, values.texts), np.nan])
    except ValueError as error:
        raise InputError(
            f"column {name!r} has text: {error}",
            allowed="numbers",
            fix="name the column in categories",
        ) from None
    return Values("number", values.size, numbers=numbers[values.codes])


def _in_order(values: Values) -> tuple[str, ...]:
    """Sort texts, those that are whole numbers by value, unless their order means something."""
    if values.ordered:
        return values.texts
    whole = all(text.lstrip("-").isdecimal() and text.isascii() for text in values.texts)
    return tuple(sorted(values.texts, key=lambda text: (int(text) if whole else 0, text)))


def _codes(values: Values, names: Sequence[str]) -> Codes:
    """Return the index in `names` of every row's text, -1 for a gap."""
    index = {name: code for code, name in enumerate(names)}
    return np.array([*(index[text] for text in values.texts), -1], np.int64)[values.codes]


def names_rows(name: str, values: Values) -> bool:
    """Tell whether the values of a column name their rows, as a patient's number does."""
    if values.numbers is not None:
        return numbers_name_rows(name, values.numbers)
    if values.codes is None:
        return False
    present = values.codes[values.codes >= 0]
    return _texts_name_rows(name, len(np.unique(present)), len(present))


def _texts_name_rows(name: str, distinct: int, present: int) -> bool:
    """Tell whether texts name their rows, from how many different ones how many rows have.

    >>> [_texts_name_rows("code", distinct, 200) for distinct in (200, 100, 30)]
    [True, True, False]
    >>> _texts_name_rows("patient", 30, 200), _texts_name_rows("patient", 3, 200)
    (True, False)
    """
    if 0 < distinct == present or distinct > max(_FEW, present / 4):
        return True
    return distinct > _FEW and _is_named_as_identifier(name)


def numbers_name_rows(name: str, numbers: NDArray[np.float64]) -> bool:
    """Tell whether the numbers of a column name their rows; NaN are missing values.

    >>> numbers_name_rows("visit", np.arange(1000.0, 1200.0))
    True
    >>> squares = np.arange(30.0) ** 2
    >>> numbers_name_rows("area", squares), numbers_name_rows("patientId", squares)
    (False, True)
    """
    present = np.unique(numbers[~np.isnan(numbers)])
    if present.size <= _FEW or not all_whole(present):
        return False
    different = present.size == np.count_nonzero(~np.isnan(numbers))
    follow = bool(present[-1] - present[0] == present.size - 1)
    return (different and follow) or _is_named_as_identifier(name)


def _is_named_as_identifier(name: str) -> bool:
    """Tell whether a column is called as names of rows are: by the last word of its name.

    >>> names = ("patientid", "Fall-Nr", "account", "account_balance")
    >>> [_is_named_as_identifier(name) for name in names]
    [True, True, True, False]
    """
    words = [word.lower() for word in _WORD.findall(name)]
    while len(words) > 1 and words[-1] in _NUMBER_WORDS:
        words.pop()
    return bool(words) and (words[-1] in _NAMES or words[-1].removesuffix("id") in _NAMES)
