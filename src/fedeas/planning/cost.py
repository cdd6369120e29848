"""The cost of a sample in time or money, the cost of a plan, and what a budget buys."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from fedeas._internal.progress import duration
from fedeas._internal.scalars import LARGEST, number
from fedeas.errors import InputError
from fedeas.planning.named_values import match_names

_SECONDS = {"ms": 0.001, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_AMOUNT = re.compile(r"\s*([0-9]*\.?[0-9]+(?:[eE][+-]?[0-9]+)?)\s*([A-Za-z]*)\s*")
_ALLOWED = "seconds, or a number with a unit: ms, s, min, h, d, or a currency such as EUR"


@dataclass(frozen=True)
class Cost:
    """The cost of one sample: seconds where the unit is 's', otherwise an amount of a currency.

    Parameters
    ----------
    per_sample : float or tuple of float
        What one sample costs: the same for all clients, or one number each in their order.
    unit : str
        's', or the name of a currency.

    >>> cost = Cost.parse("0.8s")
    >>> cost.of(13_437)
    '2h 59min'
    >>> cost.samples_for("3h")
    13500
    >>> Cost((2.0, 0.5), "EUR").of([10, 100])
    '70.00 EUR'
    """

    per_sample: float | tuple[float, ...]
    unit: str = "s"

    def __post_init__(self) -> None:
        amounts = self.per_sample if self.by_client else (self.per_sample,)
        for amount in amounts:  # type: ignore[union-attr]
            number(
                amount, "not the cost of a sample", "a number above 0", lambda x: 0 < x < math.inf
            )

    @classmethod
    def parse(cls, text: str) -> "Cost":
        """Read '0.8s' or '0.002EUR'; a bare number is in seconds."""
        return cls(*_parse(text))

    @classmethod
    def load(cls, path: Path | str, clients: Sequence[str]) -> "Cost":
        """Read a file of a cost per client: '0.8s', '0.002EUR'; a bare number is in seconds."""
        from fedeas.counts.named import read_values

        costs = {name: _parse(str(cost)) for name, cost in read_values(path, "cost").items()}
        units = {unit for _, unit in costs.values()}
        if len(units) > 1:
            raise InputError(f"{path} has costs of different units", got=", ".join(sorted(units)))
        amounts = {name: amount for name, (amount, _) in costs.items()}
        return cls(tuple(match_names(amounts, clients, "cost of client")), units.pop())

    @property
    def by_client(self) -> bool:
        """Whether clients differ in cost."""
        return isinstance(self.per_sample, tuple)

    def amount(self, samples: ArrayLike) -> float:
        """Return what samples cost, given their number, or the number of each client."""
        if self.by_client:
            return float(np.dot(samples, self.per_sample))
        return float(np.sum(samples)) * self.per_sample  # type: ignore[operator]

    def of(self, samples: ArrayLike) -> str:
        """Return the same as text."""
        return cost_text(self.amount(samples), self.unit)

    @property
    def each(self) -> str:
        """What one sample costs, as text."""
        if isinstance(self.per_sample, tuple):
            return f"{min(self.per_sample):g} to {max(self.per_sample):g} {self.unit}"
        return f"{self.per_sample:g} {self.unit}"

    def amount_for(self, spend: str) -> float:
        """Return the amount of '3h' or '100EUR', in the unit of this cost."""
        amount, unit = _parse(spend)
        if unit != self.unit:
            raise InputError(
                "the amount to spend and the cost of a sample have different units",
                got=spend,
                allowed="a time" if self.unit == "s" else f"an amount of {self.unit}",
            )
        return amount

    def samples_for(self, spend: str) -> int:
        """Return how many samples an amount such as '3h' or '100EUR' buys."""
        if isinstance(self.per_sample, tuple):
            raise InputError("samples cost differently at each client", got=self.each)
        samples = self.amount_for(spend) / self.per_sample * (1 + 1e-12)
        if not samples <= LARGEST:
            raise InputError("that buys too many samples", got=spend, allowed="up to 2**53 of them")
        return math.floor(samples)


def cost_text(amount: float, unit: str) -> str:
    """Return an amount of time or money as text."""
    return duration(amount) if unit == "s" else f"{amount:,.2f} {unit}"


def _parse(text: str) -> tuple[float, str]:
    """Return an amount and its unit, times in seconds."""
    match = _AMOUNT.fullmatch(text)
    unit = match[2] or "s" if match else ""
    currency = len(unit) == 3 and unit.isupper()
    amount = float(match[1]) * _SECONDS.get(unit, 1.0) if match else 0.0
    if not (unit in _SECONDS or currency) or not 0.0 < amount < 1e15:
        raise InputError("not a cost", got=text, allowed=_ALLOWED)
    return amount, unit if currency else "s"
