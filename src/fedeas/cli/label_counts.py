"""Label counts on the command line: options for reading them, and notes about them."""

import functools
import inspect
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_type_hints

import typer

from fedeas.cli import show
from fedeas.errors import InputError

if TYPE_CHECKING:
    from fedeas import Cost, LabelCounts, Plan
    from fedeas.policies import Policy
    from fedeas.sources import Found

_MOST = 0.25  # the share below which `fedeas select` stays


def counts_argument() -> Path:
    """Declare the argument that names a file of counts."""
    argument: Path = typer.Argument(
        ...,
        metavar="COUNTS",
        help="Label counts: .csv, .tsv, .xlsx, .json or .parquet; - for stdin.",
    )
    return argument


def target_option() -> str | None:
    """Declare the option that names the class distribution to aim at."""
    option: str | None = typer.Option(
        None,
        metavar="uniform|federation|FILE",
        help="The class distribution to aim at: uniform (default), that of all clients together, "
        "or a file with a share per class.",
    )
    return option


@dataclass(frozen=True)
class CountsOptions:
    """The options that say how to read label counts."""

    delimiter: str | None = typer.Option(None, help="Delimiter of a CSV file: ';', tab, ...")
    encoding: str | None = typer.Option(
        None, help="Encoding of a text file that is not UTF-8, e.g. cp1252 or utf-16."
    )
    sheet: str | None = typer.Option(None, help="Sheet of an Excel workbook.")
    layout: str | None = typer.Option(
        None,
        metavar="wide|long|counts",
        help="wide: a row per client; long: a row per sample; counts: a row per client and class.",
    )
    by: str | None = typer.Option(
        None,
        metavar="COLUMN",
        help="A table with a row per sample: count its labels by the sites of this column. With "
        "--layout wide: add up the rows of a site.",
    )
    client_column: str | None = typer.Option(
        None, help="Column of the client, if rows are not clients."
    )
    label_column: str | None = typer.Option(
        None, help="Column of the label, if rows are not clients."
    )
    count_column: str | None = typer.Option(
        None, help="Column of the count, if rows are not clients."
    )
    size_column: str | None = typer.Option(
        None, help="Column with each client's number of samples, if cells are percentages."
    )
    drop_column: list[str] | None = typer.Option(
        None, help="Drop this column, e.g. a total; repeatable."
    )
    drop_row: list[str] | None = typer.Option(None, help="Drop this row, e.g. a total; repeatable.")
    transpose: bool | None = typer.Option(
        None, "--transpose/--no-transpose", help="The table has a row per class, or per client."
    )
    thousands: str | None = typer.Option(
        None, metavar="SIGN", help="What separates thousands: ',' '.' space apostrophe none."
    )
    blank: int | None = typer.Option(None, help="The count in cells that are empty, '-' or NaN.")
    suppressed: int | None = typer.Option(None, help="The count in cells such as '<5' and '*'.")

    @property
    def plain(self) -> bool:
        """Whether nothing but the layout is given."""
        others = (value for name, value in vars(self).items() if name != "layout")
        return all(value is None or value is False or value == [] for value in others)

    def load(self, path: Path) -> "Found":
        """Read label counts from any supported source; also says how it was parsed."""
        from fedeas.sources import Columns, read_counts

        with options_in_messages():
            return read_counts(
                str(path),
                Columns(self.client_column, self.label_column, self.count_column),
                self.delimiter,
                self.layout,
                drop_columns=self.drop_column or (),
                drop_rows=self.drop_row or (),
                transpose=self.transpose,
                sheet=self.sheet,
                encoding=self.encoding,
                thousands=self.thousands,
                blank=self.blank,
                suppressed=self.suppressed,
                size_column=self.size_column,
                by=self.by,
            )


@contextmanager
def options_in_messages() -> Iterator[None]:
    """Let errors name options of the command, not arguments of `read_counts`."""
    from fedeas.tables.arguments import at_terminal

    try:
        yield
    except InputError as error:
        if type(error) is not InputError:
            raise
        raise InputError(
            at_terminal(error.what),
            got=at_terminal(error.got) if isinstance(error.got, str) else error.got,
            allowed=error.allowed,
            fix=None if error.fix is None else at_terminal(error.fix),
        ) from None


