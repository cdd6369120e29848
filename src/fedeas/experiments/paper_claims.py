"""The paper's claims, each with its state: exact, as a reduced run sees it, or waiting for a GPU.

What follows from label counts is computed on the spot. What takes training is judged from recorded
runs of `configs/cpu`, by rules that stand here; no state is written down by hand.
"""

import itertools
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fedeas import skew
from fedeas.experiments.evidence import AGREES, CANNOT_TELL, DISAGREES, Evidence, minus
from fedeas.experiments.paper_counts import claims as count_claims
from fedeas.experiments.paper_counts import disagreements, paper_counts
from fedeas.experiments.results import efficiency
from fedeas.experiments.tables import read_export
from fedeas.policies import FedEAS, FullBalance

EXACT, NEEDS_GPU = "exact", "needs a GPU"
RECORDED = Path(__file__).parent / "recorded"
# One run of the paper's main setting took 3 h 7 min on an RTX 4090, generation included.
_PAPER_SECONDS = (3 * 60 + 7) * 60
_BETAS = (4, 8, 12, 16, 20)


@dataclass(frozen=True)
class Claim:
    """A claim of the paper, what was found, and its state."""

    where: str
    what: str
    paper: str
    ours: str
    state: str


def all_claims(sweeps: Mapping[str, Evidence] | None = None) -> Iterator[Claim]:
    """Yield every claim of the paper; `sweeps` are one's own runs instead of the recorded ones."""
    yield from exact_claims()
    evidence = recorded() if sweeps is None else sweeps
    yield from _cifar10(evidence.get("cifar10", Evidence([])))
    yield from _fashion(evidence.get("fashion", Evidence([])))
    yield from gpu_claims()


def recorded() -> dict[str, Evidence]:
    """Return the runs that come with fedeas, by sweep."""
    return {path.stem: Evidence(read_export(path)) for path in sorted(RECORDED.glob("*.jsonl"))}


def exact_claims() -> Iterator[Claim]:
    """Yield the claims that follow from label counts."""
    for found in count_claims():
        state = EXACT if found.agrees else DISAGREES
        yield Claim(found.where, found.what, found.paper, found.ours, state)
    balanced = FedEAS(beta=12).local([100] * 10).sum()
    yield Claim(
        "Sec. 3.1",
        "samples of a balanced client: FedEAS is then FedAvg",
        "0",
        f"{balanced}",
        EXACT if balanced == 0 else DISAGREES,
    )
    yield Claim(
        "Supp. B",
        "two clients, two classes: the score falls as ((1 - r)/(1 + r))^2",
        "proved",
        "equal at r = 0.1 ... 1" if _theorem_holds() else "not equal",
        EXACT if _theorem_holds() else DISAGREES,
    )
    for found in disagreements():
        yield Claim(found.where, found.what, found.paper, found.ours, DISAGREES)


def _theorem_holds() -> bool:
    start = skew.imbalance([[100, 0], [0, 100]])
    return all(
        abs(
            skew.imbalance([[100, 0], [0, 100]], [[0, m], [m, 0]]) / start
            - ((100 - m) / (100 + m)) ** 2
        )
        < 1e-12
        for m in range(10, 101, 10)
    )


def _cifar10(runs: Evidence) -> Iterator[Claim]:
    """Yield the claims that the reduced CIFAR-10 runs speak to; FedEAS has beta = 8 there."""
    eas = "fedeas(beta=8)"
    columns = (("0.05", "skew", 0.05), ("0.1", "policies", None), ("0.3", "skew", 0.3))
    printed = {
        "uniform": ("+13.3", "+7.2", "+1.8"),
        "missing-only": ("+1.7", "+1.5", "-0.4"),
        "none": ("+29.1", "+16.1", "+5.6"),
    }
    names = {"uniform": "Uniform", "missing-only": "Missing-only", "none": "FedAvg"}
    for other, values in printed.items():
        for (alpha, grid, at), value in zip(columns, values, strict=True):
            own = minus(runs.accuracy(grid, eas, alpha=at), runs.accuracy(grid, other, alpha=at))
            claimed = own if not value.startswith("-") else [-d for d in own]
            yield Claim(
                "Table 1",
                f"FedEAS over {names[other]}, alpha = {alpha}, points",
                value,
                runs.show(own, plain=other == "none"),
                runs.judge(claimed, plain=other == "none"),
            )
    yield _gap_shrinks(runs, eas)
    yield _arrives_earlier(runs, eas)
    yield _recovered("CIFAR-10", runs, eas)
    over = minus(runs.accuracy("policies", "full-balance"), runs.accuracy("policies", eas))
    yield Claim(
        "Sec. 4.2", "Full-Balance over FedEAS, points", "+8.3", runs.show(over), runs.judge(over)
    )
    yield _above_all_methods(runs)
    yield from _budget(runs)
    yield from _combined(runs, eas)
    yield from _drift(runs, eas)
    yield from _ablation(runs)


