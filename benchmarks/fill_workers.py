"""What workers buy: a fill by two workers of Ray against one process, and whether the bytes agree.

    python benchmarks/fill_workers.py [--images 9000] [--steps 4] [--rounds 2] [--workers 2]

The small diffusion model computes with one thread in each process. The contestants alternate; the
ratio is the median over the rounds, starting Ray and the workers included. Every row of both caches
is compared. Target: at least 1.7 with two workers on two cores. The last line is JSON; the exit
code is 1 when the target is missed or a byte differs.
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from fedeas import LabelCounts, Plan, fill
from fedeas.cache import Cache
from fedeas.generators import make_generator

KEYS = ["client", "class", "index"]


def plan_of(images: int) -> Plan:
    """Plan for twenty clients that lack different classes."""
    rng = np.random.default_rng(0)
    samples = rng.multinomial(images, rng.dirichlet(np.full(200, 0.2))).reshape(20, 10)
    return Plan.of(LabelCounts(np.ones((20, 10), int)), samples, "any")


def rows_of(cache: Cache) -> list[tuple[object, ...]]:
    """Return every row of a cache, as any program reads it."""
    table = pq.read_table(cache.folder).sort_by([(name, "ascending") for name in KEYS])
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


def main() -> int:
    """Measure, print, and say whether the target is met."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=9000)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    spec = f"diffusion(model=fashion_mnist, steps={options.steps})"
    plan, generator = plan_of(options.images), make_generator(spec)
    times: dict[int, list[float]] = {0: [], options.workers: []}
    equal = True
    for number in range(options.rounds):
        rows = []
        for workers, own in times.items():
            with tempfile.TemporaryDirectory() as folder:
                cache = Cache(Path(folder), generator, 10)
                begun = time.perf_counter()
                source = spec if workers else generator
                fill(plan, source, cache, 32, workers=workers, threads=1)
                own.append(time.perf_counter() - begun)
                rows.append(rows_of(cache))
        equal = equal and rows[0] == rows[1] and len(rows[0]) == plan.total
        alone, together = (own[-1] for own in times.values())
        print(f"round {number + 1}: {alone:.1f} s alone, {together:.1f} s by {options.workers}"
              f" workers, {alone / together:.2f} times as fast", flush=True)  # fmt: skip
    ratio = statistics.median(a / b for a, b in zip(*times.values(), strict=True))
    met = ratio >= 1.7 and equal
    found = {"times_as_fast": round(ratio, 3), "workers": options.workers, "images": plan.total,
             "rows_equal": equal, "targets_met": met}  # fmt: skip
    print(json.dumps(found))
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
