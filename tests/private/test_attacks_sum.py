"""A server that cheats at a secure sum reads nothing, and is told why it is refused.

Every attack is run twice: against today's client, and against one from which the check that stops
it was taken out, which shows that the attack itself works.
"""

from pathlib import Path

import numpy as np
import pytest
from flwr.app import Context, Message
from scipy import stats
from scipy.special import gammaln

from fedeas import InfeasibleError, InputError
from fedeas.private.flower.secure_sum import SumParticipant, answer_secure_sum, secure_sum
from fedeas.private.secure_sum import client as client_module
from fedeas.private.secure_sum import identity as graph_module
from fedeas.private.secure_sum import memory as memory_module
from fedeas.private.secure_sum import pairs as pairs_module
from fedeas.private.secure_sum.client import Client, _ClientState, agreement, shared_by
from fedeas.private.secure_sum.identity import Identity, Members, mean_degree, quorum
from fedeas.private.secure_sum.keys import (
    add_mask,
    add_pair_mask,
    agree,
    join,
    load_key,
    load_public,
    new_key,
    public_key,
    purpose,
    sealing_key,
    sign,
    tag,
    unseal,
)
from fedeas.private.secure_sum.memory import FileStore, end_sums, open_pairs, open_sum
from fedeas.private.secure_sum.messages import (
    DEALT,
    DELIVERED,
    HASH,
    KEY,
    SHARE,
    SIGNED_KEY,
    TAG,
    NoKeysError,
    RefusedError,
    marks,
    pieces,
)
from fedeas.private.secure_sum.pairs import MOST_SKIPPED, PairKeys, signed_key
from fedeas.private.secure_sum.server import Server
from fedeas.train.flower.backends import InlineGrid
from fedeas.train.flower.deployed import RefusalLog, _SiteApp
from helpers.secure_sums import Cohort, Held, give_keys, identities, vectors_of

SESSION = "a sum"


def stories(n: int, colluders: int) -> dict[int, set[int]] | None:
    """Say whom each honest client is told to have dropped out; None where shares cannot suffice.

    Client 0 is the victim, the next ones collude, the ones after them are said to have vanished.
    """
    threshold = quorum(n)
    vanished = range(1 + colluders, threshold)
    needed = dict.fromkeys(vanished, threshold - colluders)
    told: dict[int, set[int]] = {k: set() for k in range(1 + colluders, n)}
    for k in sorted(told, key=lambda k: k not in needed):
        room = n - threshold
        for p in sorted((p for p in needed if p != k), key=lambda p: -needed[p]):
            if room and needed[p] > 0:
                told[k].add(p)
                needed[p] -= 1
                room -= 1
    return told if all(more <= 0 for more in needed.values()) else None


def words_of(masked: bytes, length: int = 5) -> np.ndarray:
    """Return masked words, the count of clients among them, without what follows."""
    return np.frombuffer(masked[: 8 * length], "<u8").astype(np.uint64)


def own_secrets(cohort: Cohort, k: int) -> _ClientState:
    return _ClientState.read(cohort.memories[10 + k].recall("shares").secret)


def take_off_pairs(cohort: Cohort, total: np.ndarray, keys: dict[int, bytes], bound: bytes) -> None:
    """Take the masks of client 0 with these off its words, given their private keys."""
    public = public_key(own_secrets(cohort, 0).mask)
    for k, key in keys.items():
        add_pair_mask(total, agree(load_key(key), load_public(public)), k, 0, bound)


