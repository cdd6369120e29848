"""A client's record of a sum: every stage once, on its own disk, readable by no other user.

In a deployment every message starts a process, and may be run again if that one died. So a client's
answer is written before it is sent, and a repeated request gets the same answer. When another sum
or training begins, nothing of a sum is left. The keys that sums of a run share (`pairs.py`) stay,
and the number of the last one that began; of earlier runs the name stays.
"""

import hashlib
import os
import secrets
import shutil
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import NamedTuple, Protocol

from fedeas._internal.files import locked, owner_only_folder, sync_folder
from fedeas.errors import InputError
from fedeas.private.secure_sum.messages import STAGES, NoKeysError, RefusedError

_CHECKSUM, _ASKED, _SIZE = 32, 32, 8  # bytes of a record's parts
_PAIRS, _MOST_RUNS = "pairs", 4  # folder of the keys of runs: of so many, if they take turns
_ENDED, _MOST_ENDED = "ended", 100_000  # folder of empty files: the names of runs that are over


class StageRecord(NamedTuple):
    """What was asked (its hash), what was replied, and what must be known at later stages."""

    asked: bytes
    reply: bytes
    secret: bytes

    def pack(self) -> bytes:
        """Return all of it as bytes, behind their checksum.

        >>> said = StageRecord(bytes(32), b"yes", b"no")
        >>> StageRecord.read(said.pack()) == said
        True
        """
        body = self.asked + len(self.reply).to_bytes(_SIZE) + self.reply + self.secret
        return hashlib.sha256(body).digest() + body

    @classmethod
    def read(cls, content: bytes) -> "StageRecord":
        """Read what `pack` wrote; refuse modified bytes."""
        # Views: an answer may be as large as a model.
        checksum, body = content[:_CHECKSUM], memoryview(content)[_CHECKSUM:]
        first = _ASKED + _SIZE
        end = first + int.from_bytes(body[_ASKED:first])
        if hashlib.sha256(body).digest() != checksum or not first <= end <= len(body):
            raise InputError("the record of a secure sum is damaged", fix="run the sum again")
        return cls(bytes(body[:_ASKED]), bytes(body[first:end]), bytes(body[end:]))


class Memory(Protocol):
    """Where a client keeps its answers: `keep` takes only the first of a stage."""

    def has(self, stage: str) -> bool:
        """Return whether there is a record of a stage."""
        ...

    def recall(self, stage: str) -> StageRecord | None:
        """Return the record of a stage."""
        ...

    def keep(self, stage: str, said: StageRecord) -> None:
        """Keep the record of a stage, unless there is one already."""
        ...

    def replace(self, stage: str, said: StageRecord) -> None:
        """Keep this record of a stage instead of the earlier one."""
        ...

    def forget(self, stage: str) -> None:
        """Keep only the fact that a stage took place."""
        ...

    def locked(self) -> AbstractContextManager[None]:
        """Keep other processes from replacing a record between reading and writing it."""
        ...


