"""What a client remembers of a sum: every stage once, on its own disk, readable by nobody else.

In a deployment every message starts a process, and may be run again if that one died. So what a
client said at a stage is written before it is sent, and whoever asks again hears the same.
"""

import os
import secrets
from pathlib import Path
from typing import NamedTuple, Protocol

from fedeas.errors import InputError


class Said(NamedTuple):
    """What was asked (its hash), what was replied, and what must be known at later stages."""

    asked: bytes
    reply: bytes
    secret: bytes

    def pack(self) -> bytes:
        """Return all of it as bytes.

        >>> said = Said(bytes(32), b"yes", b"no")
        >>> Said.read(said.pack()) == said
        True
        """
        return self.asked + len(self.reply).to_bytes(8) + self.reply + self.secret

    @classmethod
    def read(cls, content: bytes) -> "Said":
        """Read what `pack` wrote."""
        end = 40 + int.from_bytes(content[32:40])
        return cls(content[:32], content[40:end], content[end:])


class Memory(Protocol):
    """Where a client keeps what it said: `keep` takes the first of a stage alone."""

    def recall(self, stage: str) -> Said | None:
        """Return what was said at a stage."""
        ...

    def keep(self, stage: str, said: Said) -> None:
        """Keep what is said at a stage, unless something is kept already."""
        ...

    def forget(self, stage: str) -> None:
        """Keep of a stage only that it was."""
        ...


class Folder:
    """A memory in a folder of the client's own, one file a stage, each whole or absent."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            path.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise InputError(f"cannot write {path}: {error.strerror}") from None

    def recall(self, stage: str) -> Said | None:
        """Return what was said at a stage."""
        try:
            return Said.read((self._path / stage).read_bytes())
        except FileNotFoundError:
            return None

    def keep(self, stage: str, said: Said) -> None:
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
            self._write(Said(kept.asked, b"", b"")).replace(self._path / stage)

    def _write(self, said: Said) -> Path:
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
