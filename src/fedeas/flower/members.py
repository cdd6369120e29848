"""Who takes part: which node is which client, and with how many samples.

In a simulation all clients must be there. Deployed sites come and go: absent or invalid ones are
named and left out, and asked again without waiting for them.
"""

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from flwr.app import Message
from flwr.serverapp import Grid

from fedeas.errors import FedeasError, InfeasibleError, InputError
from fedeas.flower import records
from fedeas.flower.client import HELLO
from fedeas.flower.exchange import exchange, reason, wait_for_nodes
from fedeas.methods.registry import make_method
from fedeas.settings.deployment import MOST_SAMPLES, Deployment
from fedeas.settings.training import Federated
from fedeas.tensors import Tensors, check_values
from fedeas.training.task import Task


@dataclass(frozen=True)
class Node:
    """A client known to the server: its node, its number, its N_k."""

    node: int
    partition: int
    real: int


class Members:
    """The clients of a federation that the server knows so far."""

    def __init__(
        self, grid: Grid, federated: Federated, task: Task, seed: int, deployment: Deployment | None
    ) -> None:
        self._grid, self._federated, self._task = grid, federated, task
        self._deployment = deployment
        self._method = make_method(federated.method)
        # One content for all: the engine hashes and stores it once.
        self._question = records.pack({}, {"seed": seed, "method": federated.method})
        self._asked: dict[str, tuple[int, float]] = {}  # messages to nodes, and when they expire
        self._refused: dict[int, str] = {}
        self._contested: set[int] = set()
        self._known: dict[int, Tensors] = {}
        self.nodes: dict[int, Node] = {}
        self.clients = 0

    def gather(self) -> None:
        """Ask every node which client it is; node ids are random, partitions are not."""
        sites = 0 if self._deployment is None else self._deployment.sites
        ids = wait_for_nodes(self._grid, sites, self._federated.timeout)
        self.clients = len(ids) if self._deployment is None else self._deployment.sites
        for node, reply in exchange(
            self._grid, map(self._hello, ids), self._federated.window, self._federated.timeout
        ):
            if (wrong := self._enter(node, reply, newcomer=False)) is not None:
                if self._deployment is None:
                    raise wrong
                self._refused[node] = str(wrong)
        # In a simulation nobody may be absent.
        least = self.clients * (1.0 if self._deployment is None else self._federated.minimum)
        if len(self.nodes) < max(1, least):
            raise InfeasibleError(
                "clients are missing",
                got=f"{len(self.nodes)} of {self.clients}",
                fix="; ".join(self._refused.values()) or "start all of them",
            )

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
        strangers = [why for node, why in self._refused.items() if node in online]
        return there, absent + strangers

    def _greet(self, online: Iterable[int]) -> None:
        """Ask new nodes; their answers are read next time."""
        now = time.monotonic()
        for reply in self._grid.pull_messages(list(self._asked)) if self._asked else []:
            node, _ = self._asked.pop(reply.metadata.reply_to_message_id, (None, 0.0))
            if node is None:
                continue
            wrong = self._enter(node, reply, newcomer=True)
            self._refused.pop(node, None)
            if wrong is not None:
                self._refused[node] = str(wrong)
        self._asked = {name: own for name, own in self._asked.items() if own[1] > now}
        busy = {node for node, _ in self._asked.values()} | {n.node for n in self.nodes.values()}
        for node in sorted(set(online) - busy):
            for name in self._grid.push_messages([self._hello(node)]):
                self._asked[name] = (node, now + self._federated.timeout)

    def _hello(self, node: int) -> Message:
        return Message(self._question, node, HELLO, ttl=self._federated.timeout)

    def _enter(self, node: int, reply: Message, newcomer: bool) -> InfeasibleError | None:
        """Register a client, or return why it cannot take part."""
        who = "a client"
        try:
            if reply.has_error():
                return InfeasibleError(f"a client could not start: {reason(reply)}")
            partition = records.whole(reply.content, "partition")
            who = f"client {partition}"
            largest = MOST_SAMPLES if self._deployment is None else self._deployment.largest
            met = Node(node, partition, read_size(reply, largest))
            known = records.tensors(reply.content, "known")
            check_values(known)
            self._method.check_known(known, self._task, met.real)
        except FedeasError as error:
            return InfeasibleError(f"{who} cannot take part: {error}")
        except Exception as error:  # bytes from another party can raise anything
            return InfeasibleError(f"{who} cannot take part: {type(error).__name__}")
        if partition >= self.clients:
            return InfeasibleError(f"{who} is not one of the {self.clients}")
        other = self.nodes.get(partition)
        if partition in self._contested or (other and not (newcomer and self._gone(other))):
            if not newcomer:  # neither the first nor the last is trusted
                self._contested.add(partition)
                self.nodes.pop(partition, None)
                self._known.pop(partition, None)
            return InfeasibleError("two nodes claim to be the same client", got=partition)
        self.nodes[partition], self._known[partition] = met, known
        return None

    def _gone(self, node: Node) -> bool:
        return node.node not in set(self._grid.get_node_ids())


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
