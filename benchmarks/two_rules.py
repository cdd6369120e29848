"""The paper's rule and equal reduction on ten tables, side by side.

    python benchmarks/two_rules.py

For each table: the beta that `fedeas plan` chooses by its two conditions and what it generates,
removes of the imbalance and gives the client with the largest synthetic share; the same of equal
reduction by a half. Tables that are not in the repository are below FEDEAS_DATA, and are left out
where it is not set. The exit code is 1 if a client of equal reduction has more than its cap.
"""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from fedeas import EqualReduction, LabelCounts, Plan
from fedeas.planning.planner import choose_policy

EXAMPLES = Path(__file__).parents[1] / "examples"
CAP = 0.5


def tables() -> Iterator[tuple[str, LabelCounts]]:
    """Yield names and counts."""
    rng = np.random.default_rng(0)
    yield "CIFAR-10, the paper's partition", LabelCounts.load(EXAMPLES / "cifar10.csv")
    yield "forest", LabelCounts.load(EXAMPLES / "forest.csv")
    if folder := os.environ.get("FEDEAS_DATA"):
        yield "loans", LabelCounts.load(Path(folder) / "sites" / "loans.csv")
        table = pq.read_table(
            Path(folder) / "natural" / "portal_rodents" / "train.parquet"
        ).to_pandas()
        counts = table.groupby(["site", "label"]).size().unstack(fill_value=0)
        yield "rodents", LabelCounts(counts.to_numpy())
    yield "single-class clients", LabelCounts(np.eye(10, dtype=int).repeat(20, 0) * 50)
    yield "balanced", LabelCounts(np.full((20, 10), 100))
    yield "one client", LabelCounts([[90, 10, 0]])
    shares = rng.dirichlet(np.full(10, 0.1), 10_000)
    yield "10,000 clients", LabelCounts([rng.multinomial(100, row) for row in shares])
    yield "counts of a million", LabelCounts(rng.integers(0, 10**6, (20, 10)))
    yield "two classes", LabelCounts(rng.multinomial(200, [0.9, 0.1], 20))


def facts(plan: Plan, counts: LabelCounts) -> tuple[int, float, float]:
    """Return the samples, the part of the imbalance removed, and the largest synthetic share."""
    added = plan.per_client
    share = added / np.maximum(added + counts.n.sum(axis=1), 1)
    return plan.total, 100 * plan.reduction, 100 * float(share.max())


def main() -> int:
    """Print the table."""
    print(f"{'':32}{'the rule, beta by its conditions':>42}{'equal reduction 0.5':>38}")
    print(f"{'':32}{'beta':>8}{'samples':>14}{'removed':>10}{'most':>10}"
          f"{'samples':>18}{'removed':>10}{'most':>10}")  # fmt: skip
    wrong = False
    for name, counts in tables():
        chosen = choose_policy(counts, "fedeas")
        beta = "none" if chosen.instead else f"{getattr(chosen.policy, 'beta', 0):g}"
        total, removed, most = facts(chosen.plan, counts)
        paper = f"{beta:>8}{total:>14,}{removed:>8.1f} %{most:>8.1f} %"
        if chosen.instead:
            paper = f"{beta:>8}{'':>34}"
        total, removed, most = facts(EqualReduction(reduction=0.5, cap=CAP).plan(counts), counts)
        print(f"{name:32}{paper}{total:>18,}{removed:>8.1f} %{most:>8.1f} %")
        wrong = wrong or most > 100 * CAP + 1e-9
    return int(wrong)


if __name__ == "__main__":
    sys.exit(main())
