"""A statement of the paper that takes training: differences that have to be above zero.

It names a column of the paper's Table 1 and what has to be positive there, seed by seed. Which runs
speak to it, and what noise is, `evidence` says. No state is written down by hand.
"""

import itertools
import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from fedeas.lab.results import Result, efficiency
from reproduction.evidence import (
    EAS,
    BySeed,
    Column,
    Group,
    PairedTest,
    chance,
    figure,
    minus,
    points,
)
from reproduction.tables import (
    BETAS,
    COLUMNS,
    COMBINED_PEAK,
    METHODS,
    POLICIES,
    lead,
    printed,
)

MAIN = Column("cifar10", 20, 0.1)  # where the paper measures all but its Table 1
FASHION = Column("fashion_mnist", 20, 0.1)  # where reproduction/configs/cpu has a diffusion model

Measure = Callable[[Group], Sequence[BySeed]]
Show = Callable[[Group, PairedTest], str]


@dataclass(frozen=True)
class Statement:
    """What the paper says about a column, and what has to be above zero for it to be true."""

    where: str
    what: str
    paper: str
    column: Column
    measure: Measure
    grid: str  # of reproduction/configs/paper that runs it
    cpu: str = ""  # grid of reproduction/configs/cpu that runs it at a reduced size
    show: Show | None = None  # of what was found; points with their interval by default
    generator: str = ""  # that it is about, any but SD-turbo by default
    full_size: bool = False  # whether only runs of the paper's size and split can speak to it

    def test(self, group: Group) -> PairedTest:
        """Test the statement on the runs of a group."""
        return PairedTest.of(self.measure(group))

    def shown(self, group: Group) -> str:
        """Write what the runs of a group give."""
        test = self.test(group)
        if self.show is not None:
            return f"{self.show(group, test)} ({chance(test)})"
        return f"{', '.join(points(own) for own in test.differences)} ({chance(test)})"


def statements() -> Iterator[Statement]:
    """Yield what the paper says about policies, about the rule itself, and its accuracies."""
    yield from _about_policies()
    yield from _about_budget()
    yield from _about_levels()


def table_grid(column: Column) -> str:
    """Return the grid of reproduction/configs/paper that has a column of Table 1."""
    return f"table-1-k{column.clients}"


def cpu_grid(column: Column) -> str:
    """Return the grid of reproduction/configs/cpu that has a column's policies."""
    reduced = column.data == "cifar10" and column.clients == 20
    return ("policies" if column.alpha == 0.1 else "skew") if reduced else ""


# Policies: section 4.2, Table 1, Figure 4


_NAMES = {"uniform": "Uniform", "missing-only": "Missing-only", "none": "FedAvg"}
_PAPER_THRESHOLD = 0.70


def _about_policies() -> Iterator[Statement]:
    """Yield them in the order of the paper."""
    for column in COLUMNS:
        for other in _NAMES:
            yield _over(column, other)
    yield from _gaps()
    for clients, rounds in ((20, "30 / 60"), (100, "59 / 100")):
        yield _arrives_earlier(Column("cifar10", clients, 0.1), rounds)
    balanced = [column for column in COLUMNS if column.alpha == 0.1]
    for column, part in zip(balanced, ("66", "51", "77", "67"), strict=True):
        yield _recovered(column, f"{part} %", cpu_grid(column))
    yield _recovered(FASHION, "66 %", "policies")
    yield Statement(
        "Sec. 4.2", f"Full-Balance over FedEAS, {MAIN}, points", "+8.3", MAIN,
        lambda g: [minus(g.accuracy("full-balance"), g.accuracy(EAS))], "table-1-k20", "policies",
    )  # fmt: skip
    yield from _above_methods()
    yield Statement(
        "Sec. 4.2", f"FedEAS over Uniform with a diffusion model, {FASHION}, points", "+7.2",
        FASHION, lambda g: [minus(g.accuracy(EAS), g.accuracy("uniform"))], "", "policies",
    )  # fmt: skip
    yield from _other_generator()


def _over(column: Column, other: str) -> Statement:
    """FedEAS over another policy; where the paper has it behind, behind is what agrees."""
    gap = lead(column, other)
    sign = 1 if gap > 0 else -1

    def measure(group: Group) -> list[BySeed]:
        gaps = minus(group.accuracy(EAS), group.accuracy(other))
        return [{seed: sign * d for seed, d in gaps.items()}]

    return Statement(
        "Abstract" if round(gap, 2) == 18.82 else "Table 1",
        f"FedEAS over {_NAMES[other]}, {column}, points",
        f"{gap:+.2f}",
        column,
        measure,
        table_grid(column),
        cpu_grid(column),
        lambda _, test: points([sign * d for d in test.differences[0]]),
    )


