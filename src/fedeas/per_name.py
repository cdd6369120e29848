"""`PerName`: a number per client or per class: costs, limits, qualities."""

import json
import math
import numbers
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fedeas.errors import InputError
from fedeas.files import read_text
from fedeas.tables import LARGEST
from fedeas.tables.named import match_names, read_numbers


@dataclass(frozen=True)
class PerName:
    """Numbers in the order of clients or classes, or by their names; a single one is for all."""

    values: tuple[float, ...]
    names: tuple[str, ...] | None = None

    def ordered(
        self, names: Sequence[str] | int, what: str, missing: float | None = None
    ) -> "PerName":
        """Return a number for each of these names, in their order.

        Where names are not known but how many there are, numbers by name are refused.
        """
        if self.names is not None and not isinstance(names, int):
            numbers = dict(zip(self.names, self.values, strict=True))
            return PerName(tuple(match_names(numbers, names, what, missing)))
        self.array(names if isinstance(names, int) else len(names), what)
        return self

    def only(self, name: str, what: str, missing: float | None = None) -> "PerName":
        """Return the number of this one name alone."""
        if self.names is None:
            return self
        number = dict(zip(self.names, self.values, strict=True)).get(name, missing)
        if number is None:
            raise InputError(f"no {what} {name!r}", got=", ".join(self.names[:10]))
        return PerName((number,))

    def array(self, size: int, what: str) -> NDArray[np.float64]:
        """Return that many numbers."""
        self.check_ordered(what)
        if len(self.values) not in (1, size):
            raise InputError(
                f"not a {what} each", got=f"{len(self.values)} numbers", allowed=f"1 or {size}"
            )
        return np.broadcast_to(np.array(self.values), size)

    def check_ordered(self, what: str) -> None:
        """Refuse numbers by name where the order of the names is not known."""
        if self.names is not None:
            raise InputError(
                f"a {what} by name, where nothing says which one this is",
                got=", ".join(self.names[:5]),
                fix="plan for counts with names, or give one number",
            )

    def rows(self, rows: slice, what: str) -> "PerName":
        """Return the numbers of some clients."""
        self.check_ordered(what)
        return self if len(self.values) == 1 else PerName(self.values[rows])

    def kept(self, kept: NDArray[np.bool_], what: str) -> "PerName":
        """Return the numbers of some classes."""
        self.check_ordered(what)
        return self if len(self.values) == 1 else PerName(tuple(np.array(self.values)[kept]))


PerNameLike: TypeAlias = PerName | Mapping[str, float] | Sequence[float] | float | str | Path | None
# What each kind of number is called, what it may be, and which one a name has that is not listed.
_KINDS: dict[str, tuple[str, str, Callable[[float], bool], float | None]] = {
    "costs": ("cost of client", "above 0", lambda x: 0 < x < math.inf, None),
    "limits": ("limit of client", "from 0", lambda x: 0 <= x <= LARGEST, float(LARGEST)),
    "quality": ("quality of class", "above 0, up to 1", lambda x: 0 < x <= 1, 1.0),
}
CLIENTS, CLASSES = ("costs", "limits"), ("quality",)
_LEAST_QUALITY = 0.01  # such a sample is worth next to nothing
_CARD = "generator.json"  # in a generator's folder


def make_per_name(given: PerNameLike, kind: str) -> PerName | None:
    """Return numbers of a kind, 'costs', 'limits' or 'quality', from what a caller gives.

    Parameters
    ----------
    given : number, sequence, mapping, str or path, optional
        One number for all, one each in order, by name, or a file of a name and a number per line.
    kind : str
        Which numbers they are.

    >>> make_per_name({"north": 2, "south": 1}, "costs")
    PerName(values=(2.0, 1.0), names=('north', 'south'))
    """
    what, allowed, good, _ = _KINDS[kind]
    if given is None or isinstance(given, PerName):
        return given
    if isinstance(given, str | Path):
        given = _read(given, kind, what)
    values: Any = given
    names = None
    if isinstance(given, Mapping):
        values, names = list(given.values()), tuple(map(str, given))
    elif not isinstance(given, Sequence | np.ndarray | numbers.Real):  # a pandas Series, say
        raise InputError(
            f"a {what} by name, or in order",
            got=type(given).__name__,
            allowed="a number, a dict by name, or a list in order",
            fix="of a Series: .to_dict() by name, .tolist() in order",
        )
    try:
        array = np.atleast_1d(np.asarray(values, dtype=np.float64))
    except (TypeError, ValueError):
        array = np.empty(0)
    wrong = [x for x in array.reshape(-1).tolist() if not good(x)]
    if array.ndim != 1 or not array.size or wrong:
        raise InputError(f"not a {what}", got=wrong[0] if wrong else given, allowed=allowed)
    return PerName(tuple(array.tolist()), names)


def planned_quality(measured: Sequence[float]) -> list[float]:
    """Return qualities to plan with: a class that is never recognised has next to none.

    >>> planned_quality([0.8, 0.0])
    [0.8, 0.01]
    """
    return [max(float(quality), _LEAST_QUALITY) for quality in measured]


def missing_number(kind: str) -> float | None:
    """Return the number of a name that is not listed; None if all have to be."""
    return _KINDS[kind][3]


def described(kind: str) -> str:
    """Return what a kind of number is called."""
    return _KINDS[kind][0]


def _read(path: str | Path, kind: str, what: str) -> dict[str, float]:
    """Read a file; for qualities also what generators say of themselves, or a judge of them."""
    if kind == "quality":
        card = Path(path) / _CARD if Path(path).is_dir() else Path(path)
        if card.suffix.lower() == ".json" and (found := _qualities(read_text(card))):
            return dict(zip(found, planned_quality(list(found.values())), strict=True))
    return read_numbers(path, what)


def _qualities(text: str) -> dict[str, float]:
    """Read a generator's card, or what `fedeas generator sample --judge --json` prints."""
    try:
        body = json.loads(text)
        if "agreement" in body:
            return dict(body["agreement"])
        return dict(zip(map(str, body["classes"]), map(float, body["quality"]), strict=True))
    except (ValueError, KeyError, TypeError, RecursionError):
        return {}
