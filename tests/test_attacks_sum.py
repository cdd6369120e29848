"""A server that cheats at a secure sum reads nothing, and is told why it is refused.

Every attack is run twice: against today's client, and against one from which the check that stops
it was taken out, which shows that the attack itself works.
"""

import numpy as np
import pytest
from scipy import stats
from scipy.special import gammaln

from fedeas import InfeasibleError, InputError
from fedeas_private.secure_sum import client as client_module
from fedeas_private.secure_sum import identity as graph_module
from fedeas_private.secure_sum.client import (
    Client,
    _ClientState,
    agreement,
    bind_session,
    signed_keys,
)
from fedeas_private.secure_sum.identity import Members, mean_degree, quorum
from fedeas_private.secure_sum.keys import (
    add_mask,
    add_pair_mask,
    agree,
    join,
    load_key,
    new_key,
    public_key,
    purpose,
    sign,
    unseal,
)
from fedeas_private.secure_sum.memory import end_sums, open_sum
from fedeas_private.secure_sum.messages import (
    DEALT,
    HASH,
    KEY,
    SEALED,
    SHARE,
    SIGNATURE,
    SIGNED_KEYS,
    RefusedError,
    digest,
    marks,
    pieces,
)
from sums import Cohort, identities, vectors_of

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


def words_of(masked: bytes) -> np.ndarray:
    return np.frombuffer(masked[:-SIGNATURE], "<u8").astype(np.uint64)


class TwoStories:
    """A server that tells every client another list of survivors, with some of them on its side."""

    def __init__(self, n: int, colluders: int, words: np.ndarray) -> None:
        self.n, self.threshold = n, quorum(n)
        self.told = stories(n, colluders)
        assert self.told is not None
        self.friends, self.vanished = range(1, 1 + colluders), range(1 + colluders, self.threshold)
        self.cohort = Cohort(words, SESSION).reach("shares")
        self.who = self.cohort.identities
        self.session = bind_session(SESSION, self.who[0].members.digest)
        self.keys = {
            k: self.cohort.memories[10 + k].recall("keys").reply[KEY : 3 * KEY] for k in range(n)
        }
        self.dealt = {
            node - 10: pieces(reply[HASH:], DEALT)
            for node, reply in self.cohort.ask("shares").items()
        }
        self.everyone = marks(range(n), n)

    def mask(self, k: int, shared: list[int]) -> bytes:
        sealed = b"".join(self.dealt[m][k][2 * HASH :] for m in shared)
        return self.cohort.answer("masked", 10 + k, marks(shared, self.n) + sealed)

    def run(self) -> np.ndarray:
        """Return the victim's words."""
        victims_view = [0, *self.friends, *self.vanished]
        total = words_of(self.mask(0, victims_view))
        for k in (*self.told, *self.friends):
            self.mask(k, list(range(self.n)))
        seeds, masks = self.opened_by_friends()
        signed = self.signatures()
        for k, gone in self.told.items():
            survivors = marks(set(range(self.n)) - gone, self.n)
            request = self.signed_by_many(survivors, signed)
            revealed = pieces(self.cohort.answer("unmask", 10 + k, request), SHARE)
            seeds[k] = revealed[0]
            for p in gone:
                masks[p][k] = revealed[p]
        first = digest(b"began", self.session, self.everyone)
        bound = digest(b"shared", first, marks(victims_view, self.n))
        add_mask(total, self.joined(seeds), purpose(bound, 0), -1)
        private = {k: self.own(k).mask for k in self.friends}
        private |= {p: self.joined(shares) for p, shares in masks.items()}
        for k, key in private.items():
            add_pair_mask(total, load_key(key), self.keys[0][KEY:], k, 0, bound)
        return total[:-1]

    def own(self, k: int) -> _ClientState:
        return _ClientState.read(self.cohort.memories[10 + k].recall("keys").secret)

    def opened_by_friends(self) -> tuple[dict[int, bytes], dict[int, dict[int, bytes]]]:
        """Have every colluder open what it was dealt."""
        seeds: dict[int, bytes] = {}
        masks: dict[int, dict[int, bytes]] = {p: {} for p in self.vanished}
        first = digest(b"began", self.session, self.everyone)
        for k in self.friends:
            for member in (0, *self.vanished):
                secret = agree(load_key(self.own(k).seal), self.keys[member][:KEY])
                sealed = self.dealt[member][k][2 * HASH :]
                shares = unseal(secret, purpose(first, member, k), sealed)
                if member == 0:
                    seeds[k] = shares[:SHARE]
                else:
                    masks[member][k] = shares[SHARE:]
        return seeds, masks

    def signatures(self) -> dict[int, bytes]:
        """Every honest client signs the story that it was told, the victim too."""
        stays = {k: set(range(self.n)) - gone for k, gone in self.told.items()}
        stays[0] = {0, *self.friends, *self.vanished}
        return {
            k: self.cohort.answer("agree", 10 + k, self.cohort.survivors(k, who))
            for k, who in stays.items()
        }

    def signed_by_many(self, survivors: bytes, signed: dict[int, bytes]) -> bytes:
        """Pass on as many signatures as are needed; friends sign whatever they are asked to."""
        content = agreement(self.session, self.everyone, self.everyone, survivors)
        all_signed = signed | {k: sign(self.who[k].private, content) for k in self.friends}
        there = [k for k in sorted(all_signed) if survivors[k]][: self.threshold]
        return marks(there, self.n) + b"".join(all_signed[k] for k in there)

    def joined(self, shares: dict[int, bytes]) -> bytes:
        return join({k: shares[k] for k in sorted(shares)[: self.threshold]})


