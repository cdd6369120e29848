"""Files of all kinds as one: a frame of text, as the file holds it."""

import csv
import io
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedeas._internal.files import unreadable
from fedeas._internal.optional import import_extra
from fedeas.counts.files import cell_text, read_sheets
from fedeas.counts.options import Choices
from fedeas.errors import InputError

_ENCODINGS = ("cp1252", "cp1250", "cp1251", "mac_roman")
_DELIMITERS = (",", ";", "\t", "|")
_LOOKED_AT = 100  # rows that tell the delimiter


class Grid(NamedTuple):
    """The cells of a file as text; the index is the number of the row in the file, from 0."""

    frame: Any
    lengths: Sequence[int]  # how many cells each row has; none where all have as many


def pandas() -> Any:
    """Return pandas."""
    return import_extra("pandas", "reading people's tables", "counts")


def text_grid(choices: Choices) -> Grid:
    """Read CSV and its kin, in any encoding and with any delimiter."""
    path = choices.path
    try:
        text = _decoded_text(path, choices).removesuffix("\x1a")  # how DOS ends a file
        if "\0" in text:
            line = text.count("\n", 0, text.index("\0")) + 1
            raise InputError(f"{path} line {line} holds a NUL byte", fix="save it as UTF-8 text")
        rows = io.StringIO(text, newline="")
        delimiter = _delimiter(
            [line for line, _ in zip(rows, range(_LOOKED_AT), strict=False)], choices
        )
        lengths = [
            len(row) for row in csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
        ]
        if not any(lengths):
            raise InputError(f"{path} is empty", allowed="a heading, and a row per client")
        frame = pandas().read_csv(
            io.StringIO(text), sep=delimiter, header=None, names=range(max(lengths)), dtype=str,
            na_filter=False, skip_blank_lines=False, index_col=False,
        )  # fmt: skip
    except (csv.Error, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path} is not CSV: {error}") from None
    except OSError as error:
        raise unreadable(path, error) from None
    return Grid(frame.fillna(""), lengths)


def _decoded_text(path: Path, choices: Choices) -> str:
    """Return the text of a file; what is valid UTF-8 is nothing else."""
    content = path.read_bytes()
    encoding = choices.options.encoding
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        encoding = "utf-16"
    elif b"\0" in content[:2]:
        if encoding is None:
            encoding = "utf-16-le" if content[1:2] == b"\0" else "utf-16-be"
            choices.ask("seems to be UTF-16 without a mark", encoding=encoding)
    else:
        try:
            return content.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            if encoding is None:
                encoding = _ask_encoding(content, error.start, choices)
    try:
        return content.decode(encoding or "utf-8").removeprefix("\ufeff")
    except (UnicodeError, LookupError):
        raise InputError(f"{path} is not text in {encoding}", fix="save it as UTF-8") from None


def _ask_encoding(content: bytes, place: int, choices: Choices) -> str:
    """Ask how the first word reads that is not UTF-8, and return the likely encoding."""
    line = content.count(b"\n", 0, place) + 1
    before = re.search(rb"[^\s;,\t\"]*$", content[max(0, place - 20) : place])
    after = re.match(rb"[^\s;,\t\"]*", content[place : place + 20])
    word = (before[0] if before else b"") + (after[0] if after else b"")
    ways = {name: text for name in _ENCODINGS if (text := _decoded_word(word, name))}
    likely = next(iter(ways), "cp1252")
    shown = ", ".join(f"{text!r} in {name}" for name, text in ways.items())
    choices.ask(f"line {line} is not UTF-8: it is {shown}", encoding=likely)
    return likely


def _decoded_word(word: bytes, encoding: str) -> str | None:
    """Return a word in an encoding, None if it is not a word there: 'S\u0178d' is not one."""
    try:
        text = word.decode(encoding)
    except UnicodeDecodeError:
        return None
    letters = "".join(filter(str.isalpha, text))
    natural = letters.islower() or letters.isupper() or letters[1:].islower()
    return text if letters and natural and text.isprintable() else None


