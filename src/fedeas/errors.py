"""The errors of fedeas: what is wrong, what was given, what is allowed, what to do.

Each is also the built-in exception that code without fedeas would expect: a bad value is a
`ValueError`, a missing package an `ImportError`, a file that cannot be opened an `OSError`.
"""

import json
import os
from pathlib import PurePath
from typing import Any, ClassVar

_LONGEST = 80  # characters of a value that are shown
_PLAIN = (str, bytes, int, float, PurePath, type(None))


class FedeasError(Exception):
    """Base class of all errors that fedeas raises on purpose.

    >>> str(FedeasError("beta is not positive", got=-1, allowed="a number above 0"))
    'beta is not positive; got -1; allowed: a number above 0'
    """

    _fields: ClassVar[tuple[str, ...]] = ()  # attributes that are not in `__dict__`

    def __init__(
        self, what: str, *, got: object = None, allowed: str | None = None, fix: str | None = None
    ) -> None:
        self.what, self.got, self.allowed, self.fix = what, got, allowed, fix
        parts = [what]
        if got is not None:
            parts.append(f"got {_shown(got)}")
        if allowed is not None:
            parts.append(f"allowed: {allowed}")
        if fix is not None:
            parts.append(fix)
        super().__init__("; ".join(parts))

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""

    def __reduce__(self) -> tuple[Any, ...]:
        """Support pickling, whatever the constructor takes.

        A value that might not be picklable is replaced by the text shown for it.
        """
        fields = dict(self.__dict__) | {name: getattr(self, name) for name in self._fields}
        if not _is_plain(fields.get("got")):
            fields["got"] = _shown(fields["got"])
        return _restored, (type(self), self.args, fields)


class InputError(FedeasError, ValueError):
    """The input cannot be used: a bad file, value or name."""


class FileAccessError(InputError, OSError):
    """The operating system refused to read or write a file."""

    _fields = ("errno", "strerror", "filename")

    def __new__(cls, *_: object) -> "FileAccessError":
        """Create it as an `OSError`, the built-in base with fields of its own."""
        return OSError.__new__(cls)

    def __init__(self, doing: str, path: PurePath, error: OSError, fix: str | None = None) -> None:
        reason = os.strerror(error.errno) if error.errno else first_line(error)
        super().__init__(f"cannot {doing} {path}: {reason}", fix=fix)
        self.errno, self.strerror, self.filename = error.errno, reason, str(path)


class InfeasibleError(FedeasError):
    """The input is well formed, but there is no solution."""


class MissingExtraError(FedeasError, ImportError):
    """An optional package is needed but not installed."""

    def __init__(self, purpose: str, extra: str) -> None:
        super().__init__(
            f"{purpose} needs an optional package",
            fix=f"install it with: {install_command(extra)}",
        )
        self.purpose, self.extra = purpose, extra


def install_command(extra: str) -> str:
    """Return the command that installs an extra in the way in which fedeas was installed."""
    from importlib.metadata import PackageNotFoundError, distribution
    from urllib.parse import urlsplit
    from urllib.request import url2pathname

    try:
        origin = json.loads(distribution("fedeas").read_text("direct_url.json") or "{}")
    except (PackageNotFoundError, ValueError):
        origin = {}
    url = str(origin.get("url", ""))
    if "dir_info" in origin:
        editable = "--editable " if origin["dir_info"].get("editable") else ""
        return f'pip install {editable}"{url2pathname(urlsplit(url).path)}[{extra}]"'
    if "vcs_info" in origin:
        return f'pip install "fedeas[{extra}] @ {origin["vcs_info"]["vcs"]}+{url}"'
    return f'pip install "fedeas[{extra}]{f" @ {url}" if url else ""}"'


def first_line(error: BaseException) -> str:
    """Return the first line of another library's error, or its type."""
    return (str(error).splitlines() or [type(error).__name__])[0]


def _shown(value: object) -> str:
    try:
        # repr() also escapes line breaks and terminal control codes of a hostile file.
        text = repr(value)
    except (RecursionError, ValueError):  # nested too deeply, or an int of too many digits
        text = f"<{type(value).__name__}>"
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."


def _is_plain(value: object, depth: int = 4) -> bool:
    """Tell whether a value is made of built-in types alone, nested a few times at most."""
    if isinstance(value, dict):
        return _is_plain([*value, *value.values()], depth)
    if isinstance(value, list | tuple | set | frozenset):
        return depth > 0 and all(_is_plain(item, depth - 1) for item in value)
    return isinstance(value, _PLAIN)


def _restored(
    kind: type[FedeasError], args: tuple[object, ...], fields: dict[str, Any]
) -> FedeasError:
    error = kind.__new__(kind)
    error.args = args
    for name, value in fields.items():
        setattr(error, name, value)
    return error
