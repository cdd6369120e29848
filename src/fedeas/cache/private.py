"""Folders that only their owner can enter."""

import os
import stat
from contextlib import suppress
from pathlib import Path

from fedeas.errors import InputError


def private_folder(path: Path) -> None:
    """Make a folder for the present user alone, or take others' rights away from one of ours.

    A folder that is a link is refused: what is written there would be elsewhere.
    """
    if path.is_symlink():
        raise InputError(f"{path} is a link", fix="remove it: samples are then generated again")
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    narrow(path)


def refuse_links(path: Path) -> None:
    """Refuse to write to a file that has another name too: that may be anybody's file.

    A link to a file is replaced where damage is mended.
    """
    with suppress(FileNotFoundError):
        info = path.lstat()
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