def _lead_over_uniform(group: Group | None) -> BySeed:
    return minus(group.accuracy(EAS), group.accuracy("uniform")) if group else {}


def _gaps() -> Iterator[Statement]:
    """Yield where the lead over Uniform grows: with skew, and with the number of clients."""
    weak, strong = Column("cifar10", 20, 0.3), Column("cifar10", 20, 0.05)
    yield Statement(
        "Sec. 4.2", "the lead over Uniform at alpha = 0.05 beyond that at 0.3, CIFAR-10, K = 20",
        f"{lead(strong, 'uniform') - lead(weak, 'uniform'):+.2f}", strong,
        lambda g: [minus(_lead_over_uniform(g), _lead_over_uniform(g.at(alpha=0.3)))],
        "table-1-k20", "skew",
    )  # fmt: skip
    for large in COLUMNS[4:]:
        small = Column(large.data, 20, large.alpha)
        yield Statement(
            "Sec. 4.2", f"the lead over Uniform beyond that at K = 20, {large}, points",
            f"{lead(large, 'uniform') - lead(small, 'uniform'):+.2f}", large,
            lambda g: [minus(_lead_over_uniform(g), _lead_over_uniform(g.at(clients=20)))],
            "table-1-k100",
        )  # fmt: skip


def _arrives_earlier(column: Column, rounds: str) -> Statement:
    """Count rounds to the threshold; a run that never arrives has one more than all its rounds."""

    def threshold(group: Group) -> float:
        return group.threshold or _PAPER_THRESHOLD

    def arrived(group: Group, policy: str) -> BySeed:
        most = group.common["federated.rounds"] + 1
        arrivals = group.arrival(policy, threshold(group))
        return {seed: float(number or most) for seed, number in arrivals.items()}

    def show(group: Group, test: PairedTest) -> str:
        fedeas, other = (group.arrival(p, threshold(group)) for p in (EAS, "missing-only"))
        both = sorted(fedeas.keys() & other.keys())
        listed = ", ".join(f"{fedeas[s] or 'never'} / {other[s] or 'never'}" for s in both)
        return f"to {100 * threshold(group):g} %: {listed}"

    return Statement(
        "Fig. 4", f"rounds to 70 %, FedEAS / Missing-only, by seed, {column}", rounds, column,
        lambda g: [minus(arrived(g, "missing-only"), arrived(g, EAS))], table_grid(column),
        cpu_grid(column), show,
    )  # fmt: skip


def _recovered(column: Column, part: str, cpu: str) -> Statement:
    """FedEAS' part of Full-Balance's gain; 'most of it' is more than half."""

    def measure(group: Group) -> list[BySeed]:
        none, fedeas, full = (group.accuracy(p) for p in ("none", EAS, "full-balance"))
        seeds = none.keys() & fedeas.keys() & full.keys()
        return [{s: fedeas[s] - (none[s] + full[s]) / 2 for s in seeds}]

    def show(group: Group, test: PairedTest) -> str:
        none, fedeas, full = (group.accuracy(p) for p in ("none", EAS, "full-balance"))
        seeds = sorted(none.keys() & fedeas.keys() & full.keys())
        gain, most = (statistics.mean(x[s] - none[s] for s in seeds) for x in (fedeas, full))
        spent, all_of_it = (group.results(p) for p in (EAS, "full-balance"))
        share = statistics.mean(spent[s]["generated"] / all_of_it[s]["generated"] for s in seeds)
        part = f"{100 * gain / most:.0f} %" if most > 0 else "no gain to recover"
        return f"{part} with {100 * share:.1f} % of its samples"

    return Statement(
        "Sec. 4.2", f"part of Full-Balance's gain, {column}: more than half", part, column,
        measure, table_grid(column) if column in COLUMNS else "", cpu, show,
    )  # fmt: skip


