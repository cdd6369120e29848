"""Secure sums: equal to the plain ones, whoever drops out, and no term is seen or given away."""

import hashlib
import json
import os
import shutil
import stat
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from hypothesis import given, settings
from hypothesis import strategies as st

from fedeas import InfeasibleError, InputError
from fedeas.private.flower.secure_sum import (
    RECORD,
    SumParticipant,
    _answer,
    _begin_sum,
    _new_session,
    _read,
    answer_secure_sum,
    secure_sum,
)
from fedeas.private.secure_sum import client as client_module
from fedeas.private.secure_sum import identity as graph_module
from fedeas.private.secure_sum.client import Client
from fedeas.private.secure_sum.identity import (
    FEWEST,
    MOST,
    Graph,
    Members,
    load_identity,
    make_identity,
    mean_degree,
    quorum,
)
from fedeas.private.secure_sum.keys import (
    agree,
    identity_of,
    join,
    load_key,
    load_public,
    new_key,
    split,
)
from fedeas.private.secure_sum.memory import (
    FileStore,
    StageRecord,
    end_sums,
    open_pairs,
    open_sum,
)
from fedeas.private.secure_sum.messages import (
    AGREEMENT,
    HASH,
    KEY,
    SHARE,
    STAGES,
    NoKeysError,
    RefusedError,
    marks,
)
from fedeas.private.secure_sum.server import Run, Server
from fedeas.train.flower.backends import InlineGrid
from helpers.secure_sums import ALL_STAGES, Cohort, dropping, give_keys, identities, vectors_of

LENGTH = 5


@st.composite
def cohorts(draw, most):
    clients = draw(st.one_of(st.integers(3, 8), st.integers(3, most)))
    # Many drop out, or some, or few: of many clients too few are left otherwise.
    fates = st.sampled_from([None] * draw(st.sampled_from([3, 12, 48])) + list(ALL_STAGES))
    stages = draw(st.lists(fates, min_size=clients, max_size=clients))
    gone = {stage: {k for k, s in enumerate(stages) if s == stage} for stage in ALL_STAGES}
    return clients, gone, draw(st.integers(0, 2**32))


def check_sum(clients, gone, seed, who=None):
    """The sum is that of who stayed until their words came, or there are too few."""
    cohort = Cohort(vectors_of(clients, seed), change=dropping(gone), who=who)
    if clients - sum(map(len, gone.values())) < quorum(clients):
        with pytest.raises(InfeasibleError, match="too few clients"):
            cohort.run()
        return
    total, nodes = cohort.run()
    left = set().union(*(gone[stage] for stage in ("keys", "meet", "shares", "masked")))
    assert nodes == [10 + k for k in range(clients) if k not in left]
    np.testing.assert_array_equal(total, cohort.plain(nodes))


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
    gone = {stage: set(range(i * few, (i + 1) * few)) for i, stage in enumerate(ALL_STAGES)}
    check_sum(clients, gone, clients)


@pytest.mark.slow
def test_a_thousand_clients_with_dropouts_at_every_stage():
    gone = {stage: set(range(40 * i, 40 * i + 40)) for i, stage in enumerate(ALL_STAGES)}
    check_sum(1000, gone, 1)


@given(st.binary(min_size=32, max_size=32), st.integers(1, 12), st.data())
def test_a_threshold_of_shares_is_the_secret_and_fewer_are_not(secret, parties, data):
    threshold = data.draw(st.integers(1, parties))
    order = data.draw(st.permutations(range(0, 3 * parties, 3)))
    shares = split(secret, order, threshold)
    assert all(len(share) == SHARE for share in shares.values())
    assert join({k: shares[k] for k in order[:threshold]}) == secret
    assert join(shares) == secret
    if threshold > 1:
        assert join({k: shares[k] for k in order[: threshold - 1]}) != secret


def test_shares_refuse_what_cannot_be_shared():
    for secret, parties, threshold in ((b"short", 3, 2), (bytes(32), 3, 4), (bytes(32), 3, 0)):
        with pytest.raises(InputError):
            split(secret, range(parties), threshold)


# Who shares masks with whom.


@pytest.fixture
def sparse(monkeypatch):
    """Neighbours are few from ten members on, so that small federations are sparse too."""
    graph_module._holders.cache_clear()
    monkeypatch.setattr(graph_module, "mean_degree", lambda n: min(n - 1, 24))
    yield
    graph_module._holders.cache_clear()