def _delimiter(start: Sequence[str], choices: Choices) -> str:
    """Return what separates cells: the sign that the heading has, too."""
    chosen = choices.options.delimiter
    if chosen is not None:
        delimiter = {"tab": "\t", "\\t": "\t"}.get(chosen, chosen)
        if len(delimiter) != 1:
            raise InputError("not a delimiter", got=delimiter, allowed="one sign, or tab")
        return delimiter
    begins = {}
    for sign in _DELIMITERS:
        widths = [len(row) for row in csv.reader(start, delimiter=sign)]
        if table := [width for width in widths if width > 1]:
            usual = max(set(table), key=table.count)
            begins[sign] = (widths.index(usual), -table.count(usual), -usual)
    if not begins:
        return ","
    best = min(begins, key=lambda sign: begins[sign])
    equal = [sign for sign in begins if begins[sign][:2] == begins[best][:2]]
    if len(equal) > 1:
        choices.ask(f"cells are separated by {' or '.join(map(repr, equal))}", delimiter=best)
    return best


def sheet_grid(choices: Choices) -> Grid:
    """Read the sheet of a workbook: the only one, or the one that is chosen."""
    path = choices.path
    sheets = read_sheets(path)
    if not sheets:
        raise InputError(f"{path} is empty", allowed="a heading, and a row per client")
    if choices.options.sheet is None and len(sheets) > 1:
        first = next(iter(sheets))
        choices.ask(f"has the sheets {', '.join(sheets)}; {first!r} is taken", sheet=first)
    name = choices.options.sheet or next(iter(sheets))
    if name not in sheets:
        raise InputError(f"{path} has no such sheet", got=name, allowed=", ".join(sheets))
    index = [line - 1 for line, _ in sheets[name]]
    return Grid(pandas().DataFrame([row for _, row in sheets[name]], index=index), ())


def parquet_grid(choices: Choices) -> Grid:
    """Read a Parquet file, with the index of a data frame as its first column."""
    pd = pandas()
    import_extra("pyarrow", "Parquet", "counts")
    try:
        frame = pd.read_parquet(choices.path)
    except (OSError, ValueError) as error:
        raise InputError(f"{choices.path} is not a readable Parquet file: {error}") from None
    if frame.index.name is not None or not isinstance(frame.index, pd.RangeIndex):
        frame = frame.reset_index(names=frame.index.name or "client")
    elif "client" not in frame and all(map(pd.api.types.is_integer_dtype, frame.dtypes)):
        frame.insert(0, "client", range(len(frame)))  # numbered, as in the strict form
    columns = [[str(name), *_texts(frame[name])] for name in frame.columns]
    return Grid(pd.DataFrame(dict(enumerate(columns))), ())


def _texts(column: Any) -> list[str]:
    """Return the cells of a column as text; lists, images and the like are not read."""
    values = column.tolist()
    first = next((value for value in values if value is not None), None)
    if isinstance(first, bytes | dict | list | np.ndarray):
        return ["(nested)"] * len(values)
    return [cell_text(value) for value in values]


def json_grid(path: Path, content: Any) -> Grid:
    """Return the rows of a JSON file: records, or a matrix with its names."""
    if isinstance(content, list) and content and all(isinstance(row, dict) for row in content):
        head = list(dict.fromkeys(name for row in content for name in row))
        rows = [head, *([cell_text(row.get(name)) for name in head] for row in content)]
        return Grid(pandas().DataFrame(rows), ())
    try:
        classes, counts = content["classes"], content["counts"]
        clients = content.get("clients") or range(len(counts))
        body = [[str(k), *map(cell_text, row)] for k, row in zip(clients, counts, strict=True)]
    except (TypeError, KeyError, ValueError, AttributeError):
        raise InputError(
            f"{path} holds no table", allowed="records, or NVFlare's statistics"
        ) from None
    rows = [["client", *map(str, classes)], *body]
    return Grid(pandas().DataFrame(rows).fillna(""), [len(row) for row in rows])