@pytest.mark.parametrize(
    ("n", "colluders"), [(10, 2), (20, 4), pytest.param(100, 14, marks=pytest.mark.slow)]
)
def test_two_stories_are_not_signed_by_a_quorum(n, colluders, monkeypatch):
    """Different lists of survivors for different clients give up both secrets of one of them."""
    words = vectors_of(n, n, 4)
    with pytest.raises(RefusedError, match="was told that others take part"):
        TwoStories(n, colluders, words).run()
    monkeypatch.setattr(Client, "_check_told", lambda *a: None)
    with pytest.raises(RefusedError, match="did not sign the same survivors"):
        TwoStories(n, colluders, words).run()
    monkeypatch.setattr(Client, "_check_signatures", lambda *a: None)
    np.testing.assert_array_equal(TwoStories(n, colluders, words).run(), words[0])


def test_no_two_lists_of_survivors_have_a_quorum():
    """Honest clients sign once: two lists need a third of the members on the server's side."""
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


def test_a_server_in_the_middle_is_noticed(monkeypatch):
    """It replaces every key by one of its own, and would sit between every two clients."""

    def in_the_middle(cohort: Cohort) -> bytes:
        request = cohort.reach("shares").requests[10]
        n = len(cohort.members)
        mine = b"".join(public_key(new_key()) for _ in range(2))
        replaced = [mine + piece[2 * KEY :] for piece in pieces(request[n:], SIGNED_KEYS)]
        replaced[1:] = pieces(request[n:], SIGNED_KEYS)[1:]
        return cohort.answer("shares", 10, request[:n] + b"".join(replaced))

    with pytest.raises(RefusedError, match=r"the keys of member .* are not signed by it"):
        in_the_middle(Cohort(vectors_of(5)))
    monkeypatch.setattr(client_module, "is_signed", lambda *a: True)
    assert in_the_middle(Cohort(vectors_of(5)))  # it would have shared its secrets with the server


def test_a_stranger_does_not_become_a_member():
    """A node that anybody registered signs with a key that is in nobody's list."""
    cohort = Cohort(vectors_of(5)).reach("shares")
    request, session = cohort.requests[10], bind_session(SESSION, cohort.members.digest)
    mine = b"".join(public_key(new_key()) for _ in range(2))
    forged = mine + sign(identities(3)[0].private, signed_keys(session, mine))
    with pytest.raises(RefusedError, match="are not signed by it"):
        cohort.answer("shares", 10, request[:5] + forged + request[5 + SIGNED_KEYS :])


def test_a_replayed_stage_is_refused():
    """Keys that were signed for another sum, of which the server may know the secrets by now."""
    who = identities(5)
    old = Cohort(vectors_of(5), "an earlier sum", who=who).reach("shares")
    cohort = Cohort(vectors_of(5), SESSION, who=who).reach("shares")
    request = cohort.requests[10]
    replayed = request[: 5 + SIGNED_KEYS] + old.requests[10][5 + SIGNED_KEYS :]
    with pytest.raises(RefusedError, match="are not signed by it for this sum"):
        cohort.answer("shares", 10, replayed)
    assert cohort.answer("shares", 10, request)  # those of this sum are taken
    # And no stage is answered twice in different ways.
    with pytest.raises(RefusedError, match="answers every stage of a sum once"):
        cohort.answer("shares", 10, replayed)


def test_a_sum_is_not_repeated_with_other_clients(tmp_path):
    """The difference of two sums over nearly the same clients is one client's words."""
    who = identities(4)[0]
    Client(SESSION, who, open_sum(tmp_path, SESSION)).keys(lambda: np.zeros(3, np.uint64))
    end_sums(tmp_path, but="another")
    with pytest.raises(RefusedError, match="this sum is over"):
        open_sum(tmp_path, SESSION)


def test_a_forged_list_of_survivors_is_refused(monkeypatch):
    def forge(cohort: Cohort) -> bytes:
        """Everybody signs that all survived; client 0 is told that 8 vanished."""
        cohort.reach("agree")
        survivors = cohort.survivors(0, range(8))
        signed = cohort.ask("agree")  # the true list, from everyone but client 0
        cohort.memories[10].said.pop("agree")
        cohort.answer("agree", 10, survivors)
        near = range(1, 1 + quorum(9))
        content = b"".join(signed[10 + k] for k in near)
        return cohort.answer("unmask", 10, marks(near, 9) + content)

    with pytest.raises(RefusedError, match="did not sign the same survivors"):
        forge(Cohort(vectors_of(9)))
    with monkeypatch.context() as patch:
        patch.setattr(client_module, "is_signed", lambda *a: True)
        revealed = pieces(forge(Cohort(vectors_of(9))), SHARE)
    assert len(revealed) == 9  # among them a share of the key of client 8, whose words came