class FileStore:
    """A memory in a folder of the client's own, one file a stage, each whole or absent.

    The record of the stage `first` makes the folder, and no other one does: what was removed never
    comes back, and requests that are refused leave nothing. Without it the folder is made now.
    """

    def __init__(self, path: Path, first: str = "") -> None:
        self._path, self._first = path, first
        if not first:
            owner_only_folder(path)

    def has(self, stage: str) -> bool:
        """Return whether there is a record of a stage; it may be as large as a model."""
        return (self._path / stage).is_file()

    def recall(self, stage: str) -> StageRecord | None:
        """Return the record of a stage."""
        try:
            return StageRecord.read((self._path / stage).read_bytes())
        except FileNotFoundError:
            return None

    def keep(self, stage: str, said: StageRecord) -> None:
        """Keep the record of a stage, unless there is one already."""
        if stage == self._first:
            owner_only_folder(self._path)
        try:
            written = self._write(said, sync=True)
            try:
                # Unlike a rename, a link fails where there is a file: one process is first.
                with suppress(FileExistsError):
                    os.link(written, self._path / stage)
            finally:
                written.unlink(missing_ok=True)
            sync_folder(self._path)  # after a power cut no stage may get a new answer
        except FileNotFoundError:
            if not self.has(stage):  # else another process was first, and `replace` came after it
                raise RefusedError("this sum is over") from None  # its folder was removed

    def replace(self, stage: str, said: StageRecord) -> None:
        """Keep this record of a stage instead of the earlier one, and no secret of that one."""
        self._write(said, sync=True).replace(self._path / stage)
        for left in self._path.glob(".*"):  # by a process that was killed
            left.unlink(missing_ok=True)
        sync_folder(self._path)

    def forget(self, stage: str) -> None:
        """Keep only the fact that a stage took place."""
        with suppress(FileNotFoundError):  # there is none, or the folder was removed
            with (self._path / stage).open("rb") as file:
                asked = file.read(_CHECKSUM + _ASKED)[_CHECKSUM:]
            self._write(StageRecord(asked, b"", b"")).replace(self._path / stage)

    def locked(self) -> AbstractContextManager[None]:
        """Keep other processes from replacing a record between reading and writing it."""
        return locked(self._path)

    def _write(self, said: StageRecord, sync: bool = False) -> Path:
        path = self._path / f".{secrets.token_hex(8)}"
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "wb") as file:
            file.write(said.pack())
            if sync:
                file.flush()
                os.fsync(file.fileno())
        return path


def open_sum(folder: Path, session: str) -> FileStore:
    """Open a client's record of a sum, which its first stage makes."""
    return FileStore(folder / _name(session), first=STAGES[0])


def open_pairs(folder: Path, name: str, begin: bool = False) -> FileStore:
    """Open the keys of a run; where one begins, the keys of all but the latest runs go.

    The names of those are kept, so that none of them begins again. Their number is bounded too: a
    site that took part in that many runs takes part in no other.
    """
    path, ended = folder / _PAIRS / _name(name), folder / _ENDED
    over = (ended / path.name).exists()  # also while its keys are being removed
    if begin and over:
        raise RefusedError("this run is over")
    if begin and not path.is_dir():
        owner_only_folder(folder / _PAIRS)
        others = sorted((p.stat().st_mtime, p) for p in path.parent.iterdir())
        past = others[: max(0, len(others) + 1 - _MOST_RUNS)]
        if past and ended.is_dir() and len(list(ended.iterdir())) + len(past) > _MOST_ENDED:
            raise RefusedError(
                "this site has taken part in too many runs",
                allowed=f"up to {_MOST_ENDED}",
                fix="give it another identity-key, in every members.toml; then empty its folder",
            )
        for _, other in past:
            _note_over(folder, other.name)
            _remove(other, folder)
    elif over or not path.is_dir():
        raise NoKeysError("this site has no keys of this run")
    return FileStore(path)


def end_sums(folder: Path, but: str = "") -> None:
    """Forget the keys, masks and words of every sum in a folder, except one session's.

    A client that the server dropped half-way is never told, so the next sum or training does it.
    None of them begins again: of a run's sums each number begins once (`PairKeys.begin`).
    """
    if not folder.is_dir():
        return
    for path in folder.iterdir():
        if path.is_dir() and path.name not in (_ENDED, _PAIRS, _name(but) if but else ""):
            _remove(path, folder)


def _remove(path: Path, folder: Path) -> None:
    """Remove a record whole: a cut between two files would leave stages to be answered again."""
    gone = folder / f".{secrets.token_hex(8)}"
    with suppress(FileNotFoundError):  # another process was first
        path.rename(gone)
        sync_folder(folder)
        shutil.rmtree(gone, ignore_errors=True)


def _name(session: str) -> str:
    return hashlib.sha256(session.encode()).hexdigest()


def _note_over(folder: Path, name: str) -> None:
    """Note that a run is over, on disk before its keys go."""
    ended = folder / _ENDED
    owner_only_folder(ended)
    os.close(os.open(ended / name, os.O_WRONLY | os.O_CREAT, 0o600))
    sync_folder(ended)
    sync_folder(folder)
