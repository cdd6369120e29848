"""Components by name, 'name' or 'name(setting=value, ...)'; a value may be in quotes.

They are found by entry points, ours and those of other packages, or at a dotted path. A dotted
path runs whatever code it names, so it is obeyed only where the owner of the process wrote the
spec: in a config, on the command line, in code. Text that was read from a file, a message, a card,
a record or a cache names installed components only. `by_owner` says whose text a spec is.
"""

import importlib
import inspect
import re
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

from fedeas._internal.names import unknown_name
from fedeas.errors import FedeasError, InputError

_SPEC = re.compile(r"\s*([\w.:-]+)\s*(?:\((.*)\))?\s*", re.DOTALL)
# A value is in quotes, doubled where they are part of it, or goes up to the next comma.
_SETTING = re.compile(r"""\s*(\w+)\s*=\s*("(?:[^"]|"")*"|'(?:[^']|'')*'|[^,"'][^,]*?)\s*(?:,|\Z)""")
_CONSTANTS = {"true": True, "false": False, "none": None}


@dataclass(frozen=True)
class Spec:
    """A component by name, as it was written: its name and the texts of its settings."""

    text: str
    name: str
    texts: Mapping[str, str]

    @classmethod
    def parse(cls, text: "str | Spec", kind: str) -> "Spec":
        """Split what was written into its parts; what is split already is returned as it is."""
        return text if isinstance(text, Spec) else cls(text, *_texts(text, kind))

    @property
    def settings(self) -> dict[str, Any]:
        """The values of the settings."""
        return {key: _value(text) for key, text in self.texts.items()}


@cache
def _installed(group: str, _: tuple[str, ...]) -> dict[str, EntryPoint]:
    """Return a group's entry points by name; no other package takes the name of ours.

    Looking through all installed packages takes 20 ms, and a sweep asks for every run.
    """
    points = list(entry_points(group=group))
    points.sort(key=lambda point: point.dist is None or point.dist.name != "fedeas")
    return {point.name: point for point in reversed(points)}


