"""A site's ledger: what every answer has cost its samples, on disk before the answer is sent.

Two files in a folder of the site's own. `entries.jsonl` has a line per answer, each with a checksum
and the checksum of the line before. `head.json` has their number and the last checksum; it is
written after the line and before `enter` returns. So a line that the head does not know was never
answered. If lines that it does know are gone or changed, the ledger is not to be trusted, and
everything is refused until the owner acts.
"""

import hashlib
import logging
import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from fedeas.errors import InputError
from fedeas.files import read_json, sealed, unsealed, unwritable, write_json
from fedeas.locks import locked
from fedeas.privacy.accounting import UNIT, epsilon_of, rho_for
from fedeas.privacy.secure_sum.memory import own_folder

_LOG = logging.getLogger(__name__)
_ENTRIES, _HEAD = "entries.jsonl", "head.json"
_LONGEST = 100  # characters of a name that a server chose
_START = "0" * 64  # stands for the checksum before the first line
_RESTORE = "restore the folder from a backup, or remove it to begin at zero: what was spent is lost"


class Entry(NamedTuple):
    """One answer: what was asked, by whom, and what it cost."""

    time: str  # UTC, ISO 8601
    query: str
    rho: float
    server: str
    run: str
    key: str  # hash of what tells this answer from others
    epsilon: float  # the budget at that time
    delta: float


class _Content(NamedTuple):
    """What is in the files: entries, the last one's checksum, and what a kill has left undone."""

    entries: tuple[Entry, ...]
    last: str
    size: int  # bytes up to the end of the last entry
    settled: bool  # whether the head knows the last entry, and nothing comes after it


