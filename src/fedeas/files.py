"""Atomic writes, and reads of regular files only: no half files, no waiting for a pipe."""

import errno
import hashlib
import json
import os
import secrets
import stat
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fedeas.errors import FileAccessError, InputError, first_line
from fedeas.limits import MAX_TEXT

IMAGE_FILES = {".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp"}
# Errors of a full or failing disk; they name no file.
_NO_SPACE = {errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC)}
_FAILED_WRITES = _NO_SPACE | {errno.EFBIG, errno.EIO}


@contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside `path` and rename it into place when the block succeeds.

    If the temporary file cannot be written, the error names `path`.
    """
    temporary = _reserve(path)
    try:
        yield temporary
        with temporary.open("r+b") as file:  # Windows flushes only what is open for writing
            os.fsync(file.fileno())
        temporary.replace(path)
        sync_folder(path.parent)
    except OSError as error:
        nameless = error.filename is None and error.errno in _FAILED_WRITES
        if nameless or error.filename == str(temporary):
            raise unwritable(path, error) from None
        raise
    finally:
        temporary.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """Let a folder's names outlast a power cut, where the system can do that."""
    if os.name != "posix":
        return
    try:
        handle = os.open(folder, os.O_RDONLY)
    except PermissionError:  # a folder that may be written to, and not listed
        return
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # as some network disks say
            raise
    finally:
        os.close(handle)


def check_writable(path: Path) -> None:
    """Refuse a file that cannot be written, before any work is done."""
    _reserve(path).unlink()


def _reserve(path: Path) -> Path:
    """Make an empty file beside `path`."""
    if path.is_dir():
        raise InputError(f"cannot write {path}: it is a folder", fix="name a file")
    temporary = path.with_name(f".{secrets.token_hex(4)}.{path.name}")
    try:
        temporary.touch(exist_ok=False)
    except OSError as error:
        raise unwritable(path, error) from None
    return temporary


def make_folder(path: Path) -> None:
    """Make a folder and its missing parents."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        fix = "choose a folder you can write to"
        raise FileAccessError("make the folder", path, error, fix) from None


def check_regular(path: Path, most: int | None = None, avoid: str | None = None) -> os.stat_result:
    """Return the size and times of a regular file, and refuse anything else before it is opened.

    A link to a file is a file. A pipe or a device might never end.

    Parameters
    ----------
    path : Path
        What is to be read.
    most : int, optional
        The most bytes that are accepted.
    avoid : str, optional
        What to do about a file that has more.
    """
    try:
        found = path.stat()
    except OSError as error:
        raise unreadable(path, error) from None
    except ValueError as error:  # a null character in the name
        raise InputError(f"cannot read {str(path)!r}: {error}") from None
    if not stat.S_ISREG(found.st_mode):
        kind = "a folder" if stat.S_ISDIR(found.st_mode) else "a pipe, socket or device"
        raise InputError(f"{path} is {kind}", allowed="a regular file")
    if most is not None and found.st_size > most:
        raise InputError(
            f"{path} is too large",
            got=found.st_size,
            allowed=f"at most {most:,} bytes",
            fix=avoid,
        )
    return found


def file_state(found: os.stat_result) -> tuple[int, int, int]:
    """Return what tells a file from a changed one: its size and times.

    Not only the time of its content, which programs set back when they copy.
    """
    return found.st_size, found.st_mtime_ns, found.st_ctime_ns


def read_text(path: Path) -> str:
    """Read a text file; any error is one clear line."""
    check_regular(path, MAX_TEXT, "use Parquet for a table of that size")
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise InputError(f"{path} is not a text file", allowed="UTF-8 text") from None
    except OSError as error:
        raise unreadable(path, error) from None


def read_toml(path: Path) -> dict[str, Any]:
    """Read a TOML file."""
    text = read_text(path)
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise InputError(f"{path} is not TOML: {_reason(error)}") from None


def parse_json(text: str | bytes, name: str) -> Any:
    """Read untrusted JSON; errors call it `name`."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{name} is not JSON: {_reason(error)}") from None


def _reason(error: Exception) -> str:
    return "nested too deeply" if isinstance(error, RecursionError) else first_line(error)


def folders(path: Path) -> list[Path]:
    """Return the subfolders of a folder in order, without hidden ones."""
    return sorted(p for p in path.iterdir() if p.is_dir() and not p.name.startswith("."))


def store_folder(chosen: Path | str | None = None) -> Path:
    """Return where fedeas keeps files it can recreate: FEDEAS_STORE, or .cache/fedeas at home."""
    return Path(chosen or os.environ.get("FEDEAS_STORE") or Path.home() / ".cache" / "fedeas")


def unreadable(path: Path, error: OSError) -> FileAccessError:
    """Turn an operating system error on reading a file into our own."""
    return FileAccessError("read", path, error, "check the path")


def unwritable(path: Path, error: OSError) -> FileAccessError:
    """Turn an operating system error on writing a file into our own."""
    full = error.errno in _NO_SPACE
    fix = "free some space" if full else "choose a folder that exists and is writable"
    return FileAccessError("write", path, error, fix)


def write_json(path: Path, body: object) -> None:
    """Write JSON with the hash of its content, atomically."""
    with atomic_write(path) as temporary:
        temporary.write_text(sealed(body), encoding="utf-8", newline="\n")


def read_json(path: Path) -> Any:
    """Read JSON that `write_json` wrote; refuse a modified file."""
    check_regular(path, MAX_TEXT)
    try:
        # Windows, and git there, may end a line in another way; JSON escapes what is in strings.
        text = path.read_bytes().decode().replace("\r\n", "\n")
    except OSError as error:
        raise unreadable(path, error) from None
    except UnicodeDecodeError:
        raise InputError(f"{path} is damaged") from None
    return unsealed(text, str(path))


def file_hash(path: Path) -> str:
    """Return the hash of a file's content."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise unreadable(path, error) from None


def content_hash(body: object) -> str:
    """Return the hash of a value of JSON."""
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


def sealed(body: object) -> str:
    """Return a line of JSON with the hash of its content.

    >>> sealed({"a": 1})[78:].strip()
    '"body": {"a": 1}}'
    """
    text = json.dumps(body, sort_keys=True)
    digest = hashlib.sha256(text.encode()).hexdigest()
    return f'{{"sha256": "{digest}", "body": {text}}}\n'


def unsealed(line: str, name: str) -> Any:
    """Return what `sealed` was given; refuse a modified line."""
    try:
        body = json.loads(line)["body"]
        if line != sealed(body):
            raise ValueError("another content")
    except (ValueError, KeyError, TypeError, RecursionError):
        raise InputError(f"{name} is damaged") from None
    return body
