"""Equal reduction: every client removes the same part of its own imbalance, and nobody sees all."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedeas._internal.blocks import outer_sum
from fedeas._internal.scalars import set_frozen, share
from fedeas._internal.seeds import child_rng
from fedeas.counts.label_counts import CountsLike, LabelCounts
from fedeas.planning.policies.policy import Floats, Ints, LocalPolicy
from fedeas.planning.resolve import HIDDEN, OPTIONAL
from fedeas.planning.skew import deviation
from fedeas.planning.targets import Target, TargetLike

_ROUNDING = 1e-12
_Bools = NDArray[np.bool_]


@dataclass(frozen=True, repr=False)
class EqualReduction(LocalPolicy):
    """Fill the scarce classes of client k up to the smallest b_k that removes enough imbalance.

    What is removed is a part of the client's own term of the imbalance score (Eq. 4 of the paper),
    ||q_k - t||^2. The rule is ours, not the paper's. It needs no server, no search for a beta and
    no number that depends on the size of the data. As in FedEAS a class is scarce while
    n_k^c < N_k t_c, and it is filled up to floor(b_k C t_c). Where no b_k removes enough, the
    one that removes most is taken.

    Parameters
    ----------
    reduction : float
        The part of its own imbalance that each client removes, above 0 and below 1.
    cap : float
        The largest synthetic share of a client's samples, above 0 and below 1. Where b_k passes it,
        as many samples as it allows go one at a time to the class that has fewest, ties in an
        order that is drawn from the client's name.
    target : Target, str, path, mapping or sequence, optional
        The class distribution to aim at, uniform by default.

    >>> EqualReduction(reduction=0.5).local([90, 10, 0])
    array([ 0,  7, 17])
    """

    name: ClassVar[str] = "equal-reduction"
    reduction: float = 0.5
    cap: float = 0.5
    target: TargetLike = field(default=None, metadata=OPTIONAL)
    clients: Sequence[str] | range | None = field(default=None, compare=False, metadata=HIDDEN)

    def __post_init__(self) -> None:
        super().__post_init__()
        set_frozen(self, reduction=share(self.reduction, "reduction"), cap=share(self.cap, "cap"))

    def local(
        self, n: ArrayLike, classes: Sequence[str] | None = None, client: str | None = None
    ) -> Ints:
        """Return the samples to generate for one client; its name decides between equal classes."""
        named = replace(self, clients=(client or "",))
        return LocalPolicy.local(named, n, classes, client)

    def resolve(self, counts: CountsLike) -> Self:
        """Return the policy in the order of the counts, with the names of their clients."""
        counts = LabelCounts.of(counts)
        return replace(super().resolve(counts), clients=counts.clients or range(counts.K))

    def for_rows(self, rows: slice, clients: Sequence[str] | None = None) -> Self:
        """Return the policy for some of the clients."""
        known = range(rows.start, rows.stop) if self.clients is None else self.clients[rows]
        return replace(super().for_rows(rows), clients=known if clients is None else clients)

    def fill(self, n: Floats) -> Floats:
        """Return what fills the scarce classes up to b_k, or as much of it as the cap allows."""
        N, t = n.sum(axis=-1), self.shares(n.shape[-1])
        rows = _Rows(n, N, np.full(n.shape[-1], 1.0 / n.shape[-1]) if t is None else t)
        samples = rows.fill_to(rows.smallest_level(self.reduction))
        most = np.floor(N * self.cap / (1.0 - self.cap) * (1 + _ROUNDING))
        beyond = np.flatnonzero(samples.sum(axis=-1) > most)
        if beyond.size:
            names = [str(self._clients(len(n))[k]) for k in beyond.tolist()]
            samples[beyond] = rows.part(beyond).spend(most[beyond], names)
        return samples

    def _clients(self, number: int) -> Sequence[str] | range:
        return range(number) if self.clients is None else self.clients


@dataclass(frozen=True)
class _Rows:
    """Clients as rows of counts, their sums, and the share of each class to aim at."""

    n: Floats
    N: Floats
    t: Floats

    @property
    def weights(self) -> Floats:
        """How far a level of 1 fills each class: C t_c."""
        weights: Floats = self.t * self.n.shape[-1]
        return weights

    @property
    def scarce(self) -> _Bools:
        """Which classes are filled at all; one at its share is not scarce by rounding."""
        below: _Bools = self.n < outer_sum(self.N, (1 - _ROUNDING) * self.t)
        return below

    def part(self, rows: Ints) -> "_Rows":
        return _Rows(self.n[rows], self.N[rows], self.t)

    def fill_to(self, level: Floats, *, whole: bool = True) -> Floats:
        """Return what fills the scarce classes of each row up to its level."""
        samples = outer_sum(level, (1 + _ROUNDING) * self.weights)
        if whole:
            np.floor(samples, out=samples)
        samples -= self.n
        np.maximum(samples, 0.0, out=samples)
        samples *= self.scarce
        return samples

    def imbalance(self, samples: Floats) -> Floats:
        """Return ||q_k - t||^2 of every row with these samples."""
        return deviation(self.n + samples, Target(self.t.tolist()))

    def smallest_level(self, reduction: float) -> Floats:
        """Return the smallest level that removes this part, or the one that removes most."""
        before = self.imbalance(np.zeros_like(self.n))
        top = np.ceil((self.n / self.weights).max(axis=-1)) + 1.0

        def rises(level: Floats) -> _Bools:
            # Of numbers that are not rounded the imbalance falls to one lowest point, then rises.
            now, later = (self.imbalance(self.fill_to(x, whole=False)) for x in (level, level + 1))
            rising: _Bools = later > now
            return rising

        def enough(level: Floats) -> _Bools:
            after = self.imbalance(self.fill_to(level))
            reached: _Bools = after <= (1.0 - reduction) * before * (1 + _ROUNDING)
            return reached

        best = _first(rises, np.zeros_like(top), top)
        needs = (before > _ROUNDING) & self.scarce.any(axis=-1)
        level = np.where(enough(best), _first(enough, np.zeros_like(top), best), best)
        return np.where(needs, level, 0.0)

    def spend(self, total: Floats, clients: Sequence[str]) -> Floats:
        """Return so many samples of each row, one at a time for the class that has fewest."""
        top = np.ceil((self.n / self.weights).max(axis=-1)) + total + 1.0
        above = _first(lambda x: self.fill_to(x).sum(axis=-1) > total, np.zeros_like(top), top)
        samples = self.fill_to(np.maximum(above - 1.0, 0.0))
        for k in np.flatnonzero(samples.sum(axis=-1) < total).tolist():
            order = child_rng(0, "equal classes", clients[k]).permutation(self.n.shape[-1])
            order = order[self.scarce[k][order]]
            while samples[k].sum() < total[k]:
                filled = (self.n[k] + samples[k])[order] / self.weights[order]
                samples[k, order[filled.argmin()]] += 1.0
        return samples


def _first(holds: Callable[[Floats], _Bools], low: Floats, high: Floats) -> Floats:
    """Return the smallest whole number of each row, from 0 on, from which on a condition holds.

    It is taken to hold at `high`.
    """
    low, high = low - 1.0, high.copy()
    while (high - low > 1).any():
        middle = np.floor((low + high) / 2)
        good = holds(middle)
        low, high = np.where(good, low, middle), np.where(good, middle, high)
    return high
