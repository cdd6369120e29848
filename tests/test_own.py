"""Generators from noisy sums: what one sample can move, what the sums say, what comes out."""

import json
import math
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedeas import IID, InfeasibleError, InputError
from fedeas.data import Dataset, federate
from fedeas.experiments.own import made_spec
from fedeas.generators import Generator, make_generator
from fedeas.generators.own.card import Card
from fedeas.generators.own.embedded import Embedded
from fedeas.generators.own.features import Features
from fedeas.generators.own.gaussians import Gaussians
from fedeas.generators.own.image_moments import cleaned, image_normals
from fedeas.generators.own.make import make_from_sums, make_own, open_own, queries_for
from fedeas.generators.own.matching import Matching, match
from fedeas.generators.own.refine import features, find_target, refine
from fedeas.generators.own.refined import which_layers
from fedeas.generators.own.sum_check import check_sums
from fedeas.privacy.accounting import (
    DELTA,
    epsilon_of,
    replace_one_epsilon,
    rho_for,
    rho_of,
    sigma_for,
)
from fedeas.privacy.noise import Noise
from fedeas.privacy.queries.convolutions import (
    CELLS,
    FACTORS,
    STEPS,
    conv_features,
    feature_count,
    layers,
)
from fedeas.privacy.queries.embedding import EmbeddingSum
from fedeas.privacy.queries.features import RADIUS, circle_points
from fedeas.privacy.queries.image_features import FeatureMeans, FeatureProducts, FeatureSum
from fedeas.privacy.queries.image_moments import ImageMoments, ImageProducts
from fedeas.privacy.queries.moments import Moments, clipped
from fedeas.privacy.queries.sample_sum import SampleSum
from fedeas.privacy.release import Ask, Release, release
from fedeas.privacy.secure_sum.messages import RefusedError
from fedeas.seeds import child_rng
from federations import write_shapes

SHAPE = (12, 10, 1)
_RNG = np.random.default_rng(0)
LAYERS = (0, 1, 2)
WIDTH = feature_count(LAYERS)
CENTRED = (
    tuple(map(tuple, _RNG.integers(0, 200_000, (3, WIDTH)).tolist())),
    tuple(_RNG.integers(100_000, 1_000_000, WIDTH).tolist()),
    LAYERS,
)
# Of a server that would like to see a single sample: far away, and as sharply as can be.
HOSTILE = (
    ((2**40,) * 512, (0,) * 512, (-(2**40),) * 512), (1, *(2**40,) * 511), (1,)
)  # fmt: skip
QUERIES = [
    EmbeddingSum(3, SHAPE, features=40, edges=15),
    ImageMoments(3, SHAPE, frequencies=5),
    ImageProducts(3, SHAPE, frequencies=5),
    FeatureMeans(3, SHAPE, *CENTRED),
    FeatureMeans(3, SHAPE, *HOSTILE),
    FeatureProducts(3, SHAPE, *CENTRED),
    FeatureProducts(3, SHAPE, *HOSTILE),
]


