"""Queries: one sample never moves an answer further than was proven, and what sums are read as."""

import json
import math
import tracemalloc

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fedeas import FedEAS, InfeasibleError, InputError, LabelCounts, WaterFill
from fedeas.planning.beta import path
from fedeas_private.queries import QUERIES, encode_query, read_query
from fedeas_private.queries.effects import (
    RAMP,
    BetaQuery,
    NoisyEstimate,
    PriceQuery,
    _integral,
    _largest_share,
    _ranges,
    _smallest_share,
    choose_by_conditions,
    choose_within,
    nondecreasing,
)
from fedeas_private.queries.moments import ImageMoments, ImageProducts
from fedeas_private.queries.query import ClassTotals, onto_simplex
from fedeas_private.queries.table import ColumnCounts, RowMoments
from fedeas_private.secure_sum.messages import RefusedError
from strategies import counts

KINDS = [ClassTotals, BetaQuery, PriceQuery]


# How far one sample moves an answer.


@st.composite
def histograms(draw) -> np.ndarray:
    """One site: empty, of one class, with ties at the mean, with holes, of up to 10^6 samples."""
    C = draw(st.sampled_from([2, 3, 5, 10, 30]))
    size = draw(st.sampled_from([0, 1, 2, 5, 20, 100, 1000, 10**4, 10**5, 10**6]))
    size = draw(st.integers(size // 2, size))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    kind = draw(st.sampled_from(["skewed", "one class", "holes", "ties", "few", "near balance"]))
    if kind == "skewed":
        return rng.multinomial(size, rng.dirichlet([10 ** rng.uniform(-2, 1)] * C))
    n = np.full(C, size // C)
    some = int(rng.integers(1, C))
    if kind == "one class":
        n[:] = 0
        n[0] = size
    elif kind == "holes":
        n[:some] = rng.integers(0, 2)
    elif kind == "ties":  # classes that one sample carries over the mean
        n[:some] -= 1
        n[-1] += some + int(rng.integers(0, 2))
    elif kind == "few":
        n = rng.integers(0, 4, C) * (rng.random(C) < 0.5)
    else:
        n += rng.integers(-1, 2, C) * int(rng.integers(0, 1 + n[0] // 3))
    return np.maximum(n, 0)


def moved(query, n: np.ndarray) -> np.ndarray:
    """How far the answer moves when a sample of each class is added, or taken away again."""
    words = query.words(np.vstack([n, n + np.eye(len(n), dtype=int)]).astype(float))
    return np.abs(words[1:] - words[0])


def column(query, size: int) -> np.ndarray:
    """The bounds for a site of this size."""
    if query.bounds.shape[1] == 1:
        return query.bounds[:, 0]
    low, _ = _ranges(100.0 * query.classes * query.numbers.max() ** 2)
    return query.bounds[:, np.searchsorted(low, size, side="right") - 1]


@pytest.mark.parametrize("kind", KINDS)
@given(n=histograms())
@example(n=np.zeros(10, dtype=int))
@example(n=np.array([10**6] + [0] * 9))
@example(n=np.array([100] * 10))
def test_no_sample_moves_an_answer_further_than_proven(kind, n):
    """Many sites with all their neighbours per query: word by word, and in the norm."""
    query = kind(len(n))
    if kind is not ClassTotals:
        word = query.units * column(query, int(n.sum()))
        assert (moved(query, n) <= word * (1 + 1e-9) + 1e-3).all()
    answers = query.answers(np.vstack([n, n + np.eye(len(n), dtype=int)]))
    assert np.linalg.norm(answers[1:] - answers[0], axis=1).max() <= query.sensitivity


def climbed(query, rng: np.random.Generator, steps: int) -> tuple[float, np.ndarray]:
    """Climb from drawn sites to ones where a sample moves the answer further and further."""
    C, held = query.classes, {}
    best, words = 0.0, np.zeros(query.length)
    for step in range(steps):
        if step < steps // 4 or not held:
            size = int(10 ** rng.uniform(0, 5))
            n = rng.multinomial(size, rng.dirichlet([10 ** rng.uniform(-2, 1)] * C))
        else:
            n = held[list(held)[rng.integers(len(held))]].copy()
            at = rng.integers(C, size=int(rng.integers(1, 4)))
            n[at] += np.rint(rng.normal(size=len(at)) * np.maximum(1, n[at] * 0.3)).astype(int)
            n = np.maximum(n, 0)
        change = moved(query, n)
        far = float(np.linalg.norm(change, axis=1).max())
        for word in np.flatnonzero(change.max(axis=0) > words):
            held[int(word)] = n
        if far > best:
            held[-1] = n
        best, words = max(best, far), np.maximum(words, change.max(axis=0))
    return best, words


@pytest.mark.parametrize("kind", [BetaQuery, PriceQuery])
@pytest.mark.parametrize("C", [2, 10])
def test_an_adversary_that_climbs_stays_below_the_bounds_but_not_far(kind, C):
    """The bounds hold, and none is so loose that it would hold for anything."""
    query = kind(C)
    best, words = climbed(query, np.random.default_rng(C), 600)
    assert best <= query.sensitivity
    assert best >= 0.15 * query.sensitivity
    samples = slice(2, 2 + len(query.numbers))
    found = words[samples] / (query.units * query.bounds.max(axis=1))[samples]
    assert found.max() <= 1 + 1e-9
    assert found.min() >= 0.15


def test_without_the_ramp_one_sample_moves_hundreds():
    """A class that reaches the mean is not filled any more: what the smoothed rule is for."""
    n = np.array([699, 20, 20, 20, 20, 20, 20, 20, 80, 102])  # of 102.1 on average
    exact = [int(FedEAS(80).local(row).sum()) for row in (n, n + np.eye(10, dtype=int)[9])]
    assert exact[0] - exact[1] > 200
    assert moved(BetaQuery(10), n)[9].max() <= BetaQuery(10).sensitivity


def test_the_parts_of_the_bounds_are_what_they_are_called():
    kl = np.array([1e-3, 0.1, 1.0, math.log(10) - 1e-6])
    rng = np.random.default_rng(1)
    drawn = np.concatenate([rng.dirichlet([a] * 10, 20_000) for a in (0.05, 0.3, 1, 10, 100)])
    held = (drawn * np.log(np.maximum(drawn * 10, 1e-300))).sum(axis=1)
    for k, largest, smallest in zip(
        kl, _largest_share(kl, 10), _smallest_share(kl, 10), strict=True
    ):
        inside = drawn[held <= k]
        assert smallest <= inside.min() if inside.size else True
        assert largest >= inside.max() if inside.size else True
    assert _largest_share(kl[3:], 10)[0] == pytest.approx(1.0, abs=1e-5)
    assert _smallest_share(kl[2:3], 10)[0] < 1e-15
    t = (np.arange(10**6) + 0.5) / 10**6
    for whole in (-1.5, -0.2, 0.0, 2.0):
        numeric = np.maximum(0.0, whole - np.log(t) / math.log(10)).mean()
        assert _integral(np.array(whole), 10) == pytest.approx(numeric, abs=1e-4)
    low, high = _ranges(1e6)
    assert low[0] == 0
    assert (low[1:] == high[:-1] + 1).all()
    assert high[-1] == math.inf


# What a site answers.


def test_class_totals_by_hand():
    query = ClassTotals(3)
    assert query.answer([90, 10, 0]).tolist() == [90 * 256, 10 * 256, 0]
    assert (query.length, query.sensitivity) == (3, 256.0)


def test_beta_by_hand():
    """[90, 10, 0] has a mean of 33.3 and a skewness of 0.7041: the level is 4.065 beta - 0.5."""
    query = BetaQuery(3)
    assert (query.length, len(query.numbers)) == (42, 20)
    assert query.numbers[0], query.numbers[-1] == (1, 80)
    got = query.answer([90, 10, 0]) / query.units
    skewness = 1 + (0.9 * math.log(0.9) + 0.1 * math.log(0.1)) / math.log(3)
    rate = math.sqrt(100 / 3) * skewness
    assert got[:2] == pytest.approx([100, 100 * (0.82 - 1 / 3)], abs=0.05)
    at = dict(zip(query.numbers.tolist(), got[2:22], strict=True))
    score = dict(zip(query.numbers.tolist(), got[22:], strict=True))
    assert at[1] == pytest.approx(rate - 0.5, abs=0.05)  # one class below the level
    level = 5 * rate - 0.5
    assert at[5] == pytest.approx(2 * level - 10, abs=0.05)  # two of them
    total = 100 + 2 * level - 10
    far = (90**2 + 2 * level**2) / total**2 - 1 / 3
    assert score[5] == pytest.approx(100 * far, abs=0.05)
    # Far above the mean: RAMP times what is missing to it, and the score of the mean itself.
    missing = 100 / 3 * 2 - 10
    assert at[80] == pytest.approx(RAMP * missing, abs=0.1)
    far = (90**2 + 2 * (100 / 3) ** 2) / (100 + missing) ** 2 - 1 / 3
    assert score[80] == pytest.approx(100 * far, abs=0.05)


def test_price_by_hand():
    """At a price of 0.2, [90, 10, 0] takes 16 + 27 samples; before rounding up, 42.2."""
    query = PriceQuery(3)
    got = query.answer([90, 10, 0]) / query.units
    at = dict(zip(query.numbers.tolist(), got[2:32], strict=True))
    assert at[0.2] == pytest.approx(42.2, abs=0.1)
    assert WaterFill(price=0.2).local([90, 10, 0]).sum() == 43
    # One class of N, level L, M = N + 2 L: the price is N (N^2 - N L) / M^3.
    got = query.answer([1000, 0, 0]) / query.units
    taken = dict(zip(query.numbers.tolist(), got[2:32], strict=True))[0.3]
    level = taken / 2
    assert 1000 * (1000**2 - 1000 * level) / (1000 + taken) ** 3 == pytest.approx(0.3, abs=1e-3)


@pytest.mark.parametrize("kind", KINDS)
def test_an_empty_site_answers_zeros(kind):
    assert not kind(4).answer([0, 0, 0, 0]).any()


@pytest.mark.parametrize("kind", [BetaQuery, PriceQuery])
@given(counts)
def test_samples_grow_along_the_grid_and_scores_fall(kind, c):
    query = kind(c.C)
    _, before, *words = (query.answers(c.n) / query.units).T
    samples, scores = np.split(np.array(words), 2)
    slack = 1.1 / query.units.min()
    assert (np.diff(samples, axis=0) >= -slack).all()
    assert (np.diff(scores, axis=0) <= slack).all()
    assert (scores[0] <= before + slack).all()


def test_below_the_mean_the_smoothed_rule_is_the_rule(paper):
    effects, exact = BetaQuery(10).read_plain(paper.n), path(paper, BetaQuery(10).numbers)
    np.testing.assert_allclose(effects.samples[3:13], exact.totals[3:13], rtol=0.02)
    np.testing.assert_allclose(effects.scores[3:13], exact.scores[3:13] * paper.total, rtol=0.02)


# Queries of another party.


@pytest.mark.parametrize("kind", KINDS)
def test_a_query_arrives_as_it_was_asked(kind):
    assert read_query(json.loads(json.dumps(encode_query(kind(7))))) == kind(7)
    sums = {"image-moments", "image-products", "column-counts", "row-moments"}
    sums |= {"feature-means", "feature-products"}
    assert set(QUERIES) == {"class-totals", "beta", "price", *sums}


@pytest.mark.parametrize("kind", [ImageMoments, ImageProducts])
def test_a_sum_over_samples_arrives_as_it_was_asked(kind):
    asked = json.loads(json.dumps(encode_query(kind(7, (28, 28, 1)))))
    assert read_query(asked) == kind(7, (28, 28, 1))
    for wrong in ({"shape": 3}, {"shape": [28, 28]}, {"shape": [2**20, 2**20, 3]}, {"classes": 1}):
        with pytest.raises(RefusedError):
            read_query({**asked, **wrong})


@pytest.mark.parametrize(
    "asked",
    [
        None, 3, "beta", [], {}, {"query": "beta"}, {"query": "os:system", "classes": 3},
        {"query": "beta", "classes": 1}, {"query": "beta", "classes": 3.0},
        {"query": "beta", "classes": True}, {"query": ["x"], "classes": 3},
        {"query": "beta", "classes": 2**21}, {"query": "beta", "classes": -(10**30)},
        {"query": "beta", "classes": 3, "ramp": 1000}, {"query": "beta", "classes": "3"},
        {"query": "price", "classes": 3, "price": 0.5}, {"query": {}, "classes": 3},
        {"classes": 3}, {"query": "class-totals", "classes": 3, "units": 10**9},
    ],
)  # fmt: skip
def test_what_is_not_a_query_is_refused(asked):
    with pytest.raises(RefusedError):
        read_query(asked)


@pytest.mark.parametrize("kind", KINDS)
def test_a_site_refuses_what_is_not_its_histogram(kind):
    for wrong in ([1, 2], [[1, 2, 3]], 3):
        with pytest.raises(RefusedError, match="does not have 3 classes"):
            kind(3).answer(wrong)
    with pytest.raises(InputError):
        kind(3).answer([1, -2, 3])
    with pytest.raises(RefusedError, match="too many samples"):
        kind(3).answer([2**26, 1, 0])


# What the sums are read as.


def test_the_prior_sums_to_one_and_its_errors_are_honest():
    rng, query = np.random.default_rng(3), ClassTotals(5)
    true = np.array([5000, 3000, 1500, 500, 0])
    sigma = 100 * 256.0
    found = []
    for _ in range(2000):
        noise = np.rint(rng.normal(size=5) * sigma).astype(np.int64)
        prior = query.read(true * 256 + noise, sigma, 10)
        assert (prior.shares >= 0).all()
        assert prior.shares.sum() == pytest.approx(1)
        found.append([prior.raw, prior.errors])
    raw, errors = np.array(found).transpose(1, 0, 2)
    shares = true / true.sum()
    np.testing.assert_allclose(raw.std(axis=0), errors.mean(axis=0), rtol=0.1)
    covered = (np.abs(raw - shares) < 1.96 * errors).mean(axis=0)
    assert (np.abs(covered - 0.95) < 0.02).all()
    with pytest.raises(InfeasibleError, match="the noise hides how many"):
        query.read(np.array([100, 10, 0, 0, 0]) * 256, sigma, 10)


def test_the_nearest_point_of_the_simplex():
    rng = np.random.default_rng(0)
    for _ in range(50):
        x = rng.normal(size=4)
        near = onto_simplex(x)
        others = rng.dirichlet([0.5] * 4, 500)
        assert near.sum() == pytest.approx(1)
        assert ((others - x) ** 2).sum(axis=1).min() >= ((near - x) ** 2).sum() - 1e-12


def test_pooling_finds_the_nearest_numbers_in_order():
    rng = np.random.default_rng(0)
    for _ in range(50):
        x, w = rng.normal(size=6), rng.uniform(0.1, 3, 6)
        fit = nondecreasing(x, w)
        assert (np.diff(fit) >= 0).all()
        others = np.sort(rng.normal(size=(500, 6)), axis=1)
        assert ((others - x) ** 2 @ w).min() >= (fit - x) ** 2 @ w - 1e-12


def test_what_is_chosen_is_the_cheapest_that_meets_both_conditions(paper):
    query = BetaQuery(10)
    effects = query.read_plain(paper.n)
    chosen = choose_by_conditions(query, effects)
    assert chosen.policy == FedEAS(12.0)
    assert chosen.met is True
    assert chosen.sure == {"share": 1.0, "reduction": 1.0}
    assert chosen.samples.value == pytest.approx(FedEAS(12).plan(paper).total, rel=0.01)
    exact = path(paper, query.numbers)
    cheapest = query.numbers[exact.reductions >= 0.3][0]
    assert choose_by_conditions(query, effects, 0.3, 0.25).policy.beta == cheapest
    stays = choose_by_conditions(query, effects, 0.9, 0.25)  # as much as the share allows
    assert stays.policy.beta == 12
    assert stays.met is False
    assert choose_by_conditions(query, effects, 0.9, 0.9).policy.beta > 20


def test_a_condition_that_the_noise_hides_is_not_claimed(paper):
    """At beta = 12 the paper's federation removes 51.9 %: noise of some 2 % hides that."""
    query = BetaQuery(10)
    sums = query.answers(paper.n).sum(axis=0)
    sigma = 0.02 * query.units[33] * query.read_plain(paper.n).score_before.value
    chosen = choose_by_conditions(query, query.read(sums, sigma, 20))
    assert chosen.policy.beta == 12
    assert 0.5 < chosen.sure["reduction"] < 0.95
    assert chosen.met is None
    with pytest.raises(InfeasibleError, match="the noise hides the"):
        choose_by_conditions(query, query.read(sums, 1e9, 20))


def test_how_sure_a_claim_is_is_true_about_that_often():
    """Of choices that are at least 95 % sure of both conditions, both hold without noise."""
    rng, query, claims = np.random.default_rng(11), BetaQuery(10), []
    for _ in range(300):
        sizes = rng.lognormal(math.log(2000), 0.7, 20).astype(int)
        n = np.array([rng.multinomial(size, rng.dirichlet([0.2] * 10)) for size in sizes])
        sums = query.answers(n).sum(axis=0)
        sigma = 2 * query.sensitivity
        noisy = sums + np.rint(rng.normal(size=query.length) * sigma).astype(np.int64)
        found = choose_by_conditions(query, query.read(noisy, sigma, 20), 0.4, 0.3)
        if found.met:
            true, at = query.read(sums, 0.0, 20), query.numbers.tolist().index(found.policy.beta)
            claims.append(true.share(at).value < 0.3 and true.reduction(at).value >= 0.4)
    assert len(claims) >= 50
    assert np.mean(claims) >= 0.95


def test_what_cannot_be_is_said():
    query = BetaQuery(2)
    with pytest.raises(InfeasibleError, match="no number of the grid stays below a synthetic"):
        choose_by_conditions(query, query.read_plain([[3, 0], [0, 3], [3, 0]]), max_share=1e-6)
    with pytest.raises(InfeasibleError, match="every site is balanced"):
        choose_by_conditions(query, query.read_plain([[5, 5], [3, 3], [1, 1]]))
    with pytest.raises(InfeasibleError, match="no site has samples"):
        choose_by_conditions(query, query.read(np.zeros(42, np.int64), 0.0, 3))
    with pytest.raises(InputError, match="not the sums of this query"):
        query.read(np.zeros(41, np.int64), 0.0, 3)
    with pytest.raises(InputError, match="sigma"):
        query.read(np.zeros(42, np.int64), math.nan, 3)


@given(counts, st.integers(1, 10**6))
def test_a_price_for_a_total_never_exceeds_it_without_noise(c, total):
    query = PriceQuery(c.C)
    try:
        found = choose_within(query, query.read_plain(c.n), total)
    except InfeasibleError:
        return
    taken = sum(int(found.policy.local(row).sum()) for row in c.n)
    # Words are rounded to their units, which are below 1/12 of a sample here.
    assert 0 < taken <= total + c.K * 0.5 / query.units[2:32].min() + 0.5
    assert abs(found.samples.value - taken) <= c.K


def test_noise_makes_a_total_stay_on_the_safe_side():
    rng, query = np.random.default_rng(5), PriceQuery(10)
    n = np.array([rng.multinomial(3000, rng.dirichlet([0.2] * 10)) for _ in range(30)])
    sums, sigma, total = query.answers(n).sum(axis=0), 6 * query.sensitivity, 20_000
    plain = choose_within(query, query.read(sums, 0.0, 30), total)
    over = 0
    for _ in range(200):
        noisy = sums + np.rint(rng.normal(size=query.length) * sigma).astype(np.int64)
        found = choose_within(query, query.read(noisy, sigma, 30), total)
        assert found.sure["total"] >= 0.95
        assert found.policy.price >= plain.policy.price * 0.8
        at = query.numbers.tolist().index(found.policy.price)
        over += query.read(sums, 0.0, 30).samples[at] > total
    assert over <= 10  # 5 %


def test_estimates_say_how_sure_they_are():
    assert NoisyEstimate(0.2, 0.0).sure_below(0.25) == 1.0
    assert NoisyEstimate(0.25, 0.0).sure_from(0.25) == 1.0
    assert NoisyEstimate(0.5, 0.1).sure_below(0.5) == pytest.approx(0.5)
    assert NoisyEstimate(0.5, 0.1).sure_from(0.5 - 0.1645) == pytest.approx(0.95, abs=1e-3)


def test_counts_of_a_labelled_table_are_read_as_they_are():
    c = LabelCounts([[90, 10, 0], [30, 40, 30]])
    effects = BetaQuery(3).read_plain(c.n)
    assert effects.real == NoisyEstimate(200.0, 0.0)
    assert effects.sites == 2


# What a question may cost a site before anybody pays for it.


def test_no_query_takes_the_memory_of_all_its_rows():
    """256 rows of the products of 256 frequencies would be 67 megabytes, several times over."""
    images = np.random.default_rng(0).integers(0, 255, (256, 16, 16, 1)).astype(np.uint8)
    query, labels = ImageProducts(2, (16, 16, 1), 16), np.zeros(256, np.int64)
    query.answer(images[:1], labels[:1])  # what is kept for all answers
    tracemalloc.start()
    whole = query.answer(images, labels)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 256 * query.width * 8
    rows = query.rows(images, labels)
    assert np.array_equal(rows.sum(axis=0), whole)


def test_frequencies_are_bounded():
    for kind in (ImageMoments, ImageProducts):
        kind(10, (28, 28, 1), 16)
        with pytest.raises(InputError, match="17"):
            kind(10, (28, 28, 1), 17)


VALUES = st.sampled_from((0.0, 1.0, -1.0, 2.5, 1e30, -1e30, 1e-40, math.nan, math.inf, -math.inf))


@given(st.lists(st.tuples(VALUES, VALUES), max_size=6), st.sampled_from((1e-5, 1.0, 1e5)))
def test_no_row_of_a_table_makes_a_query_fail(rows, radius):
    """Settings are checked before samples are opened: afterwards nothing may depend on them."""
    samples = np.array(rows, np.float32).reshape(-1, 2)
    labels = np.arange(len(samples)) % 3
    counts = ColumnCounts(3, (2,), cuts=((0.0, 1.0), (-1e30, 1e30)))
    moments = RowMoments(
        3, (2,), levels=(3, 0), gaps=(True, False), cuts=((0.0, 1e30),),
        places=((-1e6, 0.0, 1e6),), variances=((0.0, 1e6, 1.0),), radius=radius,
        number_radius=1.0,
    )  # fmt: skip
    for query in (counts, moments):
        answer = query.answer(samples, labels)
        alone = [query.answer(samples[[k]], labels[[k]]) for k in range(len(samples))]
        assert np.array_equal(answer, np.sum(alone, axis=0) if alone else np.zeros(query.length))
        assert all(np.linalg.norm(one) <= query.sensitivity for one in alone)


@pytest.mark.parametrize(
    ("cuts", "refused"),
    [
        ([range(4096)], False),
        ([range(4097)], True),
        ([range(130_000)], True),  # a message of less than a megabyte: two milliseconds a row
        ([range(161)] * 300, False),  # what a generator of 300 columns of real numbers asks
        ([range(4096)] * 16, True),
    ],
)
def test_a_question_of_many_cuts_is_refused_before_a_row_is_read(cuts, refused):
    asked = {
        "query": "column-counts", "classes": 2, "shape": [len(cuts)],
        "cuts": [list(column) for column in cuts],
    }  # fmt: skip
    if refused:
        with pytest.raises(RefusedError):
            read_query(asked)
    else:
        assert read_query(asked).width == sum(len(column) + 2 for column in cuts)
