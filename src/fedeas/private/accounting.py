"""What a noisy sum costs: zero-concentrated differential privacy (rho), and epsilon at a delta.

Privacy is that of one unit of one site, added or removed: a sample, or a group such as a person
with all samples of it, as the site's owner decides (`groups.py`). Costs in rho add up, whatever the
server asks and in whatever order.

A site tells its number of units exactly, so somebody who knows all others but one reads off it
whether there is one more. What stays hidden then is which one it is: one in the place of another.
`replace_one_epsilon` is that guarantee; wherever an epsilon is stated, state both.

The sum of the parts is not exactly a discrete Gaussian. Kairouz, Liu and Steinke, "The Distributed
Discrete Gaussian Mechanism for Federated Learning with Secure Aggregation" (ICML 2021,
arXiv:2102.06387, Theorem 1), bound the difference: n parts of variance s^2 each, s >= 1/2, in a sum
of d words with an L2 sensitivity of D have rho = e^2 / 2 with

    e = D / (sqrt(n) s) + tau sqrt(d),    tau = 10 sum_{k=1}^{n-1} exp(-2 pi^2 s^2 k / (k + 1)).

(The theorem allows the smaller of this and another bound. Where tau counts, we refuse.)
"""

import math
from collections.abc import Iterable
from functools import lru_cache
from typing import Final, Literal

import numpy as np

from fedeas._internal.scalars import positive, share
from fedeas.errors import InputError
from fedeas.private.noise import SumNoise

Unit = Literal["sample", "group"]  # what an owner chooses from
SAMPLE: Final = "sample"
GROUP: Final = "group"
# Both guarantees of a unit are stated wherever an epsilon is.
ADDED: dict[str, str] = {
    SAMPLE: "one sample of a site, added or removed",
    GROUP: "one group of a site with all its samples, added or removed",
}
REPLACED: dict[str, str] = {
    SAMPLE: "one sample of a site, replaced by any other",
    GROUP: "one group of a site with all its samples, replaced by any other",
}
# The chance with which the guarantee may fail: far below 1 / N_k for up to 100,000 samples, and one
# for simulations and sites, so that epsilons can be compared.
DELTA = 1e-6
_MOST_EXCESS = 0.005  # that tau may add to D / sigma: 1 % of rho
_LEAST_PART = 0.5  # standard deviation from which the bound holds
# Each order gives a valid epsilon; the best of a fine grid is within 0.1 % of the best of all.
_ORDERS = (1 + np.geomspace(0.02, 1e7, 800)).tolist()


def rho_of(noise: SumNoise, sensitivity: float, words: int) -> float:
    """Return what releasing a sum with this noise costs, in rho.

    Parameters
    ----------
    noise : SumNoise
        The promised standard deviation, and the number of parts that it is made of.
    sensitivity : float
        The most by which one unit, a sample or a group, changes the words of its site, in the L2
        norm; changes are whole numbers.
    words : int
        Length of the sum.

    >>> round(rho_of(SumNoise(sigma=40.0, honest=14), sensitivity=2, words=10), 6)
    0.00125
    """
    _check(sensitivity, words)
    excess = _excess(noise, words)
    plain = sensitivity / noise.sigma
    if noise.honest > 1 and (noise.part_sigma < _LEAST_PART or excess > _MOST_EXCESS * plain):
        raise InputError(
            "epsilon is too large for exact noise, which is whole numbers",
            got=f"a standard deviation of {noise.part_sigma:.3g} at each site",
            fix="use a smaller one, or inf for no noise",
        )
    return (plain + excess) ** 2 / 2


def sigma_for(rho: float, sensitivity: float, *, honest: int, words: int) -> float:
    """Return the standard deviation with which the release of a sum costs at most rho.

    >>> sigma = sigma_for(0.00125, sensitivity=2, honest=14, words=10)
    >>> round(sigma, 6)
    40.0
    """
    _check(sensitivity, words)
    positive(rho, "rho")
    e = math.sqrt(2 * rho)
    # tau falls when sigma grows, so tau at the smaller sigma is enough; then rounding errors.
    excess = min(_excess(SumNoise(sensitivity / e, honest), words), _MOST_EXCESS * e)
    sigma = sensitivity / (e - excess) * (1 + 1e-12)
    rho_of(SumNoise(sigma, honest), sensitivity, words)  # refuses parts that are too small
    return sigma


def epsilon_of(rhos: Iterable[float], delta: float = DELTA) -> float:
    """Return the epsilon of releases that cost these rhos together, at this delta.

    >>> round(epsilon_of([0.05, 0.05], delta=1e-6), 2)
    2.14
    """
    try:
        import dp_accounting
    except ImportError:
        raise InputError(
            "an epsilon needs dp-accounting, which is not installed",
            fix='pip install "fedeas[private]"',
        ) from None
    accountant = dp_accounting.rdp.RdpAccountant(_ORDERS)
    for rho in rhos:
        accountant.compose(dp_accounting.ZCDpEvent(rho))
    return float(accountant.get_epsilon(delta))


def replace_one_epsilon(rho: float, delta: float = DELTA) -> float:
    """Return the epsilon of one unit replaced by any other, where adding or removing costs rho.

    To replace is to remove and to add: a sum moves twice as far, and rho grows with the square.

    Parameters
    ----------
    rho : float
        What all releases cost together, for one unit added or removed.
    delta : float
        The chance with which the guarantee may fail.

    >>> rho = rho_for(1.0, 1e-6)
    >>> round(epsilon_of([rho], 1e-6), 2), round(replace_one_epsilon(rho, 1e-6), 2)
    (1.0, 2.11)
    """
    return epsilon_of([2**2 * rho], delta)


@lru_cache
def rho_for(epsilon: float, delta: float = DELTA) -> float:
    """Return the largest rho that releases may cost together for this epsilon at this delta.

    >>> rho = rho_for(3.0, 1e-6)
    >>> round(rho, 3), epsilon_of([rho], 1e-6) <= 3.0
    (0.185, True)
    """
    positive(epsilon, "epsilon")
    share(delta, "delta")
    low, high = 0.0, epsilon
    while epsilon_of([high], delta) <= epsilon:
        high *= 2
    while high - low > 1e-9 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if epsilon_of([middle], delta) <= epsilon else (low, middle)
    return low * (1 - 1e-9)  # rounding errors in sums of rhos cannot pass epsilon


def _excess(noise: SumNoise, words: int) -> float:
    """Return tau sqrt(d): how far the sum of the parts is from one discrete Gaussian."""
    k = np.arange(1, noise.honest)
    variance = float(noise.part_variance)
    tau = 10 * float(np.sum(np.exp(-2 * math.pi**2 * variance * k / (k + 1))))
    return tau * math.sqrt(words)


def _check(sensitivity: float, words: int) -> None:
    positive(sensitivity, "sensitivity")
    if words < 1:
        raise InputError("a sum has at least one word", got=words)
