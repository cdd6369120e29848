"""Generators from noisy sums: what one sample can move, what the sums say, what comes out."""

import dataclasses
import json
import math
import re
import subprocess
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedeas import IID, InfeasibleError, InputError
from fedeas._internal.seeds import child_rng
from fedeas.data import Dataset, federate
from fedeas.generators import Generator, make_generator
from fedeas.generators.card import GeneratorCard, TrainingRecord
from fedeas.lab.resolve import make_private_generator
from fedeas.private.accounting import (
    DELTA,
    epsilon_of,
    replace_one_epsilon,
    rho_for,
    rho_of,
    sigma_for,
)
from fedeas.private.generator.base import spectrum
from fedeas.private.generator.images import GaussianImages, image_normals
from fedeas.private.generator.make import (
    keep_sums,
    make_from_sums,
    make_private,
    open_private,
    queries_for,
)
from fedeas.private.noise import SumNoise
from fedeas.private.queries.features import (
    FeatureMeans,
    FeatureProducts,
    edge_features,
    feature_count,
)
from fedeas.private.queries.moments import ImageMoments, ImageProducts, NoisyMoments, clip_norms
from fedeas.private.queries.query import SampleSum
from fedeas.private.secure_sum.messages import RefusedError
from fedeas.private.sums import Ask, Release, SimulatedSums, check_sums, release
from helpers.small_federations import write_shapes

