"""Secure sums: equal to the plain ones, whoever drops out, and no term is seen or given away."""

import os
import re
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from hypothesis import given, settings
from hypothesis import strategies as st

from fedeas import FedEAS, InfeasibleError, InputError, LabelCounts, WaterFill
from fedeas.beta_path import path
from fedeas.flower.grids import InlineGrid
from fedeas.flower.negotiate import Holding, answer_negotiation, negotiate_beta, negotiate_price
from fedeas.flower.secure_sum import Summand, answer_secure_sum, secure_sum
from fedeas.privacy.choice import (
    Betas,
    Prices,
    choose_by_conditions,
    choose_within,
    encode_counts,
    encode_query,
    length_of,
    one_digit_numbers,
    plain_sums,
    read_question,
)
from fedeas.privacy.secure_sum import client as client_module
from fedeas.privacy.secure_sum.client import Client
from fedeas.privacy.secure_sum.keys import agree, load_key, new_key, public_key
from fedeas.privacy.secure_sum.memory import FileStore, StageRecord
from fedeas.privacy.secure_sum.messages import (
    HASH,
    KEY,
    MOST,
    STAGES,
    RefusedError,
    Roster,
    marks,
    safe_threshold,
)
from fedeas.privacy.secure_sum.server import Server
from fedeas.privacy.secure_sum.shares import SHARE, join, split
from fedeas.select import plainest_number
from strategies import counts

LENGTH = 5


class Held:
    """A memory that lasts as long as the test."""

    def __init__(self) -> None:
        self.said: dict[str, StageRecord] = {}

    def recall(self, stage):
        return self.said.get(stage)

    def keep(self, stage, said):
        self.said.setdefault(stage, said)

    def forget(self, stage):
        if stage in self.said:
            self.said[stage] = StageRecord(self.said[stage].asked, b"", b"")


class Cohort:
    """Clients and a server, stage by stage; `change` stands for what may happen to a reply."""

    def __init__(self, vectors, session="a sum", change=None) -> None:
        self.vectors = {10 + k: vector for k, vector in enumerate(vectors)}
        self.memories = {node: Held() for node in self.vectors}
        self.clients = {node: Client(session, m) for node, m in self.memories.items()}
        self.server = Server(session, len(vectors[0]))
        self.change = change or (lambda stage, node, reply: reply)
        self.requests = dict.fromkeys(self.vectors, b"")
        self.replies = {}

    def ask(self, stage):
        """Have every client answer a stage; None is no reply."""
        found = {}
        for node, request in self.requests.items():
            try:
                reply = self.answer(stage, node, request)
            except RefusedError:
                continue
            reply = self.change(stage, node, reply)
            if reply is not None:
                found[node] = reply
        self.replies[stage] = found
        return found

    def answer(self, stage, node, request):
        one = self.clients[node]
        if stage == "keys":
            return one.keys(lambda: self.vectors[node])
        return {"shares": one.shares, "masked": one.masked, "unmask": one.unmask}[stage](request)

    def reach(self, stage):
        """Go on until the requests of a stage are there."""
        steps = (self.server.roster, self.server.deliver, self.server.survivors)
        for before, step in zip(STAGES[: STAGES.index(stage)], steps, strict=False):
            self.requests = step(self.ask(before))
        return self

    def run(self):
        self.reach("unmask")
        return self.server.total(self.ask("unmask"))

    def plain(self, nodes):
        with np.errstate(over="ignore"):
            return np.sum([self.vectors[node] for node in nodes], axis=0, dtype=np.uint64)


def vectors_of(clients, seed=0, length=LENGTH):
    return np.random.default_rng(seed).integers(0, 2**64, (clients, length), dtype=np.uint64)


def dropping(gone):
    """Clients that are silent from a stage on, by place."""
    return lambda stage, node, reply: (
        None if any(node - 10 in gone.get(s, ()) for s in STAGES[: STAGES.index(stage) + 1])
        else reply
    )  # fmt: skip


@st.composite
def cohorts(draw, most):
    clients = draw(st.one_of(st.integers(3, 8), st.integers(3, most)))
    # Many drop out, or some, or few: of many clients too few are left otherwise.
    fates = st.sampled_from([None] * draw(st.sampled_from([3, 12, 48])) + list(STAGES))
    stages = draw(st.lists(fates, min_size=clients, max_size=clients))
    gone = {stage: {k for k, s in enumerate(stages) if s == stage} for stage in STAGES}
    return clients, gone, draw(st.integers(0, 2**32))


