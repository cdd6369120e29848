"""What headings and names mean: which of them stand for clients, classes, totals, counts, years."""

import re

# A heading with one of these words names a column of client ids; see `names_clients`.
_HOLDERS = frozenset({
    "client", "clients", "site", "node", "hospital", "bank", "user", "device", "party", "partition",
    "worker", "silo", "group", "organisation", "organization", "participant", "member",
    "hospitals", "clinic", "klinik", "krankenhaus", "standort", "hôpital", "établissement",
    "institution", "ospedale", "writer",
})  # fmt: skip
# Places that are usually clients, but may be classes of pictures too.
_PLACES = frozenset({
    "praxis", "practice", "ward", "station", "department", "abteilung", "facility", "center",
    "centre", "zentrum", "branch", "filiale", "store", "shop", "school", "schule", "farm",
    "laboratory", "lab", "labor", "city", "county", "state", "country", "region", "land",
})  # fmt: skip
_ALONE = frozenset(("id", "cid", "name", "index"))
_IDS = frozenset(("id", "cid"))
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
    "klassen", "kategorie", "diagnose", "diagnosen", "erkrankung", "krankheit", "befund",
})  # fmt: skip
_TOTALS = frozenset({
    "total", "totals", "subtotal", "subtotals", "sum", "sums", "gesamt", "insgesamt", "summe",
    "gesamtsumme", "zwischensumme", "teilsumme", "gesamtergebnis", "somme", "ensemble", "\u03c3",
})  # fmt: skip
_ALL = frozenset(("all", "alle", "overall"))  # a total alone, or with one of these words
_BESIDE_ALL = _HOLDERS | _PLACES | {
    "grand", "row", "column", "count", "counts", "samples", "n", "patients", "cases", "sites",
    "centers", "centres", "clinics", "kliniken", "standorte", "häuser", "classes", "together",
}  # fmt: skip
_AVERAGES = frozenset(("mean", "average", "avg", "durchschnitt", "mittelwert", "\u00f8"))
_STATISTICS = frozenset(("median", "std", "stdev", "minimum", "maximum"))
_BESIDE_AVERAGES = frozenset(("sd", "min", "max", "n"))  # SD is a state, too
# After the name of a column whose numbers they describe: 'flu_std'.
_OF_OTHERS = _AVERAGES | _STATISTICS | {"sd", "se", "sem", "ci", "iqr", "var", "min", "max"}
# In every total and every average; a million clients are asked for their names.
_SUMMARY = re.compile(
    "tot|sum|all|gesamt|somme|ensemble|mean|av|mittel|durchs|\u00f8|\u03c3|\u2211|median|std|m[ai][nx]",
    re.I,
)
# Columns beside counts, which are neither classes nor counts.
_ATTRIBUTES = frozenset({
    "beds", "betten", "zip", "zipcode", "postcode", "postal", "plz", "age", "ages", "alter", "lat",
    "lon", "latitude", "longitude", "population", "einwohner", "bmi", "percent", "percentage",
    "prozent", "rate", "lits", "ärzte", "mitarbeiter", "employees", "fläche", "ik", "mrn",
    "kosten", "cost", "costs", "eur", "usd", "chf", "umsatz", "erlös", "revenue", "budget",
    "cumulative", "cumulated", "kumuliert", "kumulativ", "cumul", "cumulé", "vorjahr", "vormonat",
})  # fmt: skip
_SHARES = re.compile("[%\u2030]")
_ID_ENDS = frozenset(("id", "ids", "uuid", "nr", "nummer"))
# Of columns of long numbers; some are things in pictures, too.
_LONG_NUMBERS = frozenset({
    "phone", "telephone", "telefon", "tel", "mobile", "fax", "code", "number",
})  # fmt: skip
_PARTS = frozenset(("davon", "darunter", "thereof", "dont"))
_SEXES = frozenset(("male", "female", "males", "females", "männlich", "weiblich"))
_UNLABELLED = frozenset(("unlabelled", "unlabeled", "ungelabelt", "nan"))
_UNKNOWN = frozenset({
    "unknown", "unbekannt", "inconnu", "unspecified", "k a", "keine angabe", "not specified",
})  # fmt: skip
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
# In headings of one class at several times, or in several parts of its samples.
_ASPECT = re.compile(
    r"(?:(?<=[ _-])|^)(?:q[1-4]|(?:19|20)[0-9]{2}|train|test|val|validation)(?=[ _-]|$)", re.I
)
_YEARS = frozenset(("year", "years", "jahr", "jahre"))
_PERIODS = _YEARS | {
    "month", "months", "monat", "monate", "mois", "date", "datum", "quarter", "quartal", "week",
    "weeks", "woche", "kw", "semaine", "trimestre", "année",
}  # fmt: skip
_BEFORE = frozenset(("previous", "prev", "prior", "last"))
_COUNTING = frozenset(("count", "counts", "freq", "frequency", "anzahl", "quantity", "effectif"))
_NUMBER_OF = frozenset(("n", "num", "number", "total"))
_COUNTED = frozenset({
    "samples", "images", "cases", "patients", "records", "instances", "examples", "size", "amount",
    "rows", "scans", "studies", "fälle", "fallzahl", "patienten", "people",
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


def says_clients(heading: str) -> bool:
    """Tell whether a heading leaves no doubt that clients are below it: not 'name', not ''."""
    ids = heading.lower() in _IDS
    return ids or names_holders(heading) or names_places(heading)


def names_classes(heading: str) -> bool:
    """Tell whether a heading is that of class names: 'class', 'diagnosis_code'."""
    match _words(heading):
        case [word]:
            return word in _CLASSES
        case [word, numbering]:
            return word in _CLASSES and numbering in _NUMBERING | {"code"}
    return False


def names_total(name: str) -> bool:
    """Tell whether a name is that of a sum: 'Total', 'Subtotal Nord', 'Alle H\u00e4user'.

    >>> names_total("Total (excl. B)"), names_total("All sites"), names_total("All Saints")
    (True, True, False)
    """
    if not _SUMMARY.search(name):
        return False
    words = _words(name.replace("\u2211", "\u03c3 "))
    if words and (words[0] in _TOTALS or words[-1] in _TOTALS):
        return True
    return bool(_ALL.intersection(words)) and set(words) <= _ALL | _BESIDE_ALL


def names_average(name: str) -> bool:
    """Tell whether a name is that of a mean or of another statistic: 'Average', 'mean_age'."""
    if not _SUMMARY.search(name):
        return False
    words = _words(name)
    return bool(_AVERAGES.intersection(words)) or (len(words) == 1 and words[0] in _STATISTICS)


def beside_averages(name: str) -> bool:
    """Tell whether a name is that of a statistic in a table that has a mean: 'SD', 'min'."""
    return name.lower() in _BESIDE_AVERAGES


def names_attribute(heading: str) -> bool:
    """Tell whether a heading is that of numbers that are not counts: 'beds', 'zip_code', 'flu %'.

    >>> names_attribute("Kosten EUR"), names_attribute("patient_id"), names_attribute("No Finding")
    (True, True, False)
    """
    words = _words(heading)
    return bool(
        _ATTRIBUTES.intersection(words)
        or _SHARES.search(heading)
        or (words and words[-1] in _ID_ENDS)
        or names_periods(heading)
    )


def names_long_numbers(heading: str) -> bool:
    """Tell whether a heading may be that of telephone numbers and the like: 'phone', 'ICD code'."""
    return bool(_LONG_NUMBERS.intersection(_words(heading)))


def names_part(heading: str) -> bool:
    """Tell whether a heading is that of a part of another column: 'davon Influenza A'."""
    words = _words(heading)
    return words[:2] == ["of", "which"] or bool(_PARTS.intersection(words[:1]))


def names_sex(heading: str) -> bool:
    """Tell whether a heading is that of a sex."""
    return heading.lower() in _SEXES


def names_unlabelled(heading: str) -> bool:
    """Tell whether a heading is that of samples without a label."""
    return bool(_UNLABELLED.intersection(_words(heading)))


def names_unknown(name: str) -> bool:
    """Tell whether a name may be that of samples whose label is not known, or that of a class."""
    return " ".join(_words(name)) in _UNKNOWN


def described_column(heading: str) -> str | None:
    """Return the words of the column that a statistic describes.

    >>> described_column("Flu_std"), described_column("flu")
    ('flu', None)
    """
    *words, last = _words(heading) or [""]
    return " ".join(words) if words and last in _OF_OTHERS else None


def spelled(heading: str) -> str:
    """Return the words of a heading."""
    return " ".join(_words(heading))


def names_whole(heading: str) -> bool:
    """Tell whether a heading is that of all samples, without a class: 'n_patients', 'cases'."""
    words = set(_words(heading))
    return bool(words) and words <= _COUNTING | _NUMBER_OF | _COUNTED


def names_periods(heading: str) -> bool:
    """Tell whether a heading is that of times: 'year', 'Monat', 'last year'."""
    words = set(_words(heading))
    return bool(words & _PERIODS) and words <= _PERIODS | _BEFORE


def is_period(name: str) -> bool:
    """Tell whether a name is that of a time, but not just a number: 'Jan 24', '2024-01', 'Q1'.

    >>> is_period("Jan 24"), is_period("3.1.2024"), is_period("2024"), is_period("May Clinic")
    (True, True, False, False)
    """
    if len(name) > 20:
        return False
    words = [word for word in _words(name) if not word.isdigit()]
    return bool(_PERIOD.fullmatch(name)) or (
        len(words) == 1 and _MONTHS.fullmatch(words[0]) is not None
    )


def without_aspect(name: str) -> str | None:
    """Return a name without its time or its part of the samples, None if it has neither.

    >>> without_aspect("Q1 flu"), without_aspect("flu_2023"), without_aspect("flu")
    ('flu', 'flu', None)
    """
    rest, number = _ASPECT.subn("", name)
    return rest.strip(" _-") or None if number else None


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