SHAPE = (12, 10, 1)
_RNG = np.random.default_rng(0)
WIDTH = feature_count()
CENTRED = (
    tuple(map(tuple, _RNG.integers(0, 50_000, (3, WIDTH)).tolist())),
    tuple(_RNG.integers(100_000, 1_000_000, WIDTH).tolist()),
)
# Of a server that would like to see a single sample: far away, and as sharply as can be.
HOSTILE = (
    ((2**40,) * WIDTH, (0,) * WIDTH, (-(2**40),) * WIDTH), (1, *(2**40,) * (WIDTH - 1))
)  # fmt: skip
QUERIES = [
    ImageMoments(3, SHAPE, frequencies=5),
    ImageProducts(3, SHAPE, frequencies=5),
    FeatureMeans(3, SHAPE, *CENTRED),
    FeatureMeans(3, SHAPE, *HOSTILE),
    FeatureProducts(3, SHAPE, *CENTRED),
    FeatureProducts(3, SHAPE, *HOSTILE),
]
# The products of features take seconds: what holds for every query is tried on them at night.
MOSTLY = [
    pytest.param(query, marks=pytest.mark.slow) if isinstance(query, FeatureProducts) else query
    for query in QUERIES
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


@pytest.mark.parametrize("query", MOSTLY, ids=lambda q: q.name)
def test_blocks_do_not_matter_to_a_single_bit(query):
    rng = np.random.default_rng(1)
    samples, labels = rng.integers(0, 256, (300, *SHAPE), np.uint8), rng.integers(0, 3, 300)
    whole = query.answer(samples, labels)
    shuffled = rng.permutation(300)
    parts = [query.answer(samples, labels, own) for own in np.array_split(shuffled, [3, 100, 270])]
    assert (sum(parts) == whole).all()
    assert (query.answer(samples, labels, np.empty(0, np.int64)) == 0).all()


def test_a_larger_change_is_seen():
    """Positive control: two samples do move an answer further than the bound of one."""
    query = ImageMoments(3, SHAPE, frequencies=5)
    two = query.answer(np.zeros((2, *SHAPE), np.uint8), np.zeros(2, np.int64))
    assert np.linalg.norm(two.astype(float)) > query.sensitivity


@given(st.integers(0, 2**32), st.floats(1e-3, 1e3))
def test_clipped_rows_never_exceed_one(seed, scale):
    x = scale * np.random.default_rng(seed).standard_normal((5, 20))
    assert (np.square(clip_norms(x)).sum(axis=1) <= 1).all()
    short = x / (1.001 * np.linalg.norm(x, axis=1, keepdims=True))
    assert (clip_norms(short) == short).all()


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


def test_products_without_noise_are_those_of_the_samples():
    rng = np.random.default_rng(2)
    samples, labels = rng.integers(0, 256, (90, *SHAPE), np.uint8), np.arange(90) % 3
    seen = edge_features(samples)
    centre = tuple(map(tuple, seen[:3].tolist()))
    scale = (2 * int(seen.std()) * WIDTH,) * WIDTH  # nothing is shortened
    means, products = (kind(3, SHAPE, centre, scale) for kind in (FeatureMeans, FeatureProducts))
    x = (seen - np.array(centre)[labels]) / scale[0]
    found = means.read(means.answer(samples, labels), 0.0, 1)
    assert found.counts == pytest.approx([30, 30, 30], rel=1e-5)
    assert found.means[1] == pytest.approx(x[labels == 1].mean(axis=0), abs=1e-5)
    found = products.read(products.answer(samples, labels), 0.0, 1)
    assert found.counts == pytest.approx([90], rel=1e-5)
    np.testing.assert_allclose(found.means, x.T @ x / 90, rtol=0, atol=1e-3)


# What a hostile server asks, and what does not fit.


@pytest.mark.parametrize(
    "settings",
    [
        {"classes": 1}, {"classes": 10**6}, {"frequencies": 10**9}, {"frequencies": 1.5},
        {"frequencies": 0}, {"frequencies": -1},
        {"shape": (10**6, 10**6, 3)}, {"shape": (28, 28)}, {"shape": ("a", 8, 1)},
    ],
)  # fmt: skip
def test_an_absurd_query_is_refused_before_anything_is_computed(settings):
    with pytest.raises(InputError):
        ImageMoments(**{"classes": 3, "shape": SHAPE, **settings})


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
            kind(3, SHAPE, centre, scale)
    with pytest.raises(InputError):
        FeatureMeans(3, (4, 4, 1), *CENTRED)


def test_a_site_refuses_what_does_not_fit_its_samples():
    samples, labels = np.zeros((4, *SHAPE), np.uint8), np.array([0, 1, 2, 3])
    with pytest.raises(RefusedError, match="classes"):
        QUERIES[0].answer(samples, labels)
    with pytest.raises(RefusedError, match="shape"):
        QUERIES[0].answer(samples[:, :-1], labels)


# The noise.


@pytest.mark.parametrize("query", MOSTLY, ids=lambda q: q.name)
def test_the_sum_of_clients_has_the_noise_that_its_epsilon_needs(query):
    rng = np.random.default_rng(4)
    samples, labels = rng.integers(0, 256, (60, *SHAPE), np.uint8), rng.integers(0, 3, 60)
    sites = np.array_split(np.arange(60), 5)
    answers = [query.answer(samples, labels, own) for own in sites]
    plain = release(query, answers, 5, math.inf, 1e-5)
    assert plain.sigma == 0
    assert (plain.sums == query.answer(samples, labels)).all()
    noisy = release(query, answers, 5, 1.0, 1e-5)
    rho = rho_of(SumNoise(noisy.sigma, 5), query.sensitivity, query.length)
    assert 0.999 < epsilon_of([rho], 1e-5) <= 1.0
    noise = (noisy.sums - plain.sums) / noisy.sigma
    assert abs(noise.std() - 1) < 5 / math.sqrt(2 * query.length)
    assert abs(noise.mean()) < 5 / math.sqrt(query.length)
    assert noisy.epsilon == 1.0
    assert (release(query, answers, 5, 1.0, 1e-5).sums != noisy.sums).any()
    # SumNoise that can be drawn again carries no guarantee.
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
    found = spectrum(truth + noise, error / math.sqrt(2)).matrix()
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
    moments = NoisyMoments(counts, np.zeros((3, d)), seconds, 0 * errors, errors)
    found = image_normals(moments, 2002 * shared, 1e-6, 1).covariances
    assert found[2] == pytest.approx(found[0], abs=0.01)


def test_variance_that_the_noise_hides_is_spread_over_what_is_left():
    """The sum of variances is right, and falls with the frequency where nothing was seen."""
    d, counts = 16, np.array([500.0, 500.0])
    truth = np.diag(np.r_[1.0, np.full(d - 1, 0.01)])
    moments = NoisyMoments(counts, np.zeros((2, d)), np.zeros((2, d, d)), 0 * counts, 1e9 / counts)
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
    moments = NoisyMoments(counts, means, np.stack([shared] * 3), errors, errors)
    known = NoisyMoments(counts, means, np.stack([shared] * 3), 2 / counts[[0, 1, 1]], errors)
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


def guessed(data: Dataset, drawn: np.ndarray) -> np.ndarray:
    """The class whose mean image is nearest."""
    means = [data.samples[data.labels == c].mean(axis=0) for c in range(3)]
    distances = [np.square(drawn - mean).sum(axis=(1, 2, 3)) for mean in means]
    return np.argmin(distances, axis=0)


def test_the_queries_that_owners_are_told_of_are_those_that_are_asked(shapes):
    data, sites = shapes
    told: list[str] = []
    make_private(data, sites, 2.0, progress=lambda done, total, how: told.append(how))
    asked = [how.split()[-1] for how in told if how.startswith("sites in the sum ")]
    assert tuple(dict.fromkeys(asked)) == queries_for("image")


def test_samples_show_their_class_and_the_folder_says_how_good_they_are(shapes, tmp_path):
    data, sites = shapes
    made = make_private(data, sites, 2.0, out=tmp_path, seeded_noise=True)
    assert isinstance(made, Generator)
    labels, seeds = np.arange(90) % 3, np.arange(90).astype(np.uint64)
    drawn = made.sample(labels, seeds)
    assert drawn.shape == (90, *SHAPE)
    assert drawn.dtype == np.uint8
    assert (guessed(data, drawn) == labels).mean() > 0.9
    spread = drawn[labels == 0].astype(float).std(axis=0)
    assert spread.mean() > 5  # not one image again and again

    opened = make_generator(f"private(model={tmp_path})")
    assert opened.fingerprint == made.fingerprint
    assert (opened.sample(labels, seeds) == drawn).all()
    some = np.array([7, 40, 3])
    alone = np.abs(opened.sample(labels[some], seeds[some]).astype(int) - drawn[some])
    assert alone.max() <= 1  # a batch changes nothing but rounding
    assert (made.sample(labels, seeds + np.uint64(1000)) != drawn).any()

    card = json.loads((tmp_path / "generator.json").read_text())
    assert card["counts"] == pytest.approx([1000, 1000, 1000], abs=150)
    assert all(0.33 < quality < 1 for quality in card["quality"])
    assert {"good_for", "not_for", "licence"} <= card["notes"].keys()
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "generator.json", "weights.safetensors",
    ]  # fmt: skip


