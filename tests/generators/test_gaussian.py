"""`gaussian`: rows as vectors, their moments, and the rows that are drawn from them."""

import hashlib
import io
import json
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedeas import InputError, make_generator
from fedeas._internal.files import content_hash
from fedeas.data import Column, Dataset, Schema
from fedeas.generators import Gaussian, Moments, RowSpace
from fedeas.generators.card import GeneratorCard
from fedeas.generators.gaussian import (
    FULL,
    class_covariances,
    common_covariance,
    shrinkage,
)
from fedeas.generators.random_streams import normals, uniforms
from fedeas.generators.row_space import Quantiles
from helpers.cache_contents import flip
from helpers.hypothesis_strategies import tables
from helpers.small_tables import SCHEMA, draw_table

CLASSES = ("good", "fair", "bad")


def seeds(size: int, start: int = 0) -> np.ndarray:
    return np.arange(start, start + size, dtype=np.uint64)


def fitted(size: int = 3000, seed: int = 0) -> Gaussian:
    return Gaussian.fit(*draw_table(size, seed), CLASSES, SCHEMA)


def levels_of(space: RowSpace, points: np.ndarray) -> np.ndarray:
    """The levels that coordinates stand for."""
    found = [points[:, c.coordinates] for c in space.choices]
    return np.array([np.where(own.any(axis=1), 1 + own.argmax(axis=1), 0) for own in found])


# The space


@given(tables())
def test_rows_come_back_from_the_space(table):
    schema, rows = table
    space = RowSpace.fit(schema, rows)
    points, variances = space.encode(rows)
    assert points.shape == (len(rows), space.dimensions)
    assert ((variances >= 0) & (variances <= 1)).all()
    numbers = points[:, space.first_number :].T
    back = space.decode(levels_of(space, points), numbers)
    np.testing.assert_allclose(back, rows, rtol=1e-5, atol=1e-5)


@given(tables(), st.integers(0, 2**32), st.floats(0.1, 20))
def test_whatever_comes_out_of_the_space_could_be_in_the_table(table, seed, spread):
    """Known categories, whole numbers, the range of the column, gaps where there are any."""
    schema, rows = table
    space = RowSpace.fit(schema, rows)
    rng = np.random.default_rng(seed)
    levels = np.array([rng.integers(0, choice.levels, 50) for choice in space.choices], np.int64)
    numbers = rng.normal(0, spread, (len(schema.numbers), 50))
    made = space.decode(levels.reshape(len(space.choices), 50), numbers)
    schema.check(made)
    assert not np.isnan(made[:, ~np.isnan(rows).any(axis=0)]).any()
    for column in schema.numbers.tolist():
        known, drawn = (table[~np.isnan(table[:, column]), column] for table in (rows, made))
        if known.size and drawn.size:
            assert known.min() <= drawn.min()
            assert drawn.max() <= known.max()


@given(st.lists(st.integers(0, 9), min_size=1, max_size=300), st.booleans())
def test_tied_values_are_standard_normal_with_the_variance_within_them(values, of_many):
    """Also where most rows share a few values: mean 0 and variance 1, up to the cut-off tails."""
    tied = np.array(values * 2, np.float32)
    if of_many:
        tied = np.concatenate([tied, np.random.default_rng(0).normal(size=900).astype(np.float32)])
    places, within = Quantiles.of(tied).encode(tied.astype(np.float64))
    assert places.mean() == pytest.approx(0, abs=1e-6 if not of_many else 0.01)
    assert (places**2 + within).mean() == pytest.approx(1, abs=1e-6 if not of_many else 0.03)


