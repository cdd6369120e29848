"""What the paper says about policies: Table 1 and section 4.2."""

import statistics
from collections.abc import Iterator

from fedeas.paper.evidence import (
    EAS,
    BySeed,
    Column,
    Group,
    PairedTest,
    minus,
    points,
)
from fedeas.paper.statements import (
    FASHION,
    MAIN,
    Measure,
    Statement,
    cpu_grid,
    table_grid,
)
from fedeas.paper.tables import COLUMNS, METHODS, lead, printed

_NAMES = {"uniform": "Uniform", "missing-only": "Missing-only", "none": "FedAvg"}
_PAPER_THRESHOLD = 0.70


def statements() -> Iterator[Statement]:
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
        found = minus(group.accuracy(EAS), group.accuracy(other))
        return [{seed: sign * d for seed, d in found.items()}]

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
        found = group.arrival(policy, threshold(group))
        return {seed: float(number or most) for seed, number in found.items()}

    def show(group: Group, test: PairedTest) -> str:
        own, other = (group.arrival(p, threshold(group)) for p in (EAS, "missing-only"))
        both = sorted(own.keys() & other.keys())
        listed = ", ".join(f"{own[s] or 'never'} / {other[s] or 'never'}" for s in both)
        return f"to {100 * threshold(group):g} %: {listed}"

    return Statement(
        "Fig. 4", f"rounds to 70 %, FedEAS / Missing-only, by seed, {column}", rounds, column,
        lambda g: [minus(arrived(g, "missing-only"), arrived(g, EAS))], table_grid(column),
        cpu_grid(column), show,
    )  # fmt: skip


def _recovered(column: Column, part: str, cpu: str) -> Statement:
    """FedEAS' part of Full-Balance's gain; 'most of it' is more than half."""

    def measure(group: Group) -> list[BySeed]:
        none, own, full = (group.accuracy(p) for p in ("none", EAS, "full-balance"))
        seeds = none.keys() & own.keys() & full.keys()
        return [{s: own[s] - (none[s] + full[s]) / 2 for s in seeds}]

    def show(group: Group, test: PairedTest) -> str:
        none, own, full = (group.accuracy(p) for p in ("none", EAS, "full-balance"))
        seeds = sorted(none.keys() & own.keys() & full.keys())
        gain, most = (statistics.mean(x[s] - none[s] for s in seeds) for x in (own, full))
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
        found = [group.accuracy("none", method) for method in METHODS]
        return {s: max(own[s] for own in found) for s in set.intersection(*map(set, found))}

    def above(*policies: str, by: float = 0.0) -> Measure:
        return lambda g: [
            {s: d - by for s, d in minus(g.accuracy(p), best(g)).items()} for p in policies
        ]

    for column in (c for c in COLUMNS if c.data == "cifar10" and c.alpha <= 0.1):
        place = column.data, column.clients, column.alpha
        strongest = max(printed(*place, m, "none") or 0 for m in METHODS)
        yield Statement(
            "Sec. 4.2", f"Uniform, Missing-only, FedEAS over the best of six methods, {column}",
            ", ".join(f"{(printed(*place, 'fedavg', p) or 0) - strongest:+.1f}"
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
