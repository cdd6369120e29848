"""Generated samples as files that other programs read."""

import io
import sys
import tracemalloc

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from PIL import Image

from cached import flip
from counting import Counting
from fedeas import FedEAS, InputError, LabelCounts, MissingExtraError, Plan
from fedeas.cache import Cache, fill
from fedeas.cache.export import export
from fedeas.parquet import samples as parquet_samples

COUNTS = LabelCounts(
    [[30, 0, 2], [0, 9, 0], [5, 5, 0], [0, 0, 40], [4, 0, 0]],
    ["a/b", "..", "Süd", "d e", "SÜD"],
    ["cat", "dog/wolf", "bird"],
)
PLAN = FedEAS(beta=9).plan(COUNTS)


class Rows(Counting):
    """Rows of a table instead of images."""

    fingerprint = "rows-1"

    def sample(self, labels, seeds):
        return np.stack([labels, *(seeds % 7 + k for k in range(4))], axis=1).astype(np.float32)


class Grids(Counting):
    """Neither images nor rows."""

    fingerprint = "grids-1"

    def sample(self, labels, seeds):
        return np.ones((len(labels), 2, 3), np.float32) * labels[:, None, None].astype(np.float32)


@pytest.fixture
def filled(tmp_path):
    def filled(generator=None, plan=PLAN) -> Cache:
        generator = generator or Counting()
        cache = Cache(tmp_path / "cache", generator, 3)
        fill(plan, generator, cache, 7)
        return cache

    return filled


def samples_of(cache: Cache, plan: Plan = PLAN):
    """Every sample of a plan, by client, class and index."""
    for client, wanted in zip(plan.client_names, plan.samples.tolist(), strict=True):
        samples, labels = cache.samples(client, wanted)
        index = [k for n in wanted for k in range(n)]
        yield from ((client, *row) for row in zip(labels, index, samples, strict=True))


def test_images_by_client_and_class(filled, tmp_path):
    cache, out = filled(), tmp_path / "images"
    assert export(cache, out, "png", classes=COUNTS.classes) == PLAN.total
    files = sorted(path.relative_to(out).parts for path in out.rglob("*.png"))
    assert len(files) == PLAN.total
    folders = {
        "a/b": cache.client_folder("a/b").name, "..": cache.client_folder("..").name,
        "Süd": "Süd", "d e": "d e", "SÜD": cache.client_folder("SÜD").name,
    }  # fmt: skip
    if not (out / "Süd").exists():  # whichever was first keeps its name
        folders |= {"Süd": cache.client_folder("Süd").name, "SÜD": "SÜD"}
    for client, label, index, sample in samples_of(cache):
        kind = ("cat", "1", "bird")[label]  # 'dog/wolf' is not the name of a folder
        with Image.open(out / folders[client] / kind / f"{index}.png") as image:
            np.testing.assert_array_equal(np.asarray(image), sample[:, :, 0])


@pytest.mark.parametrize("generator", [Counting(), Rows(), Grids()])
def test_one_parquet_file(generator, filled, tmp_path):
    cache, out = filled(generator), tmp_path / "out"
    assert export(cache, out, "parquet", classes=COUNTS.classes) == PLAN.total
    frame = pd.read_parquet(out / "samples.parquet")
    assert frame.columns.tolist() == ["client", "class", "index", "sample"]
    assert len(frame) == PLAN.total
    read = frame.set_index(["client", "class", "index"])["sample"]
    for client, label, index, sample in samples_of(cache):
        value = read[client, COUNTS.classes[label], index]
        if generator.fingerprint == "counting-1":
            with Image.open(io.BytesIO(value)) as image:
                np.testing.assert_array_equal(np.asarray(image), sample[:, :, 0])
        else:
            assert value.dtype == np.float32
            np.testing.assert_array_equal(value.reshape(sample.shape), sample)
    shape = (pq.read_schema(out / "samples.parquet").metadata or {}).get(b"fedeas.shape")
    assert shape == {"rows-1": b"[5]", "grids-1": b"[2, 3]"}.get(generator.fingerprint)


