"""The expected shape of a result and its place in a sweep.

A checksum detects damage, not forgery: a file of runs can hold anything with a valid checksum. So
everything that tables and reports rely on is checked here first.
"""

from collections.abc import Callable
from typing import Any

_LONGEST = 1000  # characters of a text
_Shape = dict[str, Any] | list[Any] | Callable[[Any], bool]


def _count(value: object) -> bool:
    return type(value) is int and 0 <= value <= 2**53


def _number(value: object) -> bool:
    """Tell whether it is a number that fits into a double; NaN does not."""
    return isinstance(value, int | float) and type(value) is not bool and abs(value) <= 2**53


def _name(value: object) -> bool:
    return isinstance(value, str) and len(value) <= _LONGEST and value.isprintable()


def _words(value: object) -> bool:
    """Tell whether it is a text of one or more lines."""
    return isinstance(value, str) and _name(" ".join(value.split()))


def _folder(value: object) -> bool:
    return _name(value) and not {"/", "\\"} & set(str(value)) and value not in ("", ".", "..")


def _scalar(value: object) -> bool:
    return value is None or isinstance(value, bool) or _number(value) or _name(value)


def _or_none(shape: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: value is None or shape(value)


def _varied(value: object) -> bool:
    return isinstance(value, list | tuple) and all(
        isinstance(pair, list | tuple) and len(pair) == 2 and _name(pair[0]) and _scalar(pair[1])
        for pair in value
    )


ENTRY: dict[str, _Shape] = {
    "grid": _name,
    "title": _words,
    "threshold": _or_none(_number),
    "match": _name,
    "method": _name,
    "policy": _name,
    "varied": _varied,
    "seed": _count,
    "folder": _folder,
}
RESULT: dict[str, _Shape] = {
    "method": _name,
    "policy": _name,
    "seed": _count,
    "data": _words,
    "generator": _name,
    "generated": _count,
    "generation": {"made": _count, "seconds": _number},
    **dict.fromkeys(("code_hash", "counts_hash", "generator_hash", "experiment"), _name),
    "on": {"machine": _name, "device": _name, "threads": _scalar, "torch": _name},
    "curves": {
        "accuracy": [_or_none(_number)],
        "drift": [_number],
        "seconds": [_number],
        "per_class": [_or_none(_number)],
    },
    "settings": {
        "augment": {},
        "data": {"name": _name, "protocol": _name},
        "partition": {"clients": _scalar, "alpha": _scalar},
        "federated": {
            "rounds": _count,
            "fraction": _number,
            "model": {"name": _name},
            "local": {"epochs": _scalar, "learning_rate": _scalar},
        },
    },
}


def fits(value: object, shape: _Shape) -> bool:
    """Tell whether a value of JSON has a shape; a dictionary may hold more than is asked for.

    >>> fits({"seed": 1, "more": 2}, {"seed": _count}), fits({"seed": "1"}, {"seed": _count})
    (True, False)
    """
    if isinstance(shape, dict):
        return isinstance(value, dict) and all(
            key in value and fits(value[key], own) for key, own in shape.items()
        )
    if isinstance(shape, list):
        return isinstance(value, list) and all(fits(item, shape[0]) for item in value)
    return shape(value)


def is_result(value: object) -> bool:
    """Tell whether a value has all that tables and reports read of a result."""
    if not fits(value, RESULT) or not isinstance(value, dict):
        return False
    curves = value["curves"]
    rounds = len(curves["accuracy"])
    measured = any(a is not None for a in curves["accuracy"])
    classes = value.get("classes", [])
    return (
        measured
        and len(curves["drift"]) == len(curves["seconds"]) == rounds
        and fits(classes, [_name])
        and (not classes or not curves["per_class"] or len(classes) == len(curves["per_class"]))
    )
