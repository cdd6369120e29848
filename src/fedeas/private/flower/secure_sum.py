"""A secure sum over Flower's messages: `answer_secure_sum` at a client, `secure_sum` at the server.

The sums that a server asks over one grid share their keys: two messages at the beginning, then four
for every sum. Does not import torch: in a deployment every message starts a new process.
"""

import json
import logging
import secrets
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid

from fedeas.errors import InputError
from fedeas.private.secure_sum.client import Client
from fedeas.private.secure_sum.identity import Identity, Members
from fedeas.private.secure_sum.memory import end_sums, open_pairs, open_sum
from fedeas.private.secure_sum.messages import (
    AGREEMENT,
    STAGES,
    NoKeysError,
    RefusedError,
    Vector,
)
from fedeas.private.secure_sum.pairs import PairKeys
from fedeas.private.secure_sum.server import NO_REPLY, Run, Server
from fedeas.train.flower.exchange import exchange, reason

_LOG = logging.getLogger(__name__)
RECORD = "secure-sum"
MOST_WORDS = 2**24
_MOST_SUMS = 2**32  # of a run
_LONGEST = 2**20  # characters of a session: a question may have a centre of every class
_WINDOW = 64  # messages in flight at a time
_RUNS: WeakKeyDictionary[Grid, Run] = WeakKeyDictionary()  # the keys that a grid's sums share


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


def answer_secure_sum(app: ClientApp, open_site: Callable[[Context], SumParticipant]) -> None:
    """Have a ClientApp answer the messages of secure sums."""
    for stage in (*AGREEMENT, *STAGES):
        app.query(f"secure_{stage}")(_handler(stage, open_site))


def secure_sum(
    grid: Grid, nodes: Iterable[int], asked: object, words: int, members: Members, timeout: float
) -> Sums:
    """Add up the clients' words for a question, without seeing the words of any one of them.

    A client that gives no valid answer within `timeout` seconds at any of the stages is left
    out. There is no sum of fewer than three clients, nor of two thirds or fewer of the members.
    """
    wanted = list(nodes)
    run = _shared_run(grid, wanted, members, timeout)
    session = _new_session(asked, words, run)
    server = Server(session, _read(session).number, words, run)
    requests = dict.fromkeys((n for n in server.nodes.values() if n in wanted), b"")
    begun = _ask(grid, session, STAGES[0], requests, timeout, server.left_out)
    return _finish_sum(grid, session, server, begun, timeout)


def _shared_run(grid: Grid, nodes: Iterable[int], members: Members, timeout: float) -> Run:
    """Return the keys that a grid's sums share; where a node is new or lost its own, new ones."""
    asked, run = list(nodes), _RUNS.get(grid)
    if run is None or run.members != members or not run.serves(asked):
        run = Run(members, before=run)
        empty = dict.fromkeys(asked, b"")
        # An error would cost a node the whole run. Asking again is safe: a client draws one key a
        # run and meets the others once, keeps its answer before sending it, and gives it again.
        requests = run.roster(_ask(grid, run.name, "keys", empty, timeout, run.left_out, tries=2))
        run.met(_ask(grid, run.name, "meet", requests, timeout, run.left_out, tries=2))
        _RUNS[grid] = run
    return run


def _new_session(asked: object, words: int, run: Run) -> str:
    """Name a sum: what is asked, which sum of a run it is, and what tells it from any other."""
    named = {"run": run.name, "number": run.next_number(), "sum": secrets.token_hex(16)}
    session = json.dumps({"asked": asked, "words": words, **named}, sort_keys=True)
    if len(session) > _LONGEST:
        raise InputError("the question is too long", got=f"{len(session)} characters")
    return session


def _finish_sum(
    grid: Grid, session: str, server: Server, begun: Iterable[tuple[int, bytes]], timeout: float
) -> Sums:
    """Go through the stages after the first, given the clients' replies to that one."""
    requests = server.deliver(begun)
    for stage, step in zip(STAGES[1:-1], (server.survivors, server.agreed), strict=True):
        requests = step(_ask(grid, session, stage, requests, timeout, server.left_out))
    replies = _ask(grid, session, STAGES[-1], requests, timeout, server.left_out)
    total, whose = server.total(replies)
    return Sums(total, whose, server.left_out)


def _read_replies(
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
    tries: int = 1,
) -> Iterator[tuple[int, bytes]]:
    """Send a stage's requests; yield the replies as they arrive, by the node that was asked.

    With more than one try, a node whose reply is an error is sent the same bytes again.
    """
    messages = (
        Message(
            RecordDict({RECORD: ConfigRecord({"session": session, "content": content})}),
            node,
            f"query.secure_{stage}",
            ttl=timeout,
        )
        for node, content in requests.items()
    )
    yield from _read_replies(stage, exchange(grid, messages, _WINDOW, timeout), requests, left_out)
    if tries > 1:
        again = {
            node: content
            for node, content in requests.items()
            if not left_out.get(node, NO_REPLY).endswith(NO_REPLY)
        }
        for node in again:
            del left_out[node]
        yield from _ask(grid, session, stage, again, timeout, left_out, tries - 1)


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
        return Message(RecordDict({RECORD: ConfigRecord({"content": reply})}), reply_to=message)

    return handle


def _answer(stage: str, message: Message, site: SumParticipant) -> bytes:
    """Answer a stage from the site's record of this run or sum."""
    session, content = _read_session(message), _content(message)
    if stage == "keys":
        memory = open_pairs(site.folder, session, begin=True)
        return PairKeys(session, site.identity, memory).keys()
    if stage == "meet":
        return PairKeys(session, site.identity, open_pairs(site.folder, session)).meet(content)
    if stage == STAGES[0]:
        return _begin_sum(session, site)
    named = _read(session)
    client = _client(session, named, site)
    if stage == "masked":
        return client.masked(content, lambda key: site.release(named.asked, key))
    return {"agree": client.agree, "unmask": client.unmask}[stage](content)


def _begin_sum(session: str, site: SumParticipant) -> bytes:
    """Return a client's reply to the first stage; what other sums left on its disk goes.

    Without keys of the run the reply is empty: the server then has them agreed on anew.
    """
    named = _read(session)

    def words() -> Vector:
        answer = site.words(named.asked)
        if answer.dtype != np.uint64 or answer.shape != (named.words,):
            raise RefusedError("the site has the wrong number of words", allowed=f"{named.words}")
        return answer

    try:
        client = _client(session, named, site)
        # Only once it has begun: a request that is refused ends no other sum.
        return client.shares(words, begun=lambda: end_sums(site.folder, but=session))
    except NoKeysError:
        return b""


class _SumName(NamedTuple):
    """What a sum is about, and which one of a run it is."""

    asked: object
    words: int
    run: str
    number: int


def _client(session: str, named: _SumName, site: SumParticipant) -> Client:
    pairs = PairKeys(named.run, site.identity, open_pairs(site.folder, named.run))
    return Client(session, named.number, pairs, open_sum(site.folder, session))


def _read(session: str) -> _SumName:
    """Read the name of a sum; like everything from another party, it is checked."""
    try:
        read = json.loads(session)
        named = _SumName(*(read[name] for name in _SumName._fields))
    except (ValueError, KeyError, TypeError, RecursionError):
        raise RefusedError("malformed secure-sum request") from None
    sound = type(named.words) is int and type(named.number) is int and type(named.run) is str
    if not sound or not 0 < named.words < MOST_WORDS or not 0 <= named.number < _MOST_SUMS:
        raise RefusedError("malformed secure-sum request")
    return named


def _read_session(message: Message) -> str:
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