def test_from_the_command_line(filled, tmp_path, fedeas):
    cache, plan = filled(), tmp_path / "plan.csv"
    PLAN.save(plan)
    base, out = cache.folder.parent, tmp_path / "images"
    result = fedeas("cache", "export", base, "--out", out, "--plan", plan, "--client", "Süd")
    assert (result.code, result.out) == (0, "")
    own = PLAN.per_client[2]
    assert result.err == f"wrote {own} samples to {out}\n"
    assert [path.name for path in out.iterdir()] == ["Süd"]
    # The folder of the cache itself, and numbers for classes.
    table = tmp_path / "table"
    arguments = ("--format", "parquet", "--client", "Süd", "--client", "d e")
    assert fedeas("cache", "export", cache.folder, "--out", table, *arguments).code == 0
    frame = pd.read_parquet(table / "samples.parquet")
    assert set(frame["client"]) == {"Süd", "d e"}
    assert set(frame["class"]) <= {"0", "1", "2"}


def test_what_cannot_be_exported_is_refused_before_anything_is_written(filled, tmp_path, fedeas):
    cache, out = filled(), tmp_path / "out"
    for options, said in (
        (["--format", "jpeg"], "unknown format; got 'jpeg'; allowed: png, parquet"),
        (["--client", "nobody"], "has no samples of this client; got 'nobody'"),
    ):
        result = fedeas("cache", "export", cache.folder, "--out", out, *options)
        assert result.code == 2
        assert said in result.err
        assert not out.exists()
    with pytest.raises(InputError, match=r"samples of class 2; got '2 names of classes'"):
        export(cache, out, "png", classes=["cat", "dog"])
    (out / "mine").mkdir(parents=True)
    with pytest.raises(InputError, match="is not an empty folder; choose another one with --out"):
        export(cache, out, "png")
    other = filled(Rows())
    result = fedeas("cache", "export", cache.folder.parent, "--out", tmp_path / "x")
    assert "holds 2 caches" in result.err
    result = fedeas("cache", "export", other.folder, "--out", tmp_path / "x")
    assert "these samples are not images" in result.err
    assert "--format parquet" in result.err


def test_a_damaged_sample_is_not_exported(filled, tmp_path):
    cache = filled()
    flip(cache.samples_file(), cache.samples_file().stat().st_size - 3)
    for form in ("png", "parquet"):
        with pytest.raises(InputError, match="is damaged"):
            export(cache, tmp_path / form, form)
    assert list((tmp_path / "parquet").iterdir()) == []  # no half file


def test_a_missing_extra_is_named(filled, tmp_path, monkeypatch):
    cache = filled()
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(MissingExtraError, match=r"fedeas\[data\]"):
        export(cache, tmp_path / "out", "png")


@pytest.mark.parametrize("form", ["png", "parquet"])
def test_samples_are_not_held(form, tmp_path, monkeypatch):
    class Noise(Counting):
        fingerprint = "noise-1"

        def sample(self, labels, seeds):
            return np.random.default_rng(0).integers(0, 256, (len(labels), 48, 48, 3), np.uint8)

    plan = Plan.of(LabelCounts(np.full((4, 2), 5)), np.full((4, 2), 200), "all")
    cache = Cache(tmp_path / "cache", Noise(), 2)
    fill(plan, Noise(), cache, 32)
    size = 1600 * 48 * 48 * 3
    monkeypatch.setattr(parquet_samples, "_GROUP_BYTES", size // 20)
    told = []
    export(cache, tmp_path / "first", form)  # what is imported on the way is not counted
    tracemalloc.start()
    export(cache, tmp_path / "out", form, progress=lambda *at: told.append(at))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < size / 4
    assert told[-1] == (1600, 1600)
    assert len(told) >= 50
    if form == "parquet":
        assert pq.ParquetFile(tmp_path / "out" / "samples.parquet").num_row_groups > 10


def test_every_class_has_a_folder_of_its_own(tmp_path):
    """A class whose name is no folder's is not put into that of a class called as its number."""
    classes = ("a/b", "0", "Cat", "cat")
    plan = FedEAS(beta=9).plan(LabelCounts([[5, 1, 0, 0]], ["north"], classes))
    cache = Cache(tmp_path / "cache", Counting(), classes)
    fill(plan, Counting(), cache)
    written = export(cache, tmp_path / "out", "png", classes=classes)
    folders = {path.name.casefold(): len(list(path.iterdir()))
               for path in (tmp_path / "out" / "north").iterdir()}  # fmt: skip
    assert sum(folders.values()) == written == plan.total
    assert len(folders) == np.count_nonzero(plan.samples)
    assert folders["0"] == plan.samples[0, 1]
