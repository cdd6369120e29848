"""Ask sites for noisy sums, such as the class distribution of the federation.

At a client, with its own histogram, a folder of its own, its key and its ledger:

    answer_queries(app, lambda context: QueryContext(histogram, folder, identity, ledger))

It adds its part of the noise and enters the cost. At the server, with the list of members:

    answer = ask(grid, nodes, ClassTotals(classes=10), members, epsilon=1.0)
    prior = class_prior(grid, nodes, classes=10, members=members, epsilon=1.0)
"""

import logging
import math
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from flwr.app import Context
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid
from numpy.typing import ArrayLike, NDArray

from fedeas._internal.names import choice
from fedeas.errors import InputError
from fedeas.private.accounting import ADDED, DELTA, GROUP, SAMPLE, rho_for, sigma_for
from fedeas.private.flower.secure_sum import SumParticipant, answer_secure_sum, secure_sum
from fedeas.private.groups import Groups
from fedeas.private.ledger import Ledger
from fedeas.private.noise import SumNoise
from fedeas.private.queries import QUERIES, encode_query, read_query
from fedeas.private.queries.query import AnyQuery, ClassTotals, Prior, Query, SampleSum
from fedeas.private.secure_sum.identity import Identity, Members
from fedeas.private.secure_sum.messages import RefusedError, Vector
from fedeas.private.sums import PrivateSums, Release, answer_labels, answer_samples

_LOG = logging.getLogger("flwr")
TIMEOUT = 600.0  # seconds that each stage may take


class QueryContext(NamedTuple):
    """What a client answers queries with.

    Parameters
    ----------
    histogram
        The client's count of every class, or a function that returns it: most messages of a sum
        do not need it.
    folder
        A folder that only this client writes to.
    identity
        The client's key, and the members of the federation.
    ledger
        Where answers are entered before they are sent.
    allow
        The names of the queries that are answered.
    samples
        Returns the client's samples and labels, for queries that are sums over samples.
    classes
        How many classes the owner's list has; by default as many as a given histogram has counts.
    shape
        Returns the shape of one sample. It is asked before `samples` is, and a query of another
        shape, or of another number of classes, is refused whatever the samples are.
    groups
        Returns the group of every sample, if the owner's unit of privacy is a group, such as a
        person. Then histograms are counted from `samples`, and a request that names another unit is
        refused.
    """

    histogram: ArrayLike | Callable[[], ArrayLike]
    folder: Path
    identity: Identity
    ledger: Ledger
    allow: tuple[str, ...] = tuple(QUERIES)
    samples: Callable[[], tuple[NDArray[Any], NDArray[np.int64]]] | None = None
    classes: int | None = None
    shape: Callable[[], tuple[int, ...]] | None = None
    groups: Callable[[], Groups] | None = None

    @property
    def unit(self) -> str:
        """Whose privacy the owner promises: 'sample' or 'group'."""
        return SAMPLE if self.groups is None else GROUP


class Answer(NamedTuple):
    """The sum of the sites' answers, its noise, the nodes in it, and why others are left out."""

    sums: NDArray[np.int64]
    sigma: float
    nodes: list[int]
    left_out: dict[int, str]


def answer_queries(app: ClientApp, hold: Callable[[Context], QueryContext]) -> None:
    """Have a ClientApp answer queries; its counts stay with it, and its ledger keeps account.

    Parameters
    ----------
    app
        The client's app.
    hold
        Returns what this client answers with.
    """

    def site(context: Context) -> SumParticipant:
        holding = hold(context)

        def words(asked: object) -> Vector:
            query, noise, rho = _read(asked, holding)
            holding.ledger.check(query.name, rho)  # before other sites pay for the sum
            # Every check is done: from here on, nothing may fail by what the samples are.
            with np.errstate(all="ignore"):
                answer = _answer(query, holding)
            return (answer + noise.part(query.length)).view(np.uint64)

        def release(asked: object, key: bytes) -> None:
            name, rho = _cost(asked, holding)
            # Flower tells a site the run, and nothing of the server that it could rely on.
            holding.ledger.enter(name, rho, server="", run=str(context.run_id), key=key)

        return SumParticipant(holding.identity, words, holding.folder, release)

    answer_secure_sum(app, site)


