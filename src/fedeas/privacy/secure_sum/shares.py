"""Shamir's secret sharing: any `threshold` of the shares give a secret back, fewer say nothing."""

import secrets
from collections.abc import Iterable, Mapping, Sequence

from fedeas.errors import InputError

SECRET, SHARE = 32, 33  # bytes
_PRIME = 2**256 + 297  # the smallest above 2**256, so that every secret is a number of the field


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
    """Return Lagrange's weights: a polynomial's value at 0 from its values at the parties."""
    found = {}
    for own in parties:
        above = below = 1
        for other in parties:
            if other != own:
                above = above * (other + 1) % _PRIME
                below = below * (other - own) % _PRIME
        found[own] = above * pow(below, -1, _PRIME) % _PRIME
    return found


def join_weighted(shares: Mapping[int, bytes], weights: Mapping[int, int]) -> bytes:
    """Join shares of the parties that the weights are of."""
    value = sum(weights[party] * int.from_bytes(shares[party]) for party in weights) % _PRIME
    return (value % 2**256).to_bytes(SECRET)


def _value(polynomial: Sequence[int], at: int) -> int:
    """Evaluate a polynomial, highest power first."""
    value = 0
    for coefficient in polynomial:
        value = (value * at + coefficient) % _PRIME
    return value
