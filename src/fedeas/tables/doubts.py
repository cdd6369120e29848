"""What in a table is probably not a class, a client or a count: totals, years, percentages, ...

Nothing here decides what a table means: each doubt is a refusal, which an option settles.
"""

import math
import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from fedeas.errors import InputError
from fedeas.tables.arguments import argument
from fedeas.tables.cells import SIZES, is_missing, is_number, listed, shown
from fedeas.tables.headings import (
    beside_averages,
    described_column,
    is_period,
    is_year,
    names_attribute,
    names_average,
    names_long_numbers,
    names_part,
    names_sex,
    names_total,
    names_unknown,
    names_unlabelled,
    names_whole,
    names_year,
    spelled,
    without_aspect,
)
from fedeas.tables.table import LONG, WIDE, Doubt, Table

Ints = NDArray[np.int64]
_YEARS = (1900, 2100)
_CODE = re.compile("999+")  # what statistics programs write for a missing number
_MOST_PAIRS, _MOST_RUNS, _LONGEST_RUN = 100, 2_000, 50  # of columns that are added up
_LOOKED_AT = 1_000  # rows that suggest such a sum; all are checked
_SPACES = str.maketrans("-_", "  ")
_LONG_NUMBER = 100_000  # from which on a number may be that of a telephone
_EVIDENCE = 2.0  # decimal digits by which a sum is no coincidence


def find_doubts(table: Table, layout: str) -> Iterator[Doubt]:
    """Yield doubts to settle before the table is used; `layout` is how it was read."""
    yield from table.doubts
    yield from _spellings(table.clients, "clients")
    yield from _spellings(table.classes, "classes")
    yield from _aspects(table.clients, "clients")
    yield from _aspects(table.classes, "classes")
    if layout != WIDE and table.classes:
        yield from _labels(table.classes)
    if layout == LONG:
        return
    yield from _periods(table)
    yield from _left_out(table, layout)
    yield from _numbers(table, layout)


def refusal(where: str, doubts: Sequence[Doubt], layout: str) -> InputError:
    """Return the error that names doubts, and the arguments that settle them."""
    dropping = _dropping(doubts)
    fixes = [f"pass {dropping}"] if dropping else []
    fixes += dict.fromkeys(doubt.fix for doubt in doubts if doubt.fix)
    keep = argument("layout", layout)
    if dropping:
        fixes.append(f"or {keep} to keep {'it' if len(doubts) == 1 else 'them'}")
    elif not all("transpose=" in doubt.fix for doubt in doubts):
        fixes.append(f"or pass {keep} if it is right as it is")
    return InputError(f"{where}: {_said(doubts)}", fix=", ".join(fixes))


def _dropping(doubts: Sequence[Doubt]) -> str:
    """Return the arguments that leave doubtful rows and columns out."""
    drops: dict[str, list[str]] = defaultdict(list)
    for doubt in doubts:
        if doubt.drop is not None:
            drops[f"drop_{doubt.drop[0]}s"].append(doubt.drop[1])
    return ", ".join(argument(name, names) for name, names in drops.items())


def frame_refusal(doubts: Sequence[Doubt], indexed: bool, clients: str) -> InputError:
    """Return the error that names doubts about a data frame; `clients` is a column of polars."""
    rows = [d.drop[1] for d in doubts if d.drop and d.drop[0] == "row"]
    columns = [d.drop[1] for d in doubts if d.drop and d.drop[0] == "column"]
    calls = ""
    if indexed and (rows or columns):
        kinds = {"columns": columns, "index": rows}
        calls = f".drop({', '.join(f'{kind}={names!r}' for kind, names in kinds.items() if names)})"
    elif rows or columns:
        calls = f".drop({columns!r})" if columns else ""
        calls += f".filter(~pl.col({clients!r}).is_in({rows!r}))" if rows else ""
    fixes = [f"pass frame{calls}"] if calls else []
    fixes += dict.fromkeys(d.frame_fix or d.fix for d in doubts if d.frame_fix or d.fix)
    keep = "LabelCounts(frame.to_numpy(), list(frame.index), list(frame.columns))"
    if not indexed and clients:
        rest = f"frame.drop({clients!r})"
        keep = f"LabelCounts({rest}.to_numpy(), list(frame[{clients!r}]), {rest}.columns)"
    elif not indexed:
        keep = "LabelCounts(frame.to_numpy(), None, frame.columns)"
    keep = f"or {keep} if it is right as it is"
    return InputError(f"the data frame: {_said(doubts)}", fix=", ".join([*fixes, keep]))


