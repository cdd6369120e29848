"""Small files of one number per name: shares of classes, costs of sites."""

import csv
import json
import math
from pathlib import Path

from fedeas._internal.arrow import most_frequent_delimiter
from fedeas._internal.files import read_text
from fedeas.errors import InputError


def read_numbers(path: Path | str, what: str) -> dict[str, float]:
    """Read a number per name: CSV or TSV with two columns, or a JSON object.

    Parameters
    ----------
    path : Path or str
        The file. The first line of a text file may be a heading.
    what : str
        What the numbers are, for error messages: 'share', 'cost'.
    """
    numbers: dict[str, float] = {}
    for name, value in read_values(path, what).items():
        number = _number(value)
        if number is None:
            raise InputError(f"{path}: not a {what}", got=f"{name}: {value}", allowed="a number")
        numbers[name] = number
    return numbers


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
    values: dict[str, object] = {}
    for name, value in pairs:
        if name in values:
            raise InputError(f"{path}: two lines for one name", got=name)
        values[name] = value
    return values


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
    delimiter = most_frequent_delimiter(lines[0] if lines else "")
    try:
        rows = [[cell.strip() for cell in row] for row in csv.reader(lines, delimiter=delimiter)]
    except csv.Error:
        return []
    if not rows or any(len(row) != 2 for row in rows):
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
