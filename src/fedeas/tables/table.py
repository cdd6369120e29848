"""What a table is, and how to read a file."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedeas.errors import InputError
from fedeas.tables.arguments import argument, columns_argument
from fedeas.tables.cells import LARGEST, CellRules, listed
from fedeas.tables.headings import LABEL_HEADINGS, names_clients
from fedeas.tables.thousands import SEPARATORS, parse_separator, typed

WIDE, LONG, COUNTS = LAYOUTS = ("wide", "long", "counts")


@dataclass(frozen=True)
class Doubt:
    """Something in a table that may be no class or no client, and how to settle it.

    `drop` leaves it out: 'row' or 'column', and its name. `fix` is what else to do with a file,
    `frame_fix` with a data frame.
    """

    what: str
    fix: str = ""
    drop: tuple[str, str] | None = None
    frame_fix: str = ""


@dataclass(frozen=True)
class Table:
    """A K x C matrix with the names of its rows and columns, where the file gave them."""

    values: NDArray[np.int64]
    clients: tuple[str, ...] | None = None
    classes: tuple[str, ...] | None = None
    meta: Mapping[str, Any] | None = None  # what a plan adds
    understood: str = "a table of counts"
    doubts: tuple[Doubt, ...] = ()
    assumed: tuple[str, ...] = ()  # about the file: its encoding, its sheet, ...
    notes: tuple[str, ...] = ()  # what options did
    slack: NDArray[np.int64] | None = None  # by how much suppressed cells may be wrong
    added: bool = False  # whether rows of one client were added up
    saved: bool = False  # whether fedeas wrote it, and nobody changed it: there is nothing to doubt


@dataclass(frozen=True)
class Columns:
    """Which columns hold the client, the label and the count; found by name unless given.

    Parameters
    ----------
    client, label, count : str, optional
        Names of columns, for a table with a row per sample or per client and class.
    """

    client: str | None = None
    label: str | None = None
    count: str | None = None

    @property
    def given(self) -> bool:
        """Whether any column was named: the table is then not a row per client."""
        return any((self.client, self.label, self.count))

    def _given(self) -> dict[str, str]:
        return {name: value for name, value in vars(self).items() if value is not None}

    def find(self, known: Iterable[str], where: str) -> tuple[str, str] | None:
        """Return the columns of client and label, None if there are none and none were named."""
        names = list(known)
        for wanted in (self.client, self.label, self.count):
            if wanted is not None and wanted not in names:
                raise InputError(f"{where} has no such column", got=wanted, allowed=listed(names))
        client = self.client or next(
            (n for n in names if n and names_clients(n) and n not in (self.label, self.count)), None
        )
        label = self.label or next(
            (n for n in names if n.lower() in LABEL_HEADINGS and n not in (client, self.count)),
            None,
        )
        if client == label and client is not None:
            raise InputError(f"{where}: one column cannot be both client and label", got=client)
        if client is not None and label is not None:
            return client, label
        if self.given:
            lacking, wide = "label" if client else "client", ""
            if client:
                adding = f"{argument('layout', WIDE)}, {argument('by', client)}"
                wide = f", or {adding} if every class has a column"
            other = next((n for n in names if n not in (client, label, self.count)), lacking)
            given = self._given() | {lacking: other}
            raise InputError(
                f"{where}: which column holds the {lacking}?",
                allowed=listed(names),
                fix=f"pass {columns_argument(**given)}, for example{wide}",
            )
        return None


@dataclass(frozen=True)
class Options:
    """How to read a file; what is not given is inferred, or the file is refused.

    `layout` is one of

    - `wide`: a row per client and a column per class
    - `long`: a row per sample
    - `counts`: a row per client and class, with a count

    A given layout is followed exactly; without one a table is read only if there is one reading.
    `drop_columns` and `drop_rows` are left out, by their names in the file; `transpose` tells
    that rows are classes, or that they are not. `thousands`, `blank` and `suppressed` are those of
    `CellRules`. With a `size_column` the other cells are shares of it. `sheet` names one of a
    workbook. `by` is the column of clients where rows are samples, or, in a wide table, where the
    rows of one client are added up.
    """

    delimiter: str | None = None
    layout: str | None = None
    columns: Columns = Columns()
    drop_columns: tuple[str, ...] = ()
    drop_rows: tuple[str, ...] = ()
    transpose: bool | None = None
    sheet: str | None = None
    encoding: str | None = None
    thousands: str | None = None
    blank: int | None = None
    suppressed: int | None = None
    size_column: str | None = None
    by: str | None = None

    @property
    def plain(self) -> bool:
        """Whether a file is to be read as it is: a table that fedeas wrote has one reading."""
        return self in (Options(), Options(layout=WIDE))

    @property
    def rules(self) -> CellRules:
        """How to read cells that are not plain whole numbers."""
        return CellRules(self.thousands, self.blank, self.suppressed)

    def check_unused(self, where: str, *names: str) -> None:
        """Refuse options that say nothing about a kind of file, instead of ignoring them."""
        for name in names:
            if getattr(self, name) is not None:
                raise InputError(f"`{name}` does not apply to {where}", fix=f"leave out `{name}`")

    def __post_init__(self) -> None:
        for name in ("drop_columns", "drop_rows"):
            given = getattr(self, name)
            object.__setattr__(self, name, (given,) if isinstance(given, str) else tuple(given))
        self._check_cells()
        if self.layout is not None and self.layout not in LAYOUTS:
            raise InputError("unknown layout", got=self.layout, allowed=", ".join(LAYOUTS))
        if self.layout == WIDE and self.columns.given:
            raise InputError(
                "a wide table has no column of labels or counts",
                fix=f"leave out {argument('layout', WIDE)}, or the names of columns",
            )
        if self.layout == LONG and self.columns.count:
            raise InputError(
                "a row per sample has no count",
                got=self.columns.count,
                fix=f"pass {argument('layout', COUNTS)}",
            )
        if self.transpose and (self.layout in (LONG, COUNTS) or self.columns.given):
            raise InputError("only a wide table can be transposed", fix="leave out `transpose`")
        self._check_by()

    def _check_by(self) -> None:
        """Take `by` for the column of clients in a table with a row per sample."""
        if self.by is None:
            return
        if self.columns.client not in (None, self.by) or self.layout == COUNTS:
            raise InputError(
                "`by` names the column of clients in a table with a row per sample", got=self.by
            )
        if self.layout != WIDE:
            object.__setattr__(self, "columns", replace(self.columns, client=self.by))
        elif self.transpose or self.size_column is not None:
            raise InputError(
                "rows of one client are added up, with counts in a column per class",
                got=self.by,
                fix="leave out `transpose` and `size_column`",
            )

    def _check_cells(self) -> None:
        for name in ("blank", "suppressed"):
            value = getattr(self, name)
            if value is not None and not 0 <= value <= LARGEST:
                raise InputError(f"`{name}` is not a count", got=value, allowed="0 and above")
        if self.thousands is not None:
            sign = parse_separator(self.thousands)
            if sign is None:
                raise InputError(
                    "not a thousands separator",
                    got=self.thousands,
                    allowed=" ".join(map(typed, SEPARATORS)),
                )
            object.__setattr__(self, "thousands", sign)
        if self.size_column is not None and (
            self.transpose or self.layout in (LONG, COUNTS) or self.columns.given
        ):
            raise InputError(
                "`size_column` needs a row per client and a column per class",
                got=self.size_column,
            )