def check_sum(clients, gone, seed):
    """The sum is that of who stayed until their words came, or there are too few."""
    cohort = Cohort(vectors_of(clients, seed), change=dropping(gone))
    began = clients - len(gone["keys"])
    came = began - len(gone["shares"]) - len(gone["masked"])
    enough = began >= 3 and came - len(gone["unmask"]) >= safe_threshold(began)
    if not enough:
        with pytest.raises(InfeasibleError, match="too few clients"):
            cohort.run()
        return
    total, nodes = cohort.run()
    left = gone["keys"] | gone["shares"] | gone["masked"]
    assert nodes == [10 + k for k in range(clients) if k not in left]
    np.testing.assert_array_equal(total, cohort.plain(nodes))


@settings(max_examples=60)
@given(cohorts(most=16))
def test_the_secure_sum_is_the_plain_sum_whoever_drops_out(drawn):
    check_sum(*drawn)


@pytest.mark.slow
@settings(max_examples=100)
@given(cohorts(most=100))
def test_the_secure_sum_of_many_is_the_plain_sum_whoever_drops_out(drawn):
    check_sum(*drawn)


@pytest.mark.parametrize("clients", [3, 20, 60])
def test_large_cohorts_with_a_dropout_at_every_stage(clients):
    few = clients // 20
    gone = {stage: set(range(i * few, (i + 1) * few)) for i, stage in enumerate(STAGES)}
    check_sum(clients, gone, clients)


@given(st.binary(min_size=32, max_size=32), st.integers(1, 12), st.data())
def test_a_threshold_of_shares_is_the_secret_and_fewer_are_not(secret, parties, data):
    threshold = data.draw(st.integers(1, parties))
    order = data.draw(st.permutations(range(parties)))
    shares = split(secret, parties, threshold)
    assert all(len(share) == SHARE for share in shares)
    assert join({k: shares[k] for k in order[:threshold]}) == secret
    assert join(dict(enumerate(shares))) == secret
    if threshold > 1:
        assert join({k: shares[k] for k in order[: threshold - 1]}) != secret


def test_shares_refuse_what_cannot_be_shared():
    for secret, parties, threshold in ((b"short", 3, 2), (bytes(32), 3, 4), (bytes(32), 3, 0)):
        with pytest.raises(InputError):
            split(secret, parties, threshold)


# What a server may try.


@pytest.mark.parametrize("stage", STAGES)
def test_a_message_that_is_run_twice_has_the_same_reply(stage):
    cohort = Cohort(vectors_of(4)).reach(stage)
    for node, request in cohort.requests.items():
        first = cohort.answer(stage, node, request)
        cohort.vectors[node] = cohort.vectors[node] + np.uint64(1)  # what it has changed meanwhile
        assert cohort.answer(stage, node, request) == first


def test_another_cohort_is_refused_at_every_stage():
    cohort = Cohort(vectors_of(5)).reach("shares")
    own = Roster.read(cohort.requests[10])
    other = Roster(4, own.seals[:4], own.masks[:4]).pack()
    assert cohort.answer("shares", 10, cohort.requests[10])
    with pytest.raises(RefusedError, match="answers a stage once"):
        cohort.answer("shares", 10, other)
    cohort.reach("masked")
    assert cohort.answer("masked", 10, cohort.requests[10])
    fewer = cohort.requests[10]
    sealed = len(fewer[5:]) // 5
    with pytest.raises(RefusedError, match="answers a stage once"):
        cohort.answer("masked", 10, marks([0, 1, 2, 3], 5) + fewer[5 : 5 + 4 * sealed])


def test_both_shares_of_one_client_are_never_revealed():
    """First that client 4's words did not come, then that they did."""
    cohort = Cohort(vectors_of(5)).reach("unmask")
    assert cohort.answer("unmask", 10, marks([0, 1, 2, 3], 5))
    with pytest.raises(RefusedError, match="answers a stage once"):
        cohort.answer("unmask", 10, marks([0, 1, 2, 3, 4], 5))
    pair = [cohort.memories[n].recall("unmask").reply[4 * SHARE :] for n in (10,)]
    assert len(pair[0]) == SHARE


