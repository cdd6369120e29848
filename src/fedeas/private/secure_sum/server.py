"""The server's half of secure sums: it relays messages between clients, and adds up."""

import secrets
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from fedeas.errors import FedeasError, InfeasibleError
from fedeas.private.secure_sum.client import bind_session, shared_by
from fedeas.private.secure_sum.identity import Members, quorum
from fedeas.private.secure_sum.keys import (
    add_mask,
    add_pair_mask,
    agree,
    is_signed,
    join,
    load_key,
    load_public,
    public_key,
    purpose,
)
from fedeas.private.secure_sum.messages import (
    AGREEMENT,
    DEALT,
    HASH,
    KEY,
    SHARE,
    SIGNED_KEY,
    TAG,
    Vector,
    digest,
    marks,
    pieces,
)
from fedeas.private.secure_sum.pairs import bind_run, signed_key
from fedeas.train.flower.deployment import INSTALL_PRIVATE

NO_REPLY = "no reply in time"
_WITHOUT = f"a site without secure sums: {INSTALL_PRIVATE}, and the app of fedeas.private.flower"
_MOST_NAMED = 5  # clients in an error
_PROBE = load_key(bytes(KEY))  # with any key, one of low order agrees on zeros
Replies = Iterable[tuple[int, bytes]]  # the node that was asked, and its reply, as they arrive
Requests = dict[int, bytes]
Places = NDArray[np.int64]
Rows = NDArray[np.uint8]


class _Stages:
    """What stages have in common: who is asked, who is left out and why, when too few are left."""

    def __init__(self, members: Members, names: Mapping[int, str] | None = None) -> None:
        self._members, self._quorum = members, quorum(len(members))
        self.names = dict(names or {})
        self.nodes: dict[int, int] = {}  # that are asked, by the member's place
        self.left_out: dict[int, str] = {}

    def _from(
        self, stage: str, replies: Replies, asked: Iterable[int], size: int | None = None
    ) -> Iterable[tuple[int, bytes]]:
        """Yield good replies by place, each place once, of those asked."""
        places = {self.nodes[place]: place for place in asked}
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
        unknown = [n for p, n in enumerate(self._members.names) if p not in self.nodes]
        if unknown and not self.left_out.keys() <= self.names.keys():
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
            "and `fedeas ledger site.toml` there what is left of the budget"
            + (f"; {_WITHOUT}" if stage == AGREEMENT[0] else ""),
        )

    def _name(self, node: int) -> str:
        return self.names.get(node, f"node {node}")


class Run(_Stages):
    """The keys that the sums of a run share: a method per stage, then `Server` for every sum.

    A member whose key is missing or malformed is left out of the run, and `left_out` says why.
    """

    def __init__(self, members: Members, before: "Run | None" = None) -> None:
        super().__init__(members)
        self._silent_before = before.silent if before else set[int]()
        self.name, self.members = secrets.token_hex(16), members
        self.bound, self._sums = bind_run(self.name, members.digest), 0
        self.lost = False  # whether a client said that it has no keys of this run any more

    def roster(self, replies: Replies) -> Requests:
        """Gather the clients' keys and send everybody all of them."""
        given: dict[int, tuple[int, bytes]] = {}
        for node, reply in dict(self._sized("keys", replies, KEY + SIGNED_KEY)).items():
            place = self._members.place(reply[:KEY])
            if place is None:
                self.left_out[node] = (
                    "keys: not a member of the federation: its key (fedeas keys show --key) is not "
                    "in the server's list"
                )
            elif why := self._unsigned(place, reply):
                self.left_out[node] = f"keys: {why}"
            else:
                given[node] = place, reply
        # Of what is signed alone: by a member's public identity nobody keeps it out.
        often = Counter(part for _, r in given.values() for part in pieces(r[: 2 * KEY], KEY))
        keys: dict[int, bytes] = {}
        for node, (place, reply) in given.items():
            twice = any(often[part] > 1 for part in pieces(reply[: 2 * KEY], KEY))
            if why := "a key appears twice" if twice else _low_order(reply[KEY : 2 * KEY]):
                self.left_out[node] = f"keys: {why}"
            else:
                self.nodes[place], keys[place] = node, reply[KEY:]
                self.names.setdefault(node, f"member {self._members.names[place]}")
        self.began = self._enough("keys", self.nodes)
        request = marks(self.began, len(self._members)) + b"".join(keys[p] for p in self.began)
        self._asked = digest(self.bound, request)
        return {self.nodes[place]: request for place in self.began}

    def met(self, replies: Replies) -> None:
        """Note who has keys with all others."""
        met = {}
        for place, reply in self._from("meet", replies, self.began, HASH):
            if reply == self._asked:
                met[place] = self.nodes[place]
            else:
                self.left_out[self.nodes[place]] = "meet: not a hash of everybody's keys"
        self._enough("meet", met)
        self.nodes = met

    def next_number(self) -> int:
        """Return the number of the next sum."""
        self._sums += 1
        return self._sums - 1

    @property
    def silent(self) -> set[int]:
        """The nodes that were asked for keys and did not reply in time."""
        return {node for node, why in self.left_out.items() if why.endswith(NO_REPLY)}

    def serves(self, nodes: Iterable[int]) -> bool:
        """Tell whether all nodes that can have keys of this run have them.

        One that was silent is asked for keys once more, by the next sum. If it is silent again,
        it is left out until others need keys too: every agreement waits for it.
        """
        settled = self.left_out.keys() - (self.silent - self._silent_before)
        return not self.lost and set(nodes) <= settled | set(self.nodes.values())

    def _unsigned(self, place: int, reply: bytes) -> str:
        """Return what is wrong with the signature of a member's key, or nothing."""
        key, signature = reply[KEY : 2 * KEY], reply[2 * KEY :]
        if is_signed(self._members.keys[place], signature, signed_key(self.bound, key)):
            return ""
        return (
            f"the key of member {self._members.names[place]} is not signed for this run and "
            "this list of members: compare the fingerprint of its list (fedeas keys show) with "
            f"{self._members.fingerprint}"
        )


