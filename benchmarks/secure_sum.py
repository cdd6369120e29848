"""How long secure sums take, and how much is sent: from 10 to 1,000 clients in one process.

    python benchmarks/secure_sum.py [--clients 10 100 1000] [--words 10000] [--sums 2]
                                    [--long 20 1000000] [--drop 0.1]

The sums of a run share their keys, so what is done once is told apart; of many clients the first
fifty do it, and the others are given keys. Clients' work is done one after the other here; in a
federation they work at the same time. One in ten drops out of every sum after sharing its keys.
`--long` is another run: clients, and words of each. The last line is JSON: for every run, processor
seconds and bytes to and from the server per client, the server's seconds, and how much a client's
grow from the second number of clients to the last (wanted from 100 to 1,000: at most 3). The exit
code is 1 if a sum is wrong.
"""

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import nullcontext

import numpy as np

from fedeas.private.secure_sum.client import Client
from fedeas.private.secure_sum.identity import Identity, Members
from fedeas.private.secure_sum.keys import identity_of, new_identity
from fedeas.private.secure_sum.memory import StageRecord
from fedeas.private.secure_sum.messages import AGREEMENT, STAGES, digest
from fedeas.private.secure_sum.pairs import PairKeys
from fedeas.private.secure_sum.server import Run, Server

MEETING = 50  # clients that agree on keys, at most


class InMemory:
    """A client's record of a run or a sum."""

    def __init__(self) -> None:
        self._said: dict[str, StageRecord] = {}

    def has(self, stage: str) -> bool:
        """Return whether there is a record of a stage."""
        return stage in self._said

    def recall(self, stage: str) -> StageRecord | None:
        """Return the record of a stage."""
        return self._said.get(stage)

    def keep(self, stage: str, said: StageRecord) -> None:
        """Keep the first record of a stage."""
        self._said.setdefault(stage, said)

    def replace(self, stage: str, said: StageRecord) -> None:
        """Keep another record of a stage."""
        self._said[stage] = said

    def forget(self, stage: str) -> None:
        """Keep only the fact that a stage took place."""
        self._said[stage] = StageRecord(self._said[stage].asked, b"", b"")

    def locked(self) -> nullcontext[None]:
        """There is one process."""
        return nullcontext()


class GivenKeys(PairKeys):
    """Keys that are not agreed on: the same for both of a pair."""

    def give(self) -> None:
        """Take keys that everybody can compute."""
        own, n = self._at, len(self._members)
        keys = (digest(repr(sorted((own, k))).encode()) for k in range(n))
        record = StageRecord(self.name, bytes(32), bytes(41) + b"".join(keys))
        self._memory.replace("run", record)


class Federation:
    """Clients of so many words that agree on keys, and then add up."""

    def __init__(self, clients: int, words: int, drop: float) -> None:
        drawn = [new_identity() for _ in range(clients)]
        members = Members.of({f"site-{k}": identity_of(key) for k, key in enumerate(drawn)})
        who = [Identity.of(key, members) for key in drawn]
        for identity in who:  # once a federation, not once a sum
            members.graph.holders(identity.place)
        rng = np.random.default_rng(0)
        self.words = rng.integers(0, 2**64, (clients, words), dtype=np.uint64)
        self._run, self._clients = Run(members), dict[int, Client]()
        self._pairs = [GivenKeys(self._run.name, identity, InMemory()) for identity in who]
        self._gone = set(range(round(drop * clients)))
        self.seconds, self.sent = Counter[str](), Counter[str]()

    def agree(self) -> dict[str, object]:
        """Agree on the keys of the run; return what it took per client."""
        begun, n = time.process_time(), len(self._pairs)
        requests = dict.fromkeys(range(n), b"")
        requests = self._run.roster(self._answers("keys", requests))
        first = {k: requests[k] for k in list(requests)[:MEETING]}
        replies = dict(self._answers("meet", first))
        self._run.met(dict.fromkeys(requests, next(iter(replies.values()))).items())
        self.seconds["meet"] *= n / len(first)
        self.sent["down"] = self.sent["down"] * n // len(first)
        taken = self._taken(begun, AGREEMENT)
        taken["server_seconds"] += taken["by_stage"]["meet"] * (n - len(first))
        for pairs in self._pairs:
            pairs.give()
        return taken

    def add_up(self) -> dict[str, object]:
        """Take a sum; return what it took per client."""
        begun, number = time.process_time(), self._run.next_number()
        self._clients = {
            k: Client("a sum", number, pairs, InMemory()) for k, pairs in enumerate(self._pairs)
        }
        server = Server("a sum", number, self.words.shape[1], self._run)
        requests = dict.fromkeys(range(len(self._pairs)), b"")
        steps = (server.deliver, server.survivors, server.agreed)
        for stage, step in zip(STAGES[:-1], steps, strict=True):
            requests = step(self._answers(stage, requests))
        total, nodes = server.total(self._answers(STAGES[-1], requests))
        right = bool((total == self.words[nodes].sum(axis=0, dtype=np.uint64)).all())
        return {"right": right, "in_the_sum": len(nodes), **self._taken(begun, STAGES)}

    def _taken(self, begun: float, stages: tuple[str, ...]) -> dict[str, object]:
        """Return what was counted since the last time."""
        whole, worked, n = time.process_time() - begun, self.seconds.total(), len(self._pairs)
        taken = {
            "seconds_per_client": worked / n,
            "up_per_client": self.sent["up"] / n,
            "down_per_client": self.sent["down"] / n,
            "server_seconds": whole - worked,
            "by_stage": {stage: self.seconds[stage] / n for stage in stages},
        }
        self.seconds.clear()
        self.sent.clear()
        return taken

    def _answers(self, stage: str, requests: dict[int, bytes]) -> Iterator[tuple[int, bytes]]:
        for k, request in requests.items():
            if k in self._gone and stage in STAGES[1:]:
                continue
            begun = time.process_time()
            match stage:
                case "keys":
                    reply = self._pairs[k].keys()
                case "meet":
                    reply = self._pairs[k].meet(request)
                case "shares":
                    reply = self._clients[k].shares(lambda row=k: self.words[row])
                case _:
                    reply = getattr(self._clients[k], stage)(request)
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
    parser.add_argument("--sums", type=int, default=2)
    given = parser.parse_args()

    def measured(clients: int, words: int) -> dict[str, object]:
        federation = Federation(clients, words, given.drop)
        agreement = federation.agree()
        sums = [federation.add_up() for _ in range(given.sums)]
        best = min(sums, key=lambda one: one["seconds_per_client"])
        for name, one in (("once", agreement), ("a sum", best)):
            print(
                f"{clients:5} clients x {words:,} words, {name}: "
                f"{1000 * one['seconds_per_client']:.0f} ms, {one['up_per_client'] / 1000:.0f} kB "
                f"up, {one['down_per_client'] / 1000:.0f} kB down per client; "
                f"server {one['server_seconds']:.1f} s",
                flush=True,
            )
        right = all(one["right"] for one in sums)
        return {"clients": clients, "words": words, **best, "right": right, "once": agreement}

    found = [measured(n, given.words) for n in given.clients]
    long = measured(*given.long)
    print(json.dumps({"sums": found, "long": long, "growth": growth(found)}))
    return 0 if all(run["right"] for run in [*found, long]) else 1


if __name__ == "__main__":
    sys.exit(main())
