"""Send messages and receive replies: a few in flight at a time, and never beyond a timeout.

The operator of a deployment reads here what is waited for: the stage, who answered, how long yet.
"""

import logging
import re
import time
from collections.abc import Iterable, Iterator
from itertools import islice

from flwr.app import Message
from flwr.serverapp import Grid

from fedeas.errors import FedeasError

_POLL = 0.02  # seconds between polls for replies, at first
_SLOWEST_POLL = 0.25  # and when none came for a while
_TELL = 30.0  # seconds between two lines about nodes that are not connected
_FIRST, _EVERY = 10.0, 60.0  # seconds until a wait for replies is told of, and between two lines
_LOG = logging.getLogger("flwr")  # Flower streams it to `flwr run --stream`
WAITS = logging.getLogger("flwr.waits")  # how many sites have answered
WAITS.setLevel(logging.WARNING)  # a simulation is told of by its rounds; see `train_sites`
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
    begun = now = time.monotonic()
    deadline, next_line = begun + timeout, begun + _FIRST
    stage, sent = "", 0
    more, pause = True, _POLL
    while (more or pending) and now <= deadline:
        # At once: what messages share, such as the model, is then hashed and sent once.
        batch = list(islice(waiting, window - len(pending)))
        more = bool(batch)
        if batch:
            sent += len(batch)
            pending.update(zip(grid.push_messages(batch), batch, strict=False))
        replies = list(grid.pull_messages(pending)) if pending else []
        for reply in replies:
            more = True  # another message can be sent
            # Only the node that was asked knows the name of the message to it.
            asked = pending.pop(reply.metadata.reply_to_message_id, None)
            if asked is not None:
                yield asked.metadata.dst_node_id, reply
        now = time.monotonic()
        if pending and now >= next_line:
            next_line, stage = now + _EVERY, _stage(next(iter(pending.values())))
            WAITS.info(
                "%s: %s of %s sites have answered after %.0f s; waiting for at most %.0f s more",
                stage, sent - len(pending), sent, now - begun, deadline - now,
            )  # fmt: skip
        pause = _POLL if replies else min(1.3 * pause, _SLOWEST_POLL)
        if pending and not replies:
            time.sleep(pause)
    if next_line > begun + _FIRST:  # it was told of
        answered = sent - len(pending)
        WAITS.info(
            "%s: %s of %s sites have answered, after %.0f s", stage, answered, sent, now - begun
        )


def _stage(message: Message) -> str:
    """Say what a message is for."""
    kind = message.metadata.message_type
    if kind == "train":
        return f"round {message.metadata.group_id}, training"
    name = kind.rpartition(".")[2]
    if name.startswith("secure_"):
        return f"secure sum, {name.removeprefix('secure_')}"
    return {"hello": "introductions", "private_generator": "giving the generator"}.get(name, name)


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


def log_errors_in_one_line() -> None:
    """Have Flower log an error of ours as its message: where it was raised helps nobody."""
    logging.getLogger("flwr").addFilter(_without_traceback)


def _without_traceback(record: logging.LogRecord) -> bool:
    error = record.exc_info[1] if record.exc_info else None
    if isinstance(error, FedeasError):
        record.exc_info = record.exc_text = None
        record.msg, record.args = "%s: %s", (record.getMessage(), error)
    return True
