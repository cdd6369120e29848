"""Ask sites for a noisy sum: each adds its part of the noise, and enters the cost.

At a client, with its own histogram:

    answer_queries(app, lambda context: Holding(histogram, folder, identity, ledger))

At the server:

    answer = ask(grid, nodes, ClassTotals(classes=10), members, epsilon=1.0)
"""

import math
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from flwr.app import Context
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid
from numpy.typing import ArrayLike, NDArray

from fedeas.errors import InputError
from fedeas.flower.secure_sum import Summand, answer_secure_sum, secure_sum
from fedeas.privacy.accounting import DELTA, rho_for, sigma_for
from fedeas.privacy.ledger import Ledger
from fedeas.privacy.noise import Noise
from fedeas.privacy.queries.registry import QUERIES, AnyQuery, encode_query, read_query
from fedeas.privacy.queries.sample_sum import SampleSum
from fedeas.privacy.secure_sum.identity import Identity, Members
from fedeas.privacy.secure_sum.messages import RefusedError, Words

TIMEOUT = 600.0  # seconds that each of the five stages may take
TRAIN = "train"  # the sum of a round's updates, which another message begins
EXACT = "exact"  # allows sums without noise, which carry no guarantee


class Holding(NamedTuple):
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
    """

    histogram: ArrayLike | Callable[[], ArrayLike]
    folder: Path
    identity: Identity
    ledger: Ledger | None
    allow: tuple[str, ...] = tuple(QUERIES)
    samples: Callable[[], tuple[NDArray[Any], NDArray[np.int64]]] | None = None
    classes: int | None = None
    shape: Callable[[], tuple[int, ...]] | None = None


class Answer(NamedTuple):
    """The sum of the sites' answers, its noise, the nodes in it, and why others are left out."""

    sums: NDArray[np.int64]
    sigma: float
    nodes: list[int]
    left_out: dict[int, str]


def answer_queries(app: ClientApp, hold: Callable[[Context], Holding]) -> None:
    """Have a ClientApp answer queries; its counts stay with it, and its ledger keeps account.

    Parameters
    ----------
    app
        The client's app.
    hold
        Returns what this client answers with.
    """

    def site(context: Context) -> Summand:
        holding = hold(context)

        def words(asked: object) -> Words:
            query, noise, _ = _read(asked, holding)
            # Every check is done: from here on, nothing may fail by what the samples are.
            with np.errstate(all="ignore"):
                found = _answer(query, holding)
            if noise is not None:
                found = found + noise.part(query.length)
            words: Words = found.view(np.uint64)
            return words

        def check(asked: object) -> None:
            check_cost(*_cost(asked, holding), holding.ledger)

        def release(asked: object, key: bytes) -> None:
            name, rho = _cost(asked, holding)
            if rho and holding.ledger is not None:
                # Flower tells a site the run, and nothing of the server that it could rely on.
                run = str(context.run_id)
                holding.ledger.enter(name, rho, server="", run=run, key=key)

        return Summand(holding.identity, words, holding.folder, release, check)

    answer_secure_sum(app, site)


def _answer(query: AnyQuery, holding: Holding) -> NDArray[np.int64]:
    """Return a site's words, from its counts or from its samples."""
    if not isinstance(query, SampleSum):
        counts = holding.histogram
        return query.answer(counts() if callable(counts) else counts)
    if holding.samples is None:
        raise RefusedError("this site answers no sums over samples")
    return query.answer(*holding.samples())


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
        What the answer may cost one sample of a site, added or removed. An epsilon of infinity asks
        for an exact sum, which sites refuse unless their owner allows `exact`.
    timeout
        Seconds that each of the five stages may take.
    part
        The part of that cost, in rho, that this sum has where several of them share it.
    """
    rho = part * asked_rho(epsilon, delta)
    asked = {**encode_query(query), "rho": rho}
    noise = _noise(query, rho, members)
    found = secure_sum(grid, nodes, asked, query.length, members, timeout)
    sigma = 0.0
    if noise is not None:  # all parts of the sum, not only those that were promised
        sigma = noise.part_sigma * math.sqrt(len(found.nodes))
    return Answer(found.words.view(np.int64), sigma, found.nodes, found.left_out)


def asked_rho(epsilon: float, delta: float = DELTA) -> float:
    """Return what a server asks for with an epsilon, in rho; 0 for an exact sum."""
    return 0.0 if math.isinf(epsilon) else rho_for(epsilon, delta)


def not_allowed(name: str, rho: float, allow: Collection[str]) -> list[str]:
    """Return what the owner of a site would have to allow for a sum, and does not."""
    return [one for one in ((name,) if rho else (name, EXACT)) if one not in allow]


def _cost(asked: object, holding: Holding) -> tuple[str, float]:
    """Return what a sum is called in the ledger, and what it costs."""
    if isinstance(asked, dict) and asked.get("query") == TRAIN:
        return TRAIN, training_cost(asked, holding.allow)
    query, _, rho = _read(asked, holding)
    return query.name, rho


def training_cost(asked: dict[str, Any], allow: Collection[str]) -> float:
    """Return what a round's sum costs, if the owner of the site allows it.

    Whether there is noise is the owner's choice and not the server's: a sum without any needs
    `exact`, as every other.
    """
    rho = asked.get("rho", 0.0)
    if type(rho) is not float or not 0 <= rho < 1e6:
        raise RefusedError("not a query that this site answers")
    if missing := not_allowed(TRAIN, rho, allow):
        raise RefusedError(
            "the owner of this site does not allow this sum of updates",
            got="a sum with noise" if rho else "a sum without noise",
            fix=f"add {' and '.join(missing)} to `allow` in site.toml, or train with "
            "clip-norm and epsilon",
        )
    if asked.get("drift"):
        raise RefusedError("the direction of an update shows its length: it is not added up here")
    return rho


def check_cost(name: str, rho: float, ledger: Ledger | None) -> None:
    """Refuse a sum that the site could not pay for, before other sites pay for it."""
    if not rho:
        return
    if ledger is None:
        raise RefusedError("this site has no ledger, so it adds no noise")
    ledger.check(name, rho)


def _read(asked: object, holding: Holding) -> tuple[AnyQuery, Noise | None, float]:
    """Read what another party asks, as far as the owner of the site allows it."""
    try:
        settings: dict[str, Any] = dict(asked)  # type: ignore[call-overload]
        rho = settings.pop("rho")
    except (TypeError, ValueError, KeyError):
        raise RefusedError("not a query that this site answers") from None
    query = read_query(settings)
    if type(rho) is not float or not 0 <= rho < 1e6:
        raise RefusedError("not a query that this site answers")
    if not_allowed(query.name, rho, holding.allow):
        raise RefusedError("the owner of this site does not allow this query")
    if rho and holding.ledger is None:
        raise RefusedError("this site has no ledger, so it adds no noise")
    _check_data(query, holding)
    try:
        return query, _noise(query, rho, holding.identity.members), rho
    except InputError:
        raise RefusedError("not a query that this site answers") from None


def _check_data(query: AnyQuery, holding: Holding) -> None:
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


def _noise(query: AnyQuery, rho: float, members: Members) -> Noise | None:
    """Return the noise of a query's sum; both sides compute it from the cost."""
    if not rho:
        return None
    sigma = sigma_for(rho, query.sensitivity, honest=members.honest, words=query.length)
    return Noise(sigma, members.honest)
