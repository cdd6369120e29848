"""How a table writes a thousand: 1000, 1,000, 1.000, 1 000 or 1'000.

`1.200` is 1200 in Germany and one and a fifth elsewhere. A separator of thousands is certain only
from what else the table holds, see `Separators.find`.
"""

import re
from collections import defaultdict
from dataclasses import dataclass

_SPACES = " \u00a0\u2009\u202f"  # also those of typesetters
_GROUPED = re.compile(
    rf"[1-9][0-9]{{0,2}}(?:([.,'\u2019{_SPACES}])[0-9]{{3}})(?:\1[0-9]{{3}})*(?:(?!\1)[.,]0+)?"
)
_KINDS = {"\u2019": "'", **dict.fromkeys(_SPACES, " ")}
NONE = "none"
_OPTIONS = {"space": " ", "comma": ",", "point": ".", "apostrophe": "'", "dot": "."}
SEPARATORS = (",", ".", "'", " ", NONE)


def parse_separator(given: str) -> str | None:
    """Return a separator of thousands by its sign or its name; None if it is not one."""
    sign = _OPTIONS.get(given, _KINDS.get(given, given))
    return sign if sign in SEPARATORS else None


def typed(separator: str) -> str:
    """Return a separator as one would type it at a terminal."""
    return {" ": "space", "'": "apostrophe"}.get(separator, separator)


def separator_of(cell: str) -> str | None:
    """Return what separates the groups of three digits in a cell, if it has such groups.

    >>> separator_of("1.200"), separator_of("12 345 678"), separator_of("1,200.00")
    ('.', ' ', ',')
    >>> separator_of("1200"), separator_of("0.125"), separator_of("1.25")
    (None, None, None)
    """
    match = _GROUPED.fullmatch(cell)
    return None if match is None else _KINDS.get(match[1], match[1])


def without_groups(cell: str, separator: str) -> str | None:
    """Return a number in digits with a decimal point; None if its groups are not of three digits.

    >>> without_groups("1.200,0", "."), without_groups("1.20", ".")
    ('1200.0', None)
    """
    if separator == NONE:
        return cell
    decimal = "," if separator == "." or (separator == " " and "," in cell) else "."
    groups = "".join(sign for sign, kind in _KINDS.items() if kind == separator) or separator
    whole, _, fraction = cell.partition(decimal)
    signs = re.escape(groups + separator)
    if not re.fullmatch(rf"[0-9]+|[1-9][0-9]{{0,2}}(?:[{signs}][0-9]{{3}})+", whole):
        return None
    digits = re.sub(f"[{signs}]", "", whole)
    return f"{digits}.{fraction}" if fraction else digits


@dataclass
class _Grouped:
    """Cells of one separator."""

    cells: int = 0
    certain: bool = False  # 1.234.567, 1,200.00


class Separators:
    """What the cells of a table say about a separator of thousands."""

    def __init__(self) -> None:
        self.small: set[int] = set()  # columns that hold a number below 1000
        self.large = False  # whether a number above 999 has no separator
        self.decimals = False  # whether a point is followed by another number of digits than three
        self._found: dict[str, _Grouped] = defaultdict(_Grouped)
        self._columns: set[int] = set()  # with a separator
        self._rounded: set[int] = set()  # with a separator, and a zero at the end

    def add(self, cell: str, separator: str, place: int) -> None:
        """Note a cell with a separator."""
        found = self._found[separator]
        found.cells += 1
        # One sign cannot be both within one number.
        found.certain |= len(re.sub("[0-9]", "", cell)) > 1
        self._columns.add(place)
        if cell.endswith("0"):
            self._rounded.add(place)

    def find(self) -> str | None:
        """Return the separator if it is certain, 'none' if a point marks decimals, or None.

        It is certain if every number from 1000 on has it, and

        - it occurs twice in a number, or beside another sign (1.234.567; 1,200.00),
        - or it is a space or an apostrophe,
        - or a column has numbers with it and numbers below 1000 without it, and at least three
          numbers have it or one of them ends in 0: no program writes 1.200 and 9 as decimals of
          one column, since it would write 9.000 or 1.2.
        """
        if self.decimals:
            return NONE if self._found.keys() == {"."} else None
        if len(self._found) != 1 or self.large:
            return None
        ((separator, found),) = self._found.items()
        if found.certain or separator in " '":
            return separator
        both = self._columns & self.small
        enough = found.cells >= 3 or bool(self._rounded & self.small)
        return separator if both and enough else None
