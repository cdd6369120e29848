"""Small files of one number per name: shares of classes, costs of sites."""

import csv
import json
import math
from collections.abc import Sequence
from pathlib import Path

from fedeas.errors import InputError
from fedeas.files import read_text

_DELIMITERS = ",;\t"


def read_numbers(path: Path | str, what: str) -> dict[str, float]:
    """Read a number per name: CSV or TSV with two columns, or a JSON object.

    Parameters
    ----------
    path : Path or str
        The file. The first line of a text file may be a heading.
    what : str
        What the numbers are, for error messages: 'share', 'cost'.
    """
    found: dict[str, float] = {}
    for name, value in read_values(path, what).items():
        number = _number(value)
        if number is None:
            raise InputError(f"{path}: not a {what}", got=f"{name}: {value}", allowed="a number")
        found[name] = number
    return found


def read_values(path: Path | str, what: str) -> dict[str, object]:
    """Read a number per name as `read_numbers` does, each as it is written: '0.8s' stays text."""
    file = Path(path)
    text = read_text(file)
    pairs = _json_pairs(text) if file.suffix.lower() == ".json" else _text_pairs(text)
    if not pairs:
        raise InputError(
            f"{path} does not hold a {what} per name",
            allowed="two columns, name and number, or a JSON object of them",
        )
    found: dict[str, object] = {}
    for name, value in pairs:
        if name in found:
            raise InputError(f"{path}: two lines for one name", got=name)
        found[name] = value
    return found


def match_names(
    numbers: dict[str, float], names: Sequence[str], what: str, missing: float | None = None
) -> list[float]:
    """Return the numbers in the order of `names`; strange names, and missing ones, are errors.

    >>> match_names({"b": 2.0, "a": 1.0}, ("a", "b"), "cost of client")
    [1.0, 2.0]
    """
    known = set(names)
    if strange := [name for name in numbers if name not in known]:
        shown = ", ".join(names[:10]) + (", ..." if len(names) > 10 else "")
        raise InputError(f"a {what} that is not in the counts", got=strange[0], allowed=shown)
    if missing is None and (absent := [name for name in names if name not in numbers]):
        raise InputError(f"no {what} {absent[0]!r}", fix="add a line for every one, 0 included")
    return [numbers.get(name, missing or 0.0) for name in names]


def _json_pairs(text: str) -> list[tuple[str, object]]:
    try:
        content = json.loads(text, object_pairs_hook=list)
    except (ValueError, RecursionError):
        return []
    if not isinstance(content, list) or not all(isinstance(pair, tuple) for pair in content):
        return []
    return [(str(name), value) for name, value in content]


def _text_pairs(text: str) -> list[tuple[str, object]]:
    lines = [line for line in text.removeprefix("\ufeff").splitlines() if line.strip()]
    if not lines:
        return []
    delimiter = max(_DELIMITERS, key=lines[0].count)
    rows = [[cell.strip() for cell in row] for row in csv.reader(lines, delimiter=delimiter)]
    if any(len(row) != 2 for row in rows):
        return []
    if not any(character.isdigit() for character in rows[0][1]):  # a heading
        rows = rows[1:]
    return [(name, value) for name, value in rows]


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None
