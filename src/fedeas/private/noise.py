"""Discrete Gaussian noise, drawn exactly, and the part of it that each site adds to a sum.

The rejection sampler of Canonne, Kamath and Steinke, "The Discrete Gaussian for Differential
Privacy" (NeurIPS 2020, arXiv:2004.00010, Algorithms 1 to 3), for many words at a time. Every choice
that it makes is an event of probability exp(-x) with a rational x. Floating point decides all
choices but those, one in 2**39, that are closer than its errors can matter: these are decided by
exact arithmetic with further random bits. So the distribution is exact, and delta has no share for
it. The one assumption is that `numpy.exp` is right to within 2**-41, thousands of times its error.
"""

import decimal
import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from fedeas.errors import InputError

Randomness = Callable[[int], bytes]  # returns that many random bytes

LARGEST_SIGMA = 2.0**40  # of one part: whole numbers of this size are exact in floating point
_DOUBT = 2.0**-40  # probabilities in floating point are far closer than this
_BATCH = 1 << 16  # proposals at a time: they stay in the processor's cache


@dataclass(frozen=True)
class SumNoise:
    """What is promised of the noise in a sum, and of how many parts it is made.

    Parameters
    ----------
    sigma : float
        Standard deviation that the sum's noise has at least, in units of one word.
    honest : int
        How many parts must be in the sum for that: the fewest sites whose words the protocol adds,
        minus those that may collude with the server. More parts make more noise.
    """

    sigma: float
    honest: int

    def __post_init__(self) -> None:
        if not (isinstance(self.honest, int) and self.honest >= 1):
            raise InputError(
                "the noise of a sum needs at least one honest site", got=self.honest,
                fix="require more survivors, or allow fewer colluding sites",
            )  # fmt: skip
        if not (math.isfinite(self.sigma) and 0 < self.part_sigma <= LARGEST_SIGMA):
            allowed = "above 0, and at most 2**40 for one site's part"
            raise InputError("sigma is out of range", got=self.sigma, allowed=allowed)

    @property
    def part_variance(self) -> Fraction:
        """The variance of one site's part: sigma^2 / honest, exactly."""
        return Fraction(self.sigma) ** 2 / self.honest

    @property
    def part_sigma(self) -> float:
        """The standard deviation of one site's part."""
        return self.sigma / math.sqrt(self.honest)

    def part(self, words: int, randomness: Randomness = os.urandom) -> NDArray[np.int64]:
        """Draw the part of one site: a discrete Gaussian of variance sigma^2 / honest per word.

        Parameters
        ----------
        words : int
            How many independent values to draw.
        randomness : callable
            Returns the number of random bytes that it is given; the operating system's by default.
            Whoever can predict them can subtract the noise.
        """
        return discrete_gaussian(self.part_variance, words, randomness)


def discrete_gaussian(
    variance: Fraction, count: int, randomness: Randomness = os.urandom
) -> NDArray[np.int64]:
    """Draw whole numbers x with probability proportional to exp(-x^2 / (2 variance)), exactly.

    Parameters
    ----------
    variance : Fraction
        The parameter of the distribution, of which its variance falls short by less than 1e-6 from
        1 on.
    count : int
        How many to draw.
    randomness : callable
        Returns the number of random bytes that it is given.

    >>> repeatable = np.random.default_rng(0).bytes  # for examples and tests alone
    >>> discrete_gaussian(Fraction(9), 5, repeatable)
    array([-3, -5, -1,  2, -1])
    """
    drawn = np.empty(count, np.int64)
    done = 0
    while done < count:
        # A third or more of the proposals are accepted.
        proposals = min(_BATCH, 64 + 3 * (count - done))
        accepted = _accepted(variance, proposals, randomness)[: count - done]
        drawn[done : done + len(accepted)] = accepted
        done += len(accepted)
    return drawn


def _accepted(variance: Fraction, proposals: int, randomness: Randomness) -> NDArray[np.int64]:
    """Propose from a discrete Laplace of about the same width; return what is accepted, in order.

    A proposal x is accepted with probability exp(-(|x| - c)^2 / (2 variance)), c = variance/scale.
    """
    scale = math.isqrt(math.floor(variance)) + 1
    size, negative = _laplace(scale, proposals, randomness)
    centre, twice = variance / scale, 2 * variance
    kept = _happens(
        np.square(size.astype(np.float64) - float(centre)) / float(twice),
        lambda at: (int(size[at]) - centre) ** 2 / twice,
        randomness,
    )
    size, negative = size[kept], negative[kept]
    return np.where(negative, -size, size)


def _laplace(
    scale: int, proposals: int, randomness: Randomness
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Draw from a discrete Laplace, exp(-|x| / scale): sizes, and whether they are negative.

    A size is rest + scale * turns: the rest is uniform and kept with probability exp(-rest/scale);
    the turns are how often in a row an event of probability exp(-1) happens. Fewer are returned
    than are proposed.
    """
    mask = np.uint64((1 << (scale - 1).bit_length()) - 1)
    drawn = (_words(proposals, randomness) & mask).astype(np.int64)
    drawn = drawn[drawn < scale]
    kept = _happens(drawn / scale, lambda at: Fraction(int(drawn[at]), scale), randomness)
    rest = drawn[kept]
    turns = np.zeros(len(rest), np.int64)
    going = np.arange(len(rest))
    while len(going):
        going = going[_happens(np.ones(len(going)), lambda _: Fraction(1), randomness)]
        turns[going] += 1
    size = rest + scale * turns
    negative = np.frombuffer(_bytes(len(size), randomness), np.uint8) & 1 == 1
    once = ~(negative & (size == 0))  # -0 is 0, which would be drawn twice as often
    return size[once], negative[once]


def _happens(
    exponents: NDArray[np.float64], exactly: Callable[[int], Fraction], randomness: Randomness
) -> NDArray[np.bool_]:
    """Draw events that happen with probability exp(-exponent); `exactly` returns one's exponent.

    A uniform number of infinitely many bits is compared with the probability. Its first 53 bits
    say which is smaller unless they are within _DOUBT of it.
    """
    bits = _words(len(exponents), randomness) >> np.uint64(11)
    distance = bits * 2.0**-53 - np.exp(-exponents)
    happens: NDArray[np.bool_] = distance < 0
    for at in np.flatnonzero(np.abs(distance) <= _DOUBT):
        happens[at] = _decided(int(bits[at]), 53, exactly(int(at)), randomness)
    return happens


def _decided(bits: int, width: int, exponent: Fraction, randomness: Randomness) -> bool:
    """Tell whether a uniform number that begins with these bits is below exp(-exponent)."""
    while True:
        bits, width = bits << 64 | int.from_bytes(_bytes(8, randomness)), width + 64
        # With as many decimal digits as bits, the error is far below 1 after scaling: division
        # and `exp` are rounded correctly.
        with decimal.localcontext(prec=width):
            x = decimal.Decimal(exponent.numerator) / exponent.denominator
            limit = int((-x).exp() * 2**width)  # off by less than 2, rounded down as it is
        if bits + 1 <= limit - 1:
            return True
        if bits >= limit + 2:
            return False


def _words(count: int, randomness: Randomness) -> NDArray[np.uint64]:
    return np.frombuffer(_bytes(8 * count, randomness), np.uint64)


def _bytes(length: int, randomness: Randomness) -> bytes:
    given = randomness(length)
    if len(given) != length:
        raise InputError("the source of randomness is exhausted", got=len(given))
    return given
