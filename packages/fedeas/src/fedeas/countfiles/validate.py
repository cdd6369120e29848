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

from fedeas.countfiles.table import (
    THEN,
    Doubt,
    Table,
    TableError,
    Way,
    listed,
    names_counts,
    names_labels,
    shown,
    words_of,
)
from fedeas.errors import InputError

Ints = NDArray[np.int64]
# Words that tell what a row or a column is, in the languages of the tables that we were given.
# They only ever lead to a question.
_TOTALS = frozenset({
    "total", "totals", "subtotal", "subtotals", "sum", "sums", "gesamt", "insgesamt", "summe",
    "gesamtsumme", "zwischensumme", "teilsumme", "gesamtergebnis", "somme", "ensemble", "\u03c3",
})  # fmt: skip
_ALL = frozenset(("all", "alle", "overall"))  # a total alone, or with one of these words
_BESIDE_ALL = frozenset({
    "client", "clients", "site", "sites", "hospital", "hospitals", "clinics", "centers", "centres",
    "kliniken", "standorte", "häuser", "grand", "row", "column", "count", "counts", "samples", "n",
    "patients", "cases", "classes", "together",
})  # fmt: skip
_AVERAGES = frozenset(("mean", "average", "avg", "durchschnitt", "mittelwert", "\u00f8"))
_STATISTICS = frozenset(("median", "std", "stdev", "minimum", "maximum"))
_BESIDE_AVERAGES = frozenset(("sd", "min", "max", "n"))  # SD is a state, too
_OF_OTHERS = _AVERAGES | _STATISTICS | {"sd", "se", "sem", "ci", "iqr", "var", "min", "max"}
_PERIODS = frozenset({
    "year", "years", "jahr", "jahre", "month", "months", "monat", "monate", "mois", "date", "datum",
    "quarter", "quartal", "week", "weeks", "woche", "kw", "semaine", "trimestre", "année",
})  # fmt: skip
_BEFORE = frozenset(("previous", "prev", "prior", "last"))
_ATTRIBUTES = frozenset({
    "beds", "betten", "zip", "zipcode", "postcode", "postal", "plz", "age", "ages", "alter", "lat",
    "lon", "latitude", "longitude", "population", "einwohner", "bmi", "percent", "percentage",
    "prozent", "rate", "lits", "ärzte", "mitarbeiter", "employees", "fläche", "ik", "mrn",
    "kosten", "cost", "costs", "eur", "usd", "chf", "umsatz", "erlös", "revenue", "budget",
    "cumulative", "cumulated", "kumuliert", "kumulativ", "cumul", "cumulé", "vorjahr", "vormonat",
})  # fmt: skip
_ID_ENDS = frozenset(("id", "ids", "uuid", "nr", "nummer"))
_LONG_NUMBERS = frozenset(("phone", "telephone", "telefon", "tel", "mobile", "fax", "code"))
_COUNTED = (["patienten"], ["fälle"], ["fallzahl"], ["anzahl"], ["records"], ["scans"], ["studies"])
_PARTS = frozenset(("davon", "darunter", "thereof", "dont"))
_SEXES = frozenset(("male", "female", "males", "females", "männlich", "weiblich"))
_UNLABELLED = frozenset(("unlabelled", "unlabeled", "ungelabelt", "nan"))
_UNKNOWN = frozenset({
    "unknown", "unbekannt", "inconnu", "unspecified", "k a", "keine angabe", "not specified",
})  # fmt: skip
_MISSING = frozenset(("nan", "na", "n/a", "#n/a", "null", "none", "missing", "nil", "k.a.", "?"))
_DASHES = frozenset("-.\u2013\u2014\u2212\u00b7")  # also those of typesetters
_MONTHS = re.compile(
    "jan(uary?|uar|vier)?|feb(ruary?|ruar)?|février|mar(ch|s)?|mrz|märz?|a[pv]r(il)?|ma[iy]|ju[nl]i?|"
    "june|july|juin|juillet|aug(ust)?|août|sept?(ember|embre)?|o[ck]t(ober|obre)?|nov(ember|embre)?|"
    "d[eé][cz](ember|embre)?"
)
_PERIOD = re.compile(
    r"(?:19|20)[0-9]{2}(?:[-/.][0-9]{1,2}){1,2}(?: [0-9:]+)?"
    r"|[0-9]{1,2}[-/.][0-9]{1,2}[-/.](?:19|20)?[0-9]{2}|(?:19|20)[0-9]{2}[- ]?w[0-9]{1,2}"
    r"|(?:(?:19|20)[0-9]{2}[- ]?)?(?:q[1-4]|(?:kw|week) ?[0-9]{1,2})(?:[- /]?(?:19|20)[0-9]{2})?",
    re.IGNORECASE,
)
# In names of one class at several times, or in several parts of its samples.
_ASPECT = re.compile(
    r"(?:(?<=[ _-])|^)(?:q[1-4]|(?:19|20)[0-9]{2}|train|test|val|validation)(?=[ _-]|$)", re.I
)
# In every total and every average; a million clients are asked for their names.
_SUMMARY = re.compile(
    "tot|sum|all|gesamt|somme|ensemble|mean|av|mittel|durchs|\u00f8|\u03c3|\u2211|median|std|m[ai][nx]",
    re.I,
)
_CODE = re.compile("999+")  # what statistics programs write for a missing number
_MOST_PAIRS, _MOST_RUNS, _LONGEST_RUN = 100, 2_000, 50  # of columns that are added up
_LOOKED_AT = 1_000  # rows that suggest such a sum; all are checked
_SPACES = str.maketrans("-_", "  ")
_LONG_NUMBER = 100_000  # from which on a number may be that of a telephone
_EVIDENCE = 2.0  # decimal digits by which a sum is no coincidence
KEEP: Way = ({"keep": True}, "if it is right as it is")
ADD_SIZES = "add a column 'n' with the number of samples of each client"


