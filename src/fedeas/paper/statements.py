"""A statement of the paper that takes training: differences that have to be above zero.

It names a column of the paper's Table 1 and what has to be positive there, seed by seed. Which runs
speak to it, and what noise is, `evidence` says. No state is written down by hand.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fedeas.paper.evidence import BySeed, Column, Group, PairedTest, chance, points

MAIN = Column("cifar10", 20, 0.1)  # where the paper measures all but its Table 1
FASHION = Column("fashion_mnist", 20, 0.1)  # where configs/cpu has a diffusion model

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
    grid: str  # of configs/paper that runs it
    cpu: str = ""  # grid of configs/cpu that runs it at a reduced size
    show: Show | None = None  # of what was found; points with their interval by default
    generator: str = ""  # that it is about, any but SD-turbo by default
    full_size: bool = False  # whether only runs of the paper's size and protocol can speak to it

    def test(self, group: Group) -> PairedTest:
        """Test the statement on the runs of a group."""
        return PairedTest.of(self.measure(group))

    def shown(self, group: Group) -> str:
        """Write what the runs of a group give."""
        test = self.test(group)
        if self.show is not None:
            return f"{self.show(group, test)} ({chance(test)})"
        return f"{', '.join(points(own) for own in test.differences)} ({chance(test)})"


def table_grid(column: Column) -> str:
    """Return the grid of configs/paper that has a column of Table 1."""
    return f"table-1-k{column.clients}"


def cpu_grid(column: Column) -> str:
    """Return the grid of configs/cpu that has a column's policies."""
    reduced = column.data == "cifar10" and column.clients == 20
    return ("policies" if column.alpha == 0.1 else "skew") if reduced else ""
