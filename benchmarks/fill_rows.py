"""Filling a cache with rows of a table, against a bare loop of NumPy with the same transforms.

The bare loop draws normal numbers from one generator of NumPy, multiplies them with the factors of
a class, looks up the same quantiles and keeps nothing. A fill also gives every row a seed of its
own, writes it, and can be killed at any moment.

    python benchmarks/fill_rows.py --rows 100000 --columns 50
"""

import argparse
import json
import tempfile
import time

import numpy as np

from fedeas import LabelCounts, Plan
from fedeas.cache import Cache
from fedeas.cache.fill import fill
from fedeas.generators import Gaussian

CLASSES = tuple("abcdefgh")


def fitted(columns: int) -> Gaussian:
    """Fit it to numbers that depend on each other: every fourth column is whole, some are tied."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, len(CLASSES), 20_000)
    mixing = rng.normal(size=(columns, columns)) / columns**0.5
    rows = rng.normal(size=(20_000, columns)) @ mixing + 0.3 * labels[:, np.newaxis]
    rows[:, ::4] = np.rint(10 * rows[:, ::4])
    rows[:, 1::8] = np.exp(rows[:, 1::8])
    return Gaussian.fit(rows.astype(np.float32), labels, CLASSES)


def now() -> np.ndarray:
    """Return the time of the clock and of the processor: the latter where others are busy too."""
    return np.array([time.perf_counter(), time.process_time()])


def bare(generator: Gaussian, wanted: np.ndarray, batch: int) -> np.ndarray:
    """Return the times of drawing as many rows of every class, with nothing around it."""
    space, rng = generator.space, np.random.default_rng(1)
    whole = set(generator.schema.whole.tolist())
    models = [generator._distribution(label) for label in range(len(CLASSES))]
    begun = now()
    for label, size in enumerate(wanted.tolist()):
        for start in range(0, size, batch):
            drawn = rng.standard_normal((len(space.quantiles), min(batch, size - start)))
            places = models[label]._mean + models[label]._factors @ drawn
            rows = np.empty((places.shape[1], len(places)), np.float32)
            for at, curve in enumerate(space.quantiles):
                values = np.interp(places[at], curve.places, curve.values)
                rows[:, at] = np.rint(values) if at in whole else values
    return now() - begun


def through_the_cache(generator: Gaussian, plan: Plan) -> np.ndarray:
    """Return the times of a fill."""
    with tempfile.TemporaryDirectory() as folder:
        cache = Cache(folder, generator, CLASSES)
        begun = now()
        fill(plan, generator, cache)
        return now() - begun


def main() -> None:
    """Measure both in turns, and print the medians."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--columns", type=int, default=50)
    parser.add_argument("--clients", type=int, default=20)
    parser.add_argument("--repeats", type=int, default=5)
    given = parser.parse_args()
    generator = fitted(given.columns)
    share = given.rows // (given.clients * len(CLASSES))
    samples = np.full((given.clients, len(CLASSES)), share)
    counts = LabelCounts(np.ones_like(samples), classes=CLASSES)
    plan = Plan.of(counts, samples, None)
    loop, filled = [], []
    for _ in range(given.repeats):
        loop.append(bare(generator, samples.sum(axis=0), generator.least_batch))
        filled.append(through_the_cache(generator, plan))
    ours, theirs = np.median(filled, axis=0), np.median(loop, axis=0)
    found = {
        "rows": plan.total,
        "columns": given.columns,
        "fill_rows_per_second": round(plan.total / ours[0]),
        "bare_rows_per_second": round(plan.total / theirs[0]),
        "ratio": round(theirs[0] / ours[0], 3),
        "ratio_of_processor_time": round(theirs[1] / ours[1], 3),
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
