"""What every beta, or every price, of a grid does: whole numbers of a client that add up.

A client's words are its N_k, N_k ||q_k - u||^2, and for every number of the grid its samples and
N_k ||q_k - u||^2 with them. Their sums over clients are all that choosing takes. They have no order
of clients or classes: nothing in them says which client or which class a number comes from.

The betas are the plain numbers, those of at most three significant digits. `select` chooses the
plainest number of an interval, so an interval that holds one of them leads to the same choice from
the sums.
"""

from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from fedeas import skew
from fedeas.blocks import class_major
from fedeas.counts import whole_matrix
from fedeas.errors import FedeasError, InfeasibleError, InputError
from fedeas.policies.fedeas import FedEAS
from fedeas.policies.matched import check_total
from fedeas.policies.waterfill import WaterFill, fill_at
from fedeas.secure.messages import RefusedError, Words
from fedeas.select import (
    BetaInterval,
    Floats,
    Path,
    check_conditions,
    interval_of,
    nothing_admissible,
    runs_of,
)

_FRACTION = 44  # bits after the point; with 2**20 clients their sum still fits a word
_MOST_REAL = 2**40  # samples of one client
_MOST_SAMPLES = 2**44 - 1  # of one client to generate; what is more counts as this
_BEYOND = 1e300  # for a total that reached it: a share of one
_DIGITS = {1: "one digit", 2: "two digits", 3: "three digits"}


@dataclass(frozen=True)
class Betas:
    """Betas of the FedEAS rule, from 0.1 to 99,900."""

    name: ClassVar[str] = "fedeas"
    classes: int
    digits: int = 3
    size_exponent: float = 0.5
    entropy: bool = True
    below_mean: bool = True

    def __post_init__(self) -> None:
        _check(self.classes, self.digits)
        self.rule(1.0)

    def rule(self, beta: float) -> FedEAS:
        """Return the policy of a beta."""
        return FedEAS(beta, self.size_exponent, self.entropy, self.below_mean)

    @property
    def numbers(self) -> Floats:
        """The betas, upwards, as samples are."""
        return plain_numbers(self.digits, -1, 5)

    def fill(self, n: Floats) -> Floats:
        """Return what the client of a row of counts generates, a row per beta."""
        rule, betas = self.rule(1.0), self.numbers
        N = n.sum(axis=-1)
        rows = np.broadcast_to(n, (len(betas), self.classes))
        budgets = np.floor(rule.rate(n, N) * betas)
        return rule.fill_to(rows, np.broadcast_to(N, len(betas)), budgets)


@dataclass(frozen=True)
class Prices:
    """Prices of water-filling, from just below 1, the price of nothing, down to 0.001."""

    name: ClassVar[str] = "waterfill"
    classes: int
    digits: int = 3

    def __post_init__(self) -> None:
        _check(self.classes, self.digits)

    def rule(self, price: float) -> WaterFill:
        """Return the policy of a price."""
        return WaterFill(price=price)

    @property
    def numbers(self) -> Floats:
        """The prices, downwards, so that samples go upwards."""
        return even_numbers(2 * 10**self.digits, -3)

    def fill(self, n: Floats) -> Floats:
        """Return what the client of a row of counts generates, a row per price."""
        return fill_at(n, self.numbers)


Question = Betas | Prices


@dataclass(frozen=True)
class Choice:
    """What was chosen, and what it does to all clients of the sum together."""

    policy: FedEAS | WaterFill  # `policy.local(counts)` is a client's own row
    samples: int
    reduction: float
    share: float
    real: int
    clients: int
    interval: BetaInterval | None = None


def words_of(question: Question, histogram: ArrayLike) -> Words:
    """Return a client's words for a question.

    >>> words_of(Betas(classes=3, digits=1), [90, 10, 0])[:3]
    array([           100,             48, 11728124029610], dtype=uint64)
    """
    given = np.asarray(histogram)
    if given.shape != (question.classes,):
        raise RefusedError(f"this client has not {question.classes} classes")
    n = class_major(whole_matrix(given[np.newaxis], "counts"))
    N = float(n.sum())
    if not N < _MOST_REAL:
        raise RefusedError("this client has too many samples for a sum", allowed="below 2**40")
    added = question.fill(n)
    samples = np.minimum(added.sum(axis=-1), _MOST_SAMPLES)
    far = N * np.append(skew.deviation(n), skew.deviation(n + added))
    whole = np.floor(far)
    part = np.floor((far - whole) * 2.0**_FRACTION)
    apart = np.concatenate([[N], whole[:1], part[:1], samples, whole[1:], part[1:]])
    return apart.astype(np.uint64)


def length_of(question: Question) -> int:
    """Return how many words a client's answer has."""
    return 3 + 3 * len(question.numbers)


def path_of(question: Question, sums: Words) -> Path:
    """Return what every number of the grid does, from the sums of the clients' words."""
    numbers = question.numbers
    if sums.shape != (length_of(question),):
        raise InputError("not the sums of this question", got=sums.shape)
    values = sums.astype(np.float64)
    samples, whole, part = values[3:].reshape(3, len(numbers))
    real = int(sums[0])
    if not real:
        raise InfeasibleError("no client of the sum has samples")
    totals = np.where(samples < _MOST_SAMPLES, samples, _BEYOND)
    before, *after = _joined(np.append(values[1], whole), np.append(values[2], part)) / real
    return Path(numbers, totals, np.array(after), float(before), real)


