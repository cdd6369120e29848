"""Keys, signatures, masks and seals of the `cryptography` package, and Shamir's secret sharing."""

import hmac
import math
import secrets
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from fedeas.errors import InputError
from fedeas_private.secure_sum.messages import KEY, SECRET, SHARE, TAG, RefusedError, Vector, digest

_NONCE = bytes(12)  # every key below is derived for a single message or mask
_CHUNK = 1 << 15  # words of a mask at a time: they stay in the processor's cache
_ZEROS = memoryview(bytes(8 * _CHUNK))
_PRIME = 2**256 + 297  # the smallest above 2**256, so that every secret is a number of the field


def new_identity() -> bytes:
    """Return a private key to sign with."""
    return Ed25519PrivateKey.generate().private_bytes_raw()


def identity_of(private: bytes) -> bytes:
    """Return the public key that signatures are checked with."""
    return Ed25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()


def sign(private: bytes, content: bytes) -> bytes:
    """Sign content."""
    return Ed25519PrivateKey.from_private_bytes(private).sign(content)


def is_signed(public: bytes, signature: bytes, content: bytes) -> bool:
    """Tell whether the owner of a key signed this."""
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, content)
    except (InvalidSignature, ValueError):
        return False
    return True


def new_key() -> bytes:
    """Return a private key to agree on secrets with."""
    return X25519PrivateKey.generate().private_bytes_raw()


def load_key(private: bytes) -> X25519PrivateKey:
    """Return a private key ready for use."""
    return X25519PrivateKey.from_private_bytes(private)


def public_key(private: bytes) -> bytes:
    """Return the public key of a private one."""
    return load_key(private).public_key().public_bytes_raw()


def agree(private: X25519PrivateKey, public: bytes) -> bytes:
    """Return the secret of two parties; a key that makes it the same for everybody is refused."""
    try:
        return private.exchange(X25519PublicKey.from_public_bytes(public))
    except ValueError:  # the result is all zeros
        raise RefusedError("a public key of low order") from None


def add_mask(total: Vector, secret: bytes, purpose: bytes, sign: int = 1) -> None:
    """Add random words to a sum, or take them away; the same for everyone who has the secret.

    A chunk at a time: of a million words no second copy is made.
    """
    cipher = Cipher(algorithms.ChaCha20(derive(secret, b"mask", purpose), bytes(16)), mode=None)
    stream, drawn = cipher.encryptor(), np.empty(min(len(total), _CHUNK), "<u8")
    for start in range(0, len(total), _CHUNK):
        part = total[start : start + _CHUNK]
        stream.update_into(_ZEROS[: 8 * len(part)], drawn[: len(part)].view(np.uint8).data)
        if sign > 0:
            part += drawn[: len(part)]
        else:
            part -= drawn[: len(part)]


def add_pair_mask(total: Vector, secret: bytes, place: int, other: int, bound: bytes) -> None:
    """Add the mask of two clients: what the one at the lower place adds, the other takes away."""
    add_mask(total, secret, purpose(bound, *sorted((place, other))), 1 if place < other else -1)


def seal(key: bytes, content: bytes) -> bytes:
    """Encrypt and authenticate what one client sends another through the server."""
    return ChaCha20Poly1305(key).encrypt(_NONCE, content, None)


def unseal(key: bytes, sealed: bytes) -> bytes | None:
    """Return what was sealed, or None if it was altered."""
    try:
        return ChaCha20Poly1305(key).decrypt(_NONCE, sealed, None)
    except InvalidTag:
        return None


def tag(key: bytes, content: bytes, sender: int, receiver: int) -> bytes:
    """Return what tells the receiver, who has the key as well, that the sender says this."""
    said = b"tag" + content + sender.to_bytes(4) + receiver.to_bytes(4)
    return hmac.digest(key, said, "sha256")[:TAG]


def is_tagged(given: bytes, key: bytes, content: bytes, sender: int, receiver: int) -> bool:
    """Tell whether the sender says this to the receiver."""
    return hmac.compare_digest(given, tag(key, content, sender, receiver))


