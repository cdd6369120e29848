"""The log of a run: the results of its rounds, and an error as one line."""

import json
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from fedeas.errors import FedeasError
from fedeas.files import atomic_write

Line = dict[str, Any]  # the results of a round


class RoundLog:
    """One line of JSON per round, in a file and to listeners."""

    def __init__(self, path: Path, listeners: Sequence[Callable[[Line], None]] = ()) -> None:
        self._path, self.listeners = path, list(listeners)

    def add(self, line: Line) -> None:
        """Write a round's line; the first one starts a new file."""
        with self._path.open("w" if line["round"] == 1 else "a", encoding="utf-8") as file:
            file.write(_text(line))
        self._tell(line)

    def go_on(self, history: Sequence[Line]) -> None:
        """Keep exactly the lines of the checkpoint: a killed run may lack its last one."""
        with atomic_write(self._path) as temporary:
            temporary.write_text("".join(map(_text, history)), encoding="utf-8")
        self._tell(history[-1])

    def _tell(self, line: Line) -> None:
        for listener in self.listeners:
            listener(line)


def _text(line: Line) -> str:
    return json.dumps(line, default=float) + "\n"


def log_errors_in_one_line() -> None:
    """Have Flower log an error of ours as its message: where it was raised helps nobody."""
    logging.getLogger("flwr").addFilter(_without_traceback)


def _without_traceback(record: logging.LogRecord) -> bool:
    error = record.exc_info[1] if record.exc_info else None
    if isinstance(error, FedeasError):
        record.exc_info = record.exc_text = None
        record.msg, record.args = "%s: %s", (record.getMessage(), error)
    return True
