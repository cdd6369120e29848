"""A site's ledger: what every answer has cost its samples, on disk before the answer is sent.

A ledger is of one unit of privacy for good: of a sample, or of a group of samples by the name of
their column or file. Opened with another unit it refuses everything.

Two files in a folder of the site's own. `entries.jsonl` has a line per answer, each with a checksum
and the checksum of the line before. `head.json` has their number, the last checksum and what they
cost together; it is written after the line and before `enter` returns. So a line that the head does
not know was never answered. If lines that it does know are gone or changed, the ledger is not to be
trusted, and everything is refused until the owner acts.

The head also has the size and the time of the entries' file. While they are as it says, an entry
takes as long as the first one did; otherwise every line is read and checked.
"""

import hashlib
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

from fedeas._internal.files import (
    locked,
    owner_only_folder,
    read_json,
    sealed,
    sync_folder,
    unsealed,
    unwritable,
    write_json,
)
from fedeas._internal.scalars import positive
from fedeas.errors import InputError
from fedeas.private.accounting import (
    ADDED,
    DELTA,
    GROUP,
    SAMPLE,
    epsilon_of,
    replace_one_epsilon,
    rho_for,
)

_LOG = logging.getLogger(__name__)
_ENTRIES, _HEAD = "entries.jsonl", "head.json"
_LONGEST = 100  # characters of a name that a server chose
_START = "0" * 64  # stands for the checksum before the first line
_MOST_ANSWERS = 10_000  # that a budget is enough for, however little each of them costs
_RECENT = 1 << 20  # bytes of the last entries, some 2,500, in which an answer sent again is found
_SAMPLE = ("group", "")  # is not written: earlier versions wrote no unit
_RESTORE = "restore the folder from a backup, or remove it to begin at zero: what was spent is lost"


class LedgerEntry(NamedTuple):
    """One answer: what was asked, by whom, and what it cost."""

    time: str  # UTC, ISO 8601
    query: str
    rho: float
    server: str
    run: str
    key: str  # hash of what tells this answer from others
    epsilon: float  # the budget at that time
    delta: float
    group: str = ""  # what the site's groups are named by; empty: the unit is a sample


class _LedgerState(NamedTuple):
    """Where the files stand: how many entries, the last one's checksum, and what they cost."""

    entries: int
    last: str
    spent: Fraction  # exactly: what thousands of roundings add up to is not lost
    size: int  # bytes up to the end of the last entry
    settled: bool  # whether the head knows the last entry, and nothing comes after it


