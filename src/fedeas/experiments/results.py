"""A run's result: numbers from its curves, and statistics over several results."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedeas.errors import InputError
from fedeas.experiments.shapes import is_result
from fedeas.files import content_hash, read_json

Result = dict[str, Any]
_KEPT = ("accuracy", "drift", "seconds", "trained_on")  # of every round
_DRIFT_ALL = "drift_all"  # of every round, where the model has running statistics
_LEAST = 5  # rounds of the mean at the end, at least


def curves(history: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Return the curves that figures and tables need, with None for rounds without a value.

    Accuracy by class is that of the last rounds, on average.
    """
    found: dict[str, list[Any]] = {key: [line.get(key) for line in history] for key in _KEPT}
    if any(_DRIFT_ALL in line for line in history):
        found[_DRIFT_ALL] = [line.get(_DRIFT_ALL) for line in history]
    measured = [line["per_class"] for line in history if "per_class" in line]
    last = measured[-tail(len(measured)) :]
    found["per_class"] = [
        None if None in own else round(statistics.mean(own), 5) for own in zip(*last, strict=True)
    ]
    return found


def tail(rounds: int) -> int:
    """Return how many rounds the accuracy at the end is averaged over: a tenth, at least five.

    The paper's 200 rounds give its last 20.

    >>> tail(200), tail(40), tail(3)
    (20, 5, 3)
    """
    return min(rounds, max(_LEAST, rounds // 10))


def summarise(found: Mapping[str, Sequence[Any]]) -> dict[str, Any]:
    """Return the figures of a run from its curves."""
    measured = [a for a in found["accuracy"] if a is not None]
    last = measured[-tail(len(measured)) :]
    everything = [d for d in found.get(_DRIFT_ALL, ()) if d is not None]
    return {
        "rounds": len(found["accuracy"]),
        "accuracy": measured[-1],
        "accuracy_last": statistics.mean(last),
        "accuracy_last_rounds": len(last),
        "accuracy_peak": max(measured),
        "drift_median": statistics.median(found["drift"]),
        **({"drift_all_median": statistics.median(everything)} if everything else {}),
        "seconds": round(sum(found["seconds"]), 1),
    }


def rounds_to(accuracy: Sequence[float | None], threshold: float) -> int | None:
    """Return the first round whose accuracy reaches a threshold; None if none does.

    >>> rounds_to([0.2, None, 0.5, 0.4], 0.45)
    3
    """
    reached = (n for n, a in enumerate(accuracy, start=1) if a is not None and a >= threshold)
    return next(reached, None)


def efficiency(accuracy: float, without: float, generated: int) -> float | None:
    """Return the paper's eta: percentage points gained over no generation, per 1,000 samples.

    >>> round(efficiency(0.7165, 0.5552, 13_437), 3)
    1.2
    """
    return 1e5 * (accuracy - without) / generated if generated else None


# What every table, figure and report means by the sign.
PLUS_MINUS = (
    "± is half the 95 % confidence interval (Student's t) over seeds; two seeds: their range"
)


@dataclass(frozen=True)
class Mean:
    """A mean over seeds and their spread.

    From three values on, the spread is half of the 95 % confidence interval (Student's t). For two
    it is their range: an interval of two values is many times as wide, and says nothing.
    """

    value: float
    half: float | None  # half of the interval's width
    count: int
    range: tuple[float, float] | None = None  # of two values

    @classmethod
    def of(cls, values: Sequence[float]) -> "Mean":
        """Return the mean of at least one value.

        >>> Mean.of([1.0, 2.0, 3.0])
        Mean(value=2.0, half=2.484..., count=3, range=None)
        """
        count = len(values)
        mean = statistics.mean(values)
        if count < 3:
            return cls(mean, None, count, (min(values), max(values)) if count == 2 else None)
        half = student(count - 1) * statistics.stdev(values) / math.sqrt(count)
        return cls(mean, half, count)

    @property
    def bounds(self) -> tuple[float, float]:
        """Both ends of the interval or the range; twice the mean if there is neither."""
        half = self.half or 0.0
        return self.range or (self.value - half, self.value + half)

    def points(self, sign: str = "") -> str:
        """Format a fraction in percentage points, with its spread.

        >>> Mean(0.475, 0.014, 3).points("+"), Mean.of([0.101, 0.199]).points()
        ('+47.5 ± 1.4', '15.0 (10.1 to 19.9)')
        """
        spread = "" if self.half is None else f" ± {100 * self.half:.1f}"
        if self.range is not None:
            spread = " ({:{s}.1f} to {:{s}.1f})".format(*(100 * x for x in self.range), s=sign)
        return f"{100 * self.value:{sign}.1f}{spread}"


def student(freedom: int, level: float = 0.95) -> float:
    """Return the t that a Student variable stays within with probability `level`.

    >>> [round(student(n), 3) for n in (1, 2, 4, 30)]
    [12.706, 4.303, 2.776, 2.042]
    """
    low, high = 0.0, 1e3
    for _ in range(100):
        middle = (low + high) / 2
        if _within(middle, freedom) < level:
            low = middle
        else:
            high = middle
    return high


def p_value(t: float, freedom: int) -> float:
    """Return how likely a Student variable is at least t away from zero.

    >>> round(p_value(4.303, 2), 3)
    0.05
    """
    return max(0.0, 1.0 - _within(t, freedom))


def _within(t: float, freedom: int) -> float:
    """Return P(|T| < t) for a whole number of degrees of freedom (Abramowitz, Stegun 26.7.3-4)."""
    angle = math.atan(t / math.sqrt(freedom))
    cosine = math.cos(angle)
    odd = freedom % 2
    term = total = cosine if odd else 1.0
    for i in range(2 + odd, freedom - 1, 2):
        term *= cosine**2 * (i - 1) / i
        total += term
    if odd:
        return (angle + (math.sin(angle) * total if freedom > 1 else 0.0)) * 2 / math.pi
    return math.sin(angle) * total


def known_by(settings: Mapping[str, Any]) -> str:
    """Return the short name of a run's settings, which ends the name of its folder."""
    return content_hash(settings)[:8]


def read_result(path: Path) -> Result:
    """Read a run's result; refuse a modified file."""
    return check_result(read_json(path), str(path))


def check_result(found: Any, name: str) -> Result:
    """Return a result that tables can be made of; refuse anything else, called `name`."""
    if not is_result(found):
        raise InputError(f"{name} is not a result", fix="pass a folder of `fedeas run`")
    result: Result = found
    return result
