"""What finished runs say about a statement: differences by seed, and whether they are noise.

Runs are found by their own settings, not by the names of grids. Those that differ in nothing but
seed, method and policy are a `Group`; two runs of one seed in it share partition, cohorts, first
weights and generator, so they are compared seed by seed.

One definition of noise holds for every statement. A statement is that some differences are all
above zero. Each is measured once a seed, in the very group that the statement is about, and tested
by Student's t over those seeds; ± is half of the 95 % interval of the same t. With one seed there
is no noise to compare with and no conclusion. All statements that are judged together are
corrected by Holm's method at .05, since among many comparisons some look large by chance.
"""

import json
import math
import statistics
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from scipy.special import stdtr

from fedeas._internal.specs import parse
from fedeas.lab.results import (
    FinishedRun,
    Mean,
    Result,
    flat_settings,
    read_index,
    read_runs,
    rounds_to,
    summarise,
)
from fedeas.lab.tables import seconds_per_sample

AGREES, AGREES_REDUCED = "agrees", "agrees at reduced size"
DISAGREES, CANNOT_TELL = "disagrees", "cannot tell"
LEVEL = 0.05  # of the test of all statements together
EAS = "fedeas"  # stands for the FedEAS run that others are matched to, whatever its beta

BySeed = dict[int, float]
# What runs of a group may differ in.
_FREE = ("seed", "federated.method", "augment.policy", "augment.batch")


@dataclass(frozen=True)
class Column:
    """Where the paper measures: a column of its Table 1."""

    data: str
    clients: int
    alpha: float

    def __str__(self) -> str:
        names = {"cifar10": "CIFAR-10", "cifar100": "CIFAR-100", "fashion_mnist": "Fashion-MNIST"}
        return f"{names.get(self.data, self.data)}, K = {self.clients}, alpha = {self.alpha}"


class Group:
    """Finished runs that differ in nothing but seed, method and policy."""

    def __init__(
        self, evidence: "Evidence", common: Mapping[str, Any], runs: Sequence[FinishedRun]
    ):
        self._evidence, self.common, self.runs = evidence, common, runs

    @property
    def split(self) -> str:
        """How the data are split: 'merged', as in the paper, or 'official'."""
        return str(self.common["data.split"])

    @property
    def full_size(self) -> bool:
        """Whether model, rounds, epochs and data are those of the paper."""
        return bool(
            self.common["federated.model.name"] == "resnet18"
            and self.common["federated.rounds"] >= 200
            and self.common["federated.local.epochs"] >= 10
            and self.common["data.pool_per_class"] == 0
        )

    @property
    def threshold(self) -> float | None:
        """The accuracy that counts as arrived, where the sweep names one."""
        return next((run.entry.threshold for run in self.runs if run.entry.threshold), None)

    def at(self, **changed: float) -> "Group | None":
        """Return the group with another alpha or number of clients, everything else the same."""
        names = {"alpha": "partition.alpha", "clients": "partition.clients"}
        wanted = dict(self.common) | {names[key]: value for key, value in changed.items()}
        free = {"federated.fraction"} if "clients" in changed else set()
        for other in self._evidence.groups:
            if all(other.common.get(k) == v for k, v in wanted.items() if k not in free):
                return other
        return None

    def results(self, policy: str, method: str = "fedavg") -> dict[int, Result]:
        """Return results by seed.

        `policy` is a name ('none', 'uniform', ...) or a whole spec ('fedeas(beta=8)'). Of a policy
        that is given a total, it is the run with the total of the main FedEAS run.
        """
        if policy == EAS:
            return self.results(self.main, method) if self.main else {}
        by_seed: dict[int, Result] = {}
        for run in self.runs:
            name, settings = parse(run.result["policy"], "policy")
            same = name == policy and ("total" not in settings or self._matched(run))
            if run.result["method"].split("(")[0] == method and (
                same or run.result["policy"] == policy
            ):
                by_seed[run.result["seed"]] = run.result
        return by_seed

    def _matched(self, run: FinishedRun) -> bool:
        """Tell whether a run spends the main FedEAS run's total, where there is any FedEAS."""
        if not self.betas:
            return True
        main = self.results(self.main).get(run.result["seed"]) if self.main else None
        return main is not None and main["generated"] == run.result["generated"]

    @cached_property
    def betas(self) -> dict[float, str]:
        """The policies of FedEAS' plain rule, by beta in ascending order."""
        by_beta = {}
        for run in self.runs:
            name, settings = parse(run.result["policy"], "policy")
            if name == EAS and settings.keys() == {"beta"}:
                by_beta[float(settings["beta"])] = run.result["policy"]
        return dict(sorted(by_beta.items()))

    @cached_property
    def main(self) -> str | None:
        """The FedEAS policy whose total Missing-only spends; the only one where there is one.

        That is the beta of the paper's comparison, at whatever size: a sweep of beta has Uniform
        with every beta, but Missing-only with one.
        """
        totals = {
            (run.result["seed"], run.result["generated"])
            for run in self.runs
            if parse(run.result["policy"], "policy")[0] == "missing-only"
        }
        spent = Counter(
            run.result["policy"]
            for run in self.runs
            if run.result["policy"] in self.betas.values()
            and (run.result["seed"], run.result["generated"]) in totals
        )
        if spent:
            return str(spent.most_common(1)[0][0])
        return next(iter(self.betas.values())) if len(self.betas) == 1 else None

    def uniform_like(self, policy: str) -> dict[int, Result]:
        """Return Uniform's results with the totals of a policy, by seed."""
        matched = self.results(policy)
        return {
            run.result["seed"]: run.result
            for run in self.runs
            if parse(run.result["policy"], "policy")[0] == "uniform"
            and run.result["method"] == "fedavg"
            and run.result["seed"] in matched
            and matched[run.result["seed"]]["generated"] == run.result["generated"]
        }

    def accuracy(self, policy: str, method: str = "fedavg", peak: bool = False) -> BySeed:
        """Return the accuracy of the last rounds, or the best of all, by seed."""
        return figure(self.results(policy, method), "accuracy_peak" if peak else "accuracy_last")

    def arrival(self, policy: str, threshold: float) -> dict[int, int | None]:
        """Return the first round that reaches a threshold, by seed."""
        results = self.results(policy)
        return {s: rounds_to(r["curves"]["accuracy"], threshold) for s, r in results.items()}

    def seconds(self, policy: str) -> BySeed:
        """Return what runs took end to end: generation at its measured cost, and training."""
        rates = self._evidence.rates
        return {
            seed: result["generated"] * rates[result["generator"]]
            + sum(result["curves"]["seconds"])
            for seed, result in self.results(policy).items()
            if not result["generated"] or result["generator"] in rates
        }


