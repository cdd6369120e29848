"""How long an entry in a site's ledger takes, by how many there are.

    python benchmarks/ledger.py [--entries 0 1000 100000]

The first entry after a ledger was changed by hand or by an earlier version reads every line; those
after it are what counts. Medians of 50 entries, in all and of the processor alone: the difference
is the disk, which syncs both files and their folder.
"""

import argparse
import hashlib
import statistics
import sys
import tempfile
import time
from pathlib import Path

from fedeas._internal.files import sealed, write_json
from fedeas.private.ledger import Ledger, LedgerEntry

MOST = 0.005  # seconds of the processor


def write_ledger(folder: Path, count: int) -> None:
    """Write a ledger with this many cheap entries."""
    folder.mkdir(mode=0o700)
    previous, lines = "0" * 64, []
    for number in range(count):
        key = hashlib.sha256(str(number).encode()).hexdigest()
        entry = LedgerEntry("2026-01-01T00:00:00+00:00", "beta", 1e-9, "", "1", key, 3.0, 1e-6)
        lines.append(sealed({**entry._asdict(), "number": number, "previous": previous}))
        previous = hashlib.sha256(lines[-1].rstrip("\n").encode()).hexdigest()
    (folder / "entries.jsonl").write_text("".join(lines))
    write_json(folder / "head.json", [count, previous])


def entry_seconds(ledger: Ledger, key: str) -> tuple[float, float]:
    """Return the seconds of an entry, in all and of the processor."""
    start, worked = time.perf_counter(), time.process_time()
    ledger.enter("beta", ledger.budget / 10_000, server="", run="1", key=key.encode())
    return time.perf_counter() - start, time.process_time() - worked


def main() -> int:
    """Print a line for every number of entries."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--entries", type=int, nargs="+", default=[0, 1000, 10_000, 100_000])
    slowest = 0.0
    for count in parser.parse_args().entries:
        with tempfile.TemporaryDirectory() as place:
            write_ledger(Path(place) / "ledger", count)
            ledger = Ledger.open(Path(place) / "ledger")
            first, _ = entry_seconds(ledger, "first")
            taken = [entry_seconds(ledger, f"new {number}") for number in range(50)]
            whole, worked = (statistics.median(column) for column in zip(*taken, strict=True))
            slowest = max(slowest, worked)
        print(
            f"{count:7,} entries: the first {first:.2f} s, then {1000 * whole:.1f} ms each, "
            f"{1000 * worked:.1f} ms of the processor",
            flush=True,
        )
    return int(slowest > MOST)


if __name__ == "__main__":
    sys.exit(main())
