"""Choose beta, or water-filling's price, before training, from noisy sums over the sites.

At a client, with its own histogram, a folder of its own, its key and its ledger:

    answer_queries(app, lambda context: Holding(histogram, folder, identity, ledger))

At the server, with the list of members:

    nodes = list(grid.get_node_ids())
    chosen = negotiate_beta(grid, nodes, classes=10, members=members, epsilon=1.0)

`chosen.choice.policy.beta` is what clients are told; `FedEAS(beta).local` gives each its row.
"""

from collections.abc import Iterable
from typing import NamedTuple

from flwr.serverapp import Grid

from fedeas.flower.queries import TIMEOUT, ask
from fedeas.policies.matched import check_total
from fedeas.privacy.accounting import DELTA
from fedeas.privacy.queries.beta import BetaQuery
from fedeas.privacy.queries.class_totals import ClassTotals, Prior
from fedeas.privacy.queries.effects import Choice, choose_by_conditions, choose_within
from fedeas.privacy.queries.price import PriceQuery
from fedeas.privacy.secure_sum.identity import Members
from fedeas.select import check_conditions


class Negotiated(NamedTuple):
    """What was chosen, over which nodes, and why others are left out."""

    choice: Choice
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
    members
        The members of the federation.
    epsilon, delta
        What the answer may cost one sample of a site, added or removed.
    min_reduction, max_share
        The paper's two conditions. The smallest beta that meets both is chosen; if none does, the
        largest within `max_share`, and `choice.met` is not True.
    total
        Instead of the conditions: the largest beta within this many samples.
    timeout
        Seconds that each of the five stages may take.

    """
    query = BetaQuery(classes)
    if total is None:
        check_conditions(min_reduction, max_share)
    else:
        check_total(total)
    found = ask(grid, nodes, query, members, epsilon=epsilon, delta=delta, timeout=timeout)
    effects = query.read(found.sums, found.sigma, len(found.nodes))
    if total is not None:
        choice = choose_within(query, effects, total)
    else:
        choice = choose_by_conditions(query, effects, min_reduction, max_share)
    return Negotiated(choice, found.nodes, found.left_out)


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
        What the answer may cost one sample of a site, added or removed.
    timeout
        Seconds that each of the five stages may take.
    """
    check_total(total)
    query = PriceQuery(classes)
    found = ask(grid, nodes, query, members, epsilon=epsilon, delta=delta, timeout=timeout)
    effects = query.read(found.sums, found.sigma, len(found.nodes))
    return Negotiated(choose_within(query, effects, total), found.nodes, found.left_out)


def class_prior(
    grid: Grid,
    nodes: Iterable[int],
    classes: int,
    members: Members,
    *,
    epsilon: float = 1.0,
    delta: float = DELTA,
    timeout: float = TIMEOUT,
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
        What the answer may cost one sample of a site, added or removed.
    timeout
        Seconds that each of the five stages may take.
    """
    query = ClassTotals(classes)
    found = ask(grid, nodes, query, members, epsilon=epsilon, delta=delta, timeout=timeout)
    return query.read(found.sums, found.sigma, len(found.nodes))
