"""Large matrices in blocks that stay in a core's cache, spread over the cores.

The formulas of this package are written for matrices with clients in rows and classes along the
last axis. A block is laid out class by class in memory, so that a sum over classes runs along
thousands of clients at a time, also when there are only ten classes.
"""

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

Item = TypeVar("Item")
Result = TypeVar("Result")

# 64 Ki cells of 8 bytes: a handful of temporaries fit in a second-level cache, and each step still
# takes long enough that threads do not queue for the interpreter lock.
CELLS = 1 << 16
_MOST_WORKERS = 8  # memory use grows with their number, and more of them are not faster


def usable_cores() -> int:
    """Return how many cores this process may use: a container or `taskset` may allow fewer."""
    if hasattr(os, "sched_getaffinity"):  # not on macOS and Windows
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def row_slices(rows: int, columns: int) -> Iterator[slice]:
    """Cut `rows` into consecutive slices of about `CELLS` cells.

    >>> list(row_slices(5, CELLS // 2))
    [slice(0, 2, None), slice(2, 4, None), slice(4, 5, None)]
    """
    step = max(1, CELLS // columns)
    for start in range(0, rows, step):
        yield slice(start, min(start + step, rows))


def class_major(rows: NDArray[np.int64]) -> NDArray[np.float64]:
    """Copy rows (clients x classes) to float64, each class contiguous in memory."""
    return np.asarray(rows, dtype=np.float64, order="F")


def outer_sum(
    x: NDArray[np.float64], t: NDArray[np.float64], more: NDArray[np.float64] | None = None
) -> NDArray[np.float64]:
    """Return x_k t_c, plus more_k if given, each class contiguous in memory.

    As a product of matrices it takes half the time that broadcasting takes.

    >>> outer_sum(np.array([1.0, 2.0]), np.array([0.5, 3.0]), np.array([10.0, 20.0]))
    array([[10.5, 13. ],
           [21. , 26. ]])
    """
    rest = np.zeros_like(x) if more is None else more
    product: NDArray[np.float64] = np.stack([t, np.ones_like(t)], axis=1) @ np.stack([x, rest])
    return product.T


def in_order(function: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
    """Apply `function` on all cores and yield the results in order, holding only a few at a time.

    NumPy releases the interpreter lock, so threads are enough and nothing is copied.

    >>> list(in_order(lambda x: x * x, range(4)))
    [0, 1, 4, 9]
    """
    iterator = iter(items)
    first = next(iterator, None)
    if first is None:
        return
    second = next(iterator, None)
    if second is None:  # one block: a small table should not pay for a pool
        yield function(first)
        return
    workers = min(usable_cores(), _MOST_WORKERS)
    pending: deque[Future[Result]] = deque()
    with ThreadPoolExecutor(workers) as pool:
        pending.extend(pool.submit(function, item) for item in (first, second))
        for item in iterator:
            pending.append(pool.submit(function, item))
            if len(pending) > workers + 1:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
