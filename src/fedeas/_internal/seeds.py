"""Named child seeds: every random stream is known by a seed and a path of names, never by order."""

import hashlib

import numpy as np

from fedeas._internal.scalars import integer


def check_seed(seed: int) -> int:
    """Return a seed that is a whole number from 0 to 2**63 - 1, or refuse it."""
    return integer(seed, "not a seed", "a whole number from 0 to 2**63 - 1", low=0)


def child_rng(seed: int, *path: str | int) -> np.random.Generator:
    """Return the generator named by `seed` and `path`; other paths give independent streams.

    >>> int(child_rng(42, "dirichlet", 3).integers(1000)) == int(
    ...     child_rng(42, "dirichlet", 3).integers(1000))
    True
    """
    # The type is part of the name, so that "3" and 3 are different streams.
    name = "/".join([str(check_seed(seed)), *(f"{type(p).__name__}:{p}" for p in path)])
    entropy = int.from_bytes(hashlib.sha256(name.encode()).digest()[:16], "little")
    return np.random.Generator(np.random.PCG64(entropy))
