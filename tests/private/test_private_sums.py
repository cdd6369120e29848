"""Noisy sums, such as the class prior, paid for at each site."""

import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from flwr.clientapp import ClientApp

from fedeas import InfeasibleError, InputError
from fedeas.private.accounting import rho_for
from fedeas.private.flower.queries import (
    FlowerSums,
    QueryContext,
    answer_queries,
    ask,
    class_prior,
)
from fedeas.private.ledger import Ledger
from fedeas.private.noise import SumNoise
from fedeas.private.queries import QUERIES
from fedeas.private.queries.moments import ImageMoments
from fedeas.private.queries.query import MOST_SAMPLES, ClassTotals
from fedeas.private.secure_sum.identity import MOST
from fedeas.private.secure_sum.messages import RefusedError
from fedeas.train.flower.backends import InlineGrid
from fedeas.train.flower.deployed import row_policy
from helpers.secure_sums import identities


class Sites:
    """A grid whose sites hold the rows of n, each with a ledger; and the list of members."""

    def __init__(self, folder: Path, n, allow=tuple(QUERIES), epsilon=3.0, colluding=1) -> None:
        who = identities(len(n), colluding)
        self.members, self.folder = who[0].members, folder

        def hold(context):
            k = int(context.node_config["partition-id"])
            ledger = Ledger.open(folder / f"ledger-{k}", epsilon=epsilon)
            return QueryContext(n[k], folder / str(k), who[k], ledger, allow)

        app = ClientApp()
        answer_queries(app, hold)
        self.grid = InlineGrid(app, len(n))
        self.nodes = list(self.grid.get_node_ids())

    def ask(self, query, epsilon=1.0):
        return ask(self.grid, self.nodes, query, self.members, epsilon=epsilon, timeout=60)

    def ledger(self, k: int) -> Ledger:
        return Ledger.open(self.folder / f"ledger-{k}")


N = np.random.default_rng(0).integers(0, 900, (12, 3))


def test_the_sum_is_that_of_the_answers_and_of_all_parts_of_the_noise(tmp_path, monkeypatch):
    parts = []
    draw = SumNoise.part
    monkeypatch.setattr(SumNoise, "part", lambda *a: parts.append(drawn := draw(*a)) or drawn)
    sites = Sites(tmp_path, N)
    found = sites.ask(ClassTotals(3))
    assert len(parts) == len(N)
    np.testing.assert_array_equal(found.sums, ClassTotals(3).answers(N).sum(axis=0) + sum(parts))
    # Of twelve parts; nine less one colluding site must suffice for the promise.
    promised = ClassTotals(3).sensitivity / math.sqrt(2 * rho_for(1.0, 1e-6))
    assert found.sigma == pytest.approx(promised * math.sqrt(12 / 8), rel=0.02)


def test_every_answer_is_in_the_ledger_of_its_site(tmp_path):
    sites = Sites(tmp_path, N)
    class_prior(sites.grid, sites.nodes, 3, sites.members)
    class_prior(sites.grid, sites.nodes, 3, sites.members, epsilon=2.0)
    for k in range(len(N)):
        entries = sites.ledger(k).entries
        assert [e.query for e in entries] == ["class-totals"] * 2
        assert [e.rho for e in entries] == [rho_for(1.0, 1e-6), rho_for(2.0, 1e-6)]


def test_a_server_that_asks_again_and_again_is_refused(tmp_path):
    sites = Sites(tmp_path, N, epsilon=2.0)
    asked = 0
    with pytest.raises(InfeasibleError, match="too few clients"):
        for _ in range(50):
            sites.ask(ClassTotals(3))
            asked += 1
    assert 1 < asked < 10
    assert sites.ledger(0).epsilon_spent <= 2.0
    # Another question does not help.
    with pytest.raises(InfeasibleError, match="too few clients"):
        sites.ask(ClassTotals(3), 1.5)


@pytest.mark.parametrize("allow", [("image-moments",), ("updates",), ()])
def test_a_site_answers_only_what_its_owner_allows(tmp_path, allow):
    sites = Sites(tmp_path, N, allow)
    with pytest.raises(InfeasibleError, match="does not allow this query"):
        sites.ask(ClassTotals(3))
    assert not any(sites.ledger(k).entries for k in range(len(N)))


