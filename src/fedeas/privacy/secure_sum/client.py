"""The client's half of a secure sum: four stages, each answered once."""

import secrets
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from fedeas.privacy.secure_sum.keys import (
    agree,
    bound_to,
    load_key,
    mask,
    new_key,
    pair_mask,
    public_key,
    purpose,
    seal,
    unseal,
)
from fedeas.privacy.secure_sum.memory import Memory, StageRecord
from fedeas.privacy.secure_sum.messages import (
    KEY,
    SEALED,
    RefusedError,
    Roster,
    Words,
    digest,
    pieces,
)
from fedeas.privacy.secure_sum.shares import SHARE, split


class _Own(NamedTuple):
    """A client's secrets: two private keys, the seed of its own mask, its words."""

    seal: bytes
    mask: bytes
    seed: bytes
    words: Words

    def pack(self) -> bytes:
        return self.seal + self.mask + self.seed + self.words.astype("<u8").tobytes()

    @classmethod
    def read(cls, content: bytes) -> "_Own":
        words = np.frombuffer(content[3 * KEY :], "<u8").astype(np.uint64)
        return cls(content[:KEY], content[KEY : 2 * KEY], content[2 * KEY : 3 * KEY], words)

    def public(self) -> bytes:
        return public_key(self.seal) + public_key(self.mask)


class Client:
    """One client in one sum.

    Everything that the server sends is checked. A repeated request gets the same bytes again; a
    different request for the same stage is refused, so no two answers can be compared.
    """

    def __init__(self, session: str, memory: Memory) -> None:
        self._session = digest(session.encode())
        self._memory = memory

    def keys(self, values: Callable[[], Words]) -> bytes:
        """Fix the client's words, draw its keys and return the public ones."""

        def begin() -> tuple[bytes, bytes]:
            # The last word counts the clients: a sum whose masks did not cancel shows there.
            words = np.append(values(), np.uint64(1))
            own = _Own(new_key(), new_key(), secrets.token_bytes(KEY), words)
            return own.public(), own.pack()

        return self._once("keys", b"", begin)

    def shares(self, request: bytes) -> bytes:
        """Share the key of the masks and the seed of the own mask among the roster."""

        def share() -> tuple[bytes, bytes]:
            own, roster = self._own(), Roster.read(request)
            at, bound = _place(own, roster), bound_to(self._session, roster)
            seeds = split(own.seed, len(roster), roster.threshold)
            keys = split(own.mask, len(roster), roster.threshold)
            seal_key, mask_key, dealt = load_key(own.seal), load_key(own.mask), []
            for place, (of_seed, of_key) in enumerate(zip(seeds, keys, strict=True)):
                agree(mask_key, roster.masks[place])  # refused now rather than when it is used
                secret = agree(seal_key, roster.seals[place])
                sealed = seal(secret, purpose(bound, at, place), of_seed + of_key)
                dealt.append(digest(of_seed) + digest(of_key) + sealed)
            return digest(own.seed) + b"".join(dealt), request

        return self._once("shares", request, share)

    def masked(self, request: bytes) -> bytes:
        """Return the client's words under its own mask and one with every other member."""

        def cover() -> tuple[bytes, bytes]:
            own, roster = self._own(), self._roster()
            at, bound, n = _place(own, roster), bound_to(self._session, roster), len(roster)
            members = roster.members(request[:n])
            if at not in members:
                raise RefusedError("this client is not in the sum")
            if len(request) != n + SEALED * len(members):
                raise RefusedError("not a sealed pair of every member")
            total = own.words + mask(own.seed, purpose(bound, at), len(own.words))
            seal_key, mask_key, opened = load_key(own.seal), load_key(own.mask), []
            for place, sealed in zip(members, pieces(request[n:], SEALED), strict=True):
                secret = agree(seal_key, roster.seals[place])
                found = unseal(secret, purpose(bound, place, at), sealed)
                # One member's broken seal must not keep this client from the sum.
                opened.append(found or bytes(2 * SHARE))
                if place != at:
                    total += pair_mask(mask_key, roster, at, place, bound, len(own.words))
            return total.astype("<u8").tobytes(), request[:n] + b"".join(opened)

        return self._once("masked", request, cover)

    def unmask(self, request: bytes) -> bytes:
        """Return, of every member, a share of its seed if its words came, of its key if not.

        Never both: with its seed and its key a client's words could be read.
        """

        def reveal() -> tuple[bytes, bytes]:
            own, roster = self._own(), self._roster()
            held = self._recall("masked").secret
            members, survivors = roster.members(held[: len(roster)]), roster.members(request)
            if _place(own, roster) not in survivors or not set(survivors) <= set(members):
                raise RefusedError("not the clients that this one masked its words with")
            pairs = zip(members, pieces(held[len(roster) :], 2 * SHARE), strict=True)
            came = set(survivors)
            chosen = (pair[:SHARE] if place in came else pair[SHARE:] for place, pair in pairs)
            return b"".join(chosen), b""

        reply = self._once("unmask", request, reveal)
        for stage in ("keys", "shares", "masked"):
            self._memory.forget(stage)
        return reply

    def _once(self, stage: str, request: bytes, work: Callable[[], tuple[bytes, bytes]]) -> bytes:
        """Answer a stage, or repeat the earlier answer."""
        asked = digest(self._session, request)
        if self._memory.recall(stage) is None:
            self._memory.keep(stage, StageRecord(asked, *work()))
        # Read back: another process may have been first.
        return self._recall(stage, asked).reply

    def _recall(self, stage: str, asked: bytes | None = None) -> StageRecord:
        said = self._memory.recall(stage)
        if said is None:
            raise RefusedError(f"the stage {stage!r} has not taken place")
        if asked not in (None, said.asked):
            raise RefusedError("a client takes part in one sum of a run, and answers a stage once")
        if not said.reply:
            raise RefusedError("this client's sum of the run is over")
        return said

    def _own(self) -> _Own:
        """Return what the client drew and fixed at the beginning of this session."""
        return _Own.read(self._recall("keys", digest(self._session, b"")).secret)

    def _roster(self) -> Roster:
        return Roster.read(self._recall("shares").secret)


def _place(own: _Own, roster: Roster) -> int:
    """Return a client's place in the roster, by its two keys."""
    public = own.public()
    places = zip(roster.seals, roster.masks, strict=True)
    found = [place for place, (seal, mask) in enumerate(places) if seal + mask == public]
    if len(found) != 1:
        raise RefusedError("this client is not in the roster")
    return found[0]
