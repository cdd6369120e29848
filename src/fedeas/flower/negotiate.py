"""Choose beta, or water-filling's price, before training, from exact sums over clients.

See docs/security.md for what such sums can give away.

At a client, with its own histogram and a folder of its own:

    answer_negotiation(app, lambda context: Holding(histogram, folder))

At the server:

    nodes = list(grid.get_node_ids())
    chosen = negotiate_beta(grid, nodes, classes=10)

`chosen.choice.policy.beta` is what clients are told; `FedEAS(beta).local` gives each its row.
"""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np
from flwr.app import Context
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid
from numpy.typing import ArrayLike

from fedeas.flower.secure_sum import Summand, Sums, answer_secure_sum, secure_sum
from fedeas.policies.matched import check_total
from fedeas.privacy.queries.beta import BetaQuery
from fedeas.privacy.queries.effects import (
    Choice,
    EffectQuery,
    Effects,
    choose_by_conditions,
    choose_within,
)
from fedeas.privacy.queries.price import PriceQuery
from fedeas.privacy.queries.registry import encode_query, read_query
from fedeas.privacy.secure_sum.messages import Words
from fedeas.select import check_conditions

TIMEOUT = 600.0  # seconds that each of the four stages may take


class Holding(NamedTuple):
    """What a client negotiates with: its count of every class, and a folder of its own.

    Parameters
    ----------
    histogram
        The client's count of every class.
    folder
        A folder that only this client writes to.
    """

    histogram: ArrayLike
    folder: Path


class Negotiated(NamedTuple):
    """What was chosen, over which nodes, and why others are left out."""

    choice: Choice
    nodes: list[int]
    left_out: dict[int, str]


def answer_negotiation(app: ClientApp, hold: Callable[[Context], Holding]) -> None:
    """Have a ClientApp take part in choosing beta or a price; its counts stay with it.

    Parameters
    ----------
    app
        The client's app.
    hold
        Returns what this client negotiates with.
    """

    def site(context: Context) -> Summand:
        histogram, folder = hold(context)

        def words(asked: object) -> Words:
            return read_query(asked).answer(histogram).astype(np.uint64)

        return Summand(words, folder)

    answer_secure_sum(app, site)


def negotiate_beta(
    grid: Grid,
    nodes: Iterable[int],
    classes: int,
    *,
    min_reduction: float = 0.5,
    max_share: float = 0.25,
    total: int | None = None,
    timeout: float = TIMEOUT,
) -> Negotiated:
    """Choose beta among ten round numbers per decade from 1 to 80, for the default FedEAS rule.

    Parameters
    ----------
    grid, nodes
        The Flower grid, and the nodes that take part.
    classes
        The number of classes of the federation.
    min_reduction, max_share
        The paper's two conditions. The smallest beta that meets both is chosen; if none does, the
        largest within `max_share`, and `choice.met` is not True.
    total
        Instead of the conditions: the largest beta within this many samples.
    timeout
        Seconds that each of the four stages may take.

    """
    query = BetaQuery(classes)
    if total is None:
        check_conditions(min_reduction, max_share)
    else:
        check_total(total)
    effects, sums = _ask(grid, nodes, query, timeout)
    if total is not None:
        choice = choose_within(query, effects, total)
    else:
        choice = choose_by_conditions(query, effects, min_reduction, max_share)
    return Negotiated(choice, sums.nodes, sums.left_out)


def negotiate_price(
    grid: Grid,
    nodes: Iterable[int],
    classes: int,
    *,
    total: int,
    timeout: float = TIMEOUT,
) -> Negotiated:
    """Choose the price of water-filling that spends most within a total, on a grid.

    Parameters
    ----------
    grid, nodes
        The Flower grid, and the nodes that take part.
    classes
        The number of classes.
    total
        The most samples of all clients together.
    timeout
        Seconds that each of the four stages may take.
    """
    check_total(total)
    query = PriceQuery(classes)
    effects, sums = _ask(grid, nodes, query, timeout)
    return Negotiated(choose_within(query, effects, total), sums.nodes, sums.left_out)


def _ask(
    grid: Grid, nodes: Iterable[int], query: EffectQuery, timeout: float
) -> tuple[Effects, Sums]:
    sums = secure_sum(grid, nodes, encode_query(query), query.length, timeout)
    return query.read(sums.words.astype(np.int64), 0.0, len(sums.nodes)), sums
