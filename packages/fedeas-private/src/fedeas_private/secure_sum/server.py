"""The server's half of a secure sum: it relays messages between clients, and adds up."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from fedeas.errors import FedeasError, InfeasibleError
from fedeas_private.secure_sum.client import (
    agreement,
    began_by,
    bind_session,
    shared_by,
    signed_keys,
    told_list,
)
from fedeas_private.secure_sum.identity import Members, quorum
from fedeas_private.secure_sum.keys import (
    add_mask,
    add_pair_mask,
    agree,
    is_signed,
    join_weighted,
    load_key,
    new_key,
    public_key,
    purpose,
    weights_at_zero,
)
from fedeas_private.secure_sum.messages import (
    DEALT,
    HASH,
    KEY,
    SHARE,
    SIGNATURE,
    SIGNED_KEYS,
    Vector,
    digest,
    marks,
    pieces,
)

NO_REPLY = "no reply in time"
_MOST_NAMED = 5  # clients in an error
Replies = Iterable[tuple[int, bytes]]  # the node that was asked, and its reply, as they arrive
Requests = dict[int, bytes]


class Server:
    """One sum: a method per stage, from the replies to one stage to the requests of the next.

    A client whose reply is missing or malformed is left out, and `left_out` says why. With too few
    clients left there is no sum. Errors call nodes by `names`.
    """

    def __init__(
        self, session: str, words: int, members: Members, names: Mapping[int, str] | None = None
    ) -> None:
        self._names = dict(names or {})
        self._session = bind_session(session, members.digest)
        self._members, self._graph, self._quorum = members, members.graph, quorum(len(members))
        self._words = words + 1  # the last one counts clients
        self._weights: dict[tuple[int, ...], dict[int, int]] = {}  # of shares, by whose they are
        self._nodes: dict[int, int] = {}  # of the members whose keys came, by place
        self.left_out: dict[int, str] = {}

    def roster(self, replies: Replies) -> Requests:
        """Gather the clients' keys and send each those of its neighbours."""
        given = dict(self._sized("keys", replies, KEY + SIGNED_KEYS))
        often = Counter(part for r in given.values() for part in pieces(r[: 3 * KEY], KEY))
        probe = load_key(new_key())
        self._keys: dict[int, bytes] = {}
        for node, reply in given.items():
            place = self._members.place(reply[:KEY])
            if place is None:
                self.left_out[node] = (
                    "keys: not a member of the federation: its key (fedeas keys show --key) is not "
                    "in the server's list"
                )
                continue
            if why := self._unsound(place, reply, often, probe):
                self.left_out[node] = f"keys: {why}"
                continue
            self._nodes[place], self._keys[place] = node, reply[KEY:]
            self._names.setdefault(node, f"member {self._members.names[place]}")
        self._began = self._enough("keys", self._nodes)
        there = set(self._began)
        who = marks(there, len(self._members))
        return {
            self._nodes[place]: who
            + b"".join(self._keys[p] for p in self._graph.neighbours(place) if p in there)
            for place in self._began
        }

    def deliver(self, replies: Replies) -> Requests:
        """Send every client what its neighbours sealed for it."""
        self._seeds: dict[int, bytes] = {}
        self._dealt: dict[int, dict[int, bytes]] = {}
        began = set(self._began)
        for place, reply in self._from("shares", replies, self._began):
            holders = [p for p in self._graph.holders(place) if p in began]
            if len(reply) != HASH + DEALT * len(holders):
                self.left_out[self._nodes[place]] = "shares: not a share for every neighbour"
                continue
            self._seeds[place] = reply[:HASH]
            self._dealt[place] = dict(zip(holders, pieces(reply[HASH:], DEALT), strict=True))
        self._shared = self._enough("shares", self._seeds)
        there = set(self._shared)
        who = marks(there, len(self._members))
        return {
            self._nodes[place]: who
            + b"".join(
                self._dealt[p][place][2 * HASH :] for p in self._graph.holders(place) if p in there
            )
            for place in self._shared
        }

    def survivors(self, replies: Replies) -> Requests:
        """Add the masked words up as they arrive, and ask who agrees on whose came."""
        told: dict[int, bytes] = {}
        self._sum = np.zeros(self._words, np.uint64)
        size, content = 8 * self._words, told_list(self._bound())
        for place, reply in self._from("masked", replies, self._shared, size + SIGNATURE):
            if is_signed(self._members.keys[place], reply[size:], content):
                self._sum += np.frombuffer(reply[:size], "<u8")
                told[place] = reply[size:]
            else:
                self.left_out[self._nodes[place]] = "masked: not signed for this sum"
        self._came = self._enough("masked", told)
        who = marks(self._came, len(self._members))
        return {
            self._nodes[place]: who
            + b"".join(told[p] for p in self._graph.neighbours(place) if p in told)
            for place in self._came
        }

    def agreed(self, replies: Replies) -> Requests:
        """Pass the signatures on, and ask for what takes the masks off the sum."""
        n = len(self._members)
        content = agreement(
            self._session, *(marks(w, n) for w in (self._began, self._shared, self._came))
        )
        signed = {}
        for place, reply in self._from("agree", replies, self._came, SIGNATURE):
            if is_signed(self._members.keys[place], reply, content):
                signed[place] = reply
            else:
                self.left_out[self._nodes[place]] = "agree: not a signature of the survivors"
        self._signers = self._enough("agree", signed)
        enough = self._signers[: self._quorum]  # for a client, and less for it to check
        proof = marks(enough, n) + b"".join(signed[place] for place in enough)
        return {self._nodes[place]: proof for place in self._signers}

    def total(self, replies: Replies) -> tuple[Vector, list[int]]:
        """Return the sum, and the nodes that it is over."""
        shared = set(self._shared)
        given: dict[int, dict[int, bytes]] = {}  # of each client, by who holds them
        for place, reply in self._from("unmask", replies, self._signers):
            held = [p for p in self._graph.holders(place) if p in shared]
            if len(reply) != SHARE * len(held):
                self.left_out[self._nodes[place]] = "unmask: not a share of every neighbour"
                continue
            for of, share in zip(held, pieces(reply, SHARE), strict=True):
                given.setdefault(of, {})[place] = share
        came, total = set(self._came), self._sum.copy()
        bound = self._bound()
        for place in self._shared:
            secret = self._join(place, given.get(place, {}), place in came)
            self._take_off(total, place, secret, place in came, bound)
        if int(total[-1]) != len(came):
            raise InfeasibleError(
                "the masks of a secure sum do not cancel: a client did not follow the protocol"
            )
        return total[:-1], [self._nodes[place] for place in self._came]

    def _join(self, of: int, shares: Mapping[int, bytes], is_seed: bool) -> bytes:
        """Put a client's secret together; a share that is not the one dealt counts as missing."""
        hashed = slice(0, HASH) if is_seed else slice(HASH, 2 * HASH)
        good = {p: s for p, s in shares.items() if digest(s) == self._dealt[of][p][hashed]}
        needed = self._graph.threshold(of)
        if len(good) < needed:
            raise self._too_few(f"shares of {self._name(self._nodes[of])}", len(good), needed)
        chosen = tuple(sorted(good)[:needed])
        if chosen not in self._weights:
            self._weights[chosen] = weights_at_zero(chosen)
        return join_weighted(good, self._weights[chosen])

    def _take_off(self, total: Vector, of: int, secret: bytes, came: bool, bound: bytes) -> None:
        """Take off what a client left in the sum: its own mask, or those it had with others."""
        if came:
            is_its_own = digest(secret) == self._seeds[of]
        else:
            is_its_own = public_key(secret) == self._keys[of][KEY : 2 * KEY]
        if not is_its_own:
            raise InfeasibleError(
                f"{self._name(self._nodes[of])} shared something other than its secret",
                fix="run the sum without it",
            )
        if came:
            add_mask(total, secret, purpose(bound, of), -1)
            return
        key, survivors = load_key(secret), set(self._came)
        for place in self._graph.neighbours(of):
            if place in survivors:
                # From the side of the client that is gone, which is missing in the sum.
                public = self._keys[place][KEY : 2 * KEY]
                add_pair_mask(total, key, public, of, place, bound)

    def _bound(self) -> bytes:
        n = len(self._members)
        return shared_by(began_by(self._session, marks(self._began, n)), marks(self._shared, n))

    def _unsound(
        self, place: int, reply: bytes, often: Mapping[bytes, int], probe: X25519PrivateKey
    ) -> str:
        """Return what is wrong with a member's introduction, or nothing."""
        keys, signature = reply[KEY : 3 * KEY], reply[3 * KEY :]
        if any(often[part] > 1 for part in pieces(reply[: 3 * KEY], KEY)):
            return "a key appears twice"
        if not is_signed(self._members.keys[place], signature, signed_keys(self._session, keys)):
            return (
                f"the keys of member {self._members.names[place]} are not signed for this sum and "
                "this list of members: compare the fingerprint of its list (fedeas keys show) with "
                f"{self._members.fingerprint}"
            )
        try:
            for key in pieces(keys, KEY):
                agree(probe, key)
        except FedeasError as error:
            return str(error)
        return ""

    def _from(
        self, stage: str, replies: Replies, asked: Iterable[int], size: int | None = None
    ) -> Iterable[tuple[int, bytes]]:
        """Yield good replies by place, each place once, of those asked."""
        places = {self._nodes[place]: place for place in asked}
        for node, reply in self._sized(stage, replies, size):
            if (place := places.pop(node, None)) is not None:
                yield place, reply

    def _sized(self, stage: str, replies: Replies, size: int | None) -> Iterable[tuple[int, bytes]]:
        for node, reply in replies:
            if isinstance(reply, bytes) and size in (None, len(reply)):
                yield node, reply
            else:
                self.left_out[node] = f"{stage}: not a reply of {size} bytes"

    def _enough(self, stage: str, places: Iterable[int]) -> list[int]:
        """Return the places upwards, if a quorum of them is left."""
        ordered = sorted(places)
        if len(ordered) < self._quorum:
            raise self._too_few(stage, len(ordered), self._quorum)
        return ordered

    def _too_few(self, stage: str, count: int, needed: int) -> InfeasibleError:
        """Say who is missing, and why: each of them has an owner who can be called."""
        reasons: dict[str, list[str]] = {}
        for node, reason in self.left_out.items():
            reasons.setdefault(reason, []).append(self._name(node))
        why = [f"{_listed(whose)}: {reason}" for reason, whose in reasons.items()]
        unknown = [n for p, n in enumerate(self._members.names) if p not in self._nodes]
        if unknown and not self.left_out.keys() <= self._names.keys():
            why.append(f"no keys of {_listed(unknown)}")
        listed = _listed(why, "; ")
        silent = not self.left_out or any(
            reason.endswith(NO_REPLY) for reason in self.left_out.values()
        )
        return InfeasibleError(
            f"too few clients for a secure sum at {stage}" + (f" ({listed})" if listed else ""),
            got=count,
            allowed=f"from {needed}",
            fix="start more clients, or wait longer for them"
            if silent
            else "asking again changes nothing: the logs of these clients say why they refused, "
            "and `fedeas ledger site.toml` there what is left of the budget",
        )

    def _name(self, node: int) -> str:
        return self._names.get(node, f"node {node}")


def _listed(items: Sequence[str], between: str = ", ") -> str:
    more = f"{between}and {len(items) - _MOST_NAMED} more" if len(items) > _MOST_NAMED else ""
    return between.join(items[:_MOST_NAMED]) + more
