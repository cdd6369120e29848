"""The cost of a sample in time or money, the cost of a plan, and what a budget buys."""

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedeas.errors import InputError
from fedeas.scalars import number
from fedeas.tables import LARGEST
from fedeas.tables.named import match_names, read_values

_SECONDS = {
    **dict.fromkeys(("ms", "millisecond", "milliseconds"), 0.001),
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), 1.0),
    **dict.fromkeys(("min", "mins", "minute", "minutes"), 60.0),
    **dict.fromkeys(("h", "hr", "hrs", "hour", "hours"), 3600.0),
    **dict.fromkeys(("d", "day", "days"), 86400.0),
}
_AMOUNT = re.compile(r"\s*([0-9]*\.?[0-9]+(?:[eE][+-]?[0-9]+)?)\s*([A-Za-z]{0,12})\s*")
_SYMBOLS = {"$": "USD", "€": "EUR", "£": "GBP", "¥": "JPY"}
_ALLOWED = "a number above 0 with a unit: s, min, h, d, or a currency such as EUR"


@dataclass(frozen=True)
class Cost:
    """The cost of one sample: seconds where the unit is 's', otherwise an amount of a currency.

    Parameters
    ----------
    per_sample : float
        What one sample costs.
    unit : str
        's', or the name of a currency.

    >>> cost = Cost.parse("0.8s")
    >>> cost.of(13_437)
    '2h 59min'
    >>> cost.samples_for("3h")
    13500
    """

    per_sample: float
    unit: str = "s"

    def __post_init__(self) -> None:
        _check_amounts([self.per_sample])

    @classmethod
    def parse(cls, text: str) -> "Cost":
        """Read '0.8s', '0.8 seconds', '0.002EUR' or '$0.01'; a bare number is in seconds."""
        return cls(*_parse(text))

    def of(self, samples: int) -> str:
        """Return what that many samples cost, as text."""
        return cost_text(samples * self.per_sample, self.unit)

    def amount(self, per_client: ArrayLike) -> float:
        """Return what the samples of all clients cost together."""
        return float(np.sum(per_client)) * self.per_sample

    @property
    def each(self) -> str:
        """What one sample costs, as text."""
        return f"{self.per_sample:g} {self.unit}"

    def samples_for(self, spend: str) -> int:
        """Return how many samples an amount such as '3h' or '100EUR' buys."""
        amount, unit = _parse(spend)
        if unit != self.unit:
            raise InputError(
                "the amount to spend and the cost of a sample have different units",
                got=spend,
                allowed="a time" if self.unit == "s" else f"an amount of {self.unit}",
            )
        samples = amount / self.per_sample * (1 + 1e-12)
        if not samples <= LARGEST:
            raise InputError("that buys too many samples", got=spend, allowed="up to 2**53 of them")
        return math.floor(samples)


@dataclass(frozen=True)
class SiteCosts:
    """The cost of one sample at each client, in seconds or in one currency.

    Parameters
    ----------
    per_sample : tuple of float
        What one sample costs, in the order of the clients.
    unit : str
        's', or the name of a currency.

    >>> SiteCosts((2.0, 0.5), "EUR").of([10, 100])
    '70.00 EUR'
    """

    per_sample: tuple[float, ...]
    unit: str = "s"

    def __post_init__(self) -> None:
        _check_amounts(self.per_sample)

    @classmethod
    def load(cls, path: Path | str, clients: tuple[str, ...]) -> "SiteCosts":
        """Read a file of a cost per client: '0.8s', '0.002EUR'; a bare number is in seconds."""
        read = {name: _parse(str(cost)) for name, cost in read_values(path, "cost").items()}
        units = {unit for _, unit in read.values()}
        if len(units) > 1:
            raise InputError(f"{path} has costs of different units", got=", ".join(sorted(units)))
        amounts = {name: amount for name, (amount, _) in read.items()}
        return cls(tuple(match_names(amounts, clients, "cost of client")), units.pop())

    @property
    def array(self) -> NDArray[np.float64]:
        """The costs as an array."""
        return np.array(self.per_sample)

    def amount(self, per_client: ArrayLike) -> float:
        """Return what the samples of all clients cost together."""
        return float(np.dot(per_client, self.per_sample))

    def of(self, per_client: ArrayLike) -> str:
        """Return the same as text."""
        return cost_text(self.amount(per_client), self.unit)

    def amount_for(self, spend: str) -> float:
        """Return the amount of '3h' or '100EUR', in the unit of these costs."""
        amount, unit = _parse(spend)
        if unit != self.unit:
            raise InputError(
                "the amount to spend and the costs of the clients have different units",
                got=spend,
                allowed="a time" if self.unit == "s" else f"an amount of {self.unit}",
            )
        return amount

    @property
    def each(self) -> str:
        """What one sample costs, as text."""
        low, high = min(self.per_sample), max(self.per_sample)
        return f"{low:g} to {high:g} {self.unit}"


def cost_text(amount: float, unit: str) -> str:
    """Return an amount of time or money as text."""
    return duration(amount) if unit == "s" else f"{amount:,.2f} {unit}"


def _check_amounts(amounts: Iterable[float]) -> None:
    """Refuse what a sample cannot cost."""
    for amount in amounts:
        number(amount, "not the cost of a sample", "a number above 0", lambda x: 0 < x < math.inf)


def _parse(text: str) -> tuple[float, str]:
    match = _AMOUNT.fullmatch(_with_code(text))
    if match is None:
        raise InputError("not a cost", got=text, allowed=_ALLOWED, fix=_instead(text))
    unit = match[2] or "s"
    amount = float(match[1]) * _SECONDS.get(unit.lower(), 1.0)
    if not 0.0 < amount < 1e15:
        raise InputError("not a cost", got=text, allowed=_ALLOWED)
    if unit.lower() in _SECONDS:
        return amount, "s"
    if len(unit) != 3 or not unit.isupper():
        raise InputError("unknown unit of cost", got=unit, allowed=_ALLOWED)
    return amount, unit


def _with_code(text: str) -> str:
    """Return an amount with the code of its currency instead of a sign."""
    for symbol, unit in _SYMBOLS.items():
        if symbol in text:
            return text.replace(symbol, "").strip() + unit
    return text


def _instead(text: str) -> str | None:
    """Return what to write for a decimal comma."""
    plain = re.sub(r"(?<=[0-9]),(?=[0-9])", ".", _with_code(text).replace(" ", ""))
    return f"write {plain}" if "," in text and _AMOUNT.fullmatch(plain) else None


def duration(seconds: float) -> str:
    """Return seconds in a readable form.

    >>> duration(75), duration(11_220)
    ('75.0s', '3h 7min')
    """
    if seconds < 120:
        return f"{seconds:.1f}s"
    minutes = round(seconds / 60)
    days, rest = divmod(minutes, 24 * 60)
    hours, minutes = divmod(rest, 60)
    parts = [(days, "d"), (hours, "h"), (minutes, "min")]
    return " ".join(f"{value}{unit}" for value, unit in parts if value)
