"""What stays on a client's disk between its turns.

It is known by experiment and partition, never by node or run, and carries its round. So a turn
that is run twice, because its process died or the server went back to a checkpoint, starts from
the same state and ends with the same one.
"""

import re
from pathlib import Path

from fedeas.tensors import Tensors, load_tensors, save_tensors


class Kept:
    """A client's state after each of its last two turns."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def before(self, number: int) -> Tensors:
        """Return the state after the last turn before a round; empty if there was none."""
        rounds = [r for r in self._rounds() if r < number]
        if not rounds:
            return {}
        tensors, _ = load_tensors(self._file(max(rounds)))
        return tensors

    def save(self, number: int, tensors: Tensors) -> None:
        """Keep the state after a round; what the round began with is kept too, older ones go."""
        if not tensors:
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        save_tensors(self._file(number), tensors, {"round": number})
        earlier = sorted(r for r in self._rounds() if r < number)
        for r in earlier[:-1]:
            self._file(r).unlink(missing_ok=True)
        # A server that went back to a checkpoint makes later states untrue.
        for r in self._rounds():
            if r > number:
                self._file(r).unlink(missing_ok=True)

    def _file(self, number: int) -> Path:
        return self._folder / f"{number}.safetensors"

    def _rounds(self) -> list[int]:
        found = (re.fullmatch(r"(\d+)\.safetensors", p.name) for p in self._folder.glob("*"))
        return [int(match[1]) for match in found if match]