def find_doubts(table: Table) -> Iterator[Doubt]:
    """Yield doubts to settle before the table is used."""
    yield from table.doubts
    for names, what in ((table.clients, "clients"), (table.classes, "classes")):
        yield from _spellings(names, what)
        yield from _aspects(names, what)
    if not table.wide and table.classes:
        yield from _labels(table.classes)
    if table.description.startswith("a row per sample"):
        return
    yield from _times(table)
    yield from _to_leave_out(table)
    yield from _odd_numbers(table)


def refusal(where: str, doubts: Sequence[Doubt]) -> TableError:
    """Return the error that names doubts, and the options that settle them."""
    drops: dict[str, list[str]] = defaultdict(list)
    for doubt in doubts:
        if doubt.drop is not None:
            drops[f"drop_{doubt.drop[0]}s"].append(doubt.drop[1])
    one = len(doubts) == 1
    ways: list[Way] = [(drops, f"to leave {'it' if one else 'them'} out")] if drops else []
    ways += [way for doubt in doubts for way in doubt.ways]
    fixes = dict.fromkeys(doubt.fix for doubt in doubts if doubt.fix)
    return TableError(f"{where}: {_summary(doubts)}", *ways, KEEP, fix="; ".join(fixes) or None)


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
    return InputError(f"the data frame: {_summary(doubts)}", fix=", ".join([*fixes, keep]))


def _summary(doubts: Sequence[Doubt]) -> str:
    more = f"; {len(doubts) - 3} more" if len(doubts) > 3 else ""
    return "; ".join(doubt.what for doubt in doubts[:3]) + more


# Names


def is_missing(cell: str) -> bool:
    """Tell whether a cell holds nothing, a dash, 'NaN' or the like."""
    return not cell or cell in _DASHES or cell.lower() in _MISSING


def one_spelling(name: str) -> str:
    """Return an id of a person as everybody writes it: spelt in two ways, somebody counts twice.

    >>> one_spelling(" P  07") == one_spelling("p 07")
    True
    """
    return " ".join(unicodedata.normalize("NFKC", name).casefold().split())