@pytest.mark.usefixtures("sparse")
def test_sums_over_a_sparse_graph_are_the_plain_sums():
    who = identities(60)
    assert not who[0].members.graph.complete
    for seed, gone in enumerate(({}, {"shares": {1, 2}, "masked": {3, 4, 5}, "agree": {6, 7}})):
        check_sum(60, {stage: gone.get(stage, set()) for stage in ALL_STAGES}, seed, who)


def test_a_third_may_be_gone_from_a_sparse_graph_too(monkeypatch):
    """Some clients then have fewer neighbours left than a quorum of them."""
    graph_module._holders.cache_clear()
    monkeypatch.setattr(graph_module, "mean_degree", lambda n: min(n - 1, 60))
    gone = np.random.default_rng(0).choice(80, 80 - quorum(80), replace=False)
    check_sum(80, {stage: set(gone) if stage == "masked" else set() for stage in ALL_STAGES}, 0)
    graph_module._holders.cache_clear()


def test_neighbours_are_neighbours_of_each_other_and_nobody_chooses_them():
    graph = Graph(1000, os.urandom(32))
    near = [set(graph.neighbours(k)) for k in range(1000)]
    assert all(k in near[j] for k in range(1000) for j in near[k])
    assert all(k not in near[k] for k in range(1000))
    degrees = np.array([len(n) for n in near])
    assert abs(degrees.mean() - mean_degree(1000)) < 5
    assert degrees.min() > 120
    other = Graph(1000, os.urandom(32))  # another list of members
    assert len(near[0] & set(other.neighbours(0))) < 90
    assert Graph(100, bytes(32)).neighbours(7) == tuple(k for k in range(100) if k != 7)


def test_a_client_has_few_more_neighbours_in_a_larger_federation():
    assert [mean_degree(n) for n in (100, 1000, 5000)] == [99, 200, 260]
    for n in range(FEWEST, MOST, 97):
        assert mean_degree(n) <= min(n - 1, 20 * np.ceil(np.log2(n)))


# Who the members are.


def test_members_are_the_same_list_in_any_order(tmp_path):
    keys = {f"site {k}": identity_of(make_identity(tmp_path / str(k))) for k in range(4)}
    members = Members.of(keys)
    turned = Members.of(dict(reversed(keys.items())))
    assert members.fingerprint == turned.fingerprint
    assert len(members.fingerprint) == 39
    (tmp_path / "members.toml").write_text(members.to_toml())
    assert Members.load(tmp_path / "members.toml") == members
    # Everything in the list is in the fingerprint.
    others = [Members.of(keys, colluding=0), Members.of(dict(list(keys.items())[:3]))]
    named = {("north" if n == "site 0" else n): k for n, k in keys.items()}
    found = {m.fingerprint for m in [members, *others, Members.of(named)]}
    assert len(found) == 4


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("", "not a list of members"),
        ("members = 3", "not a list of members"),
        ("[members]\na = 'x'\n", "key of a is not a public key"),
        ("[members]\na = 5\n", "key of a is not a public key"),
        ("[members]\na = '{0}'\nb = '{1}'\n", "too few or too many members"),
        ("[members]\na = '{0}'\nb = '{0}'\nc = '{1}'\n", "a name and a key of its own"),
        ("colluding = 3\n[members]\na = '{0}'\nb = '{1}'\nc = '{2}'\n", "colluding out of range"),
        (
            "colluding = 2\n[members]\na = '{0}'\nb = '{1}'\nc = '{2}'\nd = '{3}'\n",
            "colluding out of range",
        ),
        ("colluding = 'no'\n[members]\na = '{0}'\nb = '{1}'\nc = '{2}'\n", "not a whole number"),
        ("threshold = 2\n[members]\na = '{0}'\nb = '{1}'\nc = '{2}'\n", "not a list of members"),
    ],
)
def test_a_list_that_cannot_be_is_refused(tmp_path, content, why):
    keys = [os.urandom(32).hex() for _ in range(4)]
    (tmp_path / "members.toml").write_text(content.format(*keys))
    with pytest.raises(InputError, match=why):
        Members.load(tmp_path / "members.toml")


