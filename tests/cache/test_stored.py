"""`augment(samples=...)`: samples that were generated elsewhere, without any generator."""

import numpy as np
import pytest
from PIL import Image

from fedeas import FedEAS, InputError, LabelCounts, Plan, augment, fill
from fedeas.cache import Cache, fill_by_client
from fedeas.cache.export import export
from helpers.noted_generators import Counting

CLASSES = ("cat", "dog", "owl")
N = np.array([30, 2, 0])
LABELS = np.repeat([0, 1, 2], N)
IMAGES = np.random.default_rng(0).integers(0, 256, (32, 4, 4, 1), np.uint8)


@pytest.fixture
def plan() -> Plan:
    return FedEAS(beta=12).plan(LabelCounts([N, [0, 5, 40]], ["north", "south"], CLASSES))


def added(plan=None, **options):
    """What augment adds to the real samples of north."""
    given = {"plan": plan} if plan is not None else {"beta": 12}
    images, labels = augment(
        IMAGES, labels=LABELS, classes=CLASSES, client="north", **given, **options
    )
    np.testing.assert_array_equal(np.asarray(images)[:32], IMAGES)
    return np.asarray(images)[32:], np.asarray(labels)[32:]


@pytest.mark.parametrize("filler", [fill, fill_by_client])
def test_a_filled_cache_is_read_without_a_generator(tmp_path, plan, filler):
    cache = Cache(tmp_path / "cache", Counting(), CLASSES)
    filler(plan, Counting(), cache)
    for place in (tmp_path / "cache", str(cache.folder)):  # the base with one cache, or the cache
        samples, labels = added(plan, samples=place)
        assert np.bincount(labels, minlength=3).tolist() == plan.samples[0].tolist()
        generated, _ = added(plan, generator=Counting(), cache=tmp_path / "cache")
        np.testing.assert_array_equal(samples, generated)


def test_too_few_samples_are_an_error_that_names_the_class(tmp_path, plan):
    cache = Cache(tmp_path / "cache", Counting(), CLASSES)
    few = Plan(**{**vars(plan), "samples": plan.samples // 2})
    fill(few, Counting(), cache)
    with pytest.raises(InputError, match="first of them of class") as refused:
        added(plan, samples=cache.folder)
    assert f"{few.samples[0, 1]} of {plan.samples[0, 1]}" in str(refused.value)


def test_one_of_generator_and_samples(tmp_path, plan):
    with pytest.raises(InputError, match="generator"):
        added(plan, samples=tmp_path, generator=Counting())
    with pytest.raises(InputError, match="one of"):
        augment(IMAGES, labels=LABELS, classes=CLASSES, client="north", samples=tmp_path)


@pytest.mark.parametrize("number", [0, 2])
def test_one_cache_in_a_folder_and_no_other(tmp_path, plan, number):
    for seed in range(number):
        fill(plan, Counting(), Cache(tmp_path / "cache", Counting(), CLASSES, seed))
    (tmp_path / "cache").mkdir(exist_ok=True)
    with pytest.raises(InputError, match="2 caches" if number else "no samples in"):
        added(plan, samples=tmp_path / "cache")


def write_images(folder, classes, number, shape=(4, 4), ending="png"):
    for label, name in enumerate(classes):
        (folder / name).mkdir(parents=True)
        for k in range(number):
            content = np.full(shape, 10 * label + k, np.uint8)
            Image.fromarray(content).save(folder / name / f"{k}.{ending}")


def test_images_by_class_of_any_tool_are_read(tmp_path, plan):
    most = int(plan.samples.max())
    write_images(tmp_path / "images", CLASSES, most)
    samples, labels = added(plan, samples=tmp_path / "images")
    assert np.bincount(labels, minlength=3).tolist() == plan.samples[0].tolist()
    for sample, label in zip(samples, labels, strict=True):
        assert 10 * label <= sample.min() == sample.max() < 10 * label + most
    again, _ = added(plan, samples=tmp_path / "images")
    np.testing.assert_array_equal(samples, again)
    (tmp_path / "images" / "owl" / "0.png").unlink()
    for k in range(most - 1):
        (tmp_path / "images" / "owl" / f"{k + 1}.png").unlink()
    with pytest.raises(InputError, match="too few images of class 'owl'"):
        added(plan, samples=tmp_path / "images")


def test_images_of_another_size_or_number_format_are_refused(tmp_path, plan):
    most = int(plan.samples.max())
    write_images(tmp_path / "large", CLASSES, most, (8, 8))
    with pytest.raises(InputError, match="does not match a real one"):
        added(plan, samples=tmp_path / "large")
    write_images(tmp_path / "images", CLASSES, most)
    with pytest.raises(InputError, match="does not match a real one"):  # 0 to 255 beside 0 to 1
        augment(
            IMAGES.astype(np.float32) / 255, labels=LABELS, classes=CLASSES, client="north",
            plan=plan, samples=tmp_path / "images",
        )  # fmt: skip


def test_what_export_wrote_is_read_whatever_classes_are_called(tmp_path):
    classes = ("T - shirt / top", "a.b", "owl")
    plan = FedEAS(beta=12).plan(LabelCounts([N, [0, 5, 40]], ["north", "south"], classes))
    cache = Cache(tmp_path / "cache", Counting(), classes)
    fill(plan, Counting(), cache)
    export(cache, tmp_path / "out")
    for given in ({"classes": classes}, {}):  # the plan names them too
        _, labels = augment(
            IMAGES, labels=LABELS, client="north", plan=plan, samples=tmp_path / "out", **given
        )
        added = np.bincount(np.asarray(labels)[32:], minlength=3)
        assert added.tolist() == plan.samples[0].tolist()
    with pytest.raises(InputError, match="how many classes there are"):
        augment(IMAGES, labels=LABELS, client="north", beta=12, samples=tmp_path / "out")
