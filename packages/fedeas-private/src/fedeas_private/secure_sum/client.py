"""The client's half of a secure sum: five stages, each answered once.

The server is not trusted. It cannot choose a client's neighbours, thresholds or the keys of others:
they follow from the list of members. What clients are told about who takes part enters every key,
so clients that were told different things share no masks. Before a client helps to unmask
anything, it holds the signatures of a quorum of members on exactly what it was told itself.
"""

import secrets
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from fedeas_private.secure_sum.identity import Identity, quorum
from fedeas_private.secure_sum.keys import (
    add_mask,
    add_pair_mask,
    agree,
    identity_of,
    is_signed,
    load_key,
    new_key,
    public_key,
    purpose,
    seal,
    sign,
    split,
    unseal,
)
from fedeas_private.secure_sum.memory import Memory, StageRecord
from fedeas_private.secure_sum.messages import (
    KEY,
    SEALED,
    SHARE,
    SIGNATURE,
    SIGNED_KEYS,
    RefusedError,
    Vector,
    digest,
    pieces,
    read_marks,
)


class _ClientState(NamedTuple):
    """A client's secrets: two private keys, the seed of its own mask, its words."""

    seal: bytes
    mask: bytes
    seed: bytes
    words: Vector

    def pack(self) -> bytes:
        return self.seal + self.mask + self.seed + self.words.astype("<u8").tobytes()

    @classmethod
    def read(cls, content: bytes) -> "_ClientState":
        words = np.frombuffer(content[3 * KEY :], "<u8").astype(np.uint64)
        return cls(content[:KEY], content[KEY : 2 * KEY], content[2 * KEY : 3 * KEY], words)

    def public(self) -> bytes:
        return public_key(self.seal) + public_key(self.mask)