class Evidence:
    """The finished runs of one sweep or of several."""

    def __init__(self, runs: Sequence[FinishedRun]) -> None:
        self.runs = runs

    @classmethod
    def read(cls, folder: Path) -> "Evidence":
        """Read the finished runs of a sweep's folder."""
        return cls(read_runs(folder, read_index(folder))[0])

    @property
    def versions(self) -> dict[str, str]:
        """The versions behind the runs of a grid, by grid."""
        return {run.entry.grid: run.result["versions"] for run in self.runs}

    @cached_property
    def rates(self) -> dict[str, float]:
        """The measured seconds of a sample, by generator."""
        return seconds_per_sample(self.runs)

    @cached_property
    def groups(self) -> list["Group"]:
        """Runs that differ in nothing but seed, method and policy; one code each."""
        members: dict[str, tuple[dict[str, Any], dict[Any, FinishedRun]]] = {}
        for run in self.runs:
            flat = flat_settings(run.result["settings"])
            common = {k: v for k, v in flat.items() if k not in _FREE}
            common["versions"] = run.result["versions"]
            key = json.dumps(common, sort_keys=True)
            runs_of = members.setdefault(key, (common, {}))[1]
            # A run that is in two grids counts once; the entry that names a threshold is kept.
            name = run.result["seed"], run.result["method"], run.result["policy"]
            if name not in runs_of or not runs_of[name].entry.threshold:
                runs_of[name] = run
        return [Group(self, common, list(runs.values())) for common, runs in members.values()]

    def where(
        self, column: Column, covers: Callable[[Group], int], generator: str = ""
    ) -> Iterator[Group]:
        """Yield the best group of a column for every split and size: that with most seeds.

        `covers` returns the seeds that a group has for what is asked. Without a `generator`, groups
        with any but SD-turbo are taken: that one is a statement of its own.
        """
        best: dict[tuple[str, bool], tuple[int, int, Group]] = {}
        for group in self.groups:
            common = group.common
            setting = common["data.name"], common["partition.clients"], common["partition.alpha"]
            drawn_by = parse(common["augment.generator"] or "none", "generator")[0]
            if setting != (column.data, column.clients, column.alpha) or (
                drawn_by != generator if generator else drawn_by == "turbo"
            ):
                continue
            score = covers(group), common["federated.rounds"]
            kind = group.split, group.full_size
            if score[0] and (kind not in best or score > best[kind][:2]):
                best[kind] = (*score, group)
        for kind in sorted(best, key=lambda k: (not k[1], k[0] != "merged")):
            yield best[kind][2]