def _answer(query: AnyQuery, holding: QueryContext) -> NDArray[np.int64]:
    """Return a site's words, from its counts or from its samples."""
    groups = None if holding.groups is None else holding.groups()
    if isinstance(query, Query) and groups is None:
        counts = holding.histogram
        return query.answer(counts() if callable(counts) else counts)
    if not isinstance(query, Query | SampleSum) or holding.samples is None:
        raise RefusedError("this site answers no sums over samples")
    samples, labels = holding.samples()
    if isinstance(query, Query):
        return answer_labels(query, labels, groups)
    return answer_samples(query, samples, labels, groups)


def ask(
    grid: Grid,
    nodes: Iterable[int],
    query: AnyQuery,
    members: Members,
    *,
    epsilon: float = 1.0,
    delta: float = DELTA,
    timeout: float = TIMEOUT,
    part: float = 1.0,
    unit: str = SAMPLE,
) -> Answer:
    """Ask all sites a query, and return the noisy sum of their answers.

    Parameters
    ----------
    grid, nodes
        The Flower grid, and the nodes that take part.
    query
        What is asked.
    members
        The members of the federation.
    epsilon, delta
        What the answer may cost one unit of a site, added or removed.
    timeout
        Seconds that each stage may take.
    part
        The part of that cost, in rho, that this sum has where several of them share it.
    unit
        Whose privacy epsilon is: 'sample' or 'group'. Sites whose owner chose another one refuse.
    """
    rho = part * rho_for(epsilon, delta)
    asked = {**encode_query(query), "rho": rho, **_named_unit(unit)}
    noise = _noise(query, rho, members)
    found = secure_sum(grid, nodes, asked, query.length, members, timeout)
    # Of all parts of the sum, not only those that were promised.
    sigma = noise.part_sigma * math.sqrt(len(found.nodes))
    return Answer(found.words.view(np.int64), sigma, found.nodes, found.left_out)


def _named_unit(unit: str) -> dict[str, str]:
    """Return how a request names its unit; none is a sample, as earlier versions ask."""
    choice(unit, "unit of privacy", ADDED)
    return {} if unit == SAMPLE else {"unit": unit}


def _check_unit(asked: object, unit: str) -> None:
    """Refuse a request for another unit of privacy than the owner's."""
    if asked != unit:
        raise RefusedError(
            "the owner of this site chose another unit of privacy",
            got=asked,
            allowed=unit,
            fix=f'the run must say unit = "{unit}"',
        )


class FlowerSums(PrivateSums):
    """Noisy sums over the sites of a Flower grid; each site's ledger keeps its own account.

    Parameters
    ----------
    grid, nodes
        The Flower grid, and the nodes that take part.
    members
        The members of the federation.
    delta
        The delta of the guarantee.
    samples
        How many samples each node says it has, where that is known.
    timeout
        Seconds that each stage of a sum may take.
    unit
        Whose privacy an epsilon is, as for `ask`; `samples` are then numbers of these.
    """

    def __init__(
        self,
        grid: Grid,
        nodes: Iterable[int],
        members: Members,
        delta: float = DELTA,
        samples: Mapping[int, int] | None = None,
        timeout: float = TIMEOUT,
        unit: str = SAMPLE,
    ) -> None:
        super().__init__(delta)
        self._grid, self._nodes, self._members = grid, list(nodes), members
        self._samples, self._timeout, self._unit = samples or {}, timeout, unit

    def ask(self, query: AnyQuery, epsilon: float = 1.0, share: float = 1.0) -> Release:
        """Ask all sites a query, and return the noisy sum of their answers.

        Parameters
        ----------
        query, epsilon, share
            As for `PrivateSums`. A sum that fails may have cost some sites its price, so it counts.
        """
        self._costs.append(share * rho_for(epsilon, self._delta))
        answer = ask(
            self._grid, self._nodes, query, self._members, epsilon=epsilon, delta=self._delta,
            timeout=self._timeout, part=share, unit=self._unit,
        )  # fmt: skip
        for node, reason in answer.left_out.items():
            _LOG.warning("the sum %s is without node %s: %s", query.name, node, reason)
        sizes = [self._samples[node] for node in answer.nodes if node in self._samples]
        total = sum(sizes) if len(sizes) == len(answer.nodes) else None
        sites = len(answer.nodes)
        return Release(answer.sums, answer.sigma, sites, epsilon, self._delta, total, self._unit)


