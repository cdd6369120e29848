"""What the operator of a federation reads while sites work: the stage, who answered, how long yet.

The server of a deployment sends all of its messages through here, so that every wait is told of in
the same way, whatever it is for.
"""

import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from flwr.app import Message
from flwr.serverapp import Grid

_LOG = logging.getLogger("flwr")  # Flower streams it to `flwr run --stream`
_FIRST, _EVERY = 10.0, 60.0  # seconds until a wait is told of, and between two lines about it


@dataclass
class _Stage:
    """Messages of one kind that are under way."""

    name: str
    begun: float
    ends: float  # when the last of them expires
    asked: int = 0
    pending: set[str] = field(default_factory=set)
    said: float | None = None  # when a line about it was written last

    def __str__(self) -> str:
        return f"{self.name}: {self.asked - len(self.pending)} of {self.asked} sites have answered"


class WatchedGrid(Grid):
    """A grid that logs how far the sites are, where they take longer than some seconds.

    Parameters
    ----------
    grid
        The grid that delivers the messages.
    clock
        Returns the time in seconds.
    """

    def __init__(self, grid: Grid, clock: Callable[[], float] = time.monotonic) -> None:
        self._grid, self._clock = grid, clock
        self._stages: dict[str, _Stage] = {}

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Send messages."""
        sent = list(messages)
        ids = list(self._grid.push_messages(sent))
        now = self._clock()
        for own, message in zip(ids, sent, strict=False):
            name = _stage(message)
            stage = self._stages.get(name)
            if stage is None or not stage.pending:
                stage = self._stages[name] = _Stage(name, now, now)
            stage.asked += 1
            stage.pending.add(own)
            stage.ends = max(stage.ends, now + message.metadata.ttl)
        return ids

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Return the replies that are there, and log how many are not."""
        wanted = list(message_ids)
        replies = list(self._grid.pull_messages(wanted))
        answered = {reply.metadata.reply_to_message_id for reply in replies}
        now = self._clock()
        for name, stage in list(self._stages.items()):
            mine = stage.pending & answered
            stage.pending -= answered
            if now > stage.ends or (mine and not stage.pending):
                if stage.said is not None:
                    _LOG.info("%s, after %.0f s", str(stage), now - stage.begun)
                del self._stages[name]
            elif now - (stage.begun + _FIRST if stage.said is None else stage.said + _EVERY) >= 0:
                stage.said = now
                _LOG.info(
                    "%s after %.0f s; waiting for at most %.0f s more",
                    str(stage), now - stage.begun, stage.ends - now,
                )  # fmt: skip
        return replies

    def get_node_ids(self) -> Iterable[int]:
        """Return the ids of the nodes that are connected."""
        return self._grid.get_node_ids()

    def get_nodes(self) -> Iterable[Any]:
        """Return the nodes that are connected."""
        return self._grid.get_nodes()

    def set_run(self, run: Any) -> None:
        """Set the run of the grid."""
        self._grid.set_run(run)

    @property
    def run(self) -> Any:
        """The run of the grid."""
        return self._grid.run

    def create_message(self, *arguments: Any, **named: Any) -> Message:
        """Make a message."""
        return self._grid.create_message(*arguments, **named)

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        """Send messages and wait for the replies."""
        return self._grid.send_and_receive(messages, timeout=timeout)


def _stage(message: Message) -> str:
    """Say what a message is for."""
    kind = message.metadata.message_type
    if kind == "train":
        return f"round {message.metadata.group_id}, training"
    name = kind.rpartition(".")[2]
    if name.startswith("secure_"):
        return f"secure sum, {name.removeprefix('secure_')}"
    return {"hello": "introductions", "own_generator": "giving the generator"}.get(name, name)
