"""Who shares masks with whom, and how many must stay: computed by every client for itself.

Up to about 150 members all are neighbours of each other. Beyond, two members are neighbours if a
hash of the list of members and of their places says so. The server has no influence on it, and the
edges are as independent of each other as the values of a hash function. docs/security.md counts
what this protects from.
"""

import hashlib
import math
from dataclasses import dataclass
from functools import lru_cache

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
