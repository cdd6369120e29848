"""Recipes that split a data set into clients, by name and version.

A split can be reproduced years later: a recipe whose output changes gets a new version.
"""

import base64
import inspect
import json
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedeas._internal.names import unknown_name
from fedeas._internal.scalars import integer, positive, set_frozen, share
from fedeas._internal.seeds import check_seed, child_rng
from fedeas.counts.label_counts import LabelCounts
from fedeas.errors import InfeasibleError, InputError
from fedeas.partition.partition import Partition, Recipe, check_labels

Ints = NDArray[np.int64]
_TRIES = 20_000  # random splits before a search is given up
_LOOK = 200  # tries after which the odds are looked at
_HOPELESS = 0.1  # expected successes in all tries below which a search is given up
_CHECKS: dict[str, Callable[[Any], object]] = {
    "clients": lambda x: integer(x, "not a number of clients", "a whole number from 1", low=1),
    "shards_per_client": lambda x: integer(
        x, "not a number of shards", "a whole number from 1", low=1
    ),
    "alpha": lambda x: positive(x, "alpha"),
    "seed": check_seed,
    "min_samples": lambda x: integer(x, "not a number of samples", "a whole number from 0", low=0),
    "test_ratio": lambda x: share(x, "test_ratio", from_zero=True),
}


class _Checked:
    """Checks the settings of a recipe, which mean the same in all of them."""

    def __post_init__(self) -> None:
        set_frozen(self, **{name: _CHECKS[name](value) for name, value in vars(self).items()})


@dataclass(frozen=True)
class IID(_Checked):
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

    def partition(self, labels: ArrayLike) -> Partition:
        """Split a data set, given the label of every sample."""
        y = check_labels(labels)
        _check_enough(len(y), self.clients)
        order = child_rng(self.seed, "iid").permutation(len(y))
        return Partition.of(np.array_split(order, self.clients), y, self)


@dataclass(frozen=True)
class Shards(_Checked):
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

    def partition(self, labels: ArrayLike) -> Partition:
        """Split a data set, given the label of every sample."""
        y = check_labels(labels)
        each = self.shards_per_client
        _check_enough(len(y), self.clients, each)
        rng = child_rng(self.seed, "shards")
        # Which samples of a class share a shard is random; the sort then only groups the classes.
        shuffled = rng.permutation(len(y))
        by_label = shuffled[np.argsort(y[shuffled], kind="stable")]
        shards = np.array_split(by_label, self.clients * each)
        deal = rng.permutation(len(shards)).reshape(self.clients, each)
        lists = [np.concatenate([shards[i] for i in hand]) for hand in deal]
        return Partition.of(lists, y, self)


@dataclass(frozen=True)
class Dirichlet(_Checked):
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

    def partition(self, labels: ArrayLike) -> Partition:
        """Split a data set, given the label of every sample."""
        y = check_labels(labels)
        _check_enough(len(y), self.clients, self.min_samples)
        sizes = np.bincount(y)
        alphas = np.full(self.clients, self.alpha)

        def draw(tries: int) -> Ints:
            rng = child_rng(self.seed, "shares", tries)
            return _cuts(rng.dirichlet(alphas, size=len(sizes)), sizes)

        cuts = _search(draw, self.min_samples)
        pools = [
            child_rng(self.seed, "order", c).permutation(np.flatnonzero(y == c))
            for c in range(len(sizes))
        ]
        return Partition.of(_deal(pools, cuts), y, self)


@dataclass(frozen=True)
class FLBench(_Checked):
    """The paper's partition: the recipe and the exact random stream of the public FL-bench.

    The paper does not name its partition; this one, with seed 42, gives all of its totals. It is
    restated here from its behaviour: FL-bench from 2024-10-31 on, with its defaults.

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
        super().__post_init__()
        integer(
            self.seed, "not a seed", "a whole number from 0 to 2**32 - 1", low=0, high=2**32 - 1
        )

    def partition(
        self, labels: ArrayLike, progress: Callable[[int], None] | None = None
    ) -> Partition:
        """Split a data set, given the label of every sample; `progress` gets the tries made."""
        y = check_labels(labels)
        pools = [np.flatnonzero(y == c) for c in range(int(y.max()) + 1)]
        test, train = self._split(np.random.RandomState(self.seed), pools, progress)
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
        _check_enough(sum(map(len, pools)), self.clients, self.min_samples)
        cuts = _search(lambda _: self._draw(stream, pools), self.min_samples, progress)
        test, train = [], []
        for indices in _deal(pools, cuts):
            stream.shuffle(indices)
            test_size = int(len(indices) * self.test_ratio)
            test.append(indices[:test_size])
            train.append(indices[test_size:])
        return test, train

    def _draw(self, stream: np.random.RandomState, pools: list[Ints]) -> Ints:
        """Make one try: shuffle every pool in place and return where it is cut."""
        alphas = np.repeat(self.alpha, self.clients)
        shares = np.empty((len(pools), self.clients))
        for c, pool in enumerate(pools):
            stream.shuffle(pool)
            shares[c] = stream.dirichlet(alphas)
        return _cuts(shares, [len(pool) for pool in pools])


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


def _check_enough(samples: int, clients: int, each: int = 1) -> None:
    """Refuse at once what cannot work: more clients than the samples can serve."""
    if clients * max(each, 1) > samples:
        raise InfeasibleError(
            f"{clients:,} clients with at least {max(each, 1):,} samples each "
            f"need more than the {samples:,} there are",
            fix=f"ask for at most {samples // max(each, 1):,} clients, or lower min_samples or "
            "shards_per_client",
        )


def _cuts(shares: NDArray[np.float64], class_sizes: ArrayLike) -> Ints:
    """Return where the samples of each class are cut, C x (K + 1), for shares C x K."""
    if not np.isfinite(shares).all():
        raise InfeasibleError("shares too small to compute", fix="raise alpha")
    ends = np.asarray(class_sizes)[:, np.newaxis]
    cuts = np.zeros((len(ends), shares.shape[1] + 1), np.int64)
    cuts[:, 1:] = np.minimum(np.cumsum(shares, axis=1) * ends, ends)
    cuts[:, -1:] = ends
    return cuts


def _search(
    draw: Callable[[int], Ints],
    min_samples: int,
    progress: Callable[[int], None] | None = None,
) -> Ints:
    """Draw cuts until every client has enough; give up when the odds are hopeless."""
    short = 0
    for tries in range(_TRIES):
        cuts = draw(tries)
        sizes = np.diff(cuts, axis=1).sum(axis=0)
        if (sizes >= min_samples).all():
            return cuts
        short += int((sizes < min_samples).sum())
        # Short clients are about Poisson: with m on average a try succeeds with chance exp(-m).
        average = short / (tries + 1)
        if tries + 1 == _LOOK and math.exp(-average) * _TRIES < _HOPELESS:
            break
        if progress is not None:
            progress(tries + 1)
    raise InfeasibleError(
        f"{tries + 1:,} random splits all left clients with fewer than {min_samples} "
        f"samples, on average {average:.0f} of {len(sizes):,} clients",
        fix="raise alpha, lower the minimum, or ask for fewer clients",
    )


def _deal(pools: list[Ints], cuts: Ints) -> list[Ints]:
    """Return every client's samples, class after class."""
    return [
        np.concatenate([pool[cut[k] : cut[k + 1]] for pool, cut in zip(pools, cuts, strict=True)])
        for k in range(cuts.shape[1] - 1)
    ]


