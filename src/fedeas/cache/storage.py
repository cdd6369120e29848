"""Where caches are: a folder on this machine, or an address that fsspec knows, as s3://bucket/prefix.

A name holds its content once and for good: it is written whole or not at all, and never changed.
"""

import hashlib
import os
import re
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from fedeas._internal.files import (
    atomic_write,
    check_regular,
    private_folder,
    samples_folder,
    unreadable,
)
from fedeas._internal.optional import import_extra
from fedeas.errors import FedeasError, InputError, first_line

_URL = re.compile(r"[a-z][a-z0-9+.-]+://", re.IGNORECASE)
_MOST_BYTES = 1 << 30  # of a file that is read whole; shards are not
_LONGEST = 80  # characters of a name in a path
_NAME = re.compile(r"[\w.-]+(/[\w.-]+)*")


def plain_name(name: str) -> str:
    """Return a name as part of a path: names of clients and classes may hold anything.

    >>> plain_name("owl"), plain_name("T-shirt/top")
    ('owl', 'T-shirt_top-9cc7a4')
    """
    # No dots: WebDataset takes what is before the first one for the sample.
    plain = re.sub(r"[^\w-]+", "_", name)[:_LONGEST] or "_"
    if plain == name and name != "real":  # as files of real images begin
        return plain
    # Two names may look alike afterwards.
    return f"{plain}-{hashlib.sha256(name.encode(errors='surrogatepass')).hexdigest()[:6]}"


def is_url(place: Path | str) -> bool:
    """Tell whether a place is an address such as s3://bucket/prefix, and no folder.

    >>> is_url("s3://bucket/caches"), is_url("caches")
    (True, False)
    """
    return isinstance(place, str) and _URL.match(place) is not None


def samples_place(chosen: Path | str | None = None) -> Path | str:
    """Return where caches are: an address or a folder as chosen, or `samples` in the store."""
    if isinstance(chosen, str) and is_url(chosen):
        return chosen
    return samples_folder(chosen)


def open_storage(place: "Path | str | Storage") -> "Storage":
    """Return the storage at a folder or an address."""
    if isinstance(place, Storage):
        return place
    if isinstance(place, str) and is_url(place):
        return RemoteStorage(place.rstrip("/"))
    return LocalStorage(str(place))


@dataclass(frozen=True)
class Storage:
    """Names below a place, each with its content."""

    place: str

    def below(self, name: str) -> "Storage":
        """Return the storage of names that begin with `name/`."""
        return type(self)(f"{self.place}/{_checked(name)}")

    @property
    def name(self) -> str:
        """The last part of the place."""
        return self.place.rstrip("/").rpartition("/")[2]

    def __str__(self) -> str:
        return self.place

    def names(self, folder: str = "") -> list[str]:
        """Return the names of files in a folder, sorted, without those further below."""
        raise NotImplementedError

    def folders(self) -> list[str]:
        """Return the names of folders here, sorted."""
        raise NotImplementedError

    def size(self, name: str) -> int:
        """Return the bytes of a file; 0 if it is gone."""
        raise NotImplementedError

    def read(self, name: str) -> bytes:
        """Return the content of a file; FileNotFoundError if it is gone."""
        raise NotImplementedError

    def read_many(self, names: Sequence[str]) -> dict[str, bytes]:
        """Return the contents of those of these files that are there."""
        raise NotImplementedError

    def write(self, name: str, content: bytes | memoryview) -> None:
        """Write a file whole or not at all."""
        raise NotImplementedError

    def write_first(self, name: str, content: bytes) -> None:
        """Write a file unless it is there."""
        if not self.size(name):
            self.write(name, content)

    def remove(self, name: str) -> None:
        """Remove a file; it may be gone already."""
        raise NotImplementedError

    @contextmanager
    def opened(self, name: str) -> Iterator[Any]:
        """Open a file for reading in any order."""
        raise NotImplementedError
        yield


