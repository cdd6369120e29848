"""Random numbers for many samples at once: every sample has a stream of its own, in any batch.

NumPy's generators take some ten microseconds to be seeded, longer than a row takes to draw.
SplitMix64 (Steele, Lea and Flood, 2014) is a counter and a hash, so that whole arrays of seeds are
drawn from together.
"""

import numpy as np
from numpy.typing import NDArray

Seeds = NDArray[np.uint64]
_GAMMA = np.uint64(0x9E3779B97F4A7C15)
_STEP = np.float32(2.0**-24)


def uniforms(seeds: Seeds, first: int, number: int) -> NDArray[np.float64]:
    """Return numbers `first` to `first + number - 1` of every seed's stream, above 0 and below 1.

    One row per number, one column per seed.
    """
    bits = _bits(seeds, first, number)
    numbers: NDArray[np.float64] = ((bits >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53
    return numbers


def normals(seeds: Seeds, first: int, number: int) -> NDArray[np.float32]:
    """Return standard normal numbers of every seed's stream, two from every number of the stream.

    One row per number, one column per seed (Box and Muller, 1958). They are up to 5.9 in size.
    """
    half = (number + 1) // 2
    bits = _bits(seeds, first, half)
    ones, others = ((bits >> np.uint64(shift)).astype(np.uint32) >> 8 for shift in (32, 0))
    radius = np.sqrt(-2 * np.log((ones.astype(np.float32) + np.float32(0.5)) * _STEP))
    angle = others.astype(np.float32) * (_STEP * np.float32(2 * np.pi))
    drawn = np.empty((2 * half, len(seeds)), np.float32)
    np.multiply(radius, np.cos(angle), out=drawn[:half])
    np.multiply(radius, np.sin(angle), out=drawn[half:])
    return drawn[:number]


def _bits(seeds: Seeds, first: int, number: int) -> Seeds:
    steps = np.arange(first + 1, first + 1 + number, dtype=np.uint64)
    return _mixed(_mixed(seeds) + (steps * _GAMMA)[:, np.newaxis])


def _mixed(bits: Seeds) -> Seeds:
    """Return a hash of every number; sums and products wrap around."""
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))
