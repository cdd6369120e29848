"""What finished runs say about a statement: how large a difference is, and whether it is noise.

Two runs of one seed share their partition, cohorts, first weights and images, so differences are
taken seed by seed. How much such a difference varies is measured once, over the seeds of all
policies of a grid; statements that one seed speaks to are then judged by it too.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from fedeas.experiments.results import Mean, Result, figures, rounds_to, student
from fedeas.experiments.tables import Run, seconds_per_sample

AGREES, DISAGREES, CANNOT_TELL = "agrees at reduced size", "disagrees", "cannot tell"
_SEEDED = "policies"  # the grid whose seeds tell the noise

BySeed = dict[int, float]


@dataclass(frozen=True)
class Noise:
    """The standard deviation of a difference between two runs of one seed."""

    spread: float
    freedom: int  # degrees of it, of all pairs of policies together

    def half(self, count: int, terms: float = 1.0) -> float:
        """Return half of the 95 % interval of a mean of `count` differences."""
        return student(self.freedom) * self.spread * math.sqrt(terms / count)


class Evidence:
    """The finished runs of a sweep."""

    def __init__(self, runs: Sequence[Run]) -> None:
        self.runs = runs

    def results(
        self,
        grid: str,
        policy: str,
        method: str = "fedavg",
        match: str = "",
        *,
        alpha: float | None = None,
    ) -> dict[int, Result]:
        """Return the results of a method with a policy, by seed."""
        return {
            run.entry.seed: run.result
            for run in self.runs
            if (run.entry.grid, run.entry.policy, run.entry.method) == (grid, policy, method)
            and run.entry.match in (match or run.entry.match, "")
            and alpha in (None, dict(run.entry.column).get("partition.alpha"))
        }

    def figure(self, name: str, results: Mapping[int, Result]) -> BySeed:
        """Return a figure of results, by seed."""
        return {seed: figures(result["curves"])[name] for seed, result in results.items()}

    def accuracy(
        self, grid: str, policy: str, *method_and_match: str, alpha: float | None = None
    ) -> BySeed:
        """Return the accuracy of the last rounds, by seed."""
        found = self.results(grid, policy, *method_and_match, alpha=alpha)
        return self.figure("accuracy_last", found)

    def arrival(self, grid: str, policy: str, threshold: float) -> dict[int, int | None]:
        """Return the first round that reaches a threshold, by seed."""
        found = self.results(grid, policy)
        return {s: rounds_to(r["curves"]["accuracy"], threshold) for s, r in found.items()}

    def seconds(self, grid: str, policy: str) -> BySeed:
        """Return what runs took end to end: generation at its measured cost, and training."""
        rates = seconds_per_sample(self.runs)
        return {
            seed: result["generated"] * rates.get(result["generator"], 0.0)
            + sum(result["curves"]["seconds"])
            for seed, result in self.results(grid, policy).items()
        }

    @cached_property
    def noise(self) -> Noise | None:
        """How much a difference between two policies that generate varies from seed to seed."""
        return self._noise(without="none")

    @cached_property
    def plain_noise(self) -> Noise | None:
        """The same with runs that generate nothing: how far those get depends more on the seed."""
        return self._noise(without="")

    def _noise(self, without: str) -> Noise | None:
        policies = dict.fromkeys(run.entry.policy for run in self.runs if self._seeded(run))
        policies.pop(without, None)
        by_policy = [self.accuracy(_SEEDED, policy) for policy in policies]
        several = [found for found in by_policy if len(found) > 1]
        seeds = set.intersection(*map(set, several)) if len(several) > 1 else set()
        if len(seeds) < 2:
            return None
        # What is left when every policy's and every seed's own level is taken out, twice: a
        # difference of two runs has two such parts.
        order = sorted(seeds)
        rows = [[found[seed] for seed in order] for found in several]
        level = [statistics.mean(row) for row in rows]
        common = [statistics.mean(column) for column in zip(*rows, strict=True)]
        grand = statistics.mean(level)
        left = [
            row[j] - level[i] - common[j] + grand
            for i, row in enumerate(rows)
            for j in range(len(order))
        ]
        freedom = (len(rows) - 1) * (len(order) - 1)
        return Noise(math.sqrt(2 * sum(x * x for x in left) / freedom), freedom)

    def _seeded(self, run: Run) -> bool:
        return run.entry.grid == _SEEDED and run.entry.method == "fedavg"

    def judge(self, differences: Sequence[float], terms: float = 1.0, plain: bool = False) -> str:
        """Say whether differences are above zero beyond the noise, below it, or neither.

        `terms` is how many differences each of them is made of, `plain` says that one side of them
        generates nothing.
        """
        half = self._half(len(differences), terms, plain)
        if half is None:
            return CANNOT_TELL
        mean = statistics.mean(differences)
        return AGREES if mean > half else DISAGREES if mean < -half else CANNOT_TELL

    def show(self, differences: Sequence[float], terms: float = 1.0, plain: bool = False) -> str:
        """Write differences of accuracies as points with their interval."""
        if not differences:
            return "-"
        half = self._half(len(differences), terms, plain)
        return Mean(statistics.mean(differences), half, len(differences)).points("+")

    def _half(self, count: int, terms: float, plain: bool) -> float | None:
        """Return half of the interval of so many differences; None where nothing is known."""
        noise = self.plain_noise if plain else self.noise
        return noise.half(count, terms) if noise is not None and count else None


def minus(a: BySeed, b: BySeed) -> list[float]:
    """Return the differences of the seeds that both have."""
    return [a[seed] - b[seed] for seed in sorted(a.keys() & b.keys())]
