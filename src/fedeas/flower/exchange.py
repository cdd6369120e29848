"""Messages out and replies back, with as many under way as a window allows."""

import time
from collections.abc import Iterable, Iterator

from flwr.app import Message
from flwr.serverapp import Grid

_POLL = 0.02  # seconds between questions for replies


def exchange(
    grid: Grid, messages: Iterable[Message], window: int, timeout: float
) -> Iterator[Message]:
    """Yield replies as they come, with at most `window` messages under way."""
    waiting = iter(messages)
    pending: set[str] = set()
    deadline = time.monotonic() + timeout
    more = True
    while more or pending:
        while more and len(pending) < window:
            message = next(waiting, None)
            if message is None:
                more = False
            else:
                pending.update(grid.push_messages([message]))
        replies = list(grid.pull_messages(pending)) if pending else []
        for reply in replies:
            pending.discard(reply.metadata.reply_to_message_id)
            yield reply
        if time.monotonic() > deadline:
            return
        if pending and not replies:
            time.sleep(_POLL)


def reason(reply: Message) -> str:
    """Return why a client failed, on one line."""
    return " ".join(str(reply.error.reason).split())[-300:]
