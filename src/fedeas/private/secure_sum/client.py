"""The client's half of a secure sum: four stages, each answered once.

The server is not trusted. It cannot choose a client's neighbours, thresholds or the keys of others:
they follow from the list of members. What clients are told about who takes part enters every mask,
so clients that were told different things share no masks. Before a client helps to unmask
anything, a quorum of members has told it that they agree on exactly what it was told itself.
"""

import secrets
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from fedeas.private.secure_sum.identity import quorum
from fedeas.private.secure_sum.keys import (
    add_mask,
    add_pair_mask,
    agree,
    is_tagged,
    load_key,
    load_public,
    new_key,
    public_key,
    purpose,
    seal,
    sealing_key,
    split,
    tag,
    unseal,
)
from fedeas.private.secure_sum.memory import Memory, StageRecord
from fedeas.private.secure_sum.messages import (
    DELIVERED,
    KEY,
    SHARE,
    TAG,
    MemberError,
    RefusedError,
    Vector,
    digest,
    pieces,
    read_marks,
)
from fedeas.private.secure_sum.pairs import PairKeys


class _ClientState(NamedTuple):
    """A client's secrets in a sum: the key of its masks, the seed of its own mask, its words."""

    mask: bytes
    seed: bytes
    words: Vector

    def pack(self) -> bytes:
        return self.mask + self.seed + self.words.astype("<u8").tobytes()

    @classmethod
    def read(cls, content: bytes) -> "_ClientState":
        words = np.frombuffer(content[2 * KEY :], "<u8").astype(np.uint64)
        return cls(content[:KEY], content[KEY : 2 * KEY], words)


