"""Write the waypoints of the flbench recipe: the stream's state before a late, successful try.

At K = 100 and alpha = 0.05 the paper's partition is the result of some ten thousand tries. The file
only saves that time; `FLBench.counts(..., walk=True)` makes every try, and a test compares the two.
"""

import base64
import json
from pathlib import Path

import numpy as np

from fedeas.partition import FLBench

SLOW = [(FLBench(clients=100, alpha=0.05), [6000] * 10)]
TARGET = Path(__file__).parents[1] / "src/fedeas/partition/flbench_waypoints.json"


def waypoint(recipe: FLBench, class_sizes: list[int]) -> dict[str, object]:
    """Make every try from the first and return the state before the one that succeeds."""
    stream = np.random.RandomState(recipe.seed)
    pools = [np.full(size, c, dtype=np.int64) for c, size in enumerate(class_sizes)]
    tries = 0
    while True:
        tries += 1
        _, words, position, has_gauss, _ = stream.get_state(legacy=True)
        sizes = np.diff(recipe._draw(stream, pools), axis=1).sum(axis=0)
        if sizes.min() >= recipe.min_samples:
            break
    if has_gauss:
        raise RuntimeError("the state would need its cached value too")
    return {
        "key": [recipe.seed, recipe.clients, recipe.alpha, recipe.min_samples, class_sizes],
        "tries": tries,
        "position": position,
        "state": base64.b64encode(words.astype("<u4").tobytes()).decode(),
    }


if __name__ == "__main__":
    TARGET.write_text(json.dumps([waypoint(*case) for case in SLOW], indent=1) + "\n")