def test_the_card_says_what_the_sums_cost_in_both_units(shapes, tmp_path):
    data, sites = shapes
    make_private(data, sites, epsilon=2.0, out=tmp_path)
    card = json.loads((tmp_path / "generator.json").read_text())
    privacy = card["privacy"]
    assert (privacy["epsilon"], privacy["delta"], card["training"]["sites"]) == (2.0, DELTA, 5)
    assert privacy["unit"] == "one sample of a site, added or removed"
    replaced = replace_one_epsilon(rho_for(2.0, DELTA), DELTA)
    assert privacy["epsilon_replaced"] == pytest.approx(replaced, abs=1e-4)
    assert "for one replaced by another" in card["guarantee"]
    assert "samples that the sites state" in card["notes"]["checked"]
    assert "3,000" not in str(card)  # the exact number would tell of one sample more
    assert "seed" not in json.dumps(card)
    assert "warning" not in card["notes"]


def test_seeded_noise_makes_the_same_generator_without_a_guarantee(shapes, tmp_path):
    data, sites = shapes

    def made(seed: int, **more: object) -> Generator:
        return make_private(data, sites, seed=seed, **more)

    one = made(1, seeded_noise=True, out=tmp_path).fingerprint
    again, other = (made(seed, seeded_noise=True).fingerprint for seed in (1, 2))
    assert one == again != other
    assert made(1).fingerprint != one  # noise of the operating system
    card = json.loads((tmp_path / "generator.json").read_text())
    assert card["privacy"] is None
    assert "no guarantee" in card["notes"].pop("warning")
    assert "may_be_given_to" not in card["notes"]
    assert "seed" not in json.dumps(card)


