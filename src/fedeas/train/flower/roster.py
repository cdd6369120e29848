"""Who takes part: which node is which client, and with how many samples.

In a simulation all clients must be there. Deployed sites come and go: absent or invalid ones are
named and left out, and asked again without waiting for them.

A site says its number itself. The number then belongs to its node, and so to the key that the
SuperLink registered, even while the node is offline or the server is started again. Whoever says a
number that another node has gets one that nobody has: with as many nodes as sites, nobody can keep
anybody out.
"""

import logging
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from flwr.app import Message
from flwr.serverapp import Grid

from fedeas._internal.files import read_json, write_json
from fedeas.errors import FedeasError, InfeasibleError, InputError
from fedeas.train.flower import records
from fedeas.train.flower.client import HELLO
from fedeas.train.flower.deployment import MOST_SAMPLES, Deployment
from fedeas.train.flower.exchange import exchange, printable, reason, wait_for_nodes
from fedeas.train.methods import make_method
from fedeas.train.samples import Task
from fedeas.train.settings import Federated
from fedeas.train.tensors import Tensors, check_values

_LOG = logging.getLogger("flwr")  # Flower streams it to `flwr run --stream`


@dataclass(frozen=True)
class Node:
    """A client known to the server: its node, its number, its N_k."""

    node: int
    partition: int
    real: int


