"""The paper's claims, each with its state: exact, as runs see it, or waiting for a GPU.

What follows from label counts is computed on the spot. What takes training is judged from runs:
the recorded ones, or your own sweeps of `reproduction/configs` at any size.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from fedeas.lab.results import read_export
from fedeas.planning import skew
from fedeas.planning.policies import FedEAS
from reproduction.counts import count_numbers, disagreements
from reproduction.evidence import CANNOT_TELL, DISAGREES, Evidence, Group, PairedTest, judge
from reproduction.statements import Statement, statements

EXACT, INFERRED, NEEDS_GPU = "exact", "constant inferred", "needs a GPU"
RECORDED = Path(__file__).parent / "recorded"
# The exports of sweeps among the records.
EXPORTS = tuple(RECORDED / f"{name}.jsonl" for name in ("cifar10", "fashion"))
_CONFIGS = "reproduction/configs"
_CPU_FILES = {"cifar10": "cpu/cifar10.toml", "fashion_mnist": "cpu/fashion.toml"}


@dataclass(frozen=True)
class Claim:
    """A claim of the paper, what was found, and its state.

    `split` is that of the runs that judged it, 'merged' or 'official', `p_value` the chance of such
    a difference without an effect, where several seeds tell. `command` runs what is needed
    to judge a claim that no run speaks to.
    """

    where: str
    what: str
    paper: str
    ours: str
    state: str
    split: str = ""
    p_value: float | None = None
    command: str = ""


def all_claims(sweeps: Mapping[str, Evidence] | None = None) -> Iterator[Claim]:
    """Yield every claim of the paper; `sweeps` are your own runs instead of the recorded ones."""
    yield from exact_claims()
    evidence = recorded() if sweeps is None else sweeps
    yield from training_claims(Evidence([run for sweep in evidence.values() for run in sweep.runs]))


def recorded() -> dict[str, Evidence]:
    """Return the runs that come with fedeas, by sweep."""
    return {path.stem: Evidence(read_export(path)) for path in EXPORTS}


def exact_claims() -> Iterator[Claim]:
    """Yield the claims that follow from label counts."""
    for number in count_numbers():
        equal = INFERRED if number.inferred else EXACT
        state = equal if number.agrees else DISAGREES
        yield Claim(number.where, number.what, number.paper, number.ours, state)
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
    for number in disagreements():
        yield Claim(number.where, number.what, number.paper, number.ours, DISAGREES)


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


def training_claims(runs: Evidence) -> Iterator[Claim]:
    """Yield the claims that take training: one for every split that runs speak to it under.

    All that are judged are corrected together, so none has a state before all are known.
    """
    judged: list[tuple[Claim, PairedTest | None, bool]] = []
    for statement in statements():
        groups = list(_groups(runs, statement))
        for group in groups:
            test = statement.test(group)
            claim = replace(
                _open(statement, CANNOT_TELL),
                ours=statement.shown(group),
                split=group.split,
                p_value=test.p_value,
            )
            judged.append((claim, test, group.full_size))
        if not groups:
            state = CANNOT_TELL if statement.cpu else NEEDS_GPU
            judged.append((_open(statement, state, _command(statement)), None, False))
    states = iter(judge([(paired, full) for _, paired, full in judged if paired is not None]))
    for claim, paired, _ in judged:
        yield claim if paired is None else replace(claim, state=next(states))


def _groups(runs: Evidence, statement: Statement) -> Iterator[Group]:
    """Yield the groups of runs that speak to a statement."""

    def seeds(group: Group) -> int:
        if statement.full_size and not (group.full_size and group.split == "merged"):
            return 0  # accuracies at another size or on another test set are other numbers
        return len(statement.test(group).seeds)

    return runs.where(statement.column, seeds, statement.generator)


def _open(statement: Statement, state: str, command: str = "") -> Claim:
    """Return a claim as the paper has it."""
    where, what, paper = statement.where, statement.what, statement.paper
    return Claim(where, what, paper, "-", state, command=command)


def _command(statement: Statement) -> str:
    """Return the command that runs what a statement is judged from, at a reduced size if it can."""
    data = statement.column.data
    file = _CPU_FILES[data] if statement.cpu else f"paper/{data}.toml"
    return f"fedeas sweep {_CONFIGS}/{file} --grid {statement.cpu or statement.grid}"