class Client:
    """One client in one sum.

    Everything that the server sends is checked. A repeated request gets the same bytes again; a
    different request for the same stage is refused, so no two answers can be compared.
    """

    def __init__(self, session: str, identity: Identity, memory: Memory) -> None:
        self._session = bind_session(session, identity.members.digest)
        self._identity, self._members, self._at = identity, identity.members, identity.place
        self._graph, self._quorum = identity.members.graph, quorum(len(identity.members))
        self._memory = memory

    def keys(self, values: Callable[[], Vector]) -> bytes:
        """Fix the client's words, draw its keys and return the public ones, signed."""

        def begin() -> tuple[bytes, bytes]:
            # The last word counts the clients: a sum whose masks did not cancel shows there.
            words = np.append(values(), np.uint64(1))
            state = _ClientState(new_key(), new_key(), secrets.token_bytes(KEY), words)
            return self._introduce(state), state.pack()

        return self._once("keys", b"", begin)

    def _introduce(self, state: _ClientState) -> bytes:
        identity, keys = self._identity.private, state.public()
        return identity_of(identity) + keys + sign(identity, signed_keys(self._session, keys))

    def shares(self, request: bytes) -> bytes:
        """Share the key of the masks and the seed of the own mask among the neighbours."""

        def share() -> tuple[bytes, bytes]:
            state, n = self._state(), len(self._members)
            _, keys = self._read_keys(request, state)
            bound = began_by(self._session, request[:n])
            holders = [place for place in self._graph.holders(self._at) if place in keys]
            threshold = self._graph.threshold(self._at)
            seeds, halves = (split(s, holders, threshold) for s in (state.seed, state.mask))
            seal_key, mask_key, dealt = load_key(state.seal), load_key(state.mask), []
            for place in holders:
                agree(mask_key, keys[place][KEY:])  # refused now rather than when it is used
                secret = agree(seal_key, keys[place][:KEY])
                pair = seeds[place] + halves[place]
                sealed = seal(secret, purpose(bound, self._at, place), pair)
                dealt.append(digest(seeds[place]) + digest(halves[place]) + sealed)
            return digest(state.seed) + b"".join(dealt), request

        return self._once("shares", request, share)

    def masked(self, request: bytes, release: Callable[[bytes], None] = lambda _: None) -> bytes:
        """Return the client's words under its own mask and one with every neighbour, signed.

        What is signed is who it was told to have shared, which its masks depend on. `release` is
        called before the words are fixed as sent: there a site enters what they cost. It is given
        the sum's name and this client's fresh keys, which were drawn together with the noise: if a
        sum's record is lost, other keys and other noise are drawn, and are paid for again.
        """

        def cover() -> tuple[bytes, bytes]:
            state, n, began = self._state(), len(self._members), self._recall("shares").secret
            places, keys = self._read_keys(began, state, checked=True)
            shared = read_marks(request[:n], n, self._quorum, places)
            holders = self._holders_among(shared)
            if len(request) != n + SEALED * len(holders):
                raise RefusedError("not a sealed pair of every neighbour")
            first = began_by(self._session, began[:n])
            bound = shared_by(first, request[:n])
            release(self._session + state.public())
            total = state.words.copy()
            add_mask(total, state.seed, purpose(bound, self._at))
            seal_key, mask_key, opened = load_key(state.seal), load_key(state.mask), []
            for place, sealed in zip(holders, pieces(request[n:], SEALED), strict=True):
                secret = agree(seal_key, keys[place][:KEY])
                pair = unseal(secret, purpose(first, place, self._at), sealed)
                # One neighbour's broken seal must not keep this client from the sum.
                opened.append(pair or bytes(2 * SHARE))
                if place != self._at:
                    add_pair_mask(total, mask_key, keys[place][KEY:], self._at, place, bound)
            signature = sign(self._identity.private, told_list(bound))
            return total.astype("<u8").tobytes() + signature, request[:n] + b"".join(opened)

        return self._once("masked", request, cover)

    def agree(self, request: bytes) -> bytes:
        """Sign who began, who shared, and whose masked words came."""

        def consent() -> tuple[bytes, bytes]:
            n = len(self._members)
            shared = self._recall("masked").secret[:n]
            before = read_marks(shared, n, self._quorum)
            holders = self._holders_among(read_marks(request[:n], n, self._quorum, before))
            near = [place for place in holders if place != self._at]
            self._check_told(request[n:], near, shared)
            return sign(self._identity.private, self._agreement(shared, request[:n])), request[:n]

        return self._once("agree", request, consent)

    def unmask(self, request: bytes) -> bytes:
        """Return, of every neighbour, a share of its seed if its words came, of its key if not.

        Never both: with its seed and its key a client's words could be read.
        """

        def reveal() -> tuple[bytes, bytes]:
            n, secret = len(self._members), self._recall("masked").secret
            agreed = self._recall("agree").secret
            survivors = set(read_marks(agreed, n, self._quorum))
            self._check_signatures(request, secret[:n], agreed)
            holders = self._holders_among(read_marks(secret[:n], n, self._quorum))
            pairs = zip(holders, pieces(secret[n:], 2 * SHARE), strict=True)
            chosen = (pair[:SHARE] if place in survivors else pair[SHARE:] for place, pair in pairs)
            return b"".join(chosen), b""

        reply = self._once("unmask", request, reveal)
        for stage in ("keys", "shares", "masked", "agree"):
            self._memory.forget(stage)
        return reply

    def _read_keys(
        self, request: bytes, state: _ClientState, *, checked: bool = False
    ) -> tuple[list[int], dict[int, bytes]]:
        """Read who began, and the keys of this client's neighbours among them, each signed.

        What comes from this client's own record was `checked` before.
        """
        n = len(self._members)
        began = read_marks(request[:n], n, self._quorum)
        neighbours = [place for place in self._holders_among(began) if place != self._at]
        if len(request) != n + SIGNED_KEYS * len(neighbours):
            raise RefusedError("not the keys of every neighbour")
        all_keys = {self._at: state.public()}
        for place, piece in zip(neighbours, pieces(request[n:], SIGNED_KEYS), strict=True):
            keys, signature = piece[: 2 * KEY], piece[2 * KEY :]
            content = signed_keys(self._session, keys)
            if not checked and not is_signed(self._members.keys[place], signature, content):
                name = self._members.names[place]
                raise RefusedError(f"the keys of member {name} are not signed by it for this sum")
            all_keys[place] = keys
        every = [key for keys in all_keys.values() for key in pieces(keys, KEY)]
        if len(set(every)) != len(every):
            raise RefusedError("a key appears twice")
        return began, all_keys

    def _holders_among(self, places: list[int]) -> list[int]:
        """Return the holders of this client's shares that are there: itself, and enough others."""
        there = set(places)
        if self._at not in there:
            raise RefusedError("this client is not in the sum")
        holders = [place for place in self._graph.holders(self._at) if place in there]
        if len(holders) < (needed := self._graph.threshold(self._at)):
            raise RefusedError("too few neighbours", got=len(holders), allowed=f"from {needed}")
        return holders

    def _agreement(self, shared: bytes, survivors: bytes) -> bytes:
        began = self._recall("shares").secret[: len(self._members)]
        return agreement(self._session, began, shared, survivors)

    def _check_told(self, signatures: bytes, neighbours: list[int], shared: bytes) -> None:
        """Refuse survivors whose masks are with others than this client was told.

        The seed of such a neighbour must not be given up: its masks might be with clients that are
        gone, whose keys are given up too.
        """
        if len(signatures) != SIGNATURE * len(neighbours):
            raise RefusedError("not a signature of every neighbour whose words came")
        n = len(self._members)
        first = began_by(self._session, self._recall("shares").secret[:n])
        content = told_list(shared_by(first, shared))
        for place, signature in zip(neighbours, pieces(signatures, SIGNATURE), strict=True):
            if not is_signed(self._members.keys[place], signature, content):
                name = self._members.names[place]
                raise RefusedError(f"member {name} was told that others take part in this sum")

    def _check_signatures(self, request: bytes, shared: bytes, agreed: bytes) -> None:
        """Refuse to unmask unless a quorum of members signed what this client signed.

        Of all members: neighbours alone could be told another story than the rest.
        """
        n = len(self._members)
        survivors = read_marks(agreed, n, self._quorum)
        signers = read_marks(request[:n], n, self._quorum, survivors)
        if len(request) != n + SIGNATURE * len(signers):
            raise RefusedError("not a signature of everyone who is said to agree")
        content = self._agreement(shared, agreed)
        for place, signature in zip(signers, pieces(request[n:], SIGNATURE), strict=True):
            if not is_signed(self._members.keys[place], signature, content):
                name = self._members.names[place]
                raise RefusedError(f"member {name} did not sign the same survivors of this sum")

    def _once(self, stage: str, request: bytes, work: Callable[[], tuple[bytes, bytes]]) -> bytes:
        """Answer a stage, or repeat the earlier answer."""
        asked = digest(self._session, request)
        if self._memory.recall(stage) is None:
            self._memory.keep(stage, StageRecord(asked, *work()))
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
        """Return what the client drew and fixed at the beginning of this session."""
        return _ClientState.read(self._recall("keys", digest(self._session, b"")).secret)


def bind_session(session: str, members: bytes) -> bytes:
    """Return what ties everything to one question among one list of members."""
    return digest(b"fedeas secure sum 2", session.encode(), members)


def signed_keys(session: bytes, keys: bytes) -> bytes:
    """Return what a client signs at the beginning."""
    return digest(b"keys", session, keys)


def began_by(session: bytes, began: bytes) -> bytes:
    """Return what ties the seals of shares to who began."""
    return digest(b"began", session, began)


def shared_by(first: bytes, shared: bytes) -> bytes:
    """Return what ties masks to who shared, and by `began_by` to who began."""
    return digest(b"shared", first, shared)


def told_list(bound: bytes) -> bytes:
    """Return what a client signs with its masked words; `bound` is of who began and shared."""
    return digest(b"told", bound)


def agreement(session: bytes, began: bytes, shared: bytes, survivors: bytes) -> bytes:
    """Return what clients sign before they unmask."""
    return digest(b"agree", session, began, shared, survivors)
