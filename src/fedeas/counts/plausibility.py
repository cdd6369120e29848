"""What in a table of counts is certainly no client and no class: totals, years, numbers of rows."""

import math
import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
LONG = ["client", "class", "count"]  # the heading of a long table

# Names of rows and columns that sum up others: alone, or as the first or last word of a name.
_TOTALS = frozenset({
    "total", "totals", "totale", "totaux", "subtotal", "sum", "summe", "gesamt", "gesamtsumme",
    "insgesamt", "zwischensumme", "gesamtergebnis", "\u03c3", "\u2211",
})  # fmt: skip
_ALL = frozenset(("all", "alle", "ensemble", "overall"))  # only if no other number is larger
_MEANS = frozenset(("mean", "average", "mittelwert", "durchschnitt", "moyenne"))
# Columns that describe a row and are no class of it: as the last word of a heading.
_ATTRIBUTES = frozenset({
    "id", "year", "jahr", "month", "monat", "week", "kw", "date", "datum", "fold", "age", "zip",
    "plz", "beds", "nan",
})  # fmt: skip
# Columns of how many samples a client has: only if they are no fewer than those of all classes.
_SIZES = frozenset({
    "patients", "patienten", "samples", "count", "cases", "f\u00e4lle", "n", "number", "anzahl",
})  # fmt: skip
_CLIENT_WORDS = frozenset({
    "client", "site", "hospital", "krankenhaus", "clinic", "klinik", "center", "centre",
    "institution", "bank", "device", "user", "writer", "partition",
})  # fmt: skip
_LABEL = re.compile(
    "(?<!row )label|class|klasse|categor|target|diagnos|finding|befund|disease|condition|species|"
    "krankheit|erkrankung|maladie|patholog",
    re.IGNORECASE,
)
_YEARS = (1990, 2035)
_ROUNDING = 2  # by how much a sum of all others may be off: somebody corrected a cell
_EVIDENCE = 1.5  # decimal digits from which on equal numbers are no coincidence
_SAMPLES_FROM = 10  # rows of 0 and 1 that are samples, not clients
SAMPLES, PERIODS, LABEL_SETS, SPELLINGS = "samples", "periods", "label sets", "spellings"
_YEAR = r"(?:(?:jahr|year|fy|ann\u00e9e) ?)?(?:19[0-9]{2}|20[0-9]{2}|2100)(?:/[0-9]{2})?"
_QUARTER = r"q[1-4]|h[12]|[1-4]\. ?quartal|kw ?[0-9]{1,2}|[01]?[0-9]"
_MONTH = (
    "jan(?:uary|uar)?|feb(?:ruary|ruar)?|mar(?:ch)?|m\u00e4r(?:z)?|apr(?:il)?|may|mai|june?|juni|"
    "july?|juli|aug(?:ust)?|sept?(?:ember)?|oct(?:ober)?|okt(?:ober)?|nov(?:ember)?|"
    "de[cz](?:ember)?"
)
_PERIOD = re.compile(
    rf"{_YEAR}|(?:{_QUARTER}|{_MONTH})[ /-]{_YEAR}|"
    rf"(?:q[1-4]|[1-4]\. ?quartal|h[12]|kw ?[0-9]+|{_MONTH})(?: [0-9]{{2}})?|"
    rf"{_YEAR}[ /-]?(?:{_QUARTER}|{_MONTH})(?:-[0-9]{{2}}(?: 00:00:00)?)?",
    re.IGNORECASE,
)
# What the column of counts of a table of label sets is called.
_SET_COUNTS = frozenset(("images", "samples", "count", "counts", "n", "people", "patients"))
_SUMMARY = re.compile(
    "tot|sum|all|gesamt|ensemble|mean|average|mittel|durchschn|moyenne|\u03c3|\u03a3|\u2211|^std?$|"
    "^sd$",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Doubt:
    """A row or a column that is certainly no client or class; without a name it is all of them."""

    what: str
    kind: str = ""  # 'row' or 'column'; of all of them SAMPLES, PERIODS, LABEL_SETS or SPELLINGS
    name: str = ""


def names_clients(name: str) -> bool:
    """Tell whether a heading has a word for clients.

    >>> names_clients("Hospital A"), names_clients("COVID")
    (True, False)
    """
    return not _CLIENT_WORDS.isdisjoint(words_of(name))


def names_labels(name: str) -> bool:
    """Tell whether a heading has a word for labels, and none for clients.

    >>> names_labels("Diagnosis code"), names_labels("Clinic type")
    (True, False)
    """
    return _LABEL.search(name) is not None and not names_clients(name)


def are_clients(names: Sequence[str]) -> bool:
    """Tell whether names are those of clients, such as 'Hospital A' and 'Hospital B'."""
    words = [words_of(name) for name in names]
    numbered = all(len(parts) == 2 and len(parts[1]) < 3 for parts in words)
    return numbered and len({parts[0] for parts in words}) == 1 and names_clients(names[0])


def heading_problem(head: Sequence[str]) -> str | None:
    """Say what is wrong with a heading; None if it names clients and classes."""
    if len(head) < 2:
        return f"the heading has one column, {head[0]!r}"
    for place, name in enumerate(head[1:], start=2):
        if not name:
            return f"column {place} has no heading"
        if name in head[1 : place - 1]:
            return f"column {place} is headed {name!r} as column {head.index(name, 1) + 1} is"
    words = words_of(head[0])
    if names_labels(head[0]) and list(head) != LONG:
        return f"the first column is headed {head[0]!r}: rows seem to be classes, not clients"
    if are_clients(head[1:]):
        return f"the columns {head[1]!r} to {head[-1]!r} seem to be clients, not classes"
    if words and words[-1] in (_ATTRIBUTES | _SIZES) - {"id", "n", "number"}:
        return f"the first column is headed {head[0]!r}, which names no client"
    named = names_clients(head[0]) and words[1:] in ([], ["0"], ["id"])
    if not head[0] and any(map(names_clients, head)):
        return "the first column has no heading, and another one names the clients"
    numbered = not head[0] and list(head[1:]) == list(map(str, range(len(head) - 1)))
    if head[0].isdecimal() or (not named and not numbered and all(map(str.isdecimal, head[1:]))):
        return f"the heading holds numbers, not names of classes: {head[1]!r}, {head[-1]!r}"
    return None


def periods_problem(names: Sequence[str]) -> str | None:
    """Say so where all columns are years, quarters or months; None if they are not.

    >>> periods_problem(["Q1", "Q2"]), periods_problem(["year 1", "2021"])
    ("the columns 'Q1' to 'Q2' are years or parts of one", None)
    """
    if len(names) < 2 or not all(map(_PERIOD.fullmatch, names)):
        return None
    return f"the columns {names[0]!r} to {names[-1]!r} are years or parts of one"


def same_but_for_spelling(names: Sequence[str]) -> str | None:
    """Return two names that differ in capitals and in signs between words alone, if any.

    >>> same_but_for_spelling(["flu", "cold", "Flu"])
    "'flu' and 'Flu'"
    """
    first: dict[str, str] = {}
    for name in names:
        plain = unicodedata.normalize("NFKC", name).casefold()
        other = first.setdefault(re.sub(r"[\s._-]+", " ", plain), name)
        if other != name:
            return f"{other!r} and {name!r}"
    return None


def _are_label_sets(values: Ints, classes: Sequence[str]) -> bool:
    """Tell whether columns of 0 and 1 are followed by one or two of counts."""
    labels = len(classes)
    while labels and classes[labels - 1].lower() in _SET_COUNTS:
        labels -= 1
    if labels < 2 or labels == len(classes):
        return False
    held, counts = values[:, :labels], values[:, labels:]
    is_sum = (held.sum(axis=1) == counts[:, 0]).all()
    return bool(held.max() <= 1 < counts.max() and not is_sum)


def words_of(name: str) -> list[str]:
    """Return the words of a name in small letters.

    >>> words_of("nPatients"), words_of("Total (excl. B)")
    (['n', 'patients'], ['total', 'excl', 'b'])
    """
    words = re.findall(r"[A-Z]?[^\W\d_A-Z]+|[A-Z]+|[0-9]+|\u2211", name)
    return [word.lower() for word in words]


def find_doubts(
    values: Ints, clients: Sequence[str] | None, classes: Sequence[str] | None
) -> list[Doubt]:
    """Return the rows and columns of a table that are certainly no clients or classes."""
    rows, columns = values.shape
    clients = clients or [str(k) for k in range(rows)]
    classes = classes or [str(c) for c in range(columns)]
    doubts = []
    if rows >= _SAMPLES_FROM and values.max() <= 1:
        what = "all cells are 0 or 1: rows seem to be samples, not clients"
        doubts.append(Doubt(what, SAMPLES))
    if _are_label_sets(values, classes):
        what = f"columns of 0 and 1 before {classes[-1]!r}: this looks like label sets"
        doubts.append(Doubt(what, LABEL_SETS))
    if problem := periods_problem(classes):
        doubts.append(Doubt(f"{problem}, not classes", PERIODS))
    for what, names in (("clients", clients), ("classes", classes)):
        if alike := same_but_for_spelling(names):
            doubts.append(Doubt(f"{what} {alike} differ in their spelling only", SPELLINGS))
    for c, name in enumerate(classes):
        words, column = words_of(name), values[:, c]
        others = values.sum(axis=1) - column
        if words and (
            words[-1] in _ATTRIBUTES
            or (_SIZES.issuperset(words) and (column >= others - _ROUNDING).all())
            or re.search("(?<![0-9])[%\u2030]", name)
        ):
            doubts.append(Doubt(f"column {name!r} does not name a class", "column", name))
        elif rows > 2 and (column == np.arange(1, rows + 1)).all():
            doubts.append(Doubt(f"column {name!r} numbers the rows", "column", name))
    doubts += _summaries(values, classes, "column")
    doubts += _summaries(values.T, clients, "row")
    return list({(doubt.kind, doubt.name): doubt for doubt in reversed(doubts)}.values())[::-1]


def _summaries(values: Ints, names: Sequence[str], kind: str) -> Iterator[Doubt]:
    """Yield the columns that are called a total, that are sums of others, and that hold years."""
    named = {place: words_of(re.sub(r"\(.*\)", "", name)) for place, name in enumerate(names)
             if _SUMMARY.search(name)}  # fmt: skip
    largest = values.max(axis=1) if values.size else values.sum(axis=1)
    others = np.delete(values, list(named), axis=1)
    means = others.mean(axis=1) if others.size else largest
    averaged = False
    for place, words in named.items():
        name, column = names[place], values[:, place]
        ends = {words[0], words[-1]} if words else set()
        alone = len(words) == 1 or words[:1] == ["subtotal"]
        if (ends & _TOTALS and alone) or (ends & (_TOTALS | _ALL) and (column >= largest).all()):
            yield Doubt(f"{kind} {name!r} is called a total", kind, name)
        elif ends & _MEANS and (abs(column - means) <= 1).all():
            averaged = True
            yield Doubt(f"{kind} {name!r} is called a mean", kind, name)
        elif averaged and words in (["sd"], ["std"]):
            yield Doubt(f"{kind} {name!r} stands beside a mean", kind, name)
    for place in _sums(values):
        yield Doubt(f"{kind} {names[place]!r} is the sum of others", kind, names[place])
    near = (values >= _YEARS[0] - 100) & (values <= _YEARS[1] + 100)
    in_years = ((values >= _YEARS[0]) & (values <= _YEARS[1])).all(axis=0)
    in_years &= (values != values[:1]).any(axis=0)
    if len(values) > 1 and near.any(axis=0).sum() == in_years.sum() < len(names):
        for place in np.flatnonzero(in_years).tolist():
            yield Doubt(f"{kind} {names[place]!r} holds years", kind, names[place])


def _sums(values: Ints) -> list[int]:
    """Return the columns that are the sum of all others, or of two or more beside them.

    >>> _sums(np.array([[120, 30, 150, 7], [10, 300, 310, 90]]))
    [2]
    """
    columns = values.shape[1]
    if columns < 3:
        return []
    off = np.abs(2.0 * values - values.sum(axis=1, keepdims=True))
    # Round numbers say less: of hundreds, one in ten is the sum of two others by chance.
    told = values // max(1, int(np.gcd.reduce(values, axis=None)))
    digits = np.log10((told + 1.0) / (2 * _ROUNDING + 1)).clip(min=0).sum(axis=0)
    summaries = set(np.flatnonzero((off <= _ROUNDING).all(axis=0) & (digits >= _EVIDENCE)).tolist())
    # A run of columns can only add up to one if their totals do, which running sums tell.
    totals = values.sum(axis=0, dtype=np.float64)
    sums = np.concatenate([[0.0], np.cumsum(totals)])
    first = np.searchsorted(sums, sums[:-1] - totals)
    last = np.searchsorted(sums, sums[1:] + totals, side="right") - 1
    place = np.arange(columns)
    before = (sums[first] == sums[:-1] - totals) & (place - first > 1)
    after = (sums[last] == sums[1:] + totals) & (last - place > 2)
    likely = np.log10(told + 1.0).sum(axis=0) >= _EVIDENCE + math.log10(columns * columns)
    for at in np.flatnonzero((before | after) & likely).tolist():
        for run in (slice(first[at], at), slice(at + 1, last[at])):
            if run.stop - run.start > 1 and (values[:, run].sum(axis=1) == values[:, at]).all():
                summaries.add(at)
    return sorted(summaries)
