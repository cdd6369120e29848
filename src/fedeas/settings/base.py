"""What all settings are: frozen, strict, checked however they are made, and known by their values.

A field is declared once, with its type and range. One that says only where or how fast something
happens is marked `NOT_IDENTITY`: it does not change the name of a run.
"""

from typing import Annotated, Any, Self

from msgspec import Meta, Struct, structs, to_builtins

from fedeas.settings.reading import checked, fields_of

NOT_IDENTITY = Meta(extra={"identity": False})
# Came later: of settings that were recorded before, the default is no part of the name.
UNLESS_DEFAULT = Meta(extra={"identity": "unless default"})

Count = Annotated[int, Meta(ge=1)]
Natural = Annotated[int, Meta(ge=0)]
Share = Annotated[float, Meta(ge=0, le=1)]
Name = Annotated[str, Meta(pattern=r"^[\w-]+\Z", description="letters, digits, - and _")]
Place = Annotated[str, NOT_IDENTITY]  # a folder or a device: where, not what


class Settings(Struct, frozen=True, forbid_unknown_fields=True):
    """Base of all settings: values that do not fit are refused, from files and from Python."""

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
        made: dict[str, Any] = to_builtins(self)
        return made

    def identity(self) -> dict[str, Any]:
        """Return what makes a run this run; where and how fast it happens is left out."""
        return {
            field.name: _plain(value)
            for field in fields_of(type(self))
            for value in [getattr(self, field.name)]
            if NOT_IDENTITY not in (about := getattr(field.type, "__metadata__", ()))
            if not (UNLESS_DEFAULT in about and value == field.default)
        }


def _plain(value: object) -> object:
    """Return a value as JSON gives it back."""
    if isinstance(value, Settings):
        return value.identity()
    return list(value) if isinstance(value, tuple) else value