class Ledger:
    """What a site's answers have cost one of its samples or groups, and what may still be spent.

    Open one with `Ledger.open`. Amounts are in rho (zero-concentrated differential privacy), which
    adds up; they hold for one unit of the site, added or removed. No answer counts for less than a
    ten-thousandth of the budget.
    """

    def __init__(self, folder: Path, epsilon: float, delta: float, group: str = "") -> None:
        self.folder, self.epsilon, self.delta, self.group = folder, epsilon, delta, group
        self.budget = rho_for(epsilon, delta)

    @property
    def unit(self) -> str:
        """Whose privacy the amounts are: 'sample' or 'group'."""
        return GROUP if self.group else SAMPLE

    @classmethod
    def open(
        cls, folder: Path | str, epsilon: float = 3.0, delta: float = DELTA, group: str = ""
    ) -> "Ledger":
        """Open the ledger in a folder; the first entry makes it.

        Parameters
        ----------
        folder : Path or str
            A folder for the ledger alone. Only its user may enter it.
        epsilon, delta : float
            The budget for all answers together, past and future. A lower one than before is obeyed
            at once; raising it is up to the site's owner.
        group : str
            The column or file that names the groups, if the unit is a group. A ledger with answers
            for another unit is refused when it is used.

        """
        return cls(Path(folder), epsilon, delta, group)

    @classmethod
    def reopen(cls, folder: Path | str) -> "Ledger":
        """Open a ledger with the budget and the unit of its last answer."""
        ledger = cls(Path(folder), 3.0, DELTA)
        if not ledger.exists():
            return ledger
        with ledger._locked():
            entries, _ = ledger._read(any_unit=True)
        for last in entries[-1:]:
            ledger = cls(Path(folder), last.epsilon, last.delta, last.group)
        return ledger

    def exists(self) -> bool:
        """Whether anything was ever entered; looking makes no folder, nor changes its mode."""
        return any((self.folder / name).exists() for name in (_ENTRIES, _HEAD))

    @property
    def entries(self) -> tuple[LedgerEntry, ...]:
        """All answers that were entered, the oldest first; every one of them is checked."""
        if not self.exists():
            return ()
        with self._locked():
            return self._read()[0]

    @property
    def spent(self) -> float:
        """What the answers have cost together, in rho."""
        if not self.exists():
            return 0.0
        with self._locked():
            return float(self._state().spent)

    @property
    def left(self) -> float:
        """What may still be spent, in rho."""
        return max(0.0, self.budget - self.spent)

    @property
    def epsilon_spent(self) -> float:
        """What the answers have cost together, as epsilon of one unit added or removed."""
        spent = self.spent
        return epsilon_of([spent] if spent else [], self.delta)

    @property
    def epsilon_spent_replaced(self) -> float:
        """What the answers have cost together, as epsilon of one unit replaced by any other."""
        spent = self.spent
        return replace_one_epsilon(spent, self.delta) if spent else 0.0

    def check(self, query: str, rho: float) -> None:
        """Raise `InputError` if an answer of this cost could not be entered now.

        It depends on the ledger and the request alone. A site asks it before a sum begins: if it
        refused only when others have entered theirs, they would have paid for nothing.
        """
        self._check_budget(_plain(query), self.amount(rho), Fraction(self.spent))

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
        query, rho, digest = _plain(query), self.amount(rho), hashlib.sha256(key).hexdigest()
        with self._locked():
            state = self._settle(self._state())
            if (before := self._recent(digest, state)) is not None:
                if before["query"] != query or before["rho"] < rho:
                    raise InputError(
                        "another answer was entered with this key", got=f"{query}, rho {rho:g}"
                    )
                return
            self._check_budget(query, rho, state.spent)
            now = datetime.now(UTC).isoformat(timespec="seconds")
            names = (query, rho, _plain(server), _plain(run), digest)
            self._append(state, LedgerEntry(now, *names, self.epsilon, self.delta, self.group))

    def amount(self, rho: float) -> float:
        """Return what an answer is entered with: a server cannot fill the disk with tiny ones."""
        return max(positive(rho, "the cost of an answer"), self.budget / _MOST_ANSWERS)

    def _check_budget(self, query: str, rho: float, spent: Fraction) -> None:
        if spent + Fraction(rho) > self.budget * (1 + 1e-12):
            raise InputError(
                f"this would pass the site's privacy budget of epsilon {self.epsilon:g} "
                f"at delta {self.delta:g} ({ADDED[self.unit]})",
                got=f"rho {rho:.4g} for {query}",
                allowed=f"{max(0.0, self.budget - float(spent)):.4g} is left",
                fix="the owner decides whether to raise epsilon in the site's configuration",
            )

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with locked(self.folder, make=owner_only_folder):
            yield

    def _state(self) -> _LedgerState:
        """Return what the head says, if the entries' file is as it left it; else read all of it."""
        head = self._head()
        try:
            file = (self.folder / _ENTRIES).stat()
        except FileNotFoundError:
            return self._read()[1]
        if head.get("file") != [file.st_size, file.st_mtime_ns]:
            return self._read()[1]
        if head["entries"]:
            self._check_unit(str(head.get("group", "")))
        spent = Fraction(str(head["spent"]))
        entries, last = int(head["entries"]), str(head["last"])
        return _LedgerState(entries, last, spent, file.st_size, settled=True)

    def _check_unit(self, group: str) -> None:
        """Refuse a ledger of another unit: what was spent for one says nothing of the other."""
        if group != self.group:
            raise InputError(
                "the privacy ledger is of another unit",
                got=_unit_of(self.group),
                allowed=_unit_of(group),
                fix="set `group` back, or begin with another `state` folder: answers until then "
                "keep the promise of the old unit alone",
            )

    def _read(self, any_unit: bool = False) -> tuple[tuple[LedgerEntry, ...], _LedgerState]:
        """Read both files; refuse a ledger that is not what was written, or of another unit."""
        head = self._head()
        known, checksum = head["entries"], head["last"]
        path = self.folder / _ENTRIES
        try:
            lines = path.read_bytes().splitlines(keepends=True)
        except FileNotFoundError:
            lines = []
        entries: list[LedgerEntry] = []
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
        for group in dict.fromkeys(entry.group for entry in entries if not any_unit):
            self._check_unit(group)
        complete = not lines or lines[-1].endswith(b"\n")
        settled = len(entries) == known and not torn and complete
        spent = sum((Fraction(entry.rho) for entry in entries), Fraction(0))
        return tuple(entries), _LedgerState(len(entries), last, spent, size, settled)

    def _head(self) -> dict[str, Any]:
        path = self.folder / _HEAD
        if not path.exists():
            return {"entries": 0, "last": _START}
        try:
            head = read_json(path)
            if isinstance(head, list):  # without amounts, as they were once written
                count, last = head
                head = {"entries": int(count), "last": str(last)}
            if type(head["entries"]) is not int or type(head["last"]) is not str:
                raise ValueError("not a head")
            return dict(head)
        except (InputError, TypeError, ValueError, KeyError):
            raise self._damaged(f"{path} is damaged") from None

    def _recent(self, digest: str, state: _LedgerState) -> dict[str, Any] | None:
        """Return the entry with this key, if it is one of the last.

        An answer is sent again while its sum is under way. Beyond, the same key is entered and paid
        for as another answer, which promises no less than it should.
        """
        if not state.entries:
            return None
        start = max(0, state.size - _RECENT)
        with (self.folder / _ENTRIES).open("rb") as file:
            file.seek(start)
            lines = file.read(state.size - start)
        at = lines.find(f'"key": "{digest}"'.encode())
        begin, end = lines.rfind(b"\n", 0, at) + 1, lines.find(b"\n", at) + 1
        if at < 0 or (begin == 0 and start):
            return None
        try:
            return dict(unsealed(lines[begin:end].decode("ascii"), "the line"))
        except (InputError, UnicodeDecodeError):
            raise self._damaged(f"a line of {self.folder / _ENTRIES} is damaged") from None

    def _damaged(self, what: str) -> InputError:
        return InputError(f"the privacy ledger is damaged: {what}", fix=_RESTORE)

    def _settle(self, state: _LedgerState) -> _LedgerState:
        """Complete what a killed process left: what can be read counts, the rest was never sent."""
        if state.settled:
            return state
        _LOG.warning("%s: an entry was interrupted; the ledger is repaired", self.folder)
        for unfinished in self.folder.glob(f".*.{_HEAD}"):
            unfinished.unlink()
        return self._write(state, b"")

    def _append(self, state: _LedgerState, entry: LedgerEntry) -> None:
        about = {name: value for name, value in entry._asdict().items() if (name, value) != _SAMPLE}
        line = sealed({**about, "number": state.entries, "previous": state.last}).encode()
        _, last = _parsed(line, state.entries, state.last)
        spent = state.spent + Fraction(entry.rho)
        self._write(state._replace(entries=state.entries + 1, last=last, spent=spent), line)

    def _write(self, state: _LedgerState, line: bytes) -> _LedgerState:
        """Put a line after what could be read, then the head; both are on disk afterwards."""
        path = self.folder / _ENTRIES
        try:
            handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
            with os.fdopen(handle, "r+b") as file:
                file.truncate(state.size)
                if state.size:
                    file.seek(state.size - 1)
                    line = line if file.read(1) == b"\n" else b"\n" + line
                file.seek(state.size)
                file.write(line)
                file.flush()
                os.fsync(file.fileno())
                written = os.fstat(file.fileno())
            sync_folder(self.folder)  # before the head: it must never know a file that is not there
            head = {
                "entries": state.entries, "last": state.last, "spent": str(state.spent),
                "file": [written.st_size, written.st_mtime_ns],
            }  # fmt: skip
            if self.group:
                head["group"] = self.group
            write_json(self.folder / _HEAD, head)  # which syncs the folder too
        except OSError as error:
            raise unwritable(path, error) from None
        return state._replace(size=state.size + len(line), settled=True)


def _parsed(line: bytes, number: int, previous: str) -> tuple[LedgerEntry, str]:
    """Return the entry of a line and the line's checksum, if it follows the one before."""
    try:
        text = line.decode("ascii")
    except UnicodeDecodeError:
        raise InputError("not text") from None
    body: dict[str, Any] = unsealed(text.rstrip("\n") + "\n", "the line")
    try:
        if body.pop("number") != number or body.pop("previous") != previous:
            raise InputError("not the next line")
        entry = LedgerEntry(**body)
    except (AttributeError, KeyError, TypeError):
        raise InputError("not an entry") from None
    return entry, hashlib.sha256(text.rstrip("\n").encode()).hexdigest()


def _unit_of(group: str) -> str:
    return f"a group by {_plain(group)}" if group else "a sample"


def _plain(name: str) -> str:
    """Return a name that a server chose as one short line for a terminal."""
    shown = "".join(c if c.isprintable() else repr(c)[1:-1] for c in name)
    return shown if len(shown) <= _LONGEST else f"{shown[: _LONGEST - 3]}..."