def test_a_second_sum_of_a_run_is_refused_also_after_the_first():
    cohort = Cohort(vectors_of(4))
    second = Client("another question", cohort.memories[10])
    cohort.reach("shares")
    with pytest.raises(RefusedError, match="one sum of a run"):
        second.keys(lambda: cohort.vectors[10])
    for stage in (second.shares, second.masked, second.unmask):
        with pytest.raises(RefusedError):
            stage(cohort.requests[10])
    done = Cohort(vectors_of(4))
    done.run()
    with pytest.raises(RefusedError, match="is over"):
        done.clients[10].keys(lambda: done.vectors[10])
    with pytest.raises(RefusedError, match="one sum of a run"):
        Client("another question", done.memories[10]).keys(lambda: done.vectors[10])


def rosters(own: bytes):
    """Rosters that would betray a client, and why they are refused."""
    seal, mask = own[:KEY], own[KEY:]
    keys = [public_key(new_key()) for _ in range(8)]
    three = ((seal, *keys[:2]), (mask, *keys[2:4]))
    yield Roster(2, (seal, keys[0]), (mask, keys[1])), "malformed roster"
    yield Roster(2, *three), "threshold"
    yield Roster(4, *three), "threshold"
    yield Roster(3, (seal, *keys[:5]), (mask, *keys[3:8])), "twice"
    yield Roster(3, (seal, keys[0], seal), (mask, *keys[2:4])), "twice"
    yield Roster(3, (mask, *keys[:2]), (seal, *keys[2:4])), "this client is not in"
    yield Roster(3, (keys[4], *keys[:2]), (mask, *keys[2:4])), "this client is not in"
    yield Roster(3, (seal, *keys[:2]), (mask, keys[2], bytes(KEY))), "low order"
    yield Roster(3, (seal, bytes(KEY), keys[0]), (mask, *keys[2:4])), "low order"
    yield Roster(3, (seal, (1).to_bytes(KEY, "little"), keys[0]), (mask, *keys[2:4])), "low order"


def test_bad_rosters_are_refused():
    cohort = Cohort(vectors_of(3))
    own = cohort.clients[10].keys(lambda: cohort.vectors[10])
    for roster, why in rosters(own):
        with pytest.raises(RefusedError, match=why):
            cohort.clients[10].shares(roster.pack())
    for content in (b"", bytes(3), bytes(5), bytes(4 + 64 * 3 + 1)):
        with pytest.raises(RefusedError):
            cohort.clients[10].shares(content)
    assert cohort.memories[10].recall("shares") is None


def test_a_key_of_low_order_is_refused_by_whoever_uses_it():
    with pytest.raises(RefusedError, match="low order"):
        agree(load_key(new_key()), bytes(32))


