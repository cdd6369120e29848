"""Beta, or water-filling's price, before training: the server learns sums over clients alone.

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
from fedeas.policies.fedeas import FedEAS
from fedeas.policies.matched import check_total
from fedeas.secure.paths import (
    Betas,
    Choice,
    Prices,
    Question,
    asked_of,
    choose_by_conditions,
    choose_within,
    length_of,
    read_question,
    words_of,
)
from fedeas.select import check_conditions

TIMEOUT = 600.0  # seconds that each of the four stages may take


class Holding(NamedTuple):
    """What a client negotiates with: its count of every class, and a folder of its own."""

    histogram: ArrayLike
    folder: Path


class Negotiated(NamedTuple):
    """What was chosen, over which nodes, and why others are left out."""

    choice: Choice
    nodes: list[int]
    left_out: dict[int, str]


def answer_negotiation(app: ClientApp, hold: Callable[[Context], Holding]) -> None:
    """Have a ClientApp take part in choosing beta or a price; its counts stay with it."""

    def site(context: Context) -> Summand:
        histogram, folder = hold(context)
        return Summand(lambda asked: words_of(read_question(asked), histogram), folder)

    answer_secure_sum(app, site)


def negotiate_beta(
    grid: Grid,
    nodes: Iterable[int],
    classes: int,
    *,
    min_reduction: float = 0.5,
    max_share: float = 0.25,
    total: int | None = None,
    rule: FedEAS | None = None,
    digits: int = 3,
    timeout: float = TIMEOUT,
) -> Negotiated:
    """Choose beta as `fedeas select` does: by the two conditions, or the largest within a total.

    `rule` has the other settings of the policy; its own beta does not count. Fewer `digits` are a
    coarser grid, and sums that say less about few clients.
    """
    kept = rule or FedEAS()
    question = Betas(classes, digits, kept.size_exponent, kept.entropy, kept.below_mean)
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
    digits: int = 3,
    timeout: float = TIMEOUT,
) -> Negotiated:
    """Choose the price of water-filling that spends most within a total, and never more."""
    check_total(total)
    question = Prices(classes, digits)
    return _within(question, _sums(grid, nodes, question, timeout), total)


def _sums(grid: Grid, nodes: Iterable[int], question: Question, timeout: float) -> Sums:
    return secure_sum(grid, nodes, asked_of(question), length_of(question), timeout)


def _within(question: Question, sums: Sums, total: int) -> Negotiated:
    choice = choose_within(question, sums.words, len(sums.nodes), total)
    return Negotiated(choice, sums.nodes, sums.left_out)