class TwoStories:
    """A server that tells every client another list of survivors, with some of them on its side."""

    def __init__(self, n: int, colluders: int, words: np.ndarray) -> None:
        self.n, self.threshold = n, quorum(n)
        self.told = stories(n, colluders)
        assert self.told is not None
        self.friends, self.vanished = range(1, 1 + colluders), range(1 + colluders, self.threshold)
        self.cohort = Cohort(words, SESSION).reach("shares")
        self.session = self.cohort.clients[10]._session
        replies = {node - 10: reply for node, reply in self.cohort.ask("shares").items()}
        self.keys = {k: reply[:KEY] for k, reply in replies.items()}
        self.dealt = {k: pieces(reply[KEY + HASH :], DEALT) for k, reply in replies.items()}
        self.everyone = marks(range(n), n)

    def mask(self, k: int, shared: list[int]) -> bytes:
        sealed = b"".join(self.keys[m] + self.dealt[m][k][2 * HASH :] for m in shared)
        return self.cohort.answer("masked", 10 + k, marks(shared, self.n) + sealed)

    def run(self) -> np.ndarray:
        """Return the victim's words."""
        victims_view = [0, *self.friends, *self.vanished]
        total = words_of(self.mask(0, victims_view))
        for k in (*self.told, *self.friends):
            self.mask(k, list(range(self.n)))
        seeds, masks = self.opened_by_friends()
        tags = self.tags()
        for k, gone in self.told.items():
            survivors = marks(set(range(self.n)) - gone, self.n)
            request = self.told_by_many(k, survivors, tags)
            revealed = pieces(self.cohort.answer("unmask", 10 + k, request), SHARE)
            seeds[k] = revealed[0]
            for p in gone:
                masks[p][k] = revealed[p]
        bound = shared_by(self.session, marks(victims_view, self.n))
        add_mask(total, self.joined(seeds), purpose(bound, 0), -1)
        private = {k: own_secrets(self.cohort, k).mask for k in self.friends}
        private |= {p: self.joined(shares) for p, shares in masks.items()}
        take_off_pairs(self.cohort, total, private, bound)
        return total[:-1]

    def opened_by_friends(self) -> tuple[dict[int, bytes], dict[int, dict[int, bytes]]]:
        """Have every colluder open what it was dealt."""
        seeds: dict[int, bytes] = {}
        masks: dict[int, dict[int, bytes]] = {p: {} for p in self.vanished}
        for k in self.friends:
            client = self.cohort.clients[10 + k]
            for member in (0, *self.vanished):
                about = client._sealed(self.keys[member], member, k)
                key = sealing_key(client._keys()[member], about)
                shares = unseal(key, self.dealt[member][k][2 * HASH :])
                if member == 0:
                    seeds[k] = shares[:SHARE]
                else:
                    masks[member][k] = shares[SHARE:]
        return seeds, masks

    def tags(self) -> dict[int, list[bytes]]:
        """Every honest client agrees to the story that it was told, the victim too."""
        stays = {k: set(range(self.n)) - gone for k, gone in self.told.items()}
        stays[0] = {0, *self.friends, *self.vanished}
        return {
            k: pieces(self.cohort.answer("agree", 10 + k, self.cohort.survivors(k, who)), TAG)
            for k, who in stays.items()
        }

    def told_by_many(self, to: int, survivors: bytes, tags: dict[int, list[bytes]]) -> bytes:
        """Pass on as many tags as are needed; friends agree to whatever they are asked to."""
        content = agreement(self.session, self.everyone, survivors)
        given = {k: all_tags[to] for k, all_tags in tags.items()}
        for k in self.friends:
            given[k] = tag(self.cohort.clients[10 + k]._keys()[to], content, k, to)
        there = [k for k in sorted(given) if survivors[k]][: self.threshold]
        return marks(there, self.n) + b"".join(given[k] for k in there)

    def joined(self, shares: dict[int, bytes]) -> bytes:
        return join({k: shares[k] for k in sorted(shares)[: self.threshold]})


@pytest.mark.parametrize(
    ("n", "colluders"), [(10, 2), (20, 4), pytest.param(100, 14, marks=pytest.mark.slow)]
)
def test_no_quorum_agrees_to_two_stories(n, colluders, monkeypatch):
    """Different lists of survivors for different clients give up both secrets of one of them."""
    words = vectors_of(n, n, 4)
    with pytest.raises(RefusedError, match="was told that others take part"):
        TwoStories(n, colluders, words).run()
    monkeypatch.setattr(Client, "_check_told", lambda *a: None)
    with pytest.raises(RefusedError, match="too few members agree"):
        TwoStories(n, colluders, words).run()
    monkeypatch.setattr(Client, "_check_agreed", lambda *a: None)
    np.testing.assert_array_equal(TwoStories(n, colluders, words).run(), words[0])


def test_no_two_lists_of_survivors_have_a_quorum():
    """Honest clients agree once: two lists need a third of the members on the server's side."""
    for n in range(3, 5001):
        assert 2 * quorum(n) - n >= n / 3


def test_no_list_of_members_allows_for_as_many_colluders_as_two_quorums_share():
    """They and two halves of the others could sign two lists: one part of noise instead of six."""
    for n in range(3, 60):
        shared = 2 * quorum(n) - n
        keys = {str(k): k.to_bytes(32) for k in range(n)}
        assert Members.of(keys, shared - 1).honest >= 1
        with pytest.raises(InputError, match="colluding out of range") as refusal:
            Members.of(keys, shared)
        assert refusal.value.got == shared
    # Until now any number below a quorum was accepted: of 20 members, eight colluders and two
    # groups of six others make two lists of a quorum each, with no honest member in common.
    friends, rest = set(range(8)), np.array_split(np.arange(8, 20), 2)
    lists = [friends | set(part) for part in rest]
    assert min(map(len, lists)) == quorum(20) == 14
    assert set.intersection(*lists) == friends


