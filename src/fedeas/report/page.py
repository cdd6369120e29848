"""A report of runs: one self-contained page, the same as Markdown, and the tables as CSV."""

import base64
import html
import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedeas.errors import InputError
from fedeas.experiments.paper_claims import Claim
from fedeas.experiments.paper_counts import main_plan, paper_counts
from fedeas.experiments.paper_tables import printed
from fedeas.experiments.results import Mean
from fedeas.experiments.tables import (
    Row,
    Run,
    Table,
    common_setting,
    make_tables,
    write_csv,
)
from fedeas.files import atomic_write
from fedeas.report import curves, figures
from fedeas.select import admissible_betas

_PAGE = "index.html"
_MOST_MARKS = 6  # whose names have room beside them


@dataclass(frozen=True)
class Picture:
    """A picture with the words for those who cannot see it."""

    name: str
    content: bytes
    alt: str

    @property
    def kind(self) -> str:
        """The ending of its file."""
        return "png" if self.content.startswith(b"\x89PNG") else "svg"


@dataclass(frozen=True)
class Grid:
    """Rows of text under a head; the first cell of a row is its name."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    shades: Sequence[Sequence[float | None]] = ()  # 0 to 1 behind the cells, where there are any
    facts: bool = False  # names and values, not numbers to compare


@dataclass(frozen=True)
class Section:
    """A heading, and what stands below it in this order."""

    title: str
    parts: list[str | Grid | Picture] = field(default_factory=list)


def write_report(
    folder: Path, title: str, sections: Sequence[Section], tables: Sequence[Table]
) -> Path:
    """Write a report's folder and return the page's path."""
    try:
        (folder / "img").mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot make the folder {folder}: {error.strerror}") from None
    for section in sections:
        for part in section.parts:
            if isinstance(part, Picture):
                with atomic_write(folder / "img" / f"{part.name}.{part.kind}") as temporary:
                    temporary.write_bytes(part.content)
    write_csv(folder / "tables.csv", tables)
    for name, text in (
        ("report.md", _markdown(title, sections)),
        (_PAGE, _html(title, sections)),
    ):
        with atomic_write(folder / name) as temporary:
            temporary.write_text(text, encoding="utf-8")
    return folder / _PAGE


# What is said


def sweep_sections(name: str, runs: Sequence[Run]) -> Iterator[Section]:
    """Yield what a report says about the runs of a sweep."""
    tables = make_tables(runs)
    for table in tables:
        own = [run for run in runs if run.entry.grid == table.grid]
        yield _table_section(name, table, own, runs)
    yield Section(f"{name}: what ran", [_what_ran(runs)])


def summary(name: str, tables: Sequence[Table]) -> Iterator[str]:
    """Yield what came out, in a sentence per table that compares policies in one setting."""
    for table in tables:
        rows = {row.policy: row for row in table.rows}
        if "none" not in rows or not curves.several_policies(table):
            continue
        plain = rows["none"]
        better = sorted(
            (row for row in table.rows if row.generated.value),
            key=lambda row: -row.accuracy.value,
        )
        listed = ", ".join(
            f"{curves.label(row)} {100 * row.accuracy.value:.1f} % "
            f"({row.generated.value:,.0f} samples)"
            for row in better
        )
        yield (
            f"{name}, {table.grid}: without synthetic samples {100 * plain.accuracy.value:.1f} %; "
            f"{listed}."
        )


def claims_section(claims: Iterable[Claim]) -> Section:
    """Return the paper's claims with their states."""
    rows = [(c.where, c.what, c.paper, c.ours, c.state) for c in claims]
    said = (
        "Exact: computed from label counts. Agrees, disagrees, cannot tell: judged from the runs "
        "above, at a reduced size. The rest waits for a GPU, with the command that runs it."
    )
    grid = Grid(("where", "what", "paper", "ours", "state"), rows, facts=True)
    return Section("The paper's claims", [said, grid])


