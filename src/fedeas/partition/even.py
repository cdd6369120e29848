"""Splits into equal sizes: at random (iid), or a few shards of sorted labels per client."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from fedeas.errors import InfeasibleError
from fedeas.partition.feasible import check_clients, check_cut
from fedeas.partition.partition import Partition, check_labels
from fedeas.scalars import integer, keep
from fedeas.seeds import check_seed, child_rng


@dataclass(frozen=True)
class IID:
    """Shuffle all samples and cut them into equal parts.

    Parameters
    ----------
    clients : int
        The number of clients.
    seed : int
        Decides the order.

    >>> IID(clients=3).partition([0, 1] * 5).train.sizes
    array([4, 3, 3])
    """

    name: ClassVar[str] = "iid"
    version: ClassVar[int] = 1
    clients: int
    seed: int = 42

    def __post_init__(self) -> None:
        keep(self, clients=check_clients(self.clients), seed=check_seed(self.seed))

    def partition(self, labels: ArrayLike) -> Partition:
        """Split a data set, given the label of every sample."""
        y = check_labels(labels)
        check_cut(len(y), self.clients, 1)
        order = child_rng(self.seed, "iid").permutation(len(y))
        return Partition.of(np.array_split(order, self.clients), y, self)


@dataclass(frozen=True)
class Shards:
    """Sort by label, cut into equal shards and deal each client some of them (McMahan et al. 2017).

    Parameters
    ----------
    clients : int
        The number of clients.
    shards_per_client : int
        How many shards each client gets.
    seed : int
        Decides who gets which.

    >>> partition = Shards(clients=5, shards_per_client=2).partition([0, 1] * 50)
    >>> partition.train.sizes
    array([20, 20, 20, 20, 20])
    """

    name: ClassVar[str] = "shards"
    version: ClassVar[int] = 1
    clients: int
    shards_per_client: int = 2
    seed: int = 42

    def __post_init__(self) -> None:
        each, allowed = self.shards_per_client, "a whole number from 1"
        keep(
            self,
            clients=check_clients(self.clients),
            shards_per_client=integer(each, "not a number of shards", allowed, low=1),
            seed=check_seed(self.seed),
        )

    def partition(self, labels: ArrayLike) -> Partition:
        """Split a data set, given the label of every sample."""
        y = check_labels(labels)
        each = self.shards_per_client
        check_cut(len(y), self.clients, 1)
        if self.clients * each > len(y):
            raise InfeasibleError(
                f"{self.clients:,} clients with {each} shards each exceed {len(y):,} samples",
                fix="ask for fewer clients or shards",
            )
        rng = child_rng(self.seed, "shards")
        # Which samples of a class share a shard is random; the sort then only groups the classes.
        shuffled = rng.permutation(len(y))
        by_label = shuffled[np.argsort(y[shuffled], kind="stable")]
        shards = np.array_split(by_label, self.clients * each)
        deal = rng.permutation(len(shards)).reshape(self.clients, each)
        lists = [np.concatenate([shards[i] for i in hand]) for hand in deal]
        return Partition.of(lists, y, self)
