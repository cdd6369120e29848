"""The fewest samples that hold at least so many of each label: an integer program over label sets.

minimise sum_S m_S   subject to   sum_{S with l} m_S >= d_l for every label l,  m_S = 0, 1, ...
"""

import numpy as np
from numpy.typing import NDArray

from fedeas._internal.optional import import_extra
from fedeas.errors import InfeasibleError

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
# Of branch and bound. Programs of a dozen labels are solved at the first; one that is not has, at
# this number, the best choice found until then, on every machine the same.
_NODES = 200
_BLOCK = 1024  # label sets that are compared with all others at a time


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
    if not rows.any():
        return samples
    used = np.flatnonzero(_largest(holds[rows]))
    optimize = import_extra("scipy.optimize", "plans for samples with several labels", "counts")
    each = np.ones(len(used))
    found = optimize.milp(
        each,
        constraints=optimize.LinearConstraint(
            holds[np.ix_(rows, used)].astype(float), demand[rows]
        ),
        integrality=each,
        options={"mip_rel_gap": 0, "node_limit": _NODES},
    )
    if found.x is None:
        raise InfeasibleError(f"no label sets hold what is wanted: {found.message}")
    samples[used] = np.rint(found.x).astype(np.int64)
    return samples


def _largest(holds: Bools) -> Bools:
    """Tell which sets are not a part of another one; of equal ones the first."""
    _, first = np.unique(holds.T, axis=0, return_index=True)
    first = np.sort(first)
    columns = holds[:, first].astype(np.float32)
    sizes = columns.sum(axis=0)
    kept = np.zeros(holds.shape[1], bool)
    for start in range(0, len(first), _BLOCK):
        block = slice(start, start + _BLOCK)
        within = columns[:, block].T @ columns == sizes[block, np.newaxis]
        # Every set is a part of itself.
        kept[first[block]] = (within.sum(axis=1) == 1) & (sizes[block] > 0)
    return kept
