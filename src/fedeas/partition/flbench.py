"""The paper's partition: the recipe and the exact random stream of the public FL-bench.

The paper does not name its partition; this one, with seed 42, gives all of its totals. It is
restated here from its behaviour: FL-bench from 2024-10-31 on, with its defaults.
"""

import base64
import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedeas.counts import LabelCounts
from fedeas.errors import InfeasibleError
from fedeas.partition.feasible import (
    Search,
    check_alpha,
    check_clients,
    check_cut,
    check_min_samples,
)
from fedeas.partition.partition import Partition, check_labels
from fedeas.scalars import integer, keep, number

Ints = NDArray[np.int64]

_TRIES = 20_000


@dataclass(frozen=True)
class FLBench:
    """Dirichlet shares per class from one legacy stream, then a test part cut off every client.

    1. One stream, `RandomState(seed)`, serves everything, never seeded again.
    2. Until every client has `min_samples`: for each class in order, shuffle its indices, draw
       Dirichlet(alpha, ..., alpha) and cut at trunc(cumsum(shares) n_c). Between tries the indices
       stay as they were shuffled.
    3. For each client in order, shuffle its indices (class after class); the first
       int(n test_ratio) are its test part.

    Labels are those of the official training and test sets, in this order. Counts depend only on
    the class sizes, indices also on the order of the labels.

    Parameters
    ----------
    clients : int
        The number of clients.
    alpha : float
        The concentration: small means skewed.
    seed : int
        Decides shares and order.
    test_ratio : float
        The part of each client's samples that is for testing.
    min_samples : int
        The fewest samples of a client.

    >>> FLBench(clients=20, alpha=0.1).counts([6000] * 10).total
    45007
    """

    name: ClassVar[str] = "flbench"
    version: ClassVar[int] = 1
    clients: int
    alpha: float
    seed: int = 42
    test_ratio: float = 0.25
    min_samples: int = 10

    def __post_init__(self) -> None:
        allowed = "a whole number from 0 to 2**32 - 1"
        keep(
            self,
            clients=check_clients(self.clients),
            alpha=check_alpha(self.alpha),
            seed=integer(self.seed, "not a seed", allowed, low=0, high=2**32 - 1),
            test_ratio=number(
                self.test_ratio, "test_ratio out of range", "0 up to 1", lambda x: 0 <= x < 1
            ),
            min_samples=check_min_samples(self.min_samples),
        )

    def partition(
        self, labels: ArrayLike, progress: Callable[[int], None] | None = None
    ) -> Partition:
        """Split a data set, given the label of every sample; `progress` gets the tries made."""
        y = check_labels(labels)
        pools = [np.flatnonzero(y == c) for c in range(int(y.max()) + 1)]
        stream = np.random.RandomState(self.seed)
        test, train = self._split(stream, pools, progress)
        return Partition.of(train, y, self, test)

    def counts(self, class_sizes: Sequence[int], *, walk: bool = False) -> LabelCounts:
        """Return the training counts of a data set with these class sizes, without its labels.

        A few settings take thousands of tries; if the stream's state before the successful one is
        on file, the search starts there. `walk=True` makes every try from the first.
        """
        C = len(class_sizes)
        # A pool of equal numbers draws from the stream as a pool of indices does.
        pools = [np.full(size, c, dtype=np.int64) for c, size in enumerate(class_sizes)]
        stream = np.random.RandomState(self.seed)
        key = [self.seed, self.clients, self.alpha, self.min_samples, list(class_sizes)]
        state = None if walk else _waypoints().get(json.dumps(key))
        if state is not None:
            stream.set_state(state)
        _, train = self._split(stream, pools)
        return LabelCounts([np.bincount(part, minlength=C) for part in train])

    def _split(
        self,
        stream: np.random.RandomState,
        pools: list[Ints],
        progress: Callable[[int], None] | None = None,
    ) -> tuple[list[Ints], list[Ints]]:
        """Return every client's test and training part."""
        check_cut(sum(map(len, pools)), self.clients, self.min_samples)
        search = Search(self.min_samples, _TRIES)
        while True:
            cuts = self._draw(stream, pools)
            if search.accept(np.diff(cuts, axis=1).sum(axis=0)):
                break
            if progress is not None:
                progress(search.tries)
        test, train = [], []
        for k in range(self.clients):
            own = np.concatenate(
                [pool[cut[k] : cut[k + 1]] for pool, cut in zip(pools, cuts, strict=True)]
            )
            stream.shuffle(own)
            held_out = int(len(own) * self.test_ratio)
            test.append(own[:held_out])
            train.append(own[held_out:])
        return test, train

    def _draw(self, stream: np.random.RandomState, pools: list[Ints]) -> Ints:
        """Make one try: shuffle every pool in place and return where it is cut."""
        alphas = np.repeat(self.alpha, self.clients)
        cuts = np.zeros((len(pools), self.clients + 1), np.int64)
        for c, pool in enumerate(pools):
            stream.shuffle(pool)
            shares = stream.dirichlet(alphas)
            if not np.isfinite(shares).all():
                raise InfeasibleError(
                    "shares too small to compute", got=self.alpha, fix="raise alpha"
                )
            cuts[c, 1:-1] = np.trunc(np.cumsum(shares) * len(pool))[:-1]
            cuts[c, -1] = len(pool)
        return cuts


def participants(clients: int, ratio: float, rounds: int, seed: int = 42) -> list[list[int]]:
    """Return FL-bench's cohorts, drawn up front from Python's own generator.

    >>> participants(20, 0.5, 1)
    [[3, 0, 8, 7, 16, 2, 11, 1, 10, 17]]
    """
    stream = random.Random(seed)  # noqa: S311 - a published stream, not a secret
    return [stream.sample(range(clients), int(clients * ratio)) for _ in range(rounds)]


@cache
def _waypoints() -> dict[str, tuple[Any, ...]]:
    """Read the states of the stream that are on file, by settings."""
    text = files("fedeas.partition").joinpath("flbench_waypoints.json").read_text("utf-8")
    return {
        json.dumps(point["key"]): (
            "MT19937",
            np.frombuffer(base64.b64decode(point["state"]), "<u4").astype(np.uint32),
            point["position"],
        )
        for point in json.loads(text)
    }