class Server(_Stages):
    """One sum of a run: a method per stage, from replies to the requests of the next stage.

    A client whose reply is missing or malformed is left out, and `left_out` says why. With too few
    clients left there is no sum.
    """

    def __init__(self, session: str, number: int, words: int, run: Run) -> None:
        super().__init__(run.members, run.names)
        self.nodes, self._began, self._run = dict(run.nodes), run.began, run
        self.left_out |= run.left_out
        self._session, self._graph = bind_session(session, run.bound, number), run.members.graph
        self._words = words + 1  # the last one counts clients

    def deliver(self, replies: Replies) -> Requests:
        """Send every client its neighbours' fresh keys, and what they sealed for it."""
        began, given = set(self._began), {}
        for place, reply in self._from("shares", replies, self.nodes):
            holders = [p for p in self._graph.holders(place) if p in began]
            if not reply:
                self._run.lost = True
                self.left_out[self.nodes[place]] = "shares: it has lost its keys of this run"
            elif len(reply) != KEY + HASH + DEALT * len(holders):
                self.left_out[self.nodes[place]] = "shares: not a share for every neighbour"
            else:
                given[place] = reply
        often = Counter(reply[:KEY] for reply in given.values())
        self._keys: dict[int, bytes] = {}
        self._seeds: dict[int, bytes] = {}
        self._dealt: dict[int, tuple[list[int], bytes]] = {}  # to whom, and what
        for place, reply in given.items():
            key = reply[:KEY]
            if why := "a key appears twice" if often[key] > 1 else _low_order(key):
                self.left_out[self.nodes[place]] = f"shares: {why}"
                continue
            holders = [p for p in self._graph.holders(place) if p in began]
            self._keys[place], self._seeds[place] = key, reply[KEY : KEY + HASH]
            self._dealt[place] = holders, reply[KEY + HASH :]
        self._shared = self._enough("shares", self._keys)
        n = len(self._members)
        who, keys = marks(self._shared, n), np.zeros((n, KEY), np.uint8)
        keys[self._shared] = _rows(b"".join(self._keys[p] for p in self._shared), KEY)
        delivered = _by_receiver(self._dealt, DEALT, slice(2 * HASH, None))
        return {
            self.nodes[place]: who + np.hstack((keys[senders], sealed)).tobytes()
            for place in self._shared
            for senders, sealed in [delivered[place]]
        }

    def survivors(self, replies: Replies) -> Requests:
        """Add the masked words up as they arrive, and ask who agrees on whose came."""
        told: dict[int, tuple[list[int], bytes]] = {}  # tags: for whom, and what
        self._sum, shared = np.zeros(self._words, np.uint64), set(self._shared)
        size = 8 * self._words
        for place, reply in self._from("masked", replies, self._shared):
            near = [p for p in self._graph.neighbours(place) if p in shared]
            if len(reply) != size + TAG * len(near):
                self.left_out[self.nodes[place]] = "masked: not the words of this sum"
                continue
            self._sum += np.frombuffer(reply[:size], "<u8")
            told[place] = near, reply[size:]
        self._came = self._enough("masked", told)
        who, tags = marks(self._came, len(self._members)), _by_receiver(told, TAG)
        return {self.nodes[place]: who + tags[place][1].tobytes() for place in self._came}

    def agreed(self, replies: Replies) -> Requests:
        """Pass on who agrees, and ask for what takes the masks off the sum."""
        n = len(self._members)
        given = dict(self._from("agree", replies, self._came, TAG * n))
        self._agreed = self._enough("agree", given)
        tags = np.array([np.frombuffer(given[p], np.uint8) for p in self._agreed])
        tags = tags.reshape(len(self._agreed), n, TAG)
        who = marks(self._agreed, n)
        return {self.nodes[place]: who + tags[:, place].tobytes() for place in self._agreed}

    def total(self, replies: Replies) -> tuple[Vector, list[int]]:
        """Return the sum, and the nodes that it is over."""
        shared = set(self._shared)
        given: dict[int, tuple[list[int], bytes]] = {}  # of whom, and the shares
        for place, reply in self._from("unmask", replies, self._agreed):
            held = [p for p in self._graph.holders(place) if p in shared]
            if len(reply) != SHARE * len(held):
                self.left_out[self.nodes[place]] = "unmask: not a share of every neighbour"
                continue
            given[place] = held, reply
        came, total, shares = set(self._came), self._sum.copy(), _by_receiver(given, SHARE)
        keys = {place: load_public(self._keys[place]) for place in self._came}
        bound = shared_by(self._session, marks(self._shared, len(self._members)))
        for place in self._shared:
            nothing = np.empty(0, np.int64), np.empty((0, SHARE), np.uint8)
            secret = self._join(place, *shares.get(place, nothing), place in came)
            if place in came:
                add_mask(total, secret, purpose(bound, place), -1)
                continue
            key = load_key(secret)
            for other in self._graph.neighbours(place):
                if other in came:
                    # From the side of the client that is gone, which is missing in the sum.
                    agreed = agree(key, keys[other])
                    add_pair_mask(total, agreed, place, other, bound)
        if int(total[-1]) != len(came):
            raise InfeasibleError(
                "the masks of a secure sum do not cancel: a client did not follow the protocol"
            )
        return total[:-1], [self.nodes[place] for place in self._came]

    def _join(self, of: int, holders: Places, rows: Rows, came: bool) -> bytes:
        """Put a client's secret together; a share that is not the one dealt counts as missing."""
        needed, at = self._graph.threshold(of), 0 if came else HASH
        numbers = np.searchsorted(self._graph.holders(of), holders).tolist()
        shares = dict(zip(numbers, pieces(rows.tobytes(), SHARE), strict=True))
        for check in (False, True):  # only where something is wrong is every share looked at
            if check:
                whom, content = self._dealt[of]
                dealt = dict(zip(whom, pieces(content, DEALT), strict=True))
                hashes = (dealt[p][at : at + HASH] for p in holders.tolist())
                shares = {
                    k: s for (k, s), h in zip(shares.items(), hashes, strict=True) if digest(s) == h
                }
            if len(shares) < needed:
                raise self._too_few(f"shares of {self._name(self.nodes[of])}", len(shares), needed)
            secret = join({k: shares[k] for k in list(shares)[:needed]})
            if digest(secret) == self._seeds[of] if came else public_key(secret) == self._keys[of]:
                return secret
        raise InfeasibleError(
            f"{self._name(self.nodes[of])} shared something other than its secret",
            fix="run the sum without it",
        )