def test_signatures_count_once_and_only_of_survivors():
    cohort = Cohort(vectors_of(7)).reach("unmask")
    request = cohort.requests[10]
    who, signatures = request[:7], pieces(request[7:], SIGNATURE)
    assert sum(who) == quorum(7) == 5
    for bad, why in (
        (marks([0, 1, 2], 7) + b"".join(signatures[:3]), "too few"),
        (who + b"".join([signatures[0]] * 5), "did not sign the same survivors"),
        (who + b"".join(signatures[:4]), "not a signature of everyone"),
        (b"\2" + who[1:] + b"".join(signatures), "not a mark"),
    ):
        with pytest.raises(RefusedError, match=why):
            cohort.answer("unmask", 10, bad)
    assert cohort.answer("unmask", 10, request)


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
        session = bind_session(SESSION, self.cohort.members.digest)
        first = digest(b"began", session, marks(range(self.n), self.n))
        self.bound = digest(b"shared", first, marks(told, self.n))
        sealed = pieces(self.cohort.requests[10][self.n :], SEALED)
        kept = [s for k, s in zip(self.graph.holders(0), sealed, strict=True) if k in told]
        self.cohort.requests[10] = marks(told, self.n) + b"".join(kept)

    def run(self) -> np.ndarray:
        """Return the words of client 0."""
        cohort, n = self.cohort, self.n
        own = {
            k: _ClientState.read(cohort.memories[10 + k].recall("keys").secret) for k in range(n)
        }
        masked = cohort.ask("masked")[10]
        left = [k for k in range(n) if k not in self.gone]
        signed = {k: cohort.answer("agree", 10 + k, cohort.survivors(k, left)) for k in left if k}
        proof = marks(list(signed)[: quorum(n)], n)
        proof += b"".join(list(signed.values())[: quorum(n)])
        given: dict[int, dict[int, bytes]] = {}
        for k in signed:
            shares = pieces(cohort.answer("unmask", 10 + k, proof), SHARE)
            for of, share in zip(self.graph.holders(k), shares, strict=True):
                given.setdefault(of, {})[k] = share
        total = words_of(masked)
        add_mask(total, self.joined(0, given), purpose(self.bound, 0), -1)
        secrets = {k: own[k].mask for k in self.friends}
        secrets |= {k: self.joined(k, given) for k in self.gone}
        for k, key in secrets.items():
            add_pair_mask(total, load_key(key), public_key(own[0].mask), k, 0, self.bound)
        return total[:-1]

    def joined(self, of: int, given: dict[int, dict[int, bytes]]) -> bytes:
        return join(dict(list(given[of].items())[: self.graph.threshold(of)]))


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
def test_signatures_of_neighbours_alone_are_not_enough():
    """A server that knows a sparse graph sorts members so that some see their neighbours agree.

    Two thirds of all members cannot agree on two stories; two thirds of some clients' neighbours
    can, in large federations, with far fewer than a third of the members on the server's side.
    """

    def near(cohort: Cohort) -> bytes:
        cohort.reach("agree")
        signed, holders = cohort.ask("agree"), cohort.members.graph.holders(0)
        who = holders[: quorum(len(holders))]
        return marks(who, 60) + b"".join(signed[10 + k] for k in who)

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
    for node in (10, 13):  # and a server that does not care gets no signature
        with pytest.raises(RefusedError, match="was told that others take part"):
            cohort.answer("agree", node, cohort.survivors(node - 10, {0, 1, 2, 3, 5}))


def test_a_changed_question_is_another_sum():
    """Client 0 is asked something else than the others: nobody's keys are good for both."""
    who = identities(5)
    asked = Cohort(vectors_of(5), '{"asked": "beta"}', who=who).reach("shares")
    other = Client('{"asked": "class-totals"}', who[0], Cohort(vectors_of(5), who=who).memories[10])
    other.keys(lambda: np.zeros(5, np.uint64))
    with pytest.raises(RefusedError, match="are not signed by it for this sum"):
        other.shares(asked.requests[10])


def test_refusals_do_not_depend_on_what_a_client_holds():
    """The same wrong requests to clients of different words: the same answers, word for word."""
    who, said = identities(5), []
    for seed in (0, 1):
        answers = []
        cohort = Cohort(vectors_of(5, seed), who=who)
        for stage in ("shares", "masked", "agree", "unmask"):
            for bad in (b"", bytes(5), b"\1" * 5, b"\1" * 500):
                with pytest.raises(RefusedError) as refused:
                    cohort.answer(stage, 10, bad)
                answers.append(str(refused.value))
        said.append(answers)
    assert said[0] == said[1]
    assert len(said[0]) == 16


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