def test_bad_requests_are_refused_before_anything_is_said():
    cohort = Cohort(vectors_of(5)).reach("masked")
    good = cohort.requests[10]
    who, sealed = good[:5], good[5:]
    for bad in (b"", who, good[:-1], good + b"\0", b"\2" + good[1:], marks([0, 1], 5) + sealed,
                marks([1, 2, 3, 4], 5) + sealed[: len(sealed) * 4 // 5]):  # fmt: skip
        with pytest.raises(RefusedError):
            cohort.answer("masked", 10, bad)
    cohort = Cohort(vectors_of(5), change=dropping({"shares": {4}})).reach("unmask")
    for bad in (b"", bytes(5), marks([0, 1, 2], 5), marks([1, 2, 3], 5), marks(range(5), 5),
                marks(range(4), 6), b"\1" * 4 + b"\2"):  # fmt: skip
        with pytest.raises(RefusedError):
            cohort.answer("unmask", 10, bad)
    assert cohort.memories[10].recall("unmask") is None


def test_stages_come_in_order():
    cohort = Cohort(vectors_of(3))
    for stage in STAGES[1:]:
        with pytest.raises(RefusedError, match="has not taken place"):
            cohort.answer(stage, 10, b"")


def test_clients_that_are_told_different_things_share_no_masks():
    """A server that swaps the key of one client for its own gets no sum."""
    cohort = Cohort(vectors_of(5)).reach("shares")
    own = Roster.read(cohort.requests[10])
    swapped = Roster(own.threshold, own.seals, (*own.masks[:4], public_key(new_key()))).pack()
    cohort.requests |= dict.fromkeys((10, 11), swapped)
    with pytest.raises(InfeasibleError):
        cohort.requests = cohort.server.deliver(cohort.ask("shares"))
        cohort.requests = cohort.server.survivors(cohort.ask("masked"))
        cohort.server.total(cohort.ask("unmask"))


# What a client may try.


@settings(max_examples=60)
@given(
    st.sampled_from(STAGES),
    st.sampled_from(["empty", "short", "long", "noise", "zeros", "text", "none", "number", "flip"]),
    st.integers(0, 6),
    st.randoms(use_true_random=False),
)
def test_a_hostile_reply_never_leads_to_a_wrong_sum(at, kind, who, random):
    def change(stage, node, reply):
        if stage != at or node != 10 + who:
            return reply
        place = random.randrange(len(reply))
        return {
            "empty": b"",
            "short": reply[:-1],
            "long": reply + b"\0",
            "noise": random.randbytes(len(reply)),
            "zeros": bytes(len(reply)),
            "text": "x" * len(reply),
            "none": None,
            "number": float("nan"),
            "flip": reply[:place] + bytes([reply[place] ^ 1]) + reply[place + 1 :],
        }[kind]

    cohort = Cohort(vectors_of(7), change=change)
    try:
        total, nodes = cohort.run()
    except InfeasibleError:
        assert kind in ("noise", "zeros", "flip")  # well formed: it may have to end the sum
        return
    assert len(nodes) >= 6
    # A bit in the masked words themselves is as good as another term: nobody can tell.
    if (at, kind) == ("masked", "flip"):
        assert ((total - cohort.plain(nodes)) != 0).sum() == 1
    else:
        np.testing.assert_array_equal(total, cohort.plain(nodes))
    if kind in ("empty", "short", "long", "text", "number"):
        assert at in cohort.server.left_out[10 + who]


def test_a_wrong_share_is_as_good_as_none():
    def change(stage, node, reply):
        return bytes(len(reply)) if stage == "unmask" and node in (10, 11) else reply

    cohort = Cohort(vectors_of(9), change=change)
    total, nodes = cohort.run()
    np.testing.assert_array_equal(total, cohort.plain(nodes))
    assert len(nodes) == 9


def test_a_client_that_shares_no_secret_is_named():
    """Its words are in the sum and its seed cannot be had: there is no sum, because of it."""

    def change(stage, node, reply):
        if stage == "shares" and node == 12:
            return bytes(HASH) + reply[HASH:]
        return reply

    with pytest.raises(InfeasibleError, match="client 12 shared something other than its secret"):
        Cohort(vectors_of(7), change=change).run()


def test_two_clients_with_one_key_are_both_left_out():
    cohort = Cohort(vectors_of(6))
    replies = cohort.ask("keys")
    replies[11] = replies[10]
    requests = cohort.server.roster(replies)
    assert sorted(requests) == [12, 13, 14, 15]
    assert set(cohort.server.left_out) == {10, 11}
    replies[12] = bytes(KEY) + replies[12][KEY:]
    with pytest.raises(InfeasibleError, match="too few"):
        Server("a sum", LENGTH).roster({k: replies[k] for k in (12, 13, 14)})


def test_replies_of_clients_that_were_not_asked_do_not_count():
    cohort = Cohort(vectors_of(6), change=dropping({"masked": {5}})).reach("unmask")
    replies = cohort.ask("unmask") | {15: bytes(SHARE * 6), 99: bytes(SHARE * 6)}
    total, nodes = cohort.server.total(replies)
    assert nodes == [10, 11, 12, 13, 14]
    np.testing.assert_array_equal(total, cohort.plain(nodes))


# What stays on a client's disk.


def test_a_folder_keeps_the_first_and_lets_nobody_else_read(tmp_path):
    folder = FileStore(tmp_path / "own")
    said = [StageRecord(bytes([k]) * 32, b"reply %d" % k, b"secret") for k in range(8)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda s: folder.keep("keys", s), said))
    kept = folder.recall("keys")
    assert kept in said
    folder.keep("keys", StageRecord(bytes(32), b"later", b""))
    assert FileStore(tmp_path / "own").recall("keys") == kept
    assert [p.name for p in (tmp_path / "own").iterdir()] == ["keys"]
    assert stat.S_IMODE((tmp_path / "own" / "keys").stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "own").stat().st_mode) == 0o700
    folder.forget("keys")
    assert folder.recall("keys") == StageRecord(kept.asked, b"", b"")
    folder.keep("keys", said[0])
    assert folder.recall("keys").reply == b""


def federation(tmp_path, n, change=None):
    """A grid whose clients hold the rows of n; `change` may stand in for an app's reply."""

    def hold(context):
        k = int(context.node_config["partition-id"])
        return Holding(n[k], tmp_path / str(k))

    app = ClientApp()
    answer_negotiation(app, hold)
    return Recording(change(app) if change else app, len(n))


