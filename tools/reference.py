"""Write the reference of Python names, commands and config keys from the code itself.

python tools/reference.py          rewrite
python tools/reference.py --check  fail when a page is not what the code says
"""

import inspect
import json
import re
import sys
import typing
from pathlib import Path
from typing import Any

import msgspec
import typer.main

import fedeas
import fedeas.lab
import fedeas.private
from fedeas._internal.settings import Settings, describe
from fedeas.cli.main import app
from fedeas.lab.config import Config

FOLDER = Path(__file__).parents[1] / "docs" / "reference"
PACKAGES = {
    fedeas: "The core: counts, plans, generators, `augment`.",
    fedeas.private: 'Private sums: `pip install ".[private]"` in a checkout.',
    fedeas.lab: 'Experiments: `pip install ".[lab]"` in a checkout.',
}


def python() -> str:
    """Return a page with every public name by package: what it is, and its documentation."""
    lines = [
        "# Python",
        "",
        "Names are imported on first use. One that needs an extra names it in brackets:",
        '`pip install ".[train]"` in a checkout. If a file or a generator needs more',
        "(Parquet, a diffusion model), an error says so.",
        "",
    ]
    for package, about in PACKAGES.items():
        extras = {name: extra for name, (_, extra) in getattr(package, "_WITH_EXTRA", {}).items()}
        names = sorted({*package.__all__, *extras}, key=lambda name: (name.casefold(), name))
        title = package.__name__
        links = (
            f"[`{name}`][{title}.{name}]" + (f" ({extras[name]})" if name in extras else "")
            for name in names
        )
        lines += [f"## {title}", "", about, "", ", ".join(links), ""]
        lines += [f"::: {title}.{name}\n" for name in names]
    lines += ["## Skew", "", "::: fedeas.planning.skew", ""]
    return "\n".join(lines)


def commands() -> str:
    """Return a page with every command: what it does, what it takes, an example."""
    root: Any = typer.main.get_command(app)
    lines = ["# Commands", "", "Every command has `--help`, most `--json`.", ""]
    for name, command in sorted(root.commands.items()):
        below = sorted(getattr(command, "commands", {}).items())
        for inner, one in below or [("", command)]:
            lines += _command(f"fedeas {name} {inner}".rstrip(), one)
    return "\n".join(lines)


def _command(name: str, command: Any) -> list[str]:
    options = [p for p in command.params if p.param_type_name == "option" and not p.hidden]
    listed = [_option(p) for p in options if p.name not in ("help", "as_json")]
    text = inspect.cleandoc(command.help or "").replace("Example: `", "`")
    return [f"## {name}", "", text, "", *([*listed, ""] if listed else [])]


def _option(option: Any) -> str:
    names = ", ".join(option.opts)
    if option.required:
        return f"- `{names}` (required): {option.help}"
    if option.default not in (None, False, "", [], ()) and not callable(option.default):
        names += f" {option.default}"
    return f"- `{names}`: {option.help}"


def config() -> str:
    """Return a page with every key of a config: what it may be, its default, what it is."""
    lines = [
        "# Config keys",
        "",
        "A config is a TOML file of these keys; [training](../training.md) shows one. An unknown",
        "key is an error that suggests the closest known one. In a sweep the keys are in `[base]`",
        "and, with lists of values, in `[[grid]]` ([sweeps](../training.md#sweeps)).",
        "",
    ]
    for heading, kind in _tables(Config, ""):
        lines += [f"## {heading or 'top level'}", "", inspect.cleandoc(kind.__doc__ or ""), ""]
        comments = _comments(kind)
        for field in msgspec.structs.fields(kind):
            if _is_table(field.type):
                continue
            unset = field.required or field.default is None
            default = "" if unset else f" = {json.dumps(field.default, ensure_ascii=False)}"
            allowed = describe(field.type).replace("a whole number", "integer")
            allowed = allowed.replace("a number", "number") + ", required" * field.required
            # A default of plain text or a list shows what is allowed.
            shown = f" ({allowed})" if unset or allowed not in ("text", "a list") else ""
            comment = f": {comments[field.name]}" if field.name in comments else ""
            lines.append(f"- `{field.name}{default}`{shown}{comment}")
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
