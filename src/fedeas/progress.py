"""Progress of long work: a bar on a terminal, and a line every ten seconds elsewhere."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

Progress = Callable[[int, int], None]  # told how much is done, and of how much
_FIRST = 2.0  # seconds: what is done before is not worth a word
_EVERY = 10.0  # seconds between two lines


class Update(Protocol):
    """Shows the progress of a long task, with a short status."""

    def __call__(self, done: int, total: int | None, text: str = "") -> None:
        """Show it."""


@contextmanager
def progress(task: str) -> Iterator[Update]:
    """Yield a function that shows the progress of a task on standard error, once it takes long."""
    # Imported where it is used: `fedeas --help` does not wait for it.
    from rich.console import Console

    console = Console(stderr=True)
    with _bar(task, console) if console.is_terminal else _lines(task) as update:
        yield update


@contextmanager
def _bar(task: str, console: object) -> Iterator[Update]:
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[text]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True) as shown:  # type: ignore[arg-type]
        bar_id = shown.add_task(task, total=None, visible=False, text="")

        def update(done: int, total: int | None, text: str = "") -> None:
            visible = (shown.tasks[0].elapsed or 0.0) > _FIRST
            shown.update(bar_id, completed=done, total=total, visible=visible, text=text)

        yield update


@contextmanager
def _lines(task: str) -> Iterator[Update]:
    begun = said = time.monotonic()
    said += _FIRST - _EVERY

    def update(done: int, total: int | None, text: str = "") -> None:
        nonlocal said
        now = time.monotonic()
        if now - said >= _EVERY:
            said = now
            sys.stderr.write(f"{task}: {_status(done, total, now - begun, text)}\n")
            sys.stderr.flush()

    yield update


def _status(done: int, total: int | None, seconds: float, text: str) -> str:
    """Return how far a task is, and how long the rest will take at this rate.

    >>> _status(120, 480, 60.0, "")
    '120 of 480, about 3min left'
    """
    from fedeas.cost import duration  # the command line starts without NumPy

    parts = [f"{done:,}" if total is None else f"{done:,} of {total:,}"]
    if total is not None and 0 < done < total:
        parts.append(f"about {duration(seconds * (total - done) / done)} left")
    return ", ".join([*parts, *filter(None, [text])])
