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

from flwr.app import Context
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid
from numpy.typing import ArrayLike

from fedeas.flower.secure_sum import Summand, Sums, answer_secure_sum, secure_sum
from fedeas.policies.matched import check_total
from fedeas.privacy.choice import (
    Betas,
    Choice,
    Prices,
    Question,
    choose_by_conditions,
    choose_within,
    encode_counts,
    encode_query,
    length_of,
    read_question,
)
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
        return Summand(lambda asked: encode_counts(read_question(asked), histogram), folder)

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
    """Choose beta among the numbers of one digit from 1 to 90, for the default FedEAS rule.

    Parameters
    ----------
    grid, nodes
        The Flower grid, and the nodes that take part.
    classes
        The number of classes of the federation.
    min_reduction, max_share
        The paper's two conditions. If no beta of the grid meets both, the one that removes most
        within `max_share` is chosen, and `choice.interval` is None.
    total
        Instead of the conditions: the largest beta within this many samples.
    timeout
        Seconds that each of the four stages may take.

    """
    question = Betas(classes)
    if total is None:
        check_conditions(min_reduction, max_share)
    else:
        check_total(total)
    sums = _sums(grid, nodes, question, timeout)
    if total is not None:
        return _within(question, sums, total)
    choice = choose_by_conditions(question, sums.words, len(sums.nodes), min_reduction, max_share)
    return Negotiated(choice, sums.nodes, sums.left_out)


def negotiate_price(
    grid: Grid,
    nodes: Iterable[int],
    classes: int,
    *,
    total: int,
    timeout: float = TIMEOUT,
) -> Negotiated:
    """Choose the one-digit price of water-filling that spends most within a total.

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
    question = Prices(classes)
    return _within(question, _sums(grid, nodes, question, timeout), total)


def _sums(grid: Grid, nodes: Iterable[int], question: Question, timeout: float) -> Sums:
    return secure_sum(grid, nodes, encode_query(question), length_of(question), timeout)


def _within(question: Question, sums: Sums, total: int) -> Negotiated:
    choice = choose_within(question, sums.words, len(sums.nodes), total)
    return Negotiated(choice, sums.nodes, sums.left_out)
