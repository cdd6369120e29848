r"""Beta for the FedEAS rule with its default settings, from sums that one sample hardly moves.

The rule fills the classes below both b_k and the mean mu_k = N_k / C up to b_k. Two of its steps
let one sample move a site's total by hundreds: a class that crosses the mean, and sites of a few
samples whose b_k is far above it. A site therefore answers for a rule without steps:

    level l = max(0, r_k beta - 1/2), r_k = sqrt(mu_k) (1 - H_k / log C),
    samples = sum_c min(max(0, l - n_c), RAMP max(0, mu_k - n_c)),
    score = N_k ||q - u||^2 with every class raised to min(l, mu_k).

1/2 is what rounding b_k down takes off on average. While l stays below the mean, all three are
what the rule does; above it, samples approach the mean on a ramp instead of falling off a cliff.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np

from fedeas import skew
from fedeas.policies.fedeas import FedEAS
from fedeas.privacy.queries.beta_bounds import sample_moves
from fedeas.privacy.queries.effects import EffectQuery, preferred_numbers
from fedeas.privacy.queries.query import Floats

RAMP = 4.0


@dataclass(frozen=True)
class BetaQuery(EffectQuery):
    """The effect of ten round betas per decade, from 1 to 80.

    >>> BetaQuery(10).numbers[9:13]
    array([ 8., 10., 12., 15.])
    """

    name: ClassVar[str] = "beta"

    @property
    def numbers(self) -> Floats:
        """The betas."""
        return preferred_numbers(0, 2)

    @property
    def bounds(self) -> Floats:
        """The most that one sample moves each word, for sites of some sizes."""
        return _bounds(self.classes)

    def policy(self, number: float) -> FedEAS:
        """Return the policy of a beta."""
        return FedEAS(number)

    def words(self, n: Floats) -> Floats:
        """Return the answers before rounding."""
        N = n.sum(axis=-1)
        rate = FedEAS().rate(n, N)
        mean = N / self.classes
        room = RAMP * np.maximum(mean[:, np.newaxis] - n, 0.0)
        samples, scores = [], []
        for beta in self.numbers:
            level = np.maximum(rate * beta - 0.5, 0.0)
            added = np.maximum(level[:, np.newaxis] - n, 0.0)
            samples.append(np.minimum(added, room).sum(axis=-1))
            raised = np.maximum(n, np.minimum(level, mean)[:, np.newaxis])
            scores.append(N * skew.deviation(raised))
        words: Floats = np.stack([N, N * skew.deviation(n), *samples, *scores], axis=-1)
        return words * self.units


@lru_cache(maxsize=8)
def _bounds(classes: int) -> Floats:
    found = sample_moves(preferred_numbers(0, 2), classes, RAMP)
    found.setflags(write=False)
    return found
