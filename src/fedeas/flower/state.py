"""What stays on a client's disk between its turns.

It is identified by experiment, partition and round, never by node or run. The server says which of
a client's turns counted last, and the next one starts from exactly that state. So a turn that is
run twice, or whose reply came too late, does no harm.
"""

import re
import shutil
from pathlib import Path

from fedeas.errors import InputError
from fedeas.files import atomic_write
from fedeas.tensors import Tensors, load_tensors, save_tensors

_MOST_EXPERIMENTS = 500
_POLICY = "policy"


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
                f"{path} is missing: a client's state after round {number}",
                fix="restore it, or remove the run's folder and start again",
            )
        return load_tensors(path)[0]

    def save(self, number: int, last: int, tensors: Tensors) -> None:
        """Keep the state after a round; remove those before the last one that counted."""
        if not tensors:
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        save_tensors(self._file(number), tensors, {"round": number})
        for old in self._numbers():
            if old < last:
                self._file(old).unlink(missing_ok=True)

    def check_policy(self, policy: str) -> None:
        """Refuse a policy other than the one that the experiment started with.

        What a site generates, and how long that takes, follows from its labels: an experiment may
        ask one such question.
        """
        path = self._folder / _POLICY
        if path.exists() and path.read_text(encoding="utf-8") != policy:
            raise InputError("the experiment started with another policy", got=policy)

    def note_policy(self, policy: str) -> None:
        """Record the policy of the experiment."""
        self._folder.mkdir(parents=True, exist_ok=True)
        with atomic_write(self._folder / _POLICY) as temporary:
            temporary.write_text(policy, encoding="utf-8")

    def make_room(self, number: int, last: int, needed: int, most: int) -> None:
        """Remove the oldest other experiments, so that a state of `needed` bytes has room.

        The server names experiments: without a bound it could fill a site's disk with new ones.
        Nothing is written where the experiment's own states leave too little.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        # What `save` removes or replaces makes room too.
        sizes = {path: _size(path) for path in self._folder.parent.iterdir() if path.is_dir()}
        gone = [own for own in self._numbers() if own < last or own == number]
        sizes[self._folder] += needed - sum(self._file(own).stat().st_size for own in gone)
        if sizes[self._folder] > most:
            raise InputError(
                "the experiment's state is too large",
                got=f"{sizes[self._folder]:,} bytes",
                allowed=f"{most:,} bytes at this site",
            )
        for path in sorted(sizes, key=lambda p: p.stat().st_mtime_ns):
            if sum(sizes.values()) <= most and len(sizes) <= _MOST_EXPERIMENTS:
                return
            if path != self._folder:
                shutil.rmtree(path, ignore_errors=True)
                del sizes[path]

    def _numbers(self) -> list[int]:
        """Return the rounds whose states are there."""
        found = (re.fullmatch(r"(\d+)\.safetensors", p.name) for p in self._folder.glob("*"))
        return [int(match[1]) for match in found if match]

    def _file(self, number: int) -> Path:
        return self._folder / f"{number}.safetensors"


def file_bytes(tensors: Tensors) -> int:
    """Return about how many bytes a file of these tensors takes."""
    return sum(t.numel() * t.element_size() + len(name) + 128 for name, t in tensors.items())


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