@given(tables(), st.integers(0, 2**32), st.sampled_from([np.float32, np.float64]))
def test_looking_values_up_is_interpolation(table, seed, dtype):
    schema, rows = table
    for curve in RowSpace.fit(schema, rows).quantiles:
        own = np.concatenate([np.random.default_rng(seed).normal(0, 3, 200), curve.places])
        places = own.astype(dtype)
        found = curve.decode(places)
        known = np.interp(places, curve.places.astype(dtype), curve.values)
        off = np.abs(found - known) > 1e-4 * np.maximum(1, np.ptp(curve.values))
        at_jump = np.isin(places, curve.places.astype(dtype))  # either value will do
        assert not (off & ~at_jump).any()
        assert found.min() >= np.float32(curve.values[0])
        assert found.max() <= np.float32(curve.values[-1])


def test_a_space_is_known_from_json_and_refuses_what_it_does_not_describe():
    rows, _ = draw_table(400)
    space = RowSpace.fit(SCHEMA, rows)
    again = RowSpace.from_dict(json.loads(json.dumps(space.to_dict())))
    assert again.to_dict() == space.to_dict()
    gap = rows[:1].copy()
    gap[0, 0] = np.nan
    with pytest.raises(InputError, match="'age' has gaps, and had none"):
        space.encode(gap)
    for broken in ({"gaps": [True]}, {"quantiles": []}, {"columns": []}):
        with pytest.raises(InputError):
            RowSpace.from_dict(space.to_dict() | broken)
    first = space.to_dict()["quantiles"][0]
    for wrong in (first["values"][::-1], first["values"][1:], [float("nan")], ["x"], []):
        quantiles = [first | {"values": wrong}, *space.to_dict()["quantiles"][1:]]
        with pytest.raises(InputError):
            RowSpace.from_dict(space.to_dict() | {"quantiles": quantiles})


def test_quantiles_of_many_rows_come_from_some_of_them():
    rows = np.random.default_rng(0).normal(5, 2, (150_000, 1)).astype(np.float32)
    rows[-1] = np.nan  # found all the same
    space = RowSpace.fit(Schema((Column("x"),)), rows)
    assert space.gaps == (True,)
    assert space.quantiles[0].values.size < 600
    places = space.quantiles[0].encode(np.array([3.0, 5.0, 7.0]))[0]
    assert places == pytest.approx([-1, 0, 1], abs=0.02)


# Moments


def test_moments_are_numpys():
    """Of numbers without gaps and of choices: NumPy's, and the variance within tied values."""
    rows, labels = draw_table(2000)
    space = RowSpace.fit(SCHEMA, rows)
    moments = Moments.of(space, rows, labels, 3)
    means, scatters = moments.complete(space)
    points, within = space.encode(rows)
    kept = np.setdiff1d(np.arange(space.dimensions), list(space.gap_coordinates))
    for label in range(3):
        own = points[labels == label]
        assert moments.counts[label] == len(own)
        np.testing.assert_allclose(means[label, kept], own.mean(axis=0)[kept])
        extra = np.append(np.zeros(space.first_number), within[labels == label].sum(axis=0))
        scatter = np.cov(own.T, ddof=0) * len(own) + np.diag(extra)
        found = scatters[label][np.ix_(kept, kept)]
        np.testing.assert_allclose(found, scatter[np.ix_(kept, kept)], atol=1e-8)


def test_with_gaps_moments_are_those_of_the_rows_that_have_both():
    rng = np.random.default_rng(0)
    rows = rng.multivariate_normal([0, 0], [[1, 0.8], [0.8, 1]], 3000).astype(np.float32)
    rows[rng.random((3000, 2)) < 0.4] = np.nan
    space = RowSpace.fit(Schema((Column("x"), Column("y"))), rows)
    moments = Moments.of(space, rows, np.zeros(3000, np.int64), 1)
    means, scatters = moments.complete(space)
    covariance = scatters[0] / 3000
    first = space.first_number
    for at in (0, 1):
        there = ~np.isnan(rows[:, at])
        points = space.encode(rows[there])[0][:, first + at]
        assert means[0, first + at] == pytest.approx(points.mean())
        assert covariance[first + at, first + at] == pytest.approx(points.var(), rel=1e-3)
    both = space.encode(rows[~np.isnan(rows).any(axis=1)])[0][:, first:]
    assert covariance[first, first + 1] == pytest.approx(np.cov(both.T)[0, 1], abs=0.01)


