"""The price of water-filling, from sums that one sample hardly moves.

A site's best amount at a price is already a continuous function of its counts, homogeneous of
degree one, so nothing has to be smoothed but the rounding up to whole samples.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np

from fedeas import skew
from fedeas.policies.waterfill import WaterFill, effects_at
from fedeas.privacy.queries.effects import EffectQuery, preferred_numbers
from fedeas.privacy.queries.query import Floats

_SAFE = 1 + 1e-9  # far more than the floating point error of the bounds


@dataclass(frozen=True)
class PriceQuery(EffectQuery):
    """The effect of ten round prices per decade, from 0.8 down to 0.001.

    >>> PriceQuery(10).numbers[:4]
    array([0.8, 0.6, 0.5, 0.4])
    """

    name: ClassVar[str] = "price"

    @property
    def numbers(self) -> Floats:
        """The prices, downwards, so that samples go upwards."""
        return preferred_numbers(-3, 0)[::-1]

    @property
    def bounds(self) -> Floats:
        """The most that one sample moves each word, whatever the size of the site."""
        return _bounds(self.classes)

    @property
    def rounding(self) -> float:
        """A site rounds its amount up to a whole number of samples."""
        return 1.0

    def policy(self, number: float) -> WaterFill:
        """Return the policy of a price."""
        return WaterFill(price=number)

    def words(self, n: Floats) -> Floats:
        """Return the answers before rounding."""
        N = n.sum(axis=-1)
        amounts, scores = effects_at(n, self.numbers)
        before = np.stack([N, N * skew.deviation(n)], axis=-1)
        words: Floats = np.concatenate([before, amounts, scores], axis=-1)
        return words * self.units


@lru_cache(maxsize=8)
def _bounds(classes: int) -> Floats:
    """Theorems 4 and 5 of docs/privacy_queries.md, as one column: sizes do not matter."""
    C, p = classes, preferred_numbers(-3, 0)[::-1]
    growth = np.minimum(C, p ** (-1 / 3)) / 3
    # In the number j of classes raised this is monotone: one end or the other is the worst.
    few, many = 3 / (1 + 3 * p), (2 * C - 1) / (1 + 3 * p * (C - 1))
    size = np.maximum(growth + np.maximum(few, many), 1.0)  # of the site afterwards
    samples = np.maximum(size - 1, 1.0)
    scores = np.maximum(3 - 1 / C, 2 * p * size)
    moves = np.concatenate([[1.0, 1 + 1 / C], samples * _SAFE, scores * _SAFE])
    found: Floats = moves[:, np.newaxis]
    found.setflags(write=False)
    return found