def test_seeded_noise_is_that_of_the_whole_run_after_an_interruption(shapes, tmp_path, monkeypatch):
    data, sites = shapes
    whole = make_private(data, sites, 500.0, seeded_noise=True).fingerprint
    ask = SimulatedSums.ask

    def second_dies(self, query, *more):
        if query.name == "image-products":
            raise KeyboardInterrupt
        return ask(self, query, *more)

    with monkeypatch.context() as patch:
        patch.setattr(SimulatedSums, "ask", second_dies)
        with pytest.raises(KeyboardInterrupt):
            make_private(data, sites, 500.0, out=tmp_path, seeded_noise=True)
    assert make_private(data, sites, 500.0, out=tmp_path, seeded_noise=True).fingerprint == whole


def test_a_request_that_nobody_was_asked_for_does_not_keep_its_folder(shapes, tmp_path):
    data, sites = shapes
    with pytest.raises(InputError, match="too large"):
        make_private(data, sites, 1e13, out=tmp_path)
    make_private(data, sites, 2.0, out=tmp_path)
    with pytest.raises(InputError, match="holds a generator already"):
        make_private(data, sites, 2.0, out=tmp_path)


def seeded_noise_of(card: dict, seed: int) -> np.ndarray:
    """What an attacker knows who draws the noise of a simulation from a seed."""
    query = ImageMoments(
        len(card["classes"]), tuple(card["shape"]), card["settings"]["frequencies"]
    )
    rho = 0.75 * rho_for(2.0, DELTA)
    sigma = sigma_for(rho, query.sensitivity, honest=card["training"]["sites"], words=query.length)
    noise = SumNoise(sigma, card["training"]["sites"])
    parts = [
        noise.part(query.length, child_rng(seed, "noise", site).bytes)
        for site in range(card["training"]["sites"])
    ]
    return sum(parts).reshape(len(card["classes"]), -1)[:, 0] / query.units[0]


def test_nobody_can_subtract_the_noise_of_a_simulation(shapes, tmp_path):
    """From the seed and the card; only seeded noise, which has no epsilon, can be subtracted."""
    data, sites = shapes
    truth = np.bincount(data.labels)
    for seeded, exact in ((True, True), (False, False)):
        out = tmp_path / str(seeded)
        make_private(data, sites, epsilon=2.0, seed=7, out=out, seeded_noise=seeded)
        card = json.loads((out / "generator.json").read_text())
        told = np.array(card["counts"]) - seeded_noise_of(card, 7)
        assert bool((np.abs(told - truth) < 0.1).all()) == exact
        assert (card["privacy"] is None) == exact


# Sites that lie: one of five sends what its samples cannot add up to.


def poisoned(data: Dataset, sites: list, lie: Callable[[SampleSum], np.ndarray]) -> Ask:
    """The sums of five sites, of which one adds what it likes."""

    def ask(query: SampleSum, part: float) -> Release:
        answers = [query.answer(data.samples, data.labels, own) for own in sites]
        answers[0] = answers[0] + lie(query)
        found = release(query, answers, 5, 1.0, share=part, noise_seed=3)
        return found._replace(samples=len(data.labels))

    return ask


def copies_of_one_picture(times: int) -> Callable[[SampleSum], np.ndarray]:
    """What an attacker sends who wants all images of a class to look like one."""
    chosen = np.zeros((1, *SHAPE), np.uint8)
    chosen[:, :, 3:6] = 255
    return lambda query: times * query.answer(chosen, np.zeros(1, np.int64))