def test_moments_of_clients_add_up_to_those_of_all():
    rows, labels = draw_table(2000)
    space = RowSpace.fit(SCHEMA, rows)
    whole = Moments.of(space, rows, labels, 3)
    parts = np.array_split(np.random.default_rng(0).permutation(2000), 7)
    summed = Moments.zeros(3, space.dimensions)
    for part in parts:
        summed = summed + Moments.of(space, rows, labels, 3, part)
    np.testing.assert_allclose(summed.packed(), whole.packed(), rtol=1e-12, atol=1e-9)
    made, central = (Gaussian(space, m, CLASSES) for m in (summed, whole))
    drawn = [g.sample(labels, seeds(2000)) for g in (made, central)]
    same = np.isclose(*drawn, rtol=1e-4, equal_nan=True).all(axis=1)
    assert same.mean() > 0.999  # sums are rounded in another order
    with pytest.raises(InputError, match="other classes or columns"):
        whole + Moments.zeros(2, space.dimensions)
    with pytest.raises(InputError, match="do not fit in memory"):
        Moments.zeros(100, 5000)


def test_moments_come_back_from_a_packed_array():
    whole = Moments.of(RowSpace.fit(SCHEMA, draw_table(99)[0]), *draw_table(99), 3)
    back = Moments.unpacked(whole.packed(), whole.sums.shape[1])
    for name in ("counts", "sums", "squares"):
        np.testing.assert_array_equal(getattr(back, name), getattr(whole, name))
    with pytest.raises(InputError):
        Moments.unpacked(whole.packed()[:, 1:], whole.sums.shape[1])
    tracemalloc.start()
    with pytest.raises(InputError):  # the positions of that many would fill memory
        Moments.unpacked(whole.packed(), 20_000)
    assert tracemalloc.get_traced_memory()[1] < 10e6
    tracemalloc.stop()


def test_columns_that_never_change_have_no_covariance():
    schema, labels = Schema((Column("code", categories=("only",)),)), np.arange(9) % 2
    made = Gaussian.fit(np.zeros((9, 1), np.float32), labels, ("a", "b"), schema)
    assert made.space.dimensions == 0
    assert (made.sample(labels, np.arange(9, dtype=np.uint64)) == 0).all()


# Covariances


def moments_of(points: np.ndarray, labels: np.ndarray, classes: int) -> Moments:
    made = Moments.zeros(classes, points.shape[1])
    for label in range(classes):
        own = points[labels == label]
        made.counts[label] = len(own)
        made.sums[label], made.squares[label] = own.sum(axis=0), own.T @ own
    return made


def scattered(moments: Moments) -> tuple[np.ndarray, np.ndarray]:
    """The counts and the scatter of columns without gaps."""
    columns = tuple(Column(str(at)) for at in range(moments.sums.shape[1]))
    space = RowSpace(Schema(columns), (False,) * len(columns), ())
    return moments.counts, moments.complete(space)[1]


def test_large_classes_keep_their_covariance_and_small_ones_take_the_common_one():
    rng = np.random.default_rng(0)
    own = np.array([[2.0, 0.9, 0], [0.9, 1, -0.3], [0, -0.3, 0.5]])
    others = np.diag([0.5, 2.0, 1.0])
    sizes = (4000, 4000, 2, 1, 0)
    points = [
        rng.multivariate_normal(np.full(3, k), own if k == 0 else others, size)
        for k, size in enumerate(sizes)
    ]
    moments = moments_of(np.concatenate(points), np.repeat(np.arange(5), sizes), 5)
    found, common = (f(*scattered(moments)) for f in (class_covariances, common_covariance))
    np.testing.assert_allclose(found[0], np.cov(points[0].T), atol=0.05)
    np.testing.assert_allclose(common, (own + others) / 2, atol=0.1)
    np.testing.assert_allclose(found[3], common)
    np.testing.assert_allclose(found[4], common)
    apart = [np.linalg.norm(found[k] - common) for k in (0, 2)]
    assert apart[1] < apart[0]
    assert all(np.linalg.eigvalsh(one).min() > 0 for one in found)


