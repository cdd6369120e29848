"""A report as files: one self-contained page, the same as Markdown, and the tables as CSV."""

import base64
import hashlib
import html
import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedeas.experiments.tables import Table, write_csv
from fedeas.files import atomic_write, make_folder

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
    shades: Sequence[Sequence[float | None]] = ()  # 0 to 1 behind the cells, where there are any
    facts: bool = False  # names and values, not numbers to compare


@dataclass(frozen=True)
class Section:
    """A heading, and what is below it, in this order."""

    title: str
    parts: list[str | Grid | Picture] = field(default_factory=list)


def write_report(
    folder: Path, title: str, sections: Sequence[Section], tables: Sequence[Table]
) -> Path:
    """Write a report's folder and return the page's path."""
    make_folder(folder / "img")
    for section in sections:
        for part in section.parts:
            if isinstance(part, Picture):
                with atomic_write(folder / part.path) as temporary:
                    temporary.write_bytes(part.content)
    write_csv(folder / "tables.csv", tables)
    for name, text in (
        ("report.md", _markdown(title, sections)),
        (_PAGE, _html(title, sections)),
    ):
        with atomic_write(folder / name) as temporary:
            temporary.write_text(text, encoding="utf-8")
    return folder / _PAGE


def _markdown(title: str, sections: Sequence[Section]) -> str:
    lines = [f"# {_plain(title)}", ""]
    for section in sections:
        lines += [f"## {_plain(section.title)}", ""]
        for part in section.parts:
            if isinstance(part, Picture):
                lines += [f"![{_plain(part.alt)}]({part.path})", ""]
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


def _html(title: str, sections: Sequence[Section]) -> str:
    body = [f"<h1>{html.escape(title)}</h1>", "<nav><ul>"]
    body += [f'<li><a href="#{n}">{html.escape(s.title)}</a></li>' for n, s in enumerate(sections)]
    body.append("</ul></nav>")
    for number, section in enumerate(sections):
        body.append(f'<section id="{number}"><h2>{html.escape(section.title)}</h2>')
        for pictures, parts in itertools.groupby(section.parts, lambda p: isinstance(p, Picture)):
            inner = "\n".join(map(_part, parts))
            body.append(f'<div class="pictures">{inner}</div>' if pictures else inner)
        body.append("</section>")
    return _SHELL.format(title=html.escape(title), style=_CSS, body="\n".join(body))


def _part(part: str | Grid | Picture) -> str:
    if isinstance(part, Picture):
        kind = {"svg": "image/svg+xml", "png": "image/png"}[part.kind]
        data = base64.b64encode(part.content).decode()
        return f'<img alt="{html.escape(part.alt)}" src="data:{kind};base64,{data}">'
    if isinstance(part, str):
        return f"<p>{html.escape(part)}</p>"
    head = "".join(f"<th>{html.escape(cell)}</th>" for cell in part.head)
    rows = []
    for n, row in enumerate(part.rows):
        shades: Sequence[Any] = part.shades[n] if part.shades else [None] * len(row)
        cells = "".join(
            _cell(c, s, part.facts or not place)
            for place, (c, s) in enumerate(zip(row, shades, strict=True))
        )
        rows.append(f"<tr>{cells}</tr>")
    top = f"<thead><tr>{head}</tr></thead>" if any(part.head) else ""
    return f'<div class="wide"><table>{top}<tbody>{"".join(rows)}</tbody></table></div>'


def _cell(text: str, shade: float | None, name: bool) -> str:
    number = not name and bool(text) and (text[0].isdigit() or text[0] in "+-")
    kind = ' class="n"' if number else ""
    behind = "" if shade is None else f' style="background:rgba(0,114,178,{0.75 * shade:.2f})"'
    return f"<td{kind}{behind}>{html.escape(text)}</td>"


_SHELL = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<main>
{body}
</main>
</body>
</html>
"""
_CSS = """
:root { color-scheme: light; }
body { margin: 0; background: #fff; color: #1a1a1a; font: 16px/1.55 system-ui, sans-serif; }
main { max-width: 1080px; margin: 0 auto; padding: 1.5rem 1.25rem 4rem; }
h1 { font-size: 1.9rem; line-height: 1.2; margin: 0.5rem 0 1rem; }
h2 { font-size: 1.3rem; margin: 2.6rem 0 0.8rem; border-top: 1px solid #ddd; padding-top: 1.2rem; }
nav ul { padding-left: 1.1rem; margin: 0; }
a { color: #0072b2; }
p { max-width: 72ch; }
img { max-width: 100%; height: auto; display: block; }
.pictures { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 460px), 1fr)); }
.pictures { gap: 1.5rem; align-items: start; margin: 1.2rem 0; }
.wide { overflow-x: auto; margin: 0.8rem 0; }
table { border-collapse: collapse; font-size: 0.9rem; font-variant-numeric: tabular-nums; }
th, td { padding: 0.35rem 0.7rem; text-align: left; border-bottom: 1px solid #e6e6e6; }
th { border-bottom: 2px solid #999; font-weight: 600; white-space: nowrap; }
td.n { text-align: right; white-space: nowrap; }
tbody tr:hover { background: #f4f8fb; }
"""