def partition_sections() -> Iterator[Section]:
    """Yield the paper's figures that follow from label counts alone."""
    counts, plan = paper_counts(), main_plan()
    interval = admissible_betas(counts)
    yield Section(
        "The paper's partition, from label counts alone",
        [
            "CIFAR-10 on 20 clients, alpha = 0.1: the figures that need no training.",
            Picture("demand", figures.demand_picture(counts, plan), "Samples per client."),
            Picture(
                "reduction", figures.reduction_picture(counts, plan.total), "Imbalance removed."
            ),
            Picture(
                "beta",
                figures.beta_picture(counts, interval.choice, interval),
                "Choosing beta by two conditions.",
            ),
        ],
    )


def _what_ran(runs: Sequence[Run]) -> Grid:
    def spread(values: Sequence[object]) -> str:
        return ", ".join(dict.fromkeys(str(value) for value in values))

    results = [run.result for run in runs]
    settings = [result["settings"] for result in results]
    federated = [s["federated"] for s in settings]
    seconds = sum(sum(result["curves"]["seconds"]) for result in results)
    made = sum(result["generation"]["made"] for result in results)
    on = [result["on"] for result in results]
    return Grid(
        ("", ""),
        [
            ("runs", f"{len({run.entry.folder for run in runs})}"),
            ("data", results[0]["data"] if len({r["data"] for r in results}) == 1 else
             spread([f"{s['data']['name']}, protocol {s['data']['protocol']}" for s in settings])),
            ("generator", spread([r["generator"] for r in results if r["generated"]]) or "none"),
            ("model", spread([f["model"]["name"] for f in federated])),
            ("rounds x epochs", spread([f"{f['rounds']} x {f['local']['epochs']}"
                                        for f in federated])),
            ("clients in a round", spread([f"{f['fraction']:.0%} of {s['partition']['clients']}"
                                           for f, s in zip(federated, settings, strict=True)])),
            ("learning rate", spread([f["local"]["learning_rate"] for f in federated])),
            ("seeds", spread(sorted({result["seed"] for result in results}))),
            ("hardware", spread([f"{o['machine']}, {o['device']}, {o['threads']} thread(s) a run"
                                 for o in on])),
            ("PyTorch", spread([o["torch"] for o in on])),
            ("code", spread([result["code_hash"][:8] for result in results])),
            ("training in all", f"{seconds / 3600:.1f} hours of such a place"),
            ("images generated", f"{made:,}"),
        ],
        facts=True,
    )  # fmt: skip


def _table_section(
    name: str, table: Table, runs: Sequence[Run], everything: Sequence[Run]
) -> Section:
    section = Section(f"{name}: {table.title or table.grid}")
    section.parts.append(_results(table, runs))
    notes = list(table.notes)
    references = {row.match for row in table.rows} - {""}
    if references:
        notes.insert(0, f"Matched policies spend the total of {', '.join(sorted(references))}.")
    rounds = curves.last_rounds(runs)
    notes.insert(0, f"Accuracy: mean of the last {rounds} rounds; ± half of the 95 % interval.")
    if any(_printed(row, runs) for row in table.rows):
        notes.append(
            "The paper's column is its Table 1: ResNet-18, 200 rounds of 10 epochs, 45,000 images, "
            "a diffusion model, tests on the clients' own parts. Compare orders, not levels."
        )
    section.parts.extend(notes)
    if len(table.rows) > 1:
        section.parts.extend(_figures(f"{name}-{table.grid}", table, runs, everything))
        section.parts.append("Accuracy of every class in the last rounds, %:")
        section.parts.append(_by_class(table))
    return section


def _results(table: Table, runs: Sequence[Run]) -> Grid:
    """Return the rows of a table, with the paper's accuracy beside where it prints one."""
    names = [name.rpartition(".")[2] for name, _ in table.rows[0].column] if table.rows else []
    beside = [_printed(row, runs) for row in table.rows]
    head = [*names, "method", "policy", "seeds", "accuracy %"]
    head += ["paper's %"] if any(beside) else []
    head += ["gain", "eta", "drift"]
    head += [f"rounds to {100 * table.threshold:g} %"] if table.threshold else []
    head += ["generated", "generation", "training"]
    rows = []
    for row, paper in zip(table.rows, beside, strict=True):
        cells = [*(str(value) for _, value in row.column), row.method, _policy(row, table)]
        cells += [str(row.seeds), _points(row.accuracy)]
        if any(beside):
            cells.append("" if paper is None else f"{paper:.2f}")
        cells += [_points(row.gain, "+"), "" if row.eta is None else f"{row.eta.value:.2f}"]
        cells.append(f"{row.drift.value:.3f}")
        if table.threshold:
            cells.append(f"{row.arrived.value:.0f}" if row.arrived else "never")
        cells.append(f"{row.generated.value:,.0f}")
        cells += [_minutes(row.generation_seconds), _minutes(row.training_seconds)]
        rows.append(cells)
    return Grid(head, rows)