@pytest.mark.parametrize("times", [20_000, 600, -600])
def test_sums_of_more_samples_than_the_sites_have_are_refused(shapes, times):
    data, sites = shapes
    with pytest.raises(InfeasibleError, match="cannot be those of the sites' samples"):
        make_from_sums(data, poisoned(data, sites, copies_of_one_picture(times)))


def test_a_lie_takes_effect_where_nothing_is_compared(shapes, monkeypatch):
    """The control: without the comparison one site decides what a class looks like."""
    data, sites = shapes
    monkeypatch.setattr("fedeas.private.generator.make.check_sums", lambda *_: None)
    bar = np.zeros(SHAPE)
    bar[:, 3:6] = 1
    likeness = []
    for times in (0, 20_000):
        made = make_from_sums(data, poisoned(data, sites, copies_of_one_picture(times)))
        drawn = made.sample(np.zeros(40, np.int64), np.arange(40).astype(np.uint64))
        likeness.append(np.corrcoef(drawn.mean(axis=0).ravel(), bar.ravel())[0, 1])
    assert likeness[0] < 0.5 < 0.9 < likeness[1]


def test_sums_that_an_earlier_version_asked_for_count_in_the_epsilon(tmp_path):
    """A server that was upgraded before the generator was made uses others, and paid for both."""

    def ask(query: SampleSum, share: float) -> Release:
        return Release(np.zeros(query.length, np.int64), 1.0, 5, 2.0, DELTA)

    earlier = keep_sums(ask, tmp_path, 2.0, DELTA)
    assert earlier(ImageMoments(3, SHAPE, 4), 0.5).epsilon == 2.0
    later = keep_sums(ask, tmp_path, 2.0, DELTA)
    later(ImageMoments(3, SHAPE, 2), 0.75)
    last = later(ImageProducts(3, SHAPE, 2), 0.25)
    assert last.epsilon == pytest.approx(epsilon_of([1.5 * rho_for(2.0, DELTA)], DELTA))


@pytest.mark.parametrize("query", MOSTLY, ids=lambda q: q.name)
def test_sums_larger_than_their_counts_allow_are_refused(query):
    rng = np.random.default_rng(8)
    samples, labels = rng.integers(0, 256, (900, *SHAPE), np.uint8), rng.integers(0, 3, 900)
    honest = release(query, [query.answer(samples, labels)], 1, 3.0)
    wrong = np.zeros((query.classes if query.by_label else 1, query.width), np.int64)
    wrong[:, 1:] = 50 * int(query.sensitivity)
    for known in (900, None):
        honest = honest._replace(samples=known)
        check_sums(query, honest)
        if query.name == "image-products" and known is None:
            continue  # it has no count of its own
        for sign in (1, -1) if "products" in query.name else (1,):
            lie = honest._replace(sums=honest.sums + sign * 900 * wrong.reshape(-1))
            with pytest.raises(InfeasibleError):
                check_sums(query, lie)


def test_progress_is_reported_site_by_site(shapes):
    data, sites = shapes
    said = []
    make_private(data, sites, progress=lambda *told: said.append(told))
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
        patched.setattr("fedeas.private.generator.images.image_normals", kill)
        make_private(data, sites, out=tmp_path)
    with pytest.raises(InputError, match="another request"):
        make_private(data, sites, epsilon=3.0, out=tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr("fedeas.private.sums.release", kill)  # nothing is asked again
        made = make_private(data, sites, out=tmp_path)
    assert made.card.privacy.epsilon == 1.0
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "generator.json", "weights.safetensors",
    ]  # fmt: skip


def test_without_noise_the_card_warns(shapes, tmp_path):
    data, sites = shapes
    made = make_private(data, sites, epsilon=math.inf, out=tmp_path)
    assert isinstance(made, GaussianImages)
    assert made.card.privacy is None
    assert made.card.counts == (sum(data.labels == 0), sum(data.labels == 1), sum(data.labels == 2))
    assert "no guarantee" in made.card.notes["warning"]
    assert GeneratorCard.load(tmp_path) == made.card