def _said(doubts: Sequence[Doubt]) -> str:
    more = f"; {len(doubts) - 3} more" if len(doubts) > 3 else ""
    return "; ".join(doubt.what for doubt in doubts[:3]) + more


# Names


def _spellings(names: Sequence[str] | None, what: str) -> Iterator[Doubt]:
    """Doubt names that differ in nothing but capitals, spaces and hyphens."""
    alike: dict[str, list[str]] = defaultdict(list)
    for name in dict.fromkeys(names or ()):  # one that occurs twice is an error of its own
        alike[_folded(name)].append(name)
    one = next((group for group in alike.values() if len(group) > 1), None)
    if one is not None:
        yield Doubt(
            f"{what} {listed(one)} differ in their spelling only", fix="write them in one way"
        )


def _aspects(names: Sequence[str] | None, what: str) -> Iterator[Doubt]:
    """Doubt names that are all there several times: for years, quarters, training and test."""
    alike: dict[str, list[str]] = defaultdict(list)
    for name in names or ():
        if (rest := without_aspect(name)) is None:
            return
        alike[rest].append(name)
    groups = list(alike.values())
    if groups and all(len(group) > 1 for group in groups):
        yield Doubt(
            f"{what} {listed(groups[0])} differ in a time or a part of the samples only",
            fix="add them up, or leave some out",
        )


def _folded(name: str) -> str:
    if is_number(name):
        return name
    plain = name if name.isascii() else unicodedata.normalize("NFKC", name)
    return " ".join(plain.casefold().translate(_SPACES).split())


def _labels(labels: Sequence[str]) -> Iterator[Doubt]:
    """Doubt labels that are lists of labels, and those that stand for none."""
    for sign in ("[]", "|", ";", ",", "/", "+", "&"):
        lists = _lists(labels, sign)
        if lists:
            yield Doubt(
                f"{len(lists)} labels such as {shown(lists[0])} are lists of others",
                fix="write a row per sample and label, or one label per sample",
            )
            break
    signs = set(labels) == {"-1", "1"}
    if missing := [x for x in labels if is_missing(x) or (x == "-1" and not signs)]:
        yield Doubt(
            f"label {missing[0]!r} seems to mean that there is none",
            fix="remove such rows",
            drop=("column", missing[0]),
        )


def _lists(labels: Sequence[str], sign: str) -> list[str]:
    """Return the labels whose parts are labels, or parts of other such labels if `sign` is plain.

    >>> _lists(["Edema", "Effusion", "Edema|Effusion", "Edema|Mass"], "|")
    ['Edema|Effusion', 'Edema|Mass']
    """
    if sign == "[]":
        return [label for label in labels if re.fullmatch(r"\[.*\]|\(.*,.*\)|\{.*\}", label)]
    parts = {
        label: [part.strip() for part in label.split(sign)] for label in labels if sign in label
    }
    known = set(labels)
    if any(all(part in known for part in each) for each in parts.values()):
        return list(parts)
    used = [part for each in parts.values() for part in set(each)]
    return list(parts) if sign in "|;" and len(set(used)) < len(used) else []


def unknown_classes(classes: Sequence[str] | None) -> Iterator[str]:
    """Note classes that may stand for samples whose label is not known."""
    for name in classes or ():
        if is_missing(name) or names_unknown(name):
            yield f"class {shown(name)} may hold samples whose label is not known"


def _periods(table: Table) -> Iterator[Doubt]:
    for names, what in ((table.classes, "classes"), (table.clients, "clients")):
        years = what == "classes" and names is not None and all(map(is_year, names))
        if names and (years or (len(names) > 1 and all(map(is_period, names)))):
            yield Doubt(
                f"{what} are headed {listed(names[:2])}: times, not {what}",
                fix="give the counts of clients by class",
            )


