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

from fedeas.errors import FedeasError, InfeasibleError, InputError
from fedeas.files import read_json, write_json
from fedeas.flower import records
from fedeas.flower.client import HELLO
from fedeas.flower.exchange import exchange, node_names, reason, wait_for_nodes
from fedeas.methods.registry import make_method
from fedeas.settings.deployment import MOST_SAMPLES, Deployment
from fedeas.settings.training import Federated
from fedeas.tensors import Tensors, check_values
from fedeas.training.task import Task

_LOG = logging.getLogger("flwr")  # Flower streams it to `flwr run --stream`


@dataclass(frozen=True)
class Node:
    """A client known to the server: its node, its number, its N_k."""

    node: int
    partition: int
    real: int


class Members:
    """The clients of a federation that the server knows so far."""

    def __init__(
        self,
        grid: Grid,
        federated: Federated,
        task: Task,
        seed: int,
        deployment: Deployment | None,
        path: Path | None = None,
    ) -> None:
        self._grid, self._federated, self._task = grid, federated, task
        self._deployment = deployment
        self._method = make_method(federated.method)
        # One content for all: the engine hashes and stores it once.
        self._question = records.pack({}, {"seed": seed, "method": federated.method})
        self._asked: dict[str, tuple[int, float]] = {}  # messages to nodes, and when they expire
        self._refused: dict[int, str] = {}
        self._guests: set[int] = set()  # numbers of nodes that said another one
        self._known: dict[int, Tensors] = {}
        self.nodes: dict[int, Node] = {}
        self.clients = 0
        # Whose number is whose, as JSON, so that a server that is started again knows.
        self._path = None if deployment is None else path
        self._owners: dict[int, int] = {}
        if self._path is not None and self._path.exists():
            owners = read_json(self._path)
            self._owners = {int(number): int(node) for number, node in owners.items()}

    def gather(self) -> None:
        """Ask every node which client it is; node ids are random, partitions are not."""
        sites = 0 if self._deployment is None else self._deployment.sites
        ids = wait_for_nodes(self._grid, sites, self._federated.timeout)
        self.clients = len(ids) if self._deployment is None else self._deployment.sites
        entered: list[tuple[Node, Tensors]] = []
        silent = set(ids)
        for node, reply in exchange(
            self._grid, map(self._hello, ids), self._federated.window, self._federated.timeout
        ):
            silent.discard(node)
            try:
                entered.append(self._read(node, reply))
            except InfeasibleError as wrong:
                if self._deployment is None:
                    raise
                self._refused[node] = str(wrong)
        self._seat_all(entered)
        # In a simulation nobody may be absent.
        least = self.clients * (1.0 if self._deployment is None else self._federated.minimum)
        if len(self.nodes) < max(1, least):
            raise self._missing(silent)

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
        names = node_names(self._grid) if whys else {}
        return [f"{names.get(node, f'node {node}')}: {why}" for node, why in whys.items()]

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
        for reply in self._grid.pull_messages(list(self._asked)) if self._asked else []:
            node, _ = self._asked.pop(reply.metadata.reply_to_message_id, (None, 0.0))
            if node is None:
                continue
            self._refused.pop(node, None)
            try:
                self._seat(*self._read(node, reply))
            except InfeasibleError as wrong:
                self._refused[node] = str(wrong)
        self._save_owners()
        self._asked = {name: own for name, own in self._asked.items() if own[1] > now}
        busy = {node for node, _ in self._asked.values()} | {n.node for n in self.nodes.values()}
        for node in sorted(set(online) - busy):
            for name in self._grid.push_messages([self._hello(node)]):
                self._asked[name] = (node, now + self._federated.timeout)

    def _hello(self, node: int) -> Message:
        return Message(self._question, node, HELLO, ttl=self._federated.timeout)

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
            self._method.check_known(known, self._task, met.real)
        except FedeasError as error:
            raise InfeasibleError(f"{who} cannot take part: {error}") from None
        except Exception as error:  # bytes from another party can raise anything
            raise InfeasibleError(f"{who} cannot take part: {type(error).__name__}") from None
        if partition >= self.clients:
            raise InfeasibleError(f"{who} is not one of the {self.clients}")
        return met, known

    def _seat_all(self, entered: Iterable[tuple[Node, Tensors]]) -> None:
        """Give numbers to those who were there at the start, whatever the order of their replies.

        Of two nodes with one number the one that had it before has it, or else the lower id.
        """
        first = dict(self._owners)
        ordered = sorted(entered, key=lambda one: one[0].node)
        for met, _ in ordered:
            first.setdefault(met.partition, met.node)
        for met, known in sorted(ordered, key=lambda one: first[one[0].partition] != one[0].node):
            try:
                self._seat(met, known)
            except InfeasibleError as wrong:
                if self._deployment is None:
                    raise
                self._refused[met.node] = str(wrong)
        self._save_owners()

    def _save_owners(self) -> None:
        """Write down the numbers that nodes said themselves, if there are new ones."""
        said = {p: met.node for p, met in self.nodes.items() if p not in self._guests}
        owners = said | self._owners
        if self._path is not None and owners != self._owners:
            self._owners = owners
            write_json(self._path, {str(number): node for number, node in owners.items()})

    def _seat(self, met: Node, known: Tensors) -> None:
        """Give a client the number that it says, or a free one if that is another node's."""
        number, guest = met.partition, None
        if number in self._guests:  # who says a number comes before one who says another
            self._guests.discard(number)
            guest = self.nodes.pop(number), self._known.pop(number)
        if number in self.nodes or self._owners.get(number, met.node) != met.node:
            self._seat_elsewhere(met, known)
        else:
            self.nodes[number], self._known[number] = met, known
        if guest is not None:
            try:
                self._seat_elsewhere(*guest)
            except InfeasibleError as wrong:
                self._refused[guest[0].node] = str(wrong)

    def _seat_elsewhere(self, met: Node, known: Tensors) -> None:
        """Give a client a number that nobody has, as another node has its own."""
        number = met.partition
        owner = self.nodes[number].node if number in self.nodes else self._owners[number]
        free = [p for p in range(self.clients) if p not in self.nodes and p not in self._owners]
        if self._deployment is None or not free:
            raise InfeasibleError(
                "two nodes claim to be the same client",
                got=number,
                fix=f"correct partition-id at node {met.node} or node {owner}, which has it now; "
                f"if the site has a new key, remove {self._path or 'the old node'}",
            )
        _LOG.warning(
            "nodes %s and %s both say that they are client %s: node %s counts as client %s",
            owner, met.node, number, met.node, free[0],
        )  # fmt: skip
        self._guests.add(free[0])
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
    for node, reply in exchange(grid, messages, federated.window, federated.timeout):
        try:
            sizes[node] = read_size(reply, largest)
        except Exception:  # noqa: S112 - bytes from another party can raise anything
            continue
    return sizes
