"""Plans for samples with several labels: seconds, and samples beside a greedy choice.

    python benchmarks/label_sets.py [--samples 100000] [--labels 14] [--sites 100]

Draws samples whose labels depend on each other and on the site, counts their label sets, and plans
them with FedEAS. `greedy` takes the set
that holds most of what is still missing, again and again, as one would without the program. With
FEDEAS_DATA, the X-ray table of three archives is planned too. The last line is JSON; the exit code
is 1 if greedy takes fewer.
"""

import argparse
import json
import os
import sys
import time
from pathlib import Path

import numpy as np

from fedeas.counts.label_sets import LabelSetCounts
from fedeas.planning.label_set_plan import LabelSetPlan, plan_label_sets


def draw(samples: int, labels: int, sites: int) -> tuple[np.ndarray, np.ndarray]:
    """Return multi-hot columns and sites: a few hidden causes, each with labels of its own."""
    rng = np.random.default_rng(0)
    causes = rng.random((6, labels)) ** 3
    mixture = rng.dirichlet(np.full(6, 0.3), sites)
    site = rng.integers(0, sites, samples)
    cause = (rng.random((samples, 1)) > mixture[site].cumsum(axis=1)).sum(axis=1).clip(max=5)
    return rng.random((samples, labels)) < 0.6 * causes[cause], site


def greedy_total(plan: LabelSetPlan, min_samples: int = 6) -> int:
    """Return the samples that taking the best set at a time needs for the same positives."""
    counts, total = plan.counts, 0
    frequent = (counts.n.sum(axis=0) >= min_samples) | (counts.holds.sum(axis=0) < 2)
    for demand in plan.wanted.samples:
        usable = counts.holds & frequent & ~counts.holds[demand == 0].any(axis=0)
        missing = np.where(usable.any(axis=1), demand, 0)
        while missing.any():
            best = usable[:, np.argmax((missing > 0).astype(int) @ usable)] & (missing > 0)
            times = int(missing[best].min())
            missing = missing - times * best
            total += times
    return total


def measure(name: str, counts: LabelSetCounts, seconds: float = 0.0) -> dict[str, object]:
    """Plan, print a line, and return its numbers."""
    start = time.perf_counter()
    plan = plan_label_sets(counts)
    planning = time.perf_counter() - start
    greedy = greedy_total(plan)
    print(
        f"{name:<8}{counts!r}\n        counted in {seconds:.2f} s, planned in {planning:.2f} s: "
        f"{plan.wanted.total:,} positives with {plan.total:,} samples, "
        f"greedy {greedy:,}, "
        f"{100 * (greedy / plan.total - 1):.1f} % more"
    )
    return {
        "name": name, "count_seconds": seconds, "plan_seconds": planning,
        "total": plan.total, "wanted": plan.wanted.total, "greedy": greedy,
    }  # fmt: skip


def main() -> int:
    """Measure both tables."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--samples", type=int, default=100_000)
    parser.add_argument("--labels", type=int, default=14)
    parser.add_argument("--sites", type=int, default=100)
    given = parser.parse_args()
    columns, site = draw(given.samples, given.labels, given.sites)
    start = time.perf_counter()
    counts = LabelSetCounts.from_columns(columns, site)
    results = [measure("drawn", counts, time.perf_counter() - start)]
    xray = Path(os.environ.get("FEDEAS_DATA", "")) / "sites" / "xray_label_sets.csv"
    if xray.is_file():
        results.append(measure("X-rays", LabelSetCounts.load(xray)))
    print(json.dumps(results))
    return int(any(each["greedy"] < each["total"] for each in results))


if __name__ == "__main__":
    sys.exit(main())
