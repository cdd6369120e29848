"""What clients and server send each other: bytes of a length that is known before they are read.

With n members of the federation, each with some of them as neighbours, and words of 8 bytes:

| stage | the server sends | a client replies |
|---|---|---|
| keys | nothing | its identity, a fresh public key, its signature of it |
| meet | who began, n; their keys, signed | a hash of what it was sent |
| shares | nothing | a fresh key; a hash of its seed; 2 hashes and a seal a holder |
| masked | who shared, n; its neighbours' fresh keys and seals | masked words; tags of who shared |
| agree | whose words came, n; its neighbours' tags for it | tags of who shared and came, n |
| unmask | who agrees, n; their tags for it | a share of each neighbour and of itself |

The first two stages come once for all sums of a run. A tag is for one member, who shares a key with
the member that it is from: it is as good as a signature to that one, and to nobody else.
"""

import hashlib
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from fedeas.errors import FedeasError

Vector = NDArray[np.uint64]

AGREEMENT = ("keys", "meet")  # once for all sums of a run
STAGES = ("shares", "masked", "agree", "unmask")  # of every sum
KEY, HASH, SIGNATURE, TAG = 32, 32, 64, 16
SECRET, SHARE = 32, 33  # bytes of a secret, and of a share of it
SIGNED_KEY = KEY + SIGNATURE
SEALED = 2 * SHARE + 16  # a share of the seed and one of the key, and the cipher's tag
DEALT = 2 * HASH + SEALED  # what a client deals to one holder
DELIVERED = KEY + SEALED  # what it gets of one neighbour


class RefusedError(FedeasError):
    """A client's refusal; its message reaches the server, so it says nothing about the data."""


class MemberError(RefusedError):
    """A client's refusal of what a member sent it, or what the server says that it sent.

    It follows from keys alone and tells nothing, so it is not counted with those that make a site
    stop reading: a member could otherwise have others stop by sending them what cannot be opened.
    """

    def __init__(self, message: str, member: int) -> None:
        super().__init__(message)
        self.member = member


class NoKeysError(RefusedError):
    """A client has no keys of a run: it joined none of that name, or its folder was lost."""


def marks(places: Iterable[int], members: int) -> bytes:
    """Return a byte for every member, 1 for those at the places."""
    chosen = set(places)
    return bytes(place in chosen for place in range(members))


def read_marks(content: bytes, members: int, fewest: int, among: Sequence[int] = ()) -> list[int]:
    """Read which members are marked: enough of them, and only some of those that are allowed."""
    if len(content) != members or not set(content) <= {0, 1}:
        raise RefusedError("not a mark for every member of the federation")
    places = [place for place, mark in enumerate(content) if mark]
    if len(places) < fewest:
        raise RefusedError("too few clients", got=len(places), allowed=f"from {fewest}")
    if among and not set(places) <= set(among):
        raise RefusedError("clients that were not there before")
    return places


def pieces(content: bytes, size: int) -> list[bytes]:
    """Cut bytes into pieces of one size."""
    return [content[start : start + size] for start in range(0, len(content), size)]


def digest(*parts: bytes) -> bytes:
    """Return the SHA-256 of parts that cannot run into one another."""
    running = hashlib.sha256()
    for part in parts:
        running.update(len(part).to_bytes(8) + part)
    return running.digest()
