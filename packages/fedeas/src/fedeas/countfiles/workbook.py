"""A sheet of an Excel workbook as rows of cells: values, never formulas.

A workbook is an archive: what it unpacks to is measured before anything is read.
"""

import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import zip_longest
from pathlib import Path
from typing import Any, BinaryIO
from xml.parsers import expat

from fedeas._util.files import unreadable
from fedeas.countfiles.read import Numbered, Rows
from fedeas.countfiles.table import Options, TableError, listed
from fedeas.errors import InputError, MissingExtraError, first_line

_MOST_BYTES = 1 << 28  # of everything in the archive, unpacked
_WHOLE = 2.0**53
_SPARSE = 20  # rows that are not there, for one that is
_WIDEST = 16_384  # columns of a sheet
_COMPUTED = "a formula without a value: open the workbook in a spreadsheet program and save it"


@contextmanager
def sheet_rows(path: Path, options: Options) -> Iterator[Rows]:
    """Open the sheet that is named, or the only one that is visible and not empty."""
    _check_size(path)
    library = _openpyxl()
    # Closed here: the library leaves a file open whose rows were not read to the end.
    with _opened(path) as first, _opened(path) as second:
        try:
            values = library.load_workbook(first, read_only=True, data_only=True)
            formulas = library.load_workbook(second, read_only=True)
        except Exception as error:  # the library can raise anything on a hostile file
            raise _damaged(path, error) from None
        sheet = _choose(path, values.worksheets, options.sheet)
        outline = _Outline(path, sheet)
        rows = Rows(path, _numbered(path, sheet, formulas[sheet.title]), "row")
        rows.hidden_rows, rows.hidden_columns = outline.hidden_rows, outline.hidden_columns
        if len(values.worksheets) > 1 and options.sheet is None:
            rows.sheet = sheet.title
        yield rows


@contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    try:
        file = path.open("rb")
    except OSError as error:
        raise unreadable(path, error) from None
    with file:
        yield file


def _openpyxl() -> Any:
    try:
        import openpyxl
    except ModuleNotFoundError:
        raise MissingExtraError("an Excel workbook", "excel") from None
    return openpyxl


def _check_size(path: Path) -> None:
    try:
        with _opened(path) as file, zipfile.ZipFile(file) as archive:
            size = sum(entry.file_size for entry in archive.infolist())
    except (zipfile.BadZipFile, ValueError, NotImplementedError) as error:
        raise _damaged(path, error) from None
    if size > _MOST_BYTES:
        raise InputError(
            f"{path} unpacks to {size:,} bytes",
            allowed=f"at most {_MOST_BYTES:,}",
            fix="save it as CSV or Parquet",
        )


def _damaged(path: Path, error: Exception) -> InputError:
    return InputError(
        f"{path} is not a readable workbook: {first_line(error)[:200]}",
        fix="save it as .xlsx or as CSV",
    )


def _choose(path: Path, sheets: list[Any], wanted: str | None) -> Any:
    names = [sheet.title for sheet in sheets]
    if wanted is not None:
        if wanted not in names:
            raise InputError(f"{path} has no such sheet", got=wanted, allowed=listed(names))
        return sheets[names.index(wanted)]
    visible = [sheet for sheet in sheets if sheet.sheet_state == "visible"]
    filled = [s for s in visible if _Outline(path, s).rows and any(_cells(path, s))]
    if len(filled) == 1:
        return filled[0]
    if not filled:
        raise InputError(f"{path} is empty", allowed="a row of counts per client")
    raise TableError(
        f"{path} has {len(filled)} sheets",
        *(({"sheet": sheet.title}, "") for sheet in filled[:2]),
        got=listed(sheet.title for sheet in filled),
    )


class _Outline:
    """Which rows and columns of a sheet are hidden, and that no cell is far from the others.

    openpyxl tells only if it holds the whole sheet, and makes up all rows that are not there.
    """

    def __init__(self, path: Path, sheet: Any) -> None:
        self.rows = self._last = 0
        self.hidden_rows: set[int] = set()
        self._hidden: list[range] = []  # of columns
        parser = expat.ParserCreate()
        parser.StartElementHandler = self._start
        try:
            with zipfile.ZipFile(path) as archive, archive.open(sheet._worksheet_path) as file:
                parser.ParseFile(file)
        except Exception as error:  # a hostile file can raise anything
            raise _damaged(path, error) from None
        if self._last > _SPARSE * (self.rows + 100):
            raise InputError(
                f"{path} has {self.rows:,} rows up to row {self._last:,}",
                allowed="a table without large gaps",
                fix="clear the cells far below it, or save the table as CSV",
            )

    @property
    def hidden_columns(self) -> set[int]:
        """The places of hidden columns, from 0."""
        return {column - 1 for columns in self._hidden for column in columns}

    def _start(self, name: str, about: dict[str, str]) -> None:
        kind = name.rpartition(":")[2]
        hidden = about.get("hidden") in ("1", "true")
        if kind == "row":
            self.rows += 1
            self._last = int(about.get("r", self._last + 1))
            if hidden:
                self.hidden_rows.add(self._last)
        elif kind == "col" and hidden:
            self._hidden.append(range(int(about["min"]), min(int(about["max"]), _WIDEST) + 1))


def _cells(path: Path, sheet: Any) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of a sheet up to their last filled cell."""
    sheet.reset_dimensions()  # what the file claims may be wrong
    try:
        for row in sheet.iter_rows():
            filled = [at for at, cell in enumerate(row) if cell.value is not None]
            yield row[: filled[-1] + 1] if filled else ()
    except Exception as error:  # the library can raise anything on a hostile file
        raise _damaged(path, error) from None


def _numbered(path: Path, sheet: Any, formulas: Any) -> Iterator[Numbered]:
    """Yield rows of text, as wide as the widest above them."""
    width = 0
    left = min((_margin(row) for row in _cells(path, sheet) if row), default=0)
    both = zip_longest(_cells(path, sheet), _cells(path, formulas), fillvalue=())
    for number, (row, sources) in enumerate(both, start=1):
        cells = [_text(cell) for cell in row]
        for at, source in enumerate(sources):
            if source.value is not None and (at >= len(row) or row[at].value is None):
                raise InputError(f"{path} cell {source.coordinate} holds {_COMPUTED}")
        width = max(width, len(cells))
        yield number, (cells + [""] * (width - len(cells)))[left:]


def _margin(row: tuple[Any, ...]) -> int:
    """Return how many empty cells a row begins with."""
    return next(at for at, cell in enumerate(row) if cell.value is not None)


def _text(cell: Any) -> str:
    """Return the value of a cell as a text file would hold it."""
    value = cell.value
    if value is None:
        return ""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    if "%" in (cell.number_format or ""):
        return f"{100 * value:.10g}%"
    if isinstance(value, float) and value.is_integer() and abs(value) < _WHOLE:
        return str(int(value))
    return str(value)
