"""Random numbers for many seeds at once: every sample has a stream of its own, in any batch.

NumPy's own generators take some ten microseconds to be seeded, longer than a row of a table takes
to draw. SplitMix64 (Steele, Lea and Flood, 2014) is a counter and a hash, so that whole arrays of
seeds are drawn from together.
"""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Seeds = NDArray[np.uint64]
_GAMMA = np.uint64(0x9E3779B97F4A7C15)


def uniforms(seeds: Seeds, first: int, number: int) -> Floats:
    """Return numbers `first` to `first + number - 1` of every seed's stream, above 0 and below 1.

    One row per number, one column per seed.
    """
    steps = np.arange(first + 1, first + 1 + number, dtype=np.uint64)
    bits = _mixed(_mixed(seeds) + (steps * _GAMMA)[:, np.newaxis])
    found: Floats = ((bits >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53
    return found


def normals(seeds: Seeds, first: int, number: int) -> Floats:
    """Return standard normal numbers of every seed's stream, from an even number of uniform ones.

    One row per number, one column per seed. They come from 2 * ((number + 1) // 2) uniform numbers
    from `first` on (Box and Muller, 1958).
    """
    half = (number + 1) // 2
    radius = np.sqrt(-2 * np.log(uniforms(seeds, first, half)))
    angle = 2 * np.pi * uniforms(seeds, first + half, half)
    drawn = np.empty((2 * half, len(seeds)))
    np.multiply(radius, np.cos(angle), out=drawn[:half])
    np.multiply(radius, np.sin(angle), out=drawn[half:])
    return drawn[:number]


def _mixed(bits: Seeds) -> Seeds:
    """Return a hash of every number; sums and products wrap around."""
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))
