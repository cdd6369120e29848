"""Keys, signatures, masks and seals, all of them primitives of the `cryptography` package."""

import numpy as np
from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from fedeas.privacy.secure_sum.messages import RefusedError, Words, digest

_NONCE = bytes(12)  # every key below is derived for a single message or mask
_CHUNK = 1 << 16  # words of a mask at a time
_ZEROS = bytes(8 * _CHUNK)


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


def add_mask(total: Words, secret: bytes, purpose: bytes, sign: int = 1) -> None:
    """Add random words to a sum, or take them away; the same for everyone who has the secret.

    A chunk at a time: of a million words no second copy is made.
    """
    key = _derive(secret, b"mask", purpose)
    cipher = Cipher(algorithms.ChaCha20(key, bytes(16)), mode=None).encryptor()
    for start in range(0, len(total), _CHUNK):
        part = total[start : start + _CHUNK]
        drawn = np.frombuffer(cipher.update(_ZEROS[: 8 * len(part)]), "<u8")
        if sign > 0:
            part += drawn
        else:
            part -= drawn


def add_pair_mask(
    total: Words, private: X25519PrivateKey, public: bytes, own: int, other: int, bound: bytes
) -> None:
    """Add the mask of two clients: what the one at the lower place adds, the other takes away."""
    secret = agree(private, public)
    add_mask(total, secret, purpose(bound, *sorted((own, other))), 1 if own < other else -1)


def seal(secret: bytes, purpose: bytes, content: bytes) -> bytes:
    """Encrypt and authenticate what one client sends another through the server."""
    return ChaCha20Poly1305(_derive(secret, b"seal", purpose)).encrypt(_NONCE, content, None)


def unseal(secret: bytes, purpose: bytes, sealed: bytes) -> bytes | None:
    """Return what was sealed, or None if it was altered."""
    try:
        return ChaCha20Poly1305(_derive(secret, b"seal", purpose)).decrypt(_NONCE, sealed, None)
    except InvalidTag:
        return None


def purpose(bound: bytes, *places: int) -> bytes:
    """Return what a key is for: one sum, and the places of one client or of two."""
    return digest(bound, *(place.to_bytes(4) for place in places))


def _derive(secret: bytes, *purpose: bytes) -> bytes:
    info = digest(b"fedeas secure sum 2", *purpose)
    return HKDF(SHA256(), length=32, salt=None, info=info).derive(secret)
