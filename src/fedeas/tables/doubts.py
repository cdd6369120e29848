"""What in a table is probably not a class or a client: totals, and years."""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from fedeas.tables.cells import quoted, shown
from fedeas.tables.headings import is_year, names_total, names_year
from fedeas.tables.table import Doubt, Table

Ints = NDArray[np.int64]
_YEARS = (1900, 2100)


def find_doubts(table: Table, layout: str) -> Iterator[Doubt]:
    """Yield doubts to settle before the table is used; `layout` is how it was read."""
    yield from table.doubts
    if table.classes and all(map(is_year, table.classes)):
        names = f"{table.classes[0]}, {table.classes[1]}" if len(table.classes) > 1 else "a year"
        yield Doubt(
            f"classes are headed {names}",
            f"give counts by class, not by year, or pass --layout {layout} to keep them",
        )
    for what, option in _found(table):
        yield Doubt(what, f"pass {option}, or --layout {layout} to keep it")


def _found(table: Table) -> Iterator[tuple[str, str]]:
    """Yield what seems to be a total or a year, and the option that leaves it out."""
    values = table.values
    transposed = table.understood == "a row per class"
    classes = _names(table.classes, values.shape[1])
    clients = _names(table.clients, values.shape[0])
    kinds = ("row", "column") if transposed else ("column", "row")
    slack = np.zeros((1, 1), np.int64) if table.slack is None else table.slack
    yield from _totals(values, classes, kinds[0], slack.sum(axis=1))
    yield from _totals(values.T, clients, kinds[1], slack.sum(axis=0))
    yield from _years(values, classes, kinds[0])
    if transposed:
        yield from _years(values.T, clients, kinds[1])


def _names(given: Sequence[str] | None, size: int) -> Sequence[str]:
    return given or [str(place) for place in range(size)]


def _totals(
    values: Ints, names: Sequence[str], kind: str, slack: Ints
) -> Iterator[tuple[str, str]]:
    """Yield the column that is the sum of the others, and those that are called a total."""
    found = sum_column(values, slack)
    for place, name in enumerate(names):
        if place == found:
            said = f"{kind} {shown(name)} is the sum of the others"
        elif names_total(name):
            said = f"{kind} {shown(name)} is called a total"
        else:
            continue
        yield said, f"--drop-{kind} {quoted(name)}"


def sum_column(values: Ints, slack: Ints | None = None) -> int | None:
    """Return the column that is the sum of all others in every row, if that is not a coincidence.

    The sum of a row may be wrong by its `slack`, where cells were suppressed. A few small numbers
    add up by chance: rows in which several others have samples tell more than rows in which one
    other has.

    >>> sum_column(np.array([[1, 2, 3], [4, 5, 9]])), sum_column(np.array([[1, 2, 3], [4, 5, 8]]))
    (2, None)
    """
    if values.shape[1] < 3:
        return None
    off = np.abs(2 * values - values.sum(axis=1, keepdims=True))
    allowed = np.zeros(1, np.int64) if slack is None else slack
    found = np.flatnonzero((off <= allowed[:, np.newaxis]).all(axis=0))
    if len(found) > 1 and allowed.any():
        found = found[[off[:, found].sum(axis=0).argmin()]]
    if len(found) != 1:
        return None
    others = np.delete(values, found[0], axis=1)
    several = int(((others > 0).sum(axis=1) > 1).sum())
    any_of_them = int(others.any(axis=1).sum())
    spread = int(others.any(axis=0).sum()) > 1
    return int(found[0]) if several >= 2 or (any_of_them >= 4 and spread) else None


def _years(values: Ints, names: Sequence[str], kind: str) -> Iterator[tuple[str, str]]:
    """Yield the columns that are headed 'year', and the one that holds nothing but years."""
    low, high = _YEARS
    years = np.flatnonzero(((values >= low) & (values <= high)).all(axis=0))
    alone = years[0] if len(years) == 1 and len(values) > 1 else None
    for place, name in enumerate(names):
        if names_year(name) or place == alone:
            yield f"{kind} {shown(name)} holds years", f"--drop-{kind} {quoted(name)}"