@pytest.mark.parametrize("rho", [-1.0, 0.0, 1e9, "1", None, True, math.nan, [0.1]])
def test_a_price_that_cannot_be_is_refused(tmp_path, rho):
    from fedeas.private.flower.queries import _read

    who = identities(3)
    holding = QueryContext(N[0], tmp_path, who[0], Ledger.open(tmp_path / "ledger"))
    sound = {"query": "class-totals", "classes": 3}
    for asked in ({**sound, "rho": rho}, sound, 7, None):
        with pytest.raises(RefusedError):
            _read(asked, holding)


def test_the_class_prior_is_near_that_of_the_counts(paper, tmp_path):
    sites = Sites(tmp_path, paper.n)
    prior = class_prior(sites.grid, sites.nodes, 10, sites.members)
    true = paper.n.sum(axis=0) / paper.n.sum()
    assert np.abs(prior.shares - true).max() < 6 * prior.errors.max()
    assert prior.errors.max() < 0.002


def test_sites_take_every_prior_that_they_summed_up():
    """A class of one sample in a million is told as rare, not as a share that sites refuse."""
    for classes in (3, 100, 1000):
        totals = np.full(classes, 10**6)
        totals[:2] = 1, 0
        for sigma in (0.0, 256.0):
            shares = ClassTotals(classes).read(256 * totals, sigma, 5).known_shares()
            assert (shares[0] > 0, shares[1] > 0) == (True, sigma > 0)
            row_policy(f"fedeas(beta=12, target={':'.join(map(repr, shares))})")


def test_an_error_of_a_site_tells_the_server_no_count(tmp_path):
    n = [[1234567.5, 40, 7654321], [-2345678, 0, 8765432], [9, 9, 9, 9], [1, 2, 3]]
    sites = Sites(tmp_path, n)
    with pytest.raises(InfeasibleError, match="too few clients") as error:
        sites.ask(ClassTotals(3))
    assert "a site could not answer: InputError" in str(error.value)
    for count in ("1234567", "7654321", "2345678", "8765432"):
        assert count not in str(error.value)


def test_sums_of_the_most_and_largest_sites_fit():
    """The largest site there may be, as often as a sum allows, with room for noise."""
    for n in ([2**26, 0, 0], [2**25, 2**25, 0]):
        assert max(int(word) for word in ClassTotals(3).answer(n)) * MOST < 2**60
    assert ImageMoments(3, (28, 28, 3)).sensitivity * MOST_SAMPLES * MOST < 2**60
    with pytest.raises(RefusedError, match="too many samples"):
        ClassTotals(3).answer([2**26 + 1, 0, 0])


def test_the_server_knows_what_its_sums_cost_as_the_ledgers_do(tmp_path):
    """Two sums that split a budget; one without noise is not asked for."""
    sites = Sites(tmp_path, N)
    sums = FlowerSums(sites.grid, sites.nodes, sites.members, samples=dict.fromkeys(sites.nodes, 9))
    assert sums.get_epsilon() == 0
    first, second = (sums.ask(ClassTotals(3), 2.0, share) for share in (0.25, 0.75))
    assert first.sigma > second.sigma > 0
    assert (first.sites, first.epsilon, first.samples) == (len(N), 2.0, 9 * len(N))
    assert sums.get_epsilon() == pytest.approx(2.0, rel=1e-6)
    assert sites.ledger(0).epsilon_spent == pytest.approx(2.0, rel=1e-6)
    with pytest.raises(InputError, match="epsilon"):
        sums.ask(ClassTotals(3), math.inf)
    assert sums.get_epsilon() == pytest.approx(2.0, rel=1e-6)


def test_only_training_waits_for_torch():
    """Every message of a sum starts a process at a real site."""
    code = (
        "import sys, fedeas.private.flower; fedeas.private.flower.client_app()\n"
        "assert 'torch' not in sys.modules and 'flwr' in sys.modules"
    )
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True)