def sealing_key(key: bytes, purpose: bytes) -> bytes:
    """Return the key of one seal, from the key of two members."""
    return hmac.digest(key, b"seal" + purpose, "sha256")


def next_key(key: bytes, steps: int = 1) -> bytes:
    """Return a key that follows another, which cannot be computed back from it."""
    for _ in range(steps):
        key = hmac.digest(key, b"next", "sha256")
    return key


def purpose(bound: bytes, *places: int) -> bytes:
    """Return what a key is for: one sum, and the places of one client or of two."""
    return digest(bound, *(place.to_bytes(4) for place in places))


def derive(secret: bytes, *purpose: bytes) -> bytes:
    """Return a key for one purpose: HKDF-SHA256 of RFC 5869, without salt."""
    drawn = hmac.digest(bytes(KEY), secret, "sha256")
    return hmac.digest(drawn, digest(b"fedeas secure sum 3", *purpose) + b"\1", "sha256")


def split(secret: bytes, parties: Iterable[int], threshold: int) -> dict[int, bytes]:
    """Share 32 bytes among numbered parties: points of a random polynomial through the secret.

    >>> parts = split(bytes(range(32)), parties=range(5), threshold=3)
    >>> join({k: parts[k] for k in (4, 0, 2)}) == bytes(range(32))
    True
    """
    places = list(parties)
    if len(secret) != SECRET:
        raise InputError("not a secret to share", got=f"{len(secret)} bytes", allowed="32 bytes")
    if not 1 <= threshold <= len(places):
        raise InputError("threshold out of range", got=threshold, allowed=f"1 to {len(places)}")
    # From the operating system: anyone who can repeat these numbers can read the secret.
    higher = [secrets.randbelow(_PRIME) for _ in range(threshold - 1)]
    polynomial = [*higher, int.from_bytes(secret)]
    return {party: _value(polynomial, party + 1).to_bytes(SHARE) for party in places}


def join(shares: Mapping[int, bytes]) -> bytes:
    """Return the secret of these shares; too few, or wrong ones, give something else."""
    weights = weights_at_zero(sorted(shares))
    return join_weighted(shares, weights)


def weights_at_zero(parties: Sequence[int]) -> dict[int, int]:
    """Return Lagrange's weights: a polynomial's value at 0 from its values at the parties.

    Of x they are the product of all points, divided by x and by its differences to the others.
    """
    points = np.array(parties, np.int64) + 1
    factors = np.ones((len(points), -(-len(points) // 4) * 4), np.int64)
    factors[:, : len(points)] = points - points[:, None]
    np.fill_diagonal(factors, points)
    # Four factors of up to 2**13 fit into a word.
    rows = factors.reshape(len(points), -1, 4).prod(axis=2).tolist()
    below = [math.prod(row) % _PRIME for row in rows]
    whole = math.prod(points.tolist()) % _PRIME
    return {
        party: whole * inverse % _PRIME
        for party, inverse in zip(parties, _inverses(below), strict=True)
    }


def _inverses(values: Sequence[int]) -> list[int]:
    """Invert numbers of the field together: only one of them takes long."""
    before = [1]
    for value in values:
        before.append(before[-1] * value % _PRIME)
    rest, found = pow(before.pop(), -1, _PRIME), []
    for value, product in zip(reversed(values), reversed(before), strict=True):
        found.append(rest * product % _PRIME)
        rest = rest * value % _PRIME
    return found[::-1]


def join_weighted(shares: Mapping[int, bytes], weights: Mapping[int, int]) -> bytes:
    """Join shares of the parties that the weights are of."""
    value = sum(weights[party] * int.from_bytes(shares[party]) for party in weights) % _PRIME
    return (value % 2**256).to_bytes(SECRET)


def _value(polynomial: Sequence[int], at: int) -> int:
    """Evaluate a polynomial, highest power first; points are small, so one division is enough."""
    value = 0
    for coefficient in polynomial:
        value = value * at + coefficient
    return value % _PRIME
