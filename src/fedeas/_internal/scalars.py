"""Numbers from callers, Python's or NumPy's: checked once and kept as Python's."""

import math
from collections.abc import Callable
from numbers import Integral, Real
from typing import Any

import numpy as np

from fedeas.errors import InputError

LARGEST = 2**53  # up to here floats are exact whole numbers


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
