"""The FedEAS rule: an entropy-adaptive budget per client, spent on its scarce classes only."""

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from fedeas._internal.blocks import outer_sum
from fedeas._internal.scalars import check_bool, number, positive, set_frozen
from fedeas.planning.named_values import NamedValuesLike, make_named_values
from fedeas.planning.policies.policy import Floats, LocalPolicy
from fedeas.planning.resolve import OPTIONAL, quality_of
from fedeas.planning.skew import skewness
from fedeas.planning.targets import TargetLike

_ROUNDING = 1e-12  # of a product that would be a whole number


@dataclass(frozen=True, repr=False)
class FedEAS(LocalPolicy):
    """Fill every scarce class of client k up to b_k = floor(mean_k**gamma (1 - H_k/log C) beta).

    Eq. (8) and (9) of the paper, where mean_k = N_k / C and gamma = 1/2. A class counts as scarce
    while n_k^c < mean_k: the paper prints no such clause, but only with it do its totals come out
    (`below_mean=False` gives the printed equations). `entropy=False` and `size_exponent=1` are the
    variants of the paper's ablation.

    For a target t, 1 - H_k/log C becomes KL(q_k || t) / log(1 / min_c t_c), a class is scarce while
    n_k^c < N_k t_c, and it is filled up to floor(b_k C t_c).

    Parameters
    ----------
    beta : float
        The budget: samples grow with it. 12, the paper's, unless it is given; `choose_beta` finds
        one for the counts, as `fedeas plan` does.
    size_exponent : float
        Gamma, the power of a client's mean count.
    entropy : bool
        Whether the budget grows with a client's skew.
    below_mean : bool
        Whether only classes below the client's mean are filled.
    target : Target, str, path, mapping or sequence, optional
        The class distribution to aim at, uniform by default.
    limits : number, sequence, mapping, str or path, optional
        The most samples of each client. Where the rule asks for more, b_k is the largest whole
        number that does not.
    quality : number, sequence, mapping, str or path, optional
        What a synthetic sample of each class is worth in real ones, above 0 and up to 1. Only that
        part of what the rule asks for is generated: more of what is worth little can hurt.

    >>> FedEAS(beta=12).local([90, 10, 0])
    array([ 0, 38, 48])
    """

    name: ClassVar[str] = "fedeas"
    beta: float = 12.0
    size_exponent: float = 0.5
    entropy: bool = True
    below_mean: bool = True
    target: TargetLike = field(default=None, metadata=OPTIONAL)
    limits: NamedValuesLike = field(default=None, metadata=OPTIONAL)
    quality: NamedValuesLike = field(default=None, metadata=OPTIONAL)

    def __post_init__(self) -> None:
        super().__post_init__()
        exponent = self.size_exponent
        set_frozen(
            self,
            beta=positive(self.beta, "beta"),
            size_exponent=number(
                exponent, "size_exponent out of range", "0 to 2", lambda x: 0 <= x <= 2
            ),
            entropy=check_bool(self.entropy, "entropy"),
            below_mean=check_bool(self.below_mean, "below_mean"),
        )

    def fill(self, n: Floats) -> Floats:
        """Return max(0, b_k - n_k^c) for every scarce class (Eq. 9)."""
        N = n.sum(axis=-1)
        return self.fill_within(n, N, np.floor(self.rate(n, N) * self.beta))

    def fill_within(self, n: Floats, N: Floats, budget: Floats) -> Floats:
        """Return what fills the scarce classes up to the budget, or to a lower one at the limit."""
        samples = self.fill_to(n, N, budget)
        values = make_named_values(self.limits, "limits")
        if values is None:
            return samples
        limits = values.array(len(n))
        low, high = np.zeros_like(budget), budget.copy()
        over = samples.sum(axis=-1) > limits
        if not over.any():
            return samples
        while (high - low > 1).any():
            middle = np.floor((low + high) / 2)
            fits = self.fill_to(n, N, middle).sum(axis=-1) <= limits
            low, high = np.where(fits, middle, low), np.where(fits, high, middle)
        return np.where(over[:, np.newaxis], self.fill_to(n, N, low), samples)

    def budgets(self, n: Floats) -> Floats:
        """Return b_k of every client (Eq. 8)."""
        return np.floor(self.rate(n, n.sum(axis=-1)) * self.beta)

    def rate(self, n: Floats, N: Floats) -> Floats:
        """Return b_k / beta before rounding, the part of the rule that beta scales; N is N_k."""
        mean = N / n.shape[-1]
        size: Floats = np.sqrt(mean) if self.size_exponent == 0.5 else mean**self.size_exponent
        size = np.where(mean > 0, size, 0.0)  # 0**0 would be 1: an empty client gets nothing
        return size * skewness(n, N, self.target) if self.entropy else size

    def fill_to(self, n: Floats, N: Floats, budget: Floats) -> Floats:
        """Return what fills the scarce classes of each row up to its budget."""
        t = self.shares(n.shape[-1])
        if t is not None:
            samples = self._fill_to_target(n, N, budget, t)
        else:
            scarce = np.minimum(budget, N / n.shape[-1]) if self.below_mean else budget
            samples = budget[..., np.newaxis] - n
            samples *= n < scarce[..., np.newaxis]
        if self.quality is not None:
            samples = np.floor(self.worth(samples) + _ROUNDING)
        return samples

    def worth(self, samples: Floats) -> Floats:
        """Return how many real samples of each class these are worth."""
        rho = quality_of(self, samples.shape[-1])
        return samples if rho is None else samples * rho

    def _fill_to_target(self, n: Floats, N: Floats, budget: Floats, t: Floats) -> Floats:
        """Return what fills the scarce classes up to floor(b_k C t_c)."""
        # A class that is at its share is not scarce by rounding.
        scarce = n < outer_sum(N, (1 - _ROUNDING) * t) if self.below_mean else None
        samples = outer_sum(budget, n.shape[-1] * (1 + _ROUNDING) * t)
        np.floor(samples, out=samples)
        samples -= n
        np.maximum(samples, 0.0, out=samples)
        if scarce is not None:
            samples *= scarce
        return samples
