"""Numbers as people write them in cells: 1.203, '<5', '-', 1 240, 12.0."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from fedeas._internal.scalars import LARGEST

# What separates thousands, by the name that is typed.
SIGNS = {",": ",", ".": ".", "'": "'", "apostrophe": "'", " ": " ", "space": " ", "none": ""}
# Cells that hold no number, in small letters: nothing, a dash, what programs write.
LEFT_OUT = frozenset({
    "", "-", ".", "\u2013", "\u2014", "\u2212", "?", "nan", "na", "n/a", "#n/a", "null", "none",
    "missing", "k.a.",
})  # fmt: skip
_WHOLE = re.compile(r"[0-9]{1,16}(?:[.,]0{1,2})?")
_GROUPED = re.compile(
    r"[1-9][0-9]{0,2}(?P<sign>[.,'\u2019 \u00a0\u202f])[0-9]{3}(?:(?P=sign)[0-9]{3})*"
    r"(?:[.,]0{1,2})?"
)
_DECIMAL = re.compile(r"[+-]?[0-9]*[.,]?[0-9]+(?:[eE][+-]?[0-9]+)? ?[%\u2030]?")
_BELOW = re.compile(r"(?:n ?)?(<|<=|\u2264) ?([0-9]{1,9})")
_RANGE = re.compile(r"([0-9]{1,9}) ?[-\u2013] ?([0-9]{1,9})")


def kind_of_column(cells: Iterable[str]) -> str:
    """Tell whether most cells of a column hold counts, other numbers, or text.

    Several ranges, as of ages, and no plain number are text.

    >>> kind_of_column(["1.203", "<5", "-"]), kind_of_column(["52.5"]), kind_of_column(["Berlin"])
    ('count', 'decimal', 'text')
    """
    cells = [text for text in cells if text]
    ranges = {text for text in cells if _RANGE.fullmatch(text)}
    if len(ranges) > 1 and ranges.issuperset(cells):
        return "text"
    kinds = Counter(map(_kind, cells))
    kinds.pop("blank", None)
    if 4 * kinds["count"] >= kinds.total():  # one with words in some cells has to be corrected
        return "count"
    return kinds.most_common(1)[0][0]


def is_number(text: str) -> bool:
    """Tell whether a cell holds a number of any kind.

    >>> is_number("1.203"), is_number("0,5"), is_number("Source: KIS")
    (True, True, False)
    """
    return _kind(text) in ("count", "decimal")


def _kind(text: str) -> str:
    if text.lower() in LEFT_OUT:
        return "blank"
    if _WHOLE.fullmatch(text) or _GROUPED.fullmatch(text) or _bounds(text):
        return "count"
    return "decimal" if _DECIMAL.fullmatch(text) else "text"


def _bounds(text: str) -> tuple[int, int] | None:
    """Return the least and the largest number that a suppressed cell may stand for.

    >>> _bounds("<5"), _bounds("3-6"), _bounds("12")
    ((0, 4), (3, 6), None)
    """
    if set(text) == {"*"}:
        return 0, LARGEST
    if below := _BELOW.fullmatch(text):
        return 0, int(below[2]) - (below[1] == "<")
    span = _RANGE.fullmatch(text)
    return (int(span[1]), int(span[2])) if span and int(span[1]) <= int(span[2]) else None


class CellReader:
    """The different texts in the cells of a table, and what they are."""

    def __init__(self, cells: Sequence[str]) -> None:
        self._cells = cells
        self._texts = Counter(cells)
        self.blank = [text for text in self._texts if text.lower() in LEFT_OUT]
        self.suppressed = [text for text in self._texts if _bounds(text)]
        groups = {text: match for text in self._texts if (match := _GROUPED.fullmatch(text))}
        self._signs = {text: match["sign"] for text, match in groups.items()}
        signs = {sign for sign in self._signs.values() if sign in ".,"}
        # Two groups, as in 1.240.000, or a decimal sign too, as in 1.240,00: these are thousands.
        certain = any(
            text.count(sign) > 1 or re.search(r"[.,]0{1,2}$", text[-3:])
            for text, sign in self._signs.items()
        )
        self.two_signs = len(signs) > 1
        self.unclear_sign = next(iter(signs)) if len(signs) == 1 and not certain else None

    @property
    def grouped(self) -> tuple[str, bool]:
        """A text with a sign of thousands, and whether all such end in zeros, as 1.000 does."""
        texts = [text for text, sign in self._signs.items() if sign == self.unclear_sign]
        return texts[0], all(text.endswith("000") for text in texts)

    @property
    def suppressed_range(self) -> tuple[int, int]:
        """The least and the largest number that every suppressed cell may stand for."""
        spans = [bounds for text in self.suppressed if (bounds := _bounds(text))]
        return max(low for low, _ in spans), min(high for _, high in spans)

    def number(self, texts: Sequence[str]) -> int:
        """Return how many cells hold one of these texts."""
        return sum(self._texts[text] for text in texts)

    def wrong(self, thousands: str | None) -> Iterator[tuple[str, str]]:
        """Yield texts that are no counts, each with the reason."""
        for text in self._texts:
            kind = _kind(text)
            sign = self._signs.get(text)
            if kind in ("text", "decimal") or (
                kind == "count" and not _bounds(text) and self.value(text, thousands) > LARGEST
            ):
                yield text, "not a count"
            elif self.two_signs and sign is not None:
                yield text, "and others are written with another sign of thousands"
            elif thousands is not None and sign in (".", ",") and SIGNS[thousands] != sign:
                zeros = text.endswith("000")
                if thousands != "none" or not zeros:
                    yield text, f"not a count with --thousands {thousands}"
        if self.suppressed and self.suppressed_range[0] > self.suppressed_range[1]:
            yield self.suppressed[0], "and others are suppressed to other ranges"

    def value(self, text: str, thousands: str | None) -> int:
        """Return the count that a text stands for."""
        sign = self._signs.get(text)
        if sign is None:
            return int(re.split("[.,]", text)[0])
        if thousands == "none" and sign in ".,":
            return int(text.split(sign, maxsplit=1)[0])
        digits = re.sub(r"[^0-9]", "", re.sub(f"[^0-9{re.escape(sign)}]0{{1,2}}$", "", text))
        return int(digits)

    def values(self, thousands: str | None, blank: int, suppressed: int) -> NDArray[np.int64]:
        """Return the counts of all cells; what is wrong is 0."""
        counts = {}
        for text in self._texts:
            if text.lower() in LEFT_OUT:
                counts[text] = blank
            elif _bounds(text):
                counts[text] = suppressed
            elif _kind(text) == "count":
                counts[text] = self.value(text, thousands)
            else:
                counts[text] = 0
        return np.array([counts[text] for text in self._cells], np.int64)
