"""What to type when a table is not a row per client: what its columns hold tells.

The rows are looked at only once a table is refused.
"""

import re
from collections.abc import Iterable, Sequence
from itertools import islice

from fedeas.tables.arguments import argument, columns_argument
from fedeas.tables.cells import SIZES, is_number, is_whole, may_stand_for_count
from fedeas.tables.headings import (
    LABEL_HEADINGS,
    names_classes,
    names_clients,
    names_counts,
    names_holders,
    names_places,
)
from fedeas.tables.table import WIDE

_LOOKED_AT = 20_000  # rows


class Advice:
    """The columns of a table that was refused, and the arguments that read it."""

    def __init__(self, head: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
        same = [row for row in islice(rows, _LOOKED_AT) if len(row) == len(head)]
        self._rows = len(same)
        columns = list(zip(*same, strict=True)) or [()] * len(head)
        self._cells = dict(zip(head, columns, strict=True))
        words = {name: sum(map(_is_word, cells)) for name, cells in self._cells.items()}
        self._words = [name for name, number in words.items() if 2 * number > self._rows]

    def for_word(self, cell: str, name: str | None, row: Sequence[str]) -> str | None:
        """Say what to do about a word in a column that should hold counts."""
        if self._rows > 1 and len(row) > 2 and not any(map(is_number, filter(None, row))):
            return "put every table in a file of its own if this row heads a second one"
        if match := re.fullmatch(r"([0-9.]+)\s*[kK]", cell):
            return f"write {float(match[1]) * 1000:.0f}" if match[1].count(".") < 2 else None
        if name is None or name not in self._words:
            return None
        drop = argument("drop_columns", [name])
        long = self.for_rows()
        return f"{long}; or pass {drop} to leave the column out" if long else f"pass {drop}"

    def for_share(self) -> str:
        """Say how percentages become counts."""
        sizes = [
            name
            for name, cells in self._cells.items()
            if names_counts(name) and all(map(is_whole, cells))
        ]
        return f"pass {argument('size_column', sizes[0])}" if len(sizes) == 1 else SIZES

    def for_rows(self) -> str | None:
        """Return the columns that a table with a row per sample, or per client and class, has.

        A column in which all cells differ holds neither clients nor labels.
        """
        names = [name for name in self._cells if name and self._repeats(name)]
        client = next(
            (
                name
                for tells in (names_holders, names_places, names_clients, self._words.__contains__)
                for name in names
                if tells(name) and not names_classes(name)
            ),
            None,
        )
        others = [name for name in names if name != client]
        labels = [n for n in others if n.lower() in LABEL_HEADINGS or names_classes(n)]
        labels = labels or [n for n in others if n in self._words]
        if client is None or not labels:
            return None
        given = {"client": client, "label": labels[0]}
        counts = [
            n
            for n, cells in self._cells.items()
            if n not in given.values() and names_counts(n) and _are_counts(cells)
        ]
        if len(counts) == 1:
            return f"if rows hold counts, pass {columns_argument(**given, count=counts[0])}"
        more = f" (or label {' or '.join(map(repr, labels[1:4]))})" if len(labels) > 1 else ""
        return f"if every row is a sample, pass {columns_argument(**given)}{more}"

    def for_clients(self, client: str) -> str:
        """Say how to read a table whose clients are in a column that is not the first."""
        if long := self.for_rows():
            return long
        others = [
            name
            for name, cells in self._cells.items()
            if name != client and 2 * sum(map(is_number, filter(None, cells))) < _filled(cells)
        ]
        dropping = [argument("drop_columns", others)] if others else []
        left = [name for name in self._cells if name not in others]
        if others and left[0] == client and not self._repeats(client):
            return f"pass {dropping[0]}"
        adding = [argument("layout", WIDE), argument("by", client)]
        return f"pass {', '.join([*dropping, *adding])} to add the rows of a client up"

    def _repeats(self, name: str) -> bool:
        return len(set(self._cells[name])) < self._rows


def _filled(cells: Sequence[str]) -> int:
    return sum(map(bool, cells))


def _is_word(cell: str) -> bool:
    return not may_stand_for_count(cell)


def _are_counts(cells: Sequence[str]) -> bool:
    return bool(cells) and all(map(may_stand_for_count, cells)) and any(map(is_whole, cells))