def _gap_shrinks(runs: Evidence, eas: str) -> Claim:
    gaps = [
        minus(runs.accuracy("skew", eas, alpha=a), runs.accuracy("skew", "uniform", alpha=a))
        for a in (0.05, 0.3)
    ]
    change = [a - b for a, b in zip(*gaps, strict=False)]
    return Claim(
        "Sec. 4.2",
        "the lead over Uniform at alpha = 0.05 beyond that at 0.3, points",
        "+11.5",
        runs.show(change, terms=2),
        runs.judge(change, terms=2),
    )


def _arrives_earlier(runs: Evidence, eas: str) -> Claim:
    threshold = next(
        (r.entry.threshold for r in runs.runs if r.entry.grid == "policies" and r.entry.threshold),
        0.45,
    )
    own = runs.arrival("policies", eas, threshold)
    other = runs.arrival("policies", "missing-only", threshold)
    never = 10**9
    seeds = sorted(own.keys() & other.keys())
    pairs = [(own[s] or never, other[s] or never) for s in seeds]
    text = ", ".join(f"{own[s] or 'never'} / {other[s] or 'never'}" for s in seeds)
    return Claim(
        "Fig. 4",
        f"rounds to {100 * threshold:g} %, FedEAS / Missing-only, by seed (paper: to 70 %)",
        "30 / 60",
        text or "-",
        _unanimous([b - a for a, b in pairs]),
    )


def _unanimous(differences: Sequence[float]) -> str:
    """Judge numbers whose noise is not known: several seeds have to say the same."""
    if len(differences) < 2:
        return CANNOT_TELL
    if all(d > 0 for d in differences):
        return AGREES
    return DISAGREES if all(d < 0 for d in differences) else CANNOT_TELL


def _recovered(data: str, runs: Evidence, eas: str) -> Claim:
    """FedEAS' part of Full-Balance's gain; 'most of it' is more than half."""
    none, own, full = (runs.results("policies", p) for p in ("none", eas, "full-balance"))
    seeds = sorted(none.keys() & own.keys() & full.keys())
    what = f"{data}: part of Full-Balance's gain, with which part of its samples"
    if not seeds:
        return Claim("Sec. 4.2", what, "66 % with 5.9 %", "-", CANNOT_TELL)
    accuracy = [runs.figure("accuracy_last", r) for r in (none, own, full)]
    beyond_half = [accuracy[1][s] - (accuracy[0][s] + accuracy[2][s]) / 2 for s in seeds]
    gain = statistics.mean(accuracy[1][s] - accuracy[0][s] for s in seeds)
    most = statistics.mean(accuracy[2][s] - accuracy[0][s] for s in seeds)
    share = statistics.mean(own[s]["generated"] / full[s]["generated"] for s in seeds)
    return Claim(
        "Sec. 4.2",
        what,
        "66 % with 5.9 %",
        f"{100 * gain / most:.0f} % with {100 * share:.1f} %",
        runs.judge(beyond_half, terms=0.75, plain=True),
    )


def _above_all_methods(runs: Evidence) -> Claim:
    methods = {run.entry.method for run in runs.runs if run.entry.grid == "methods"}
    best = [a for m in methods for a in runs.accuracy("methods", "none", m).values()]
    policies = ("uniform", "missing-only", "fedeas(beta=8)")
    worst = [a for p in policies for a in runs.accuracy("methods", p).values()]
    lead = [min(worst) - max(best)] if len(best) == 6 and len(worst) == 3 else []
    return Claim(
        "Sec. 4.2",
        "the weakest policy over the best of six methods, alpha = 0.1, points",
        "+4.3",
        runs.show(lead, plain=True),
        runs.judge(lead, plain=True),
    )


