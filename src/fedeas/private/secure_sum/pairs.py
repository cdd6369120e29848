"""The keys that every two members share: agreed on once, for all sums of a run.

Every member draws a key and signs it; with everybody's, each computes a key with each. They seal
and authenticate what members send each other in a sum, in place of a signature for every message.
What hides the words of a sum is drawn anew for that sum and does not come from them.

A sum has a number, and each number its own keys: hashes of the ones before, which are then gone. So
sums are not begun in another order, and nobody who copies a site's disk opens an earlier sum. Of a
number one sum begins, once: a client keeps no list of the sums that are over.
"""

from contextlib import suppress

from fedeas.private.secure_sum.identity import Identity, quorum
from fedeas.private.secure_sum.keys import (
    agree,
    derive,
    identity_of,
    is_signed,
    load_key,
    load_public,
    new_key,
    next_key,
    public_key,
    purpose,
    sign,
)
from fedeas.private.secure_sum.memory import Memory, StageRecord
from fedeas.private.secure_sum.messages import (
    HASH,
    KEY,
    SIGNED_KEY,
    NoKeysError,
    RefusedError,
    digest,
    pieces,
    read_marks,
)

MOST_SKIPPED = 1000  # sums of a run that a client may have missed: each takes a hash a member
_NUMBER = 8  # bytes of a sum's number
_OPEN, _BEGUN = b"\0", b"\1"  # whether the sum of that number has begun
_NOBODY = bytes(KEY)  # in the place of a member that did not take part


class PairKeys:
    """One client's keys with the other members."""

    def __init__(self, name: str, identity: Identity, memory: Memory) -> None:
        self.identity, self.name = identity, bind_run(name, identity.members.digest)
        self._members, self._at, self._memory = identity.members, identity.place, memory

    def keys(self) -> bytes:
        """Draw a key and return its public half, signed."""
        if not self._memory.has("run"):
            private, identity = new_key(), self.identity.private
            public = public_key(private)
            reply = identity_of(identity) + public + sign(identity, signed_key(self.name, public))
            self._memory.keep("run", StageRecord(self.name, reply, private))
        return self._record().reply  # read back: another process may have been first

    def meet(self, request: bytes) -> bytes:
        """Compute a key with everybody who began; the private key that they come from goes."""
        asked = digest(self.name, request)
        with self._memory.locked():
            record = self._record()
            if len(record.secret) == KEY:  # nobody was met yet
                keys = b"".join(self._agreed(request, record.secret, record.reply[KEY:]))
                record = record._replace(secret=asked + bytes(_NUMBER) + _OPEN + keys)
                self._memory.replace("run", record)
        if record.secret[:HASH] != asked:
            raise RefusedError("a client meets the others of a run once")
        return asked

    def begin(self, number: int) -> None:
        """Note that a sum has begun, before anything of it is kept or sent: it never does again.

        A client that is killed between this and keeping its reply is left out of that one sum.
        """
        with self._memory.locked():
            record = self._record()
            at = HASH + _NUMBER
            if record.secret[HASH:at] != number.to_bytes(_NUMBER) or self.has_begun(number):
                raise RefusedError("this sum is over")
            later = record.secret[:at] + _BEGUN + record.secret[at + 1 :]
            self._memory.replace("run", record._replace(secret=later))

    def has_begun(self, number: int) -> bool:
        """Tell whether a sum of that number has begun here."""
        secret = self._record().secret
        first, flag = secret[HASH : HASH + _NUMBER], secret[HASH + _NUMBER : HASH + _NUMBER + 1]
        return len(secret) > KEY and first == number.to_bytes(_NUMBER) and flag == _BEGUN

    def of_sum(self, number: int) -> dict[int, bytes]:
        """Return the keys of a sum, by member; those of earlier ones are forgotten."""
        with self._memory.locked():
            record = self._record()
            if len(record.secret) == KEY:
                raise NoKeysError("this site has not met the others of this run")
            asked, rest = record.secret[:HASH], record.secret[HASH:]
            first, keys = int.from_bytes(rest[:_NUMBER]), pieces(rest[_NUMBER + 1 :], KEY)
            if number < first:
                raise RefusedError("not the next sum of this run", got=number)
            if number > first + MOST_SKIPPED:  # then new keys are agreed on
                raise NoKeysError("not the next sum of this run, by far", got=number)
            if number > first:
                keys = [k if k == _NOBODY else next_key(k, number - first) for k in keys]
                later = asked + number.to_bytes(_NUMBER) + _OPEN + b"".join(keys)
                self._memory.replace("run", record._replace(secret=later))
        return {place: key for place, key in enumerate(keys) if key != _NOBODY}

    def end_sum(self, number: int) -> None:
        """Forget the keys of a sum."""
        with suppress(RefusedError):  # they are gone already
            self.of_sum(number + 1)

    def _agreed(self, request: bytes, private: bytes, own: bytes) -> list[bytes]:
        """Read who began, check everybody's signature, and return a key with each."""
        n = len(self._members)
        began = read_marks(request[:n], n, quorum(n))
        if len(request) != n + SIGNED_KEY * len(began):
            raise RefusedError("not the keys of everybody who began")
        given = dict(zip(began, pieces(request[n:], SIGNED_KEY), strict=True))
        if given.get(self._at) != own:
            raise RefusedError("this client is not in the run")
        if len({piece[:KEY] for piece in given.values()}) != len(given):
            raise RefusedError("a key appears twice")
        mine, found = load_key(private), [_NOBODY] * n
        for place, piece in given.items():
            public, signature = piece[:KEY], piece[KEY:]
            if not is_signed(self._members.keys[place], signature, signed_key(self.name, public)):
                name = self._members.names[place]
                raise RefusedError(f"the key of member {name} is not signed by it for this run")
            # With itself too: it seals a share for itself.
            both = sorted(((self._at, own[:KEY]), (place, public)))
            about = purpose(digest(self.name, *(key for _, key in both)), *(p for p, _ in both))
            found[place] = derive(agree(mine, load_public(public)), b"pair", about)
        return found

    def _record(self) -> StageRecord:
        record = self._memory.recall("run")
        # By another list of members a key would be taken for somebody else's.
        if record is None or record.asked != self.name:
            raise NoKeysError("this site has no keys of this run with these members")
        return record


def bind_run(name: str, members: bytes) -> bytes:
    """Return what ties the keys of a run to it and to one list of members."""
    return digest(b"fedeas secure run 4", name.encode(), members)


def signed_key(run: bytes, public: bytes) -> bytes:
    """Return what a client signs at the beginning of a run."""
    return digest(b"key", run, public)
