"""Files: atomic writes, reads of regular files only, limits of what is read, and locks."""

import errno
import hashlib
import json
import os
import secrets
import stat
import sys
import tomllib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from fedeas._internal.optional import import_extra
from fedeas.errors import FileAccessError, InputError, first_line

IMAGE_FILES = {".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp"}
# Errors of a full or failing disk; they name no file.
_NO_SPACE = {errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC)}
_FAILED_WRITES = _NO_SPACE | {errno.EFBIG, errno.EIO}
# A file of a few kilobytes can claim, or decompress to, many gigabytes. Its own header says how
# many before anything is read, and what is above these limits is refused there.
LARGEST_LABEL = 10**6  # classes are numbered from 0
MAX_PIXELS = 1 << 26  # of one image: 8192 x 8192
MAX_TEXT = 1 << 30  # bytes of a text or JSON file
_MAX_CELLS = 1 << 27  # whole numbers of eight bytes: 1 GiB
_VARIABLE = "FEDEAS_MAX_CELLS"
_POLL = 0.02  # seconds between two attempts to get a lock
_ATTEMPTS = 100


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


def private_folder(path: Path) -> None:
    """Make a folder for the present user alone, or take others' rights away from one of ours.

    A folder that is a link is refused: what is written there would be elsewhere.
    """
    if path.is_symlink():
        raise InputError(f"{path} is a link", fix="remove it: samples are then generated again")
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    narrow(path)


def refuse_links(path: Path) -> None:
    """Refuse to write to a link, or to a file with another name too: that may be anybody's file."""
    with suppress(FileNotFoundError):
        info = path.lstat()
        if stat.S_ISLNK(info.st_mode):
            raise InputError(f"{path} is a link", fix="remove it: samples are then generated again")
        if stat.S_ISREG(info.st_mode) and info.st_nlink > 1:
            raise InputError(
                f"{path} has {info.st_nlink} names, and what is written to it changes all of them",
                fix="replace it by a copy, or remove it: samples are then generated again",
            )


def narrow(path: Path) -> None:
    """Take the rights of others away from a folder that is ours; leave all else alone."""
    if os.name != "posix":
        return  # Windows: folders inherit their rights, and a user's own folders are private
    with suppress(OSError):  # not there, or on a disk that is mounted for reading only
        info = path.lstat()  # not `stat`: a link would lead to a folder that is none of ours
        if stat.S_ISDIR(info.st_mode) and info.st_uid == os.geteuid() and info.st_mode & 0o077:
            path.chmod(stat.S_IMODE(info.st_mode) & 0o700)


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
        info = path.stat()
    except OSError as error:
        raise unreadable(path, error) from None
    except ValueError as error:  # a null character in the name
        raise InputError(f"cannot read {str(path)!r}: {error}") from None
    if not stat.S_ISREG(info.st_mode):
        kind = "a folder" if stat.S_ISDIR(info.st_mode) else "a pipe, socket or device"
        raise InputError(f"{path} is {kind}", allowed="a regular file")
    if most is not None and info.st_size > most:
        raise InputError(
            f"{path} is too large",
            got=info.st_size,
            allowed=f"at most {most:,} bytes",
            fix=avoid,
        )
    return info


def file_state(info: os.stat_result) -> tuple[int, int, int]:
    """Return what tells a file from a changed one: its size and times.

    Not only the time of its content, which programs set back when they copy.
    """
    return info.st_size, info.st_mtime_ns, info.st_ctime_ns


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


def samples_folder(chosen: Path | str | None = None) -> Path:
    """Return where caches of generated samples are: as chosen, or `samples` in the store."""
    return Path(chosen) if chosen else store_folder() / "samples"


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