def names_total(name: str) -> bool:
    """Tell whether a name is that of a sum: 'Total', 'Subtotal Nord', 'Alle H\u00e4user'.

    >>> names_total("Total (excl. B)"), names_total("All sites"), names_total("All Saints")
    (True, True, False)
    """
    if not _SUMMARY.search(name):
        return False
    words = words_of(name.replace("\u2211", "\u03c3 "))
    if words and (words[0] in _TOTALS or words[-1] in _TOTALS):
        return True
    return bool(_ALL.intersection(words)) and set(words) <= _ALL | _BESIDE_ALL


def names_attribute(heading: str) -> bool:
    """Tell whether a heading is that of numbers that are not counts: 'beds', 'zip_code', 'flu %'.

    >>> names_attribute("Kosten EUR"), names_attribute("patient_id"), names_attribute("No Finding")
    (True, True, False)
    """
    words = words_of(heading)
    return bool(
        _ATTRIBUTES.intersection(words)
        or re.search("[%\u2030]", heading)
        or (words and words[-1] in _ID_ENDS)
        or names_times(heading)
    )


def names_times(heading: str) -> bool:
    """Tell whether a heading is that of times: 'year', 'Monat', 'last year'."""
    words = set(words_of(heading))
    return bool(words & _PERIODS) and words <= _PERIODS | _BEFORE


def unknown_classes(classes: Sequence[str] | None) -> Iterator[str]:
    """Note classes that may stand for samples whose label is not known."""
    for name in classes or ():
        if is_missing(name) or " ".join(words_of(name)) in _UNKNOWN:
            yield f"class {shown(name)} may hold samples whose label is not known"


def label_doubts(classes: Sequence[str]) -> Iterator[Doubt]:
    """Doubt columns that are headed 'label' or the like: rows may be samples."""
    for name in filter(names_labels, classes):
        yield Doubt(
            f"column {shown(name)} may hold labels, not counts",
            ways=(({"label": name}, "if every row is a sample"),),
        )


def _is_average(name: str) -> bool:
    words = words_of(name) if _SUMMARY.search(name) else []
    return bool(_AVERAGES.intersection(words)) or (len(words) == 1 and words[0] in _STATISTICS)


def _is_time(name: str) -> bool:
    """Tell whether a name is that of a time, but not just a number: 'Jan 24', '2024-01', 'Q1'."""
    if len(name) > 20:
        return False
    words = [word for word in words_of(name) if not word.isdigit()]
    month = len(words) == 1 and _MONTHS.fullmatch(words[0]) is not None
    return bool(_PERIOD.fullmatch(name)) or month


def _is_year(name: str) -> bool:
    return len(name) == 4 and name.isascii() and name.isdigit() and "1900" <= name <= "2100"


def _spellings(names: Sequence[str] | None, what: str) -> Iterator[Doubt]:
    """Doubt names that differ in nothing but capitals, spaces and hyphens."""
    alike: dict[str, list[str]] = defaultdict(list)
    for name in dict.fromkeys(names or ()):  # one that occurs twice is an error of its own
        plain = name if name.isascii() else unicodedata.normalize("NFKC", name)
        number = re.fullmatch(r"[+-]?[0-9.]+", plain)
        alike[name if number else " ".join(plain.casefold().translate(_SPACES).split())].append(
            name
        )
    for group in alike.values():
        if len(group) > 1:
            what = f"{what} {listed(group)} differ in their spelling only"
            yield Doubt(what, fix="write them in one way")
            return


def _aspects(names: Sequence[str] | None, what: str) -> Iterator[Doubt]:
    """Doubt names that are all there several times: for years, quarters, training and test."""
    alike: dict[str, list[str]] = defaultdict(list)
    for name in names or ():
        rest, number = _ASPECT.subn("", name)
        if not number or not (rest := rest.strip(" _-")):
            return
        alike[rest].append(name)
    groups = list(alike.values())
    if groups and all(len(group) > 1 for group in groups):
        yield Doubt(
            f"{what} {listed(groups[0])} differ in a time or a part of the samples only",
            fix="add them up, or leave some out",
        )