def _left_out(table: Table, layout: str) -> Iterator[Doubt]:
    """Doubt rows and columns that are better left out."""
    values = table.values
    transposed = table.understood == "a row per class"
    classes = _names(table.classes, values.shape[1])
    clients = _names(table.clients, values.shape[0])
    kinds = ("row", "column") if transposed else ("column", "row")
    slack = np.zeros((1, 1), np.int64) if table.slack is None else table.slack
    doubts = [
        *_totals(values, classes, kinds[0], slack.sum(axis=1)),
        *_totals(values.T, clients, kinds[1], slack.sum(axis=0)),
        *_years(values, classes, kinds[0]),
        *(_years(values.T, clients, kinds[1]) if transposed else ()),
        *(_beside(values, classes, kinds[0]) if layout == WIDE else ()),
    ]
    yield from reversed({doubt.drop: doubt for doubt in reversed(doubts)}.values())


def _names(given: Sequence[str] | None, size: int) -> Sequence[str]:
    return given or [str(place) for place in range(size)]


# Numbers


def _totals(values: Ints, names: Sequence[str], kind: str, slack: Ints) -> Iterator[Doubt]:
    """Doubt columns that are sums of others, or are called a total or a mean."""
    whole = sum_column(values, slack)
    parts = dict(part_sums(values)) if whole is None else {}
    called = _called(names, kind)
    for place, name in enumerate(names):
        if place == whole:
            said = "is the sum of the others"
        elif place in parts:
            said = f"is the sum of {_joined([names[part] for part in parts[place]])}"
        elif name in called:
            said = called[name]
        else:
            continue
        yield _doubt(kind, name, said)


def _called(names: Sequence[str], kind: str) -> dict[str, str]:
    """Say which names are those of totals and means."""
    averages = {name for name in names if names_average(name)}
    averages |= {name for name in names if averages and beside_averages(name)}
    said = {}
    for name in names:
        if names_total(name):
            said[name] = "is called a total"
        elif name in averages:
            said[name] = "is called a mean"
        elif kind == "column" and names_whole(name):
            said[name] = "is called a number of samples, not a class"
    return said


def _beside(values: Ints, classes: Sequence[str], kind: str) -> Iterator[Doubt]:
    """Doubt columns that stand beside counts, by their headings, and one that numbers the rows."""
    spellings: dict[str | None, str] = {spelled(name): name for name in classes}
    sexes = sum(map(names_sex, classes))
    by_sex = sexes > 0 and len(classes) - sexes > 1
    numbers = _numbers_rows(values)
    long = np.asarray((values >= _LONG_NUMBER).all(axis=0))
    for place, name in enumerate(classes):
        if (described := described_column(name)) in spellings:
            said = f"is a statistic of {shown(spellings[described])}"
        elif names_attribute(name) or (long[place] and names_long_numbers(name)):
            said = "holds no counts"
        elif names_part(name):
            said = "is a part of another"
        elif names_unlabelled(name) or (name == "-1" and "1" not in classes):
            said = "holds samples without a label"
        elif by_sex and names_sex(name):
            said = "holds a sex, beside other classes"
        elif numbers[place]:
            said = "numbers the rows"
        else:
            continue
        yield _doubt(kind, name, said)


def _numbers_rows(values: Ints) -> NDArray[np.bool_]:
    """Tell for each column whether it counts 1, 2, 3, ... from row to row."""
    some = values[:_LOOKED_AT]
    numbers: NDArray[np.bool_] = (np.diff(some, axis=0) == 1).all(axis=0)
    return numbers & (some[:1] <= 1).all(axis=0) & (len(some) > 2)


