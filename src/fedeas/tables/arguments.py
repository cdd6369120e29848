"""The arguments that messages name: those of `read_counts`, and as options at a terminal."""

import ast
import re
import shlex
from collections.abc import Sequence

_TEXT = r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\""
_TEXTS = rf"\[(?:(?:{_TEXT})(?:, )?)*\]"
_COLUMNS = rf"Columns\((?:\w+=(?:{_TEXT})(?:, )?)+\)"
_NAMES = (
    "delimiter|encoding|layout|by|sheet|thousands|blank|suppressed|size_column|transpose|"
    "drop_columns|drop_rows|columns"
)
_ONE = rf"\b(?:{_NAMES})=(?:{_TEXT}|{_TEXTS}|{_COLUMNS}|[0-9]+|True|False)"
_SEVERAL = re.compile(rf"{_ONE}(?:, {_ONE})*")
_PAIR = re.compile(rf"\b({_NAMES})=({_TEXT}|{_TEXTS}|{_COLUMNS}|[0-9]+|True|False)")
_MEMBER = re.compile(rf"(\w+)=({_TEXT})")
_BARE = re.compile(rf"`({_NAMES})`")
_PLURALS = {"drop_columns": "drop_column", "drop_rows": "drop_row"}
_LONGEST, _MOST = 200, 50  # characters of a name, which a client may have, and names
_NAMED = "--client-column and --label-column"


def argument(name: str, value: object) -> str:
    """Return an argument as one would type it in Python; what nobody would type is cut."""
    if isinstance(value, list):
        return f"{name}={[_cut(one) for one in value[:_MOST]]!r}"
    return f"{name}={_cut(value)!r}"


def columns_argument(**names: str) -> str:
    """Return the argument that names columns of client, label and count."""
    inside = ", ".join(argument(name, value) for name, value in names.items())
    return f"columns=Columns({inside})"


def example_columns(names: Sequence[str]) -> str:
    """Return the argument for a table whose columns do not tell which is which."""
    client, label = [*names, "client", "label"][:2]
    return columns_argument(client=client, label=label)


def at_terminal(message: str) -> str:
    """Return a message with options instead of arguments.

    >>> at_terminal("pass drop_rows=['All sites'], layout='wide'; leave out `sheet`")
    "pass --drop-row 'All sites' --layout wide; leave out --sheet"
    """
    options = _SEVERAL.sub(lambda several: " ".join(_options(several[0])), message)
    return _BARE.sub(lambda bare: _NAMED if bare[1] == "columns" else _flag(bare[1]), options)


def _options(arguments: str) -> list[str]:
    options = []
    for name, value in _PAIR.findall(arguments):
        if name == "columns":
            options += [f"--{m[1]}-column {_typed(ast.literal_eval(m[2]))}"
                        for m in _MEMBER.finditer(value)]  # fmt: skip
        elif name == "transpose":
            options.append("--transpose" if value == "True" else "--no-transpose")
        else:
            content = ast.literal_eval(value)
            several: Sequence[object] = content if isinstance(content, list) else [content]
            options += [f"{_flag(name)} {_typed(str(one))}" for one in several]
    return options


def _cut(value: object) -> object:
    long = isinstance(value, str) and len(value) > _LONGEST
    return f"{str(value)[: _LONGEST - 3]}..." if long else value


def _flag(name: str) -> str:
    return f"--{_PLURALS.get(name, name).replace('_', '-')}"


def _typed(text: str) -> str:
    """Return a value as one would type it; control codes of a file stay escaped."""
    if text.isidentifier():
        return text
    return shlex.quote(text) if text.isprintable() else repr(text)
