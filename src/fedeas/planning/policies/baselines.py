"""What FedEAS is compared with: equal or random parts of a total, full balance, nothing."""

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fedeas._internal.scalars import set_frozen
from fedeas._internal.seeds import check_seed, child_rng
from fedeas.counts.label_counts import CountsLike, LabelCounts
from fedeas.errors import InfeasibleError
from fedeas.planning.plan import Plan
from fedeas.planning.policies.policy import BasePolicy, Floats, Ints, LocalPolicy, check_total
from fedeas.planning.resolve import OPTIONAL
from fedeas.planning.targets import TargetLike, aim_shares


@dataclass(frozen=True, repr=False)
class Uniform(BasePolicy):
    """Give every client-class pair the same number of samples, the remainder to the first pairs.

    Pairs are counted client by client: (0, 0), (0, 1), ... A client without samples gets nothing.

    Parameters
    ----------
    total : int
        The samples of all clients together.
    target : Target, str, path, mapping or sequence, optional
        The class distribution that the plan is scored with, uniform by default.

    >>> Uniform(total=5).plan(LabelCounts([[3, 0], [1, 1]])).samples
    array([[2, 1],
           [1, 1]])
    """

    name: ClassVar[str] = "uniform"
    total: int
    target: TargetLike = field(default=None, metadata=OPTIONAL)

    def __post_init__(self) -> None:
        super().__post_init__()
        set_frozen(self, total=check_total(self.total))

    def plan(self, counts: CountsLike) -> Plan:
        """Return the plan of all clients."""
        counts = LabelCounts.of(counts)
        rule = self.resolve(counts)
        t = aim_shares(rule.target, counts)
        pairs = (counts.sizes > 0)[:, np.newaxis] & (t > 0)
        return Plan.of(counts, self._spread(counts, pairs, t), rule)

    def _spread(self, counts: LabelCounts, pairs: NDArray[np.bool_], t: Floats) -> Ints:
        return spread(self.total, pairs)


@dataclass(frozen=True, repr=False)
class Random(Uniform):
    """Share the total out at random: every way to divide it among the pairs is equally likely.

    The control of a comparison: as many samples, put where no rule says. The shares of the
    client-class pairs are drawn from the flat Dirichlet distribution. A client without samples
    gets nothing.

    Parameters
    ----------
    total : int
        The samples of all clients together.
    seed : int
        Of the draw.
    target : Target, str, path, mapping or sequence, optional
        The class distribution that the plan is scored with, uniform by default.

    >>> Random(total=6).plan(LabelCounts([[3, 0], [1, 1]])).total
    6
    """

    name: ClassVar[str] = "random"
    seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        set_frozen(self, seed=check_seed(self.seed))

    def _spread(self, counts: LabelCounts, pairs: NDArray[np.bool_], t: Floats) -> Ints:
        shares = child_rng(self.seed, "random policy").standard_exponential(counts.n.shape)
        return spread(self.total, pairs, shares)


@dataclass(frozen=True, repr=False)
class MissingOnly(Uniform):
    """Spread the total as `Uniform` does, over the absent pairs (n_k^c = 0) only.

    For a target t, in proportion to t_c.

    Parameters
    ----------
    total : int
        The samples of all clients together.
    target : Target, str, path, mapping or sequence, optional
        The class distribution that the plan is scored with, uniform by default.

    >>> MissingOnly(total=5).plan(LabelCounts([[3, 0], [1, 1]])).samples
    array([[0, 5],
           [0, 0]])
    """

    name: ClassVar[str] = "missing-only"

    def _spread(self, counts: LabelCounts, pairs: NDArray[np.bool_], t: Floats) -> Ints:
        pairs = pairs & (counts.n == 0)
        if self.total and not pairs.any():
            raise InfeasibleError(
                "no client lacks a class, so missing-only has nowhere to put its samples",
                fix="leave this policy out",
            )
        return spread(self.total, pairs, None if t.max() == t.min() else t)


@dataclass(frozen=True, repr=False)
class FullBalance(LocalPolicy):
    """Fill every class up to the client's largest one: max_c n_k^c - n_k^c samples.

    For a target t, up to t_c max_b n_k^b / t_b: the smallest amounts that match it, rounded.

    Parameters
    ----------
    target : Target, str, path, mapping or sequence, optional
        The class distribution to aim at, uniform by default.

    >>> FullBalance().local([90, 10, 0])
    array([ 0, 80, 90])
    """

    name: ClassVar[str] = "full-balance"
    target: TargetLike = field(default=None, metadata=OPTIONAL)

    def fill(self, n: Floats) -> Floats:
        """Return the distance of every class from the largest of its row."""
        if (t := self.shares(n.shape[-1])) is not None:
            size = (n / t).max(axis=-1, keepdims=True)
            missing: Floats = np.maximum(np.rint(size * t) - n, 0.0)
            return missing
        samples: Floats = n.max(axis=-1, keepdims=True) - n
        return samples


@dataclass(frozen=True, repr=False)
class NoGeneration(LocalPolicy):
    """Generate nothing, as plain FedAvg does.

    Parameters
    ----------
    target : Target, str, path, mapping or sequence, optional
        The class distribution to aim at, uniform by default.

    >>> NoGeneration().local([90, 10, 0])
    array([0, 0, 0])
    """

    name: ClassVar[str] = "none"
    target: TargetLike = field(default=None, metadata=OPTIONAL)

    def fill(self, n: Floats) -> Floats:
        """Return zeros."""
        return np.zeros_like(n)


def spread(
    total: int, pairs: NDArray[np.bool_], shares: NDArray[np.float64] | None = None
) -> NDArray[np.int64]:
    """Share `total` equally among the chosen pairs, the remainder one at a time in row order.

    With shares, of classes or of pairs, it is in proportion to them, the remainder to the largest
    fractions.
    """
    samples = np.zeros(pairs.shape, np.int64)
    if total and shares is not None:
        parts = np.broadcast_to(shares, pairs.shape)[pairs]
        exact = total * (parts / parts.sum())
        rounded = np.floor(exact)
        first = np.argsort(rounded - exact, kind="stable")[: round(total - rounded.sum())]
        rounded[first] += 1
        samples[pairs] = rounded
    elif total:
        each, rest = divmod(int(total), int(pairs.sum()))
        samples[pairs] = each
        samples.reshape(-1)[np.flatnonzero(pairs)[:rest]] += 1
    return samples
