"""The effect of every beta, or every price, of a coarse grid, as whole numbers that can be summed.

A client's words are its N_k, N_k ||q_k - u||^2, and for every number of the grid its samples and
N_k ||q_k - u||^2 with them, each rounded to a whole number. Choosing needs only their sums over
clients.

The grid, the rule and the rounding are fixed here, and a client answers nothing else: on a grid of
three digits and with scores of 44 binary places a server could put every client's histogram
together from the sums (`tests/test_attacks.py`). Sums that are exact still carry no guarantee:
`docs/security.md` says what is left.
"""

from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedeas import skew
from fedeas.beta_path import BetaPath, Floats
from fedeas.blocks import class_major
from fedeas.counts import whole_matrix
from fedeas.errors import FedeasError, InfeasibleError, InputError
from fedeas.policies.fedeas import FedEAS
from fedeas.policies.matched import check_total
from fedeas.policies.waterfill import WaterFill, fill_at
from fedeas.privacy.secure_sum.messages import RefusedError, Words
from fedeas.select import BetaInterval, check_conditions, interval_of, nothing_admissible, runs_of

_MOST_REAL = 2**40  # samples of one client: sums over 2,000 clients then fit a word
_MOST_CLASSES = 2**20


@dataclass(frozen=True)
class Betas:
    """The betas of one digit from 1 to 90, for the FedEAS rule with its default settings."""

    name: ClassVar[str] = "fedeas"
    classes: int

    def __post_init__(self) -> None:
        _check_classes(self.classes)

    def rule(self, beta: float) -> FedEAS:
        """Return the policy of a beta."""
        return FedEAS(beta)

    @property
    def numbers(self) -> Floats:
        """The betas, upwards, as samples are."""
        return one_digit_numbers(0, 2)

    def fill(self, n: Floats) -> Floats:
        """Return what the client of a row of counts generates, a row per beta."""
        rule, betas = FedEAS(), self.numbers
        N = n.sum(axis=-1)
        rows = np.broadcast_to(n, (len(betas), self.classes))
        budgets = np.floor(rule.rate(n, N) * betas)
        return rule.fill_to(rows, np.broadcast_to(N, len(betas)), budgets)


@dataclass(frozen=True)
class Prices:
    """The prices of water-filling of one digit, from 0.9 (1 buys nothing) down to 0.001."""

    name: ClassVar[str] = "waterfill"
    classes: int

    def __post_init__(self) -> None:
        _check_classes(self.classes)

    def rule(self, price: float) -> WaterFill:
        """Return the policy of a price."""
        return WaterFill(price=price)

    @property
    def numbers(self) -> Floats:
        """The prices, downwards, so that samples go upwards."""
        return one_digit_numbers(-3, 0)[::-1]

    def fill(self, n: Floats) -> Floats:
        """Return what the client of a row of counts generates, a row per price."""
        return fill_at(n, self.numbers)


Question = Betas | Prices


@dataclass(frozen=True)
class Choice:
    """The choice, and its effect on all clients of the sum together."""

    policy: FedEAS | WaterFill  # `policy.local(counts)` is a client's own row
    samples: int
    reduction: float
    share: float
    real: int
    clients: int
    interval: BetaInterval | None = None  # None where a total was given, or no beta meets both


def encode_counts(question: Question, histogram: ArrayLike) -> Words:
    """Return a client's words for a question.

    >>> encode_counts(Betas(classes=3), [90, 10, 0])[:5]
    array([100,  49,   4,   8,  14], dtype=uint64)
    """
    given = np.asarray(histogram)
    if given.shape != (question.classes,):
        raise RefusedError(f"this client does not have {question.classes} classes")
    n = class_major(whole_matrix(given[np.newaxis], "counts"))
    N = float(n.sum())
    if not N < _MOST_REAL:
        raise RefusedError("this client has too many samples for a sum", allowed="below 2**40")
    added = question.fill(n)
    scores = N * np.append(skew.deviation(n), skew.deviation(n + added))
    words: Words = np.rint(
        np.concatenate([[N], scores[:1], added.sum(axis=-1), scores[1:]])
    ).astype(np.uint64)
    return words


def plain_sums(question: Question, n: NDArray[np.int64]) -> Words:
    """Return the sums of all clients' words from their counts, as a secure sum gives them.

    For code that may see the counts: simulations, and checks of a negotiation.
    """
    sums: Words = np.sum([encode_counts(question, row) for row in n], axis=0, dtype=np.uint64)
    return sums


def length_of(question: Question) -> int:
    """Return how many words a client's answer has."""
    return 2 + 2 * len(question.numbers)