class Client:
    """One client in one sum: the `number`-th of a run, with the keys that its sums share.

    Everything that the server sends is checked. A repeated request gets the same bytes again; a
    different request for the same stage is refused, so no two answers can be compared.
    """

    def __init__(self, session: str, number: int, pairs: PairKeys, memory: Memory) -> None:
        self._session = bind_session(session, pairs.name, number)
        self._members, self._at = pairs.identity.members, pairs.identity.place
        self._graph, self._quorum = self._members.graph, quorum(len(self._members))
        self._pairs, self._number, self._memory = pairs, number, memory

    def shares(
        self, values: Callable[[], Vector], begun: Callable[[], None] = lambda: None
    ) -> bytes:
        """Fix the client's words, draw its mask, and share what it comes from among neighbours.

        The seal for a neighbour opens only together with the public key that it comes with. `begun`
        is called once this sum cannot begin again.
        """

        def share() -> tuple[bytes, bytes] | None:
            keys = self._keys()  # first: without them there is nothing to compute words for
            if self._pairs.has_begun(self._number):
                raise RefusedError("this sum is over")
            # The last word counts the clients: a sum whose masks did not cancel shows there.
            words = np.append(values(), np.uint64(1))
            state = _ClientState(new_key(), secrets.token_bytes(KEY), words)
            public = public_key(state.mask)
            holders = self._holders_among(list(keys))
            threshold = self._graph.threshold(self._at)
            # Numbered among all holders, also those that are not there.
            numbers = [k for k, p in enumerate(self._graph.holders(self._at)) if p in keys]
            seeds, halves = (split(s, numbers, threshold) for s in (state.seed, state.mask))
            dealt = []
            for place, number in zip(holders, numbers, strict=True):
                key = sealing_key(keys[place], self._sealed(public, self._at, place))
                sealed = seal(key, seeds[number] + halves[number])
                dealt.append(digest(seeds[number]) + digest(halves[number]) + sealed)
            try:
                self._pairs.begin(self._number)
            except RefusedError:
                if not self._memory.has("shares"):
                    raise
                return None  # another process was first
            begun()
            return public + digest(state.seed) + b"".join(dealt), state.pack()

        return self._once("shares", b"", share)

    def masked(self, request: bytes, release: Callable[[bytes], None] = lambda _: None) -> bytes:
        """Return the client's words under its own mask and one with every neighbour.

        Behind them it tells its neighbours who it was told to have shared, which its masks depend
        on. `release` is called before the words are fixed as sent: there a site enters what they
        cost. It is given the sum's name and this client's fresh key, which was drawn together with
        the noise: if a sum's record is lost, another key and other noise are drawn, and are paid
        for again.
        """

        def cover() -> tuple[bytes, bytes]:
            state, n, keys = self._state(), len(self._members), self._keys()
            shared = read_marks(request[:n], n, self._quorum)
            holders = self._holders_among(shared)
            if len(request) != n + DELIVERED * len(holders):
                raise RefusedError("not a key and a sealed pair of every neighbour")
            given = dict(zip(holders, pieces(request[n:], DELIVERED), strict=True))
            opened = [self._opened(place, keys, piece) for place, piece in given.items()]
            if len({piece[:KEY] for piece in given.values()}) != len(given):
                raise RefusedError("a key appears twice")
            private, near = load_key(state.mask), [p for p in holders if p != self._at]
            agreed = {place: agree(private, load_public(given[place][:KEY])) for place in near}
            release(self._session + public_key(state.mask))
            bound, total = shared_by(self._session, request[:n]), state.words.copy()
            add_mask(total, state.seed, purpose(bound, self._at))
            for place, secret in agreed.items():
                add_pair_mask(total, secret, self._at, place, bound)
            told = told_list(bound)
            tags = (tag(keys[place], told, self._at, place) for place in near)
            reply = total.astype("<u8").tobytes() + b"".join(tags)
            return reply, request[:n] + b"".join(opened)

        return self._once("masked", request, cover)

    def agree(self, request: bytes) -> bytes:
        """Tell every member who shared, and whose masked words came."""

        def consent() -> tuple[bytes, bytes]:
            n, keys = len(self._members), self._keys()
            shared = self._recall("masked").secret[:n]
            before = read_marks(shared, n, self._quorum)
            holders = self._holders_among(read_marks(request[:n], n, self._quorum, before))
            near = [place for place in holders if place != self._at]
            self._check_told(request[n:], near, shared)
            content = agreement(self._session, shared, request[:n])
            tags = (
                tag(keys[place], content, self._at, place) if place in keys else bytes(TAG)
                for place in range(n)
            )
            return b"".join(tags), request[:n]

        return self._once("agree", request, consent)

    def unmask(self, request: bytes) -> bytes:
        """Return, of every neighbour, a share of its seed if its words came, of its key if not.

        Never both: with its seed and its key a client's words could be read.
        """

        def reveal() -> tuple[bytes, bytes]:
            n, secret = len(self._members), self._recall("masked").secret
            agreed = self._recall("agree").secret
            survivors = set(read_marks(agreed, n, self._quorum))
            self._check_agreed(request, secret[:n], agreed)
            holders = self._holders_among(read_marks(secret[:n], n, self._quorum))
            pairs = zip(holders, pieces(secret[n:], 2 * SHARE), strict=True)
            chosen = (pair[:SHARE] if place in survivors else pair[SHARE:] for place, pair in pairs)
            return b"".join(chosen), b""

        reply = self._once("unmask", request, reveal)
        for stage in ("shares", "masked", "agree"):
            self._memory.forget(stage)
        self._pairs.end_sum(self._number)
        return reply

    def _keys(self) -> dict[int, bytes]:
        return self._pairs.of_sum(self._number)

    def _sealed(self, public: bytes, sender: int, receiver: int) -> bytes:
        """Return what a seal is for: one sum, the sender's key there, and two clients."""
        return purpose(digest(b"seal", self._session, public), sender, receiver)

    def _opened(self, place: int, keys: dict[int, bytes], piece: bytes) -> bytes:
        """Open a neighbour's pair of shares, which shows that its public key is its own."""
        public, sealed, pair = piece[:KEY], piece[KEY:], None
        if place in keys:
            key = sealing_key(keys[place], self._sealed(public, place, self._at))
            pair = unseal(key, sealed)
        if pair is None:
            name = self._members.names[place]
            raise MemberError(f"the key of member {name} is not sealed by it for this sum", place)
        return pair

    def _holders_among(self, places: list[int]) -> list[int]:
        """Return the holders of this client's shares that are there: itself, and enough others."""
        there = set(places)
        if self._at not in there:
            raise RefusedError("this client is not in the sum")
        holders = [place for place in self._graph.holders(self._at) if place in there]
        if len(holders) < (needed := self._graph.threshold(self._at)):
            raise RefusedError("too few neighbours", got=len(holders), allowed=f"from {needed}")
        return holders

    def _check_told(self, tags: bytes, neighbours: list[int], shared: bytes) -> None:
        """Refuse survivors whose masks are with others than this client was told.

        The seed of such a neighbour must not be given up: its masks might be with clients that are
        gone, whose keys are given up too.
        """
        if len(tags) != TAG * len(neighbours):
            raise RefusedError("not a tag of every neighbour whose words came")
        content, keys = told_list(shared_by(self._session, shared)), self._keys()
        for place, given in zip(neighbours, pieces(tags, TAG), strict=True):
            if not is_tagged(given, keys[place], content, place, self._at):
                name = self._members.names[place]
                raise MemberError(
                    f"member {name} was told that others take part in this sum", place
                )

    def _check_agreed(self, request: bytes, shared: bytes, agreed: bytes) -> None:
        """Refuse to unmask unless a quorum of members agrees on what this client agreed to.

        Of all members: neighbours alone could be told another story than the rest.
        """
        n, keys = len(self._members), self._keys()
        survivors = read_marks(agreed, n, self._quorum)
        said = read_marks(request[:n], n, self._quorum, survivors)
        if len(request) != n + TAG * len(said):
            raise RefusedError("not a tag of everyone who is said to agree")
        content = agreement(self._session, shared, agreed)
        good = sum(
            place in keys and is_tagged(given, keys[place], content, place, self._at)
            for place, given in zip(said, pieces(request[n:], TAG), strict=True)
        )
        if good < self._quorum:
            raise RefusedError(
                "too few members agree on the survivors of this sum",
                got=good,
                allowed=f"from {self._quorum}",
            )

    def _once(
        self, stage: str, request: bytes, work: Callable[[], tuple[bytes, bytes] | None]
    ) -> bytes:
        """Answer a stage, or repeat the earlier answer."""
        asked = digest(self._session, request)
        if not self._memory.has(stage):
            if (answer := work()) is not None:
                self._memory.keep(stage, StageRecord(asked, *answer))
            # While this process was at work, another may have answered, and the sum's record may
            # have been removed: then this would be a second answer. What begins a sum never comes
            # back, since a number begins once.
            if not self._memory.has("shares"):
                raise RefusedError("this sum is over")
        # Read back: another process may have been first.
        return self._recall(stage, asked).reply

    def _recall(self, stage: str, asked: bytes | None = None) -> StageRecord:
        record = self._memory.recall(stage)
        if record is None:
            raise RefusedError(f"the stage {stage!r} has not taken place")
        if asked not in (None, record.asked):
            raise RefusedError("a client answers every stage of a sum once")
        if not record.reply:
            raise RefusedError("this sum is over")
        return record

    def _state(self) -> _ClientState:
        """Return what the client drew and fixed at the beginning of this sum."""
        return _ClientState.read(self._recall("shares", digest(self._session, b"")).secret)


def bind_session(session: str, run: bytes, number: int) -> bytes:
    """Return what ties everything to one question, as one sum of a run of a list of members."""
    return digest(b"fedeas secure sum 4", session.encode(), run, number.to_bytes(8))


def shared_by(session: bytes, shared: bytes) -> bytes:
    """Return what ties masks to who shared."""
    return digest(b"shared", session, shared)


def told_list(bound: bytes) -> bytes:
    """Return what a client tells with its masked words; `bound` is of who shared."""
    return digest(b"told", bound)


def agreement(session: bytes, shared: bytes, survivors: bytes) -> bytes:
    """Return what clients agree on before they unmask."""
    return digest(b"agree", session, shared, survivors)
