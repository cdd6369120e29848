"""What stays on a client's disk between its turns.

It is known by experiment and partition, never by node or run, and by round. The server says which
of a client's turns counted last, and the next one starts from exactly that state. So a turn that is
run twice, or whose reply came too late, does no harm.
"""

import re
from pathlib import Path

from fedeas.errors import InputError
from fedeas.tensors import Tensors, load_tensors, save_tensors


class Kept:
    """A client's states, by the round that they come from."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def after(self, number: int) -> Tensors:
        """Return the state after a round; empty for round 0, before the first turn."""
        if not number:
            return {}
        path = self._file(number)
        if not path.exists():
            raise InputError(
                f"{path} is gone: what a client kept after round {number}",
                fix="put it back, or remove the run's folder and begin anew",
            )
        return load_tensors(path)[0]

    def save(self, number: int, last: int, tensors: Tensors) -> None:
        """Keep the state after a round; those before the last one that counted go."""
        if not tensors:
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        save_tensors(self._file(number), tensors, {"round": number})
        found = (re.fullmatch(r"(\d+)\.safetensors", p.name) for p in self._folder.glob("*"))
        for old in (int(match[1]) for match in found if match):
            if old < last:
                self._file(old).unlink(missing_ok=True)

    def _file(self, number: int) -> Path:
        return self._folder / f"{number}.safetensors"
