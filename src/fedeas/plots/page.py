"""A report as files: one self-contained page, and the same as Markdown."""

import base64
import hashlib
import html
import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

from fedeas._internal.files import atomic_write, make_folder

_PAGE = "index.html"
_MARKS = re.compile(r"([\\`\[\]|])")  # what would begin code, a link, an image or a cell


@dataclass(frozen=True)
class Picture:
    """A picture with its alt text."""

    name: str
    content: bytes
    alt: str

    @property
    def kind(self) -> str:
        """The ending of its file."""
        return "png" if self.content.startswith(b"\x89PNG") else "svg"

    @property
    def path(self) -> str:
        """Its file below the report's folder; a name that is not a plain one gets a plain one."""
        plain = re.sub(r"[^A-Za-z0-9._-]+", "-", self.name).strip(".-")[:80]
        if plain != self.name:  # two names must not become one file
            plain = f"{plain}-{hashlib.sha256(self.name.encode()).hexdigest()[:8]}"
        return f"img/{plain}.{self.kind}"


@dataclass(frozen=True)
class Grid:
    """Rows of text under a heading; the first cell of a row is its name."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    shades: Sequence[Sequence[float | None]] = ()  # 0 to 1 behind cells; hatched if below 0
    facts: bool = False  # names and values, not numbers to compare


@dataclass(frozen=True)
class Numbers:
    """The numbers that matter most, each with what it is."""

    items: Sequence[tuple[str, str]]


Part = str | Grid | Picture | Numbers


@dataclass(frozen=True)
class Section:
    """A heading, and what is below it, in this order.

    A section without a title belongs to the title of the page. `group` is what several sections
    are about, such as the name of a sweep.
    """

    title: str
    parts: list[Part] = field(default_factory=list)
    group: str = ""


def write_report(folder: Path, title: str, sections: Sequence[Section]) -> Path:
    """Write a report's folder and return the page's path."""
    make_folder(folder / "img")
    for section in sections:
        for part in section.parts:
            if isinstance(part, Picture):
                with atomic_write(folder / part.path) as temporary:
                    temporary.write_bytes(part.content)
    for name, text in (
        ("report.md", _markdown(title, sections)),
        (_PAGE, render_page(title, sections)),
    ):
        with atomic_write(folder / name) as temporary:
            temporary.write_text(text, encoding="utf-8")
    return folder / _PAGE


def _markdown(title: str, sections: Sequence[Section]) -> str:
    lines = [f"# {_plain(title)}", ""]
    for section in sections:
        about = f" ({_plain(section.group)})" if section.group else ""
        if section.title:
            lines += [f"## {_plain(section.title)}{about}", ""]
        elif section.group:
            lines += [f"**{_plain(section.group)}**", ""]
        for part in section.parts:
            if isinstance(part, Picture):
                lines += [f"![{_plain(part.alt)}]({part.path})", ""]
            elif isinstance(part, Numbers):
                lines += [f"- **{_plain(number)}** {_plain(what)}" for number, what in part.items]
                lines.append("")
            elif isinstance(part, Grid):
                head, *rows = (map(_plain, row) for row in (part.head, *part.rows))
                cells = [head, ["---"] * len(part.head), *rows]
                lines += [f"| {' | '.join(row)} |" for row in cells]
                lines.append("")
            else:
                lines += [_plain(part), ""]
    return "\n".join(lines)


def _plain(text: str) -> str:
    """Return text as one line of Markdown that shows it: names from files are not markup."""
    return _MARKS.sub(r"\\\1", html.escape(" ".join(text.split()), quote=False))


def render_page(title: str, sections: Sequence[Section], one_column: bool = False) -> str:
    """Return the page: one file that needs no other."""
    titled = [section for section in sections if section.title]
    body = [f"<h1>{html.escape(title)}</h1>"]
    body += [_section(section) for section in sections if not section.title]
    body.append('<nav aria-label="Sections"><ul>')
    body += [
        f'<li><a href="#{n}">{html.escape(": ".join(filter(None, (s.group, s.title))))}</a></li>'
        for n, s in enumerate(titled)
    ]
    body.append("</ul></nav>")
    body += [_section(section, number) for number, section in enumerate(titled)]
    layout = ' class="one-column"' if one_column else ""
    return _SHELL.format(
        title=html.escape(title), style=_style(), layout=layout, body="\n".join(body)
    )


def _style() -> str:
    return resources.files(__package__).joinpath("page.css").read_text(encoding="utf-8")


def _section(section: Section, number: int | None = None) -> str:
    """Return a section; pictures that follow each other share a grid."""
    inner = [f'<p class="group">{html.escape(section.group)}</p>'] if section.group else []
    inner += [f"<h2>{html.escape(section.title)}</h2>"] if section.title else []
    for pictures, parts in itertools.groupby(section.parts, lambda p: isinstance(p, Picture)):
        content = [_part(part) for part in parts]
        if pictures:
            thirds = " thirds" if len(content) % 3 == 0 else ""
            content = [f'<div class="pictures{thirds}">', *content, "</div>"]
        inner += content
    name = "" if number is None else f' id="{number}"'
    return "\n".join([f"<section{name}>", *inner, "</section>"])


def _part(part: Part) -> str:
    if isinstance(part, Picture):
        kind = {"svg": "image/svg+xml", "png": "image/png"}[part.kind]
        data = base64.b64encode(part.content).decode()
        return f'<img alt="{html.escape(part.alt)}" src="data:{kind};base64,{data}">'
    if isinstance(part, str):
        return f"<p>{html.escape(part)}</p>"
    if isinstance(part, Numbers):
        items = (
            f"<div><dd>{html.escape(number)}</dd><dt>{html.escape(what)}</dt></div>"
            for number, what in part.items
        )
        return f'<dl class="numbers">{"".join(items)}</dl>'
    return _table(part)


def _table(part: Grid) -> str:
    numbers = [not part.facts and _is_numeric(place, part.rows) for place in range(len(part.head))]
    head = "".join(
        f"<th{_kind(number)}>{html.escape(cell)}</th>"
        for cell, number in zip(part.head, numbers, strict=True)
    )
    rows = []
    for n, row in enumerate(part.rows):
        shades: Sequence[Any] = part.shades[n] if part.shades else [None] * len(row)
        cells = "".join(map(_cell, row, shades, numbers))
        rows.append(f"<tr>{cells}</tr>")
    top = f"<thead><tr>{head}</tr></thead>" if any(part.head) else ""
    body = f"<table>{top}<tbody>{''.join(rows)}</tbody></table>"
    # The keyboard scrolls only what can have the focus.
    return f'<div class="wide" tabindex="0" role="region" aria-label="Table">{body}</div>'


def _is_numeric(place: int, rows: Sequence[Sequence[str]]) -> bool:
    """Tell whether a column holds numbers; the first one holds names."""
    cells = [row[place] for row in rows if row[place]]
    return place > 0 and bool(cells) and any(cell[0] in "+-<0123456789" for cell in cells)


def _kind(number: bool) -> str:
    return ' class="n"' if number else ""


def _cell(text: str, shade: float | None, number: bool) -> str:
    behind = "" if shade is None else f' style="background:rgba(0,114,178,{0.75 * shade:.2f})"'
    if shade is not None and shade < 0:
        return f'<td class="n withheld">{html.escape(text)}</td>'
    return f"<td{_kind(number)}{behind}>{html.escape(text)}</td>"


_SHELL = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<main{layout}>
{body}
</main>
</body>
</html>
"""