def test_a_private_key_is_its_owners_alone(tmp_path):
    path = tmp_path / "identity.key"
    private = make_identity(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert load_identity(path) == private
    with pytest.raises(InputError, match="exists already"):
        make_identity(path)
    path.chmod(0o644)
    with pytest.raises(InputError, match="others can read the private key"):
        load_identity(path)
    with pytest.raises(InputError, match="new-key"):
        load_identity(tmp_path / "none")
    path.chmod(0o600)
    path.write_text("something else")
    with pytest.raises(InputError, match="is not a private key"):
        load_identity(path)


# What a server may try: see also test_attacks_sum.py.


@pytest.mark.parametrize("stage", ALL_STAGES)
def test_a_message_that_is_run_twice_has_the_same_reply(stage):
    cohort = Cohort(vectors_of(4)).reach(stage)
    for node, request in cohort.requests.items():
        first = cohort.answer(stage, node, request)
        cohort.vectors[node] = cohort.vectors[node] + np.uint64(1)  # what it has changed meanwhile
        assert cohort.answer(stage, node, request) == first


def test_bad_requests_are_refused_before_anything_is_said():
    cohort = Cohort(vectors_of(5)).reach("meet")
    good = cohort.requests[10]
    who, keys = good[:5], good[5:]
    for bad in (b"", who, good[:-1], good + b"\0", b"\2" + good[1:], marks([0, 1], 5) + keys,
                marks([1, 2, 3, 4], 5) + keys[len(keys) // 5 :],
                who + keys[: len(keys) // 5] + keys[: len(keys) * 4 // 5]):  # fmt: skip
        with pytest.raises(RefusedError):
            cohort.answer("meet", 10, bad)
    with pytest.raises(NoKeysError):
        cohort.pairs[10].of_sum(0)
    cohort = Cohort(vectors_of(5)).reach("masked")
    good = cohort.requests[10]
    who, sealed = good[:5], good[5:]
    for bad in (b"", who, good[:-1], good + b"\0", b"\2" + good[1:], marks([0, 1], 5) + sealed,
                marks([1, 2, 3, 4], 5) + sealed[: len(sealed) * 4 // 5],
                who + bytes(len(sealed))):  # fmt: skip
        with pytest.raises(RefusedError):
            cohort.answer("masked", 10, bad)
    assert cohort.memories[10].recall("masked") is None
    cohort = Cohort(vectors_of(5), change=dropping({"shares": {4}})).reach("agree")
    good = cohort.requests[10]
    for bad in (b"", bytes(5), marks([0, 1, 2], 5), marks([1, 2, 3], 5), marks(range(5), 5),
                marks(range(4), 6), b"\1" * 4 + b"\2", good[:-1], good + b"\0",
                good[:5] + bytes(len(good) - 5)):  # fmt: skip
        with pytest.raises(RefusedError):
            cohort.answer("agree", 10, bad)
    assert cohort.memories[10].recall("agree") is None


def test_stages_come_in_order():
    cohort = Cohort(vectors_of(3))
    with pytest.raises(NoKeysError):
        cohort.answer("meet", 10, b"")
    cohort.reach("shares")
    for stage in STAGES[1:]:
        with pytest.raises(RefusedError, match="has not taken place"):
            cohort.answer(stage, 10, bytes(3) if stage == "agree" else b"")


def test_a_key_of_low_order_is_refused_by_whoever_uses_it():
    with pytest.raises(RefusedError, match="low order"):
        agree(load_key(new_key()), load_public(bytes(32)))


# What a client may try.


@given(
    st.sampled_from(ALL_STAGES),
    st.sampled_from(["empty", "short", "long", "noise", "zeros", "text", "none", "number", "flip"]),
    st.integers(0, 6),
    st.randoms(use_true_random=False),
)
def test_a_hostile_reply_never_leads_to_a_wrong_sum(at, kind, who, random):
    flipped = []

    def change(stage, node, reply):
        if stage != at or node != 10 + who:
            return reply
        place = random.randrange(len(reply))
        flipped.append(place)
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
    if (at, kind) == ("masked", "flip") and 10 + who in nodes:
        in_words = flipped[0] < 8 * LENGTH  # or in a tag, for which one neighbour refuses
        assert ((total - cohort.plain(nodes)) != 0).sum() == in_words
        assert len(cohort.refused) == (not in_words)
    else:
        np.testing.assert_array_equal(total, cohort.plain(nodes))
    if kind in ("empty", "short", "long", "text", "number"):
        assert cohort.server.left_out[10 + who].startswith(at)


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
            return reply[:KEY] + bytes(HASH) + reply[KEY + HASH :]
        return reply

    with pytest.raises(InfeasibleError, match=r"member site-\d shared something other"):
        Cohort(vectors_of(7), change=change).run()


def test_strangers_copies_and_unsigned_keys_are_left_out():
    cohort = Cohort(vectors_of(12))
    replies = cohort.ask("keys")
    replies[11] = replies[10]  # which of the two it is, nobody can tell
    stranger = Cohort(vectors_of(3)).ask("keys")[10]
    replies[12] = replies[12][: 2 * KEY] + bytes(64)
    run = cohort.run_server
    requests = run.roster([*replies.items(), (99, stranger)])
    assert sorted(requests) == list(range(13, 22))
    assert sorted(run.left_out) == [10, 11, 12, 99]
    assert "not a member of the federation" in run.left_out[99]
    # Its owner compares the list: the text says whose, and with what.
    assert cohort.members.fingerprint in run.left_out[12]
    assert f"member {cohort.members.names[2]} " in run.left_out[12]


def test_nobody_keeps_a_member_out_by_its_public_identity():
    """Everybody has the list: a copy of an identity that is not signed takes nobody's place."""
    cohort = Cohort(vectors_of(5))
    replies = cohort.ask("keys")
    replies[99] = cohort.members.keys[0] + bytes(range(96))
    requests = cohort.run_server.roster(replies.items())
    assert sorted(requests) == [10, 11, 12, 13, 14]
    assert "is not signed for this run" in cohort.run_server.left_out.pop(99)
    assert not cohort.run_server.left_out


def test_too_few_clients_are_named_and_waiting_is_advised_only_where_somebody_is_silent():
    """An honest operator who asks again spends the others' budgets."""

    def failed(left_out):
        server = Run(identities(4)[0].members)
        server.left_out |= left_out
        with pytest.raises(InfeasibleError) as failure:
            server.roster([])
        return server, failure.value

    server, refused = failed({10: "keys: the site refuses", 12: "keys: the site refuses"})
    assert "node 10, node 12: keys: the site refuses" in str(refused)
    assert all(name in str(refused) for name in server._members.names)  # whose keys did not come
    assert "wait longer" not in refused.fix
    for others in ({}, {10: "keys: the site refuses", 11: "keys: no reply in time"}):
        assert "wait longer" in failed(others)[1].fix


def test_replies_of_clients_that_were_not_asked_do_not_count():
    cohort = Cohort(vectors_of(6), change=dropping({"masked": {5}})).reach("unmask")
    replies = cohort.ask("unmask") | {15: bytes(SHARE * 6), 99: bytes(SHARE * 6)}
    total, nodes = cohort.server.total(replies.items())
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


def test_a_sum_that_is_over_leaves_nothing_and_does_not_begin_again(tmp_path):
    pairs = give_keys("a run", identities(3)[0], open_pairs(tmp_path, "a run", begin=True))

    def begin(session, number=0):
        client = Client(session, number, pairs, open_sum(tmp_path, session))
        return client.shares(lambda: np.arange(3, dtype=np.uint64))

    first = begin("first")
    secret = open_sum(tmp_path, "first").recall("shares").secret
    end_sums(tmp_path, but="first")
    assert begin("first") == first  # its own sum goes on
    end_sums(tmp_path, but="second")
    held = b"".join(p.read_bytes() for p in tmp_path.rglob("*") if p.is_file())
    assert all(secret[i : i + 32] not in held for i in range(0, 64, 32))
    for session in ("first", "second"):  # of a number there is one sum
        with pytest.raises(RefusedError, match="is over"):
            begin(session)
    assert begin("second", number=1)


def test_a_record_that_is_removed_half_way_answers_nothing(tmp_path, monkeypatch):
    """Else a client whose `masked` is gone and whose `shares` is not would give two answers."""
    pairs = give_keys("a run", identities(3)[0], open_pairs(tmp_path, "a run", begin=True))
    client = Client("first", 0, pairs, open_sum(tmp_path, "first"))
    client.shares(lambda: np.zeros(3, np.uint64))

    def cut(*path, **ignored):
        raise KeyboardInterrupt  # the process is gone before the first file is

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", cut)
        with pytest.raises(KeyboardInterrupt):
            end_sums(tmp_path, but="second")
    assert open_sum(tmp_path, "first").recall("shares") is None
    end_sums(tmp_path)
    assert not list(tmp_path.glob(".*"))  # the rest goes with the next sum

    # The same of the keys of a run that is over.
    for number in range(1, 4):
        open_pairs(tmp_path, f"run {number}", begin=True)
    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", cut)
        with pytest.raises(KeyboardInterrupt):
            open_pairs(tmp_path, "run 4", begin=True)
    with pytest.raises(RefusedError, match="over"):
        open_pairs(tmp_path, "a run", begin=True)
    with pytest.raises(NoKeysError):
        open_pairs(tmp_path, "a run")


def test_a_sum_of_an_unknown_run_does_not_end_the_one_under_way(tmp_path):
    words = vectors_of(3, length=4)
    site = SumParticipant(identities(3)[0], lambda asked: words[0], tmp_path)
    pairs = give_keys("a run", site.identity, open_pairs(tmp_path, "a run", begin=True))
    client = Client("first", 0, pairs, open_sum(tmp_path, "first"))
    client.shares(lambda: words[0])
    unknown = json.dumps({"asked": "x", "words": 4, "run": "no such run", "number": 0})
    assert _begin_sum(unknown, site) == b""
    assert open_sum(tmp_path, "first").recall("shares") is not None
    known = json.dumps({"asked": "x", "words": 4, "run": "a run", "number": 1})
    assert _begin_sum(known, site)
    assert open_sum(tmp_path, "first").recall("shares") is None


def test_no_site_answers_a_stage_twice_while_its_record_is_removed(tmp_path):
    """A server asks for masked words twice, with other lists, and has the record go in between.

    The slower process read that nothing was answered. While it is at work, the faster one answers,
    another sum of the run begins, and a message about the first one comes late. Two answers
    would be the same words under masks whose difference is another site's words. The control is the
    answer of the faster one.
    """
    who, words = identities(4), vectors_of(4, length=4)
    folders, racing, answers = [tmp_path / str(k) for k in range(4)], [], {}

    def send(k, stage, session, content, release=lambda asked, key: None):
        site = SumParticipant(who[k], lambda asked: words[k], folders[k], release)
        body = {"session": session, "content": content}
        message = SimpleNamespace(content=RecordDict({RECORD: ConfigRecord(body)}))
        return _answer(stage, message, site)

    run = Run(who[0].members)
    asked = run.roster([(10 + k, send(k, "keys", run.name, b"")) for k in range(4)])
    run.met([(node, send(node - 10, "meet", run.name, c)) for node, c in asked.items()])
    first, following = (_new_session(name, 4, run) for name in ("first", "next"))
    shares = [(10 + k, send(k, "shares", first, b"")) for k in range(4)]
    all_four = Server(first, 0, 4, run).deliver(shares)
    without = Server(first, 0, 4, run).deliver([said for said in shares if said[0] != 10])

    def race(asked, key):
        racing.append(key)
        if len(racing) > 1:
            return
        answers["fast"] = send(3, "masked", first, all_four[13], race)
        with pytest.raises(RefusedError, match="over"):  # one that is refused removes nothing
            send(3, "shares", first.replace('"first"', '"other"'), b"")
        assert open_sum(folders[3], first).recall("masked") is not None
        send(3, "shares", following, b"")
        with pytest.raises(RefusedError):
            send(3, "agree", first, b"")
        assert not (folders[3] / hashlib.sha256(first.encode()).hexdigest()).exists()

    with pytest.raises(RefusedError, match="over"):
        answers["slow"] = send(3, "masked", first, without[13], race)
    assert list(answers) == ["fast"] and len(set(racing)) == 1


def test_what_was_removed_of_a_sum_does_not_come_back(tmp_path, monkeypatch):
    """A process that forgets a stage, or began the sum too, is slower than what removes it."""
    pairs = give_keys("a run", identities(3)[0], open_pairs(tmp_path, "a run", begin=True))
    zeros, own = np.zeros(3, np.uint64), open_sum(tmp_path, "first")
    client, answers = Client("first", 0, pairs, own), []
    has, write = FileStore.has, FileStore._write

    def remove_after(self, stage):
        there = has(self, stage)
        if there:
            end_sums(tmp_path)
        return there

    def words():
        answers.append(client.shares(lambda: zeros))  # the other process is faster
        monkeypatch.setattr(FileStore, "has", remove_after)
        return zeros

    with pytest.raises(RefusedError):  # the slower one's key and shares would be a second answer
        client.shares(words)
    monkeypatch.setattr(FileStore, "has", has)
    assert len(answers) == 1 and own.recall("shares") is None
    following = open_sum(tmp_path, "next")
    assert Client("next", 1, pairs, following).shares(lambda: zeros)
    removed = []

    def remove_before(self, said, sync=False):
        removed.append(end_sums(tmp_path))
        return write(self, said, sync)

    monkeypatch.setattr(FileStore, "_write", remove_before)
    following.forget("shares")
    monkeypatch.setattr(FileStore, "_write", write)
    assert removed and following.recall("shares") is None


def test_requests_that_no_sum_begins_with_leave_nothing_on_disk(tmp_path):
    """A server could fill the disk with them. The control is one that does begin."""
    site = SumParticipant(identities(3)[0], lambda asked: np.zeros(4, np.uint64), tmp_path)
    pairs = give_keys("a run", site.identity, open_pairs(tmp_path, "a run", begin=True))
    before = set(tmp_path.iterdir())
    for run, number in (("no such run", 0), ("a run", 2000)):
        named = {"asked": "x", "words": 4, "run": run, "number": number}
        assert _begin_sum(json.dumps(named), site) == b""
    with pytest.raises(RefusedError):
        Client("late", 0, pairs, open_sum(tmp_path, "late")).masked(b"")
    assert set(tmp_path.iterdir()) == before
    assert _begin_sum(json.dumps({**named, "number": 0}), site)
    assert len(set(tmp_path.iterdir()) - before) == 1


def test_that_a_sum_began_is_on_disk_before_its_record(tmp_path):
    """After a power cut, or a kill, a sum may be missed; it is not answered twice."""
    pairs = give_keys("a run", identities(3)[0], open_pairs(tmp_path, "a run", begin=True))

    class Killed(FileStore):
        def keep(self, stage, said):
            raise KeyboardInterrupt

    words = lambda: np.zeros(3, np.uint64)  # noqa: E731
    for kind in (Killed, FileStore):
        with pytest.raises((KeyboardInterrupt, RefusedError)) as stopped:
            Client("first", 0, pairs, kind(tmp_path / "sum")).shares(words)
    assert "is over" in str(stopped.value)
    assert Client("next", 1, pairs, open_sum(tmp_path, "next")).shares(words)


def test_two_processes_that_begin_a_sum_give_one_answer(tmp_path):
    pairs = give_keys("a run", identities(3)[0], open_pairs(tmp_path, "a run", begin=True))
    zeros = np.zeros(3, np.uint64)
    client = Client("first", 0, pairs, open_sum(tmp_path, "first"))
    first = []

    def words():
        first.append(client.shares(lambda: zeros))  # the other process is faster
        return zeros

    assert client.shares(words) == first[0]


def test_what_a_site_keeps_of_sums_that_are_over_does_not_grow(tmp_path):
    made = federation(tmp_path, vectors_of(3, length=4))
    files = []
    for _ in range(4):
        sums(made)
        files.append(len(list(tmp_path.rglob("*"))))
    assert len(set(files)) == 1


# Over Flower's messages.


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


def federation(tmp_path, words, change=None):
    """A grid whose clients hold these words, and the members; `change` wraps an app's replies."""
    who = identities(len(words))

    def site(context):
        k = int(context.node_config["partition-id"])
        return SumParticipant(who[k], lambda asked: words[k], tmp_path / str(k))

    app = ClientApp()
    answer_secure_sum(app, site)
    return Recording(change(app) if change else app, len(words)), who[0].members


def sums(made, length=4):
    grid, members = made
    return secure_sum(grid, grid.get_node_ids(), "anything", length, members, timeout=60)


def test_nothing_that_reaches_the_server_holds_a_word(tmp_path, monkeypatch):
    words = vectors_of(4, length=400) >> np.uint64(30)

    def seen(grid):
        heard = b"".join(content for kind, content in grid.transcript)
        held = set(words.ravel().tolist())
        found = []
        for start in range(8):
            eights = np.frombuffer(heard[start : start + (len(heard) - start) // 8 * 8], "<u8")
            found += [x for x in eights.tolist() if x in held]
        return found

    made = federation(tmp_path / "masked", words)
    np.testing.assert_array_equal(sums(made, 400).words, words.sum(axis=0))
    assert len(made[0].transcript) == 24
    assert not seen(made[0])
    # The same search finds all of them where nothing is masked.
    monkeypatch.setattr(client_module, "add_mask", lambda *a: None)
    monkeypatch.setattr(client_module, "add_pair_mask", lambda *a: None)
    bare = federation(tmp_path / "bare", words)
    with pytest.raises(InfeasibleError, match="do not cancel"):
        sums(bare, 400)
    assert len(seen(bare[0])) >= 1600


def test_clients_of_the_same_words_send_nothing_in_common(tmp_path):
    made = federation(tmp_path, np.ones((3, 4), np.uint64))
    sums(made)
    masked = [np.frombuffer(c, "<u8") for kind, c in made[0].transcript if kind.endswith("masked")]
    assert len(masked) == 3
    assert not (masked[0] == masked[1]).any()
    assert not (masked[1] == masked[2]).any()


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


@pytest.mark.parametrize("stage", ALL_STAGES)
@pytest.mark.parametrize("kind", odd_replies())
def test_a_client_with_an_odd_reply_is_left_out(tmp_path, stage, kind):
    words = vectors_of(5, length=4)

    def change(app):
        def act(message, context):
            if context.node_id == 3 and message.metadata.message_type == f"query.secure_{stage}":
                return Message(odd_replies()[kind], reply_to=message)
            return app(message, context)

        return act

    found = sums(federation(tmp_path, words, change))
    stays = [0, 1, 2, 3, 4] if stage in ("agree", "unmask") else [0, 2, 3, 4]
    assert found.nodes == [2 + k for k in stays]
    np.testing.assert_array_equal(found.words, words[stays].sum(axis=0, dtype=np.uint64))
    assert found.left_out[3].startswith(stage)


def test_words_of_another_form_are_not_added(tmp_path):
    for k, bad in enumerate(
        (np.arange(5, dtype=np.uint64), np.arange(4.0), np.zeros((2, 2), np.uint64), "text")
    ):
        with pytest.raises(InfeasibleError, match="too few"):
            sums(federation(tmp_path / str(k), [bad] * 3))


def test_a_client_whose_folder_is_gone_counts_as_dropped_out(tmp_path):
    def change(app):
        def act(message, context):
            if context.node_id == 2 and message.metadata.message_type == "query.secure_masked":
                end_sums(tmp_path / "0")
            return app(message, context)

        return act

    words = vectors_of(5, length=4)
    found = sums(federation(tmp_path, words, change))
    assert found.nodes == [3, 4, 5, 6]
    np.testing.assert_array_equal(found.words, words[1:].sum(axis=0, dtype=np.uint64))


def test_no_secret_of_a_sum_is_left_on_the_disk(tmp_path):
    made = federation(tmp_path, vectors_of(4, length=4))
    sums(made)
    secrets = []
    for k in range(4):
        folder = next(p for p in (tmp_path / str(k)).iterdir() if p.name != "pairs")
        for stage in STAGES[:-1]:
            assert FileStore(folder).recall(stage).secret == b""
            secrets.append(FileStore(folder).recall(stage).reply)
    assert not any(secrets)


def kinds_of(grid):
    """Return the messages that were answered since the last time, and how often."""
    counts = Counter(kind.removeprefix("query.secure_") for kind, _ in grid.transcript)
    grid.transcript.clear()
    return dict(counts)


def test_sums_over_a_grid_agree_on_keys_once(tmp_path):
    words = vectors_of(4, length=4)
    grid, members = made = federation(tmp_path, words)
    for number in range(3):
        np.testing.assert_array_equal(sums(made).words, words.sum(axis=0, dtype=np.uint64))
        first = AGREEMENT if number == 0 else ()
        assert kinds_of(grid) == dict.fromkeys((*first, *STAGES), 4)
    # Another list of members, another run.
    other = Members(members.names, members.keys, colluding=0)
    with pytest.raises(InfeasibleError, match="this list of members"):
        sums((grid, other))


@pytest.fixture
def clock(monkeypatch):
    """The server's clock goes on only while it waits: a slow machine never makes a client late."""
    now = [0.0]

    def sleep(seconds):
        now[0] += seconds

    idle = SimpleNamespace(monotonic=lambda: now[0], sleep=sleep)
    monkeypatch.setattr("fedeas.train.flower.exchange.time", idle)


@pytest.mark.parametrize("stage", ["keys", "meet"])
def test_a_client_that_comes_late_is_in_the_next_sum(tmp_path, clock, stage):
    words, gone = vectors_of(5, length=4), [3]

    class Late(Recording):
        def pull_messages(self, names):
            replies = super().pull_messages(names)
            return [r for r in replies if not self.silent(r)]

        def silent(self, reply):
            asked = reply.metadata.message_type == f"query.secure_{stage}"
            return asked and reply.metadata.src_node_id in gone

    made = federation(tmp_path, words)
    grid = Late(made[0]._app, 5)
    ask = lambda: secure_sum(grid, grid.get_node_ids(), "x", 4, made[1], timeout=60)  # noqa: E731
    found = ask()
    assert found.nodes == [2, 4, 5, 6]
    assert found.left_out[3] == f"{stage}: no reply in time"
    gone.clear()
    assert ask().nodes == [2, 3, 4, 5, 6]


def test_a_client_that_stays_silent_does_not_cost_keys_at_every_sum(tmp_path, clock):
    words, gone = vectors_of(5, length=4), [3]

    class Silent(Recording):
        def pull_messages(self, names):
            replies = super().pull_messages(names)
            return [r for r in replies if r.metadata.src_node_id not in gone]

    made = federation(tmp_path, words)
    grid = Silent(made[0]._app, 5)
    ask = lambda: secure_sum(grid, grid.get_node_ids(), "x", 4, made[1], timeout=60)  # noqa: E731
    agreements = []
    for _ in range(4):
        assert ask().nodes == [2, 4, 5, 6]
        agreements.append("keys" in kinds_of(grid))
    assert agreements == [True, True, False, False]
    # It is asked again when others need keys.
    gone.clear()
    shutil.rmtree(tmp_path / "4")
    with pytest.raises(InfeasibleError, match="lost its keys"):
        ask()
    assert ask().nodes == [2, 3, 4, 5, 6]


@pytest.mark.parametrize("stage", AGREEMENT)
@pytest.mark.parametrize("failures", [1, 2])
def test_an_error_at_the_agreement_of_keys_is_asked_again_once(tmp_path, stage, failures):
    left = [failures]

    def change(app):
        def act(message, context):
            kind = message.metadata.message_type
            if context.node_id == 3 and kind == f"query.secure_{stage}" and left[0]:
                left[0] -= 1
                app(message, context)  # its key is drawn, and the reply is lost
                raise OSError("disk full")
            return app(message, context)

        return act

    words = vectors_of(5, length=4)
    made = federation(tmp_path, words, change)
    stays = [0, 1, 2, 3, 4] if failures == 1 else [0, 2, 3, 4]
    for _ in range(2):
        found = sums(made)
        assert found.nodes == [2 + k for k in stays]
        np.testing.assert_array_equal(found.words, words[stays].sum(axis=0, dtype=np.uint64))


def test_a_client_that_lost_its_keys_is_in_the_sum_after_the_next(tmp_path):
    words = vectors_of(5, length=4)
    made = federation(tmp_path, words)
    sums(made)
    shutil.rmtree(tmp_path / "1")
    found = sums(made)
    assert found.nodes == [2, 4, 5, 6]
    assert "lost its keys" in found.left_out[3]
    np.testing.assert_array_equal(found.words, words[[0, 2, 3, 4]].sum(axis=0, dtype=np.uint64))
    assert sums(made).nodes == [2, 3, 4, 5, 6]


@pytest.mark.parametrize(
    "change",
    [{"run": 1}, {"number": -1}, {"number": 2**32}, {"number": True}, {"number": "0"},
     {"words": 0}, {"words": 2**24}],
)  # fmt: skip
def test_a_name_of_a_sum_that_cannot_be_is_refused(change):
    named = {"asked": "x", "words": 4, "run": "r", "number": 0, "sum": "1"}
    assert _read(json.dumps(named)).number == 0
    with pytest.raises(RefusedError, match="malformed"):
        _read(json.dumps(named | change))


def test_secure_sums_need_no_torch():
    code = "import sys, fedeas.private.flower.secure_sum; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-W", "ignore", "-c", code]).returncode == 0
