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
    from rich import progress as bars

    columns = (
        bars.TextColumn("{task.description}"),
        bars.BarColumn(),
        bars.MofNCompleteColumn(),
        bars.TextColumn("{task.fields[text]}"),
        bars.TimeRemainingColumn(),
    )
    with bars.Progress(*columns, console=console, transient=True) as shown:  # type: ignore[arg-type]
        bar_id = shown.add_task(task, total=None, visible=False, text="")

        def update(done: int, total: int | None, text: str = "") -> None:
            visible = (shown.tasks[0].elapsed or 0.0) > _FIRST
            shown.update(bar_id, completed=done, total=total, visible=visible, text=text)

        yield update


@contextmanager
def _lines(task: str) -> Iterator[Update]:
    shown_at = time.monotonic() + _FIRST - _EVERY
    clock = _Clock()

    def update(done: int, total: int | None, text: str = "") -> None:
        nonlocal shown_at
        now = time.monotonic()
        left = clock.left(done, total, now)
        if now - shown_at >= _EVERY:
            shown_at = now
            sys.stderr.write(f"{task}: {_status(done, total, left, text)}\n")
            sys.stderr.flush()

    yield update


class _Clock:
    """Estimates the rest of a task from the rate of its present stage: the next begins from less.

    A stage is counted from its first report on. What was before is not known: other work, or an
    earlier start of the same work.
    """

    def __init__(self) -> None:
        self._first: tuple[int, float] | None = None
        self._last: tuple[int, int | None] = (0, None)

    def left(self, done: int, total: int | None, now: float) -> float | None:
        """Return the seconds that the rest takes; None as long as that is not known."""
        if self._first is None or total != self._last[1] or done < self._last[0]:
            self._first = done, now
        self._last = done, total
        before, since = self._first
        if total is None or not before < done < total:
            return None
        return (now - since) * (total - done) / (done - before)


def duration(seconds: float) -> str:
    """Return seconds in a readable form.

    >>> duration(75), duration(11_220)
    ('75.0s', '3h 7min')
    """
    if seconds < 120:
        return f"{seconds:.1f}s"
    minutes = round(seconds / 60)
    days, rest = divmod(minutes, 24 * 60)
    hours, minutes = divmod(rest, 60)
    parts = [(days, "d"), (hours, "h"), (minutes, "min")]
    return " ".join(f"{value}{unit}" for value, unit in parts if value)


def _status(done: int, total: int | None, left: float | None, text: str) -> str:
    """Return how far a task is, and how long the rest will take.

    >>> _status(1, 4, 75.0, "rounds, accuracy 18.8 %")
    '1 of 4 rounds, accuracy 18.8 %, about 75.0s left'
    """
    count = f"{done:,}" if total is None else f"{done:,} of {total:,}"
    parts = [" ".join(filter(None, [count, text]))]
    if left is not None:
        parts.append(f"about {duration(left)} left")
    return ", ".join(parts)