@st.composite
def images(draw, most: int = 6) -> np.ndarray:
    """Noise, blank and saturated images, single pixels, stripes: whatever moves a sum far."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    count = draw(st.integers(1, most))
    kind = draw(st.sampled_from(["noise", "black", "white", "extremes", "pixel", "stripes"]))
    if kind == "noise":
        return rng.integers(0, 256, (count, *SHAPE), np.uint8)
    if kind == "extremes":
        return 255 * rng.integers(0, 2, (count, *SHAPE), np.uint8)
    found = np.full((count, *SHAPE), 255 if kind == "white" else 0, np.uint8)
    if kind == "pixel":
        found[:, rng.integers(SHAPE[0]), rng.integers(SHAPE[1])] = 255
    if kind == "stripes":
        found[:, :: int(rng.integers(1, 5))] = 255
    return found


# How far one sample moves an answer.


@pytest.mark.parametrize("query", QUERIES, ids=lambda q: q.name)
@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_one_sample_moves_an_answer_by_its_own_row_and_no_further_than_proven(query, data):
    """Added anywhere among the others, so that blocks and orders differ."""
    samples = data.draw(images())
    labels = np.array(
        data.draw(st.lists(st.integers(0, 2), min_size=len(samples), max_size=len(samples)))
    )
    out = data.draw(st.integers(0, len(samples) - 1))
    rest = np.delete(np.arange(len(samples)), out)
    moved = query.answer(samples, labels) - query.answer(samples, labels, rest)
    (own,) = query.rows(samples[out : out + 1], labels[out : out + 1])
    place = labels[out] * query.width if query.by_label else 0
    moved[place : place + query.width] -= own
    assert not moved.any()
    assert np.linalg.norm(own.astype(float)) <= query.sensitivity


@pytest.mark.parametrize("query", QUERIES, ids=lambda q: q.name)
def test_blocks_do_not_matter_to_a_single_bit(query):
    rng = np.random.default_rng(1)
    samples, labels = rng.integers(0, 256, (700, *SHAPE), np.uint8), rng.integers(0, 3, 700)
    whole = query.answer(samples, labels)
    shuffled = rng.permutation(700)
    parts = [query.answer(samples, labels, own) for own in np.array_split(shuffled, [3, 400, 660])]
    assert (sum(parts) == whole).all()
    assert (query.answer(samples, labels, np.empty(0, np.int64)) == 0).all()


def test_the_embedding_of_a_sample_by_hand():
    """A black image has the angle 0 in every direction of both views: (1, 0) everywhere."""
    query = EmbeddingSum(3, SHAPE, features=40, edges=15)
    row = query.rows(np.zeros((1, *SHAPE), np.uint8), np.zeros(1, np.int64))[0]
    assert row[0] == query.count_units == round(math.sqrt(0.02 * 40) * RADIUS)
    assert row[1:].reshape(-1, 2).tolist() == [[RADIUS, 0]] * 40
    norm = math.sqrt(40 * RADIUS**2 + query.count_units**2)
    assert norm <= query.sensitivity <= math.sqrt(40 * (RADIUS + 1) ** 2 + query.count_units**2)


def test_a_larger_change_is_seen():
    """Positive control: two samples do move an answer further than the bound of one."""
    query = EmbeddingSum(3, SHAPE, features=40)
    two = query.answer(np.zeros((2, *SHAPE), np.uint8), np.zeros(2, np.int64))
    assert np.linalg.norm(two.astype(float)) > query.sensitivity


def test_points_lie_on_a_circle():
    points = circle_points(1000)
    assert points[250].tolist() == [0, RADIUS]
    assert abs(np.hypot(*points.T) - RADIUS).max() < 0.71


@given(st.integers(0, 2**32), st.floats(1e-3, 1e3))
@settings(max_examples=50, deadline=None)
def test_clipped_rows_never_exceed_one(seed, scale):
    x = scale * np.random.default_rng(seed).standard_normal((5, 20))
    assert (np.square(clipped(x)).sum(axis=1) <= 1).all()
    short = x / (1.001 * np.linalg.norm(x, axis=1, keepdims=True))
    assert (clipped(short) == short).all()


def test_moments_without_noise_are_those_of_the_samples():
    query = ImageMoments(3, SHAPE, frequencies=5)
    rng = np.random.default_rng(2)
    samples, labels = rng.integers(0, 256, (90, *SHAPE), np.uint8), np.arange(90) % 3
    moments = query.read(query.answer(samples, labels), 0.0, 1)
    x = query.coefficients(samples[labels == 2])
    assert moments.counts.tolist() == [30, 30, 30]
    assert moments.means[2] == pytest.approx(x.mean(axis=0), abs=1e-5)
    assert moments.seconds[2] == pytest.approx(x.T @ x / 30, abs=1e-5)
    products = ImageProducts(3, SHAPE, frequencies=5)
    together, error = products.read(products.answer(samples, labels), 0.0, 1)
    x = query.coefficients(samples)
    assert together == pytest.approx(x.T @ x, abs=1e-3)
    assert error == 0


def test_the_lowest_frequency_is_the_mean_of_a_channel():
    samples = np.random.default_rng(3).integers(0, 256, (4, 12, 10, 3), np.uint8)
    found = ImageMoments(3, (12, 10, 3), 3).coefficients(samples)[:, ::9]
    mean = samples.mean(axis=(1, 2)) / 255 - 0.5
    assert found == pytest.approx(mean * 2 / math.sqrt(3), rel=1e-3)  # cosines are rounded


def test_training_sees_the_features_that_sites_add_up():
    rng = np.random.default_rng(3)
    for shape in (SHAPE, (40, 36, 3)):  # the second is reduced before edges are measured
        query = EmbeddingSum(3, shape, features=60, edges=30)
        samples = rng.integers(0, 256, (8, *shape), np.uint8)
        exact = query.rows(samples, np.zeros(8, np.int64))[:, 1:] / RADIUS
        found = Features(query)(torch.from_numpy(samples).float()).numpy()
        assert np.abs(found - exact).max() < 0.05


@pytest.mark.parametrize("colours", [1, 3])
def test_features_never_leave_the_whole_numbers_that_are_exact(colours):
    """The largest number that can occur in a layer, in single precision."""
    largest = 255.0
    for layer, step in zip(layers(colours), (*STEPS, 1), strict=True):
        assert (layer.filters == np.rint(layer.filters)).all()
        reached = largest * np.abs(layer.filters).sum(axis=(1, 2, 3)) + np.abs(layer.offsets)
        assert reached.max() < 2**24
        # What comes in is never below zero.
        above = largest * np.maximum(layer.filters, 0).sum(axis=(1, 2, 3)) + np.abs(layer.offsets)
        largest = float(np.floor(4 * above.max() / step))


def test_refining_sees_the_features_that_sites_add_up():
    rng = np.random.default_rng(3)
    for shape in (SHAPE, (28, 28, 1), (33, 41, 3)):  # the last is reduced
        samples = rng.integers(0, 256, (4, *shape), np.uint8)
        for which in (LAYERS, (1,), (0, 2)):
            exact = conv_features(samples, which)
            found = features(torch.from_numpy(samples).permute(0, 3, 1, 2) / 255, which).numpy()
            assert exact.shape == (4, feature_count(which))
            assert np.abs(found - exact).max() < 0.01 * exact.max()


def test_a_feature_by_hand():
    """A black image has what the offsets alone leave, the same in all cells of the inside."""
    black, answer = np.zeros((1, 28, 28, 1), np.uint8), np.zeros(1)
    # 28 pixels become 14 and then 7. In either direction a cell inside has 7, 4 and 3 of them.
    for k, (layer, cell) in enumerate(zip(layers(1), (7, 4, 3), strict=True)):
        if k > 0:
            answer = np.floor(4 * answer / STEPS[k - 1])
        answer = np.maximum(layer.filters.sum(axis=(2, 3)) @ answer + layer.offsets, 0)
        found = conv_features(black, (k,)).reshape(len(answer), CELLS[k], CELLS[k])
        assert (found[:, 1, 1] == FACTORS[k] * cell**2 * answer).all()


def test_products_without_noise_are_those_of_the_samples():
    rng = np.random.default_rng(2)
    samples, labels = rng.integers(0, 256, (90, *SHAPE), np.uint8), np.arange(90) % 3
    seen = conv_features(samples, LAYERS)
    centre = tuple(map(tuple, seen[:3].tolist()))
    scale = (2 * int(seen.std()) * WIDTH,) * WIDTH  # nothing is shortened
    means, products = (
        kind(3, SHAPE, centre, scale, LAYERS) for kind in (FeatureMeans, FeatureProducts)
    )
    x = (seen - np.array(centre)[labels]) / scale[0]
    found = means.read(means.answer(samples, labels), 0.0, 1)
    assert found.counts == pytest.approx([30, 30, 30], rel=1e-5)
    assert found.means[1] == pytest.approx(x[labels == 1].mean(axis=0), abs=1e-5)
    found = products.read(products.answer(samples, labels), 0.0, 1)
    assert found.counts == pytest.approx([90], rel=1e-5)
    np.testing.assert_allclose(found.means, x.T @ x / 90, rtol=0, atol=1e-3)


def test_refined_images_have_the_moments_that_were_asked_for():
    """Blurred stripes become sharp; and they stay what they are where all is noise."""
    rng = np.random.default_rng(5)
    labels = np.arange(300) % 2
    real = rng.integers(0, 80, (300, 16, 16, 1), np.uint8)
    heights = rng.integers(60, 170, (300, 1, 1, 1)).astype(np.uint8)
    real[labels == 0, ::3] += heights[labels == 0]
    real[labels == 1, :, ::3] += heights[labels == 1]
    seen = conv_features(real, LAYERS).astype(float)
    scale = seen.std(axis=0) + 0.1 * seen.std()
    x = seen / scale
    means = np.stack([x[labels == c].mean(axis=0) for c in range(2)])
    begun = (sum(np.roll(real.astype(int), k, (1, 2)) for k in range(3)) // 3).astype(np.uint8)
    first = conv_features(begun, LAYERS) / scale
    centre = np.stack([first[labels == c].mean(axis=0) for c in range(2)])
    counts, apart = np.array([150.0, 150.0]), x - means[labels]
    products = FeatureSum(counts[:1], apart.T @ apart / 300, np.full(1, 0.002))
    target = find_target(centre, FeatureSum(counts, means - centre, np.zeros(2)), products)
    found = conv_features(refine(begun, labels, target, scale, LAYERS, steps=60), LAYERS) / scale
    for c in range(2):
        before, after = (
            np.linalg.norm(seen[labels == c].mean(axis=0) @ target.directions - target.means[c])
            for seen in (first, found)
        )
        assert after < 0.5 * before
    noisy = FeatureSum(counts, rng.standard_normal(centre.shape), np.full(2, 2.0))
    hidden = find_target(centre, noisy, products._replace(errors=np.full(1, 1e6)))
    assert not hidden.seen.any()
    left = refine(begun, labels, hidden, scale, LAYERS, steps=5).astype(int) - begun
    assert np.abs(left).mean() < 30


@pytest.mark.parametrize(
    ("epsilon", "samples", "which"),
    [
        (1.0, 60_000, (1,)), (10.0, 60_000, (0, 1, 2)), (10.0, 10_000, (1,)),
        (1.0, 600_000, (0, 1, 2)), (math.inf, 100, (0, 1, 2)), (1.0, -5, (1,)),
    ],
)  # fmt: skip
def test_few_features_are_asked_for_where_the_noise_hides_the_spread_of_many(
    epsilon, samples, which
):
    noise = 0.0 if math.isinf(epsilon) else 1 / math.sqrt(2 * rho_for(epsilon, 1e-5))
    assert which_layers(noise, samples) == which


# What a hostile server asks, and what does not fit.


@pytest.mark.parametrize(
    "settings",
    [
        {"classes": 1}, {"classes": 10**6}, {"features": 10**9}, {"features": 1.5}, {"seed": -1},
        {"edges": 1500}, {"edges": -1},
        {"shape": (10**6, 10**6, 3)}, {"shape": (28, 28)}, {"shape": ("a", 8, 1)},
    ],
)  # fmt: skip
def test_an_absurd_query_is_refused_before_anything_is_computed(settings):
    with pytest.raises(InputError):
        EmbeddingSum(**{"classes": 3, "shape": SHAPE, **settings})


@pytest.mark.parametrize(
    ("centre", "scale"),
    [
        (CENTRED[0][:2], CENTRED[1]), (CENTRED[0], CENTRED[1][1:]),
        (((1.5,) * WIDTH,) * 3, CENTRED[1]), (((2**41,) * WIDTH,) * 3, CENTRED[1]),
        (CENTRED[0], (0,) * WIDTH), (CENTRED[0], (-1,) * WIDTH),
        (CENTRED[0], (True,) * WIDTH), ("abc", CENTRED[1]), (CENTRED[0], "abc"),
    ],
)  # fmt: skip
def test_absurd_centres_and_scales_are_refused(centre, scale):
    for kind in (FeatureMeans, FeatureProducts):
        with pytest.raises(InputError):
            kind(3, SHAPE, centre, scale, LAYERS)
    with pytest.raises(InputError):
        FeatureMeans(3, (4, 4, 1), *CENTRED)


@pytest.mark.parametrize("which", [(), (3,), (-1,), (1, 0), (1, 1), (True,), (1.0,), "1", (0, 1)])
def test_absurd_layers_are_refused(which):
    with pytest.raises(InputError):
        FeatureMeans(3, SHAPE, *HOSTILE[:2], which)


def test_a_site_refuses_what_does_not_fit_its_samples():
    samples, labels = np.zeros((4, *SHAPE), np.uint8), np.array([0, 1, 2, 3])
    with pytest.raises(RefusedError, match="classes"):
        QUERIES[0].answer(samples, labels)
    with pytest.raises(RefusedError, match="shape"):
        QUERIES[0].answer(samples[:, :-1], labels)


# The noise.


@pytest.mark.parametrize("query", QUERIES, ids=lambda q: q.name)
def test_the_sum_of_clients_has_the_noise_that_its_epsilon_needs(query):
    rng = np.random.default_rng(4)
    samples, labels = rng.integers(0, 256, (60, *SHAPE), np.uint8), rng.integers(0, 3, 60)
    sites = np.array_split(np.arange(60), 5)
    answers = [query.answer(samples, labels, own) for own in sites]
    plain = release(query, answers, 5, math.inf, 1e-5)
    assert plain.sigma == 0
    assert (plain.sums == query.answer(samples, labels)).all()
    noisy = release(query, answers, 5, 1.0, 1e-5)
    rho = rho_of(Noise(noisy.sigma, 5), query.sensitivity, query.length)
    assert 0.999 < epsilon_of([rho], 1e-5) <= 1.0
    noise = (noisy.sums - plain.sums) / noisy.sigma
    assert abs(noise.std() - 1) < 5 / math.sqrt(2 * query.length)
    assert abs(noise.mean()) < 5 / math.sqrt(query.length)
    assert noisy.epsilon == 1.0
    assert (release(query, answers, 5, 1.0, 1e-5).sums != noisy.sums).any()
    # Noise that can be drawn again carries no guarantee.
    one, two = (release(query, answers, 5, 1.0, 1e-5, noise_seed=0) for _ in range(2))
    assert (one.sums == two.sums).all()
    assert (one.sigma, one.epsilon) == (noisy.sigma, math.inf)
    assert (release(query, answers, 5, 1.0, 1e-5, noise_seed=1).sums != one.sums).any()


def test_sums_that_are_all_noise_are_refused():
    query = QUERIES[0]
    with pytest.raises(InfeasibleError, match="noise hides"):
        query.read(np.zeros(query.length, np.int64), 1e6, 5)


def test_noise_is_taken_out_of_a_covariance():
    """Where the noise is larger than all but two of 40 values, those two are found."""
    rng = np.random.default_rng(5)
    d, error = 40, 0.01
    basis, _ = np.linalg.qr(rng.standard_normal((d, d)))
    truth = (basis * np.r_[1.0, 0.5, np.full(d - 2, 0.001)]) @ basis.T
    noise = rng.standard_normal((d, d)) * error
    noise = np.triu(noise) / math.sqrt(2) + np.triu(noise, 1).T / math.sqrt(2)
    noise[np.diag_indices(d)] *= math.sqrt(2)
    found = cleaned(truth + noise, error)
    values = np.linalg.eigvalsh(found)
    assert values[-2:] == pytest.approx([0.5, 1.0], rel=0.05)
    assert values[:-2] == pytest.approx(0, abs=0.05)
    assert np.linalg.norm(found - truth) < np.linalg.norm(noise)


def test_a_class_too_small_to_show_a_covariance_takes_that_of_the_others():
    d = 4
    shared = np.diag([0.2, 0.1, 0.05, 0.02])
    counts = np.array([1000.0, 1000.0, 2.0])
    wild = shared + 0.4 * (np.ones((d, d)) - np.eye(d))
    seconds = np.stack([shared, shared, wild])
    errors = 1.0 / counts
    moments = Moments(counts, np.zeros((3, d)), seconds, 0 * errors, errors)
    found = image_normals(moments, 2002 * shared, 1e-6, 1).covariances
    assert found[2] == pytest.approx(found[0], abs=0.01)


def test_variance_that_the_noise_hides_is_spread_over_what_is_left():
    """The sum of variances is right, and falls with the frequency where nothing was seen."""
    d, counts = 16, np.array([500.0, 500.0])
    truth = np.diag(np.r_[1.0, np.full(d - 1, 0.01)])
    moments = Moments(counts, np.zeros((2, d)), np.zeros((2, d, d)), 0 * counts, 1e9 / counts)
    found = image_normals(moments, 1000 * truth, 20.0, 1).covariances[0]
    assert np.trace(found) == pytest.approx(np.trace(truth), rel=1e-6)
    assert found[0, 0] == pytest.approx(1, rel=0.05)
    assert found[1, 1] > found[15, 15] > 0


def test_a_class_of_a_few_images_does_not_take_the_quality_of_the_others():
    """Its mean is all noise, so that it could be anywhere, also where another class is."""
    d, shared = 9, 0.1 * np.eye(9)
    counts = np.array([1000.0, 800.0, 3.0])
    means = np.zeros((3, d))
    means[0, 0], means[1, 0], means[2] = 2, -2, 0.2
    errors = 2 / counts
    moments = Moments(counts, means, np.stack([shared] * 3), errors, errors)
    known = Moments(counts, means, np.stack([shared] * 3), 2 / counts[[0, 1, 1]], errors)
    together = 1803 * shared + np.einsum("c,ci,cj->ij", counts, means, means)
    found = image_normals(moments, together, 1e-6, 1).quality
    assert found[2] == 0
    assert min(found[:2]) > 0.99
    assert min(image_normals(known, together, 1e-6, 1).quality) > 0.99


# What comes out.


@pytest.fixture(scope="module")
def shapes(tmp_path_factory):
    """Bright squares left, right and in the middle, on five sites that lack classes."""
    rng = np.random.default_rng(6)
    count = 3000
    labels = rng.integers(0, 3, count)
    samples = rng.integers(0, 60, (count, *SHAPE)).astype(np.uint8)
    for image, label in zip(samples, labels, strict=True):
        top = rng.integers(2, 6)
        image[top : top + 5, (0, 6, 3)[label] : (4, 10, 7)[label]] += 150
    folder = tmp_path_factory.mktemp("data") / "shapes"
    batches = iter([(samples, labels)])
    data = Dataset.write(folder, "shapes", ("left", "right", "middle"), (count, 0), batches)
    return data, np.array_split(np.argsort(labels, kind="stable"), 5)


QUICK = Matching(steps=250, each=20)


def guessed(data: Dataset, drawn: np.ndarray) -> np.ndarray:
    """The class whose mean image is nearest."""
    means = [data.samples[data.labels == c].mean(axis=0) for c in range(3)]
    distances = [np.square(drawn - mean).sum(axis=(1, 2, 3)) for mean in means]
    return np.argmin(distances, axis=0)


@pytest.mark.parametrize("way", ["embedding", "moments", "features"])
def test_the_queries_that_owners_are_told_of_are_those_that_are_asked(shapes, way, monkeypatch):
    data, sites = shapes
    monkeypatch.setattr("fedeas.generators.own.refined._EACH", 60)
    told: list[str] = []
    make_own(
        data, sites, 2.0, way=way, training=Matching(steps=2, each=4),
        report=lambda done, total, how: told.append(how),
    )  # fmt: skip
    asked = [how.split()[-1] for how in told if how.startswith("sites in the sum ")]
    assert tuple(dict.fromkeys(asked)) == queries_for(way, "image")


@pytest.mark.parametrize("way", ["embedding", "moments", "features"])
def test_samples_show_their_class_and_the_folder_says_how_good_they_are(
    shapes, tmp_path, way, monkeypatch
):
    data, sites = shapes
    monkeypatch.setattr("fedeas.generators.own.refined._EACH", 200)
    training = Matching(steps=20) if way == "features" else QUICK
    made = make_own(
        data, sites, 2.0, way=way, training=training, out=tmp_path / way, seeded_noise=True
    )
    assert isinstance(made, Generator)
    labels, seeds = np.arange(90) % 3, np.arange(90).astype(np.uint64)
    drawn = made.sample(labels, seeds)
    assert drawn.shape == (90, *SHAPE)
    assert drawn.dtype == np.uint8
    assert (guessed(data, drawn) == labels).mean() > 0.9
    spread = drawn[labels == 0].astype(float).std(axis=0)
    assert spread.mean() > 5  # not one image again and again

    opened = make_generator(f"own(model={tmp_path / way})")
    assert opened.fingerprint == made.fingerprint
    assert (opened.sample(labels, seeds) == drawn).all()
    some = np.array([7, 40, 3])
    alone = np.abs(opened.sample(labels[some], seeds[some]).astype(int) - drawn[some])
    assert alone.max() <= 1  # a batch changes nothing but rounding
    assert (made.sample(labels, seeds + np.uint64(1000)) != drawn).any()

    card = json.loads((tmp_path / way / "generator.json").read_text())
    assert card["counts"] == pytest.approx([1000, 1000, 1000], abs=150)
    # Of 1,000 images each, the embedding shows nearly all, the moments no less than a third.
    least = {"embedding": 0.9, "moments": 0.33, "features": 0.1}[way]
    assert all(least < quality < 1 for quality in card["quality"])
    assert {"good_for", "not_for", "licence"} <= card.keys()
    assert sorted(path.name for path in (tmp_path / way).iterdir()) == [
        "generator.json", "weights.safetensors",
    ]  # fmt: skip


@pytest.mark.parametrize("way", ["embedding", "moments", "features"])
def test_the_card_says_what_the_sums_cost_in_both_units(shapes, tmp_path, way, monkeypatch):
    data, sites = shapes
    monkeypatch.setattr("fedeas.generators.own.refined._EACH", 60)
    quick = Matching(steps=2, each=4)
    make_own(data, sites, epsilon=2.0, way=way, training=quick, out=tmp_path / way)
    card = json.loads((tmp_path / way / "generator.json").read_text())
    assert (card["epsilon"], card["delta"], card["sites"]) == (2.0, DELTA, 5)
    assert card["unit"] == "one sample of this site, added or removed"
    replaced = replace_one_epsilon(rho_for(2.0, DELTA), DELTA)
    assert card["epsilon_replaced"] == pytest.approx(replaced, abs=1e-4)
    assert card["unit_replaced"] == "one sample of this site, replaced by any other"
    assert "samples that the sites state" in card["checked"]
    assert "3,000" not in str(card)  # the exact number would tell of one sample more
    assert "seed" not in json.dumps(card)
    assert "warning" not in card


@pytest.mark.parametrize("way", ["embedding", "moments", "features"])
def test_seeded_noise_makes_the_same_generator_without_a_guarantee(
    shapes, tmp_path, way, monkeypatch
):
    data, sites = shapes
    monkeypatch.setattr("fedeas.generators.own.refined._EACH", 60)
    quick = Matching(steps=3, each=4)

    def made(seed: int, **more: object) -> Generator:
        return make_own(data, sites, way=way, training=quick, seed=seed, **more)

    one, two, other = (made(seed, seeded_noise=True).fingerprint for seed in (1, 1, 2))
    assert one == two != other
    assert made(1).fingerprint != one != made(1).fingerprint  # noise of the operating system
    made(1, seeded_noise=True, out=tmp_path)
    card = json.loads((tmp_path / "generator.json").read_text())
    assert card["epsilon"] is None
    assert "no guarantee" in card["warning"]
    assert not {"epsilon_replaced", "unit", "may_be_given_to"} & card.keys()
    assert "seed" not in json.dumps({**card, "warning": ""})


def seeded_noise_of(card: dict, seed: int) -> np.ndarray:
    """What an attacker knows who draws the noise of a simulation from a seed."""
    query = ImageMoments(
        len(card["classes"]), tuple(card["shape"]), card["settings"]["frequencies"]
    )
    rho = 0.75 * rho_for(2.0, DELTA)
    sigma = sigma_for(rho, query.sensitivity, honest=card["sites"], words=query.length)
    noise = Noise(sigma, card["sites"])
    parts = [
        noise.part(query.length, child_rng(seed, "noise", site).bytes)
        for site in range(card["sites"])
    ]
    return sum(parts).reshape(len(card["classes"]), -1)[:, 0] / query.units[0]


def test_nobody_can_subtract_the_noise_of_a_simulation(shapes, tmp_path):
    """From the seed and the card; only seeded noise, which has no epsilon, can be subtracted."""
    data, sites = shapes
    truth = np.bincount(data.labels)
    for seeded, exact in ((True, True), (False, False)):
        out = tmp_path / str(seeded)
        make_own(data, sites, epsilon=2.0, seed=7, out=out, seeded_noise=seeded)
        card = json.loads((out / "generator.json").read_text())
        told = np.array(card["counts"]) - seeded_noise_of(card, 7)
        assert bool((np.abs(told - truth) < 0.1).all()) == exact
        assert (card["epsilon"] is None) == exact


# Sites that lie: one of five sends what its samples cannot add up to.


def poisoned(data: Dataset, sites: list, lie: Callable[[SampleSum], np.ndarray]) -> Ask:
    """The sums of five sites, of which one adds what it likes."""

    def ask(query: SampleSum, part: float) -> Release:
        answers = [query.answer(data.samples, data.labels, own) for own in sites]
        answers[0] = answers[0] + lie(query)
        found = release(query, answers, 5, 1.0, part=part, noise_seed=3)
        return found._replace(samples=len(data.labels))

    return ask


def copies_of_one_picture(times: int) -> Callable[[SampleSum], np.ndarray]:
    """What an attacker sends who wants all images of a class to look like one."""
    chosen = np.zeros((1, *SHAPE), np.uint8)
    chosen[:, :, 3:6] = 255
    return lambda query: times * query.answer(chosen, np.zeros(1, np.int64))


@pytest.mark.parametrize("way", ["embedding", "moments", "features"])
@pytest.mark.parametrize("times", [20_000, 600, -600])
def test_sums_of_more_samples_than_the_sites_have_are_refused(shapes, way, times, monkeypatch):
    data, sites = shapes
    monkeypatch.setattr("fedeas.generators.own.refined._EACH", 60)
    with pytest.raises(InfeasibleError, match="cannot be those of the sites' samples"):
        make_from_sums(data, poisoned(data, sites, copies_of_one_picture(times)), way)


def test_a_lie_takes_effect_where_nothing_is_compared(shapes, monkeypatch):
    """The control: without the comparison one site decides what a class looks like."""
    data, sites = shapes
    monkeypatch.setattr("fedeas.generators.own.make.check_sums", lambda *_: None)
    bar = np.zeros(SHAPE)
    bar[:, 3:6] = 1
    likeness = []
    for times in (0, 20_000):
        made = make_from_sums(data, poisoned(data, sites, copies_of_one_picture(times)))
        drawn = made.sample(np.zeros(40, np.int64), np.arange(40).astype(np.uint64))
        likeness.append(np.corrcoef(drawn.mean(axis=0).ravel(), bar.ravel())[0, 1])
    assert likeness[0] < 0.5 < 0.9 < likeness[1]


@pytest.mark.parametrize("query", QUERIES, ids=lambda q: q.name)
@pytest.mark.parametrize("known", [True, False])
def test_sums_larger_than_their_counts_allow_are_refused(query, known):
    rng = np.random.default_rng(8)
    samples, labels = rng.integers(0, 256, (900, *SHAPE), np.uint8), rng.integers(0, 3, 900)
    honest = release(query, [query.answer(samples, labels)], 1, 3.0)
    check_sums(query, honest, 900 if known else None)
    wrong = np.zeros((query.classes if query.by_label else 1, query.width), np.int64)
    wrong[:, 1:] = 50 * int(query.sensitivity)
    if query.name == "image-products" and not known:
        return  # it has no count of its own
    for sign in (1, -1) if "products" in query.name else (1,):
        lie = honest._replace(sums=honest.sums + sign * 900 * wrong.reshape(-1))
        with pytest.raises(InfeasibleError):
            check_sums(query, lie, 900 if known else None)


def test_progress_is_reported_site_by_site(shapes):
    data, sites = shapes
    said = []
    make_own(data, sites, report=lambda *told: said.append(told))
    assert [told[:2] for told in said] == 2 * [(k, 5) for k in range(1, 6)]
    assert {told[2].split()[-1] for told in said} == {"image-moments", "image-products"}


def test_a_killed_simulation_goes_on_with_its_sums(shapes, tmp_path, monkeypatch):
    """It draws no second noise, and its card states what was asked for."""
    data, sites = shapes

    class KilledError(Exception):
        pass

    def kill(*_: object, **__: object) -> None:
        raise KilledError

    with monkeypatch.context() as patched, pytest.raises(KilledError):
        patched.setattr("fedeas.generators.own.gaussians.image_normals", kill)
        make_own(data, sites, out=tmp_path)
    with pytest.raises(InputError, match="another request"):
        make_own(data, sites, epsilon=3.0, out=tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr("fedeas.generators.own.make.release", kill)  # nothing is asked again
        made = make_own(data, sites, out=tmp_path)
    assert made.card.epsilon == 1.0
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "generator.json", "weights.safetensors",
    ]  # fmt: skip


def test_a_killed_training_ends_with_the_same_weights(shapes, tmp_path, monkeypatch):
    data, sites = shapes
    query = EmbeddingSum(3, SHAPE, features=40)
    answers = (query.answer(data.samples, data.labels, own) for own in sites)
    released = release(query, answers, 5, 3.0, 1e-5)
    target = query.read(released.sums, released.sigma, 5)
    training, path = Matching(steps=12, each=4), tmp_path / "checkpoint.safetensors"
    whole = match(query, target, training, seed=3).state_dict()

    class KilledError(Exception):
        pass

    def kill(done: int, *_: object) -> None:
        raise KilledError

    monkeypatch.setattr("fedeas.generators.own.matching._SECONDS", -1.0)
    with pytest.raises(KilledError):
        match(query, target, training, 3, path, kill)
    resumed = match(query, target, training, 3, path).state_dict()
    assert all(torch.equal(whole[name], resumed[name]) for name in whole)
    with pytest.raises(InputError, match="another training run"):
        match(query, target, training, 4, path)


def test_without_noise_the_card_warns(shapes, tmp_path):
    data, sites = shapes
    made = make_own(data, sites, epsilon=math.inf, way="moments", out=tmp_path)
    assert isinstance(made, Gaussians)
    assert made.card.epsilon == math.inf
    assert made.card.counts == (sum(data.labels == 0), sum(data.labels == 1), sum(data.labels == 2))
    assert "no guarantee" in json.loads((tmp_path / "generator.json").read_text())["warning"]
    assert Card.read(tmp_path) == made.card


def test_quality_is_ordered_as_the_noise_is(shapes):
    data, sites = shapes
    found = [
        np.mean(make_own(data, sites, epsilon=e, seeded_noise=True).card.quality)
        for e in (1.0, 3.0, 10.0, math.inf)
    ]
    assert found[0] < found[1] < found[2] < found[3] == 1


def test_more_noise_means_less_quality(shapes):
    data, sites = shapes
    few = [own[:100] for own in sites]
    clear, hidden = (
        make_own(data, few, epsilon=e, seeded_noise=True).card.quality for e in (100.0, 1.0)
    )
    assert min(clear) > 0.9 > max(hidden)


def test_what_cannot_be_made_or_opened(shapes, tmp_path):
    data, sites = shapes
    for wrong, message in (
        ({"way": "magic"}, "unknown way"),
        ({"epsilon": 0.0}, "epsilon"),
        ({"epsilon": math.nan}, "epsilon"),
    ):
        with pytest.raises(InputError, match=message):
            make_own(data, sites, **wrong)
    with pytest.raises(InputError, match="at least one site"):
        make_own(data, [])
    made = make_own(data, sites, way="moments", out=tmp_path)
    weights = tmp_path / "weights.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    with pytest.raises(InputError, match="damaged"):
        open_own(str(tmp_path))
    made.save(tmp_path)
    card = json.loads((tmp_path / "generator.json").read_text())
    for change in ({"way": "magic"}, {"shape": [12, 10, 3]}, {"format": "x"}, {"settings": {}}):
        (tmp_path / "generator.json").write_text(json.dumps(card | change))
        with pytest.raises(InputError):
            open_own(str(tmp_path))
    with pytest.raises(InputError):
        Embedded.load(tmp_path)


# In a run.


def test_a_run_makes_its_generator_once_from_its_own_clients(shapes, tmp_path, monkeypatch):
    data, _ = shapes
    monkeypatch.setenv("FEDEAS_STORE", str(tmp_path))
    federation, other = (federate(data, IID(clients=n), "clean") for n in (5, 4))
    spec = made_spec("own(epsilon=2, way=moments)", federation, 42)
    folder = Path(spec.removeprefix("own(model=").removesuffix(")"))
    assert folder.parent == tmp_path / "own"
    assert make_generator(spec).card.epsilon == 2
    assert made_spec("own(epsilon=2)", federation, 42) == spec  # moments are the default
    assert sorted(path.name for path in folder.iterdir() if path.name != "lock") == [
        "generator.json", "weights.safetensors",
    ]  # fmt: skip
    made = (folder / "generator.json").stat().st_mtime_ns
    assert made_spec("own(way=moments, epsilon=2)", federation, 42) == spec
    assert (folder / "generator.json").stat().st_mtime_ns == made
    others = {
        made_spec("own(epsilon=3, way=moments)", federation, 42),
        made_spec("own(epsilon=2, way=moments)", federation, 43),
        made_spec("own(epsilon=2, way=moments)", other, 42),
        made_spec("own(epsilon=2, way=moments, delta=1e-5)", federation, 42),
        made_spec("own(epsilon=2, way=moments, seeded_noise=true)", federation, 42),
    }
    assert len(others | {spec}) == 6
    assert made_spec(spec, federation, 42) == spec
    assert made_spec("pool(data=x)", federation, 42) == "pool(data=x)"
    with pytest.raises(InputError, match="no setting 'magic'"):
        made_spec("own(magic=1)", federation, 42)


def test_the_command_makes_a_folder_and_says_what_it_cost(fedeas, tmp_path):
    folder = write_shapes(tmp_path / "set")
    config = tmp_path / "config.toml"
    config.write_text(
        f'[data]\nname = "shapes"\nfolder = "{folder}"\n'
        '[partition]\nrecipe = "dirichlet"\nclients = 4\nalpha = 0.5\n'
    )
    given = ("generator", "own", config, "--way", "moments", "--out")
    done = fedeas(*given, tmp_path / "own", "--epsilon", "50")
    assert done.code == 0, done.err
    said = done.out
    assert f"epsilon 50, delta {DELTA:g} for one sample of a site, added or removed" in said
    assert "for one that is replaced" in said
    assert json.loads((tmp_path / "own" / "generator.json").read_text())["sites"] == 4
    assert make_generator(f"own(model={tmp_path / 'own'})").classes
    again = fedeas(*given, tmp_path / "own", "--epsilon", "5")
    assert again.code == 2
    assert "holds a generator already" in again.err
    assert "none: the sums have no noise" in fedeas(*given, tmp_path / "b", "--epsilon", "inf").out
    seeded = fedeas(*given, tmp_path / "s", "--epsilon", "50", "--seeded-noise")
    assert re.search(r"^guarantee +none", seeded.out, re.MULTILINE)
    wrong = fedeas(*given, tmp_path / "c", "--delta", "2")
    assert wrong.code == 2
    assert "delta is out of range" in wrong.err


@pytest.mark.slow
def test_the_benchmark_measures_real_images():
    """Few images and steps: a classifier learns more from them than from chance."""
    command = [sys.executable, "benchmarks/own_generator.py", "--quick", "--images", "10000"]
    command += ["--seeds", "1", "--epsilon", "10"]
    done = subprocess.run(command, cwd=Path(__file__).parents[1], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["images"] == 10_000
    assert found["epsilon"]["10"]["accuracy"][0] > 30
