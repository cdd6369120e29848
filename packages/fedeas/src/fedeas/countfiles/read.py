"""Text files: the one reader of CSV and TSV, which yields rows of cells, and JSON."""

import codecs
import csv
import json
import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from fedeas._util.arrow import most_frequent_delimiter
from fedeas._util.files import parse_json, read_text, unreadable
from fedeas.countfiles.table import COUNT, LARGEST, Options, Table, TableError
from fedeas.errors import InputError

Numbered = tuple[int, list[str]]  # a row, and its number in the file
_TABS = {"\\t": "\t", "tab": "\t"}
# How files begin that are something else, whatever their name.
_OTHER_FILES = {
    b"PK\x03\x04": ("is a workbook or another archive", "let a workbook's name end in .xlsx"),
    b"\xd0\xcf\x11\xe0": ("is a spreadsheet", "save it as .xlsx or as CSV"),
    b"PAR1": ("is a Parquet file", "let its name end in .parquet"),
}
# What a text may be in if it is not UTF-8, to show how its words would read.
_ENCODINGS = ("cp1252", "cp1250", "cp1251", "mac_roman", "cp850")
_START = 4096  # characters that tell the delimiter
_ALLOWED = (
    '{"clients": [...], "classes": [...], "counts": [[...]]}, or records '
    '[{"client": "north", "flu": 120}, ...], as DataFrame.to_json(orient="records") writes them'
)
_WORD = re.compile(rb"[A-Za-z\x80-\xff]+")


class Rows:
    """The rows of a table without blank ones, cells stripped; `line` is that of the last row."""

    def __init__(self, path: Path, numbered: Iterable[Numbered], unit: str = "line") -> None:
        self.path, self.line = path, 0
        self.cells: list[str] = []  # of the last row
        self.hidden_rows: Container[int] = ()
        self.hidden_columns: Container[int] = ()
        self.comments: list[str] = []  # above the first row
        self.sheet: str | None = None  # of a workbook that has several
        self._unit = unit
        self._numbered = iter(numbered)

    def __iter__(self) -> Iterator[list[str]]:
        for number, cells in self._numbered:
            self.line = number
            row = [cell.strip() for cell in cells]
            if any(row):
                self.cells = row
                yield row

    @property
    def where(self) -> str:
        """The file and the number of the last row."""
        return f"{self.path} {self._unit} {self.line}"


def split_lines(
    lines: Iterable[str], delimiter: str, comments: list[str] | None = None
) -> Iterator[Numbered]:
    """Yield rows with the number of the line that each ends on; comments above are set aside."""
    above = [] if comments is None else comments
    started = False

    def below_comments() -> Iterator[str]:
        for line in lines:
            if not started and line.startswith(("# ", "#\n", "#\r")):
                above.append(line)
            else:
                yield line

    reader = csv.reader(below_comments(), delimiter=delimiter)
    for row in reader:
        started = True
        yield reader.line_num + len(above), row


@contextmanager
def text_rows(path: Path, options: Options) -> Iterator[Rows]:
    """Open a CSV or TSV file; any error in it is one clear line."""
    try:
        with path.open("rb") as file:
            start = file.read(4)
        for magic, (what, fix) in _OTHER_FILES.items():
            if start.startswith(magic):
                raise InputError(f"{path} {what}, not CSV", fix=fix)
        encoding = _checked_encoding(path, start, options.encoding)
        delimiter = _delimiter(path, encoding, options.delimiter)
        with path.open(encoding=encoding, newline="") as text:
            comments: list[str] = []
            rows = Rows(path, split_lines(text, delimiter, comments))
            rows.comments = comments
            yield rows
    except UnicodeError:
        raise _not_decoded(path, options.encoding) from None
    except csv.Error as error:
        raise InputError(f"{path} is not CSV: {error}") from None
    except OSError as error:
        raise unreadable(path, error) from None


def delimiter_of(path: Path) -> str:
    """Return what separates the cells of a clean text table."""
    return "\t" if path.suffix.lower() == ".tsv" else ","


def _delimiter(path: Path, encoding: str, chosen: str | None) -> str:
    if chosen is not None:
        delimiter = _TABS.get(chosen, chosen)
        if len(delimiter) != 1 or delimiter in '"\r\n' or delimiter.isalnum():
            raise InputError(
                "not a delimiter", got=chosen, allowed="one character such as ; or tab"
            )
        return delimiter
    with path.open(encoding=encoding, newline="") as file:
        start = file.read(_START)
    expected = delimiter_of(path)
    likely = most_frequent_delimiter(re.sub('"[^"]*"', "", start), expected)
    if likely != expected:
        raise TableError(
            f"{path}: cells are separated by {likely!r}, not by {expected!r}",
            ({"delimiter": "tab" if likely == "\t" else likely}, ""),
            got=start.partition("\n")[0].rstrip(),
        )
    return expected


