"""Keys, signatures, masks and seals of the `cryptography` package, and Shamir's secret sharing."""

import hmac
import math
import secrets
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

import numpy as np
from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from fedeas.errors import InputError
from fedeas.private.secure_sum.messages import KEY, SECRET, SHARE, TAG, RefusedError, Vector, digest

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


def load_public(public: bytes) -> X25519PublicKey:
    """Return a public key ready for use."""
    return X25519PublicKey.from_public_bytes(public)


def agree(private: X25519PrivateKey, public: X25519PublicKey) -> bytes:
    """Return the secret of two parties; a key that makes it the same for everybody is refused."""
    try:
        return private.exchange(public)
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
    return hmac.digest(drawn, digest(b"fedeas secure sum 4", *purpose) + b"\1", "sha256")


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
    """Return the secret of these shares; too few, or wrong ones, give something else.

    The polynomial's value at 0, by Lagrange. With values at all of 1 to m that at x would have the
    weight (-1)**(x-1) m!/(x!(m-x)!); for every gap g it is times (g-x)/g. Few are missing, so few
    factors are left of the hundreds in a product over all differences of points.
    """
    points = np.array(sorted(shares)) + 1
    most = int(points[-1])
    gaps = np.setdiff1d(np.arange(1, most), points, assume_unique=True)
    # As many factors at a time as fit into a word.
    starts = np.arange(0, len(gaps), 62 // most.bit_length())
    factors = np.multiply.reduceat(gaps - points[:, None], starts, axis=1).tolist()
    weights = _weights_up_to(most)
    value: int = sum(
        weights[x] * math.prod(row) * int.from_bytes(shares[x - 1])
        for x, row in zip(points.tolist(), factors, strict=True)
    )
    value = value * pow(math.prod(gaps.tolist()), -1, _PRIME) % _PRIME
    return (value % 2**256).to_bytes(SECRET)


@lru_cache(maxsize=512)
def _weights_up_to(most: int) -> list[int]:
    """Return what a polynomial's values at 1 to `most` count for in that at 0."""
    return [(-1) ** (x - 1) * math.comb(most, x) if x else 0 for x in range(most + 1)]


def _value(polynomial: Sequence[int], at: int) -> int:
    """Evaluate a polynomial, highest power first; points are small, so one division is enough."""
    value = 0
    for coefficient in polynomial:
        value = value * at + coefficient
    return value % _PRIME