def class_prior(
    grid: Grid,
    nodes: Iterable[int],
    classes: int,
    members: Members,
    *,
    epsilon: float = 1.0,
    delta: float = DELTA,
    timeout: float = TIMEOUT,
    unit: str = SAMPLE,
) -> Prior:
    """Return the federation's share of every class, with the errors that the noise gives them.

    Parameters
    ----------
    grid, nodes
        The Flower grid, and the nodes that take part.
    classes
        The number of classes.
    members
        The members of the federation.
    epsilon, delta
        What the answer may cost one unit of a site, added or removed.
    timeout
        Seconds that each stage may take.
    unit
        As for `ask`.
    """
    query = ClassTotals(classes)
    answer = ask(
        grid, nodes, query, members, epsilon=epsilon, delta=delta, timeout=timeout, unit=unit
    )
    return query.read(answer.sums, answer.sigma, len(answer.nodes))


def _cost(asked: object, holding: QueryContext) -> tuple[str, float]:
    """Return what a sum is called in the ledger, and what it costs."""
    query, _, rho = _read(asked, holding)
    return query.name, rho


def _read(asked: object, holding: QueryContext) -> tuple[AnyQuery, SumNoise, float]:
    """Read what another party asks, as far as the owner of the site allows it."""
    try:
        settings: dict[str, Any] = dict(asked)  # type: ignore[call-overload]
        rho, unit = settings.pop("rho"), settings.pop("unit", SAMPLE)
    except (TypeError, ValueError, KeyError):
        raise RefusedError("not a query that this site answers") from None
    if type(rho) is not float or not 0 < rho < 1e6:
        raise RefusedError("not a query that this site answers")
    if settings.get("query") not in holding.allow:
        raise RefusedError("the owner of this site does not allow this query")
    query = read_query(settings)
    _check_unit(unit, holding.unit)
    if holding.ledger.unit != holding.unit:
        raise RefusedError("this site's ledger is of another unit of privacy")
    _check_data(query, holding)
    try:
        return query, _noise(query, rho, holding.identity.members), rho
    except InputError:
        raise RefusedError("not a query that this site answers") from None


def _check_data(query: AnyQuery, holding: QueryContext) -> None:
    """Refuse a query about other data than the site's, before any of it is looked at.

    The owner's list of classes decides, not the labels: a refusal would tell which ones there are.
    """
    classes, counts = holding.classes, holding.histogram
    if classes is None and not callable(counts):
        classes = np.asarray(counts).size
    if query.classes != classes:
        raise RefusedError("this site has another number of classes", got=query.classes)
    if isinstance(query, SampleSum):
        if holding.samples is None or holding.shape is None:
            raise RefusedError("this site answers no sums over samples")
        if query.shape != tuple(holding.shape()):
            raise RefusedError("this site's samples have another shape", got=query.shape)


def _noise(query: AnyQuery, rho: float, members: Members) -> SumNoise:
    """Return the noise of a query's sum; both sides compute it from the cost."""
    sigma = sigma_for(rho, query.sensitivity, honest=members.honest, words=query.length)
    return SumNoise(sigma, members.honest)