def _checked_encoding(path: Path, start: bytes, chosen: str | None) -> str:
    if chosen is not None:
        try:
            codec = codecs.lookup(chosen)
            if not codec._is_text_encoding:
                raise LookupError
        except LookupError:
            raise InputError(
                "unknown encoding", got=chosen, allowed="utf-8, utf-16, cp1252, latin-1, ..."
            ) from None
        return "utf-8-sig" if codec.name == "utf-8" else chosen
    if start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise TableError(f"{path} is in UTF-16, not UTF-8", ({"encoding": "utf-16"}, ""))
    if b"\0" in start[:2]:
        encoding = "utf-16-le" if start[1:2] == b"\0" else "utf-16-be"
        raise TableError(
            f"{path} is not text, or UTF-16 without a mark",
            ({"encoding": encoding}, "if it is text"),
            fix="save it as UTF-8",
        )
    return "utf-8-sig"


def _not_decoded(path: Path, chosen: str | None) -> InputError:
    """Return the error about a file in another encoding, with the first word that shows it."""
    if chosen is not None:
        return InputError(f"{path} is not in {chosen}", fix="save it as UTF-8")
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            for word in _WORD.findall(line):
                if not word.isascii() and _decoded(word, "utf-8") is None:
                    texts = {_decoded(word, e): e for e in reversed(_ENCODINGS)}
                    ways = [
                        ({"encoding": encoding}, f"if it is {text[:40]!r}")
                        for text, encoding in reversed(texts.items())
                        if text
                    ]
                    return TableError(
                        f"{path} line {number} is not UTF-8",
                        *ways,
                        got=word[:40].decode("latin-1"),
                        fix=None if ways else "save it as UTF-8",
                    )
    return InputError(f"{path} is not UTF-8", fix="save it as UTF-8")


def _decoded(word: bytes, encoding: str) -> str | None:
    """Return a word in an encoding, None if it is not a word there: 'SŸd' is not one."""
    try:
        text = word.decode(encoding)
    except UnicodeDecodeError:
        return None
    natural = text.islower() or text.isupper() or text[1:].islower()
    return text if text.isalpha() and natural else None


# JSON


def load_json(path: Path) -> Any:
    """Return the content of a JSON file."""
    return parse_json(read_text(path), str(path))


def is_records(content: Any) -> bool:
    """Tell whether the content of a file is a row per record."""
    return isinstance(content, list) and bool(content) and all(isinstance(r, dict) for r in content)


def record_rows(path: Path, records: Sequence[Mapping[str, Any]]) -> Rows:
    """Return records as rows of cells; the heading is number 0."""
    names = list(dict.fromkeys(name for record in records for name in record))
    rows = [[_text(path, record.get(name)) for name in names] for record in records]
    return Rows(path, enumerate([names, *rows]), "row")


def matrix_rows(path: Path, table: Table) -> Rows:
    """Return a matrix as rows of cells, so that options apply to it."""
    rows, columns = table.values.shape
    clients = table.clients or [str(k) for k in range(rows)]
    head = ["client", *(table.classes or map(str, range(columns)))]
    pairs = zip(clients, table.values.tolist(), strict=True)
    body = ([name, *map(str, row)] for name, row in pairs)
    return Rows(path, enumerate(chain([head], body)), "row")


def read_matrix(path: Path, content: Any) -> Table:
    """Read a table from rows of counts."""
    if isinstance(content, list):
        content = {"counts": content}
    if not isinstance(content, dict) or not isinstance(content.get("counts"), list):
        raise InputError(f"{path} holds no table", allowed=_ALLOWED)
    rows = content["counts"]
    if not rows or not all(isinstance(row, list) and row for row in rows):
        raise InputError(f"{path} has no counts", got=rows, allowed="a list of rows of counts")
    if ragged := [i for i, row in enumerate(rows) if len(row) != len(rows[0])]:
        raise InputError(
            f"{path} row {ragged[0]} has {len(rows[ragged[0]])} cells, the first has {len(rows[0])}"
        )
    values = [[as_count(cell, f"{path} row {i}") for cell in row] for i, row in enumerate(rows)]
    return Table(
        np.array(values, dtype=np.int64),
        _names(path, content, "clients"),
        _names(path, content, "classes"),
        content["meta"] if isinstance(content.get("meta"), dict) else None,
    )


def written_hash(content: Any) -> object:
    """Return the hash of the table as fedeas wrote it; None in a file from elsewhere."""
    return content.get("sha256") if isinstance(content, dict) else None


def write_json_table(path: Path, table: Table, digest: str) -> None:
    """Write a table as JSON, with its hash."""
    content: dict[str, Any] = {"sha256": digest, "counts": table.values.tolist()}
    if table.clients:
        content["clients"] = table.clients
    if table.classes:
        content["classes"] = table.classes
    if table.meta is not None:
        content["meta"] = table.meta
    path.write_text(json.dumps(content) + "\n", encoding="utf-8")


def as_count(value: object, where: str) -> int:
    """Return a number of a JSON file as a count."""
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or not 0 <= value <= LARGEST
        or value != int(value)
    ):
        raise InputError(f"{where}: not a count", got=value, allowed=COUNT)
    return int(value)


def _text(path: Path, value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise InputError(f"{path}: not a count or a name", got=value, allowed=_ALLOWED)
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _names(path: Path, content: Mapping[str, Any], key: str) -> tuple[str, ...] | None:
    names = content.get(key)
    if names is None:
        return None
    if not isinstance(names, list) or not all(isinstance(name, str | int) for name in names):
        raise InputError(f"{path}: {key!r} is not a list of names", got=names)
    return tuple(map(str, names))
