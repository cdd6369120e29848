"""Names and paths from callers, checked where they enter."""

import difflib
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import TypeVar

from fedeas.errors import InputError

_LISTED = 20  # names that are allowed, in an error
_Name = TypeVar("_Name", bound=str | None)


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
