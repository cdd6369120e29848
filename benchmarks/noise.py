"""How long a site's part of the noise takes, and an entry in its ledger.

    python benchmarks/noise.py

The last line is JSON: seconds and random bytes per million words, by the standard deviation of one
part, and milliseconds per entry of a ledger with 100 and with 1,000 of them.
"""

import json
import os
import statistics
import tempfile
import time

from fedeas.private.ledger import Ledger
from fedeas.private.noise import SumNoise

WORDS, REPEATS = 1_000_000, 3


def part(sigma: float) -> dict[str, float]:
    """Measure one site's part of a million words."""
    used = 0

    def counted(length: int) -> bytes:
        nonlocal used
        used += length
        return os.urandom(length)

    seconds = []
    for _ in range(REPEATS):
        begun = time.perf_counter()
        SumNoise(sigma, honest=1).part(WORDS, counted)
        seconds.append(time.perf_counter() - begun)
    median = round(statistics.median(seconds), 2)
    return {"seconds": median, "random_bytes_per_word": round(used / WORDS / REPEATS, 1)}


def entries(counts: tuple[int, ...]) -> dict[str, float]:
    """Measure an entry when there are so many already."""
    found, seconds = {}, []
    with tempfile.TemporaryDirectory() as folder:
        ledger = Ledger.open(folder)
        for number in range(max(counts)):
            begun = time.perf_counter()
            ledger.enter("beta", 1e-6, server="", run="", key=number.to_bytes(8))
            seconds.append(time.perf_counter() - begun)
            if number + 1 in counts:
                found[str(number + 1)] = round(1000 * statistics.median(seconds[-20:]), 1)
    return found


if __name__ == "__main__":
    parts = {f"{sigma:g}": part(sigma) for sigma in (1.5, 40.0, 1e6)}
    for sigma, took in parts.items():
        print(f"a million words, standard deviation {sigma}: {took['seconds']} s")
    print(json.dumps({"part": parts, "entry_milliseconds": entries((100, 1000))}))