@dataclass(frozen=True)
class Registry:
    """Components of one kind, by name: the entry points of a group, or a fixed list."""

    kind: str
    group: str = ""
    fixed: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    method: str = ""  # that every component has, as in plan(counts)

    def names(self) -> list[str]:
        """Return the known names: ours, then those of other packages."""
        return [*self.fixed, *self._entry_points()]

    def _entry_points(self) -> dict[str, EntryPoint]:
        """Return the installed components by name."""
        return _installed(self.group, tuple(sys.path)) if self.group else {}

    def parameters(self, name: str, *, by_owner: bool) -> set[str]:
        """Return the settings that a component of this name takes."""
        return set(self._signature(name, self.factory(name, by_owner=by_owner)))

    def make(self, spec: str | Spec, defaults: Mapping[str, object], *, by_owner: bool) -> Any:
        """Make a component from its name and settings.

        It also gets those of the `defaults` that it takes and that `spec` does not set. Only a spec
        written `by_owner` may be a dotted path.
        """
        parsed = Spec.parse(spec, self.kind)
        name, texts = parsed.name, parsed.texts
        factory = self.factory(name, by_owner=by_owner)
        parameters = self._signature(name, factory)
        settings = {key: _setting(text, parameters.get(key)) for key, text in texts.items()}
        named = {
            k: p for k, p in parameters.items() if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
        }
        takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
        if not takes_any and (unknown := [key for key in settings if key not in named]):
            raise InputError(
                f"{self.kind} {name!r} has no setting {unknown[0]!r}",
                allowed=", ".join(named) or "no settings",
            )
        fitting = {k: v for k, v in defaults.items() if k in named and v is not None}
        settings = fitting | settings
        for key, parameter in named.items():
            if parameter.default is parameter.empty and key not in settings:
                if inspect.isfunction(factory) and key in self.method:
                    raise InputError(
                        f"{name} is a function",
                        allowed=f"a {self.kind} is a class with {self.method}",
                    )
                raise InputError(
                    f"{self.kind} {name!r} needs {key!r}", fix=f"write {name}({key}=...)"
                )
        try:
            return factory(**settings)
        except FedeasError:
            raise
        except (TypeError, ValueError) as error:
            raise InputError(
                f"{self.kind} {name!r} cannot be made: {error}{place_of(error)}", got=settings
            ) from error

    def _signature(self, name: str, factory: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
        try:
            return inspect.signature(factory).parameters
        except (ValueError, TypeError):
            raise InputError(f"{name!r} is not a {self.kind}") from None

    def factory(self, name: str, *, by_owner: bool) -> Callable[..., Any]:
        """Return what makes a component of this name, usually its class."""
        if name in self.fixed:
            return self.fixed[name]
        if point := self._entry_points().get(name):
            return self._import(point.value)
        if ":" in name:
            if not by_owner:
                raise InputError(
                    f"a {self.kind} by dotted path, which could run any code",
                    got=name,
                    allowed=f"the name of an installed {self.kind}",
                )
            return self._import(name)
        also = ", or a dotted path package.module:Name"
        raise unknown_name(name, self.kind, self.names(), also)

    def _import(self, path: str) -> Callable[..., Any]:
        factory = import_object(path, self.kind)
        if not callable(factory):
            raise InputError(
                f"{path!r} is not a {self.kind}", allowed="a class, or a function that makes one"
            )
        return factory  # type: ignore[no-any-return]


def import_object(path: str, kind: str) -> Any:
    """Import an object by its dotted path, 'package.module:name'."""
    module, _, attribute = path.partition(":")
    try:
        with _working_folder_first():
            return getattr(importlib.import_module(module), attribute)
    except (Exception, SystemExit) as error:  # a module may do anything when it is imported
        raise InputError(f"cannot import {kind} {path!r}: {error}{place_of(error)}") from error


@contextmanager
def _working_folder_first() -> Iterator[None]:
    """Let a dotted path name a module in the working folder, as `python -m` does."""
    here = str(Path.cwd())
    sys.path.insert(0, here)
    try:
        yield
    finally:
        sys.path.remove(here)


def parse(spec: str, kind: str = "part") -> tuple[str, dict[str, Any]]:
    """Split a spec into its name and settings.

    >>> parse("fedeas(beta=8, entropy=false)")
    ('fedeas', {'beta': 8, 'entropy': False})
    """
    parsed = Spec.parse(spec, kind)
    return parsed.name, parsed.settings


def quoted(text: str) -> str:
    """Return a value as a spec holds it: in quotes where it would be read as something else.

    >>> quoted("runs/a"), quoted("runs/a, b"), quoted("2024")
    ('runs/a', '"runs/a, b"', '"2024"')
    """
    plain = text == text.strip() and not set(text) & set("\"',()") and _value(text) == text
    return text if plain and text else '"' + text.replace('"', '""') + '"'


def place_of(error: BaseException) -> str:
    """Say in which line a user's own code raised an error; nothing if it was not in a file."""
    frames = traceback.extract_tb(error.__traceback__)
    if len(frames) < 2 or not Path(frames[-1].filename).is_file():  # the call itself is wrong
        return ""
    return f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})"


def _texts(spec: str, kind: str) -> tuple[str, dict[str, str]]:
    """Split a spec into its name and the texts of its settings, with their quotes."""
    match = _SPEC.fullmatch(spec)
    if match is None:
        raise InputError(f"not a {kind}", got=spec, allowed="NAME or NAME(setting=value, ...)")
    rest, settings = (match[2] or "").strip(), dict[str, str]()
    while rest:
        setting = _SETTING.match(rest)
        if setting is None or not setting[1].isidentifier():
            raise InputError(
                "not a setting",
                got=rest.split(",")[0].strip(),
                allowed="name=value",
                fix=f'in {spec!r}; a value with a comma goes in quotes: name="a, b"',
            )
        settings[setting[1]] = setting[2]
        rest = rest[setting.end() :].strip(" ,\t\n")
    return match[1], settings


def _setting(text: str, parameter: inspect.Parameter | None) -> object:
    """Return the value of a setting: text where a parameter takes nothing else, as a path does."""
    takes = None if parameter is None else parameter.annotation
    if takes in (str, "str") and text[0] not in "\"'":
        return text
    return _value(text)


def _value(text: str) -> object:
    if text[:1] in ("'", '"') and text[:1] == text[-1:] and len(text) > 1:
        return text[1:-1].replace(text[0] * 2, text[0])
    if text.lower() in _CONSTANTS:
        return _CONSTANTS[text.lower()]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