def _budget(runs: Evidence) -> Iterator[Claim]:
    path = {b: runs.accuracy("budget", f"fedeas(beta={b})") for b in _BETAS}
    uniform = {b: runs.accuracy("budget", "uniform", "fedavg", f"fedeas(beta={b})") for b in _BETAS}
    if not all(path.values()) or not all(uniform.values()):
        for what, printed in (
            ("accuracy from beta = 4 to 20, points", "+7.9"),
            ("FedEAS over Uniform at every beta, points", "+5.3 to +7.6"),
            ("efficiency eta from beta = 4 to 20", "2.58 to 0.79"),
            ("eta of FedEAS / Uniform", "1.7 to 2.0"),
        ):
            yield Claim("Sec. 4.3", what, printed, "-", CANNOT_TELL)
        return
    own = [next(iter(path[b].values())) for b in _BETAS]
    steps = [b - a for a, b in itertools.pairwise(own)]
    rise = runs.judge([own[-1] - own[0]])
    falls = any(runs.judge([step]) == DISAGREES for step in steps)
    yield Claim(
        "Sec. 4.3",
        "accuracy from beta = 4 to 20, points; no step down beyond the noise",
        "+7.9",
        f"{runs.show([own[-1] - own[0]])}: {', '.join(f'{100 * a:.1f}' for a in own)}",
        DISAGREES if falls else rise,
    )
    leads = [minus(path[b], uniform[b])[0] for b in _BETAS]
    states = [runs.judge([lead]) for lead in leads]
    yield Claim(
        "Sec. 4.3",
        "FedEAS over Uniform at every beta, points",
        "+5.3 to +7.6",
        ", ".join(f"{100 * lead:+.1f}" for lead in leads),
        states[0] if len(set(states)) == 1 else CANNOT_TELL,
    )
    without = next(iter(runs.accuracy("policies", "none").values()))
    etas = [
        [
            efficiency(next(iter(found[b].values())), without, _generated(runs, b)) or 0.0
            for b in _BETAS
        ]
        for found in (path, uniform)
    ]
    falling = all(a > b for a, b in itertools.pairwise(etas[0]))
    yield Claim(
        "Sec. 4.3",
        "efficiency eta falls from beta = 4 to 20",
        "2.58 to 0.79",
        ", ".join(f"{eta:.2f}" for eta in etas[0]),
        AGREES if falling else DISAGREES,
    )
    ratios = [a / b if b > 0 else float("inf") for a, b in zip(*etas, strict=True)]
    yield Claim(
        "Sec. 4.3",
        "eta of FedEAS / Uniform",
        "1.7 to 2.0",
        ", ".join(f"{ratio:.1f}" for ratio in ratios),
        AGREES if min(ratios) > 1 else CANNOT_TELL,
    )


def _generated(runs: Evidence, beta: int) -> int:
    found = runs.results("budget", f"fedeas(beta={beta})")
    return int(next(iter(found.values()))["generated"])


def _combined(runs: Evidence, eas: str) -> Iterator[Claim]:
    both = runs.accuracy("combined", eas, "scaffold", alpha=0.3)
    alone = runs.accuracy("combined", eas, alpha=0.3)
    scaffold = runs.accuracy("combined", "none", "scaffold", alpha=0.3)
    best = {s: max(alone[s], scaffold[s]) for s in alone.keys() & scaffold.keys()}
    lead, behind = minus(both, best), minus(scaffold, alone)
    yield Claim(
        "Sec. 6",
        "FedEAS with SCAFFOLD over the better of the two, alpha = 0.3, points",
        "+2.4",
        runs.show(lead),
        runs.judge(lead),
    )
    yield Claim(
        "Table 1",
        "SCAFFOLD over FedEAS under weak skew, alpha = 0.3, points",
        "+2.2",
        runs.show(behind, plain=True),
        runs.judge(behind, plain=True),
    )


def _drift(runs: Evidence, eas: str) -> Iterator[Claim]:
    order = ("none", "uniform", eas, "full-balance")
    found = [runs.figure("drift_median", runs.results("policies", p)) for p in order]
    seeds = sorted(set.intersection(*map(set, found)))
    steps = [[a[s] - b[s] for s in seeds] for a, b in itertools.pairwise(found)]
    falls = [d for step in steps for d in step]
    text = "-"
    if seeds:
        means = [statistics.mean(values[s] for s in seeds) for values in found]
        text = ", ".join(f"{mean:.3f}" for mean in means)
    yield Claim(
        "Supp. A",
        "drift falls: FedAvg, Uniform, FedEAS, Full-Balance",
        "1.4e-4, 2.2e-5, 2.0e-5, 1.1e-6",
        text,
        _unanimous(falls) if seeds else CANNOT_TELL,
    )
    cut = ""
    if seeds:
        cut = ", ".join(f"{100 * (1 - mean / means[0]):.0f} %" for mean in means[1:])
    yield Claim(
        "Supp. A",
        "drift removed by Uniform, FedEAS, Full-Balance",
        "85 %, 86 %, 99 %",
        cut or "-",
        (DISAGREES if means[2] > 0.5 * means[0] else AGREES) if seeds else CANNOT_TELL,
    )


