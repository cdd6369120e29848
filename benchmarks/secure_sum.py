"""How long a beta without histograms takes: 3, 10 and 100 clients in one process.

    python benchmarks/secure_sum.py

All clients' work is done one after the other here; in a federation they work at the same time. The
last line is JSON: seconds by the clock and of the processor, and per client kilobytes to and from
the server.
"""

import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from fedeas.flower.grids import InlineGrid
from fedeas.flower.negotiate import Holding, answer_negotiation, negotiate_beta

SIZES, REPEATS = (3, 10, 100), 3


class Weighing(InlineGrid):
    """Adds up the bytes that go both ways."""

    down = up = 0

    def _reply(self, message: Message) -> Message:
        reply = super()._reply(message)
        self.down += _bytes(message)
        self.up += _bytes(reply)
        return reply


def _bytes(message: Message) -> int:
    parts = (part for record in message.content.values() for part in record.values())
    return sum(len(part) for part in parts if isinstance(part, bytes | str))


def measure(clients: int) -> tuple[float, float, Weighing]:
    """Negotiate once among so many clients of drawn counts."""
    rng = np.random.default_rng(0)
    n = [rng.multinomial(2000, rng.dirichlet([0.1] * 10)) for _ in range(clients)]
    with tempfile.TemporaryDirectory() as place:

        def hold(context: Context) -> Holding:
            number = int(context.node_config["partition-id"])
            return Holding(n[number], Path(place) / str(number))

        app = ClientApp()
        answer_negotiation(app, hold)
        grid = Weighing(app, clients)
        begun, worked = time.perf_counter(), time.process_time()
        negotiate_beta(grid, grid.get_node_ids(), classes=10)
        return time.perf_counter() - begun, time.process_time() - worked, grid


def main() -> int:
    """Measure and print."""
    found: dict[str, float] = {}
    for clients in SIZES:
        runs = [measure(clients) for _ in range(REPEATS)]
        clock, processor, grids = zip(*runs, strict=True)
        grid = grids[0]
        found[f"seconds_{clients}"] = round(statistics.median(clock), 3)
        found[f"processor_{clients}"] = round(statistics.median(processor), 3)
        found[f"kilobytes_up_{clients}"] = round(grid.up / clients / 1e3, 1)
        found[f"kilobytes_down_{clients}"] = round(grid.down / clients / 1e3, 1)
        print(f"{clients} clients: {found[f'seconds_{clients}']} s", flush=True)
    found["load"] = round(os.getloadavg()[0], 1)
    print(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
