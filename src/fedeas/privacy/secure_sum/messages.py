"""What clients and server send each other: bytes of a length that is known before they are read.

With n clients in the roster, m of them members (who shared their keys) and words of 8 bytes:

| stage | the server sends | a client replies |
|---|---|---|
| keys | nothing | its two public keys |
| shares | the threshold and all keys, 4 + 64 n | a hash of its seed; n times 2 hashes and a seal |
| masked | who is a member, n, and their m sealed pairs for this client | its masked words |
| unmask | whose masked words came, n | a share for each of the m members |
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedeas.errors import FedeasError
from fedeas.privacy.secure_sum.shares import SHARE

Words = NDArray[np.uint64]

STAGES = ("keys", "shares", "masked", "unmask")
KEY, HASH = 32, 32
SEALED = 2 * SHARE + 16  # a share of the seed and one of the key, and the cipher's tag
DEALT = 2 * HASH + SEALED  # what a client deals to one other
# Of two clients each would know the other's term; a client's work grows with their number, so a
# server must not be able to name as many as it likes.
FEWEST, MOST = 3, 2000


class RefusedError(FedeasError):
    """A client's refusal; its message reaches the server, so it says nothing about the data."""


@dataclass(frozen=True)
class Roster:
    """The clients of a sum, by their place: the keys that seal shares, and those of the masks."""

    threshold: int
    seals: tuple[bytes, ...]
    masks: tuple[bytes, ...]

    def __len__(self) -> int:
        return len(self.seals)

    def pack(self) -> bytes:
        """Return the roster as it is sent."""
        pairs = zip(self.seals, self.masks, strict=True)
        return self.threshold.to_bytes(4) + b"".join(seal + mask for seal, mask in pairs)

    @classmethod
    def read(cls, content: bytes) -> "Roster":
        """Read a roster; one that would expose its clients is refused."""
        n, rest = divmod(len(content) - 4, 2 * KEY)
        if rest or not FEWEST <= n <= MOST:
            raise RefusedError(
                "malformed roster",
                got=f"{len(content)} bytes",
                allowed=f"{FEWEST} to {MOST} clients",
            )
        keys = pieces(content[4:], KEY)
        if len(set(keys)) != len(keys):
            raise RefusedError("a key appears twice in the roster")
        threshold = int.from_bytes(content[:4])
        if threshold != safe_threshold(n):
            # A lower one lets a server that tells two stories collect both secrets of a client.
            raise RefusedError(
                f"unsafe threshold for {n} clients", got=threshold, allowed=f"{safe_threshold(n)}"
            )
        return cls(threshold, tuple(keys[::2]), tuple(keys[1::2]))

    def members(self, marks: bytes) -> list[int]:
        """Read which clients are marked: at least as many as the threshold."""
        if len(marks) != len(self) or not set(marks) <= {0, 1}:
            raise RefusedError("not a mark for every client of the roster")
        found = [place for place, mark in enumerate(marks) if mark]
        if len(found) < self.threshold:
            raise RefusedError("too few clients", got=len(found), allowed=f"from {self.threshold}")
        return found


def safe_threshold(clients: int) -> int:
    """Return how many of the clients must stay to the end: more than three quarters, at least 3.

    A server that tells clients different stories about who dropped out, with fewer than a third of
    them on its side, then has too few shares to take the masks off one client's words. This
    is a bound on that one attack, counted for up to 300 clients, not a proof against every server.

    >>> [safe_threshold(n) for n in (3, 4, 5, 10, 100)]
    [3, 4, 4, 8, 76]
    """
    return max(FEWEST, 3 * clients // 4 + 1)


def marks(places: Sequence[int], clients: int) -> bytes:
    """Return a byte for every client, 1 for those at the places."""
    chosen = set(places)
    return bytes(place in chosen for place in range(clients))


def pieces(content: bytes, size: int) -> list[bytes]:
    """Cut bytes into pieces of one size."""
    return [content[start : start + size] for start in range(0, len(content), size)]


def digest(*parts: bytes) -> bytes:
    """Return the SHA-256 of parts that cannot run into one another."""
    running = hashlib.sha256()
    for part in parts:
        running.update(len(part).to_bytes(8) + part)
    return running.digest()