def check_to_add(
    where: str, values: Ints, classes: Sequence[str], clients: Sequence[str], first: str | None
) -> None:
    """Refuse to add up the rows of each client where some hold totals, or columns ids or times.

    `first` is the first column of a file whose clients stand in another one.
    """
    doubts = [*_years(values, classes, "column"), *_beside(values, classes, "column")]
    doubts += [_doubt("column", *called) for called in _called(classes, "column").items()]
    doubts += [
        _doubt("row", *called) for called in _called(list(dict.fromkeys(clients)), "row").items()
    ]
    counting = _counts_within(values, clients)
    for place, name in enumerate(classes):
        if counting[place]:
            doubts.append(_doubt("column", name, "counts up from row to row"))
        elif name == first and 1 < len(values) == len(np.unique(values[:, place])):
            doubts.append(_doubt("column", name, "comes before the clients: it may hold ids"))
    if doubts:
        once = list({doubt.drop: doubt for doubt in doubts}.values())
        raise InputError(
            f"{where}: {_said(once)}",
            fix=f"pass {_dropping(once)} to add up the rest; a class has to be renamed, and to "
            "stand after the clients",
        )


def _counts_within(values: Ints, clients: Sequence[str]) -> NDArray[np.bool_]:
    """Tell for each column whether it counts up from each row of a client to the next."""
    _, client = np.unique(np.array(clients), return_inverse=True)
    order = np.argsort(client, kind="stable")
    steps = np.diff(values[order], axis=0)[np.diff(client[order]) == 0]
    counting: NDArray[np.bool_] = (steps == 1).all(axis=0) & (values.max(axis=0) > 1)
    return counting & (len(steps) > 1)


def _doubt(kind: str, name: str, said: str) -> Doubt:
    return Doubt(f"{kind} {shown(name)} {said}", drop=(kind, name))


def _joined(names: Sequence[str]) -> str:
    if len(names) > 3:
        return f"{shown(names[0])} to {shown(names[-1])}"
    return ", ".join(map(shown, names[:-1])) + f" and {shown(names[-1])}"


def sum_column(values: Ints, slack: Ints | None = None) -> int | None:
    """Return the column that is the sum of all others, if that is not a coincidence.

    The sum of a row may be wrong by its `slack`, where cells were suppressed, and in half of the
    rows by a twentieth, as totals are that were counted elsewhere. A few small numbers add up by
    chance: rows in which several others have samples tell more than rows in which one other has.

    >>> sum_column(np.array([[1, 2, 3], [4, 5, 9]])), sum_column(np.array([[1, 2, 3], [4, 5, 8]]))
    (2, None)
    """
    if values.shape[1] < 3:
        return None
    off = np.abs(2 * values - values.sum(axis=1, keepdims=True))
    allowed = np.zeros(1, np.int64) if slack is None else slack
    exact = off <= allowed[:, np.newaxis]
    near = exact | (20 * off <= values)
    columns = np.flatnonzero(near.all(axis=0) & (2 * exact.sum(axis=0) >= len(values)))
    if len(columns) > 1 and allowed.any():
        columns = columns[[off[:, columns].sum(axis=0).argmin()]]
    if len(columns) != 1:
        return None
    others = np.delete(values, columns[0], axis=1)[exact[:, columns[0]]]
    several = int(((others > 0).sum(axis=1) > 1).sum())
    any_of_them = int(others.any(axis=1).sum())
    spread = int(others.any(axis=0).sum()) > 1
    return int(columns[0]) if several >= 2 or (any_of_them >= 4 and spread) else None


def part_sums(values: Ints) -> Iterator[tuple[int, list[int]]]:
    """Yield columns that are the sum of two others, or of those before or after them.

    A sum is no coincidence if the numbers that agree have many digits for the sums that are tried.

    >>> list(part_sums(np.array([[20, 30, 50, 99], [110, 5, 115, 3], [7, 8, 15, 9]])))
    [(2, [0, 1])]
    """
    some = values[:_LOOKED_AT]
    sums: dict[int, list[int]] = {}
    for total, parts in (*_pair_sums(some), *_run_sums(some)):
        if total not in sums and np.array_equal(values[:, parts].sum(axis=1), values[:, total]):
            sums[total] = parts
    yield from sorted(sums.items())


