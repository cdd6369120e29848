"""Label counts on the command line: what several commands take, and notes about counts."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedeas.cli import show
from fedeas.errors import InputError

if TYPE_CHECKING:
    from fedeas import LabelCounts, LabelSetCounts, Plan

_MOST = 0.25  # the share below which a chosen beta stays
CountsPath = Annotated[Path, typer.Argument(metavar="COUNTS", hidden=True)]
TargetOption = Annotated[
    str | None,
    typer.Option(
        metavar="TARGET",
        help="Classes to aim at: uniform (default), federation, or a file of shares.",
    ),
]


def load_counts(path: Path, command: str) -> "LabelCounts":
    """Read label counts for a command that takes one label per sample."""
    from fedeas import LabelCounts

    counts = load_any_counts(path)
    if not isinstance(counts, LabelCounts):
        raise InputError(
            f"{path}: samples have several labels; fedeas {command} takes one label per sample",
            allowed="a row per client and a column per class",
            fix=f"use fedeas plan {path}, which reads them",
        )
    return counts


def load_any_counts(path: Path) -> "LabelCounts | LabelSetCounts":
    """Read label counts or label sets; another table is refused with the command that reads it."""
    from fedeas.counts.files import TableError
    from fedeas.counts.messy_tables import advice
    from fedeas.counts.sources import read_counts
    from fedeas.errors import MissingExtraError

    try:
        return read_counts(path)
    except TableError as error:
        if str(path) == "-":
            raise
        try:
            raise advice(path) from None
        except MissingExtraError:
            raise error from None


def note_counts(name: Path | str, counts: "LabelCounts") -> None:
    """Print in one line which counts were read, and which clients are empty."""
    clients = f"{show.count_of(counts.K, 'client')} ({_first(counts.clients)})"
    classes = f"{show.count_of(counts.C, 'class')} ({_first(counts.classes)})"
    shown = "standard input" if str(name) == "-" else name
    show.note(f"{shown}: {clients} x {classes}, {show.count_of(counts.total, 'sample')}")
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