def owner_only_folder(path: Path) -> None:
    """Make a folder that no other user can read, or refuse an existing one that is not safe.

    A folder that others can write to may hold what they put there, and a link leads elsewhere.
    """
    if os.name != "posix":
        raise InputError(
            "secure sums and deployed sites need POSIX file permissions",
            got=sys.platform,
            allowed="Linux or macOS",
            fix="run the site in a container or in WSL",
        )
    try:
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
        status = path.lstat()
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}") from None
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
        raise InputError(f"{path} is not a folder owned by this user", fix="remove it")
    if status.st_mode & 0o022:
        raise InputError(
            f"others can write to {path}", fix="chmod 700 it if everything in it is yours"
        )
    if status.st_mode & 0o077:
        path.chmod(0o700)


def check_cells(cells: int, what: str, avoid: str | None = None) -> None:
    """Refuse a table that is too large for memory, before memory is allocated.

    Parameters
    ----------
    cells : int
        How many numbers it holds: at most FEDEAS_MAX_CELLS, or 2**27.
    what : str
        What holds them, as the subject of a sentence.
    avoid : str, optional
        What to do instead of raising the limit.
    """
    most = os.environ.get(_VARIABLE) or str(_MAX_CELLS)
    if not (most.isascii() and most.isdigit() and len(most) <= 15):
        raise InputError(f"{_VARIABLE} is not a number of cells", got=most, allowed="1000000000")
    if cells > int(most):
        raise InputError(
            f"{what} holds {cells:,} numbers, more than are read into memory",
            allowed=f"at most {int(most):,}",
            fix=f"{f'{avoid}, or ' if avoid else ''}set {_VARIABLE} to raise the limit",
        )


def _make(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)


@contextmanager
def locked(
    folder: Path,
    waiting: Callable[[], None] | None = None,
    make: Callable[[Path], None] = _make,
) -> Iterator[None]:
    """Hold a folder's lock, waiting until it is free: one process at a time, on all systems.

    The system frees the lock of a process that dies: nothing is to be cleaned up after a crash.

    Parameters
    ----------
    folder : Path
        What is locked; the lock is the file `lock` in it.
    waiting : callable, optional
        Called once before waiting. It may raise, to give up instead.
    make : callable, optional
        Makes the folder if it is not there; also called once the lock is held.

    """
    release = _acquire(folder, waiting, make)
    try:
        yield
    finally:
        release()


def _acquire(
    folder: Path, waiting: Callable[[], None] | None, make: Callable[[Path], None]
) -> Callable[[], None]:
    """Return what frees the lock again."""
    from filelock import FileLock, Timeout

    path = folder / "lock"
    for _ in range(_ATTEMPTS):
        make(folder)
        lock = FileLock(path, thread_local=False)
        try:
            try:
                lock.acquire(timeout=0)
            except Timeout:
                if waiting is not None:
                    waiting()
                    waiting = None
                lock.acquire(poll_interval=_POLL)
            make(folder)
        except FileNotFoundError:  # the folder was removed at this moment
            lock.release()
            continue
        except BaseException:
            lock.release()
            raise
        if path.exists():
            return lock.release
        lock.release()  # the folder was removed while we waited: no other process uses this lock
    raise InputError(
        f"{folder} keeps being removed", fix="stop the other process, or use another folder"
    )


def fetch_from_hub(
    name: str, kind: str, patterns: Sequence[str], looked: str | None = None
) -> Path:
    """Download files of a repository of the Hugging Face hub and return their folder.

    Parameters
    ----------
    name, kind : str
        The repository, and what it is: 'dataset' or 'model'.
    patterns : sequence of str
        The files to download.
    looked : str, optional
        Where it was searched for on this machine, for the error.
    """
    hub = import_extra("huggingface_hub", f"the {kind} {name!r} of the hub", "train")
    try:
        return Path(hub.snapshot_download(name, repo_type=kind, allow_patterns=list(patterns)))
    except Exception as error:  # of the hub, its network library, and whatever comes next release
        raise InputError(
            f"no {kind} {name!r}: not on this machine, and the hub raised {type(error).__name__} "
            f"({first_line(error)[:100]})",
            fix=f"{f'{looked}; ' if looked else ''}"
            "check the name and the network and run it again, or give a folder",
        ) from None