def _pair_sums(values: Ints) -> Iterator[tuple[int, list[int]]]:
    n = values.shape[1]
    if not 3 <= n <= _MOST_PAIRS:
        return
    needed = _EVIDENCE + math.log10(n * (n - 1) * (n - 2) / 2)
    place = {values[:, c].tobytes(): c for c in range(n)}
    for total in np.flatnonzero(_digits(values) >= needed).tolist():
        for first in range(n):
            second = place.get((values[:, total] - values[:, first]).tobytes(), -1)
            parts = [first, second]
            if second > first and total not in parts and _evidence(values, total, parts) >= needed:
                yield total, parts


def _run_sums(values: Ints) -> Iterator[tuple[int, list[int]]]:
    n = values.shape[1]
    if not 3 <= n <= _MOST_RUNS:
        return
    longest = min(n - 1, _LONGEST_RUN)
    needed = _EVIDENCE + math.log10(2 * sum(n - length for length in range(2, longest + 1)))
    enough = _digits(values) >= needed
    ends = np.concatenate([np.zeros((len(values), 1), np.int64), values.cumsum(axis=1)], axis=1)
    for length in range(2, longest + 1):
        runs = ends[:, length:] - ends[:, :-length]  # of the columns from 0, 1, 2, ... on
        above = (runs[:, :-1] == values[:, length:]).all(axis=0) & enough[length:]
        below = (runs[:, 1:] == values[:, :-length]).all(axis=0) & enough[:-length]
        starts = [(start + length, start) for start in np.flatnonzero(above).tolist()]
        starts += [(total, total + 1) for total in np.flatnonzero(below).tolist()]
        for total, start in starts:
            parts = list(range(start, start + length))
            if _evidence(values, total, parts) >= needed:
                yield total, parts


def _digits(values: Ints) -> NDArray[np.float64]:
    """Return the decimal digits of each column's numbers."""
    digits: NDArray[np.float64] = np.log10(np.maximum(values, 1)).sum(axis=0)
    return digits


def _evidence(values: Ints, total: int, parts: list[int]) -> float:
    """Return the decimal digits of the sums to which several parts contribute."""
    several = (values[:, parts] > 0).sum(axis=1) > 1
    return float(np.log10(values[several, total]).sum())


def _years(values: Ints, names: Sequence[str], kind: str) -> Iterator[Doubt]:
    """Doubt the columns that are headed 'year', and the one that holds nothing but years."""
    low, high = _YEARS
    years = np.flatnonzero(((values >= low) & (values <= high)).all(axis=0))
    alone = years[0] if len(years) == 1 and len(values) > 1 else None
    for place, name in enumerate(names):
        if names_year(name) or place == alone:
            yield _doubt(kind, name, "holds years")


def _numbers(table: Table, layout: str) -> Iterator[Doubt]:
    """Doubt numbers that are percentages, codes, or the labels of single samples."""
    values = table.values
    for axis, what in ((1, "row"), (0, "column")):
        sums = values.sum(axis=axis)
        sums = sums[sums > 0]
        if len(sums) > 1 and (np.abs(sums - 100) <= 1).all() and (sums == 100).any():
            yield Doubt(
                f"every {what} adds up to 100, as percentages do",
                fix=f"{SIZES} if they are",
                frame_fix="multiply the shares by the size of each client if they are",
            )
            break
    most, second = _largest(values)
    if _CODE.fullmatch(str(most)) and 2 * second < most:
        yield Doubt(
            f"{most} may stand for a missing number",
            fix=f"leave such cells empty and pass {argument('blank', 0)} if it does",
            frame_fix=f"pass frame.replace({most}, 0) if it does",
        )
    if layout == WIDE and most == 1 and int(values.any(axis=1).sum()) > 2 and not table.added:
        yield Doubt(
            "no number is larger than 1, as in a table with a row per sample",
            fix="put the client of each sample in a column and pass its name as `by`, with "
            f"{argument('layout', WIDE)}, to add its rows up",
            frame_fix="add up the rows of each client: frame.groupby(clients).sum()",
        )


def _largest(values: Ints) -> tuple[int, int]:
    """Return the largest number, and the largest below it."""
    most = int(values.max(initial=0))
    return most, int(values.max(initial=0, where=values < most))