class Ledger:
    """What a site's answers have cost one of its samples, and what may still be spent.

    Open one with `Ledger.open`. Amounts are in rho (zero-concentrated differential privacy), which
    adds up; they hold for one sample of the site, added or removed.
    """

    def __init__(self, folder: Path, epsilon: float, delta: float) -> None:
        self.folder, self.epsilon, self.delta = folder, epsilon, delta
        self.budget = rho_for(epsilon, delta)

    @classmethod
    def open(cls, folder: Path | str, epsilon: float = 3.0, delta: float = 1e-6) -> "Ledger":
        """Open the ledger in a folder; the first entry makes it.

        Parameters
        ----------
        folder : Path or str
            A folder for the ledger alone. Only its user may enter it.
        epsilon, delta : float
            The budget for all answers together, past and future. A lower one than before is obeyed
            at once; raising it is up to the site's owner.

        """
        return cls(Path(folder), epsilon, delta)

    @property
    def entries(self) -> tuple[Entry, ...]:
        """All answers that were entered, the oldest first."""
        if not any((self.folder / name).exists() for name in (_ENTRIES, _HEAD)):
            return ()  # without making a folder, or changing who may enter it
        with self._locked():
            return self._read().entries

    @property
    def spent(self) -> float:
        """What the answers have cost together, in rho."""
        return math.fsum(entry.rho for entry in self.entries)

    @property
    def left(self) -> float:
        """What may still be spent, in rho."""
        return max(0.0, self.budget - self.spent)

    @property
    def epsilon_spent(self) -> float:
        """What the answers have cost together, as epsilon at the ledger's delta."""
        return epsilon_of((entry.rho for entry in self.entries), self.delta)

    def enter(self, query: str, rho: float, *, server: str, run: str, key: bytes) -> None:
        """Enter an answer, on disk when this returns; raise `InputError` if it must not be sent.

        Parameters
        ----------
        query : str
            What is answered.
        rho : float
            What the answer costs.
        server, run : str
            Who asked, as far as the site knows. The budget is one for all of them.
        key : bytes
            Tells this answer from any other with new noise. The same key again is the same
            answer sent again, and costs nothing.

        """
        if not (math.isfinite(rho) and rho > 0):
            raise InputError("the cost of an answer is out of range", got=rho, allowed="above 0")
        query, digest = _plain(query), hashlib.sha256(key).hexdigest()
        with self._locked():
            content = self._settle(self._read())
            for entry in content.entries:
                if entry.key == digest:
                    if (entry.query, entry.rho) != (query, rho):
                        raise InputError(
                            "another answer was entered with this key", got=f"{query}, rho {rho:g}"
                        )
                    return
            spent = math.fsum(entry.rho for entry in content.entries)
            if math.fsum([spent, rho]) > self.budget * (1 + 1e-12):
                raise InputError(
                    f"this answer would pass the site's privacy budget of epsilon {self.epsilon:g} "
                    f"at delta {self.delta:g} ({UNIT})",
                    got=f"rho {rho:.4g} for {query}",
                    allowed=f"{max(0.0, self.budget - spent):.4g} is left",
                    fix="the owner decides whether to raise epsilon in the site's configuration",
                )
            now = datetime.now(UTC).isoformat(timespec="seconds")
            names = (query, rho, _plain(server), _plain(run), digest)
            self._append(content, Entry(now, *names, self.epsilon, self.delta))

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with locked(self.folder, make=own_folder):
            yield

    def _read(self) -> _Content:
        """Read both files; refuse a ledger that is not what was written."""
        known, checksum = self._head()
        path = self.folder / _ENTRIES
        try:
            lines = path.read_bytes().splitlines(keepends=True)
        except FileNotFoundError:
            lines = []
        entries: list[Entry] = []
        last, size, torn = _START, 0, False
        for number, line in enumerate(lines):
            try:
                entry, last = _parsed(line, number, last)
            except InputError:
                # Only the end of the file can have been cut short by a kill.
                torn = number >= known and number == len(lines) - 1
                if not torn:
                    raise self._damaged(f"line {number + 1} of {path} is damaged") from None
                break
            entries.append(entry)
            size += len(line)
            if len(entries) == known and last != checksum:
                raise self._damaged(f"{path} is not the file that was last written")
        if len(entries) < known:
            raise self._damaged(f"{path} has {len(entries)} of {known} entries")
        if len(entries) + torn > known + 1:
            raise self._damaged(f"{self.folder / _HEAD} is missing or old")
        complete = not lines or lines[-1].endswith(b"\n")
        settled = len(entries) == known and not torn and complete
        return _Content(tuple(entries), last, size, settled)

    def _head(self) -> tuple[int, str]:
        path = self.folder / _HEAD
        if not path.exists():
            return 0, _START
        try:
            count, last = read_json(path)
            return int(count), str(last)
        except (InputError, TypeError, ValueError):
            raise self._damaged(f"{path} is damaged") from None

    def _damaged(self, what: str) -> InputError:
        return InputError(f"the privacy ledger is damaged: {what}", fix=_RESTORE)

    def _settle(self, content: _Content) -> _Content:
        """Complete what a killed process left: what can be read counts, the rest was never sent."""
        if content.settled:
            return content
        _LOG.warning("%s: an entry was interrupted; the ledger is repaired", self.folder)
        for unfinished in self.folder.glob(f".*.{_HEAD}"):
            unfinished.unlink()
        return self._write(content, b"")

    def _append(self, content: _Content, entry: Entry) -> None:
        body = {**entry._asdict(), "number": len(content.entries), "previous": content.last}
        line = sealed(body)
        _, last = _parsed(line.encode(), len(content.entries), content.last)
        self._write(content._replace(entries=(*content.entries, entry), last=last), line.encode())

    def _write(self, content: _Content, line: bytes) -> _Content:
        """Put a line after what could be read, then the head; both are on disk afterwards."""
        path = self.folder / _ENTRIES
        try:
            handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
            with os.fdopen(handle, "r+b") as file:
                file.truncate(content.size)
                if content.size:
                    file.seek(content.size - 1)
                    line = line if file.read(1) == b"\n" else b"\n" + line
                file.seek(content.size)
                file.write(line)
                file.flush()
                os.fsync(file.fileno())
            self._sync_folder()  # before the head: it must never know a file that is not there
            write_json(self.folder / _HEAD, [len(content.entries), content.last])
            self._sync_folder()
        except OSError as error:
            raise unwritable(path, error) from None
        return content._replace(size=content.size + len(line), settled=True)

    def _sync_folder(self) -> None:
        handle = os.open(self.folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _parsed(line: bytes, number: int, previous: str) -> tuple[Entry, str]:
    """Return the entry of a line and the line's checksum, if it follows the one before."""
    try:
        text = line.decode("ascii")
    except UnicodeDecodeError:
        raise InputError("not text") from None
    body: dict[str, Any] = unsealed(text.rstrip("\n") + "\n", "the line")
    try:
        if body.pop("number") != number or body.pop("previous") != previous:
            raise InputError("not the next line")
        entry = Entry(**body)
    except (AttributeError, KeyError, TypeError):
        raise InputError("not an entry") from None
    return entry, hashlib.sha256(text.rstrip("\n").encode()).hexdigest()


def _plain(name: str) -> str:
    """Return a name that a server chose as one short line for a terminal."""
    shown = "".join(c if c.isprintable() else repr(c)[1:-1] for c in name)
    return shown if len(shown) <= _LONGEST else f"{shown[: _LONGEST - 3]}..."
