"""Every count-level number of the paper, and the numbers on which it disagrees with itself."""

from fedeas import FedEAS, FullBalance
from fedeas.partition import FLBench
from reproduction.counts import count_numbers, disagreements, paper_counts

# Figures that the paper does not print but its partition determines.
NOT_PRINTED = {
    ("CIFAR-10", 20, 0.05): (45_007, 18_125, 284_853),
    ("CIFAR-10", 20, 0.3): (45_006, 5_675, 141_944),
    ("CIFAR-10", 100, 0.05): (45_038, 36_935, 268_402),
    ("CIFAR-10", 100, 0.3): (45_038, 15_686, 162_082),
    ("CIFAR-100", 20, 0.1): (45_008, 29_647, 612_492),
    ("CIFAR-100", 100, 0.1): (45_038, 75_559, 826_762),
}


def test_every_number_of_the_paper_is_reproduced():
    found = list(count_numbers())
    assert [claim for claim in found if not claim.agrees] == []
    assert len(found) == 32


def test_it_does_not_search_for_the_partitions(monkeypatch):
    """A few take thousands of random cuts: the search starts where it is known to end."""
    cuts = []
    plain = FLBench._draw
    monkeypatch.setattr(FLBench, "_draw", lambda *given: cuts.append(1) or plain(*given))
    paper_counts.cache_clear()
    assert len(list(count_numbers())) + len(list(disagreements())) == 36
    assert len(cuts) < 100


def test_the_disagreements_are_listed_with_both_values_and_a_reason():
    found = {claim.what: (claim.paper, claim.ours, claim.reason) for claim in disagreements()}
    assert found["synthetic share at beta = 12"][:2] == ("21.2 %", "22.99 %")
    assert found["upper end of the admissible betas"][:2] == ("13.4", "13.29")
    assert found["median real samples per client"][:2] == ("1,624", "1,984.5")
    assert found["totals that the printed equations give"][:2] == ("8 of 8", "2 of 8")
    assert all(reason for *_, reason in found.values())


def test_what_the_partition_determines_beyond_the_paper():
    for (data, K, alpha), (real, printed_equations, full) in NOT_PRINTED.items():
        counts = paper_counts(data, K, alpha)
        assert counts.total == real
        assert FedEAS(below_mean=False).plan(counts).total == printed_equations
        assert FullBalance().plan(counts).total == full


def test_the_budgets_of_the_main_partition(paper):
    budgets = FedEAS(beta=12).budgets(paper.n.astype(float))
    assert budgets.astype(int).tolist() == [
        130, 93, 27, 133, 175, 83, 196, 27, 60, 156, 79, 73, 156, 117, 90, 90, 96, 52, 132, 36
    ]  # fmt: skip
    assert paper_counts() == paper