def _labels(labels: Sequence[str]) -> Iterator[Doubt]:
    """Doubt labels that are lists of labels, and those that stand for none."""
    for sign in ("[]", "|", ";", ",", "/", "+", "&"):
        if lists := _lists(labels, sign):
            yield Doubt(
                f"{len(lists)} labels such as {shown(lists[0])} are lists of others",
                fix="write one label per sample, or use fedeas plan, which reads lists",
            )
            break
    signs = set(labels) == {"-1", "1"}
    if missing := [x for x in labels if is_missing(x) or (x == "-1" and not signs)]:
        what = f"label {missing[0]!r} seems to mean that there is none"
        yield Doubt(what, drop=("column", missing[0]))


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
    single = set(labels)
    if any(all(part in single for part in each) for each in parts.values()):
        return list(parts)
    used = [part for each in parts.values() for part in set(each)]
    return list(parts) if sign in "|;" and len(set(used)) < len(used) else []


def _times(table: Table) -> Iterator[Doubt]:
    for names, what in ((table.classes, "classes"), (table.clients, "clients")):
        years = what == "classes" and names is not None and all(map(_is_year, names))
        if names and (years or (len(names) > 1 and all(map(_is_time, names)))):
            yield Doubt(
                f"{what} are headed {listed(names[:2])}: times, not {what}",
                fix="give the counts of clients by class",
            )


# Numbers


def _to_leave_out(table: Table) -> Iterator[Doubt]:
    """Doubt rows and columns that are better left out."""
    values = table.values
    classes = table.classes or [str(c) for c in range(values.shape[1])]
    clients = table.clients or [str(k) for k in range(values.shape[0])]
    kinds = ("row", "column") if table.transposed else ("column", "row")
    slack = np.zeros((1, 1), np.int64) if table.slack is None else table.slack
    doubts = [
        *_totals(values, classes, kinds[0], slack.sum(axis=1)),
        *_totals(values.T, clients, kinds[1], slack.sum(axis=0)),
        *_years(values, classes, kinds[0]),
        *(_years(values.T, clients, kinds[1]) if table.transposed else ()),
        *(_beside(values, classes, kinds[0]) if table.wide else ()),
    ]
    yield from reversed({doubt.drop: doubt for doubt in reversed(doubts)}.values())


def _totals(values: Ints, names: Sequence[str], kind: str, slack: Ints) -> Iterator[Doubt]:
    """Doubt columns that are sums of others, or are called a total or a mean."""
    whole = sum_column(values, slack)
    parts = dict(part_sums(values)) if whole is None else {}
    called = _called(names, kind)
    for place, name in enumerate(names):
        if place == whole:
            yield _doubt(kind, name, "is the sum of the others")
        elif place in parts:
            yield _doubt(kind, name, f"is the sum of {_joined([names[p] for p in parts[place]])}")
        elif name in called:
            yield _doubt(kind, name, called[name])


def _called(names: Sequence[str], kind: str) -> dict[str, str]:
    """Say which names are those of totals and means."""
    averages = {name for name in names if _is_average(name)}
    averages |= {name for name in names if averages and name.lower() in _BESIDE_AVERAGES}
    reasons = {}
    for name in names:
        if names_total(name):
            reasons[name] = "is called a total"
        elif name in averages:
            reasons[name] = "is called a mean"
        elif kind == "column" and (names_counts(name) or words_of(name) in _COUNTED):
            reasons[name] = "is called a number of samples, not a class"
    return reasons


def _beside(values: Ints, classes: Sequence[str], kind: str) -> Iterator[Doubt]:
    """Doubt columns that stand beside counts, by their headings, and one that numbers the rows."""
    spellings = {tuple(words_of(name)): name for name in classes}
    sexes = sum(name.lower() in _SEXES for name in classes)
    by_sex = sexes > 0 and len(classes) - sexes > 1
    some = values[:_LOOKED_AT]
    numbers = (np.diff(some, axis=0) == 1).all(axis=0) & (some[:1] <= 1).all(axis=0)
    long = np.asarray((values >= _LONG_NUMBER).all(axis=0))
    for place, name in enumerate(classes):
        words = words_of(name)
        described = tuple(words[:-1]) if words and words[-1] in _OF_OTHERS else None
        if described and described in spellings:
            reason = f"is a statistic of {shown(spellings[described])}"
        elif names_attribute(name) or (long[place] and _LONG_NUMBERS.intersection(words)):
            reason = "holds no counts"
        elif words[:2] == ["of", "which"] or _PARTS.intersection(words[:1]):
            reason = "is a part of another"
        elif _UNLABELLED.intersection(words) or (name == "-1" and "1" not in classes):
            reason = "holds samples without a label"
        elif by_sex and name.lower() in _SEXES:
            reason = "holds a sex, beside other classes"
        elif len(some) > 2 and numbers[place]:
            reason = "numbers the rows"
        else:
            continue
        yield _doubt(kind, name, reason)


