"""How long a secure sum takes, and how much is sent: from 10 to 1,000 clients in one process.

    python benchmarks/secure_sum.py [--clients 10 100 1000] [--words 10000]
                                    [--long 20 1000000] [--drop 0.1] [--repeats 1]

Clients' work is done one after the other here; in a federation they work at the same time. One in
ten drops out after sharing its keys. `--long` is another sum: clients, and words of each. The last
line is JSON: for every sum, processor seconds and bytes to and from the server per client, the
server's seconds, and how much both grow per client from the second number of clients to the last
(wanted from 100 to 1,000: at most 3). The exit code is 1 if a sum is wrong.
"""

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Iterator

import numpy as np

from fedeas_private.secure_sum.client import Client
from fedeas_private.secure_sum.identity import Identity, Members
from fedeas_private.secure_sum.keys import identity_of, new_identity
from fedeas_private.secure_sum.memory import StageRecord
from fedeas_private.secure_sum.messages import STAGES
from fedeas_private.secure_sum.server import Server


class InMemory:
    """A client's record of a sum."""

    def __init__(self) -> None:
        self._said: dict[str, StageRecord] = {}

    def recall(self, stage: str) -> StageRecord | None:
        """Return the record of a stage."""
        return self._said.get(stage)

    def set_frozen(self, stage: str, said: StageRecord) -> None:
        """Keep the first record of a stage."""
        self._said.setdefault(stage, said)

    def forget(self, stage: str) -> None:
        """Keep only the fact that a stage took place."""
        self._said[stage] = StageRecord(self._said[stage].asked, b"", b"")


class Sum:
    """One sum among so many clients of so many words."""

    def __init__(self, clients: int, words: int, drop: float) -> None:
        drawn = [new_identity() for _ in range(clients)]
        members = Members.of({f"site-{k}": identity_of(key) for k, key in enumerate(drawn)})
        who = [Identity.of(key, members) for key in drawn]
        for identity in who:  # once a federation, not once a sum
            members.graph.holders(identity.place)
        rng = np.random.default_rng(0)
        self.words = rng.integers(0, 2**64, (clients, words), dtype=np.uint64)
        self._clients = [Client("a sum", identity, InMemory()) for identity in who]
        self._server = Server("a sum", words, members)
        self._gone = set(range(round(drop * clients)))
        self.seconds, self.sent = Counter[str](), Counter[str]()

    def run(self) -> dict[str, object]:
        """Run it; return what it took per client."""
        server = self._server
        steps = (server.roster, server.deliver, server.survivors, server.agreed)
        requests = dict.fromkeys(range(len(self._clients)), b"")
        begun = time.process_time()
        for stage, step in zip(STAGES, steps, strict=False):
            requests = step(self._answers(stage, requests))
        total, nodes = server.total(self._answers(STAGES[-1], requests))
        whole = time.process_time() - begun
        right = bool((total == self.words[nodes].sum(axis=0, dtype=np.uint64)).all())
        n, worked = len(self._clients), sum(self.seconds.values())
        return {
            "clients": n,
            "words": self.words.shape[1],
            "right": right,
            "in_the_sum": len(nodes),
            "seconds_per_client": worked / n,
            "up_per_client": self.sent["up"] / n,
            "down_per_client": self.sent["down"] / n,
            "server_seconds": whole - worked,
            "by_stage": {stage: self.seconds[stage] / n for stage in STAGES},
        }

    def _answers(self, stage: str, requests: dict[int, bytes]) -> Iterator[tuple[int, bytes]]:
        for k, request in requests.items():
            if k in self._gone and stage not in STAGES[:2]:
                continue
            client, begun = self._clients[k], time.process_time()
            if stage == STAGES[0]:
                reply = client.keys(lambda row=k: self.words[row])
            else:
                reply = getattr(client, stage)(request)
            self.seconds[stage] += time.process_time() - begun
            self.sent["up"] += len(reply)
            self.sent["down"] += len(request)
            yield k, reply


def growth(found: list[dict[str, object]]) -> dict[str, float]:
    """Return by how much a client's work grows from the second sum to the last."""
    first, last = found[max(0, len(found) - 2)], found[-1]
    both = ("up_per_client", "down_per_client")
    return {
        "from": first["clients"], "to": last["clients"],
        "seconds": last["seconds_per_client"] / first["seconds_per_client"],
        "bytes": sum(last[k] for k in both) / sum(first[k] for k in both),
    }  # fmt: skip


def main() -> int:
    """Measure, print a line per sum, and all of it as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", nargs="+", type=int, default=[10, 100, 1000])
    parser.add_argument("--words", type=int, default=10_000)
    parser.add_argument("--long", nargs=2, type=int, default=[20, 1_000_000])
    parser.add_argument("--drop", type=float, default=0.1)
    parser.add_argument("--repeats", type=int, default=1)
    given = parser.parse_args()

    def measured(clients: int, words: int) -> dict[str, object]:
        runs = [Sum(clients, words, given.drop).run() for _ in range(given.repeats)]
        best = min(runs, key=lambda run: run["seconds_per_client"])
        print(
            f"{clients:5} clients x {words:,} words: {1000 * best['seconds_per_client']:.0f} ms, "
            f"{best['up_per_client'] / 1000:.0f} kB up, {best['down_per_client'] / 1000:.0f} kB "
            f"down per client; server {best['server_seconds']:.1f} s",
            flush=True,
        )
        return {**best, "right": all(run["right"] for run in runs)}

    found = [measured(n, given.words) for n in given.clients]
    long = measured(*given.long)
    print(json.dumps({"sums": found, "long": long, "growth": growth(found)}))
    return 0 if all(run["right"] for run in [*found, long]) else 1


if __name__ == "__main__":
    sys.exit(main())
