"""Which layout a table has: every reading that its headings and cells allow.

A table with columns of a client and of a label may be a row per sample. If it has a column of whole
numbers too it may hold counts, and if it holds nothing but whole numbers besides the client it may
also be wide, with a class that is called 'label' or 'y'. What the rows say excludes readings:

- a wide table names every client once, and has at least two classes;
- a table of counts has no two rows that agree in everything but the count;
- a row per sample has several samples of a client and class somewhere, if a column is headed
  'count' or the like: otherwise these are the counts.
"""

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice

from fedeas.errors import InputError
from fedeas.tables.arguments import argument, columns_argument, example_columns
from fedeas.tables.cells import is_whole, listed, may_stand_for_count
from fedeas.tables.headings import names_counts, names_year
from fedeas.tables.table import COUNTS, LONG, WIDE, Options

_LOOKED_AT = 20_000  # rows


@dataclass(frozen=True)
class Reading:
    """One way to read a table."""

    layout: str
    client: str = ""
    label: str = ""
    count: str = ""

    @property
    def understood(self) -> str:
        """What a table is when it is read in this way."""
        if self.layout == WIDE:
            return "a table of counts"
        if self.layout == LONG:
            return f"a row per sample, {self.client!r} and {self.label!r}"
        return f"a count per row in {self.count!r}, of {self.client!r} and {self.label!r}"

    @property
    def described(self) -> str:
        """The reading, with the options that ask for it."""
        if self.layout == WIDE:
            return f"a row per client ({argument('layout', WIDE)})"
        if self.layout == LONG:
            return f"a row per sample ({argument('layout', LONG)})"
        names = {"client": self.client, "label": self.label, "count": self.count}
        return f"a count per row ({columns_argument(**names)})"


def choose(
    head: Sequence[str], rows: Iterable[Sequence[str]], options: Options, where: str
) -> Reading:
    """Return the one reading of a table, or refuse it with all that there are.

    `rows` are read only if the heading leaves a doubt.
    """
    names = [name for name in head if name not in options.drop_columns]
    if options.layout == WIDE or options.transpose:
        return Reading(WIDE)
    places = options.columns.find(names, where)
    if places is None:
        if options.layout is None:
            return Reading(WIDE)
        raise InputError(
            f"{where}: which columns hold client and label?",
            allowed=listed(names),
            fix=f"pass {example_columns(names)}, for example",
        )
    if options.layout == LONG or options.by is not None:
        return Reading(LONG, *places)
    survey = _Survey(head, names, places, rows)
    if options.layout == COUNTS or options.columns.count:
        return Reading(COUNTS, *places, options.columns.count or survey.count_column(where))
    found = survey.readings(wide=not options.columns.given)
    if len(found) == 1:
        return found[0]
    ways = ", or ".join(reading.described for reading in found)
    raise InputError(
        f"{where} can be read in {_NUMBERS[len(found)]} ways: {ways}",
        fix="pass one of these",
    )


_NUMBERS = {2: "two", 3: "three"}


class _Survey:
    """What the first rows of a table say about its columns."""

    def __init__(
        self,
        head: Sequence[str],
        names: Sequence[str],
        places: tuple[str, str],
        rows: Iterable[Sequence[str]],
    ) -> None:
        # Rows of a wrong length are refused when they are read.
        whole = (row for row in islice(rows, _LOOKED_AT) if len(row) == len(head))
        columns = list(zip(*whole, strict=True)) or [()] * len(head)
        self._cells = {name: columns[place] for place, name in enumerate(head) if name in names}
        self._places = places
        self._client_first = names[0] == places[0]
        self._others = [name for name in self._cells if name not in places]

    def readings(self, wide: bool) -> list[Reading]:
        """Return the readings that nothing excludes."""
        counts = [name for name in self._counts() if not self._repeats_without(name)]
        named = [name for name in counts if names_counts(name)]
        found = []
        if wide and self._may_be_wide():
            found.append(Reading(WIDE))
        client, label = (self._cells[place] for place in self._places)
        if not named or _repeats(zip(client, label, strict=True)):
            found.append(Reading(LONG, *self._places))
        if counts:
            found.append(Reading(COUNTS, *self._places, (named or counts)[0]))
        return found

    def count_column(self, where: str) -> str:
        """Return the one column that may hold counts."""
        counts = self._counts()
        named = [name for name in counts if names_counts(name)] or counts
        if len(named) == 1:
            return named[0]
        (client, label), some = self._places, (named or self._others or ["count"])[0]
        raise InputError(
            f"{where}: which column holds the counts?",
            allowed=listed(named or self._others) or "a column besides client and label",
            fix=f"pass {columns_argument(client=client, label=label, count=some)}, for example",
        )

    def _counts(self) -> list[str]:
        """Return the columns that may hold counts."""
        return [
            name
            for name in self._others
            if all(map(may_stand_for_count if names_counts(name) else is_whole, self._cells[name]))
            and not self._numbers_rows(name)
            and not names_year(name)
        ]

    def _numbers_rows(self, name: str) -> bool:
        """Tell whether a column numbers the rows, as data frames do."""
        cells = self._cells[name]
        if names_counts(name) or cells[:1] not in (("0",), ("1",)):
            return False
        return list(cells) == [str(int(cells[0]) + n) for n in range(len(cells))]

    def _repeats_without(self, name: str) -> bool:
        """Tell whether two rows agree in everything but one column and the rows' numbers."""
        others = [c for n, c in self._cells.items() if n != name and not self._numbers_rows(n)]
        return _repeats(zip(*others, strict=True))

    def _may_be_wide(self) -> bool:
        client, label = (self._cells[place] for place in self._places)
        numbers = [label, *(self._cells[name] for name in self._others)]
        return (
            self._client_first
            and len(numbers) > 1
            and not _repeats(client)
            and all(may_stand_for_count(cell) for cells in numbers for cell in cells)
        )


def _repeats(values: Iterable[Hashable]) -> bool:
    seen: set[Hashable] = set()
    return any(value in seen or seen.add(value) for value in values)  # type: ignore[func-returns-value]
