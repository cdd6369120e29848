"""Many processes fill a cache that is not there yet, at the same moment; one line of JSON each.

python concurrent_fills.py FOLDER PROCESSES CLIENTS
"""

import hashlib
import json
import multiprocessing
import sys
from pathlib import Path

from fedeas.cache import Cache
from fedeas.cache.fill import client_samples
from helpers.noted_generators import Counting

WANTED = [5, 7, 3]


def fill_first(folder: Path, client: str, barrier) -> str:
    """Return the hash of a client's images."""
    cache = Cache(folder, Counting(), 3)
    barrier.wait()
    images, _ = client_samples(client, WANTED, Counting(), cache, 4)
    return hashlib.sha256(images.tobytes()).hexdigest()


def child(work, folder: Path, client: str, barrier, results) -> None:
    """Do the work and say how it ended."""
    try:
        results.put([client, "done", work(folder, client, barrier)])
    except BaseException as error:
        results.put([client, type(error).__name__, str(error)])


def main(folder: Path, processes: int, clients: int, work) -> None:
    """Start all at once, and print what they say."""
    context = multiprocessing.get_context("fork")
    barrier, results = context.Barrier(processes), context.Queue()
    started = [
        context.Process(
            target=child, args=(work, folder, str(i % clients), barrier, results), daemon=True
        )
        for i in range(processes)
    ]
    for process in started:
        process.start()
    for _ in started:
        sys.stdout.write(json.dumps(results.get(timeout=60)) + "\n")
    for process in started:
        process.join()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), fill_first)
