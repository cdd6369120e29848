"""What the paper says about the rule itself: sections 4.3 and 4.4, FedEAS with SCAFFOLD, drift."""

import itertools
import math
import statistics
from collections.abc import Iterator, Sequence

from fedeas.experiments.results import Result, efficiency
from fedeas.paper.evidence import (
    EAS,
    BySeed,
    Column,
    Group,
    PairedTest,
    figure,
    minus,
)
from fedeas.paper.statements import (
    FASHION,
    MAIN,
    Measure,
    Show,
    Statement,
)
from fedeas.paper.tables import BETAS, COMBINED_PEAK, printed

_PAPER_TIMES = 3.7


def statements() -> Iterator[Statement]:
    """Yield them in the order of the paper."""
    yield from _budget()
    yield from (_faster(MAIN, "table-1-k20"), _faster(FASHION, ""))
    yield from _ablation()
    yield from _combined()
    yield from _drift()


def _budget() -> Iterator[Statement]:
    """Yield the claims about five betas, each compared with Uniform at the same total."""

    def sweep(group: Group) -> list[str]:
        found = [policy for policy in group.betas.values() if group.uniform_like(policy)]
        return found if len(found) >= len(BETAS) else []  # the main one alone is not a sweep

    def path(group: Group) -> list[BySeed]:
        return [group.accuracy(policy) for policy in sweep(group)]

    def beside(group: Group) -> list[BySeed]:
        return [figure(group.uniform_like(policy), "accuracy_last") for policy in sweep(group)]

    def leads(group: Group) -> list[BySeed]:
        return [minus(own, other) for own, other in zip(path(group), beside(group), strict=True)]

    def etas(group: Group, accuracies: Sequence[BySeed]) -> list[BySeed]:
        without, found = group.accuracy("none"), []
        for policy, own in zip(sweep(group), accuracies, strict=True):
            spent = {seed: result["generated"] for seed, result in group.results(policy).items()}
            gained = minus(own, without)
            found.append({s: efficiency(d, 0.0, spent[s]) or 0.0 for s, d in gained.items()})
        return found

    def more_efficient(group: Group) -> list[BySeed]:
        """Return the leads: at equal totals FedEAS is more efficient where it is more accurate."""
        without = group.accuracy("none")
        return [{s: d for s, d in lead.items() if s in without} for lead in leads(group)]

    def means(found: Sequence[BySeed], test: PairedTest) -> list[float]:
        return [statistics.mean(own[seed] for seed in test.seeds) for own in found]

    def ratios(group: Group, test: PairedTest) -> str:
        own, other = (means(etas(group, a(group)), test) for a in (path, beside))
        pairs = zip(own, other, strict=True)
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
        found = (run.result["policy"] for run in group.runs)
        return group.results(
            next((p for p in found if p.startswith("fedeas(") and setting in p), "-")
        )

    def rule(group: Group, variants: Sequence[dict[int, Result]]) -> dict[int, Result]:
        def rank(own: dict[int, Result]) -> tuple[int, float]:
            common = own.keys() & set.intersection(*map(set, variants))
            apart = [own[s]["generated"] - v[s]["generated"] for v in variants for s in common]
            return len(common), -abs(sum(apart)) / max(1, len(apart))

        return max(map(group.results, group.betas.values()), key=rank, default={})

    def over(setting: str) -> Measure:
        def measure(group: Group) -> list[BySeed]:
            variants = [variant(group, name) for name in ("entropy=", "size_exponent=")]
            own = rule(group, variants)
            last = "accuracy_last"
            return [minus(figure(own, last), figure(variant(group, setting), last))]

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
            found = drifts(group, name)
            seeds = sorted(set.intersection(*map(set, found)))
            means = [statistics.mean(own[s] for s in seeds) for own in found]
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
