"""CSV and TSV as rows of cells: encoding, delimiter, comments."""

import csv
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import TextIO

from fedeas.errors import InputError
from fedeas.files import unreadable
from fedeas.tables.arguments import argument
from fedeas.tables.encoding import assumption, find_encoding
from fedeas.tables.rows import Numbered, Rows
from fedeas.tables.table import Options

_NAMES = {"\\t": "\t", "tab": "\t"}
_SHOWN = {"\t": "tabs", ";": "semicolons", "|": "'|'"}
_DELIMITERS = (",", ";", "\t", "|")
_LOOKED_AT = 1000  # rows that have to agree about the delimiter; all of them are checked later
# How files begin that are something else, whatever their name.
_OTHER_FILES = {
    b"PK\x03\x04": ("is a workbook or another archive", "let a workbook's name end in .xlsx"),
    b"\xd0\xcf\x11\xe0": ("is a spreadsheet", "save it as .xlsx or as CSV"),
    b"PAR1": ("is a Parquet file", "let its name end in .parquet"),
}


@contextmanager
def opened(path: Path, options: Options) -> Iterator[Rows]:
    """Open a CSV or TSV file; any error in it is one clear line."""
    try:
        with path.open("rb") as file:
            start = file.read(4)
        for magic, (what, fix) in _OTHER_FILES.items():
            if start.startswith(magic):
                raise InputError(f"{path} {what}, not CSV", fix=fix)
        encoding = find_encoding(path, options.encoding)
        delimiter = _delimiter(path, encoding, options.delimiter)
        with path.open(encoding=encoding, newline="") as text:
            rows = _rows(path, text, delimiter)
            if options.encoding is None and (said := assumption(encoding)):
                rows.assume(said)
            if options.delimiter is None and path.suffix.lower() != ".tsv" and delimiter != ",":
                rows.assume(f"separated by {_SHOWN.get(delimiter, delimiter)}")
            yield rows
    except UnicodeError:
        raise InputError(
            f"{path} is not in {options.encoding or 'UTF-16'}", fix="save it as UTF-8"
        ) from None
    except csv.Error as error:
        raise InputError(f"{path} is not CSV: {error}") from None
    except OSError as error:
        raise unreadable(path, error) from None


def _rows(path: Path, file: TextIO, delimiter: str) -> Rows:
    comments: list[str] = []
    rows = Rows(path, _numbered(file, delimiter, comments))
    rows.comments = comments
    return rows


def _numbered(file: TextIO, delimiter: str, comments: list[str]) -> Iterator[Numbered]:
    """Yield rows with the number of the line that each ends on; comments above are set aside."""

    def lines() -> Iterator[str]:
        for line in file:
            if not begun and (line.startswith(("# ", "#\n", "#\r")) or _names_delimiter(line)):
                comments.append(line)
            else:
                yield line

    begun = False
    reader = csv.reader(lines(), delimiter=delimiter)
    for row in reader:
        begun = True
        yield reader.line_num + len(comments), row


def _names_delimiter(line: str) -> str | None:
    """Return the delimiter that a first line such as 'sep=;' names, as spreadsheets read it."""
    line = line.rstrip("\r\n")
    return line[4] if len(line) == 5 and line.lower().startswith("sep=") else None


def _delimiter(path: Path, encoding: str, given: str | None) -> str:
    """Return the delimiter: as given, by the file's ending, or the only one that separates."""
    if given is not None:
        delimiter = _NAMES.get(given, given)
        if len(delimiter) != 1 or delimiter in '"\r\n' or delimiter.isalnum():
            raise InputError("not a delimiter", got=given, allowed="one character such as ; or tab")
        return delimiter
    if path.suffix.lower() == ".tsv":
        return "\t"
    with path.open(encoding=encoding, newline="") as file:
        if named := _names_delimiter(file.readline()):
            return named
    titles = {mark: _lines_above(path, encoding, mark) for mark in _DELIMITERS}
    fewest = min((above for above in titles.values() if above is not None), default=None)
    fitting = [mark for mark, above in titles.items() if above is not None and above == fewest]
    if len(fitting) > 1:
        either = " or ".join(argument("delimiter", _typed(mark)) for mark in fitting)
        raise InputError(f"{path} can be cut into cells in two ways", fix=f"pass {either}")
    if not fitting:
        _check_one_cell(path, encoding)
    return fitting[0] if fitting else ","


def _lines_above(path: Path, encoding: str, delimiter: str) -> int | None:
    """Return how many lines of one cell, a title, are above lines of equally many cells.

    None if the delimiter does not cut the lines below into the same number of cells, and several.
    """
    with path.open(encoding=encoding, newline="") as file:
        rows = (row for _, row in _numbered(file, delimiter, []))
        widths = [len(row) for row in islice(rows, _LOOKED_AT) if any(map(str.strip, row))]
    above = next((at for at, width in enumerate(widths) if width > 1), len(widths))
    if len(set(widths[above:])) != 1 or (above and above >= len(widths) - 1):
        return None
    return above


def _check_one_cell(path: Path, encoding: str) -> None:
    """Refuse lines that are cut by something else than commas, if at all."""
    with path.open(encoding=encoding, newline="") as file:
        first = next((row for _, row in _numbered(file, ",", []) if any(map(str.strip, row))), [])
    if len(first) != 1:
        return
    seen = next((mark for mark in (";", "\t", "|", " ") if mark in first[0].strip()), None)
    if seen is not None:
        raise InputError(
            f"{path} has one cell per line, with {seen!r} in it",
            got=first[0],
            allowed="cells separated by commas",
            fix=f"pass {argument('delimiter', _typed(seen))} if that is what separates them",
        )


def _typed(delimiter: str) -> str:
    return "tab" if delimiter == "\t" else delimiter
