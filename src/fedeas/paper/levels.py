"""The accuracies that the paper prints: only runs of its size and protocol have them."""

import itertools
import statistics
from collections.abc import Iterator, Sequence

from fedeas.paper.evidence import (
    BySeed,
    Group,
    PairedTest,
    figure,
    points,
)
from fedeas.paper.statements import (
    MAIN,
    Measure,
    Statement,
    table_grid,
)
from fedeas.paper.tables import BETAS, COLUMNS, METHODS, POLICIES, printed

_NEAR = 0.02  # an accuracy this close to the printed one is the same


def statements() -> Iterator[Statement]:
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
        found = []
        for beta, own, uniform in BETAS:
            if (policy := group.betas.get(float(beta))) is None:
                return []
            found += _within(group.accuracy(policy), own / 100)
            found += _within(figure(group.uniform_like(policy), "accuracy_last"), uniform / 100)
        return found

    yield Statement(
        "Supp. F", "accuracies of the sweep of beta within 2 points", "60.81 to 74.05 %", MAIN,
        sweep, "budget", show=_distances, full_size=True,
    )  # fmt: skip


def _rows() -> list[tuple[str, str]]:
    return [(m, "none") for m in METHODS] + [("fedavg", p) for p in POLICIES]


def _near(cells: Sequence[tuple[float, str, str, float]], peak: bool) -> Measure:
    def measure(group: Group) -> list[BySeed]:
        found: list[BySeed] = []
        for alpha, method, policy, value in cells:
            here = group.at(alpha=alpha)
            found += _within(here.accuracy(policy, method, peak) if here else {}, value)
        return found

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
