"""Rows of cells from any kind of file: without blank ones, and without a title above them."""

from collections.abc import Container, Iterable, Iterator
from pathlib import Path

from fedeas.errors import InputError
from fedeas.tables.arguments import argument
from fedeas.tables.cells import is_number, shown
from fedeas.tables.headings import names_classes, names_clients, names_pivot

Numbered = tuple[int, list[str]]  # a row, and its number in the file


class Rows:
    """The rows of a table, cells stripped; `line` is that of the last row.

    A title is skipped where it is certain to be one: a first row with nothing but its first cell,
    above a heading of words, or the labels that spreadsheets put above a pivot table.
    """

    def __init__(self, path: Path, numbered: Iterable[Numbered], unit: str = "line") -> None:
        self.path, self.line = path, 0
        self.cells: list[str] = []  # of the last row
        self.hidden_rows: Container[int] = ()
        self.hidden_columns: Container[int] = ()
        self.comments: list[str] = []  # above the first row
        self._assumed: list[str] = []
        self._unit = unit
        self._rows = self._below_title(numbered)

    def __iter__(self) -> Iterator[list[str]]:
        return self._rows

    @property
    def where(self) -> str:
        """The file and the number of the last row."""
        return f"{self.path} {self._unit} {self.line}"

    def assume(self, what: str) -> None:
        """Note what was assumed about the file."""
        self._assumed.append(what)

    @property
    def assumed(self) -> tuple[str, ...]:
        """What was assumed about the file."""
        return tuple(self._assumed)

    def _below_title(self, numbered: Iterable[Numbered]) -> Iterator[list[str]]:
        above: list[Numbered] | None = []
        for number, cells in numbered:
            self.line = number
            row = [cell.strip() for cell in cells]
            if not any(row):
                continue
            if above is not None:
                if _may_be_title(row):
                    above.append((number, row))
                    continue
                if above:
                    self._check_title(above[0][1], row)
                above = None
            self.cells = row
            yield row
        for self.line, row in above or ():  # nothing else: the rows have one cell each
            self.cells = row
            yield row

    def _check_title(self, title: list[str], heading: list[str]) -> None:
        """Note the title above a heading; refuse a row that may be something else."""
        words = not any(is_number(cell) for cell in heading[1:])
        known = names_clients(heading[0]) and bool(heading[0])
        first = title[0]
        if not (words or known) or names_clients(first) or names_classes(first):
            raise InputError(
                f"{self.path}: its first line is a title, not a heading",
                got=next(filter(None, title)),
                fix="remove it, so that the table begins with the names of the classes",
            )
        self.assume(f"below the title {shown(first)!r}")


def _may_be_title(row: list[str]) -> bool:
    filled = sum(map(bool, row))
    return filled == 1 or (filled == 2 and len(row) > 1 and names_pivot(row[1]))


def check_width(rows: Rows, row: list[str], width: int) -> None:
    """Refuse a row that is longer or shorter than the first one."""
    if len(row) == width:
        return
    filled = [cell for cell in row if cell]
    note = argument("drop_rows", row[:1])
    if len(filled) == 1:
        raise InputError(
            f"{rows.where} has one cell only", got=filled[0], fix=f"remove it, or pass {note}"
        )
    raise InputError(
        f"{rows.where} has {len(row)} cells, the first line has {width}",
        got=row,
        fix="put numbers with a comma in them in quotes, or write them without"
        if len(row) > width else f"fill the missing cells, with 0 for none, or pass {note}",
    )  # fmt: skip
