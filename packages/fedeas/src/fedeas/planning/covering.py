"""The fewest samples that hold at least so many of each label: an integer program over label sets.

minimise sum_S m_S   subject to   sum_{S with l} m_S >= d_l for every label l,  m_S = 0, 1, ...
"""

import numpy as np
from numpy.typing import NDArray

from fedeas._util.optional import import_extra

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


def least_cover(holds: Bools, demand: Ints) -> Ints:
    """Return the fewest samples of each label set that hold the demanded number of every label.

    Parameters
    ----------
    holds : array of bool
        Labels x label sets: whether a set has a label. Every label that is in demand is in a set.
    demand : array of int
        The number of samples wanted of every label.

    >>> sets = np.array([[1, 0, 1], [1, 1, 0], [0, 1, 1]], bool)
    >>> least_cover(sets, np.array([3, 3, 3])).sum()
    np.int64(5)
    """
    samples = np.zeros(holds.shape[1], np.int64)
    rows = demand > 0
    used = holds[rows].any(axis=0)
    if not rows.any():
        return samples
    optimize = import_extra("scipy.optimize", "plans for samples with several labels", "label-sets")
    each = np.ones(int(used.sum()))
    found = optimize.milp(
        each,
        constraints=optimize.LinearConstraint(
            holds[np.ix_(rows, used)].astype(float), demand[rows]
        ),
        integrality=each,
        options={"mip_rel_gap": 0},
    )
    if found.x is None:
        raise RuntimeError(f"no cover was found: {found.message}")
    samples[used] = np.rint(found.x).astype(np.int64)
    return samples