def check_to_add(where: str, values: Ints, classes: Sequence[str], clients: Sequence[str]) -> None:
    """Refuse to add up the rows of each client where some hold totals, or columns ids or times."""
    doubts = [*_years(values, classes, "column"), *_beside(values, classes, "column")]
    doubts += [_doubt("column", *called) for called in _called(classes, "column").items()]
    if weights := [name for name in classes if names_counts(name)]:
        raise InputError(
            f"{where}: column {shown(weights[0])} is called a number of samples",
            fix="leave it out if it is the sum of the others; if it says how many samples a row "
            "stands for, multiply the other columns by it",
        )
    distinct = list(dict.fromkeys(clients))
    doubts += [_doubt("row", *called) for called in _called(distinct, "row").items()]
    _, client = np.unique(np.array(clients), return_inverse=True)
    order = np.argsort(client, kind="stable")
    steps = np.diff(values[order], axis=0)[np.diff(client[order]) == 0]
    counting = (steps == 1).all(axis=0) & (values.max(axis=0) > 1) & (len(steps) > 1)
    doubts += [
        _doubt("column", name, "counts up from row to row")
        for place, name in enumerate(classes)
        if counting[place]
    ]
    doubts += [_doubt("column", name, "may hold labels") for name in filter(names_labels, classes)]
    if doubts:
        error = refusal(where, list({doubt.drop: doubt for doubt in doubts}.values()))
        raise TableError(
            error.what, *error.ways[:-1], fix="rename a class that is called so, if it is one"
        )


def _doubt(kind: str, name: str, reason: str) -> Doubt:
    return Doubt(f"{kind} {shown(name)} {reason}", drop=(kind, name))


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
    years = np.flatnonzero(((values >= 1900) & (values <= 2100)).all(axis=0))
    alone = years[0] if len(years) == 1 and len(values) > 1 else None
    for place, name in enumerate(names):
        if words_of(name) in (["year"], ["years"], ["jahr"], ["jahre"]) or place == alone:
            yield _doubt(kind, name, "holds years")


def _odd_numbers(table: Table) -> Iterator[Doubt]:
    """Doubt numbers that are percentages, codes, or the labels of single samples."""
    values = table.values
    for axis, what in ((1, "row"), (0, "column")):
        sums = values.sum(axis=axis)
        sums = sums[sums > 0]
        if len(sums) > 1 and (np.abs(sums - 100) <= 1).all() and (sums == 100).any():
            yield Doubt(
                f"every {what} adds up to 100, as percentages do",
                fix=f"{ADD_SIZES} if they are",
                ways=(({"sizes": "n"}, THEN),),
                frame_fix="multiply the shares by the size of each client if they are",
            )
            break
    most = int(values.max(initial=0))
    if _CODE.fullmatch(str(most)) and 2 * int(values.max(initial=0, where=values < most)) < most:
        yield Doubt(
            f"{most} may stand for a missing number",
            fix="write 0 in such cells if it does",
            frame_fix=f"pass frame.replace({most}, 0) if it does",
        )
    if table.wide and most == 1 and int(values.any(axis=1).sum()) > 2 and not table.added:
        yield Doubt(
            "no number is larger than 1, as in a table with a row per sample",
            fix="put the client of each sample in a column 'client' if it is one",
            ways=(({"client": "client", "add_up": True}, THEN),),
            frame_fix="add up the rows of each client: frame.groupby(clients).sum()",
        )
