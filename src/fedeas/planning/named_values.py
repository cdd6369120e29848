"""`NamedValues`: a number per client or per class: costs, limits, qualities."""

import json
import math
import numbers
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fedeas._internal.scalars import LARGEST
from fedeas.errors import InputError

CLIENTS, CLASSES = ("costs", "limits"), ("quality",)
_LEAST_QUALITY = 0.01  # such a sample is worth next to nothing
_CARD = "generator.json"  # in a generator's folder


class _Kind(NamedTuple):
    noun: str
    allowed: str
    in_range: Callable[[float], bool]
    default: float | None  # of a name that is not listed; None if all have to be


_KINDS = {
    "costs": _Kind("cost of client", "above 0", lambda x: 0 < x < math.inf, None),
    "limits": _Kind("limit of client", "from 0", lambda x: 0 <= x <= LARGEST, float(LARGEST)),
    "quality": _Kind("quality of class", "above 0, up to 1", lambda x: 0 < x <= 1, 1.0),
}


@dataclass(frozen=True)
class NamedValues:
    """Numbers in the order of clients or classes, or by their names; a single one is for all.

    Parameters
    ----------
    kind : str
        'costs', 'limits' or 'quality'.
    values : tuple of float
        The numbers.
    names : tuple of str, optional
        Whose they are. None once they are in the order of the counts.
    """

    kind: str
    values: tuple[float, ...]
    names: tuple[str, ...] | None = None

    def ordered(self, names: Sequence[str] | int) -> "NamedValues":
        """Return a number for each of these names, in their order.

        If only their number is known, values by name are refused.
        """
        if self.names is not None and not isinstance(names, int):
            by_name = dict(zip(self.names, self.values, strict=True))
            noun, default = _KINDS[self.kind].noun, _KINDS[self.kind].default
            return NamedValues(self.kind, tuple(match_names(by_name, names, noun, default)))
        self.array(names if isinstance(names, int) else len(names))
        return self

    def only(self, name: str) -> "NamedValues":
        """Return the number of this one name alone."""
        if self.names is None:
            return self
        kind = _KINDS[self.kind]
        value = dict(zip(self.names, self.values, strict=True)).get(name, kind.default)
        if value is None:
            raise InputError(f"no {kind.noun} {name!r}", got=", ".join(self.names[:10]))
        return NamedValues(self.kind, (value,))

    def array(self, size: int) -> NDArray[np.float64]:
        """Return that many numbers."""
        noun = _KINDS[self.kind].noun
        if self.names is not None:
            raise InputError(
                f"a {noun} by name, where nothing says which one this is",
                got=", ".join(self.names[:5]),
                fix="plan for counts with names, or give one number",
            )
        if len(self.values) not in (1, size):
            raise InputError(
                f"expected 1 or {size} values, a {noun} each", got=f"{len(self.values)} numbers"
            )
        return np.broadcast_to(np.array(self.values), size)

    def part(self, places: slice | NDArray[np.bool_]) -> "NamedValues":
        """Return the numbers of some clients or classes."""
        if len(self.values) == 1:
            return self
        return NamedValues(self.kind, tuple(np.array(self.values)[places].tolist()))


NamedValuesLike: TypeAlias = (
    NamedValues | Mapping[str, float] | Sequence[float] | float | str | Path | None
)


def make_named_values(given: NamedValuesLike, kind: str) -> NamedValues | None:
    """Return numbers of a kind, 'costs', 'limits' or 'quality', from what a caller gives.

    Parameters
    ----------
    given : number, sequence, mapping, str or path, optional
        One number for all, one each in order, by name, or a file of a name and a number per line.
    kind : str
        Which numbers they are.

    >>> make_named_values({"north": 2, "south": 1}, "costs").values
    (2.0, 1.0)
    """
    noun, allowed, in_range, _ = _KINDS[kind]
    if given is None or isinstance(given, NamedValues):
        return given
    if isinstance(given, str | Path):
        given = _read(given, kind, noun)
    values: Any = given
    names = None
    if isinstance(given, Mapping):
        values, names = list(given.values()), tuple(map(str, given))
    elif not isinstance(given, Sequence | np.ndarray | numbers.Real):  # a pandas Series, say
        raise InputError(
            f"a {noun} by name, or in order",
            got=type(given).__name__,
            allowed="a number, a dict by name, or a list in order",
            fix="of a Series: .to_dict() by name, .tolist() in order",
        )
    try:
        array = np.atleast_1d(np.asarray(values, dtype=np.float64))
    except (TypeError, ValueError):
        array = np.empty(0)
    wrong = [x for x in array.reshape(-1).tolist() if not in_range(x)]
    if array.ndim != 1 or not array.size or wrong:
        raise InputError(f"not a {noun}", got=wrong[0] if wrong else given, allowed=allowed)
    return NamedValues(kind, tuple(array.tolist()), names)


def match_names(
    values: Mapping[str, float], names: Sequence[str], noun: str, default: float | None = None
) -> list[float]:
    """Return the values in the order of `names`; unknown names, and missing ones, are errors.

    >>> match_names({"b": 2.0, "a": 1.0}, ("a", "b"), "cost of client")
    [1.0, 2.0]
    """
    allowed = set(names)
    if unknown := [name for name in values if name not in allowed]:
        shown = ", ".join(names[:10]) + (", ..." if len(names) > 10 else "")
        raise InputError(f"a {noun} that is not in the counts", got=unknown[0], allowed=shown)
    if default is None and (missing := [name for name in names if name not in values]):
        raise InputError(f"no {noun} {missing[0]!r}", fix="add a line for every one, 0 included")
    return [values.get(name, default or 0.0) for name in names]


def planned_quality(measured: Sequence[float]) -> list[float]:
    """Return qualities to plan with: a class that is never recognised has next to none.

    >>> planned_quality([0.8, 0.0])
    [0.8, 0.01]
    """
    return [max(float(quality), _LEAST_QUALITY) for quality in measured]


def _read(path: str | Path, kind: str, noun: str) -> dict[str, float]:
    """Read a file; qualities also from a generator's card, or from a judge's answer."""
    from fedeas._internal.files import read_text
    from fedeas.counts.named import read_numbers

    if kind == "quality":
        card = Path(path) / _CARD if Path(path).is_dir() else Path(path)
        if card.suffix.lower() == ".json" and (measured := _qualities(read_text(card))):
            return dict(zip(measured, planned_quality(list(measured.values())), strict=True))
    return read_numbers(path, noun)


def _qualities(text: str) -> dict[str, float]:
    """Read a generator's card, or what `fedeas generator sample --judge --json` prints."""
    try:
        body = json.loads(text)
        if "agreement" in body:
            return dict(body["agreement"])
        return dict(zip(map(str, body["classes"]), map(float, body["quality"]), strict=True))
    except (ValueError, KeyError, TypeError, RecursionError):
        return {}
