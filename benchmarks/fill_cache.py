"""What keeping samples costs: filling, starting on a full cache, reading, memory, disk.

    python benchmarks/fill_cache.py [--samples 200000] [--rounds 3] [--old SRC]

The generator costs next to nothing, so that what is left is the cache: seeds, batches, encoding,
checksums, writing. Every measurement is a process of its own. `--old` names the `src` folder of
another checkout, which is measured in the same run, alternately; figures are medians.

Reference: the same bytes written by pyarrow alone, and their sha256.
Target: at most 25 microseconds a sample of 3 kB, a start in under two seconds.
The last line is JSON; the exit code is 1 when a target is missed.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

SRC = Path(__file__).parents[1] / "src"
CLIENTS, CLASSES, SHAPE = 1000, 10, (32, 32, 3)
MEASURE = '''
import json, os, resource, sys, time
from pathlib import Path
import numpy as np
from fedeas import LabelCounts, Plan
from fedeas.cache import Cache
from fedeas.cache.fill import fill

step, folder, total, clients, classes = sys.argv[1], Path(sys.argv[2]), *map(int, sys.argv[3:6])
shape = tuple(map(int, sys.argv[6].split(",")))
block = np.random.default_rng(0).integers(0, 256, (4096, *shape), np.uint8)


class Cheap:
    fingerprint = "cheap-1"
    seconds = 0.0

    def sample(self, labels, seeds):
        begun = time.perf_counter()
        samples = block[: len(labels)].copy()
        samples[:, 0, 0, 0] = labels
        self.seconds += time.perf_counter() - begun
        return samples


def memory():
    """Bytes that are held now and cannot be given back."""
    line = next(l for l in open("/proc/self/status") if l.startswith("RssAnon"))
    return int(line.split()[1]) * 1024


samples = np.full((clients, classes), total // (clients * classes))
plan = Plan.of(LabelCounts(np.ones((clients, classes), int)), samples, "uniform")
generator = Cheap()
before = memory()
found = {}
begun = time.perf_counter()
cache = Cache(folder, generator, classes)
if step == "fill":
    most = [0]
    watch = lambda done, _: most.__setitem__(0, max(most[0], memory())) if done % 4096 == 0 else 0
    fill(plan, generator, cache, 64, watch)
    seconds = time.perf_counter() - begun - generator.seconds
    found = {"microseconds_a_sample": 1e6 * seconds / total, "megabytes": (most[0] - before) / 1e6,
             "disk_bytes_a_sample": sum(p.stat().st_size for p in folder.rglob("*") if p.is_file())
             / total}
elif step == "start":
    fill(plan, generator, cache, 64)
    seconds = time.perf_counter() - begun
    found = {"start_seconds": seconds, "start_megabytes": (memory() - before) / 1e6}
else:
    names = [plan.client_names[k] for k in range(0, clients, clients // 20)]
    seconds = []
    for name in names:
        begun = time.perf_counter()
        cache.samples(name, samples[0].tolist())
        seconds.append(time.perf_counter() - begun)
    found = {"read_a_client_milliseconds": 1e3 * sorted(seconds)[len(seconds) // 2],
             "read_the_first_milliseconds": 1e3 * seconds[0]}
print(json.dumps(found))
'''
REFERENCE = """
import hashlib, io, json, sys, time
from pathlib import Path
import numpy as np, pyarrow as pa, pyarrow.parquet as pq

rows = np.random.default_rng(0).integers(0, 256, (20_000, 3072), np.uint8)
ends = np.arange(20_001, dtype=np.int32) * 3072
buffers = [None, pa.py_buffer(ends), pa.py_buffer(rows.reshape(-1))]
table = pa.table({"sample": pa.Array.from_buffers(pa.binary(), len(rows), buffers)})
begun = time.perf_counter()
pq.write_table(table, Path(sys.argv[1]) / "reference.parquet", compression="none",
               write_page_checksum=True, use_dictionary=False)
written = time.perf_counter()
hashlib.sha256(rows.data).hexdigest()
done = time.perf_counter()
took = {"parquet": written - begun, "sha256": done - written}
print(json.dumps({name: 1e6 * seconds / len(rows) for name, seconds in took.items()}))
"""


def run(code: str, *arguments: object, src: Path = SRC) -> dict[str, float]:
    """Run code in a process of its own, with the package of a checkout; return what it prints."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code, *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": str(src)}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def measure(src: Path, samples: int, where: Path) -> dict[str, float]:
    """Fill a cache, start on it again, read from it."""
    with tempfile.TemporaryDirectory(dir=where) as folder:
        given = samples, CLIENTS, CLASSES, ",".join(map(str, SHAPE))
        found: dict[str, float] = {}
        for step in ("fill", "start", "read"):
            found |= run(MEASURE, step, folder, *given, src=src)
    return found


def main() -> int:
    """Measure, print, and say whether the targets are met."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--old", type=Path, help="the src folder of another checkout")
    parser.add_argument("--where", type=Path, help="a folder on the disk to measure")
    options = parser.parse_args()
    contestants = {"now": SRC} | ({"old": options.old.resolve()} if options.old else {})
    rounds: dict[str, list[dict[str, float]]] = {name: [] for name in contestants}
    reference: list[dict[str, float]] = []
    for number in range(options.rounds):
        for name, src in contestants.items():
            rounds[name].append(measure(src, options.samples, options.where))
            print(f"round {number + 1}, {name}: {json.dumps(rounds[name][-1])}", flush=True)
        with tempfile.TemporaryDirectory(dir=options.where) as folder:
            reference.append(run(REFERENCE, folder))

    def median(rows: list[dict[str, float]]) -> dict[str, float]:
        return {key: round(statistics.median(row[key] for row in rows), 3) for key in rows[0]}

    found: dict[str, object] = {name: median(own) for name, own in rounds.items()}
    now = median(rounds["now"])
    met = now["microseconds_a_sample"] <= 25 and now["start_seconds"] < 2
    found |= {"reference_microseconds": median(reference), "samples": options.samples,
              "targets_met": met}  # fmt: skip
    print(json.dumps(found))
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
