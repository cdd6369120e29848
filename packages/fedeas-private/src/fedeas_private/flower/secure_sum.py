"""A secure sum over Flower's messages: `answer_secure_sum` at a client, `secure_sum` at the server.

Does not import torch: in a deployment every message starts a new process.
"""

import json
import logging
import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid

from fedeas.errors import InputError
from fedeas.flower.exchange import exchange, reason
from fedeas_private.secure_sum.client import Client
from fedeas_private.secure_sum.identity import Identity, Members
from fedeas_private.secure_sum.memory import end_sums, open_sum
from fedeas_private.secure_sum.messages import STAGES, RefusedError, Vector
from fedeas_private.secure_sum.server import NO_REPLY, Server

_LOG = logging.getLogger(__name__)
RECORD = "secure-sum"
MOST_WORDS = 2**24
_LONGEST = 2**20  # characters of a session: a question may have a centre of every class
_WINDOW = 64  # messages in flight at a time


class SumParticipant(NamedTuple):
    """A site's part in a sum: who it is, its words for the question, and a folder of its own.

    `words` refuses what the site may not answer or cannot pay for before it computes anything:
    then no site has paid yet. `release` is called before the masked words are sent, with the
    question and what tells these words from all others: it enters what they cost, or refuses. What
    is refused depends on the request, the owner's settings and the ledger alone.
    """

    identity: Identity
    words: Callable[[object], Vector]
    folder: Path
    release: Callable[[object, bytes], None] = lambda asked, key: None


class Sums(NamedTuple):
    """The sums of clients' words modulo 2**64, over which nodes, and why others are left out."""

    words: Vector
    nodes: list[int]
    left_out: dict[int, str]


def answer_secure_sum(
    app: ClientApp, open_site: Callable[[Context], SumParticipant], stages: Sequence[str] = STAGES
) -> None:
    """Have a ClientApp answer the five messages of a secure sum, or those of some stages."""
    for stage in stages:
        app.query(f"secure_{stage}")(_handler(stage, open_site))


def secure_sum(
    grid: Grid, nodes: Iterable[int], asked: object, words: int, members: Members, timeout: float
) -> Sums:
    """Add up the clients' words for a question, without seeing the words of any one of them.

    A client that gives no valid answer within `timeout` seconds at any of the five stages is left
    out. There is no sum of fewer than three clients, nor of two thirds or fewer of the members.
    """
    session = new_session(asked, words)
    server = Server(session, words, members)
    begun = _ask(grid, session, STAGES[0], dict.fromkeys(nodes, b""), timeout, server.left_out)
    return finish_sum(grid, session, server, begun, timeout)


def new_session(asked: object, words: int) -> str:
    """Name a sum: what is asked, and what tells it from any other."""
    sum_id = secrets.token_hex(16)
    session = json.dumps({"asked": asked, "words": words, "sum": sum_id}, sort_keys=True)
    if len(session) > _LONGEST:
        raise InputError("the question is too long", got=f"{len(session)} characters")
    return session


def finish_sum(
    grid: Grid, session: str, server: Server, begun: Iterable[tuple[int, bytes]], timeout: float
) -> Sums:
    """Go through the stages after the first, given the clients' replies to that one."""
    requests = server.roster(begun)
    steps = (server.deliver, server.survivors, server.agreed)
    for stage, step in zip(STAGES[1:-1], steps, strict=True):
        requests = step(_ask(grid, session, stage, requests, timeout, server.left_out))
    replies = _ask(grid, session, STAGES[-1], requests, timeout, server.left_out)
    total, whose = server.total(replies)
    return Sums(total, whose, server.left_out)


def read_replies(
    stage: str,
    replies: Iterable[tuple[int, Message]],
    asked: Iterable[int],
    left_out: dict[int, str],
) -> Iterator[tuple[int, bytes]]:
    """Yield the replies that are bytes, as they arrive, and note who gave no other."""
    waiting = set(asked)
    for node, reply in replies:
        waiting.discard(node)
        try:
            if reply.has_error():
                raise InputError(reason(reply))
            yield node, _content(reply)
        except InputError as error:
            left_out[node] = f"{stage}: {error}"
    for node in waiting:
        left_out[node] = f"{stage}: {NO_REPLY}"


def _ask(
    grid: Grid,
    session: str,
    stage: str,
    requests: dict[int, bytes],
    timeout: float,
    left_out: dict[int, str],
) -> Iterator[tuple[int, bytes]]:
    """Send a stage's requests; yield the replies as they arrive, by the node that was asked."""
    messages = (
        Message(
            RecordDict({RECORD: ConfigRecord({"session": session, "content": content})}),
            node,
            f"query.secure_{stage}",
            ttl=timeout,
        )
        for node, content in requests.items()
    )
    yield from read_replies(stage, exchange(grid, messages, _WINDOW, timeout), requests, left_out)


def _handler(
    stage: str, open_site: Callable[[Context], SumParticipant]
) -> Callable[[Message, Context], Message]:
    def handle(message: Message, context: Context) -> Message:
        try:
            reply = _answer(stage, message, open_site(context))
        except RefusedError:
            raise
        except Exception as error:
            # An error message goes to the server and could hold a count: only its type is sent.
            _LOG.warning("secure sum, %s: %s: %s", stage, type(error).__name__, error)
            raise RefusedError(f"a site could not answer: {type(error).__name__}") from error
        return reply_with(reply, message)

    return handle


def reply_with(content: bytes, message: Message) -> Message:
    """Return the reply to a stage."""
    return Message(RecordDict({RECORD: ConfigRecord({"content": content})}), reply_to=message)


def _answer(stage: str, message: Message, site: SumParticipant) -> bytes:
    """Answer a stage from the site's record of this sum."""
    session, content = read_session(message), _content(message)
    if stage == STAGES[0]:
        return begin_sum(session, site)
    client = _client(session, site)
    if stage == "masked":
        asked, _ = _read(session)
        return client.masked(content, lambda key: site.release(asked, key))
    later = {"shares": client.shares, "agree": client.agree, "unmask": client.unmask}
    return later[stage](content)


def begin_sum(session: str, site: SumParticipant) -> bytes:
    """Return a client's reply to the first stage; what other sums left on its disk goes."""
    end_sums(site.folder, but=session)
    asked, length = _read(session)

    def words() -> Vector:
        answer = site.words(asked)
        if answer.dtype != np.uint64 or answer.shape != (length,):
            raise RefusedError("the site has the wrong number of words", allowed=f"{length}")
        return answer

    return _client(session, site).keys(words)


def _client(session: str, site: SumParticipant) -> Client:
    return Client(session, site.identity, open_sum(site.folder, session))


def _read(session: str) -> tuple[object, int]:
    """Read what a sum is about; like everything from another party, it is checked."""
    try:
        read = json.loads(session)
        asked, words = read["asked"], read["words"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise RefusedError("malformed secure-sum request") from None
    if type(words) is not int or not 0 < words < MOST_WORDS:
        raise RefusedError("malformed secure-sum request")
    return asked, words


def read_session(message: Message) -> str:
    """Return the name of the sum that a message is about."""
    session = _record(message).get("session")
    if not isinstance(session, str) or len(session) > _LONGEST:
        raise RefusedError("malformed secure-sum request")
    return session


def _content(message: Message) -> bytes:
    content = _record(message).get("content")
    if not isinstance(content, bytes):
        raise InputError("a message without bytes")
    return content


def _record(message: Message) -> ConfigRecord:
    return message.content.config_records.get(RECORD) or ConfigRecord()
