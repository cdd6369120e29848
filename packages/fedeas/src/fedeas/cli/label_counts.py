"""Label counts on the command line: options for reading them, and notes about them."""

import functools
import inspect
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from fedeas.cli import show
from fedeas.errors import InputError

if TYPE_CHECKING:
    from fedeas import LabelCounts, Plan
    from fedeas.countfiles.table import TableError
    from fedeas.data.count_sources import CountsFile

_REPEATED = ("drop_columns", "drop_rows")  # options that may be given several times
_MOST = 0.25  # the share below which a chosen beta stays


def counts_argument() -> Path:
    """Declare the argument that names a file of counts; the command's text says what it may be."""
    argument: Path = typer.Argument(..., metavar="COUNTS", hidden=True)
    return argument


def target_option(panel: str | None = None) -> str | None:
    """Declare the option that names the class distribution to aim at."""
    option: str | None = typer.Option(
        None,
        metavar="TARGET",
        help="Classes to aim at: uniform (default), federation, or a file of shares.",
        rich_help_panel=panel,
    )
    return option


def load_counts(path: Path, **options: Any) -> "CountsFile":
    """Read label counts; a table that is not clean is refused with the command that makes it so."""
    from fedeas.data.count_sources import read_counts

    with options_in_messages(path, options):
        return read_counts(str(path), **options)


@contextmanager
def options_in_messages(path: Path, given: Mapping[str, Any] | None = None) -> Iterator[None]:
    """Let errors about a table name what to type, not arguments of `read_counts`."""
    from fedeas.countfiles.table import TableError

    try:
        yield
    except TableError as error:
        raise _at_terminal(error, path, given or {}) from None


def _at_terminal(error: "TableError", path: Path, given: Mapping[str, Any]) -> InputError:
    """Return the error with the command to type in the place of Python."""
    from fedeas.countfiles.table import describe_ways

    def render(options: Mapping[str, Any], when: str, *, first: bool) -> str:
        reason = f" ({when})" if when else ""
        if not first:
            return typed_options(options) + reason
        before = {name: value for name, value in given.items() if name not in options}
        drops = {
            name: [*given.get(name, ()), *options[name]] for name in _REPEATED if name in options
        }
        clean = "clean.csv" if path.name == "counts.csv" else "counts.csv"  # never the table itself
        command = f"fedeas counts {_quoted(str(path))} --out {clean} "
        command += typed_options({**before, **options, **drops})
        return f"turn it into a clean table with: {command}{reason}"

    fix = describe_ways(error.ways, error.plain_fix, render)
    return InputError(error.what, got=error.got, allowed=error.allowed, fix=fix)


def typed_options(options: Mapping[str, Any]) -> str:
    """Return options as one types them.

    >>> typed_options({"drop_rows": ["All sites"], "keep": True, "blank": None})
    "--drop-row 'All sites' --keep"
    """
    words = []
    for name, value in options.items():
        if value is None or value is False:
            continue
        values = [value] if isinstance(value, str | int) else list(value)
        flag = "--" + (name.removesuffix("s") if name in _REPEATED else name).replace("_", "-")
        words += [flag if one is True else f"{flag} {_quoted(str(one))}" for one in values]
    return " ".join(words)


def _quoted(text: str) -> str:
    """Return a value as one would type it; control codes of a file stay escaped."""
    text = text if len(text) <= 200 else f"{text[:197]}..."
    return shlex.quote(text) if text.isprintable() else repr(text)


def quality_option(panel: str | None = None) -> Path | None:
    """Declare the option for what samples of each class are worth."""
    option: Path | None = typer.Option(
        None,
        metavar="FILE",
        help="Worth of a synthetic sample, 0 to 1: lines of 'class,0.8', or a generator's folder.",
        rich_help_panel=panel,
    )
    return option


class CountsOptions:
    """What `plan` and `compare` may be told about a table: nothing, it has to be clean."""

    def load(self, path: Path) -> "CountsFile":
        """Read label counts from any supported source."""
        return load_counts(path)


def with_counts_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command its `options`, which are not on the command line."""
    parameters = [p for p in inspect.signature(command).parameters.values() if p.name != "options"]

    @functools.wraps(command)
    def with_options(**arguments: Any) -> None:
        command(**arguments, options=CountsOptions())

    # Typer looks at the signature.
    vars(with_options)["__signature__"] = inspect.Signature(parameters)
    with_options.__annotations__ = {p.name: p.annotation for p in parameters}
    return with_options


def note_counts(path: Path, file: "CountsFile") -> None:
    """Print in one line how the counts were read, and which clients are empty."""
    counts = file.counts
    read_as = f"{file.description}: " if file.description != "a table of counts" else ""
    clients = f"{show.count_of(counts.K, 'client')} ({_first(counts.clients)})"
    classes = f"{show.count_of(counts.C, 'class')} ({_first(counts.classes)})"
    name = "standard input" if str(path) == "-" else path
    show.note(f"{name}: {read_as}{clients} x {classes}, {show.count_of(counts.total, 'sample')}")
    for line in file.notes:
        show.note(f"note: {line}")
    note_empty(counts.empty, len(counts.empty))


def _first(names: Sequence[str] | None, width: int = 28) -> str:
    """List the first few clients or classes, so that a misread table is noticed."""
    if names is None:
        return "numbered"
    shown = show.shortened(names[0], width)
    for name in names[1:]:
        if len(f"{shown}, {name}") > width:
            return f"{shown}, ..."
        shown = f"{shown}, {name}"
    return shown


def note_empty(empty: Sequence[str], count: int) -> None:
    """Say how many clients have no samples, and name the first few where they are known."""
    if count:
        more = ", ..." if count > 10 else ""
        shown = f": {', '.join(empty[:10])}{more}" if empty else ""
        verbs = "has no samples and is" if count == 1 else "have no samples and are"
        show.note(f"{show.count_of(count, 'client')} {verbs} ignored{shown}")


def note_share(share: float) -> None:
    """Warn if more than a quarter of all samples would be synthetic."""
    if share > _MOST:
        show.note(
            f"note: {show.percent(share)} of all samples would be synthetic, above the "
            f"{100 * _MOST:.0f} % that a chosen beta stays below"
        )


def note_plan(counts: "LabelCounts", plan: "Plan") -> None:
    """Warn if clients get more of a scarce class than they have of any, or if most is synthetic."""
    note_share(plan.synthetic_share)
    overfill = plan.overfilled
    if overfill is None:
        return
    one = overfill.clients == 1
    are, such_as = ("is filled", ":") if one else ("are filled", ", such as")
    what, largest = f"{'its' if one else 'their'} largest class", "largest"
    if plan.target is not None:
        what, largest = "the target", "target"
    name = overfill.client if counts.clients else f"client {overfill.client}"
    show.note(
        f"note: {show.count_of(overfill.clients, 'client')} {are} beyond {what}{such_as} "
        f"{name} ({largest} {overfill.largest:,}, filled to {overfill.filled_to:,}; "
        f"{overfill.samples:,} samples where full balance takes {overfill.full:,}); "
        f"use a smaller --beta or --total, or --policy waterfill"
    )
