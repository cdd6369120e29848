"""Ask sites for a noisy sum, and choose beta or water-filling's price from it before training.

At a client, with its own histogram, a folder of its own, its key and its ledger:

    answer_queries(app, lambda context: QueryContext(histogram, folder, identity, ledger))

It adds its part of the noise and enters the cost. At the server, with the list of members:

    answer = ask(grid, nodes, ClassTotals(classes=10), members, epsilon=1.0)
    chosen = negotiate_beta(grid, nodes, classes=10, members=members, epsilon=1.0)

`chosen.choice.policy.beta` is what clients are told; `FedEAS(beta).local` gives each its row.
"""

import logging
import math
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from flwr.app import Context
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid
from numpy.typing import ArrayLike, NDArray

from fedeas._util.settings import read_settings
from fedeas.errors import InputError
from fedeas.planning.beta import check_conditions
from fedeas.planning.policies import check_total
from fedeas_private.accounting import ADDED, DELTA, GROUP, SAMPLE, rho_for, sigma_for
from fedeas_private.flower.secure_sum import SumParticipant, answer_secure_sum, secure_sum
from fedeas_private.flower.settings import EXACT, RoundSum
from fedeas_private.groups import Groups
from fedeas_private.ledger import Ledger
from fedeas_private.noise import SumNoise
from fedeas_private.queries import QUERIES, encode_query, read_query
from fedeas_private.queries.effects import (
    BetaQuery,
    PolicyChoice,
    PriceQuery,
    choose_by_conditions,
    choose_within,
)
from fedeas_private.queries.query import AnyQuery, ClassTotals, Prior, Query, SampleSum
from fedeas_private.secure_sum.identity import Identity, Members
from fedeas_private.secure_sum.messages import RefusedError, Vector
from fedeas_private.sums import PrivateSums, Release, answer_labels, answer_samples

_LOG = logging.getLogger("flwr")
TIMEOUT = 600.0  # seconds that each stage may take
TRAIN = "train"  # the sum of a round's updates, which another message begins


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
        Where answers are entered before they are sent; None allows only sums without noise.
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
    ledger: Ledger | None
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
            if rho and holding.ledger is not None:
                holding.ledger.check(query.name, rho)  # before other sites pay for the sum
            # Every check is done: from here on, nothing may fail by what the samples are.
            with np.errstate(all="ignore"):
                answer = _answer(query, holding)
            if noise is not None:
                answer = answer + noise.part(query.length)
            return answer.view(np.uint64)

        def release(asked: object, key: bytes) -> None:
            name, rho = _cost(asked, holding)
            if rho and holding.ledger is not None:
                # Flower tells a site the run, and nothing of the server that it could rely on.
                run = str(context.run_id)
                holding.ledger.enter(name, rho, server="", run=run, key=key)

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
        What the answer may cost one unit of a site, added or removed. An epsilon of infinity asks
        for an exact sum, which sites refuse unless their owner allows `exact`.
    timeout
        Seconds that each stage may take.
    part
        The part of that cost, in rho, that this sum has where several of them share it.
    unit
        Whose privacy epsilon is: 'sample' or 'group'. Sites whose owner chose another one refuse.
    """
    rho = part * asked_rho(epsilon, delta)
    asked = {**encode_query(query), "rho": rho, **_named_unit(unit)}
    noise = _noise(query, rho, members)
    found = secure_sum(grid, nodes, asked, query.length, members, timeout)
    sigma = 0.0
    if noise is not None:  # all parts of the sum, not only those that were promised
        sigma = noise.part_sigma * math.sqrt(len(found.nodes))
    return Answer(found.words.view(np.int64), sigma, found.nodes, found.left_out)


def _named_unit(unit: str) -> dict[str, str]:
    """Return how a request names its unit; none is a sample, as earlier versions ask."""
    if unit not in ADDED:
        raise InputError("unknown unit of privacy", got=unit, allowed=" or ".join(ADDED))
    return {} if unit == SAMPLE else {"unit": unit}


def check_unit(asked: object, unit: str) -> None:
    """Refuse a request for another unit of privacy than the owner's."""
    if asked != unit:
        raise RefusedError(
            "the owner of this site chose another unit of privacy",
            got=asked,
            allowed=unit,
            fix=f'the run must say unit = "{unit}"',
        )


def asked_rho(epsilon: float, delta: float = DELTA) -> float:
    """Return what a server asks for with an epsilon, in rho; 0 for an exact sum."""
    return 0.0 if math.isinf(epsilon) else rho_for(epsilon, delta)


def not_allowed(name: str, rho: float, allow: Collection[str]) -> list[str]:
    """Return what the owner of a site would have to allow for a sum, and does not."""
    return [one for one in ((name,) if rho else (name, EXACT)) if one not in allow]


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
        exact = math.isinf(epsilon)
        self._costs.append(math.inf if exact else share * asked_rho(epsilon, self._delta))
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


class Negotiated(NamedTuple):
    """What was chosen, over which nodes, and why others are left out."""

    choice: PolicyChoice
    nodes: list[int]
    left_out: dict[int, str]