def _ablation(runs: Evidence) -> Iterator[Claim]:
    own = _first(runs, lambda policy: "," not in policy and "size" not in policy)
    for what, printed, variant in (
        ("the rule over the one without entropy, points", "+0.5", "entropy"),
        ("the rule over the linear one, points", "+0.5", "size_exponent"),
    ):
        other = _first(runs, lambda policy, variant=variant: variant in policy)  # type: ignore[misc]
        if own is None or other is None:
            command = "fedeas sweep configs/paper/cifar10.toml --grid ablation"
            yield Claim("Table 2", what, printed, command, NEEDS_GPU)
            continue
        lead = minus(runs.accuracy("ablation", own), runs.accuracy("ablation", other))
        yield Claim("Table 2", what, printed, runs.show(lead), runs.judge(lead))


def _first(runs: Evidence, wanted: Callable[[str], bool]) -> str | None:
    policies = (run.entry.policy for run in runs.runs if run.entry.grid == "ablation")
    return next((policy for policy in policies if wanted(policy)), None)


def _fashion(runs: Evidence) -> Iterator[Claim]:
    """Yield the claims that the Fashion-MNIST runs speak to, with a diffusion model."""
    eas = "fedeas(beta=6)"
    yield _recovered("Fashion-MNIST", runs, eas)
    slow, fast = runs.seconds("policies", "full-balance"), runs.seconds("policies", eas)
    ratios = [slow[seed] / fast[seed] for seed in slow.keys() & fast.keys()]
    ratio = statistics.mean(ratios) if ratios else None
    yield Claim(
        "Sec. 4.3",
        "Fashion-MNIST: time of Full-Balance / FedEAS, generation and training",
        "3.7x",
        "-" if ratio is None else f"{ratio:.1f}x",
        CANNOT_TELL if ratio is None else AGREES if ratio > 1 else DISAGREES,
    )
    own = minus(runs.accuracy("policies", eas), runs.accuracy("policies", "uniform"))
    yield Claim(
        "Sec. 4.2",
        "Fashion-MNIST: FedEAS over Uniform with a diffusion model, points",
        "+7.2",
        runs.show(own),
        runs.judge(own),
    )


def gpu_claims() -> Iterator[Claim]:
    """Yield what only the full size can say, with the command and the hours of one RTX 4090."""
    ten, hundred = "configs/paper/cifar10.toml", "configs/paper/cifar100.toml"
    for where, what, printed, file, grid, columns, extra in (
        ("Table 1", "accuracies, CIFAR-10, K = 20", "39.16 to 79.91 %", ten, "table-1-k20",
         [("CIFAR-10", 20, a) for a in (0.05, 0.1, 0.3)], 0),
        ("Table 1", "accuracies, CIFAR-10, K = 100", "30.16 to 79.33 %", ten, "table-1-k100",
         [("CIFAR-10", 100, a) for a in (0.05, 0.1, 0.3)], 0),
        ("Table 1", "accuracies, CIFAR-100, K = 20", "37.87 to 59.12 %", hundred, "table-1-k20",
         [("CIFAR-100", 20, 0.1)], 0),
        ("Table 1", "accuracies, CIFAR-100, K = 100", "38.38 to 57.47 %", hundred, "table-1-k100",
         [("CIFAR-100", 100, 0.1)], 0),
        ("Supp. E", "peak accuracies: of the same runs", "36.13 to 80.28 %", ten, "table-1-k20",
         [], 0),
        ("Supp. F", "accuracies of the sweep of beta", "60.81 to 74.05 %", ten, "budget", [], 8),
        ("Sec. 4.2", "with SD-turbo: FedEAS over Uniform, peak, points", "+2.5", ten, "turbo",
         [], 2),
        ("Sec. 4.3", "hours: FedEAS, Full-Balance", "3.1 h, 11.6 h", ten, "table-1-k20", [], 0),
    ):  # fmt: skip
        hours = sum(_hours(*column) for column in columns) + extra * _PAPER_SECONDS / 3600
        some = f" (some {2 * hours:,.0f} h, both protocols)" if hours else ""
        command = f"fedeas sweep {file} --grid {grid}{some}"
        yield Claim(where, what, printed, command, NEEDS_GPU)


def _hours(data: str, K: int, alpha: float) -> float:
    """Return the hours of a column of Table 1 under one protocol, by the paper's own run.

    Time is taken to go with the images that pass through training, as in the one run that the
    paper times; methods that compute more than FedAvg take longer.
    """
    counts = paper_counts(data, K, alpha)
    eas = FedEAS(beta=12).plan(counts).total
    samples = [counts.total] * 6 + [counts.total + eas] * 4
    if alpha == 0.1:
        samples.append(counts.total + FullBalance().plan(counts).total)
    fraction = {20: 0.5, 100: 0.1}[K]
    main = paper_counts()
    timed = 0.5 * (main.total + FedEAS(beta=12).plan(main).total)
    return _PAPER_SECONDS / 3600 * fraction * sum(samples) / timed