def test_quality_is_ordered_as_the_noise_is(shapes):
    data, sites = shapes
    found = [
        np.mean(make_private(data, sites, epsilon=e, seeded_noise=True).card.quality)
        for e in (1.0, 10.0, math.inf)
    ]
    assert found[0] < found[1] < found[2] == 1


def test_more_noise_means_less_quality(shapes):
    data, sites = shapes
    few = [own[:100] for own in sites]
    clear, hidden = (
        make_private(data, few, epsilon=e, seeded_noise=True).card.quality for e in (100.0, 1.0)
    )
    assert min(clear) > 0.9 > max(hidden)


def test_what_cannot_be_made_or_opened(shapes, tmp_path, monkeypatch):
    data, sites = shapes
    for wrong, message in (
        ({"epsilon": 0.0}, "epsilon"),
        ({"epsilon": math.nan}, "epsilon"),
        ({"epsilon": 1e18}, "use a smaller one"),
        ({"delta": 0.0}, "above 0 and below 1"),
    ):
        with pytest.raises(InputError, match=message):
            make_private(data, sites, **wrong)
    with pytest.raises(InputError, match="at least one site"):
        make_private(data, [])
    for wrong in (
        [np.arange(len(data.labels)) % 2 == 0],  # a mask
        [np.zeros(5, np.int64)], [np.arange(9), np.arange(8, 20)],  # samples that count twice
        [np.array([0, -1])], [np.array([0, len(data.labels)])], [np.array([0.0, 1.0])],
        [np.zeros((2, 2), np.int64)],
    ):  # fmt: skip
        with pytest.raises(InputError, match="site"):
            make_private(data, wrong)
    made = make_private(data, [site.tolist() for site in sites], out=str(tmp_path))
    weights = tmp_path / "weights.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    with pytest.raises(InputError, match="damaged"):
        open_private(str(tmp_path))
    made.save(tmp_path)
    for change in (
        {"method": "magic"}, {"shape": (12, 10, 3)}, {"generator": "x"}, {"settings": {}},
        {"training": TrainingRecord(sites="five")}, {"settings": {"frequencies": math.inf}},
        {"shape": (256, 256, 256), "settings": {"frequencies": 1}},
        *(unprintable := (
            {"notes": {"checked": "yes\x1b[1A\x1b[2Kguarantee: epsilon = 0.01"}},
            {"privacy": dataclasses.replace(made.card.privacy, unit="one\x07")},
        )),
    ):  # fmt: skip
        with monkeypatch.context() as patch:  # as somebody else's code may write it
            patch.setattr("fedeas.generators.card._check_printable", lambda _: None)
            dataclasses.replace(made.card, **change).save(tmp_path)
        with pytest.raises(InputError):
            open_private(str(tmp_path))
    for change in unprintable:
        with pytest.raises(InputError, match="cannot hold"):
            dataclasses.replace(made.card, **change).save(tmp_path)


def test_a_small_folder_does_not_ask_for_much_memory(shapes, tmp_path):
    """Of many classes and large images: each is small enough, and their product is not."""
    made = make_private(*shapes)
    for count, fits in ((2, True), (4000, False)):
        classes, each = tuple(map(str, range(count))), (1.0,) * count
        means, roots = np.zeros((count, 1)), np.zeros((count, 1, 1))
        card = dataclasses.replace(
            made.card, classes=classes, shape=(256, 256, 1), settings={"frequencies": 1},
            counts=each, quality=each,
        )  # fmt: skip
        own = GaussianImages(means[:2], roots[:2], dataclasses.replace(card, classes=classes[:2]))
        own.card = card
        own._tensors = {"means": torch.from_numpy(means), "roots": torch.from_numpy(roots)}
        own.save(tmp_path / str(count))
        with nullcontext() if fits else pytest.raises(InputError, match="do not match"):
            open_private(str(tmp_path / str(count)))


