"""Members of a federation, and secure sums among them, for tests: stage by stage, in memory."""

import os
from contextlib import nullcontext

import numpy as np

from fedeas.private.secure_sum.client import Client
from fedeas.private.secure_sum.identity import Identity, Members
from fedeas.private.secure_sum.keys import identity_of, new_identity
from fedeas.private.secure_sum.memory import Memory, StageRecord
from fedeas.private.secure_sum.messages import (
    AGREEMENT,
    KEY,
    STAGES,
    TAG,
    RefusedError,
    marks,
    pieces,
)
from fedeas.private.secure_sum.pairs import PairKeys
from fedeas.private.secure_sum.server import Run, Server

ALL_STAGES = (*AGREEMENT, *STAGES)


class Held:
    """A memory that lasts as long as the test."""

    def __init__(self) -> None:
        self.said: dict[str, StageRecord] = {}

    def has(self, stage):
        return stage in self.said

    def recall(self, stage):
        return self.said.get(stage)

    def keep(self, stage, said):
        self.said.setdefault(stage, said)

    def replace(self, stage, said):
        self.said[stage] = said

    def forget(self, stage):
        if stage in self.said:
            self.said[stage] = StageRecord(self.said[stage].asked, b"", b"")

    def locked(self):
        return nullcontext()


def identities(n: int, colluding: int = 1) -> list[Identity]:
    """Draw n members, by their place."""
    drawn = [new_identity() for _ in range(n)]
    members = Members.of({f"site-{k}": identity_of(p) for k, p in enumerate(drawn)}, colluding)
    return sorted((Identity.of(p, members) for p in drawn), key=lambda i: i.place)


def give_keys(name: str, who: Identity, memory: Memory) -> PairKeys:
    """Have a member keys of a run with all others, who do not have them."""
    pairs = PairKeys(name, who, memory)
    pairs.keys()
    drawn = os.urandom(KEY * len(who.members))
    met = memory.recall("run")._replace(secret=bytes(KEY + 9) + drawn)
    memory.replace("run", met)
    return pairs


class Cohort:
    """Clients and a server; the node of the member at place k is 10 + k.

    `change` stands for what may happen to a reply. None is no reply. `after` is the cohort of an
    earlier sum of the same run: its keys are taken.
    """

    def __init__(self, vectors, session="a sum", change=None, who=None, after=None) -> None:
        self.vectors = {10 + k: vector for k, vector in enumerate(vectors)}
        self.change = change or (lambda stage, node, reply: reply)
        self.refused: dict[int, str] = {}
        self.session, self.after = session, after
        self.identities = who or (after.identities if after else identities(len(vectors)))
        self.members = self.identities[0].members
        self.run_server = after.run_server if after else Run(self.members)
        self.run_memories = after.run_memories if after else {node: Held() for node in self.vectors}
        self.pairs = {
            node: PairKeys(self.run_server.name, self.identities[node - 10], memory)
            for node, memory in self.run_memories.items()
        }
        self.memories = {node: Held() for node in self.vectors}
        self.requests = dict.fromkeys(self.vectors, b"")
        if after:
            self.begin()

    def begin(self):
        """Begin the sum; the keys of the run are there."""
        self.number = self.run_server.next_number()
        self.clients = {
            node: Client(self.session, self.number, self.pairs[node], memory)
            for node, memory in self.memories.items()
        }
        length = len(next(iter(self.vectors.values())))
        self.server = Server(self.session, self.number, length, self.run_server)
        self.requests = dict.fromkeys(self.server.nodes.values(), b"")

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
        if stage == "keys":
            return self.pairs[node].keys()
        if stage == "meet":
            return self.pairs[node].meet(request)
        client = self.clients[node]
        if stage == "shares":
            return client.shares(lambda: self.vectors[node])
        return getattr(client, stage)(request)

    def reach(self, stage):
        """Go on until the requests of a stage are there."""
        for before in ALL_STAGES[2 if self.after else 0 : ALL_STAGES.index(stage)]:
            self.step(before)
        return self

    def reach_from(self, stage):
        """Go on from a stage to the sum."""
        for before in STAGES[STAGES.index(stage) : -1]:
            self.step(before)
        return self.server.total(self.ask(STAGES[-1]).items())

    def step(self, stage):
        """Have a stage answered, and get the requests of the next one."""
        replies = self.ask(stage).items()
        if stage == "keys":
            self.requests = self.run_server.roster(replies)
        elif stage == "meet":
            self.run_server.met(replies)
            self.begin()
        else:
            steps = {"shares": self.server.deliver, "masked": self.server.survivors}
            self.requests = steps.get(stage, self.server.agreed)(replies)

    def survivors(self, k, places):
        """Return what the member at a place is sent when these are said to have survived."""
        near = (p for p in self.members.graph.neighbours(k) if p in set(places))
        return marks(places, len(self.members)) + b"".join(self.told(p, k) for p in near)

    def told(self, sender, receiver):
        """Return what one member told another of who shared."""
        record = self.memories[10 + sender].recall("masked")
        shared = record.secret[: len(self.members)]
        near = [p for p in self.members.graph.neighbours(sender) if shared[p]]
        tags = record.reply[-TAG * len(near) :]
        return dict(zip(near, pieces(tags, TAG), strict=True)).get(receiver, bytes(TAG))

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
        None
        if any(node - 10 in gone.get(s, ()) for s in ALL_STAGES[: ALL_STAGES.index(stage) + 1])
        else reply
    )  # fmt: skip
