"""Random splits that must give every client enough: bounded, and given up early when hopeless."""

import math

import numpy as np
from numpy.typing import NDArray

from fedeas.errors import InfeasibleError
from fedeas.scalars import integer, number

_LOOK = 200  # tries after which the odds are looked at
_HOPELESS = 0.1  # expected successes in all tries below which a search is given up


def check_clients(clients: int) -> int:
    """Return a number of clients, or refuse it."""
    return integer(clients, "not a number of clients", "a whole number from 1", low=1)


def check_min_samples(min_samples: int) -> int:
    """Return the fewest samples that a client gets, or refuse it."""
    return integer(min_samples, "not a number of samples", "a whole number from 0", low=0)


def check_cut(samples: int, clients: int, min_samples: int) -> None:
    """Refuse at once what cannot work: more clients than the samples can serve."""
    if clients * max(min_samples, 1) > samples:
        raise InfeasibleError(
            f"{clients:,} clients with at least {max(min_samples, 1):,} samples each "
            f"need more than the {samples:,} there are",
            fix=f"ask for at most {samples // max(min_samples, 1):,} clients or a smaller minimum",
        )


def check_alpha(alpha: float) -> float:
    """Return a concentration, or refuse what is not a positive number."""
    return number(alpha, "alpha out of range", "a number above 0", lambda x: 0 < x < math.inf)


class Search:
    """Counts tries, and gives up with advice when they run out or the odds are hopeless."""

    def __init__(self, min_samples: int, max_tries: int) -> None:
        self.min_samples, self.max_tries = min_samples, max_tries
        self.tries = 0
        self._short = 0.0

    def accept(self, sizes: NDArray[np.int64]) -> bool:
        """Tell whether every client has enough, counting one more try."""
        self.tries += 1
        short = int((sizes < self.min_samples).sum())
        if not short:
            return True
        self._short += short
        average = self._short / self.tries
        # Short clients are about Poisson: with m on average a try succeeds with chance exp(-m).
        hopeless = self.tries == _LOOK and math.exp(-average) * self.max_tries < _HOPELESS
        if self.tries >= self.max_tries or hopeless:
            raise InfeasibleError(
                f"{self.tries:,} random splits all left clients with fewer than {self.min_samples} "
                f"samples, on average {average:.0f} of {len(sizes):,} clients",
                fix="raise alpha, lower the minimum, or ask for fewer clients",
            )
        return False
