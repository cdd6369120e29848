"""Send messages and receive replies: a few in flight at a time, and never beyond a timeout."""

import logging
import re
import time
from collections.abc import Iterable, Iterator
from itertools import islice

from flwr.app import Message
from flwr.serverapp import Grid

_POLL = 0.02  # seconds between polls for replies, at first
_SLOWEST_POLL = 0.25  # and when none came for a while
_TELL = 30.0  # seconds between two lines about nodes that are not connected
_LOG = logging.getLogger("flwr")  # Flower streams it to `flwr run --stream`
_RAISED = re.compile(r"<class '[\w.]+'>:<'(.*)'>")  # an error of a ClientApp, as Flower tells it


def exchange(
    grid: Grid, messages: Iterable[Message], window: int, timeout: float
) -> Iterator[tuple[int, Message]]:
    """Yield replies as they arrive, each with the node that was asked; `window` are in flight.

    The node is not taken from the reply: it may name another sender, and for a node that is gone
    the engine itself answers, in its own name.
    """
    waiting = iter(messages)
    pending: dict[str, Message] = {}
    deadline = time.monotonic() + timeout
    more, pause = True, _POLL
    while more or pending:
        # At once: what messages share, such as the model, is then hashed and sent once.
        batch = list(islice(waiting, window - len(pending)))
        more = bool(batch)
        if batch:
            pending.update(zip(grid.push_messages(batch), batch, strict=False))
        replies = list(grid.pull_messages(pending)) if pending else []
        for reply in replies:
            more = True  # another message can be sent
            # Only the node that was asked knows the name of the message to it.
            asked = pending.pop(reply.metadata.reply_to_message_id, None)
            if asked is not None:
                yield asked.metadata.dst_node_id, reply
        if time.monotonic() > deadline:
            return
        pause = _POLL if replies else min(1.3 * pause, _SLOWEST_POLL)
        if pending and not replies:
            time.sleep(pause)


def wait_for_nodes(grid: Grid, nodes: int, timeout: float) -> list[int]:
    """Wait up to `timeout` for this many nodes, and return those that are connected."""
    begun = time.monotonic()
    deadline, told = begun + timeout, begun
    while True:
        ids = sorted(grid.get_node_ids())
        now = time.monotonic()
        if len(ids) >= nodes or now > deadline:
            return ids
        if now > told + _TELL:
            told = now
            _LOG.info(
                "%s of %s sites are connected; waiting for at most %.0f s more",
                len(ids), nodes, deadline - now,
            )  # fmt: skip
        time.sleep(_SLOWEST_POLL)


def reason(reply: Message) -> str:
    """Return why there is no reply, in one line without control codes."""
    text = " ".join(str(reply.error.reason).split())
    if raised := _RAISED.fullmatch(text):
        text = raised[1]
    return printable(text[-300:])


def printable(text: str) -> str:
    """Return text of another party without control codes."""
    return "".join(c if c.isprintable() else "?" for c in text)


def node_names(grid: Grid) -> dict[int, str]:
    """Return what the nodes that are connected were registered as, for the operator to read."""
    return {
        node.node_id: f"{printable(node.name)}, node {node.node_id}".removeprefix(", ")
        for node in grid.get_nodes()
    }
