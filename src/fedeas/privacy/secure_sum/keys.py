"""Keys, masks and seals, all of them primitives of the `cryptography` package."""

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from fedeas.privacy.secure_sum.messages import RefusedError, Roster, Words, digest

_NONCE = bytes(12)  # every key below is derived for a single message or mask


def new_key() -> bytes:
    """Return a private key."""
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


def mask(secret: bytes, purpose: bytes, words: int) -> Words:
    """Return this many random words, the same for everyone who has the secret."""
    key = _derive(secret, b"mask", purpose)
    cipher = Cipher(algorithms.ChaCha20(key, bytes(16)), mode=None).encryptor()
    return np.frombuffer(cipher.update(bytes(8 * words)), "<u8").astype(np.uint64)


def seal(secret: bytes, purpose: bytes, content: bytes) -> bytes:
    """Encrypt and authenticate what one client sends another through the server."""
    return ChaCha20Poly1305(_derive(secret, b"seal", purpose)).encrypt(_NONCE, content, None)


def unseal(secret: bytes, purpose: bytes, sealed: bytes) -> bytes | None:
    """Return what was sealed, or None if it was altered."""
    try:
        return ChaCha20Poly1305(_derive(secret, b"seal", purpose)).decrypt(_NONCE, sealed, None)
    except InvalidTag:
        return None


def pair_mask(
    private: X25519PrivateKey, roster: Roster, own: int, other: int, bound: bytes, words: int
) -> Words:
    """Return the mask of two clients: what the first of them adds, the second takes away."""
    first, second = sorted((own, other))
    secret = agree(private, roster.masks[other])
    found = mask(secret, purpose(bound, first, second), words)
    return found if own == first else np.negative(found)


def bound_to(session: bytes, roster: Roster) -> bytes:
    """Return what ties keys to one sum: clients that were told different things share no masks."""
    return digest(b"roster", session, roster.pack())


def purpose(bound: bytes, *places: int) -> bytes:
    """Return what a key is for: one sum, and the places of one client or of two."""
    return digest(bound, *(place.to_bytes(4) for place in places))


def _derive(secret: bytes, *purpose: bytes) -> bytes:
    info = digest(b"fedeas secure sum 1", *purpose)
    return HKDF(SHA256(), length=32, salt=None, info=info).derive(secret)