def _above_methods() -> Iterator[Statement]:
    """Yield how far policies are above the best of six methods, seed by seed."""

    def best(group: Group) -> BySeed:
        accuracies = [group.accuracy("none", method) for method in METHODS]
        seeds = set.intersection(*map(set, accuracies))
        return {seed: max(by_seed[seed] for by_seed in accuracies) for seed in seeds}

    def above(*policies: str, by: float = 0.0) -> Measure:
        return lambda g: [
            {s: d - by for s, d in minus(g.accuracy(p), best(g)).items()} for p in policies
        ]

    for column in (c for c in COLUMNS if c.data == "cifar10" and c.alpha <= 0.1):
        setting = column.data, column.clients, column.alpha
        strongest = max(printed(*setting, m, "none") or 0 for m in METHODS)
        yield Statement(
            "Sec. 4.2", f"Uniform, Missing-only, FedEAS over the best of six methods, {column}",
            ", ".join(f"{(printed(*setting, 'fedavg', p) or 0) - strongest:+.1f}"
                      for p in ("uniform", "missing-only", EAS)),
            column, above("uniform", "missing-only", EAS), table_grid(column),
            "methods" if column == MAIN else "",
        )  # fmt: skip
    for column in (c for c in COLUMNS if c.data == "cifar100"):
        yield Statement(
            "Sec. 4.2", f"Missing-only, FedEAS more than 5 points over the methods, {column}",
            "> 5", column, above("missing-only", EAS, by=0.05), table_grid(column),
            show=lambda _, test: ", ".join(points([d + 0.05 for d in x]) for x in test.differences),
        )  # fmt: skip


def _other_generator() -> Iterator[Statement]:
    for name, generator, gap in (
        ("its diffusion model", "diffusion", lead(MAIN, "uniform", peak=True)),
        ("SD-turbo", "turbo", 2.46),
    ):
        yield Statement(
            "Sec. 4.2", f"with {name}: FedEAS over Uniform, peak, {MAIN}, points", f"{gap:+.2f}",
            MAIN, lambda g: [minus(g.accuracy(EAS, peak=True), g.accuracy("uniform", peak=True))],
            "turbo" if generator == "turbo" else "table-1-k20", generator=generator,
        )  # fmt: skip


# The rule itself: sections 4.3 and 4.4, FedEAS with SCAFFOLD, drift


_PAPER_TIMES = 3.7


def _about_budget() -> Iterator[Statement]:
    """Yield them in the order of the paper."""
    yield from _budget()
    yield from (_faster(MAIN, "table-1-k20"), _faster(FASHION, ""))
    yield from _ablation()
    yield from _combined()
    yield from _drift()


def _budget() -> Iterator[Statement]:
    """Yield the claims about five betas, each compared with Uniform at the same total."""

    def sweep(group: Group) -> list[str]:
        policies = [policy for policy in group.betas.values() if group.uniform_like(policy)]
        return policies if len(policies) >= len(BETAS) else []  # the main one alone is not a sweep

    def path(group: Group) -> list[BySeed]:
        return [group.accuracy(policy) for policy in sweep(group)]

    def beside(group: Group) -> list[BySeed]:
        return [figure(group.uniform_like(policy), "accuracy_last") for policy in sweep(group)]

    def leads(group: Group) -> list[BySeed]:
        return [minus(a, b) for a, b in zip(path(group), beside(group), strict=True)]

    def etas(group: Group, accuracies: Sequence[BySeed]) -> list[BySeed]:
        without, efficiencies = group.accuracy("none"), []
        for policy, accuracy in zip(sweep(group), accuracies, strict=True):
            spent = {seed: result["generated"] for seed, result in group.results(policy).items()}
            gained = minus(accuracy, without)
            efficiencies.append({s: efficiency(d, 0.0, spent[s]) or 0.0 for s, d in gained.items()})
        return efficiencies

    def more_efficient(group: Group) -> list[BySeed]:
        """Return the leads: at equal totals FedEAS is more efficient where it is more accurate."""
        without = group.accuracy("none")
        return [{s: d for s, d in lead.items() if s in without} for lead in leads(group)]

    def means(series: Sequence[BySeed], test: PairedTest) -> list[float]:
        return [statistics.mean(by_seed[seed] for seed in test.seeds) for by_seed in series]

    def ratios(group: Group, test: PairedTest) -> str:
        fedeas, other = (means(etas(group, a(group)), test) for a in (path, beside))
        pairs = zip(fedeas, other, strict=True)
        return ", ".join(f"{a / b:.1f}" if b > 0 else "-" for a, b in pairs)

    def rows(scale: float, form: str, measure: Measure) -> Show:
        return lambda g, test: ", ".join(f"{scale * m:{form}}" for m in means(measure(g), test))

    def own_etas(group: Group) -> list[BySeed]:
        return etas(group, path(group))

    for what, paper, measure, show in (
        ("accuracy rises from each beta to the next", "66.1, 70.9, 71.7, 72.6, 74.1",
         lambda g: [minus(b, a) for a, b in itertools.pairwise(path(g))], rows(100, ".1f", path)),
        ("FedEAS over Uniform at every beta, points", "+5.3 to +7.6",
         leads, rows(100, "+.1f", leads)),
        ("efficiency eta falls from each beta to the next", "2.58, 1.77, 1.20, 0.93, 0.79",
         lambda g: [minus(a, b) for a, b in itertools.pairwise(own_etas(g))],
         rows(1, ".2f", own_etas)),
        ("eta of FedEAS / Uniform, above one at every beta", "1.7 to 2.0", more_efficient, ratios),
    ):  # fmt: skip
        yield Statement("Sec. 4.3", what, paper, MAIN, measure, "budget", "budget", show)