class LocalStorage(Storage):
    """A folder, which only the user who made it may look into."""

    @property
    def folder(self) -> Path:
        """The folder."""
        return Path(self.place)

    def names(self, folder: str = "") -> list[str]:
        """Return the names of files in a folder, sorted."""
        here = self.folder / folder
        try:
            with os.scandir(here) as entries:
                return sorted(entry.name for entry in entries if not entry.is_dir())
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            raise unreadable(here, error) from None

    def folders(self) -> list[str]:
        """Return the names of folders here, sorted."""
        try:
            with os.scandir(self.folder) as entries:
                return sorted(entry.name for entry in entries if entry.is_dir())
        except (FileNotFoundError, NotADirectoryError):
            return []

    def size(self, name: str) -> int:
        """Return the bytes of a file; 0 if it is gone."""
        with suppress(OSError):
            return (self.folder / _checked(name)).stat().st_size
        return 0

    def read(self, name: str) -> bytes:
        """Return the content of a regular file."""
        path = self.folder / _checked(name)
        if not path.exists():
            raise FileNotFoundError(str(path))
        check_regular(path)
        if path.stat().st_size > _MOST_BYTES:
            raise InputError(f"{path} is too large", got=path.stat().st_size)
        try:
            return path.read_bytes()
        except FileNotFoundError:
            raise
        except OSError as error:
            raise unreadable(path, error) from None

    def read_many(self, names: Sequence[str]) -> dict[str, bytes]:
        """Return the contents of those of these files that are there."""
        found = {}
        for name in names:
            with suppress(FileNotFoundError):
                found[name] = self.read(name)
        return found

    def write(self, name: str, content: bytes | memoryview) -> None:
        """Write a file beside its place, and rename it."""
        path = self.folder / _checked(name)
        for folder in reversed([path.parent, *path.parent.parents]):
            if not folder.exists():
                private_folder(folder)
        private_folder(self.folder)
        with atomic_write(path) as temporary, temporary.open("wb") as file:
            temporary.chmod(0o600)
            file.write(content)

    def write_first(self, name: str, content: bytes) -> None:
        """Write a file unless it is there; of two who do this at once, one succeeds."""
        own = f"{name}.{secrets.token_hex(4)}"
        self.write(own, content)
        with suppress(FileExistsError):
            os.link(self.folder / _checked(own), self.folder / _checked(name))
        self.remove(own)

    def remove(self, name: str) -> None:
        """Remove a file; it may be gone already."""
        (self.folder / _checked(name)).unlink(missing_ok=True)

    @contextmanager
    def opened(self, name: str) -> Iterator[Any]:
        """Open a regular file."""
        path = self.folder / _checked(name)
        if not path.exists():
            raise FileNotFoundError(str(path))
        check_regular(path)
        with path.open("rb") as file:
            yield file


class RemoteStorage(Storage):
    """An object store, or whatever else fsspec opens by its address."""

    @cached_property
    def _opened(self) -> tuple[Any, str]:
        fsspec = import_extra("fsspec.core", f"the address {self.place}", "generate")
        try:
            system, path = fsspec.url_to_fs(self.place)
        except (ImportError, ValueError) as error:
            raise InputError(f"cannot open {self.place}: {first_line(error)}") from None
        return system, str(path)

    def _path(self, name: str) -> str:
        return f"{self._opened[1]}/{_checked(name)}"

    @contextmanager
    def _asked(self) -> Iterator[Any]:
        """Give the file system, whose errors are as many as there are kinds of stores."""
        try:
            yield self._opened[0]
        except (FileNotFoundError, FedeasError):
            raise
        except Exception as error:
            raise InputError(f"cannot reach {self.place}: {first_line(error)}") from error

    def _listed(self, folder: str) -> list[dict[str, Any]]:
        root = self._opened[1]
        with suppress(FileNotFoundError, NotADirectoryError), self._asked() as system:
            # What others have written since must be seen.
            return list(system.ls(f"{root}/{folder}".rstrip("/"), detail=True, refresh=True))
        return []

    def names(self, folder: str = "") -> list[str]:
        """Return the names of files in a folder, sorted."""
        entries = self._listed(folder)
        return sorted(_last(entry) for entry in entries if entry["type"] == "file")

    def folders(self) -> list[str]:
        """Return the names of folders here, sorted."""
        return sorted(_last(entry) for entry in self._listed("") if entry["type"] == "directory")

    def size(self, name: str) -> int:
        """Return the bytes of a file; 0 if it is gone."""
        with suppress(FileNotFoundError), self._asked() as system:
            return int(system.info(self._path(name), refresh=True)["size"])
        return 0

    def read(self, name: str) -> bytes:
        """Return the content of a file."""
        with self._asked() as system:
            content: bytes = system.cat_file(self._path(name))
        return content

    def read_many(self, names: Sequence[str]) -> dict[str, bytes]:
        """Return the contents of those of these files that are there, asked for at once."""
        paths = {self._path(name): name for name in names}
        if not paths:
            return {}
        with self._asked() as system:
            contents = system.cat(list(paths), on_error="return")
        found = {}
        for path, content in contents.items():
            if isinstance(content, bytes):
                found[paths[path]] = content
            elif not isinstance(content, FileNotFoundError):
                raise content
        return found

    def write(self, name: str, content: bytes | memoryview) -> None:
        """Put a file in one request."""
        try:
            with self._asked() as system:
                system.pipe_file(self._path(name), bytes(content))
        except FileNotFoundError as error:
            raise InputError(f"cannot write to {self.place}: {first_line(error)}") from None

    def remove(self, name: str) -> None:
        """Remove a file; it may be gone already."""
        with suppress(FileNotFoundError), self._asked() as system:
            system.rm_file(self._path(name))

    @contextmanager
    def opened(self, name: str) -> Iterator[Any]:
        """Open a file whose parts are read by ranges."""
        with self._asked() as system:
            file = system.open(self._path(name), "rb")
        with file:
            yield file


def _last(entry: dict[str, Any]) -> str:
    return str(entry["name"]).rstrip("/").rpartition("/")[2]


def _checked(name: str) -> str:
    """Refuse a name that would lead elsewhere; names may come from files that others wrote."""
    if not _NAME.fullmatch(name) or ".." in name.split("/"):
        raise InputError("not the name of a file in a cache", got=name)
    return name
