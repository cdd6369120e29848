"""Members of a federation, and secure sums among them, for tests: stage by stage, in memory."""

import numpy as np

from fedeas_private.secure_sum.client import Client
from fedeas_private.secure_sum.identity import Identity, Members
from fedeas_private.secure_sum.keys import identity_of, new_identity
from fedeas_private.secure_sum.memory import StageRecord
from fedeas_private.secure_sum.messages import SIGNATURE, STAGES, RefusedError, marks
from fedeas_private.secure_sum.server import Server


class Held:
    """A memory that lasts as long as the test."""

    def __init__(self) -> None:
        self.said: dict[str, StageRecord] = {}

    def recall(self, stage):
        return self.said.get(stage)

    def keep(self, stage, said):
        self.said.setdefault(stage, said)

    def forget(self, stage):
        if stage in self.said:
            self.said[stage] = StageRecord(self.said[stage].asked, b"", b"")


def identities(n: int, colluding: int = 1) -> list[Identity]:
    """Draw n members, by their place."""
    drawn = [new_identity() for _ in range(n)]
    members = Members.of({f"site-{k}": identity_of(p) for k, p in enumerate(drawn)}, colluding)
    return sorted((Identity.of(p, members) for p in drawn), key=lambda i: i.place)


class Cohort:
    """Clients and a server; the node of the member at place k is 10 + k.

    `change` stands for what may happen to a reply. None is no reply.
    """

    def __init__(self, vectors, session="a sum", change=None, who=None) -> None:
        self.vectors = {10 + k: vector for k, vector in enumerate(vectors)}
        self.identities = who or identities(len(vectors))
        self.members = self.identities[0].members
        self.memories = {node: Held() for node in self.vectors}
        self.clients = {
            node: Client(session, self.identities[node - 10], memory)
            for node, memory in self.memories.items()
        }
        self.server = Server(session, len(vectors[0]), self.members)
        self.change = change or (lambda stage, node, reply: reply)
        self.requests = dict.fromkeys(self.vectors, b"")
        self.refused: dict[int, str] = {}

    def ask(self, stage):
        """Have every client answer a stage."""
        found = {}
        for node, request in self.requests.items():
            try:
                reply = self.answer(stage, node, request)
            except RefusedError as error:
                self.refused[node] = f"{stage}: {error}"
                continue
            reply = self.change(stage, node, reply)
            if reply is not None:
                found[node] = reply
        return found

    def answer(self, stage, node, request):
        client = self.clients[node]
        if stage == "keys":
            return client.keys(lambda: self.vectors[node])
        return getattr(client, stage)(request)

    def reach(self, stage):
        """Go on until the requests of a stage are there."""
        server = self.server
        steps = (server.roster, server.deliver, server.survivors, server.agreed)
        for before, step in zip(STAGES[: STAGES.index(stage)], steps, strict=False):
            self.requests = step(self.ask(before).items())
        return self

    def survivors(self, k, places):
        """Return what the member at a place is sent when these are said to have survived."""
        near = (p for p in self.members.graph.neighbours(k) if p in set(places))
        told = (self.memories[10 + p].recall("masked").reply[-SIGNATURE:] for p in near)
        return marks(places, len(self.members)) + b"".join(told)

    def run(self):
        self.reach(STAGES[-1])
        return self.server.total(self.ask(STAGES[-1]).items())

    def plain(self, nodes):
        with np.errstate(over="ignore"):
            return np.sum([self.vectors[node] for node in nodes], axis=0, dtype=np.uint64)


def vectors_of(clients, seed=0, length=5):
    return np.random.default_rng(seed).integers(0, 2**64, (clients, length), dtype=np.uint64)


def dropping(gone):
    """Clients that are silent from a stage on, by place."""
    return lambda stage, node, reply: (
        None if any(node - 10 in gone.get(s, ()) for s in STAGES[: STAGES.index(stage) + 1])
        else reply
    )  # fmt: skip