def _faster(column: Column, grid: str) -> Statement:
    """Full-Balance's time over FedEAS', generation and training, against the paper's ratio."""

    def measure(group: Group) -> list[BySeed]:
        if not group.common["augment.generator"].startswith("diffusion"):
            return []  # what comes from a pool of real images takes no time
        slow, fast = group.seconds("full-balance"), group.seconds(EAS)
        return [{s: math.log(slow[s] / fast[s] / _PAPER_TIMES) for s in slow.keys() & fast.keys()}]

    def show(_: Group, test: PairedTest) -> str:
        return f"{_PAPER_TIMES * math.exp(statistics.mean(test.differences[0])):.1f}x"

    return Statement(
        "Sec. 4.3", f"time of Full-Balance / FedEAS, generation and training, {column}: at least",
        "3.7x", column, measure, grid, "" if grid else "policies", show,
    )  # fmt: skip


def _ablation() -> Iterator[Statement]:
    """Yield the rule over its variants, with the beta whose totals are nearest to theirs."""

    def variant(group: Group, setting: str) -> dict[int, Result]:
        policies = (run.result["policy"] for run in group.runs)
        return group.results(
            next((p for p in policies if p.startswith("fedeas(") and setting in p), "-")
        )

    def rule(group: Group, variants: Sequence[dict[int, Result]]) -> dict[int, Result]:
        def rank(results: dict[int, Result]) -> tuple[int, float]:
            common = results.keys() & set.intersection(*map(set, variants))
            apart = [results[s]["generated"] - v[s]["generated"] for v in variants for s in common]
            return len(common), -abs(sum(apart)) / max(1, len(apart))

        return max(map(group.results, group.betas.values()), key=rank, default={})

    def over(setting: str) -> Measure:
        def measure(group: Group) -> list[BySeed]:
            variants = [variant(group, name) for name in ("entropy=", "size_exponent=")]
            results = rule(group, variants)
            last = "accuracy_last"
            return [minus(figure(results, last), figure(variant(group, setting), last))]

        return measure

    for name, setting, gap in (
        ("the one without entropy", "entropy=", "+0.52"),
        ("the linear one", "size_exponent=", "+0.53"),
    ):
        yield Statement(
            "Table 2", f"the rule over {name}, {MAIN}, points", gap, MAIN, over(setting),
            "ablation", "ablation",
        )  # fmt: skip


def _combined() -> Iterator[Statement]:
    column = Column("cifar10", 20, 0.3)

    def both(group: Group) -> list[BySeed]:
        alone = [group.accuracy(EAS, peak=True), group.accuracy("none", "scaffold", peak=True)]
        together = group.accuracy(EAS, "scaffold", peak=True)
        return [minus(together, one) for one in alone]

    peaks = [printed("cifar10", 20, 0.3, *names, peak=True) or 0.0
             for names in (("fedavg", EAS), ("scaffold", "none"))]  # fmt: skip
    yield Statement(
        "Sec. 6", f"FedEAS with SCAFFOLD over each alone, peak, {column}, points",
        ", ".join(f"{COMBINED_PEAK - peak:+.2f}" for peak in peaks), column, both, "combined",
        "combined",
    )  # fmt: skip
    yield Statement(
        "Table 1", f"SCAFFOLD over FedEAS under weak skew, {column}, points", "+2.20", column,
        lambda g: [minus(g.accuracy("none", "scaffold"), g.accuracy(EAS))], "combined", "combined",
    )  # fmt: skip