class Recording(InlineGrid):
    """Remembers every byte that comes to the server: what replies hold, and why clients failed."""

    def __init__(self, app, clients):
        super().__init__(app, clients)
        self.transcript = []

    def _reply(self, message):
        reply = super()._reply(message)
        if reply.has_error():
            parts = [reply.error.reason.encode()]
        else:
            parts = [
                part if isinstance(part, bytes) else repr(part).encode()
                for record in reply.content.values()
                for part in record.values()
            ]
        self.transcript.append((message.metadata.message_type, b"".join(parts)))
        return reply


PRIVATE = np.array([[1234567, 40, 7654321], [2345678, 0, 8765432], [50, 3456789, 9876543],
                    [4567891, 5678912, 60]])  # fmt: skip


def leaks(transcript, n, question):
    """What of the counts, and of the words made of them, stands in the transcript in clear."""
    heard = b"\0".join(content for _, content in transcript)
    numbers = {
        int(x) for row in n for x in (*row, row.sum(), *encode_counts(question, row)) if x > 10**6
    }
    whole = np.array(sorted(numbers), np.uint64)
    found = [int(digits) for digits in re.findall(rb"\d{7,}", heard) if int(digits) in numbers]
    for start in range(8):
        eights = np.frombuffer(heard[start : start + (len(heard) - start) // 8 * 8], "<u8")
        found += [*np.intersect1d(eights, whole), *np.intersect1d(eights.byteswap(), whole)]
    return found


def unlike_noise(transcript):
    """How far the bytes of masked words are from uniform, in standard deviations of chi squared."""
    masked = b"".join(content for kind, content in transcript if kind == "query.secure_masked")
    often = np.bincount(np.frombuffer(masked, np.uint8), minlength=256)
    expected = len(masked) / 256
    return abs(((often - expected) ** 2 / expected).sum() - 255) / np.sqrt(2 * 255)


def test_nothing_that_reaches_the_server_holds_a_count(tmp_path, monkeypatch):
    question = Betas(classes=3)
    grid = federation(tmp_path / "masked", PRIVATE)
    found = negotiate_beta(grid, grid.get_node_ids(), classes=3)
    assert found.choice.real == PRIVATE.sum()
    assert len(grid.transcript) == 16
    assert sum(len(content) for _, content in grid.transcript) > 4 * 8 * length_of(question)
    assert not leaks(grid.transcript, PRIVATE, question)
    assert unlike_noise(grid.transcript) < 6
    # The same two searches find counts at once where nothing is masked.
    none = lambda *a: np.zeros(a[-1], np.uint64)  # noqa: E731
    monkeypatch.setattr(client_module, "mask", none)
    monkeypatch.setattr(client_module, "pair_mask", none)
    bare = federation(tmp_path / "bare", PRIVATE)
    with pytest.raises(InfeasibleError, match="do not cancel"):
        negotiate_beta(bare, bare.get_node_ids(), classes=3)
    assert len(leaks(bare.transcript, PRIVATE, question)) > 50
    assert unlike_noise(bare.transcript) > 100


def test_clients_of_the_same_counts_send_words_that_have_nothing_in_common(tmp_path):
    grid = federation(tmp_path, np.array([[5, 0], [5, 0], [5, 0]]))
    negotiate_beta(grid, grid.get_node_ids(), classes=2, total=10)
    masked = [np.frombuffer(c, "<u8") for kind, c in grid.transcript if kind.endswith("masked")]
    assert len(masked) == 3
    assert not (masked[0] == masked[1]).any()
    assert not (masked[1] == masked[2]).any()


def test_an_error_of_a_client_tells_the_server_no_count(tmp_path):
    n = [[1234567.5, 40, 7654321], [-2345678, 0, 8765432], [9, 9, 9, 9], [1, 2, 3]]
    grid = federation(tmp_path, n)
    with pytest.raises(InfeasibleError, match="too few clients"):
        negotiate_beta(grid, grid.get_node_ids(), classes=3)
    said = b"\n".join(content for _, content in grid.transcript)
    assert b"a site could not answer: InputError" in said
    assert b"does not have 3 classes" in said
    for count in (b"1234567", b"7654321", b"2345678", b"8765432"):
        assert count not in said


def test_no_secret_is_left_on_the_disk(tmp_path):
    grid = federation(tmp_path, PRIVATE)
    secrets = []

    def note(message):
        for k in range(4):
            path = tmp_path / str(k) / "sum-1"
            if message.metadata.message_type == "query.secure_unmask" and path.exists():
                secrets.append(FileStore(path).recall("keys").secret[: 3 * KEY])
        return InlineGrid._reply(grid, message)

    grid._reply = note
    negotiate_beta(grid, grid.get_node_ids(), classes=3)
    kept = b"".join(p.read_bytes() for p in tmp_path.rglob("*") if p.is_file())
    held = {s[i * KEY : (i + 1) * KEY] for s in secrets if s for i in range(3)}
    assert len(held) == 12
    assert not any(secret in kept for secret in held)
    assert len(kept) < 4 * 1000  # 16 files of hashes, and four replies that the server has


def odd_replies():
    """Replies of a hostile client over Flower, by what is wrong with them."""
    return {
        "nothing": RecordDict(),
        "text": RecordDict({"secure-sum": ConfigRecord({"content": "text"})}),
        "NaN": RecordDict({"secure-sum": ConfigRecord({"content": float("nan")})}),
        "list": RecordDict({"secure-sum": ConfigRecord({"content": [b"a", b"b"]})}),
        "empty": RecordDict({"secure-sum": ConfigRecord({"content": b""})}),
        "metrics": RecordDict({"secure-sum": MetricRecord({"content": float("inf")})}),
        "arrays": RecordDict({"secure-sum": ArrayRecord({"content": Array(np.zeros(3))})}),
        "another name": RecordDict({"other": ConfigRecord({"content": b"x" * 64})}),
    }


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("kind", odd_replies())
def test_a_client_with_an_odd_reply_is_left_out(tmp_path, stage, kind):
    n = np.array([[90, 10, 0], [30, 40, 30], [0, 5, 50], [70, 0, 3], [9, 0, 9]])

    def change(app):
        def act(message, context):
            if context.node_id == 3 and message.metadata.message_type == f"query.secure_{stage}":
                return Message(odd_replies()[kind], reply_to=message)
            return app(message, context)

        return act

    grid = federation(tmp_path, n, change)
    found = negotiate_beta(grid, grid.get_node_ids(), classes=3, total=1000)
    stays = [0, 1, 2, 3, 4] if stage == "unmask" else [0, 2, 3, 4]
    assert found.nodes == [2 + k for k in stays]
    assert found.choice.real == n[stays].sum()
    assert found.left_out[3].startswith(stage)


def test_words_of_another_form_are_not_added(tmp_path):
    def sums(words):
        app = ClientApp()
        own = tmp_path / os.urandom(4).hex()
        answer_secure_sum(
            app, lambda c: Summand(lambda asked: words, own / str(c.node_config["partition-id"]))
        )
        grid = InlineGrid(app, 3)
        return secure_sum(grid, grid.get_node_ids(), "anything", 4, timeout=60)

    np.testing.assert_array_equal(sums(np.arange(4, dtype=np.uint64)).words, [0, 3, 6, 9])
    for bad in (np.arange(5, dtype=np.uint64), np.arange(4.0), np.zeros((2, 2), np.uint64), "text"):
        with pytest.raises(InfeasibleError, match="too few"):
            sums(bad)


def test_a_client_whose_folder_is_gone_counts_as_dropped_out(tmp_path):
    def change(app):
        def act(message, context):
            if context.node_id == 2 and message.metadata.message_type == "query.secure_masked":
                for path in (tmp_path / "0" / "sum-1").iterdir():
                    path.unlink()
            return app(message, context)

        return act

    n = np.array([[9, 1], [7, 3], [0, 5], [70, 0], [3, 40]])
    grid = federation(tmp_path, n, change)
    found = negotiate_beta(grid, grid.get_node_ids(), classes=2, total=100)
    assert found.nodes == [3, 4, 5, 6]
    assert found.choice.real == n[1:].sum()


@pytest.mark.parametrize(
    "asked",
    [
        None, 3, "fedeas", [], {}, {"policy": "fedeas"}, {"policy": "os:system", "classes": 3},
        {"policy": "fedeas", "classes": 1}, {"policy": "fedeas", "classes": 3.0},
        {"policy": "fedeas", "classes": True}, {"policy": ["x"], "classes": 3},
        {"policy": "fedeas", "classes": 3, "digits": 1},
        {"policy": "fedeas", "classes": 3, "entropy": True},
        {"policy": "waterfill", "classes": 3, "price": 0.5},
    ],
)  # fmt: skip
def test_questions_that_are_none_are_refused(asked):
    with pytest.raises(RefusedError):
        read_question(asked)


@pytest.mark.parametrize("question", [Betas(10), Prices(7)])
def test_a_question_arrives_as_it_was_asked(question):
    assert read_question(encode_query(question)) == question


def test_the_grid_is_coarse_and_the_words_are_whole():
    """On a finer grid, or with finer scores, a server could read histograms off the sums."""
    assert Betas(3).numbers.tolist() == [*range(1, 10), *range(10, 100, 10)]
    assert len(Prices(3).numbers) == 27
    assert length_of(Betas(3)) == 38
    words = encode_counts(Betas(3), [90, 10, 0])
    # 100 (0.82 - 1/3) = 48.67 before; b = 4, 8, 12 fill [10, 0] with 0 + 4, 0 + 8, 2 + 12.
    assert words[:5].tolist() == [100, 49, 4, 8, 14]


# What is chosen from the sums.


def choose_from_counts(c, min_reduction, max_share):
    """Which beta of the grid the plain counts lead to, and whether rounding could change it."""
    found = path(c, Betas(c.C).numbers)
    rounding = c.K / (found.score_before * c.total)  # half a unit for each client, twice
    within = (found.shares < max_share) & (found.totals > 0)
    good = within & (found.reductions >= min_reduction)
    close = np.abs(found.reductions - min_reduction) <= rounding
    if good.any():
        edges = np.flatnonzero(np.diff(good.astype(int), prepend=0, append=0)).reshape(-1, 2)
        ends = np.append(found.betas, 100.0)
        low, high = max(((ends[i], ends[j]) for i, j in edges), key=lambda r: r[1] - r[0])
        return plainest_number(low, high), bool((close & within).any())
    if not within.any():
        return None, False
    best = np.where(within, found.reductions, -np.inf)
    beta = found.betas[int(best.argmax())]
    doubtful = (best > best.max() - rounding).sum() > 1 or (close & within).any()
    return float(beta), bool(doubtful)


def compare_with_counts(c, min_reduction=0.5, max_share=0.25):
    question = Betas(c.C)
    sums = plain_sums(question, c.n)
    balanced = path(c, question.numbers).score_before == 0
    if balanced or not sums[1]:
        with pytest.raises(InfeasibleError, match="balanced already"):
            choose_by_conditions(question, sums, c.K, min_reduction, max_share)
        return "balanced"
    expected, doubtful = choose_from_counts(c, min_reduction, max_share)
    if expected is None:
        with pytest.raises(InfeasibleError, match="no beta from 1 to 90"):
            choose_by_conditions(question, sums, c.K, min_reduction, max_share)
        return "nothing"
    found = choose_by_conditions(question, sums, c.K, min_reduction, max_share)
    plan = found.policy.plan(c)
    assert (found.samples, found.real) == (plan.total, c.total)
    assert found.share == pytest.approx(plan.synthetic_share)
    assert found.share < max_share
    assert abs(found.reduction - plan.reduction) <= c.K / (plan.score_before * c.total)
    if doubtful:
        return "doubtful"
    assert found.policy.beta == expected
    if found.interval is None:
        return "within the share"
    assert plan.reduction >= min_reduction - 1e-9
    return "both"


@settings(max_examples=100)
@given(counts, st.floats(0.05, 0.9), st.floats(0.05, 0.9))
def test_beta_from_the_sums_is_that_of_the_counts(c, min_reduction, max_share):
    compare_with_counts(c, min_reduction, max_share)


def test_beta_from_the_sums_on_drawn_federations():
    """Of Dirichlet federations of all sizes, with the paper's conditions and looser ones."""
    rng = np.random.default_rng(7)
    said = []
    for number in range(120):
        K, C = int(rng.integers(3, 40)), int(rng.choice([2, 3, 10, 20, 100]))
        alpha, size = rng.choice([0.02, 0.05, 0.1, 0.3, 1.0]), 10 ** rng.uniform(2, 4)
        n = [
            rng.multinomial(1 + int(size * rng.lognormal()), rng.dirichlet([alpha] * C))
            for _ in range(K)
        ]
        said.append(compare_with_counts(LabelCounts(n), *((0.5, 0.25), (0.3, 0.4))[number % 2]))
    assert said.count("both") >= 40
    assert said.count("within the share") >= 20
    assert said.count("doubtful") <= 30


def test_the_papers_federation_gets_a_beta_within_the_share(paper, tmp_path):
    """Both conditions hold from 11.4 to 13.3, where there is no number of one digit."""
    grid = federation(tmp_path, paper.n)
    found = negotiate_beta(grid, grid.get_node_ids(), classes=10)
    assert found.choice.policy == FedEAS(beta=10.0)
    assert found.choice.interval is None
    assert found.choice.samples == FedEAS(beta=10).plan(paper).total
    assert found.choice.clients == len(found.nodes) == 20
    assert found.left_out == {}
    rows = [found.choice.policy.local(row) for row in paper.n]
    np.testing.assert_array_equal(rows, FedEAS(beta=10).plan(paper).samples)
    looser = choose_by_conditions(Betas(10), plain_sums(Betas(10), paper.n), 20, 0.4, 0.3)
    assert looser.policy.beta == 10
    assert (looser.interval.low, looser.interval.high) == (9.0, 20.0)


def test_what_cannot_be_is_said():
    tiny = LabelCounts([[3, 0], [0, 3], [3, 0]])
    with pytest.raises(InfeasibleError, match="no beta from 1 to 90 satisfies both conditions"):
        choose_by_conditions(Betas(2), plain_sums(Betas(2), tiny.n), 3, max_share=0.001)
    balanced = LabelCounts([[5, 5], [3, 3], [1, 1]])
    with pytest.raises(InfeasibleError, match="every client is balanced already"):
        choose_by_conditions(Betas(2), plain_sums(Betas(2), balanced.n), 3)
    with pytest.raises(InfeasibleError, match="no client of the sum has samples"):
        choose_by_conditions(Betas(2), np.zeros(length_of(Betas(2)), np.uint64), 3)


def test_the_plainest_number_of_a_run_is_one_of_the_grid():
    """Also from an end that is such a number: 1.1 / 0.1 must not be rounded past it."""
    for x in one_digit_numbers(-3, 2):
        assert plainest_number(x, x * 1.0001) == x


@pytest.mark.parametrize("kind", [Betas, Prices])
@settings(max_examples=40)
@given(counts, st.integers(1, 10**6))
def test_what_is_chosen_for_a_total_never_exceeds_it(kind, c, total):
    question = kind(c.C)
    try:
        found = choose_within(question, plain_sums(question, c.n), c.K, total)
    except InfeasibleError:
        return
    taken = sum(int(found.policy.local(row).sum()) for row in c.n)
    assert 0 < found.samples == taken <= total
    numbers = question.numbers.tolist()
    chosen = found.policy.beta if kind is Betas else found.policy.price
    further = numbers[numbers.index(chosen) + 1 :]
    if further:  # one step further is too much
        more = question.rule(further[0])
        assert sum(int(more.local(row).sum()) for row in c.n) > total


def test_a_negotiated_price_spends_what_the_grid_allows(paper, tmp_path):
    grid = federation(tmp_path, paper.n)
    found = negotiate_price(grid, grid.get_node_ids(), classes=10, total=13437)
    assert found.choice.samples == WaterFill(price=found.choice.policy.price).plan(paper).total
    assert 10_000 < found.choice.samples <= 13437


def test_sums_of_the_most_and_largest_clients_fit():
    """The largest client there may be, as often as a sum allows, in Python's own numbers."""
    for n in ([2**40 - 1, 0, 0], [2**39, 2**39 - 1, 0]):
        for question in (Betas(3), Prices(3)):
            assert max(int(word) for word in encode_counts(question, n)) * MOST < 2**64
    with pytest.raises(RefusedError, match="too many samples"):
        encode_counts(Betas(3), [2**40, 0, 0])


def test_conditions_are_checked_before_anybody_is_asked(tmp_path):
    grid = federation(tmp_path, PRIVATE)
    nodes = grid.get_node_ids()
    for wrong in ({"min_reduction": 2.0}, {"max_share": 0.0}, {"total": -1}):
        with pytest.raises(InputError):
            negotiate_beta(grid, nodes, classes=3, **wrong)
    with pytest.raises(InputError):
        negotiate_price(grid, nodes, classes=3, total=0.5)
    assert grid.transcript == []


def test_the_program_shown_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    page = (Path(__file__).parents[1] / "docs" / "security.md").read_text()
    shown = {}
    exec(
        compile(re.search(r"```python\n(.*?)```", page, re.DOTALL)[1], "security.md", "exec"), shown
    )
    beta = shown["choose"](InlineGrid(shown["app"], 3))
    assert beta == choose_from_counts(LabelCounts([[90, 10, 0]] * 3), 0.5, 0.25)[0]


def test_secure_sums_need_no_torch():
    code = "import sys, fedeas.flower.negotiate; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-W", "ignore", "-c", code]).returncode == 0
