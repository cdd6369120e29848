"""`fedeas export`: a cache as folders of images or as WebDataset, with a card."""

import json
import tarfile

import numpy as np
import pytest
from PIL import Image

from fedeas import FedEAS, InputError, LabelCounts, fill
from fedeas.cache import Cache
from fedeas.cache.export import export
from helpers.image_sets import shapes
from helpers.noted_generators import Counting, CountingRows

CLASSES = ("cat", "../dog", "owl")
COUNTS = LabelCounts([[30, 2, 0], [0, 5, 40]], ["north", "a/b"], CLASSES)


class Large(Counting):
    """Images of 8 x 8 pixels."""

    fingerprint = "large-1"

    def draw(self, labels, seeds):
        return np.tile(super().draw(labels, seeds), (1, 2, 2, 1))


@pytest.fixture
def cache(tmp_path):
    cache = Cache(tmp_path / "cache", Counting(), CLASSES)
    plan = FedEAS(beta=12).plan(COUNTS)
    fill(plan, Counting(), cache)
    return cache, plan


def test_images_by_class_with_a_card(tmp_path, cache, fedeas):
    cache, plan = cache
    done = fedeas("export", cache.place, "--out", tmp_path / "out")
    assert f"wrote {plan.total} synthetic images" in done.out
    folders = sorted(path.name for path in (tmp_path / "out").iterdir() if path.is_dir())
    assert "owl" in folders and all("/" not in name and name[0] != "." for name in folders)
    expected, _ = cache.samples("a/b", plan.samples[1].tolist())
    files = sorted((tmp_path / "out").rglob("*.png"))
    assert len(files) == plan.total
    own = [path for path in files if path.name.startswith("a_b-")]
    assert len(own) == plan.per_client[1]
    images = sorted(np.asarray(Image.open(path)).tobytes() for path in own)
    assert images == sorted(sample.tobytes() for sample in expected)
    card = (tmp_path / "out" / "README.md").read_text()
    assert "counting-1" in card and "not stated" in card
    with pytest.raises(InputError, match="exists already"):
        export(cache, tmp_path / "out")
    assert fedeas("export", cache.place, "--out", tmp_path / "out").code == 2


def test_one_clients_images_as_a_web_dataset(tmp_path, cache):
    cache, plan = cache
    done = export(cache, tmp_path / "out", "webdataset", "north")
    assert done.synthetic == plan.per_client[0]
    (path,) = (tmp_path / "out").glob("*.tar")
    with tarfile.open(path) as tar:
        members = {member.name: tar.extractfile(member).read() for member in tar.getmembers()}
    labels = [int(content) for name, content in members.items() if name.endswith(".cls")]
    assert np.bincount(labels, minlength=3).tolist() == plan.samples[0].tolist()
    about = [json.loads(content) for name, content in members.items() if name.endswith(".json")]
    assert {each["client"] for each in about} == {"north"}
    assert len(members) == 3 * plan.per_client[0]


def test_with_the_real_images(tmp_path):
    real = shapes(tmp_path / "shapes", side=8)
    cache = Cache(tmp_path / "cache", Large(), real.classes)
    counts = LabelCounts(np.eye(len(real.classes), dtype=int) * 20, classes=real.classes)
    fill(FedEAS(beta=12).plan(counts), Large(), cache)
    done = export(cache, tmp_path / "out", real=real)
    assert done.real == real.train_size
    assert len(list((tmp_path / "out").rglob("real-*.png"))) == real.train_size
    assert f"{real.train_size} real ones" in (tmp_path / "out" / "README.md").read_text()
    for label, name in enumerate(real.classes):
        own = (real.labels[: real.train_size] == label).sum()
        assert len(list((tmp_path / "out" / name).glob("real-*.png"))) == own


def test_what_is_no_image_or_not_there_is_refused(tmp_path, cache):
    cache, _ = cache
    with pytest.raises(InputError, match="unknown client"):
        export(cache, tmp_path / "out", client="nobody")
    rows = Cache(tmp_path / "rows", CountingRows(), 3)
    counts = LabelCounts([[30, 2, 0]], classes=["a", "b", "c"])
    fill(FedEAS(beta=12).plan(counts), CountingRows(), rows)
    with pytest.raises(InputError, match="only images are exported"):
        export(rows, tmp_path / "rows-out")
