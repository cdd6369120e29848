"""Files that are whole or absent: a reader never sees one half-written."""

import hashlib
import json
import os
import secrets
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fedeas.errors import InputError

IMAGE_FILES = {".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp"}


@contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside `path` and rename it into place when the block succeeds."""
    temporary = _reserve(path)
    try:
        yield temporary
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def check_writable(path: Path) -> None:
    """Refuse a file that cannot be written, before the work that it is for is done."""
    _reserve(path).unlink()


def _reserve(path: Path) -> Path:
    """Make an empty file beside `path`."""
    if path.is_dir():
        raise InputError(f"cannot write {path}: it is a folder", fix="name a file")
    temporary = path.with_name(f".{secrets.token_hex(4)}.{path.name}")
    try:
        temporary.touch(exist_ok=False)
    except OSError as error:
        raise InputError(
            f"cannot write {path}: {error.strerror}",
            fix="choose a folder that exists and is writable",
        ) from None
    return temporary


def make_folder(path: Path) -> None:
    """Make a folder and those above it, where they are not there."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"cannot make the folder {path}: {error.strerror}",
            fix="choose a folder that you may write to",
        ) from None


def read_text(path: Path) -> str:
    """Read a text file, with one clear line when that is not possible."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise InputError(f"{path} is not a text file", allowed="UTF-8 text") from None
    except OSError as error:
        raise unreadable(path, error) from None


def read_toml(path: Path) -> dict[str, Any]:
    """Read a TOML file."""
    try:
        return tomllib.loads(read_text(path))
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{path} is no TOML: {error}") from None


def folders(path: Path) -> list[Path]:
    """Return the folders of a folder in order, but for hidden ones."""
    return sorted(p for p in path.iterdir() if p.is_dir() and not p.name.startswith("."))


def store_folder(chosen: Path | str | None = None) -> Path:
    """Return where fedeas keeps what it can make again: FEDEAS_STORE, or .cache/fedeas at home."""
    return Path(chosen or os.environ.get("FEDEAS_STORE") or Path.home() / ".cache" / "fedeas")


def unreadable(path: Path, error: OSError) -> InputError:
    """Turn an operating system's refusal into our own error."""
    return InputError(
        f"cannot read {path}: {error.strerror or 'no such file'}", fix="check the path"
    )


def write_json(path: Path, body: object) -> None:
    """Write JSON with the hash of its content, whole or not at all."""
    with atomic_write(path) as temporary:
        temporary.write_text(sealed(body), encoding="utf-8")


def read_json(path: Path) -> Any:
    """Read JSON that `write_json` wrote, refusing every change to it."""
    try:
        text = path.read_bytes().decode()
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from None
    except ValueError:
        raise InputError(f"{path} is damaged") from None
    return unsealed(text, str(path))


def sealed(body: object) -> str:
    """Return a line of JSON with the hash of its content.

    >>> sealed({"a": 1})[78:].strip()
    '"body": {"a": 1}}'
    """
    text = json.dumps(body, sort_keys=True)
    digest = hashlib.sha256(text.encode()).hexdigest()
    return f'{{"sha256": "{digest}", "body": {text}}}\n'


def unsealed(line: str, name: str) -> Any:
    """Return what `sealed` was given, refusing every change to it."""
    try:
        body = json.loads(line)["body"]
        if line != sealed(body):
            raise ValueError("another content")
    except (ValueError, KeyError, TypeError):
        raise InputError(f"{name} is damaged") from None
    return body
