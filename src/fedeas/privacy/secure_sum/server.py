"""The server's half of a secure sum: it relays messages between clients, and adds up."""

from collections import Counter
from collections.abc import Iterable, Mapping

import numpy as np

from fedeas.errors import FedeasError, InfeasibleError
from fedeas.privacy.secure_sum.keys import (
    agree,
    bound_to,
    load_key,
    mask,
    new_key,
    pair_mask,
    public_key,
    purpose,
)
from fedeas.privacy.secure_sum.messages import (
    DEALT,
    FEWEST,
    HASH,
    KEY,
    MOST,
    Roster,
    Words,
    digest,
    marks,
    pieces,
    safe_threshold,
)
from fedeas.privacy.secure_sum.shares import SHARE, join_weighted, weights_at_zero

Replies = Mapping[int, bytes]  # by node
Requests = dict[int, bytes]


class Server:
    """One sum: a method per stage, from the replies to one stage to the requests of the next.

    A client whose reply is missing or malformed is left out, and `left_out` says why. With too few
    clients left there is no sum.
    """

    def __init__(self, session: str, words: int) -> None:
        self._session = digest(session.encode())
        self._words = words + 1  # the last one counts clients
        self.left_out: dict[int, str] = {}

    def roster(self, replies: Replies) -> Requests:
        """Gather the clients' keys and send all of them to each."""
        given = self._sized("keys", replies, 2 * KEY)
        often = Counter(key for reply in given.values() for key in pieces(reply, KEY))
        probe = load_key(new_key())
        sound = {}
        for node, reply in sorted(given.items()):
            keys = pieces(reply, KEY)
            if any(often[key] > 1 for key in keys):
                self.left_out[node] = "keys: a key appears twice"
                continue
            try:
                for key in keys:
                    agree(probe, key)
            except FedeasError as error:
                self.left_out[node] = f"keys: {error}"
                continue
            sound[node] = keys
        if len(sound) < FEWEST:
            raise self._too_few("keys", len(sound), FEWEST)
        if len(sound) > MOST:
            raise InfeasibleError(
                "too many clients for one sum", got=len(sound), allowed=f"up to {MOST}"
            )
        self._nodes = list(sound)
        self._roster = Roster(
            safe_threshold(len(sound)),
            tuple(seal for seal, _ in sound.values()),
            tuple(key for _, key in sound.values()),
        )
        self._bound = bound_to(self._session, self._roster)
        return dict.fromkeys(self._nodes, self._roster.pack())

    def deliver(self, replies: Replies) -> Requests:
        """Send every member what the members sealed for it."""
        n = len(self._roster)
        given = self._staying("shares", replies, HASH + n * DEALT, range(n))
        self._members = sorted(given)
        self._seeds = {place: reply[:HASH] for place, reply in given.items()}
        self._dealt = {place: pieces(reply[HASH:], DEALT) for place, reply in given.items()}
        who = marks(self._members, n)
        return {
            self._nodes[place]: who
            + b"".join(self._dealt[member][place][2 * HASH :] for member in self._members)
            for place in self._members
        }

    def survivors(self, replies: Replies) -> Requests:
        """Add the masked words up and ask for what takes the masks off the sum."""
        given = self._staying("masked", replies, 8 * self._words, self._members)
        self._survivors = sorted(given)
        self._sum = np.zeros(self._words, np.uint64)
        for reply in given.values():
            self._sum += np.frombuffer(reply, "<u8")
        who = marks(self._survivors, len(self._roster))
        return {self._nodes[place]: who for place in self._survivors}

    def total(self, replies: Replies) -> tuple[Words, list[int]]:
        """Return the sum, and the nodes that it is over."""
        given = self._staying("unmask", replies, SHARE * len(self._members), self._survivors)
        came = set(self._survivors)
        total = self._sum.copy()
        weights: dict[tuple[int, ...], dict[int, int]] = {}
        for index, member in enumerate(self._members):
            hashed = slice(0, HASH) if member in came else slice(HASH, 2 * HASH)
            # A share that is not the one dealt counts as missing.
            shares = {
                place: share
                for place, reply in given.items()
                if digest(share := reply[index * SHARE : (index + 1) * SHARE])
                == self._dealt[member][place][hashed]
            }
            if len(shares) < self._roster.threshold:
                raise self._too_few(
                    f"shares of client {self._nodes[member]}", len(shares), self._roster.threshold
                )
            chosen = tuple(sorted(shares)[: self._roster.threshold])
            if chosen not in weights:
                weights[chosen] = weights_at_zero(chosen)
            total -= self._mask_of(member, join_weighted(shares, weights[chosen]))
        if int(total[-1]) != len(came):
            raise InfeasibleError(
                "the masks of a secure sum do not cancel: a client did not follow the protocol"
            )
        return total[:-1], [self._nodes[place] for place in self._survivors]

    def _mask_of(self, member: int, secret: bytes) -> Words:
        """Return what a member leaves in the sum: its own mask, or those it had with others."""
        if member in self._survivors:
            if digest(secret) != self._seeds[member]:
                raise self._unshared(member)
            return mask(secret, purpose(self._bound, member), self._words)
        if public_key(secret) != self._roster.masks[member]:
            raise self._unshared(member)
        key, left = load_key(secret), np.zeros(self._words, np.uint64)
        for place in self._survivors:
            # From the side of the client that is gone; the sum contains the other side.
            left -= pair_mask(key, self._roster, member, place, self._bound, self._words)
        return left

    def _unshared(self, member: int) -> InfeasibleError:
        return InfeasibleError(
            f"client {self._nodes[member]} shared something other than its secret",
            fix="run the sum without it",
        )

    def _staying(
        self, stage: str, replies: Replies, size: int, asked: Iterable[int]
    ) -> dict[int, bytes]:
        """Return good replies by place, of those asked; enough clients must have stayed."""
        given = self._sized(stage, replies, size)
        nodes = {place: self._nodes[place] for place in asked}
        found = {place: given[node] for place, node in nodes.items() if node in given}
        if len(found) < self._roster.threshold:
            raise self._too_few(stage, len(found), self._roster.threshold)
        return found

    def _sized(self, stage: str, replies: Replies, size: int) -> dict[int, bytes]:
        found = {}
        for node, reply in replies.items():
            if isinstance(reply, bytes) and len(reply) == size:
                found[node] = reply
            else:
                self.left_out[node] = f"{stage}: not a reply of {size} bytes"
        return found

    def _too_few(self, stage: str, found: int, needed: int) -> InfeasibleError:
        first = next((f": {why}" for why in self.left_out.values()), "")
        return InfeasibleError(
            f"too few clients for a secure sum at {stage}{first}",
            got=found,
            allowed=f"from {needed}",
            fix="start more clients, or wait longer for them",
        )