def choose_by_conditions(
    question: Betas, sums: Words, clients: int, min_reduction: float = 0.5, max_share: float = 0.25
) -> Choice:
    """Choose beta by the paper's two conditions, as `select.admissible_betas` does.

    The interval's ends are numbers of the grid: both conditions hold at each of them from `low` to
    the last one below `high`.

    >>> sums = words_of(Betas(3), [90, 10, 0]) + words_of(Betas(3), [30, 40, 30])
    >>> choose_by_conditions(Betas(3), sums, clients=2).policy.beta
    5.0
    """
    check_conditions(min_reduction, max_share)
    found = path_of(question, sums)
    if found.score_before == 0:
        raise InfeasibleError("every client is balanced already", fix="nothing needs generating")
    # Every client's words are rounded down: what is at the threshold must not fall below it.
    slack = 1e-12 + clients * 2.0**-_FRACTION / (found.score_before * found.real)
    enough = found.reductions >= min_reduction - slack
    good = enough & (found.shares < max_share)
    if not good.any():
        past = int(np.argmax(found.shares >= max_share))
        digits = _DIGITS[question.digits]
        if past and enough[past]:
            low, high = found.betas[past - 1], found.betas[past]
            raise InfeasibleError(
                f"both conditions hold, if at all, only between beta = {low:g} and {high:g}, where "
                f"there is no number of {digits}",
                fix="allow a slightly larger share or smaller reduction",
            )
        raise nothing_admissible(found, max_share, f"no beta of {digits}")
    ends = np.append(found.betas, 10.0**5)
    runs = [(float(ends[i]), float(ends[j])) for i, j in runs_of(good)]
    interval = interval_of(runs, min_reduction, max_share)
    at = int(np.flatnonzero(found.betas == interval.choice)[0])
    return _choice(question, found, clients, at, interval)


def choose_within(question: Question, sums: Words, clients: int, total: int) -> Choice:
    """Choose the number of the grid that spends most within a total, and never more.

    >>> sums = words_of(Prices(3), [90, 10, 0]) + words_of(Prices(3), [30, 40, 30])
    >>> chosen = choose_within(Prices(3), sums, clients=2, total=64)
    >>> chosen.policy, chosen.samples
    (WaterFill(total=None, price=0.108143), 64)
    """
    check_total(total)
    found = path_of(question, sums)
    within = np.flatnonzero((found.totals > 0) & (found.totals <= total))
    if not within.size:
        raise InfeasibleError(
            f"no plan of the grid that is not empty takes at most {total:,} samples",
            fix="spend more",
        )
    return _choice(question, found, clients, int(within[-1]), None)


def asked_of(question: Question) -> dict[str, object]:
    """Return a question as it is sent."""
    return {"policy": question.name, **asdict(question)}


def read_question(asked: object) -> Question:
    """Read a question of another party.

    >>> read_question({"policy": "waterfill", "classes": 10})
    Prices(classes=10, digits=3)
    """
    kinds: dict[object, type[Question]] = {Betas.name: Betas, Prices.name: Prices}
    try:
        settings = dict(asked)  # type: ignore[call-overload]
        return kinds[settings.pop("policy")](**settings)
    except (TypeError, ValueError, KeyError, FedeasError):
        raise RefusedError("not a question that this client answers") from None


@lru_cache(maxsize=8)
def plain_numbers(digits: int, first: int, last: int) -> Floats:
    """Return all numbers of at most so many digits from 10**first to below 10**last.

    >>> plain_numbers(1, -1, 1)
    array([0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1. , 2. , 3. , 4. ,
           5. , 6. , 7. , 8. , 9. ])
    """
    leading = range(10 ** (digits - 1), 10**digits)
    powers = range(first - digits + 1, last - digits + 1)
    # From text, so that 0.3 is the number that somebody would type.
    found = np.array([float(f"{number}e{power}") for power in powers for number in leading])
    found.setflags(write=False)
    return found


@lru_cache(maxsize=8)
def even_numbers(each: int, last: int) -> Floats:
    """Return numbers from below 1 down to 10**last in equal ratios, so many to a power of ten.

    >>> even_numbers(2, -2)
    array([0.316228 , 0.1      , 0.0316228, 0.01     ])
    """
    # Six digits: the same number on every machine, however it takes powers.
    found = np.array([float(f"{10 ** -(i / each):.6g}") for i in range(1, -last * each + 1)])
    found.setflags(write=False)
    return found


def _choice(
    question: Question, found: Path, clients: int, at: int, interval: BetaInterval | None
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


def _joined(whole: Floats, part: Floats) -> Floats:
    return whole + part * 2.0**-_FRACTION


def _check(classes: object, digits: object) -> None:
    """Refuse what is no grid; questions come from another party."""
    for name, value, allowed in (
        ("classes", classes, range(2, 2**20)),
        ("digits", digits, range(1, 4)),
    ):
        if type(value) is not int or value not in allowed:
            text = f"{allowed.start} to {allowed.stop - 1}"
            raise InputError(f"{name} out of range", got=value, allowed=text)
