"""What headings and names mean: which of them stand for clients, classes, totals, counts, years."""

import re

# A heading with one of these words names a column of client ids; see `names_clients`.
_HOLDERS = frozenset({
    "client", "clients", "site", "node", "hospital", "bank", "user", "device", "party", "partition",
    "worker", "silo", "group", "organisation", "organization", "participant", "member",
    "hospitals", "clinic", "klinik", "krankenhaus", "standort",
})  # fmt: skip
# Places that are usually clients, but may be classes of pictures too.
_PLACES = frozenset({
    "praxis", "practice", "ward", "station", "department", "abteilung", "facility", "center",
    "centre", "zentrum", "branch", "filiale", "store", "shop", "school", "schule", "farm",
    "laboratory", "lab", "labor", "city", "county", "state", "country", "region", "land",
})  # fmt: skip
_ALONE = frozenset(("id", "cid", "name", "index"))
# What spreadsheets write above the rows and the columns of a pivot table.
_PIVOT_ROWS = frozenset(("row labels", "zeilenbeschriftungen", "étiquettes de lignes"))
_PIVOT_COLUMNS = frozenset(("column labels", "spaltenbeschriftungen", "étiquettes de colonnes"))
_NUMBERING = _ALONE | {"ids", "no", "nr", "number"}
# Columns with these headings hold the label of a sample.
LABEL_HEADINGS = ("label", "labels", "class", "target", "fine_label", "category", "y")
# Above the names of classes, in a table that has them as rows.
_CLASSES = frozenset({
    "class", "classes", "label", "labels", "category", "categories", "target", "diagnosis",
    "diagnoses", "disease", "finding", "findings", "condition", "species", "outcome", "klasse",
    "klassen", "kategorie", "diagnose", "diagnosen", "erkrankung",
})  # fmt: skip
_TOTALS = frozenset({
    "total", "totals", "subtotal", "sum", "sums", "all", "overall", "gesamt", "insgesamt", "summe",
    "gesamtsumme", "gesamtergebnis", "alle",
})  # fmt: skip
_TOTAL = re.compile("total|sum|all|gesamt", re.IGNORECASE)  # in every one of them
_BESIDE_TOTALS = frozenset(
    {"grand", "sub", "row", "column", "count", "counts", "samples", "n", "général"}
)
_YEARS = frozenset(("year", "years", "jahr", "jahre"))
_COUNTING = frozenset(("count", "counts", "freq", "frequency", "anzahl", "quantity"))
_NUMBER_OF = frozenset(("n", "num", "number", "total"))
_COUNTED = frozenset({
    "samples", "images", "cases", "patients", "records", "instances", "examples", "size", "amount",
    "rows", "scans", "studies", "fälle",
})  # fmt: skip


def _words(heading: str) -> list[str]:
    return [word.lower() for word in re.findall(r"[A-Z]?[^\W\d_A-Z]+|[A-Z]+|[0-9]+", heading)]


def names_clients(heading: str) -> bool:
    """Tell whether a heading is that of client ids: '', 'client', 'ClientID', 'hospital_no'.

    'client_1' is the id of a client, and 'lymph node' may well be a class.
    """
    if heading.lower() in _PIVOT_ROWS:
        return True
    match _words(heading):
        case []:
            return not heading
        case [word]:
            return word in _HOLDERS or word in _ALONE
        case [holder, numbering]:
            return holder in _HOLDERS and numbering in _NUMBERING
    return False


def names_pivot(heading: str) -> bool:
    """Tell whether a cell is what spreadsheets write above the columns of a pivot table."""
    return heading.lower() in _PIVOT_COLUMNS


def is_holder(name: str) -> bool:
    """Tell whether a name is that of a client by its kind: 'client-7', 'Hospital North'.

    >>> is_holder("client-7"), is_holder("Hospital North"), is_holder("hospitals"), is_holder("flu")
    (True, True, False, False)
    """
    words = _words(name)
    return len(words) > 1 and words[0] in _HOLDERS


def names_places(heading: str) -> bool:
    """Tell whether a heading may be that of clients: 'state', 'Praxis-Nr.'."""
    return bool(_PLACES.intersection(_words(heading)))


def names_holders(heading: str) -> bool:
    """Tell whether a heading names clients explicitly, not just 'id' or nothing at all."""
    return names_clients(heading) and bool(_HOLDERS.intersection(_words(heading)))


def names_classes(heading: str) -> bool:
    """Tell whether a heading is that of class names: 'class', 'diagnosis_code'."""
    match _words(heading):
        case [word]:
            return word in _CLASSES
        case [word, numbering]:
            return word in _CLASSES and numbering in _NUMBERING | {"code"}
    return False


def names_total(name: str) -> bool:
    """Tell whether a name is that of a sum: 'Total', 'grand total', 'Gesamt'."""
    if not _TOTAL.search(name):  # a million clients are asked for their names
        return False
    words = _words(name)
    return bool(_TOTALS.intersection(words)) and set(words) <= _TOTALS | _BESIDE_TOTALS


def names_year(heading: str) -> bool:
    """Tell whether a heading is that of years."""
    match _words(heading):
        case [word]:
            return word in _YEARS
    return False


def is_year(name: str) -> bool:
    """Tell whether a name is that of a year, from 1900 to 2100."""
    return len(name) == 4 and name.isascii() and name.isdigit() and "1900" <= name <= "2100"


def names_counts(heading: str) -> bool:
    """Tell whether a heading is that of counts: 'count', 'n', 'n_samples', 'patients'."""
    words = _words(heading)
    return bool(
        _COUNTING.intersection(words)
        or (words and words[0] in _NUMBER_OF)
        or (len(words) == 1 and words[0] in _COUNTED)
    )