def figure(results: Mapping[int, Result], name: str) -> BySeed:
    """Return a figure of results by seed, of those that have it."""
    summaries = {seed: summarise(result["curves"]) for seed, result in results.items()}
    return {seed: summary[name] for seed, summary in summaries.items() if name in summary}


def minus(a: BySeed, b: BySeed) -> BySeed:
    """Return the differences of the seeds that both have."""
    return {seed: a[seed] - b[seed] for seed in sorted(a.keys() & b.keys())}


@dataclass(frozen=True)
class PairedTest:
    """Whether differences are all above zero, each by Student's t over the same seeds."""

    differences: tuple[tuple[float, ...], ...]
    seeds: tuple[int, ...]

    @classmethod
    def of(cls, components: Sequence[BySeed]) -> "PairedTest":
        """Test components over the seeds that all of them have."""
        seeds = sorted(set.intersection(*map(set, components))) if components else []
        differences = tuple(tuple(component[seed] for seed in seeds) for component in components)
        return cls(differences, tuple(seeds))

    @cached_property
    def p_value(self) -> float | None:
        """The two-sided p, None with fewer than two seeds.

        'All are above zero' is as likely by chance as the weakest of them (intersection-union),
        'one is below' as the strongest that is, times their number (Bonferroni).
        """
        return None if len(self.seeds) < 2 else min(1.0, 2 * min(self._above, self._below))

    @property
    def agrees(self) -> bool:
        """Whether the differences rather are all above zero than one of them below."""
        return self._above < self._below

    @cached_property
    def _above(self) -> float:
        return max(_one_sided(component) for component in self.differences)

    @cached_property
    def _below(self) -> float:
        least = min(_one_sided([-d for d in component]) for component in self.differences)
        return min(1.0, least * len(self.differences))


def _one_sided(differences: Sequence[float]) -> float:
    """Return how likely a mean at least this far above zero is by chance."""
    mean, deviation = statistics.mean(differences), statistics.stdev(differences)
    if not deviation:
        return 0.5 if not mean else float(mean < 0)
    t = mean / deviation * math.sqrt(len(differences))
    return float(stdtr(len(differences) - 1, -t))


def holm(p_values: Sequence[float], level: float = LEVEL) -> list[bool]:
    """Return which of several tests hold at a level together (Holm 1979).

    >>> holm([0.01, 0.04, 0.03])
    [True, False, False]
    """
    return [p <= level for p in holm_p_values(p_values)]


def holm_p_values(p_values: Sequence[float]) -> list[float]:
    """Return p-values corrected for being several (Holm 1979).

    >>> holm_p_values([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    corrected, largest = [1.0] * len(p_values), 0.0
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    for rank, index in enumerate(order):
        largest = max(largest, min(1.0, p_values[index] * (len(p_values) - rank)))
        corrected[index] = largest
    return corrected


def judge(tests: Sequence[tuple[PairedTest, bool]]) -> list[str]:
    """Return the state of every statement, given its test and whether it is of the full size."""
    judged = [i for i, (test, _) in enumerate(tests) if test.p_value is not None]
    held = holm([tests[i][0].p_value or 0.0 for i in judged])
    states = [CANNOT_TELL] * len(tests)
    for i, holds in zip(judged, held, strict=True):
        test, full = tests[i]
        if holds:
            states[i] = (AGREES if full else AGREES_REDUCED) if test.agrees else DISAGREES
    return states


def points(differences: Sequence[float]) -> str:
    """Write differences of accuracies as points with half of their 95 % interval.

    >>> points([0.01, 0.02, 0.03]), points([0.05]), points([])
    ('+2.0 ± 2.5', '+5.0', '-')
    """
    return Mean.of(list(differences)).points("+") if differences else "-"


def chance(test: PairedTest) -> str:
    """Write how a difference compares with noise: its p, or that one seed has none.

    >>> chance(PairedTest.of([{1: 0.01, 2: 0.02, 3: 0.03}])), chance(PairedTest.of([{1: 0.1}]))
    ('p .074', 'one seed')
    """
    if test.p_value is None:
        return "one seed"
    return f"p {test.p_value:.3f}".replace("0.", ".", 1) if test.p_value >= 0.001 else "p < .001"