def test_a_server_cannot_name_a_low_threshold(monkeypatch):
    """There is no threshold in any message: with few survivors a client does not go on."""
    cohort = Cohort(vectors_of(9)).reach("agree")
    for few in range(1, quorum(9)):
        with pytest.raises(RefusedError, match="too few clients"):
            cohort.answer("agree", 10, cohort.survivors(0, range(few)))
    who = identities(9)
    # A client that takes any majority signs, and unmasks what five of nine have left in a sum.
    monkeypatch.setattr(client_module, "quorum", lambda n: n // 2 + 1)
    monkeypatch.setattr(graph_module, "quorum", lambda n: n // 2 + 1)
    lenient = Cohort(vectors_of(9), who=who).reach("agree")
    assert lenient.answer("agree", 10, lenient.survivors(0, range(5)))


def test_a_server_in_the_middle_of_a_run_is_noticed(monkeypatch):
    """It replaces a member's key by one of its own, and would sit between the two."""

    def in_the_middle(cohort: Cohort) -> bytes:
        n, request = len(cohort.members), cohort.reach("meet").requests[10]
        given = pieces(request[n:], SIGNED_KEY)
        given[1] = public_key(new_key()) + given[1][KEY:]
        return cohort.answer("meet", 10, request[:n] + b"".join(given))

    with pytest.raises(RefusedError, match=r"the key of member .* is not signed by it"):
        in_the_middle(Cohort(vectors_of(5)))
    monkeypatch.setattr(pairs_module, "is_signed", lambda *a: True)
    assert in_the_middle(Cohort(vectors_of(5)))  # it would have shared its secrets with the server


def test_a_server_in_the_middle_of_a_sum_is_noticed(monkeypatch):
    """It replaces a neighbour's fresh key, and would know the mask of the two."""

    def in_the_middle(cohort: Cohort) -> bytes:
        n, request = len(cohort.members), cohort.reach("masked").requests[10]
        given = pieces(request[n:], DELIVERED)
        given[1] = public_key(new_key()) + given[1][KEY:]
        return cohort.answer("masked", 10, request[:n] + b"".join(given))

    with pytest.raises(RefusedError, match=r"the key of member .* is not sealed by it"):
        in_the_middle(Cohort(vectors_of(5)))
    monkeypatch.setattr(client_module, "unseal", lambda *a: bytes(2 * SHARE))
    assert in_the_middle(Cohort(vectors_of(5)))


def test_a_stranger_does_not_become_a_member():
    """A node that anybody registered signs with a key that is in nobody's list."""
    cohort = Cohort(vectors_of(5)).reach("meet")
    request, mine = cohort.requests[10], public_key(new_key())
    forged = mine + sign(identities(3)[0].private, signed_key(cohort.run_server.bound, mine))
    with pytest.raises(RefusedError, match="is not signed by it"):
        cohort.answer(
            "meet", 10, request[: 5 + SIGNED_KEY] + forged + request[5 + 2 * SIGNED_KEY :]
        )


def test_keys_of_another_run_are_refused():
    """Keys that were signed for another run, of which the server may know the secrets by now."""
    who = identities(5)
    old = Cohort(vectors_of(5), who=who).reach("meet")
    cohort = Cohort(vectors_of(5), who=who).reach("meet")
    request = cohort.requests[10]
    replayed = request[: 5 + SIGNED_KEY] + old.requests[10][5 + SIGNED_KEY :]
    with pytest.raises(RefusedError, match="is not signed by it for this run"):
        cohort.answer("meet", 10, replayed)
    assert cohort.answer("meet", 10, request)  # those of this run are taken
    # And nobody is met twice in different ways.
    with pytest.raises(RefusedError, match="once"):
        cohort.answer("meet", 10, replayed)


def test_a_replayed_stage_is_refused():
    """Shares and fresh keys of an earlier sum of the run, whose secrets the server may know."""
    old = Cohort(vectors_of(5), "an earlier sum").reach("masked")
    cohort = Cohort(vectors_of(5), SESSION, after=old).reach("masked")
    request = cohort.requests[10]
    replayed = request[: 5 + DELIVERED] + old.requests[10][5 + DELIVERED :]
    with pytest.raises(RefusedError, match="is not sealed by it for this sum"):
        cohort.answer("masked", 10, replayed)
    assert cohort.answer("masked", 10, request)  # those of this sum are taken
    # And no stage is answered twice in different ways.
    with pytest.raises(RefusedError, match="answers every stage of a sum once"):
        cohort.answer("masked", 10, replayed)


def test_a_sum_is_not_repeated_with_other_clients(tmp_path):
    """The difference of two sums over nearly the same clients is one client's words."""
    pairs = Cohort(vectors_of(4)).reach("shares").pairs[10]
    Client(SESSION, 0, pairs, open_sum(tmp_path, SESSION)).shares(lambda: np.zeros(3, np.uint64))
    end_sums(tmp_path, but="another")
    for session in (SESSION, "the same under another name"):
        again = Client(session, 0, pairs, open_sum(tmp_path, session))
        with pytest.raises(RefusedError, match="this sum is over"):
            again.shares(lambda: np.zeros(3, np.uint64))


def test_a_forged_list_of_survivors_is_refused(monkeypatch):
    def forge(cohort: Cohort) -> bytes:
        """Everybody agrees that all survived; client 0 is told that 8 vanished."""
        cohort.reach("agree")
        survivors = cohort.survivors(0, range(8))
        said = cohort.ask("agree")  # the true list, from everyone but client 0
        cohort.memories[10].said.pop("agree")
        cohort.answer("agree", 10, survivors)
        near = range(1, 1 + quorum(9))
        content = b"".join(said[10 + k][:TAG] for k in near)
        return cohort.answer("unmask", 10, marks(near, 9) + content)

    with pytest.raises(RefusedError, match="too few members agree"):
        forge(Cohort(vectors_of(9)))
    with monkeypatch.context() as patch:
        patch.setattr(client_module, "is_tagged", lambda *a: True)
        revealed = pieces(forge(Cohort(vectors_of(9))), SHARE)
    assert len(revealed) == 9  # among them a share of the key of client 8, whose words came


def test_tags_count_once_and_only_of_survivors():
    cohort = Cohort(vectors_of(7)).reach("unmask")
    request = cohort.requests[10]
    who, tags = request[:7], pieces(request[7:], TAG)
    assert sum(who) == 7
    # A tag is of one member and for one other: no other one's, and not sent back to its author.
    others = pieces(cohort.requests[11][7:], TAG)
    own = pieces(cohort.memories[10].recall("agree").reply, TAG)
    for bad, why in (
        (marks([0, 1, 2], 7) + b"".join(tags[:3]), "too few clients"),
        (who + b"".join([tags[0]] * 7), "too few members agree"),
        (who + b"".join(others), "too few members agree"),
        (who + b"".join(own), "too few members agree"),
        (who + b"".join(tags[:4]) + bytes(3 * TAG), "too few members agree"),
        (who + b"".join(tags[:6]), "not a tag of everyone"),
        (b"\2" + who[1:] + b"".join(tags), "not a mark"),
    ):
        with pytest.raises(RefusedError, match=why):
            cohort.answer("unmask", 10, bad)
    # A quorum of five is enough: two members cannot stop it by tags that are wrong.
    assert cohort.answer("unmask", 10, who + b"".join(tags[:5]) + bytes(2 * TAG))


class TwoLists:
    """A server that tells one client of a sparse graph another list of who shared than the rest.

    Half of its neighbours are in that list, and then said to be gone, so their keys are given up.
    The other half gives up its seed. Two colluders are neighbours of it, in both halves.
    """

    def __init__(self, words: np.ndarray) -> None:
        self.n, self.cohort = len(words), Cohort(words, SESSION).reach("masked")
        self.graph = self.cohort.members.graph
        needed, near = self.graph.threshold(0), self.graph.neighbours(0)
        self.friends, self.gone = near[:2], near[2 : needed - 1]
        told = [k for k in range(self.n) if k not in near[needed - 1 :]]
        self.bound = shared_by(self.cohort.clients[10]._session, marks(told, self.n))
        given = pieces(self.cohort.requests[10][self.n :], DELIVERED)
        kept = [s for k, s in zip(self.graph.holders(0), given, strict=True) if k in told]
        self.cohort.requests[10] = marks(told, self.n) + b"".join(kept)

    def run(self) -> np.ndarray:
        """Return the words of client 0."""
        cohort, n = self.cohort, self.n
        friends = {k: own_secrets(cohort, k).mask for k in self.friends}
        masked = cohort.ask("masked")[10]
        left = [k for k in range(n) if k not in self.gone]
        tags = {
            k: pieces(cohort.answer("agree", 10 + k, cohort.survivors(k, left)), TAG)
            for k in left
            if k
        }
        given: dict[int, dict[int, bytes]] = {}
        total = words_of(masked)
        for k in tags:
            proof = marks(tags, n) + b"".join(each[k] for each in tags.values())
            shares = pieces(cohort.answer("unmask", 10 + k, proof), SHARE)
            for of, share in zip(self.graph.holders(k), shares, strict=True):
                given.setdefault(of, {})[k] = share
        add_mask(total, self.joined(0, given), purpose(self.bound, 0), -1)
        private = friends | {k: self.joined(k, given) for k in self.gone}
        take_off_pairs(cohort, total, private, self.bound)
        return total[:-1]

    def joined(self, of: int, given: dict[int, dict[int, bytes]]) -> bytes:
        chosen, holders = list(given[of])[: self.graph.threshold(of)], self.graph.holders(of)
        return join({holders.index(k): given[of][k] for k in chosen})


@pytest.fixture
def sparse(monkeypatch):
    """Neighbours are few, so that a small federation is sparse too."""
    graph_module._holders.cache_clear()
    monkeypatch.setattr(graph_module, "mean_degree", lambda n: min(n - 1, 24))
    yield
    graph_module._holders.cache_clear()


@pytest.mark.usefixtures("sparse")
def test_no_client_is_told_another_list_than_its_neighbours(monkeypatch):
    """Of a sparse graph's client, both halves of its neighbours would be heard."""
    words = vectors_of(60, 0, 4)
    with pytest.raises(RefusedError, match="was told that others take part"):
        TwoLists(words).run()
    monkeypatch.setattr(Client, "_check_told", lambda *a: None)
    np.testing.assert_array_equal(TwoLists(words).run(), words[0])


@pytest.mark.usefixtures("sparse")
def test_tags_of_neighbours_alone_are_not_enough():
    """A server that knows a sparse graph sorts members so that some see their neighbours agree.

    Two thirds of all members cannot agree on two stories; two thirds of some clients' neighbours
    can, in large federations, with far fewer than a third of the members on the server's side.
    """

    def near(cohort: Cohort) -> bytes:
        cohort.reach("agree")
        said, holders = cohort.ask("agree"), cohort.members.graph.holders(0)
        who = holders[: quorum(len(holders))]
        return marks(who, 60) + b"".join(said[10 + k][:TAG] for k in who)

    cohort = Cohort(vectors_of(60))
    request = near(cohort)
    with pytest.raises(RefusedError, match="too few clients"):
        cohort.answer("unmask", 10, request)
    # A client that asks for a quorum of its neighbours alone gives its shares away.
    holders = cohort.members.graph.holders(0)
    cohort.clients[10]._quorum = quorum(len(holders))
    assert cohort.answer("unmask", 10, request)


def test_clients_that_were_told_different_members_share_no_masks():
    """Some are told that client 4 did not share its keys: no sum can be read."""
    cohort = Cohort(vectors_of(6)).reach("masked")
    fewer = {}
    for node in (10, 11, 12, 13, 15):
        request = cohort.requests[node]
        sealed = pieces(request[6:], len(request[6:]) // 6)
        fewer[node] = marks({0, 1, 2, 3, 5}, 6) + b"".join(sealed[:4] + sealed[5:])
    cohort.requests |= {node: fewer[node] for node in (10, 11, 12)}
    replies = cohort.ask("masked")
    with pytest.raises(InfeasibleError, match="too few clients"):  # it drops what does not fit
        cohort.server.survivors(replies.items())
    for node in (10, 13):  # and a server that does not care gets no tag
        with pytest.raises(RefusedError, match="was told that others take part"):
            cohort.answer("agree", node, cohort.survivors(node - 10, {0, 1, 2, 3, 5}))


def test_a_changed_question_is_another_sum():
    """Client 0 is asked something else than the others: nobody's keys are good for both."""
    asked = Cohort(vectors_of(5), '{"asked": "beta"}').reach("shares")
    client, other = (
        Client(session, 0, asked.pairs[10], Held())
        for session in ('{"asked": "beta"}', '{"asked": "class-totals"}')
    )
    asked.clients[10] = other
    asked.step("shares")
    with pytest.raises(RefusedError, match="is not sealed by it for this sum"):
        other.masked(asked.requests[10])
    with pytest.raises(RefusedError, match="is over"):  # nor does it answer both
        client.shares(lambda: np.zeros(5, np.uint64))


def test_refusals_do_not_depend_on_what_a_client_holds():
    """The same wrong requests to clients of different words: the same answers, word for word."""
    who, said = identities(5), []
    for seed in (0, 1):
        answers = []
        cohort = Cohort(vectors_of(5, seed), who=who).reach("masked")
        for stage in ("meet", "masked", "agree", "unmask"):
            for bad in (b"", bytes(5), b"\1" * 5, b"\1" * 500):
                with pytest.raises(RefusedError) as refused:
                    cohort.answer(stage, 10, bad)
                answers.append(str(refused.value))
        said.append(answers)
    assert said[0] == said[1]
    assert len(said[0]) == 16


# What sums of one run have in common.


def masked_words(cohort: Cohort) -> dict[int, np.ndarray]:
    cohort.reach("masked")
    length = len(cohort.vectors[10]) + 1
    return {node: words_of(reply, length) for node, reply in cohort.ask("masked").items()}


def test_no_mask_is_used_twice(monkeypatch):
    """The difference of what a client sends in two sums says nothing of that of its words."""

    def differences() -> tuple[np.ndarray, np.ndarray]:
        first, second = vectors_of(4, 0, 200), vectors_of(4, 1, 200)
        one = Cohort(first)
        sent = masked_words(one)
        again = masked_words(Cohort(second, "another", after=one))
        seen = np.array([again[node][:-1] - sent[node][:-1] for node in sorted(sent)])
        return seen, second - first

    seen, truth = differences()
    assert not (seen == truth).any()
    assert len(np.unique(seen)) == seen.size
    # A client that drew its keys and its seed once for the run, and not for every sum.
    drawn = iter([bytes([k]) * 32 for k in range(1, 5)] * 2)
    monkeypatch.setattr(client_module, "new_key", lambda: next(drawn))
    monkeypatch.setattr(client_module.secrets, "token_bytes", bytes)
    monkeypatch.setattr(client_module, "shared_by", lambda session, shared: shared)
    np.testing.assert_array_equal(*differences())


@pytest.mark.parametrize("keys", ["of a sum", "of the run"])
def test_what_was_recovered_in_earlier_sums_opens_no_later_one(monkeypatch, keys):
    """Three sums, each without three other clients: the keys of all neighbours of client 0."""
    recovered: dict[int, bytes] = {}
    join_shares = Server._join

    def joining(server: Server, of: int, *given) -> bytes:
        secret = join_shares(server, of, *given)
        recovered[of] = secret
        return secret

    monkeypatch.setattr(Server, "_join", joining)
    if keys == "of the run":  # a client that kept its mask key, as what is agreed on once
        kept: dict[int, bytes] = {}
        shares = Client.shares

        def share(client: Client, values) -> bytes:
            private = kept.setdefault(client._at, new_key())
            with monkeypatch.context() as patch:
                patch.setattr(client_module, "new_key", lambda: private)
                return shares(client, values)

        monkeypatch.setattr(Client, "shares", share)
    cohort, known = None, dict[int, bytes]()
    for number, gone in enumerate(((1, 2, 3), (4, 5, 6), (7, 8, 9))):

        def lose(stage, node, reply, gone=gone):
            return None if stage == "masked" and node - 10 in gone else reply

        cohort = Cohort(vectors_of(10, number, 4), str(number), lose, after=cohort)
        cohort.run()
        known |= {k: recovered[k] for k in gone}
    words = vectors_of(10, 9, 4)
    last = Cohort(words, "the last", after=cohort).reach("agree")
    total = words_of(last.memories[10].recall("masked").reply)
    bound = shared_by(last.clients[10]._session, marks(range(10), 10))
    take_off_pairs(last, total, known, bound)
    last.reach_from("agree")  # all survive, and give the seed of client 0 up
    add_mask(total, recovered[0], purpose(bound, 0), -1)
    assert (total[:-1] == words[0]).all() == (keys == "of the run")


def test_a_copy_of_a_sites_disk_opens_no_earlier_sum():
    cohort = Cohort(vectors_of(5)).reach("masked")
    client, request = cohort.clients[10], cohort.requests[10]
    before = client._keys()
    delivered = dict(zip(range(5), pieces(request[5:], DELIVERED), strict=True))

    def opened(keys: dict[int, bytes]) -> list[bool]:
        return [
            unseal(sealing_key(keys[k], client._sealed(piece[:KEY], k, 0)), piece[KEY:]) is not None
            for k, piece in delivered.items()
        ]

    cohort.reach_from("masked")
    assert opened(before) == [True] * 5  # what is gone by now would open them
    held = b"".join(record.secret for record in cohort.run_memories[10].said.values())
    assert all(key not in held for key in before.values())
    assert opened(cohort.pairs[10].of_sum(1)) == [False] * 5


@pytest.mark.parametrize("where", ["unlink", "replace"])
def test_a_process_that_was_killed_leaves_no_key_behind(tmp_path, monkeypatch, where):
    """In a file that has no name yet, or none any more: it would open sums that are over."""
    cohort = Cohort(vectors_of(4), who=identities(4))
    memory = FileStore(tmp_path / "run")
    pairs = PairKeys(cohort.run_server.name, cohort.identities[0], memory)

    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    def kill(step):
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(Path, where, killed)
            step()
        return set((tmp_path / "run").glob(".*"))

    cohort.run_memories[10], cohort.pairs[10] = memory, pairs
    if where == "unlink":
        left = kill(pairs.keys)
        cohort.reach("agree")
    else:
        cohort.reach("agree")
        left = kill(lambda: pairs.of_sum(1))
        pairs.of_sum(1)
    assert left
    assert not list((tmp_path / "run").glob(".*"))


def test_a_disk_without_links_keeps_no_words(tmp_path, monkeypatch):
    pairs = give_keys("a run", identities(3)[0], open_pairs(tmp_path, "a run", begin=True))
    words = np.arange(1000, 1008, dtype=np.uint64)

    def refused(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    def held() -> list[Path]:
        files = [path for path in tmp_path.rglob("*") if path.is_file()]
        return [path for path in files if words.tobytes() in path.read_bytes()]

    with monkeypatch.context() as patch:
        patch.setattr(memory_module.os, "link", refused)
        with pytest.raises(PermissionError):
            Client("first", 0, pairs, open_sum(tmp_path, "first")).shares(lambda: words)
    assert not held()
    assert Client("next", 1, pairs, open_sum(tmp_path, "next")).shares(lambda: words)
    assert held()  # positive control: they are there until the sum is over


def test_sums_of_a_run_come_in_their_order_whatever_is_restarted(tmp_path):
    """The number is on disk: a process that starts again knows it, and the sum's own record."""
    who = identities(4)
    cohort = Cohort(vectors_of(4), who=who)
    cohort.run_memories[10] = FileStore(tmp_path / "run")
    cohort.pairs[10] = PairKeys(cohort.run_server.name, who[0], cohort.run_memories[10])
    cohort.memories[10] = FileStore(tmp_path / "sum")
    cohort.reach("agree")
    request = cohort.requests[10]

    def restarted(number: int, session: str = SESSION, folder: str = "sum") -> Client:
        memory = FileStore(tmp_path / "run")
        pairs = PairKeys(cohort.run_server.name, who[0], memory)
        return Client(session, number, pairs, FileStore(tmp_path / folder))

    first = restarted(0).agree(request)
    assert restarted(0).agree(request) == first
    with pytest.raises(RefusedError, match="answers every stage of a sum once"):
        restarted(0).agree(cohort.survivors(0, [0, 1, 2]))
    cohort.reach_from("agree")
    again = Cohort(vectors_of(4), "another", after=cohort).reach("agree")
    again.reach_from("agree")
    for number in (0, 1):  # both are over
        with pytest.raises(RefusedError, match="not the next sum"):
            restarted(number, "a third", "new").shares(lambda: np.zeros(5, np.uint64))
    with pytest.raises(NoKeysError, match="by far"):  # nor is a site kept busy: new keys are drawn
        restarted(2 + MOST_SKIPPED + 1, "a third", "new").shares(lambda: np.zeros(5, np.uint64))
    assert restarted(7, "a third", "new").shares(lambda: np.zeros(5, np.uint64))
    with pytest.raises(RefusedError, match="not the next sum"):
        restarted(6, "a fourth", "newer").shares(lambda: np.zeros(5, np.uint64))


def test_a_client_that_missed_sums_has_the_keys_of_the_next():
    cohort = Cohort(vectors_of(5))
    cohort.run()
    for number in range(3):
        absent = Cohort(vectors_of(5, number), f"without {number}", after=cohort)
        absent.requests.pop(12)
        assert absent.run()[1] == [10, 11, 13, 14]
        cohort = absent
    back = Cohort(vectors_of(5, 7), "with it", after=cohort)
    total, nodes = back.run()
    assert nodes == [10, 11, 12, 13, 14]
    np.testing.assert_array_equal(total, back.plain(nodes))


def test_keys_are_of_one_list_of_members():
    """Members have other places in another list: one of them could speak for its neighbour."""
    cohort = Cohort(vectors_of(5))
    cohort.run()
    who, memory = cohort.identities[0], cohort.run_memories[10]
    assert PairKeys(cohort.run_server.name, who, memory).of_sum(1)
    for keys in (
        dict(zip(who.members.names[:4], who.members.keys[:4], strict=True)),
        {f"{name}x": key for name, key in zip(who.members.names, who.members.keys, strict=True)},
    ):
        changed = Identity.of(who.private, Members.of(keys))
        with pytest.raises(NoKeysError):
            PairKeys(cohort.run_server.name, changed, memory).of_sum(1)


def test_only_the_latest_runs_keep_their_keys(tmp_path):
    who = identities(3)[0]
    for number in range(6):
        PairKeys(str(number), who, open_pairs(tmp_path, str(number), begin=True)).keys()
    assert len(list((tmp_path / "pairs").iterdir())) == 4
    with pytest.raises(RefusedError, match="no keys of this run"):
        open_pairs(tmp_path, "0")
    with pytest.raises(RefusedError, match="this run is over"):  # nor does it begin again
        open_pairs(tmp_path, "0", begin=True)
    assert PairKeys("5", who, open_pairs(tmp_path, "5")).keys()


def test_the_names_of_runs_that_are_over_are_bounded_and_none_is_forgotten(tmp_path, monkeypatch):
    monkeypatch.setattr(memory_module, "_MOST_ENDED", 3)
    for number in range(7):
        open_pairs(tmp_path, str(number), begin=True)
    with pytest.raises(RefusedError, match="too many runs"):
        open_pairs(tmp_path, "7", begin=True)
    assert open_pairs(tmp_path, "6", begin=True)  # those that go on do
    for number in range(3):
        with pytest.raises(RefusedError, match="this run is over"):
            open_pairs(tmp_path, str(number), begin=True)


@pytest.mark.parametrize("culprit", ["a member", "the server"])
def test_a_member_does_not_use_up_anothers_refusals(tmp_path, monkeypatch, culprit):
    """Wrong seals for one site in every sum; a site stops reading after some refusals."""
    monkeypatch.setattr(RefusalLog.__init__, "__defaults__", (3, 200))
    words, who, wrong = vectors_of(5), identities(5), [True]

    def site(context: Context) -> SumParticipant:
        k = int(context.node_config["partition-id"])
        return SumParticipant(who[k], lambda asked: words[k], tmp_path / str(k))

    app = _SiteApp(lambda context: tmp_path / str(context.node_id) / "refusals")
    answer_secure_sum(app, site)

    def act(message: Message, context: Context) -> Message:
        kind, record = message.metadata.message_type, message.content["secure-sum"]
        at_fault = culprit if wrong[0] else ""
        if (at_fault, context.node_id, kind) == ("the server", 2, "query.secure_masked"):
            record["content"] = record["content"][:-1]
        reply = app(message, context)
        if (at_fault, context.node_id, kind) == ("a member", 3, "query.secure_shares"):
            own, at = reply.content["secure-sum"], KEY + HASH + DEALT - 1
            content = own["content"]  # up to the seal for the first member
            own["content"] = content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]
        return reply

    grid = InlineGrid(act, 5)
    ask = lambda: secure_sum(grid, grid.get_node_ids(), "x", 5, who[0].members, 60).nodes  # noqa: E731
    for _ in range(4):
        assert ask() == [3, 4, 5, 6]
    wrong[0] = False
    assert (2 in ask()) == (culprit == "a member")


@pytest.mark.parametrize("n", [162, 200, 500, 1000, 5000])
def test_no_server_can_split_a_sparse_graph(n):
    """The chance, over lists of members, that any choice of dropouts cuts survivors off.

    With a fifth of the members colluding. A part of the honest survivors has at least as many
    members as a seed needs shares that colluders do not have. It is cut off if all its other honest
    neighbours are gone, and no more can be gone than a quorum leaves (docs/proofs.md).
    """
    p, colluding = mean_degree(n) / (n - 1), n // 5
    honest = n - colluding
    friends, others = np.arange(colluding + 1), np.arange(honest)
    needed = (friends[:, None] + others + 1) // 2 + 1 - friends[:, None]
    chance = stats.binom.pmf(friends, colluding, p)[:, None] * stats.binom.pmf(
        others, honest - 1, p
    )
    found = []
    for least in range(1, 20):
        part = np.arange(least, honest // 2 + 1)
        choices = gammaln(honest + 1) - gammaln(part + 1) - gammaln(honest - part + 1)
        next_to_it = 1 - (1 - p) ** part  # the chance that another member is a neighbour of it
        alone = stats.binom.logcdf(n - quorum(n), honest - part, next_to_it)
        cut = np.exp(np.minimum(choices + alone, 0)).sum()
        found.append(n * chance[needed < least].sum() + cut)
    assert min(found) < 2**-45
