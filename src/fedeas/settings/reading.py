"""Settings from a TOML file or plain values, and one way to say what is wrong with them.

msgspec decides whether a value fits its declaration; what an error says is written here.
"""

import types
import typing
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import msgspec

from fedeas.errors import InputError
from fedeas.files import read_toml
from fedeas.specs import did_you_mean

Read = TypeVar("Read")
_NAMES = {
    int: "a whole number", float: "a number", str: "text", bool: "true or false",
    dict: "a table", tuple: "a list",
}  # fmt: skip
_BOUNDS = {"ge": "from", "gt": "above", "le": "up to", "lt": "below"}

fields_of = lru_cache(msgspec.structs.fields)


def read_settings(kind: type[Read], source: object, where: str = "settings") -> Read:
    """Make settings of a kind from a TOML file's path, or from a mapping as such a file holds it.

    An error calls the mapping `where`, and a file by its path.
    """
    if isinstance(source, Path):
        where, source = str(source), read_toml(source)
    made: Read = checked(kind, source, where, ())
    return made


def checked(hint: Any, value: object, where: str, path: tuple[str, ...]) -> Any:
    """Return a value as its declaration has it, or say what is wrong at `path`."""
    try:
        return msgspec.convert(value, hint)
    except msgspec.ValidationError as error:
        place = ": ".join(filter(None, (where, ".".join(path))))
        kind, _ = _parts(hint)
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
            if not isinstance(value, Mapping):
                raise InputError(f"{place} is not a table", got=value) from None
            _check_keys(kind, value, place)
            for field in fields_of(kind):
                if field.encode_name in value:
                    own = value[field.encode_name]
                    checked(field.type, own, where, (*path, field.encode_name))
            # Every value is fine by itself: what they must not be together, their struct says.
            raise InputError(f"{place}: {error.__cause__}") from None
        raise _refused(hint, value, place) from None


def _check_keys(kind: type[msgspec.Struct], value: Mapping[Any, object], place: str) -> None:
    known = {field.encode_name: field.required for field in fields_of(kind)}
    for key in value:
        if key not in known:
            fix = did_you_mean(key, known)
            raise InputError(f"{place} has no setting {key!r}", allowed=", ".join(known), fix=fix)
    for key, required in known.items():
        if required and key not in value:
            raise InputError(f"{place} lacks {key!r}", allowed=", ".join(known))


def _refused(hint: Any, value: object, place: str) -> InputError:
    """Say why a single value does not fit."""
    kind, _ = _parts(hint)
    options = typing.get_args(kind) if typing.get_origin(kind) is Literal else ()
    try:
        msgspec.convert(value, str if options else kind)
    except msgspec.ValidationError:
        what = "has the wrong type"
    else:
        what = "is not valid" if isinstance(value, str) else "is out of range"
    fix = did_you_mean(value, options)
    return InputError(f"{place} {what}", got=value, allowed=describe(hint), fix=fix)


def describe(hint: Any) -> str:
    """Say which values a declaration takes.

    >>> describe(Annotated[int, msgspec.Meta(ge=1)]), describe(float | None)
    ('a whole number from 1', 'a number')
    """
    kind, ranges = _parts(hint)
    if said := [own.description for own in ranges if own.description]:
        return str(said[0])
    if typing.get_origin(kind) is Literal:
        return " or ".join(typing.get_args(kind))
    limits = ", ".join(
        f"{word} {limit:g}" if isinstance(limit, float) else f"{word} {limit}"
        for own in ranges
        for key, word in _BOUNDS.items()
        if (limit := getattr(own, key)) is not None
    )
    return f"{_NAMES[typing.get_origin(kind) or kind]} {limits}".strip()


def _parts(hint: Any) -> tuple[Any, list[msgspec.Meta]]:
    """Return the type that a declaration names, and its ranges; None does not count."""
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return _parts(next(own for own in typing.get_args(hint) if own is not type(None)))
    if typing.get_origin(hint) is Annotated:
        kind, ranges = _parts(hint.__origin__)
        return kind, [*ranges, *hint.__metadata__]
    return hint, []
