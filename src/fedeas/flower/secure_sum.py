"""A secure sum over Flower's messages: `answer_secure_sum` at a client, `secure_sum` at the server.

Does not import torch: in a deployment every message starts a new process.
"""

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np
from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid

from fedeas.errors import InputError
from fedeas.flower.exchange import exchange, reason
from fedeas.privacy.secure_sum.client import Client
from fedeas.privacy.secure_sum.memory import FileStore, end_sums
from fedeas.privacy.secure_sum.messages import STAGES, RefusedError, Words
from fedeas.privacy.secure_sum.server import Server

_RECORD = "secure-sum"
_LONGEST = 10_000  # characters of a session
_WINDOW = 64  # messages in flight at a time


class Summand(NamedTuple):
    """A site's part in a sum: its words for the question, and a folder of its own."""

    words: Callable[[object], Words]
    folder: Path


class Sums(NamedTuple):
    """The sums of clients' words modulo 2**64, over which nodes, and why others are left out."""

    words: Words
    nodes: list[int]
    left_out: dict[int, str]


def answer_secure_sum(app: ClientApp, open_site: Callable[[Context], Summand]) -> None:
    """Have a ClientApp answer the four messages of a secure sum."""
    for stage in STAGES:
        app.query(f"secure_{stage}")(_handler(stage, open_site))


def secure_sum(grid: Grid, nodes: Iterable[int], asked: object, words: int, timeout: float) -> Sums:
    """Add up the clients' words for a question, without seeing the words of any one of them.

    A client answers only one sum per run, since two over different clients could be subtracted. A
    client that gives no valid answer within `timeout` seconds at any of the four stages is left
    out. There is no sum of fewer than three clients, nor of three quarters or fewer of those that
    began.
    """
    session = json.dumps({"asked": asked, "words": words}, sort_keys=True)
    if len(session) > _LONGEST:
        raise InputError("the question is too long", got=f"{len(session)} characters")
    server = Server(session, words)
    requests = dict.fromkeys(nodes, b"")
    for stage, step in zip(STAGES, (server.roster, server.deliver, server.survivors), strict=False):
        requests = step(_ask(grid, session, stage, requests, timeout, server.left_out))
    replies = _ask(grid, session, STAGES[-1], requests, timeout, server.left_out)
    total, whose = server.total(replies)
    return Sums(total, whose, server.left_out)


def _ask(
    grid: Grid,
    session: str,
    stage: str,
    requests: dict[int, bytes],
    timeout: float,
    left_out: dict[int, str],
) -> dict[int, bytes]:
    """Send a stage's requests and return the replies that are bytes, by the node that was asked."""
    messages = (
        Message(
            RecordDict({_RECORD: ConfigRecord({"session": session, "content": content})}),
            node,
            f"query.secure_{stage}",
            ttl=timeout,
        )
        for node, content in requests.items()
    )
    waiting, found = set(requests), {}
    for node, reply in exchange(grid, messages, _WINDOW, timeout):
        waiting.discard(node)
        try:
            if reply.has_error():
                raise InputError(reason(reply))
            found[node] = _content(reply)
        except InputError as error:
            left_out[node] = f"{stage}: {error}"
    for node in waiting:
        left_out[node] = f"{stage}: no reply in time"
    return found


def _handler(
    stage: str, open_site: Callable[[Context], Summand]
) -> Callable[[Message, Context], Message]:
    def handle(message: Message, context: Context) -> Message:
        try:
            reply = _answer(stage, message, context, open_site(context))
        except RefusedError:
            raise
        except Exception as error:
            # An error message goes to the server and could hold a count: only its type is sent.
            raise RefusedError(f"a site could not answer: {type(error).__name__}") from error
        return Message(RecordDict({_RECORD: ConfigRecord({"content": reply})}), reply_to=message)

    return handle


def _answer(stage: str, message: Message, context: Context, site: Summand) -> bytes:
    """Answer a stage from the site's records of this run."""
    session, content = _session(message), _content(message)
    own = f"sum-{int(context.run_id)}"
    client = Client(session, FileStore(site.folder / own))
    if stage == "keys":
        end_sums(site.folder, but=own)
        asked, words = _read(session)
        return client.keys(lambda: _checked(site.words(asked), words))
    later = {"shares": client.shares, "masked": client.masked, "unmask": client.unmask}
    return later[stage](content)


def _checked(words: Words, length: int) -> Words:
    if words.dtype != np.uint64 or words.shape != (length,):
        raise RefusedError("the site has the wrong number of words", allowed=f"{length}")
    return words


def _read(session: str) -> tuple[object, int]:
    """Read what a sum is about; like everything from another party, it is checked."""
    try:
        read = json.loads(session)
        asked, words = read["asked"], read["words"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise RefusedError("malformed secure-sum request") from None
    if type(words) is not int or not 0 < words < 2**24:
        raise RefusedError("malformed secure-sum request")
    return asked, words


def _session(message: Message) -> str:
    found = _record(message).get("session")
    if not isinstance(found, str) or len(found) > _LONGEST:
        raise RefusedError("malformed secure-sum request")
    return found


def _content(message: Message) -> bytes:
    found = _record(message).get("content")
    if not isinstance(found, bytes):
        raise InputError("a message without bytes")
    return found


def _record(message: Message) -> ConfigRecord:
    return message.content.config_records.get(_RECORD) or ConfigRecord()