def test_fewer_samples_than_dimensions_still_give_a_covariance():
    points = np.random.default_rng(0).normal(size=(10, 40))
    found = class_covariances(*scattered(moments_of(points, np.arange(10) % 2, 2)))
    assert np.linalg.eigvalsh(found).min() > 0
    assert shrinkage(np.cov(points.T), 10) > 0.5
    noisy = moments_of(points, np.arange(10) % 2, 2)
    noisy.squares[:] += np.random.default_rng(1).normal(0, 30, noisy.squares.shape)
    assert np.linalg.eigvalsh(class_covariances(*scattered(noisy))).min() > 0  # noise as well


# Random numbers


def test_streams_are_uniform_normal_and_independent():
    drawn = uniforms(seeds(20_000), 3, 5)
    assert drawn.mean(axis=1) == pytest.approx(0.5, abs=0.01)
    assert np.histogram(drawn, 50, (0, 1))[0] / 2000 == pytest.approx(1, abs=0.12)
    normal = normals(seeds(20_000), 0, 7)
    assert normal.shape == (7, 20_000)
    assert np.cov(normal) == pytest.approx(np.eye(7), abs=0.04)
    assert (normal**4).mean() == pytest.approx(3, abs=0.15)
    assert np.corrcoef(normal[0, :-1], normal[0, 1:])[0, 1] == pytest.approx(0, abs=0.03)
    assert np.array_equal(uniforms(seeds(4), 5, 2), uniforms(seeds(4), 3, 4)[2:])


# The generator


def test_a_row_follows_from_its_label_and_seed_in_any_batch():
    generator = fitted()
    rng = np.random.default_rng(0)
    labels, own = rng.integers(0, 3, 500), rng.integers(0, 2**63, 500).astype(np.uint64)
    whole = generator.sample(labels, own)
    SCHEMA.check(whole)
    assert whole.dtype == np.float32
    for size in (1, 2, 3, 5, 8, 13, 100):
        places = rng.permutation(500)[:size]
        np.testing.assert_array_equal(generator.sample(labels[places], own[places]), whole[places])
    assert not np.array_equal(generator.sample(labels, own + np.uint64(1)), whole)


def test_rows_look_like_their_class():
    """Means, spreads, categories, gaps and what depends on what; others for every class."""
    real, labels = draw_table(12_000)
    generator = Gaussian.fit(real, labels, CLASSES, SCHEMA)
    for label in range(3):
        own = real[labels == label]
        drawn = generator.sample(np.full(len(own), label), seeds(len(own)))
        for at in (0, 2, 3):  # numbers, the third in logarithms
            ours, theirs = (np.log1p(t[~np.isnan(t[:, at]), at]) for t in (drawn, own))
            assert abs(ours.mean() - theirs.mean()) < 0.1 * theirs.std()
            assert ours.std() == pytest.approx(theirs.std(), rel=0.15)
        gaps = np.isnan(drawn).mean(axis=0)
        assert gaps == pytest.approx(np.isnan(own).mean(axis=0), abs=0.02)
        for at, levels in ((1, 3), (4, 2)):
            for level in range(levels):
                share = (own[:, at] == level).mean()
                assert (drawn[:, at] == level).mean() == pytest.approx(share, abs=0.02)
        rent_own, rent_drawn = (t[:, 1] == 1 for t in (own, drawn))
        for tenants, table in ((rent_own, own), (rent_drawn, drawn)):
            missing = np.isnan(table[:, 2])
            more = missing[tenants].mean() - missing[~tenants].mean()
            assert more == pytest.approx(0.2, abs=0.06)
        with_both = [t[~np.isnan(t).any(axis=1)] for t in (own, drawn)]
        slopes = [np.corrcoef(t[:, 0], np.log(t[:, 2]))[0, 1] for t in with_both]
        assert slopes[1] == pytest.approx(slopes[0], abs=0.06)