def _drift() -> Iterator[Statement]:
    order = ("none", "uniform", EAS, "full-balance")

    def drifts(group: Group, name: str) -> list[BySeed]:
        return [figure(group.results(policy), name) for policy in order]

    def show(name: str, removed: bool) -> Show:
        def text(group: Group, test: PairedTest) -> str:
            series = drifts(group, name)
            seeds = sorted(set.intersection(*map(set, series)))
            means = [statistics.mean(by_seed[s] for s in seeds) for by_seed in series]
            if removed:
                return ", ".join(f"{100 * (1 - mean / means[0]):.0f} %" for mean in means[1:])
            return ", ".join(f"{mean:.3g}" for mean in means)

        return text

    for what, name in (("drift", "drift_median"), ("drift with buffers", "drift_all_median")):
        cpu = "policies" if name == "drift_median" else ""

        def falls(group: Group, name: str = name) -> list[BySeed]:
            return [minus(a, b) for a, b in itertools.pairwise(drifts(group, name))]

        def halves(group: Group, name: str = name) -> list[BySeed]:
            without, *others = drifts(group, name)
            half = {seed: drift / 2 for seed, drift in without.items()}
            return [minus(half, other) for other in others]

        yield Statement(
            "Supp. A", f"{what} falls: FedAvg, Uniform, FedEAS, Full-Balance",
            "1.4e-4, 2.2e-5, 2.0e-5, 1.1e-6", MAIN, falls, "table-1-k20", cpu, show(name, False),
        )  # fmt: skip
        yield Statement(
            "Supp. A", f"{what} removed by Uniform, FedEAS, Full-Balance: more than half",
            "85 %, 86 %, 99 %", MAIN, halves, "table-1-k20", cpu, show(name, True),
        )  # fmt: skip


# The levels of Table 1


_NEAR = 0.02  # an accuracy this close to the printed one is the same


def _about_levels() -> Iterator[Statement]:
    """Yield one for every data set and number of clients, and one for the sweep of beta."""
    for peak, where in ((False, "Table 1"), (True, "Supp. E")):
        for data, clients in itertools.product(("cifar10", "cifar100"), (20, 100)):
            columns = [c for c in COLUMNS if (c.data, c.clients) == (data, clients)]
            cells = [
                (c.alpha, method, policy, value / 100)
                for c in columns
                for method, policy in _rows()
                if (value := printed(data, clients, c.alpha, method, policy, peak)) is not None
            ]
            low, high = min(cell[3] for cell in cells), max(cell[3] for cell in cells)
            name = "peak accuracies" if peak else "accuracies"
            yield Statement(
                where, f"{name} within 2 points, {str(columns[0]).rpartition(', ')[0]}",
                f"{100 * low:.2f} to {100 * high:.2f} %", columns[0], _near(cells, peak),
                table_grid(columns[0]), show=_distances, full_size=True,
            )  # fmt: skip

    def sweep(group: Group) -> list[BySeed]:
        differences = []
        for beta, fedeas, uniform in BETAS:
            if (policy := group.betas.get(float(beta))) is None:
                return []
            differences += _within(group.accuracy(policy), fedeas / 100)
            differences += _within(
                figure(group.uniform_like(policy), "accuracy_last"), uniform / 100
            )
        return differences

    yield Statement(
        "Supp. F", "accuracies of the sweep of beta within 2 points", "60.81 to 74.05 %", MAIN,
        sweep, "budget", show=_distances, full_size=True,
    )  # fmt: skip


def _rows() -> list[tuple[str, str]]:
    return [(m, "none") for m in METHODS] + [("fedavg", p) for p in POLICIES]


def _near(cells: Sequence[tuple[float, str, str, float]], peak: bool) -> Measure:
    def measure(group: Group) -> list[BySeed]:
        differences: list[BySeed] = []
        for alpha, method, policy, value in cells:
            here = group.at(alpha=alpha)
            differences += _within(here.accuracy(policy, method, peak) if here else {}, value)
        return differences

    return measure


def _within(ours: BySeed, value: float) -> list[BySeed]:
    """Return how far inside both ends of the band around a printed accuracy ours is."""
    return [{seed: _NEAR + sign * (a - value) for seed, a in ours.items()} for sign in (1, -1)]


def _distances(_: Group, test: PairedTest) -> str:
    apart = [statistics.mean(own) - _NEAR for own in test.differences[::2]]
    return (
        f"{points([statistics.mean(apart)])} on average, {points([max(apart, key=abs)])} at most, "
        f"of {len(apart)} cells"
    )
