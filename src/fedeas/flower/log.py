"""The log of a run: the results of its rounds."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

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