@given(st.floats(0, 1), st.floats(0, 1), st.integers(0, 2**32))
def test_gaps_are_as_frequent_as_in_the_class(first, second, seed):
    rng = np.random.default_rng(seed)
    labels = np.repeat([0, 1], 300)
    rows = rng.normal(size=(600, 3)).astype(np.float32)
    rows[rng.random(600) < np.where(labels == 0, first, second), 1] = np.nan
    rows[rows[:, 0] > 1, 2] = np.nan  # and where another column is large
    generator = Gaussian.fit(rows, labels, ("a", "b"))
    for label in range(2):
        drawn = np.isnan(generator.sample(np.full(3000, label), seeds(3000, seed)))
        share = np.isnan(rows[labels == label]).mean(axis=0)
        assert drawn.mean(axis=0) == pytest.approx(share, abs=0.05)
        assert not drawn[:, share == 0].any()
        assert drawn[:, share == 1].all()


def test_many_columns_have_factors_and_a_diagonal():
    rng = np.random.default_rng(0)
    size = FULL + 56
    common = rng.normal(size=(3, size))
    rows = rng.normal(size=(3000, 3)) @ common + rng.normal(size=(3000, size))
    generator = Gaussian.fit(rows.astype(np.float32), np.arange(3000) % 2, ("a", "b"))
    drawn = generator.sample(np.zeros(4000, np.int64), seeds(4000))
    ours, theirs = (np.corrcoef(t.T) for t in (drawn, rows))
    assert np.abs(ours - theirs).mean() < 0.05
    assert np.corrcoef(ours.ravel(), theirs.ravel())[0, 1] > 0.97
    few = Gaussian.fit(rows[:30].astype(np.float32), np.arange(30) % 2, ("a", "b"))
    assert np.isfinite(few.sample(np.zeros(9, np.int64), seeds(9))).all()


def test_a_class_of_one_row_is_made_and_a_class_of_none_is_refused():
    rows, labels = draw_table(300)
    labels[labels == 2] = 1
    labels[0] = 2
    generator = Gaussian.fit(rows, labels, (*CLASSES, "absent"), SCHEMA)
    drawn = generator.sample(np.full(50, 2), seeds(50))
    assert len({row.tobytes() for row in drawn}) > 40
    assert generator.known_classes() == list(CLASSES)
    with pytest.raises(InputError, match="no row of this class; got 'absent'; allowed: good, fair"):
        generator.sample(np.array([3]), seeds(1))
    with pytest.raises(InputError, match="no row of this class; got 7"):
        generator.sample(np.array([7]), seeds(1))


