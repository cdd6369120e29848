"""What commands share on the terminal: tables with small bars, notes, progress, JSON."""

import json
import sys
from collections.abc import Sequence
from itertools import chain
from pathlib import Path

import typer
from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from fedeas._internal.names import choice, ending

_EIGHTHS = " ▏▎▍▌▋▊▉█"


def json_option() -> bool:
    """Declare the option for JSON output."""
    option: bool = typer.Option(False, "--json", help="Print JSON instead of a table.")
    return option


def plot_option(what: str) -> Path | None:
    """Declare the option that draws a picture."""
    option: Path | None = typer.Option(
        None,
        "--plot",
        metavar="FILE",
        help=f"Draw {what} (.png, .svg, .pdf).",
    )
    return option


def note(text: str) -> None:
    """Print a note on standard error, so that pipes get the result alone."""
    typer.echo(text, err=True)


def count_of(number: int, what: str) -> str:
    """Return a number and its noun, singular for one."""
    plural = {"class": "classes"}.get(what, f"{what}s")
    return f"{number:,} {what if number == 1 else plural}"


def print_json(value: object) -> None:
    """Print a value as JSON on standard output."""
    typer.echo(json.dumps(value, indent=2))


class _Output(Console):
    """Standard output; names from files are not markup, and a closed pipe is left to `main`."""

    def __init__(self) -> None:
        super().__init__(markup=False, emoji=False, highlight=False)

    def on_broken_pipe(self) -> None:
        """Leave it to `main`, which ends quietly; rich would exit with 1."""
        raise BrokenPipeError


def print_table(table: Table) -> None:
    """Print a table; if it does not fit, lines overflow rather than lose digits."""
    console = _Output()
    for column in table.columns:
        if column.no_wrap:
            lines = (str(cell).splitlines() for cell in (column.header, *column.cells))
            column.min_width = max(map(cell_len, chain.from_iterable(lines)), default=0)
    needed = Measurement.get(console, console.options.update(width=10_000), table).minimum
    console.width = max(console.width, needed)
    console.print(table)


def new_table(title: str, *columns: tuple[str, bool]) -> Table:
    """Return a plain table; each column is a heading and whether it holds numbers."""
    table = Table(
        title=Text(title),
        title_justify="left",
        title_style="bold",
        min_width=cell_len(title),
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        padding=(0, 1, 0, 0),
    )
    for place, (heading, numeric) in enumerate(columns):
        # Numbers, and the names of the rows, are never cut.
        table.add_column(
            heading, justify="right" if numeric else "left", no_wrap=numeric or not place
        )
    return table


def shortened(name: str, width: int) -> str:
    """Return a name that takes at most `width` characters of a line."""
    return name if len(name) <= width else f"{name[: width - 3]}..."


def bar(part: float, width: int = 12) -> Text:
    """Return a bar that fills `part` of its width, to an eighth of a character."""
    eighths = round(max(0.0, min(1.0, part)) * width * 8)
    full, rest = divmod(eighths, 8)
    text = "█" * full + (_EIGHTHS[rest] if rest else "")
    if not (sys.stdout.encoding or "").lower().startswith("utf"):
        text = "#" * round(eighths / 8)
    return Text(text, style="cyan", no_wrap=True, overflow="crop")


def percent(part: float | None) -> str:
    """Return a fraction as a percentage."""
    return "-" if part is None else f"{round(100 * part, 1) + 0.0:.1f} %"  # and no -0.0


def seconds_text(seconds: float) -> str:
    """Return seconds in a readable form."""
    from fedeas._internal.progress import duration

    return duration(seconds)


def check_known(kind: str, given: Sequence[str] | None, known: Sequence[str]) -> None:
    """Refuse a name that is not among the known ones."""
    for name in given or ():
        choice(name, kind, dict.fromkeys(known))


def check_picture(path: Path) -> None:
    """Refuse an unsupported image format before any work is done."""
    ending(path, ".png", ".svg", ".pdf")