@dataclass(frozen=True)
class NaturalId:
    """Clients as they are: every site that a column names has what it has, however little.

    Parameters
    ----------
    column : str
        The column's name.

    >>> recipe = NaturalId("state")
    >>> recipe.partition([0, 1, 1], ["WY", "CA", "CA"]).clients
    ('CA', 'WY')
    """

    name: ClassVar[str] = "column"
    version: ClassVar[int] = 1
    column: str

    def __post_init__(self) -> None:
        if not isinstance(self.column, str) or not self.column.strip():
            raise InputError("not a column", got=self.column, allowed="column(NAME)")

    def partition(self, labels: ArrayLike, sites: Sequence[str] | None = None) -> Partition:
        """Split a data set, given the label and the site of every sample."""
        y = check_labels(labels)
        if sites is None or len(sites) != len(y):
            raise InputError(
                f"column({self.column}) needs the site of every sample",
                got=None if sites is None else f"{len(y):,} labels and {len(sites):,} sites",
                fix="name it in a config, or count its labels with `fedeas counts FILE --client "
                f"{self.column} --label label`",
            )
        names, codes = np.unique(np.asarray(sites, dtype=str), return_inverse=True)
        by_site = np.split(np.argsort(codes, kind="stable"), np.cumsum(np.bincount(codes))[:-1])
        numeric = all(name.isascii() and name.isdecimal() for name in names)
        # Numbers by value: 2 comes before 10.
        order = sorted(range(len(names)), key=lambda k: int(names[k]) if numeric else k)
        clients = tuple(str(names[k]) for k in order)
        return Partition.of([by_site[k] for k in order], y, self, clients=clients)


# A recipe whose output changes gets a new version here; the old one stays.
_RECIPES: dict[str, Callable[..., Recipe]] = {
    f"{recipe.name}@{recipe.version}": recipe
    for recipe in (FLBench, Dirichlet, IID, Shards, NaturalId)
}
_COLUMN = re.compile(r"(column(?:@\d+)?)\((.*)\)")


def make_partition(name: str, **settings: object) -> Recipe:
    """Make a recipe from 'name' (its newest version) or 'name@version' and its settings.

    Settings that are None count as not given.

    Parameters
    ----------
    name : str
        The recipe's name, with `@version` for an older one; `column(NAME)` has a client for every
        site that a column of the data names.
    **settings : object
        Its settings.

    >>> make_partition("iid", clients=5, alpha=None)
    IID(clients=5, seed=42)
    """
    if column := site_column(name):
        name, settings = name.partition("(")[0].strip(), {**settings, "column": column}
    versions = [key for key in _RECIPES if name in (key, key.partition("@")[0])]
    if not versions:
        raise unknown_name(name, "recipe", _RECIPES)
    factory = _RECIPES[versions[-1]]
    parameters = inspect.signature(factory).parameters
    settings = {k: v for k, v in settings.items() if v is not None}
    if unknown := [key for key in settings if key not in parameters]:
        raise InputError(
            f"recipe {versions[-1]} has no setting {unknown[0]!r}", allowed=", ".join(parameters)
        )
    for key, parameter in parameters.items():
        if parameter.default is parameter.empty and key not in settings:
            raise InputError(f"recipe {versions[-1]} needs {key!r}", fix=f"set {key}")
    return factory(**settings)


def site_column(name: str) -> str:
    """Return the column that a recipe takes clients from; none for other recipes.

    >>> site_column("column(state)"), site_column("iid")
    ('state', '')
    """
    match = _COLUMN.fullmatch(name.strip())
    if match is None and name.strip() in ("column", "column@1"):
        raise InputError("the recipe column needs the name of one", fix="write column(NAME)")
    return match[2].strip() if match else ""