def test_it_is_saved_and_known_by_its_content(tmp_path):
    generator = fitted()
    generator.save(tmp_path / "rows")
    again = make_generator(f"gaussian(model={tmp_path / 'rows'})")
    assert again.fingerprint == generator.fingerprint
    assert (again.classes, again.schema) == (CLASSES, SCHEMA)
    labels = np.arange(60) % 3
    np.testing.assert_array_equal(
        again.sample(labels, seeds(60)), generator.sample(labels, seeds(60))
    )
    others = {fitted(seed=1).fingerprint, replaced(generator).fingerprint, generator.fingerprint}
    assert len(others) == 3
    for path in sorted((tmp_path / "rows").iterdir()):
        size = path.stat().st_size
        for at in np.linspace(0, size - 1, 40).astype(int).tolist():
            flip(path, at)
            with pytest.raises(InputError):
                Gaussian.load(tmp_path / "rows")
            flip(path, at)
    path = tmp_path / "rows" / "moments.npy"
    claimed = io.BytesIO()  # a head that claims eight gigabytes, under a true hash
    head = {"descr": "<f8", "fortran_order": False, "shape": (10**9,)}
    np.lib.format.write_array_header_1_0(claimed, head)
    card = json.loads((tmp_path / "rows" / "generator.json").read_text())
    for content in (claimed.getvalue(), claimed.getvalue() + bytes(8), b""):
        path.write_bytes(content)
        card["settings"]["moments"] = hashlib.sha256(content).hexdigest()
        about = {name: part for name, part in card.items() if name != "sha256"}
        card["sha256"] = content_hash(about)
        (tmp_path / "rows" / "generator.json").write_text(json.dumps(card))
        tracemalloc.start()
        with pytest.raises(InputError):
            Gaussian.load(tmp_path / "rows")
        assert tracemalloc.get_traced_memory()[1] < 10_000_000
        tracemalloc.stop()
    path.unlink()
    with pytest.raises(InputError):
        Gaussian.load(tmp_path / "rows")


def replaced(generator: Gaussian) -> Gaussian:
    """The same sums with other categories behind the codes."""
    columns = list(SCHEMA.columns)
    columns[4] = replace(columns[4], categories=("60", "36"))
    space = RowSpace(Schema(tuple(columns)), generator.space.gaps, generator.space.quantiles)
    return Gaussian(space, generator.moments, CLASSES)


def test_labels_0_and_1_are_names_as_good_as_any(tmp_path):
    rows, labels = draw_table(300, classes=2)
    made = Gaussian.fit(rows, labels, ("0", "1"), SCHEMA)
    made.save(tmp_path)
    opened = make_generator(f"gaussian(model={tmp_path})")
    assert opened.classes == ("0", "1")
    assert opened.fingerprint == made.fingerprint


def test_a_forged_folder_is_refused(tmp_path):
    """Also one with the right hashes."""
    fitted(200).save(tmp_path)
    card = GeneratorCard.load(tmp_path)
    space = card.settings["space"]
    for change in (
        {"generator": "diffusion"},
        {"classes": ("a",)},
        {"classes": ("a", "b", "c\x1b[31m")},
        {"settings": {}},
        {"settings": card.settings | {"space": {}}},
        {"settings": card.settings | {"space": space | {"gaps": [False] * 5}}},
    ):
        replace(card, **change).save(tmp_path)
        with pytest.raises(InputError):
            Gaussian.load(tmp_path)


def written(folder, rows, labels, schema=SCHEMA) -> Dataset:
    train = len(rows) * 4 // 5
    return Dataset.write(
        folder, "t", CLASSES, (train, len(rows) - train), iter([(rows, labels)]),
        kind="table", schema=schema,
    )  # fmt: skip


def test_it_is_fitted_to_the_training_rows_of_a_run(tmp_path):
    """Not to those that it is tested on, nor to what is held out."""
    from fedeas.data.federation import pool_indices
    from fedeas.generators.gaussian import gaussian_of_dataset

    rows, labels = draw_table(1000)
    data = written(tmp_path / "one", rows, labels)
    changed = rows.copy()
    changed[800:, 0] += 1000
    assert (
        gaussian_of_dataset(data).fingerprint
        == gaussian_of_dataset(written(tmp_path / "two", changed, labels)).fingerprint
    )
    held = pool_indices(data, 20, 7)
    changed[held, 0] += 1000
    other = written(tmp_path / "three", changed, labels)
    made, same = (gaussian_of_dataset(d, 20, 7) for d in (data, other))
    assert made.fingerprint == same.fingerprint != gaussian_of_dataset(data).fingerprint
    assert made.moments.counts.sum() == 800 - 60
    with pytest.raises(InputError, match="which data"):
        make_generator("gaussian")
    with pytest.raises(InputError, match="split"):
        make_generator("gaussian", data="t", split="merged")