def _printed(row: Row, runs: Sequence[Run]) -> float | None:
    settings = next(
        run.result["settings"]
        for run in runs
        if (run.entry.column, run.entry.method, run.entry.policy)
        == (row.column, row.method, row.policy)
    )
    cut = settings["partition"]
    return printed(settings["data"]["name"], cut["clients"], cut["alpha"], row.method, row.policy)


def _policy(row: Row, table: Table) -> str:
    several = len({r.match for r in table.rows} - {""}) > 1
    return f"{row.policy} = {row.match}" if row.match and several else row.policy


def _references(everything: Sequence[Run], runs: Sequence[Run]) -> list[Row]:
    """Return FedAvg without samples and with full balance in the setting of some runs."""
    setting = common_setting(runs[0].result)
    beside = {
        run.entry.folder: run
        for run in everything
        if run.entry.policy in ("none", "full-balance")
        and run.entry.method == "fedavg"
        and common_setting(run.result) == setting
    }
    return [row for table in make_tables(list(beside.values())) for row in table.rows]


def _figures(
    name: str, table: Table, runs: Sequence[Run], everything: Sequence[Run]
) -> Iterator[Picture]:
    """Yield the figures that a table's rows can fill."""
    rows = table.rows
    if len({row.match for row in rows} - {""}) > 1:
        lines = _references(everything, runs)
        yield Picture(f"{name}-budget", curves.budget(rows, lines), "Accuracy against budget.")
        return
    yield Picture(
        f"{name}-allocation",
        curves.allocation(rows),
        "Accuracy of each row as a bar: "
        + ", ".join(f"{curves.label(row)} {100 * row.accuracy.value:.1f} %" for row in rows),
    )
    if not curves.several_policies(table):
        return
    yield Picture(
        f"{name}-convergence", curves.convergence(runs, table.threshold), "Accuracy by round."
    )
    if len(rows) <= _MOST_MARKS:
        yield Picture(f"{name}-drift", curves.drift(rows), "Drift against accuracy.")
    yield Picture(f"{name}-cost", curves.cost(rows), "Minutes of generation and training.")


def _by_class(table: Table) -> Grid:
    classes = max(len(row.per_class) for row in table.rows)
    head = ["", *(str(c) for c in range(classes))]
    rows, shades = [], []
    for row in table.rows:
        setting = "".join(f"{value}, " for _, value in row.column)
        rows.append(
            [f"{setting}{curves.label(row)}"]
            + ["" if a is None else f"{100 * a:.0f}" for a in row.per_class]
        )
        shades.append([None, *row.per_class])
    return Grid(head, rows, shades)


def _points(mean: Mean | None, sign: str = "") -> str:
    if mean is None:
        return ""
    half = "" if mean.half is None else f" ± {100 * mean.half:.1f}"
    return f"{100 * mean.value:{sign}.1f}{half}"


def _minutes(mean: Mean) -> str:
    if mean.value < 60:
        return f"{mean.value:.0f} s" if mean.value else ""
    return f"{mean.value / 60:.1f} min"


# How it is written


def _markdown(title: str, sections: Sequence[Section]) -> str:
    lines = [f"# {title}", ""]
    for section in sections:
        lines += [f"## {section.title}", ""]
        for part in section.parts:
            if isinstance(part, Picture):
                lines += [f"![{part.alt}](img/{part.name}.{part.kind})", ""]
            elif isinstance(part, Grid):
                cells = [part.head, ["---"] * len(part.head), *part.rows]
                lines += [f"| {' | '.join(c.replace('|', '/') for c in row)} |" for row in cells]
                lines.append("")
            else:
                lines += [part, ""]
    return "\n".join(lines)


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