def quality_option() -> Path | None:
    """Declare the option for what samples of each class are worth."""
    option: Path | None = typer.Option(
        None,
        metavar="FILE",
        help="What a synthetic sample of a class is worth in real ones, 0 to 1: lines of "
        "'class,0.8', what `generator sample --judge --json` prints, or the folder of `generator "
        "own`.",
    )
    return option


def with_counts_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command all of `CountsOptions` on the command line, in place of its `options`."""
    declared = [
        inspect.Parameter(
            f.name, inspect.Parameter.KEYWORD_ONLY, default=f.default, annotation=hint
        )
        for f, hint in zip(
            fields(CountsOptions), get_type_hints(CountsOptions).values(), strict=True
        )
    ]
    parameters: list[inspect.Parameter] = []
    for parameter in inspect.signature(command).parameters.values():
        parameters += declared if parameter.name == "options" else [parameter]

    @functools.wraps(command)
    def with_options(**given: Any) -> None:
        options = CountsOptions(**{p.name: given.pop(p.name) for p in declared})
        command(**given, options=options)

    # Typer looks at the signature.
    vars(with_options)["__signature__"] = inspect.Signature(parameters)
    with_options.__annotations__ = {p.name: p.annotation for p in parameters}
    return with_options


def note_counts(path: Path, found: "Found") -> None:
    """Print in one line how the counts were read, and which clients are empty."""
    counts, understood = found.counts, found.understood
    read_as = f"{understood}: " if understood != "a table of counts" else ""
    clients = f"{show.count_of(counts.K, 'client')} ({_first(counts.clients)})"
    classes = f"{show.count_of(counts.C, 'class')} ({_first(counts.classes)})"
    name = "standard input" if str(path) == "-" else path
    show.note(f"{name}: {read_as}{clients} x {classes}, {show.count_of(counts.total, 'sample')}")
    for line in found.notes:
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
    """List the clients without samples, the first few of `count`."""
    if count:
        more = f" and {count - 10:,} more" if count > 10 else ""
        shown = ", ".join(empty[:10]) + more
        verbs = "has no samples and is" if count == 1 else "have no samples and are"
        show.note(f"{show.count_of(count, 'client')} {verbs} ignored: {shown}")


def affordable_total(total: int | None, cost: "Cost | None", spend: str | None) -> int | None:
    """Return the total to stay within: as given, or what `spend` buys at the cost of a sample."""
    if spend is None:
        return total
    if cost is None:
        raise InputError(f"--spend {spend} also needs --cost", fix="e.g. --cost 0.8s")
    if total is not None:
        raise InputError("give --spend or --total, not both", got=(spend, total))
    return cost.samples_for(spend)


def note_share(share: float) -> None:
    """Warn if more than a quarter of all samples would be synthetic."""
    if share > _MOST:
        show.note(
            f"note: {show.percent(share)} of all samples would be synthetic, above the "
            f"{100 * _MOST:.0f} % that `fedeas select` stays below"
        )


def note_plan(counts: "LabelCounts", plan: "Plan", policy: "Policy") -> None:
    """Print warnings about a plan."""
    note_share(plan.synthetic_share)
    note_overfilled(counts, plan, policy)


def note_overfilled(counts: "LabelCounts", plan: "Plan", policy: "Policy") -> None:
    """Warn if clients get more of a scarce class than they have of any class."""
    from fedeas import FedEAS
    from fedeas.beta_path import balancing_beta
    from fedeas.overfill import overfilled

    found = overfilled(counts, plan)
    if found is None:
        return
    one = found.clients == 1
    are, such_as = ("is filled", ":") if one else ("are filled", ", such as")
    what, largest = f"{'its' if one else 'their'} largest class", "largest"
    if plan.target is not None:
        what, largest = "the target", "target"
    name = found.client if counts.clients else f"client {found.client}"
    smaller = "a smaller --total"
    if isinstance(policy, FedEAS):
        limit = balancing_beta(counts, policy)
        digits = 3 - math.floor(math.log10(limit))
        smaller = f"a beta below {math.floor(limit * 10**digits) / 10**digits:g}, {smaller}"
    show.note(
        f"note: {show.count_of(found.clients, 'client')} {are} beyond {what}{such_as} "
        f"{name} ({largest} {found.largest:,}, filled to {found.filled_to:,}; "
        f"{found.samples:,} samples where full balance takes {found.full:,}); "
        f"use {smaller}, or --policy waterfill"
    )
