"""Who takes part: a key of each site, the list of them that sites compare, and who shares masks.

Every client computes from the list of members with whom it shares masks, and how many must stay. Up
to about 150 members all are neighbours of each other. Beyond, two members are neighbours if a hash
of the list and of their places says so. The server has no influence on it, and the edges are as
independent of each other as the values of a hash function. docs/proofs.md counts what this
protects from.
"""

import hashlib
import math
import os
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path

from fedeas._internal.files import read_toml
from fedeas.errors import InputError
from fedeas.private.secure_sum.keys import identity_of, new_identity
from fedeas.private.secure_sum.messages import KEY, digest

_LONGEST = 100  # characters of a name
# Of two clients each would know the other's term. A server holds a few kilobytes for each pair.
FEWEST, MOST = 3, 5000


def quorum(members: int) -> int:
    """Return how many members must stay to the end, and agree: more than two thirds, at least 3.

    Two groups of that size have a third of the members in common, so no server with fewer than a
    third on its side gets two different lists of survivors signed.

    >>> [quorum(n) for n in (3, 4, 5, 10, 100, 1000)]
    [3, 3, 4, 7, 67, 667]
    """
    return max(FEWEST, 2 * members // 3 + 1)


def most_colluding(members: int) -> int:
    """Return how many members may collude: one less than any two quorums have in common.

    >>> [most_colluding(n) for n in (3, 4, 5, 10, 20, 100)]
    [2, 1, 2, 3, 7, 33]
    """
    return 2 * quorum(members) - members - 1


def mean_degree(members: int) -> int:
    """Return how many neighbours a member has, on average.

    >>> [mean_degree(n) for n in (3, 100, 1000, 5000)]
    [2, 99, 200, 260]
    """
    return min(members - 1, 20 * math.ceil(math.log2(members)))


@dataclass(frozen=True)
class Graph:
    """The neighbours of every member, by place; `seed` is the digest of the list of members."""

    members: int
    seed: bytes

    @property
    def complete(self) -> bool:
        """Whether all are neighbours."""
        return mean_degree(self.members) == self.members - 1

    def holders(self, place: int) -> tuple[int, ...]:
        """Return who holds shares of a member's secrets: its neighbours and itself, upwards."""
        return _holders(self, place)

    def neighbours(self, place: int) -> tuple[int, ...]:
        """Return the members that one shares masks with, upwards."""
        return tuple(other for other in self.holders(place) if other != place)

    def threshold(self, place: int) -> int:
        """Return how many shares give a member's secret back.

        Where all are neighbours, a quorum; else more than half of the holders, since how many of a
        member's neighbours drop out varies.
        """
        return quorum(self.members) if self.complete else len(self.holders(place)) // 2 + 1


@lru_cache(maxsize=4096)
def _holders(graph: Graph, place: int) -> tuple[int, ...]:
    if graph.complete:
        return tuple(range(graph.members))
    below = int(2**64 * mean_degree(graph.members) / (graph.members - 1))
    return tuple(
        other
        for other in range(graph.members)
        if other == place or _edge(graph.seed, min(place, other), max(place, other)) < below
    )


def _edge(seed: bytes, first: int, second: int) -> int:
    named = seed + first.to_bytes(4) + second.to_bytes(4)
    return int.from_bytes(hashlib.sha256(b"edge" + named).digest()[:8])


@dataclass(frozen=True)
class Members:
    """The members of a federation, in the order of their keys; the same for every site.

    Parameters
    ----------
    names, keys
        The members' names, and their public Ed25519 keys.
    colluding
        How many members may work with the server. Each site adds so much noise that the others'
        parts suffice even if these leave theirs out. Fewer than any two quorums have in common:
        otherwise they could sign two lists of survivors, and one list's words would have less noise
        than was counted on.
    """

    names: tuple[str, ...]
    keys: tuple[bytes, ...]
    colluding: int = 1

    def __post_init__(self) -> None:
        n = len(self.keys)
        if not FEWEST <= n <= MOST:
            raise InputError(
                "too few or too many members", got=n, allowed=f"{FEWEST} to {MOST} members"
            )
        if len(self.names) != n or len(set(self.names)) != n or len(set(self.keys)) != n:
            raise InputError("every member needs a name and a key of its own")
        if list(self.keys) != sorted(self.keys) or any(len(key) != KEY for key in self.keys):
            raise InputError("the members are not in the order of their keys")
        most = most_colluding(n)
        if not 0 <= self.colluding <= most:
            raise InputError(
                "colluding out of range", got=self.colluding, allowed=f"0 to {most} of {n} members"
            )

    @classmethod
    def of(cls, keys: dict[str, bytes], colluding: int = 1) -> "Members":
        """Make a list from the members' names and keys, in any order."""
        pairs = sorted(keys.items(), key=lambda pair: pair[1])
        return cls(tuple(n for n, _ in pairs), tuple(k for _, k in pairs), colluding)

    @classmethod
    def load(cls, path: str | Path) -> "Members":
        """Read `members.toml`: `colluding`, and a table `members` of names and keys.

        Parameters
        ----------
        path
            The file.
        """
        content = read_toml(Path(path))
        listed = content.get("members")
        if not isinstance(listed, dict) or set(content) - {"members", "colluding"}:
            raise InputError(
                f"{path} is not a list of members",
                fix='write [members], then a line like north = "5f1c..." for each',
            )
        colluding = content.get("colluding", 1)
        if type(colluding) is not int:
            raise InputError(f"{path}: colluding is not a whole number", got=colluding)
        return cls.of({name: read_key(key, name) for name, key in listed.items()}, colluding)

    def to_toml(self) -> str:
        """Return the content of `members.toml`."""
        lines = sorted(zip(self.names, self.keys, strict=True))
        listed = [f'"{name}" = "{key.hex()}"' for name, key in lines]
        return "\n".join([f"colluding = {self.colluding}", "", "[members]", *listed, ""])

    def __len__(self) -> int:
        return len(self.keys)

    @cached_property
    def digest(self) -> bytes:
        """A hash of everything in the list."""
        named = (
            part for n, k in zip(self.names, self.keys, strict=True) for part in (n.encode(), k)
        )
        return digest(b"members", self.colluding.to_bytes(4), *named)

    @property
    def fingerprint(self) -> str:
        """Eight groups of four digits, short enough to be read out on the telephone."""
        digits = self.digest.hex()[:32]
        return " ".join(digits[at : at + 4] for at in range(0, 32, 4))

    @cached_property
    def graph(self) -> Graph:
        """Who shares masks with whom."""
        return Graph(len(self), self.digest)

    @property
    def honest(self) -> int:
        """How many honest sites' noise is in every sum, at least."""
        return quorum(len(self)) - self.colluding

    def place(self, key: bytes) -> int | None:
        """Return the place of a key in the list, or None."""
        return self._places.get(key)

    @cached_property
    def _places(self) -> dict[bytes, int]:
        return {key: place for place, key in enumerate(self.keys)}


@dataclass(frozen=True)
class Identity:
    """A site's private key, and its place among the members."""

    private: bytes
    members: Members
    place: int

    @classmethod
    def of(cls, private: bytes, members: Members) -> "Identity":
        """Find a site among the members."""
        place = members.place(identity_of(private))
        if place is None:
            raise InputError(
                "this site's key is not among the members",
                got=identity_of(private).hex(),
                fix="add it to the members.toml of every site, and compare fingerprints",
            )
        return cls(private, members, place)


def load_identity(path: str | Path) -> bytes:
    """Read a site's private key; a file that others can read is refused."""
    file = Path(path)
    try:
        mode, content = file.stat().st_mode, file.read_bytes()
    except OSError as error:
        fix = f"fedeas keys new-key {path} --name NAME"
        raise InputError(f"cannot read {path}: {error.strerror}", fix=fix) from None
    if os.name == "posix" and mode & 0o077:
        raise InputError(f"others can read the private key {path}", fix=f"chmod 600 {path}")
    return _hex(content.decode("ascii", "replace").strip(), f"{path} is not a private key")


def make_identity(path: str | Path) -> bytes:
    """Draw a site's private key, write it to a new file that nobody else can read, return it."""
    private = new_identity()
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise InputError(f"{path} exists already", fix="keep it: it is a private key") from None
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}") from None
    with os.fdopen(handle, "w", encoding="ascii") as file:
        file.write(private.hex() + "\n")
    return private


def read_key(text: object, name: str) -> bytes:
    """Read a public key of 64 hexadecimal digits."""
    check_name(name)
    return _hex(text, f"the key of {name} is not a public key")


def check_name(name: str) -> None:
    """Refuse a name that could not be told from another, or read out."""
    if not name or len(name) > _LONGEST or not name.isprintable() or set(name) & set('"\\'):
        allowed = f"up to {_LONGEST} printable characters without quotes"
        raise InputError("not a name of a member", got=name, allowed=allowed)


def _hex(text: object, what: str) -> bytes:
    try:
        key = bytes.fromhex(text) if isinstance(text, str) else b""
    except ValueError:
        key = b""
    if len(key) != KEY:
        raise InputError(what, allowed="64 hexadecimal digits")
    return key