def negotiate_beta(
    grid: Grid,
    nodes: Iterable[int],
    classes: int,
    members: Members,
    *,
    epsilon: float = 1.0,
    delta: float = DELTA,
    min_reduction: float = 0.5,
    max_share: float = 0.25,
    timeout: float = TIMEOUT,
    unit: str = SAMPLE,
) -> Negotiated:
    """Choose beta among ten round numbers per decade from 1 to 80, for the default FedEAS rule.

    Parameters
    ----------
    grid, nodes
        The Flower grid, and the nodes that take part.
    classes
        The number of classes of the federation.
    members
        The members of the federation.
    epsilon, delta
        What the answer may cost one unit of a site, added or removed.
    min_reduction, max_share
        The paper's two conditions. The smallest beta that meets both is chosen; if none does, the
        largest within `max_share`, and `choice.met` is not True.
    timeout
        Seconds that each stage may take.
    unit
        As for `ask`.

    """
    check_conditions(min_reduction, max_share)
    query = BetaQuery(classes)
    answer = ask(
        grid, nodes, query, members, epsilon=epsilon, delta=delta, timeout=timeout, unit=unit
    )
    effects = query.read(answer.sums, answer.sigma, len(answer.nodes))
    choice = choose_by_conditions(query, effects, min_reduction, max_share)
    return Negotiated(choice, answer.nodes, answer.left_out)


def negotiate_price(
    grid: Grid,
    nodes: Iterable[int],
    classes: int,
    members: Members,
    *,
    total: int,
    epsilon: float = 1.0,
    delta: float = DELTA,
    timeout: float = TIMEOUT,
    unit: str = SAMPLE,
) -> Negotiated:
    """Choose the price of water-filling that spends most within a total, on a grid.

    Parameters
    ----------
    grid, nodes
        The Flower grid, and the nodes that take part.
    classes
        The number of classes.
    members
        The members of the federation.
    total
        The most samples of all clients together.
    epsilon, delta
        What the answer may cost one unit of a site, added or removed.
    timeout
        Seconds that each stage may take.
    unit
        As for `ask`.
    """
    check_total(total)
    query = PriceQuery(classes)
    answer = ask(
        grid, nodes, query, members, epsilon=epsilon, delta=delta, timeout=timeout, unit=unit
    )
    effects = query.read(answer.sums, answer.sigma, len(answer.nodes))
    return Negotiated(choose_within(query, effects, total), answer.nodes, answer.left_out)


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
    if isinstance(asked, dict) and asked.get("query") == TRAIN:
        return TRAIN, training_cost(read_question(asked), holding.allow, holding.unit)
    query, _, rho = _read(asked, holding)
    return query.name, rho


def encode_question(question: RoundSum) -> dict[str, object]:
    """Return what a round's sum is of, as it is sent."""
    content = question.to_dict()
    unit = content.pop("unit")
    return {"query": TRAIN, **content, **_named_unit(unit)}


def read_question(asked: object) -> RoundSum:
    """Read what another party says that a round's sum is of."""
    if not isinstance(asked, dict) or asked.get("query") != TRAIN:
        raise RefusedError("not a question about training")
    content = {name: value for name, value in asked.items() if name != "query"}
    try:
        return read_settings(RoundSum, content, "the question")
    except InputError as error:
        raise RefusedError(str(error)) from None


def training_cost(question: RoundSum, allow: Collection[str], unit: str = SAMPLE) -> float:
    """Return what a round's sum costs, if the owner of the site allows it.

    Whether there is noise is the owner's choice and not the server's: a sum without any needs
    `exact`, as every other.
    """
    if missing := not_allowed(TRAIN, question.rho, allow):
        raise RefusedError(
            "the owner of this site does not allow this sum of updates",
            got="a sum with noise" if question.rho else "a sum without noise",
            fix=f"add {' and '.join(missing)} to `allow` in site.toml, or train with "
            "clip-norm and epsilon",
        )
    check_unit(question.unit, unit)
    if question.drift:
        raise RefusedError("the direction of an update shows its length: it is not added up here")
    return question.rho


def _read(asked: object, holding: QueryContext) -> tuple[AnyQuery, SumNoise | None, float]:
    """Read what another party asks, as far as the owner of the site allows it."""
    try:
        settings: dict[str, Any] = dict(asked)  # type: ignore[call-overload]
        rho, unit = settings.pop("rho"), settings.pop("unit", SAMPLE)
    except (TypeError, ValueError, KeyError):
        raise RefusedError("not a query that this site answers") from None
    if type(rho) is not float or not 0 <= rho < 1e6:
        raise RefusedError("not a query that this site answers")
    # Before it is read: a query of an installed package runs that package's code.
    if not_allowed(str(settings.get("query")), rho, holding.allow):
        raise RefusedError("the owner of this site does not allow this query")
    query = read_query(settings)
    check_unit(unit, holding.unit)
    if rho and holding.ledger is None:
        raise RefusedError("this site has no ledger, so it adds no noise")
    if holding.ledger is not None and holding.ledger.unit != holding.unit:
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


def _noise(query: AnyQuery, rho: float, members: Members) -> SumNoise | None:
    """Return the noise of a query's sum; both sides compute it from the cost."""
    if not rho:
        return None
    sigma = sigma_for(rho, query.sensitivity, honest=members.honest, words=query.length)
    return SumNoise(sigma, members.honest)