class Roster:
    """The clients of a federation that the server knows so far."""

    def __init__(
        self,
        grid: Grid,
        federated: Federated,
        task: Task,
        seed: int,
        deployment: Deployment | None,
        path: Path,
    ) -> None:
        self._grid, self._federated, self._task = grid, federated, task
        self._deployment, self._path = deployment, path
        self._method = make_method(federated.method)
        # One content for all: the engine hashes and stores it once.
        self._question = records.pack({}, {"seed": seed, "method": federated.method})
        self._asked: dict[str, tuple[int, float]] = {}  # messages to nodes, and when they expire
        self._refused: dict[int, str] = {}
        self._known: dict[int, Tensors] = {}
        self.nodes: dict[int, Node] = {}
        self.clients = 0
        # Nodes that said a number first, as JSON, so that a server that is started again knows.
        self._owners: dict[int, int] = {}
        if deployment is not None and path.exists():
            self._owners = {int(number): int(node) for number, node in read_json(path).items()}

    def gather(self) -> None:
        """Ask every node which client it is; node ids are random, partitions are not."""
        deployment, timeout = self._deployment, self._federated.timeout
        sites = 0 if deployment is None else deployment.sites
        ids = wait_for_nodes(self._grid, sites, timeout)
        self.clients = sites or len(ids)
        window = self._federated.max_in_flight
        self._enter(exchange(self._grid, map(self._hello, ids), window, timeout))
        # In a simulation nobody may be absent.
        least = 1.0 if deployment is None else self._federated.min_reply_fraction
        if len(self.nodes) < max(1, least * self.clients):
            answered = {met.node for met in self.nodes.values()} | self._refused.keys()
            raise self._missing(set(ids) - answered)

    def _missing(self, silent: Iterable[int]) -> InfeasibleError:
        """Say who is missing, why, and what to do about it."""
        absent = sorted(set(range(self.clients)) - set(self.nodes))
        whys = {**self._refused, **dict.fromkeys(silent, "no answer in time")}
        said = self._named(whys)
        if (unconnected := self.clients - len(self.nodes) - len(whys)) > 0:
            said.append(f"{unconnected} not connected: start them, or wait longer for them")
        if self._refused:
            said.append("run `fedeas check site.toml` where a site refuses")
        return InfeasibleError(
            f"clients {', '.join(map(str, absent))} are missing",
            got=f"{len(self.nodes)} of {self.clients}",
            fix="; ".join(said),
        )

    def _named(self, whys: dict[int, str]) -> list[str]:
        """Return which nodes cannot take part and why, by the names they were registered with."""
        names = {n.node_id: printable(n.name) for n in self._grid.get_nodes()} if whys else {}
        return [
            f"{names.get(node, '')}, node {node}: {why}".removeprefix(", ")
            for node, why in whys.items()
        ]

    def known(self) -> Sequence[Tensors]:
        """Return the clients' introductions, ordered by their numbers."""
        return [self._known[p] for p in sorted(self._known)]

    def split(self, cohort: Sequence[int]) -> tuple[list[int], list[str]]:
        """Return those of a cohort that can be asked now, and why the others cannot."""
        if self._deployment is None:
            return list(cohort), []
        online = set(self._grid.get_node_ids())
        self._greet(online)
        there = [p for p in cohort if p in self.nodes and self.nodes[p].node in online]
        absent = [f"client {p}: not there" for p in sorted(set(cohort) - set(there))]
        return there, absent + self._named({n: w for n, w in self._refused.items() if n in online})

    def _greet(self, online: Iterable[int]) -> None:
        """Ask new nodes; their answers are read next time."""
        now = time.monotonic()
        replies = self._grid.pull_messages(list(self._asked)) if self._asked else []
        asked = [(self._asked.pop(r.metadata.reply_to_message_id, None), r) for r in replies]
        self._enter((message[0], reply) for message, reply in asked if message is not None)
        self._asked = {name: own for name, own in self._asked.items() if own[1] > now}
        busy = {node for node, _ in self._asked.values()} | {n.node for n in self.nodes.values()}
        for node in sorted(set(online) - busy):
            for name in self._grid.push_messages([self._hello(node)]):
                self._asked[name] = (node, now + self._federated.timeout)

    def _hello(self, node: int) -> Message:
        return Message(self._question, node, HELLO, ttl=self._federated.timeout)

    def _enter(self, replies: Iterable[tuple[int, Message]]) -> None:
        """Read introductions and give numbers, whatever the order of the replies.

        Of two nodes with one number the one that had it before has it, or else the lower id.
        """
        entered: list[tuple[Node, Tensors]] = []
        for node, reply in replies:
            self._refused.pop(node, None)
            try:
                entered.append(self._read(node, reply))
            except InfeasibleError as wrong:
                self._refuse(node, wrong)
        entered.sort(key=lambda one: one[0].node)
        before = dict(self._owners)
        for met, _ in entered:
            self._owners.setdefault(met.partition, met.node)
        for met, known in entered:
            self._seat(met, known)
        if self._deployment is not None and self._owners != before:
            write_json(self._path, {str(number): node for number, node in self._owners.items()})

    def _refuse(self, node: int, wrong: InfeasibleError) -> None:
        if self._deployment is None:
            raise wrong
        self._refused[node] = str(wrong)

    def _read(self, node: int, reply: Message) -> tuple[Node, Tensors]:
        """Read a client's introduction; raises why it cannot take part."""
        if reply.has_error():
            raise InfeasibleError(reason(reply))
        who = "a client"
        try:
            partition = records.whole(reply.content, "partition")
            who = f"client {partition}"
            largest = MOST_SAMPLES if self._deployment is None else self._deployment.largest
            met = Node(node, partition, read_size(reply, largest))
            known = records.tensors(reply.content, "known")
            check_values(known)
            self._method.validate_client_init(known, self._task, met.real)
        except FedeasError as error:
            raise InfeasibleError(f"{who} cannot take part: {error}") from None
        except Exception as error:  # bytes from another party can raise anything
            raise InfeasibleError(f"{who} cannot take part: {type(error).__name__}") from None
        if partition >= self.clients:
            raise InfeasibleError(f"{who} is not one of the {self.clients}")
        return met, known

    def _seat(self, met: Node, known: Tensors) -> None:
        """Give a client the number that it says, or a free one if that is another node's."""
        number, owner = met.partition, self._owners[met.partition]
        if owner == met.node:
            # Who says a number comes before one who says another and has it so far.
            guest = self.nodes.get(number), self._known.get(number, {})
            self.nodes[number], self._known[number] = met, known
            if guest[0] is not None:
                self._seat(guest[0], guest[1])
            return
        free = [p for p in range(self.clients) if p not in self.nodes and p not in self._owners]
        if self._deployment is None or not free:
            wrong = InfeasibleError(
                "two nodes claim to be the same client",
                got=number,
                fix=f"correct partition-id at node {met.node} or node {owner}, which has it now; "
                f"if the site has a new key, remove {self._path}",
            )
            return self._refuse(met.node, wrong)
        _LOG.warning(
            "nodes %s and %s both say that they are client %s: node %s counts as client %s",
            owner, met.node, number, met.node, free[0],
        )  # fmt: skip
        self.nodes[free[0]] = replace(met, partition=free[0])
        self._known[free[0]] = known


def read_size(reply: Message, largest: int = MOST_SAMPLES) -> int:
    """Read a client's number of real samples N_k."""
    real = records.whole(reply.content, "num-examples")
    if not 0 < real <= largest:
        raise InputError("not a number of samples", got=real, allowed=f"1 to {largest}")
    return real


def ask_sizes(
    grid: Grid, nodes: Sequence[int], federated: Federated, seed: int, largest: int
) -> dict[int, int]:
    """Ask nodes how many samples they have; those that do not answer rightly are left out."""
    question = records.pack({}, {"seed": seed, "method": federated.method})
    messages = [Message(question, node, HELLO, ttl=federated.timeout) for node in nodes]
    sizes = {}
    for node, reply in exchange(grid, messages, federated.max_in_flight, federated.timeout):
        try:
            sizes[node] = read_size(reply, largest)
        except Exception:  # noqa: S112 - bytes from another party can raise anything
            continue
    return sizes
