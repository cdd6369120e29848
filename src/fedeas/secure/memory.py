"""What a client remembers of a sum: every stage once, on its own disk, readable by nobody else.

In a deployment every message starts a process, and may be run again if that one died. So what a
client said at a stage is written before it is sent, and whoever asks again hears the same. When a
sum is over, or another one or training begins, only the hashes of what was asked are left.
"""

import hashlib
import os
import secrets
import stat
from pathlib import Path
from typing import NamedTuple, Protocol

from fedeas.errors import InputError


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
        body = self.asked + len(self.reply).to_bytes(8) + self.reply + self.secret
        return hashlib.sha256(body).digest() + body

    @classmethod
    def read(cls, content: bytes) -> "StageRecord":
        """Read what `pack` wrote; refuse every change to it."""
        checksum, body = content[:32], content[32:]
        end = 40 + int.from_bytes(body[32:40])
        if hashlib.sha256(body).digest() != checksum or not 40 <= end <= len(body):
            raise InputError("the record of a secure sum is damaged", fix="run the sum again")
        return cls(body[:32], body[40:end], body[end:])


class Memory(Protocol):
    """Where a client keeps what it said: `keep` takes the first of a stage alone."""

    def recall(self, stage: str) -> StageRecord | None:
        """Return what was said at a stage."""
        ...

    def keep(self, stage: str, said: StageRecord) -> None:
        """Keep what is said at a stage, unless something is kept already."""
        ...

    def forget(self, stage: str) -> None:
        """Keep of a stage only that it was."""
        ...


class FileStore:
    """A memory in a folder of the client's own, one file a stage, each whole or absent."""

    def __init__(self, path: Path) -> None:
        self._path = path
        own_folder(path)

    def recall(self, stage: str) -> StageRecord | None:
        """Return what was said at a stage."""
        try:
            return StageRecord.read((self._path / stage).read_bytes())
        except FileNotFoundError:
            return None

    def keep(self, stage: str, said: StageRecord) -> None:
        """Keep what is said at a stage, unless something is kept already."""
        written = self._write(said)
        with written.open("rb") as file:
            os.fsync(file.fileno())
        try:
            # Unlike a rename, a link fails where there is a file: of two processes one is first.
            os.link(written, self._path / stage)
        except FileExistsError:
            pass
        finally:
            written.unlink()
        self._settle_folder()

    def forget(self, stage: str) -> None:
        """Keep of a stage only that it was."""
        kept = self.recall(stage)
        if kept is not None:
            self._write(StageRecord(kept.asked, b"", b"")).replace(self._path / stage)

    def forget_all(self) -> None:
        """Keep of every stage only that it was: the sum is over for this client."""
        for path in self._path.iterdir():
            if path.name.startswith("."):  # a process died before its record counted
                path.unlink(missing_ok=True)
            else:
                self._write(StageRecord(_asked(path), b"", b"")).replace(path)

    def _write(self, said: StageRecord) -> Path:
        path = self._path / f".{secrets.token_hex(8)}"
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "wb") as file:
            file.write(said.pack())
        return path

    def _settle_folder(self) -> None:
        """Have the folder itself on the disk: after a power cut nothing must be said anew."""
        handle = os.open(self._path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def own_folder(path: Path) -> None:
    """Make a folder that nobody else can read, or refuse one that is not of that kind.

    A folder that others can write to may hold what they put there, and a link leads elsewhere.
    """
    try:
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
        found = path.lstat()
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}") from None
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
        raise InputError(f"{path} is not a folder of this user's own", fix="remove it")
    if found.st_mode & 0o022:
        raise InputError(f"others can write to {path}", fix="chmod 700 it if all in it is yours")
    if found.st_mode & 0o077:
        path.chmod(0o700)


def end_sums(folder: Path, but: str = "") -> None:
    """Forget the keys, masks and words of every sum in a folder, but for the one of a name.

    A client that the server dropped half-way is never told: the next sum, or training, tells it.
    """
    if not folder.is_dir():
        return
    for path in folder.iterdir():
        if path.name != but and path.is_dir():
            FileStore(path).forget_all()


def _asked(path: Path) -> bytes:
    """Return the hash of what was asked, of a damaged record one that no question has."""
    try:
        return StageRecord.read(path.read_bytes()).asked
    except InputError:
        return bytes(32)