def _by_receiver(
    sent: Mapping[int, tuple[list[int], bytes]], size: int, part: slice = slice(None)
) -> dict[int, tuple[Places, Rows]]:
    """Turn whom each place sent something, in pieces, into who sent each place what, upwards."""
    if not sent:
        return {}
    order = sorted(sent)
    counts = [len(sent[place][0]) for place in order]
    senders = np.repeat(np.array(order, np.int64), counts)
    receivers = np.concatenate([np.array(sent[place][0], np.int64) for place in order])
    rows = _rows(b"".join(sent[place][1] for place in order), size)[:, part]
    turned = np.argsort(receivers, kind="stable")
    senders, receivers, rows = senders[turned], receivers[turned], rows[turned]
    places, starts = np.unique(receivers, return_index=True)
    parts = zip(np.split(senders, starts[1:]), np.split(rows, starts[1:]), strict=True)
    return dict(zip(places.tolist(), parts, strict=True))


def _rows(content: bytes, size: int) -> Rows:
    return np.frombuffer(content, np.uint8).reshape(-1, size)


def _low_order(key: bytes) -> str:
    """Return what is wrong with a public key, or nothing."""
    try:
        agree(_PROBE, load_public(key))
    except FedeasError as error:
        return str(error)
    return ""


def _listed(items: Sequence[str], between: str = ", ") -> str:
    more = f"{between}and {len(items) - _MOST_NAMED} more" if len(items) > _MOST_NAMED else ""
    return between.join(items[:_MOST_NAMED]) + more
