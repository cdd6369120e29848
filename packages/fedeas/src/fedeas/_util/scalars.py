"""What callers give, checked where it enters: one function for each kind of value.

Numbers may be Python's or NumPy's, and are kept as Python's.
"""

import difflib
import math
from collections.abc import Callable, Collection, Iterable
from numbers import Integral, Real
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from fedeas.errors import InputError

LARGEST = 2**53  # up to here floats are exact whole numbers
_LISTED = 20  # names that are allowed, in an error
_Name = TypeVar("_Name", bound=str | None)


def integer(value: object, what: str, allowed: str, low: int, high: int = 2**63 - 1) -> int:
    """Return a whole number from `low` to `high`, or refuse it as `what`.

    >>> integer(np.int64(3), "not a number of clients", "a whole number from 1", low=1)
    3
    """
    given: Any = plain(value)
    if isinstance(given, bool) or not isinstance(given, Integral) or not low <= int(given) <= high:
        raise InputError(what, got=value, allowed=allowed)
    return int(given)


def number(value: object, what: str, allowed: str, within: Callable[[Any], bool]) -> float:
    """Return a number that is `within` its range, or refuse it as `what`; whole ones stay whole.

    >>> number(np.float32(0.5), "alpha out of range", "a number above 0", lambda x: x > 0)
    0.5
    """
    given: Any = plain(value)
    if isinstance(given, bool) or not isinstance(given, Real) or not within(given):
        raise InputError(what, got=value, allowed=allowed)
    return given  # type: ignore[return-value]


def positive(value: object, name: str) -> float:
    """Return a finite number above 0."""
    return number(value, f"{name} out of range", "a number above 0", lambda x: 0 < x < math.inf)


def share(value: object, name: str, from_zero: bool = False) -> float:
    """Return a part of a whole: above 0 and below 1, or also 0 itself."""
    allowed = "from 0, below 1" if from_zero else "above 0 and below 1"
    return number(
        value,
        f"{name} out of range",
        allowed,
        lambda x: x < 1 and (x > 0 or (from_zero and x == 0)),
    )


def choice(value: _Name, what: str, known: Collection[str]) -> _Name:
    """Return a name that is known, or refuse it as an unknown `what`.

    >>> choice("iid", "recipe", ["iid", "dirichlet"])
    'iid'
    """
    if value not in known:
        raise unknown_name(value, what, known)
    return value


def unknown_name(value: object, what: str, known: Collection[str], also: str = "") -> InputError:
    """Return the error of a name that is not known; `also` is allowed as well."""
    names = list(known)
    more = ", ..." if len(names) > _LISTED else ""
    allowed = ", ".join(map(str, names[:_LISTED])) + more + also
    return InputError(f"unknown {what}", got=value, allowed=allowed, fix=did_you_mean(value, names))


def did_you_mean(given: object, names: Iterable[str]) -> str | None:
    """Suggest the known name that is nearest to what was given, if any is near."""
    close = difflib.get_close_matches(given, [*names], n=1) if isinstance(given, str) else ()
    return f"did you mean {close[0]!r}?" if close else None


def ending(path: Path, *known: str) -> Path:
    """Return a path with one of these endings, such as '.npz'."""
    if path.suffix.lower() not in known:
        raise InputError("unknown kind of file", got=path.name, allowed=", ".join(known))
    return path


def check_bool(value: object, name: str) -> bool:
    """Return a boolean, or refuse anything else."""
    given = plain(value)
    if not isinstance(given, bool):
        raise InputError(f"{name} must be a boolean", got=value, allowed="true or false")
    return given


def plain(value: object) -> object:
    """Return a NumPy number as Python's; anything else unchanged."""
    return value.item() if isinstance(value, np.number | np.bool_) else value


def set_frozen(instance: object, **values: object) -> None:
    """Set the checked fields of a frozen dataclass in its `__post_init__`."""
    for name, value in values.items():
        object.__setattr__(instance, name, value)
