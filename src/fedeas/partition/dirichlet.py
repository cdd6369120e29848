"""The usual Dirichlet label skew, with modern random streams."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from fedeas.errors import InfeasibleError
from fedeas.partition.feasible import (
    Search,
    check_alpha,
    check_clients,
    check_cut,
    check_min_samples,
)
from fedeas.partition.partition import Partition, check_labels
from fedeas.scalars import keep
from fedeas.seeds import check_seed, child_rng

_TRIES = 20_000


@dataclass(frozen=True)
class Dirichlet:
    """Split each class among the clients in proportions from Dirichlet(alpha, ..., alpha).

    Shares are drawn again, up to a bound, until every client has `min_samples`. Each class is
    shuffled by a stream of its own, so its order does not depend on the other classes.

    Parameters
    ----------
    clients : int
        The number of clients.
    alpha : float
        The concentration: small means skewed.
    seed : int
        Decides shares and order.
    min_samples : int
        The fewest samples of a client.

    >>> Dirichlet(clients=5, alpha=0.5, seed=1).partition([0, 1, 2] * 100)
    Partition(dirichlet@1: 5 clients, 300 of 300 samples)
    """

    name: ClassVar[str] = "dirichlet"
    version: ClassVar[int] = 1
    clients: int
    alpha: float
    seed: int = 42
    min_samples: int = 1

    def __post_init__(self) -> None:
        keep(
            self,
            clients=check_clients(self.clients),
            alpha=check_alpha(self.alpha),
            seed=check_seed(self.seed),
            min_samples=check_min_samples(self.min_samples),
        )

    def partition(self, labels: ArrayLike) -> Partition:
        """Split a data set, given the label of every sample."""
        y = check_labels(labels)
        check_cut(len(y), self.clients, self.min_samples)
        class_sizes = np.bincount(y)
        search = Search(self.min_samples, _TRIES)
        while True:
            rng = child_rng(self.seed, "shares", search.tries)
            shares = rng.dirichlet(np.full(self.clients, self.alpha), size=len(class_sizes))
            if not np.isfinite(shares).all():
                raise InfeasibleError(
                    "shares too small to compute", got=self.alpha, fix="raise alpha"
                )
            cuts = np.floor(np.cumsum(shares, axis=1) * class_sizes[:, np.newaxis]).astype(np.int64)
            cuts[:, -1] = class_sizes
            cuts = np.minimum(cuts, class_sizes[:, np.newaxis])
            counts = np.diff(cuts, axis=1, prepend=0)
            if search.accept(counts.sum(axis=0)):
                break
        pieces: list[list[np.ndarray]] = [[] for _ in range(self.clients)]
        for c in range(len(class_sizes)):
            order = child_rng(self.seed, "order", c).permutation(np.flatnonzero(y == c))
            for k, piece in enumerate(np.split(order, cuts[c, :-1])):
                pieces[k].append(piece)
        return Partition.of([np.concatenate(piece) for piece in pieces], y, self)
