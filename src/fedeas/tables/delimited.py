"""CSV and TSV as rows of cells: encoding, delimiter, comments, and lines that are not rows."""

import csv
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from fedeas.errors import InputError
from fedeas.files import unreadable

_NAMED_DELIMITERS = {"\\t": "\t", "tab": "\t"}
_AS_TEXT = "save it as CSV (in a spreadsheet: 'CSV UTF-8')"
# How files begin that are something else, whatever their name.
_OTHER_FILES = {
    b"PK\x03\x04": ("is a spreadsheet or another archive", _AS_TEXT),
    b"\xd0\xcf\x11\xe0": ("is a spreadsheet", _AS_TEXT),
    b"PAR1": ("is a Parquet file", "let its name end in .parquet"),
    b"\xff\xfe": ("is UTF-16", "save it as UTF-8"),
    b"\xfe\xff": ("is UTF-16", "save it as UTF-8"),
}


class Rows:
    """The rows of a file, cells stripped, without blank ones; `line` is that of the last row."""

    def __init__(self, path: Path, file: TextIO, delimiter: str) -> None:
        self.path = path
        self.comments: list[str] = []  # above the first row
        self._reader = csv.reader(self._lines(file), delimiter=delimiter)

    def __iter__(self) -> Iterator[list[str]]:
        for row in self._reader:
            cells = [cell.strip() for cell in row]
            if any(cells):
                yield cells

    @property
    def line(self) -> int:
        """The number of the line that the last row ends on."""
        return self._reader.line_num + len(self.comments)

    def _lines(self, file: TextIO) -> Iterator[str]:
        in_head = True
        for line in file:
            if in_head and line.startswith(("# ", "#\n", "#\r")):
                self.comments.append(line)
                continue
            in_head = False
            yield line


@contextmanager
def opened(path: Path, delimiter: str | None = None) -> Iterator[Rows]:
    """Open a CSV or TSV file; any error in it is one clear line."""
    try:
        with path.open("rb") as file:
            start = file.read(4)
        for magic, (what, fix) in _OTHER_FILES.items():
            if start.startswith(magic):
                raise InputError(f"{path} {what}, not CSV", fix=fix)
        separator = _delimiter(path, delimiter)
        with path.open(encoding="utf-8-sig", newline="") as text:
            yield Rows(path, text, separator)
    except UnicodeDecodeError:
        raise _not_utf8(path) from None
    except csv.Error as error:
        raise InputError(f"{path} is not CSV: {error}") from None
    except OSError as error:
        raise unreadable(path, error) from None


def check_width(rows: Rows, row: list[str], width: int) -> None:
    """Refuse a row that is longer or shorter than the first one."""
    if len(row) == width:
        return
    where = f"{rows.path} line {rows.line}"
    filled = [cell for cell in row if cell]
    if len(filled) == 1:
        raise InputError(f"{where} has one cell only", got=filled[0], fix="remove it if it is text")
    raise InputError(
        f"{where} has {len(row)} cells, the first line has {width}",
        got=row,
        fix="write numbers without a comma in them, and remove a title" if len(row) > width else
        "fill the missing cells, with 0 for none",
    )  # fmt: skip


def check_title(rows: Rows, first: list[str], second: list[str] | None) -> None:
    """Refuse a first line that is a title above the table, not its heading."""
    filled = [cell for cell in first if cell]
    if second is not None and len(filled) == 1 and sum(map(bool, second)) > 1:
        raise InputError(
            f"{rows.path}: its first line is a title, not a heading",
            got=filled[0],
            fix="remove it, so that the table begins with the names of the classes",
        )
    if len(first) == 1 and (seen := re.search(r"[;\t| ]", first[0])):
        name = "tab" if seen[0] == "\t" else repr(seen[0])
        raise InputError(
            f"{rows.path} has one cell per line, with {seen[0]!r} in it",
            got=first[0],
            allowed="cells separated by commas",
            fix=f"pass --delimiter {name} if that is what separates them",
        )


def _delimiter(path: Path, given: str | None) -> str:
    """Return the delimiter: as given, by the file's ending, or semicolons if they are obvious."""
    if given is not None:
        delimiter = _NAMED_DELIMITERS.get(given, given)
        if len(delimiter) != 1 or delimiter in '"\r\n' or delimiter.isalnum():
            raise InputError("not a delimiter", got=given, allowed="one character such as ; or tab")
        return delimiter
    if path.suffix.lower() == ".tsv":
        return "\t"
    return ";" if _separates(path, ";") and not _separates(path, ",") else ","


def _separates(path: Path, delimiter: str) -> bool:
    """Tell whether a delimiter cuts every line into the same number of cells, and several."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        widths = (len(row) for row in Rows(path, file, delimiter))
        first = next(widths, 0)
        return first > 1 and all(width == first for width in widths)


def _not_utf8(path: Path) -> InputError:
    """Return an error that says where a file stops being UTF-8."""
    content = path.read_bytes()
    try:
        content.decode()
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        cut = re.split(rb"[\n,;\t]", content[: error.start])[-1] + content[error.start :]
        word = re.split(rb"[\r\n,;\t]", cut, maxsplit=1)[0].decode("latin-1")
        return InputError(
            f"{path} line {line} is not UTF-8", got=word.strip(), fix="save the file as UTF-8"
        )
    return InputError(f"{path} is not UTF-8", fix="save the file as UTF-8")
