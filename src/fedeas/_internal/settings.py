"""Settings: frozen, strict, checked however they are made, and known by their values.

A field is declared once, with its type and range. One that says only where or how fast something
happens is marked `NOT_IDENTITY`: it does not change the name of a run. msgspec decides whether a
value fits its declaration; what an error says is written here.
"""

import types
import typing
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self, TypeVar

import msgspec
from msgspec import Meta, Struct, structs

from fedeas._internal.files import read_toml
from fedeas._internal.names import did_you_mean
from fedeas.errors import InputError

T = TypeVar("T")
NOT_IDENTITY = Meta(extra={"identity": False})

Count = Annotated[int, Meta(ge=1)]
Natural = Annotated[int, Meta(ge=0)]
Share = Annotated[float, Meta(ge=0, le=1)]
Name = Annotated[str, Meta(pattern=r"^[\w-]+\Z", description="letters, digits, - and _")]
Place = Annotated[str, NOT_IDENTITY]  # a folder or a device: where, not what
_NAMES = {
    int: "a whole number", float: "a number", str: "text", bool: "true or false",
    dict: "a table", tuple: "a list",
}  # fmt: skip
_BOUNDS = {"ge": "from", "gt": "above", "le": "up to", "lt": "below"}

fields_of = lru_cache(msgspec.structs.fields)


class Settings(Struct, frozen=True, forbid_unknown_fields=True):
    """Base of all settings: values that do not fit are refused, from files and from Python."""

    # Keys that people may write and that are not settings here, and what each is instead.
    other_keys: ClassVar[Mapping[str, str]] = {}

    def __post_init__(self) -> None:
        for field in fields_of(type(self)):
            value = getattr(self, field.name)
            # A whole number becomes a float where one is declared, as it does in a file.
            structs.force_setattr(
                self, field.name, checked(field.type, value, "", (field.encode_name,))
            )

    def replace(self, **changed: object) -> Self:
        """Return the same settings but for those given, which are checked."""
        return structs.replace(self, **changed)

    def to_dict(self) -> dict[str, Any]:
        """Return nested plain values, as a file holds them."""
        values: dict[str, Any] = msgspec.to_builtins(self)
        return values

    def identity(self) -> dict[str, Any]:
        """Return what makes a run this run; where and how fast it happens is left out."""
        return {
            field.name: _plain(getattr(self, field.name))
            for field in fields_of(type(self))
            if NOT_IDENTITY not in getattr(field.type, "__metadata__", ())
        }


def _plain(value: object) -> object:
    """Return a value as JSON gives it back."""
    if isinstance(value, Settings):
        return value.identity()
    return list(value) if isinstance(value, tuple) else value


def read_settings(kind: type[T], source: object, where: str = "settings") -> T:
    """Make settings of a kind from a TOML file's path, or from a mapping as such a file holds it.

    An error calls the mapping `where`, and a file by its path.
    """
    if isinstance(source, Path):
        where, source = str(source), read_toml(source)
    settings: T = checked(kind, source, where, ())
    return settings


def checked(hint: Any, value: object, where: str, path: tuple[str, ...]) -> Any:
    """Return a value as its declaration has it, or say what is wrong at `path`."""
    try:
        return msgspec.convert(value, hint)
    except msgspec.ValidationError as error:
        place = ": ".join(filter(None, (where, ".".join(path))))
        kind, _ = _parts(hint)
        if isinstance(kind, type) and issubclass(kind, Settings):
            if not isinstance(value, Mapping):
                raise InputError(f"{place} is not a table", got=value) from None
            _check_keys(kind, value, place)
            for field in fields_of(kind):
                if field.encode_name in value:
                    field_path = (*path, field.encode_name)
                    checked(field.type, value[field.encode_name], where, field_path)
            # Every value is fine by itself: what they must not be together, their struct says.
            raise InputError(f"{place}: {error.__cause__}") from None
        raise _refused(hint, value, place) from None


def _check_keys(kind: "type[Settings]", value: Mapping[Any, object], place: str) -> None:
    names = {field.encode_name: field.required for field in fields_of(kind)}
    for key in value:
        if key not in names:
            if other := kind.other_keys.get(key):
                raise InputError(f"{place}: {key!r} is {other}")
            fix = did_you_mean(key, names)
            raise InputError(f"{place} has no setting {key!r}", allowed=", ".join(names), fix=fix)
    for key, required in names.items():
        if required and key not in value:
            raise InputError(f"{place} lacks {key!r}", allowed=", ".join(names))


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

    >>> describe(Annotated[int, Meta(ge=1)]), describe(float | None)
    ('a whole number from 1', 'a number')
    """
    kind, ranges = _parts(hint)
    if descriptions := [meta.description for meta in ranges if meta.description]:
        return str(descriptions[0])
    if typing.get_origin(kind) is Literal:
        return " or ".join(typing.get_args(kind))
    limits = ", ".join(
        f"{word} {limit:g}" if isinstance(limit, float) else f"{word} {limit}"
        for meta in ranges
        for key, word in _BOUNDS.items()
        if (limit := getattr(meta, key)) is not None
    )
    return f"{_NAMES[typing.get_origin(kind) or kind]} {limits}".strip()


def _parts(hint: Any) -> tuple[Any, list[Meta]]:
    """Return the type that a declaration names, and its ranges; None does not count."""
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return _parts(next(one for one in typing.get_args(hint) if one is not type(None)))
    if typing.get_origin(hint) is Annotated:
        kind, ranges = _parts(hint.__origin__)
        return kind, [*ranges, *hint.__metadata__]
    return hint, []