# In a run.


def test_a_run_makes_its_generator_once_from_its_own_clients(shapes, tmp_path, monkeypatch):
    data, _ = shapes
    monkeypatch.setenv("FEDEAS_STORE", str(tmp_path))
    federation, other = (federate(data, IID(clients=n), "official") for n in (5, 4))
    spec = make_private_generator("private(epsilon=2)", federation, 42)
    folder = Path(spec.removeprefix("private(model=").removesuffix(")"))
    assert folder.parent == tmp_path / "private"
    assert make_generator(spec).card.privacy.epsilon == 2
    assert sorted(path.name for path in folder.iterdir() if path.name != "lock") == [
        "generator.json", "weights.safetensors",
    ]  # fmt: skip
    made = (folder / "generator.json").stat().st_mtime_ns
    assert make_private_generator("private(epsilon=2.0)", federation, 42) == spec
    assert (folder / "generator.json").stat().st_mtime_ns == made
    others = {
        make_private_generator("private(epsilon=3)", federation, 42),
        make_private_generator("private(epsilon=2)", federation, 43),
        make_private_generator("private(epsilon=2)", other, 42),
        make_private_generator("private(epsilon=2, delta=1e-5)", federation, 42),
        make_private_generator("private(epsilon=2, seeded_noise=true)", federation, 42),
    }
    assert len(others | {spec}) == 6
    assert make_private_generator(spec, federation, 42) == spec
    assert make_private_generator("pool(data=x)", federation, 42) == "pool(data=x)"
    with pytest.raises(InputError, match="no setting 'magic'"):
        make_private_generator("private(magic=1)", federation, 42)
    with pytest.raises(InputError, match="no setting 'method'"):
        make_private_generator("private(epsilon=1, method=features)", federation, 42)
    for name, value in (("epsilon", "one"), ("delta", True)):
        with pytest.raises(InputError, match=f"{name}.*got {value!r}; allowed: above 0"):
            make_private_generator(f"private({name}={value})", federation, 42)


def test_the_command_makes_a_folder_and_says_what_it_cost(fedeas, tmp_path):
    folder = write_shapes(tmp_path / "set")
    config = tmp_path / "config.toml"
    config.write_text(
        f'[data]\nname = "shapes"\nfolder = "{folder}"\n'
        '[partition]\nrecipe = "dirichlet"\nclients = 4\nalpha = 0.5\n'
    )
    given = ("generator", "private", config, "--out")
    done = fedeas(*given, tmp_path / "own", "--epsilon", "50")
    assert done.code == 0, done.err
    said = done.out
    assert f"epsilon = 50, delta = {DELTA:g} for one sample of a site, added or removed" in said
    assert "for one replaced by another" in said
    assert json.loads((tmp_path / "own" / "generator.json").read_text())["training"]["sites"] == 4
    assert make_generator(f"private(model={tmp_path / 'own'})").classes
    again = fedeas(*given, tmp_path / "own", "--epsilon", "5")
    assert again.code == 2
    assert "holds a generator already" in again.err
    assert "none: the sums have no noise" in fedeas(*given, tmp_path / "b", "--epsilon", "inf").out
    seeded = fedeas(*given, tmp_path / "s", "--epsilon", "50", "--seeded-noise")
    assert re.search(r"^guarantee +none", seeded.out, re.MULTILINE)
    wrong = fedeas(*given, tmp_path / "c", "--delta", "2")
    assert wrong.code == 2
    assert "delta out of range" in wrong.err


@pytest.mark.slow
def test_the_benchmark_measures_real_images():
    """Few images and steps: a classifier learns more from them than from chance."""
    command = [sys.executable, "benchmarks/private_generator.py", "--quick", "--images", "10000"]
    command += ["--seeds", "1", "--epsilon", "10"]
    done = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["images"] == 10_000
    assert found["epsilon"]["10"]["accuracy"][0] > 30
