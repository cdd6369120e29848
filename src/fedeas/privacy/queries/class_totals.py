"""How many samples of each class the federation has, and with them its class prior."""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from fedeas.errors import InfeasibleError
from fedeas.privacy.queries.query import SCALE, Floats, Ints, Query

_CLEAR = 3.0  # standard errors by which a total must exceed zero
_NOTHING = 1e-12  # of a share, by rounding


def least_share(classes: int) -> float:
    """Return the smallest share of a class in a target that sites take, other than none.

    With a smaller one, what a site would have to generate could be more than it can count.
    """
    return 1e-4 * min(1.0, 100 / classes)


class Prior(NamedTuple):
    """The federation's share of every class, and the standard errors that the noise gives them.

    `raw` are the shares as summed. They can be negative; `shares` are the nearest that are not.
    """

    shares: Floats
    errors: Floats
    raw: Floats
    total: float
    total_error: float

    def known_shares(self) -> list[float]:
        """Return shares to four digits, none below its error: a rare class is not an absent one.

        Nor below what sites take as a share.

        >>> shares, errors = np.array([0.98, 0.02, 0.0]), np.full(3, 0.01)
        >>> Prior(shares, errors, shares, 900.0, 9.0).known_shares()
        [0.9703, 0.0198, 0.009901]
        """
        least = np.minimum(self.errors, 1 / len(self.shares))
        shares = np.maximum(self.shares, least)
        told = np.maximum(shares, 2 * least_share(len(shares)))
        shares = np.where(shares > _NOTHING, told, 0.0)
        return [float(f"{share:.4g}") for share in shares / shares.sum()]


@dataclass(frozen=True)
class ClassTotals(Query):
    """The count of every class, in 256ths of a sample.

    >>> ClassTotals(3).answer([90, 10, 0])
    array([23040,  2560,     0])
    """

    name: ClassVar[str] = "class-totals"

    @property
    def length(self) -> int:
        """One word per class."""
        return self.classes

    @property
    def sensitivity(self) -> float:
        """A sample changes one count by one."""
        return SCALE

    def words(self, n: Floats) -> Floats:
        """Return the counts themselves."""
        return n * SCALE

    def read(self, sums: Ints, sigma: float, sites: int) -> Prior:
        """Return the federation's class prior.

        Parameters
        ----------
        sums
            The noisy sums over all sites.
        sigma
            The standard deviation of their noise, in units of the words.
        sites
            The number of sites in the sums; not needed here.

        >>> ClassTotals(3).read(256 * np.array([70, 40, -10]), 256.0, 5).shares
        array([0.65, 0.35, 0.  ])
        """
        totals, sigma = self.check_sums(sums, sigma) / SCALE, sigma / SCALE
        total, total_error = float(totals.sum()), sigma * self.classes**0.5
        if not total > _CLEAR * total_error:
            raise InfeasibleError(
                "the noise hides how many samples there are",
                got=f"{total:,.0f} with a standard error of {total_error:,.0f}",
                fix="ask more sites, or spend a larger epsilon",
            )
        raw = totals / total
        # Of a ratio, to first order: the noise of a class is in its total too.
        errors = sigma / total * np.sqrt((1 - raw) ** 2 + (self.classes - 1) * raw**2)
        return Prior(onto_simplex(raw), errors, raw, total, total_error)


def onto_simplex(x: Floats) -> Floats:
    """Return the nearest non-negative numbers that sum to one.

    >>> onto_simplex(np.array([0.7, 0.5, -0.2]))
    array([0.6, 0.4, 0. ])
    """
    falling = np.sort(x)[::-1]
    excess = (np.cumsum(falling) - 1.0) / np.arange(1, len(x) + 1)
    kept = int(np.flatnonzero(falling > excess)[-1])
    nearest: Floats = np.maximum(x - excess[kept], 0.0)
    return nearest
