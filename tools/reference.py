"""Write the reference of Python names, commands and config keys from the code itself.

python tools/reference.py          rewrite
python tools/reference.py --check  fail when a page is not what the code says
"""

import inspect
import re
import sys
import typing
from pathlib import Path
from typing import Any

import msgspec
import typer.main

import fedeas
import fedeas_lab
import fedeas_private
from fedeas._util.settings import Settings, describe
from fedeas.cli import add_installed_commands, app
from fedeas_lab.config import Config

FOLDER = Path(__file__).parents[1] / "docs" / "reference"
PACKAGES = {
    fedeas: "The core: counts, plans, generators, `augment`.",
    fedeas_private: "Private sums: `pip install packages/fedeas-private` in a checkout.",
    fedeas_lab: "Experiments: `pip install packages/fedeas-lab` in a checkout.",
}


def python() -> str:
    """Return a page with every public name by package: what it is, and its documentation."""
    lines = [
        "# Python",
        "",
        "Names are imported on first use. Some need an extra, named in the last column:",
        '`pip install "packages/fedeas[train]"` in a checkout. If a file or a generator needs more',
        "(Parquet, a diffusion model), an error says so.",
        "",
    ]
    for package, about in PACKAGES.items():
        extras = {name: extra for name, (_, extra) in getattr(package, "_WITH_EXTRA", {}).items()}
        names = sorted({*package.__all__, *extras}, key=lambda name: (name.casefold(), name))
        title = package.__name__
        lines += [f"## {title}", "", about, "", "| name | what it is | extra |", "|---|---|---|"]
        for name in names:
            first = inspect.cleandoc(getattr(package, name).__doc__).splitlines()[0]
            lines.append(f"| [`{name}`][{title}.{name}] | {first} | {extras.get(name, '')} |")
        lines += ["", *(f"::: {title}.{name}\n" for name in names)]
    lines += ["## Skew", "", "::: fedeas.planning.skew", ""]
    return "\n".join(lines)


def commands() -> str:
    """Return a page with every command: what it does, what it takes, an example."""
    add_installed_commands()
    root: Any = typer.main.get_command(app)
    lines = ["# Commands", "", "Every command has `--help`; most have `--json`.", ""]
    for name, command in sorted(root.commands.items()):
        lines += _command(f"fedeas {name}", command)
        for inner, below in sorted(getattr(command, "commands", {}).items()):
            lines += _command(f"fedeas {name} {inner}", below)
    return "\n".join(lines)


def _command(name: str, command: Any) -> list[str]:
    text = inspect.cleandoc(command.help or "")
    lines = [f"## {name}", "", text, ""]
    options = [p for p in command.params if p.param_type_name == "option" and not p.hidden]
    rows = [p for p in options if p.name != "help"]
    if rows:
        lines += ["| option | description | default |", "|---|---|---|"]
        lines += [
            f"| `{', '.join(p.opts)}` | {(p.help or '').replace('|', '/')} | {_default(p)} |"
            for p in rows
        ]
        lines.append("")
    return lines


def _default(option: Any) -> str:
    if option.required:
        return "required"
    if option.default in (None, False, [], ()) or callable(option.default):
        return ""
    return f"`{option.default}`"


def config() -> str:
    """Return a page with every key of a config: what it may be, its default, what it is."""
    lines = [
        "# Config keys",
        "",
        "A config is a TOML file of these keys; [training](../training.md) shows one. An unknown",
        "key is an error that suggests the closest known one. In a sweep the keys are in `[base]`",
        "and, with lists of values, in `[[grid]]` ([experiments](../experiments.md)).",
        "",
    ]
    for heading, kind in _tables(Config, ""):
        lines += [f"## {heading or 'top level'}", "", inspect.cleandoc(kind.__doc__ or ""), ""]
        lines += ["| key | allowed | default | |", "|---|---|---|---|"]
        comments = _comments(kind)
        for field in msgspec.structs.fields(kind):
            if _is_table(field.type):
                continue
            default = "required" if field.required else f"`{field.default!r}`"
            shown, comment = describe(field.type), comments.get(field.name, "")
            lines.append(f"| `{field.name}` | {shown} | {default} | {comment} |")
        lines.append("")
    return "\n".join(lines)


def _tables(kind: Any, above: str) -> list[tuple[str, Any]]:
    found = [(above and f"[{above}]", kind)]
    for name, hint in typing.get_type_hints(kind).items():
        if _is_table(hint):
            found += _tables(hint, f"{above}.{name}" if above else name)
    return found


def _is_table(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Settings)


def _comments(kind: Any) -> dict[str, str]:
    """Return what stands behind the fields of settings in their source."""
    lines = inspect.getsource(kind).splitlines()
    found = (re.match(r"\s+(\w+):[^#]*#\s*(.+)", line) for line in lines)
    return {match[1]: match[2] for match in found if match}


def main(check: bool) -> int:
    """Write the pages, or tell which is out of date."""
    stale = 0
    FOLDER.mkdir(parents=True, exist_ok=True)
    pages = {"python.md": python(), "commands.md": commands(), "config.md": config()}
    for name, text in pages.items():
        path = FOLDER / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            stale += 1
            if check:
                sys.stdout.write(f"{name} is not what the code says\n")
            else:
                path.write_text(text, encoding="utf-8")
    return stale if check else 0


if __name__ == "__main__":
    sys.exit(main("--check" in sys.argv[1:]))
