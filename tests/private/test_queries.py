"""Queries: one sample never moves an answer further than was proven, and what sums are read as."""

import json
import math
import tracemalloc

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fedeas import InfeasibleError, InputError
from fedeas.private.queries import QUERIES, encode_query, read_query
from fedeas.private.queries.moments import ImageMoments, ImageProducts
from fedeas.private.queries.query import ClassTotals, onto_simplex
from fedeas.private.queries.table import ColumnCounts, RowMoments
from fedeas.private.secure_sum.messages import RefusedError

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


@given(n=histograms())
@example(n=np.zeros(10, dtype=int))
@example(n=np.array([10**6] + [0] * 9))
@example(n=np.array([100] * 10))
def test_no_sample_moves_an_answer_further_than_proven(n):
    """Many sites with all their neighbours."""
    query = ClassTotals(len(n))
    answers = query.answers(np.vstack([n, n + np.eye(len(n), dtype=int)]))
    assert np.linalg.norm(answers[1:] - answers[0], axis=1).max() <= query.sensitivity


# What a site answers.


def test_class_totals_by_hand():
    query = ClassTotals(3)
    assert query.answer([90, 10, 0]).tolist() == [90 * 256, 10 * 256, 0]
    assert (query.length, query.sensitivity) == (3, 256.0)


def test_an_empty_site_answers_zeros():
    assert not ClassTotals(4).answer([0, 0, 0, 0]).any()


# Queries of another party.


def test_a_query_arrives_as_it_was_asked():
    assert read_query(json.loads(json.dumps(encode_query(ClassTotals(7))))) == ClassTotals(7)
    sums = {"image-moments", "image-products", "column-counts", "row-moments"}
    sums |= {"feature-means", "feature-products"}
    assert set(QUERIES) == {"class-totals", *sums}


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
        None, 3, "class-totals", [], {}, {"classes": 3}, {"query": "class-totals"},
        *({"query": name, "classes": 3} for name in ("os:system", "train", ["x"], {})),
        *({"query": "class-totals", "classes": n} for n in (1, 3.0, True, 2**21, -(10**30), "3")),
        {"query": "class-totals", "classes": 3, "units": 10**9},
    ],
)  # fmt: skip
def test_what_is_not_a_query_is_refused(asked):
    with pytest.raises(RefusedError):
        read_query(asked)


def test_a_site_refuses_what_is_not_its_histogram():
    for wrong in ([1, 2], [[1, 2, 3]], 3):
        with pytest.raises(RefusedError, match="does not have 3 classes"):
            ClassTotals(3).answer(wrong)
    with pytest.raises(InputError):
        ClassTotals(3).answer([1, -2, 3])
    with pytest.raises(RefusedError, match="too many samples"):
        ClassTotals(3).answer([2**26, 1, 0])


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
    with pytest.raises(InputError, match="not the sums of this query"):
        query.read(np.zeros(4, np.int64), 0.0, 3)
    with pytest.raises(InputError, match="sigma"):
        query.read(np.zeros(5, np.int64), math.nan, 3)


def test_the_nearest_point_of_the_simplex():
    rng = np.random.default_rng(0)
    for _ in range(50):
        x = rng.normal(size=4)
        near = onto_simplex(x)
        others = rng.dirichlet([0.5] * 4, 500)
        assert near.sum() == pytest.approx(1)
        assert ((others - x) ** 2).sum(axis=1).min() >= ((near - x) ** 2).sum() - 1e-12


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