def path_of(question: Question, sums: Words) -> BetaPath:
    """Return the effect of every number of the grid, from the sums of the clients' words."""
    numbers = question.numbers
    if sums.shape != (length_of(question),):
        raise InputError("not the sums of this question", got=sums.shape)
    real = int(sums[0])
    if not real:
        raise InfeasibleError("no client of the sum has samples")
    samples, scores = sums[2:].astype(np.float64).reshape(2, len(numbers))
    return BetaPath(numbers, samples, scores / real, float(sums[1]) / real, real)


def choose_by_conditions(
    question: Betas, sums: Words, clients: int, min_reduction: float = 0.5, max_share: float = 0.25
) -> Choice:
    """Choose beta by the paper's two conditions, as far as a coarse grid meets them.

    Where no beta of the grid meets both, the one that removes most within the share is chosen and
    `interval` is None. Scores are rounded at the clients, so a reduction is exact to within
    `clients / 2` of the summed score.

    >>> sums = encode_counts(Betas(3), [90, 10, 0]) + encode_counts(Betas(3), [30, 40, 30])
    >>> choose_by_conditions(Betas(3), sums, clients=2).policy.beta
    5.0
    """
    check_conditions(min_reduction, max_share)
    found = path_of(question, sums)
    if found.score_before == 0:
        raise InfeasibleError("every client is balanced already", fix="nothing needs generating")
    within = (found.shares < max_share) & (found.totals > 0)
    if not within.any():
        raise nothing_admissible(found, max_share, "no beta from 1 to 90")
    good = within & (found.reductions >= min_reduction)
    if not good.any():
        best = int(np.argmax(np.where(within, found.reductions, -np.inf)))
        return _choice(question, found, clients, best, None)
    ends = np.append(found.betas, 100.0)
    runs = [(float(ends[i]), float(ends[j])) for i, j in runs_of(good)]
    interval = interval_of(runs, min_reduction, max_share)
    at = int(np.flatnonzero(found.betas == interval.choice)[0])
    return _choice(question, found, clients, at, interval)


def choose_within(question: Question, sums: Words, clients: int, total: int) -> Choice:
    """Choose the number of the grid that spends most within a total, and never more.

    >>> sums = encode_counts(Prices(3), [90, 10, 0]) + encode_counts(Prices(3), [30, 40, 30])
    >>> chosen = choose_within(Prices(3), sums, clients=2, total=64)
    >>> chosen.policy, chosen.samples
    (WaterFill(total=None, price=0.2), 43)
    """
    check_total(total)
    found = path_of(question, sums)
    within = np.flatnonzero((found.totals > 0) & (found.totals <= total))
    if not within.size:
        raise InfeasibleError(
            f"every non-empty plan of the grid takes more than {total:,} samples",
            fix="spend more",
        )
    return _choice(question, found, clients, int(within[-1]), None)


def encode_query(question: Question) -> dict[str, object]:
    """Return a question as it is sent."""
    return {"policy": question.name, **asdict(question)}


def read_question(asked: object) -> Question:
    """Read a question from another party.

    >>> read_question({"policy": "waterfill", "classes": 10})
    Prices(classes=10)
    """
    kinds: dict[object, type[Question]] = {Betas.name: Betas, Prices.name: Prices}
    try:
        settings = dict(asked)  # type: ignore[call-overload]
        return kinds[settings.pop("policy")](**settings)
    except (TypeError, ValueError, KeyError, FedeasError):
        raise RefusedError("not a question that this client answers") from None


@lru_cache(maxsize=8)
def one_digit_numbers(first: int, last: int) -> Floats:
    """Return all numbers of one digit from 10**first to below 10**last.

    >>> one_digit_numbers(-1, 1)
    array([0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1. , 2. , 3. , 4. ,
           5. , 6. , 7. , 8. , 9. ])
    """
    # From text, so that 0.3 is the number that a user would type.
    numbers = [float(f"{n}e{power}") for power in range(first, last) for n in range(1, 10)]
    found = np.array(numbers)
    found.setflags(write=False)
    return found


def _choice(
    question: Question, found: BetaPath, clients: int, at: int, interval: BetaInterval | None
) -> Choice:
    return Choice(
        question.rule(float(found.betas[at])),
        int(found.totals[at]),
        float(found.reductions[at]),
        float(found.shares[at]),
        found.real,
        clients,
        interval,
    )


def _check_classes(classes: object) -> None:
    """Refuse an impossible number of classes; questions come from another party."""
    if type(classes) is not int or not 2 <= classes < _MOST_CLASSES:
        raise InputError("classes out of range", got=classes, allowed=f"2 to {_MOST_CLASSES - 1}")
