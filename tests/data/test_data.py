import io
import os
import shutil
import struct
import subprocess
import sys
import zlib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from fedeas import IID, Dirichlet, FedEAS, FLBench, InputError
from fedeas.data import Dataset, federate, load_images
from fedeas.generators import Generator, Pool, make_generator
from helpers.image_sets import encoded, shapes, write_set
from helpers.limited_process import attempt

ROOT = Path(__file__).parents[2]


def noise(count: int, shape: tuple[int, ...] = (6, 5, 3), seed: int = 0) -> list[np.ndarray]:
    return list(np.random.default_rng(seed).integers(0, 256, (count, *shape), np.uint8))


def test_pixels_and_labels_survive(tmp_path):
    train, test = noise(20), noise(4, seed=1)
    write_set(tmp_path / "set", train, test)
    data = load_images("mine", tmp_path / "set", tmp_path / "store")
    np.testing.assert_array_equal(data.samples, np.stack(train + test))
    assert data.labels.tolist() == [0, 1] * 12
    assert (data.classes, data.train_size) == (("cat", "dog"), 20)
    assert isinstance(data.samples, np.memmap)
    grey = [image[:, :, 0] for image in train]
    write_set(tmp_path / "grey", grey, grey[:4])
    assert load_images("grey", tmp_path / "grey", tmp_path / "store").samples.shape == (24, 6, 5, 1)


def written(folder: Path, picture: Image.Image, ending: str = "png", **options: object) -> Path:
    """Write ten times the same picture of two classes."""
    for name in ("cat", "dog"):
        (folder / name).mkdir(parents=True)
        for number in range(5):
            picture.save(folder / name / f"{number}.{ending}", **options)
    return folder


RAMP = np.linspace(0, 65535, 64 * 64).reshape(64, 64).astype(np.uint16)
SEEN_THROUGH = Image.fromarray(
    np.dstack([np.full((8, 8), 90, np.uint8)] * 3 + [np.eye(8, dtype=np.uint8)])
)
FRAMES = [Image.fromarray(np.full((8, 8), value, np.uint8)) for value in (10, 200)]


@pytest.mark.parametrize(
    ("picture", "ending", "options", "got"),
    [
        (Image.fromarray(RAMP), "png", {}, "I;16"),
        (Image.fromarray(RAMP), "tif", {}, "I;16"),
        (Image.fromarray(RAMP.astype(np.float32)), "tif", {}, "F"),
        (SEEN_THROUGH, "png", {}, None),
        (SEEN_THROUGH.convert("LA"), "png", {}, None),
        (FRAMES[0].convert("P"), "png", {"transparency": 10}, None),
        (FRAMES[0], "tif", {"save_all": True, "append_images": FRAMES[1:]}, 2),
        (FRAMES[0], "gif", {"save_all": True, "append_images": FRAMES[1:]}, 2),
    ],
)
def test_what_eight_bits_do_not_hold_is_refused(picture, ending, options, got, tmp_path):
    """X-rays have 16 bits: all of such an image but its darkest part would be white."""
    written(tmp_path / "set", picture, ending, **options)
    with pytest.raises(InputError) as refused:
        load_images("mine", tmp_path / "set", tmp_path / "store")
    assert refused.value.got == got
    assert str(tmp_path / "set" / "cat") in refused.value.what
    assert not list((tmp_path / "store" / "data").glob("[!.]*"))


def test_sixteen_bits_of_a_colour_are_refused_too(tmp_path):
    def chunk(name: bytes, content: bytes) -> bytes:
        checked = name + content
        return struct.pack(">I", len(content)) + checked + struct.pack(">I", zlib.crc32(checked))

    head = struct.pack(">IIBBBBB", 8, 8, 16, 2, 0, 0, 0)
    rows = zlib.compress((b"\0" + b"\1\2" * 24) * 8)
    image = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")
    for name in ("cat", "dog"):
        (tmp_path / "set" / name).mkdir(parents=True)
        for number in range(5):
            (tmp_path / "set" / name / f"{number}.png").write_bytes(image)
    with pytest.raises(InputError) as refused:
        load_images("mine", tmp_path / "set", tmp_path / "store")
    assert refused.value.got == "RGB"


@pytest.mark.parametrize(
    ("mode", "channels"),
    [("1", 1), ("L", 1), ("LA", 1), ("P", 3), ("RGB", 3), ("RGBA", 3)],
)
def test_what_eight_bits_hold_keeps_its_values(mode, channels, tmp_path):
    """Grey stays one channel, and an opaque alpha channel says nothing."""
    values = np.where(np.eye(8, dtype=bool), 255, 0).astype(np.uint8)
    written(tmp_path / "set", Image.fromarray(values).convert(mode))
    data = load_images("mine", tmp_path / "set", tmp_path / "store")
    assert data.samples.shape[3] == channels
    np.testing.assert_array_equal(data.samples[0], np.dstack([values] * channels))


def test_configurations_of_a_data_set_are_not_merged(tmp_path):
    for name in ("large", "small"):
        write_set(tmp_path / "set" / name, noise(20), noise(4))
    with pytest.raises(InputError) as refused:
        load_images("mine", tmp_path / "set", tmp_path / "store")
    assert refused.value.got == ["large", "small"]
    one = load_images("mine", tmp_path / "set" / "small", tmp_path / "store")
    assert (one.train_size, len(one.labels)) == (20, 24)


def test_a_last_class_without_samples_is_a_class(tmp_path):
    images, labels = np.zeros((40, 8, 8, 1), np.uint8), np.array([0, 1] * 20)
    batches = iter([(images, labels)])
    data = Dataset.write(tmp_path / "set", "mine", ("a", "b", "c"), (30, 10), batches)
    made = federate(data, IID(2), pool_per_class=2)
    assert made.counts.classes == ("a", "b", "c")
    assert made.counts.n.sum(axis=0).tolist() == [13, 13, 0]


def test_a_file_that_was_copied_with_its_time_is_read_again(tmp_path):
    """As `cp -p` does; the other file has as many bytes."""
    folder = image_folder(tmp_path / "set")
    first = load_images("mine", folder, tmp_path / "store")
    state = (folder / "cat").stat()
    (folder / "cat" / "03.bmp").write_bytes((folder / "dog" / "07.bmp").read_bytes())
    os.utime(folder / "cat" / "03.bmp", (1e9, 1e9))
    assert (folder / "cat").stat().st_mtime_ns == state.st_mtime_ns
    assert load_images("mine", folder, tmp_path / "store").fingerprint != first.fingerprint


def test_it_is_decoded_once_and_again_when_the_source_changes(tmp_path, monkeypatch):
    write_set(tmp_path / "set", noise(20), noise(4))
    first = load_images("mine", tmp_path / "set", tmp_path / "store")
    with monkeypatch.context() as patch:
        patch.setattr("fedeas.data.decode._decode", None)
        again = load_images("mine", tmp_path / "set", tmp_path / "store")
    assert again.fingerprint == first.fingerprint
    write_set(tmp_path / "set", noise(20, seed=5), noise(4))
    other = load_images("mine", tmp_path / "set", tmp_path / "store")
    assert other.fingerprint != first.fingerprint


def image_folder(folder: Path, each: int = 10) -> Path:
    """Write images of two classes, all of one size and time; the colour tells which is which."""
    for label, name in enumerate(("cat", "dog")):
        (folder / name).mkdir(parents=True)
        for number in range(each):
            path = folder / name / f"{number:02}.bmp"
            Image.fromarray(np.full((8, 8), 100 * label + number, np.uint8)).save(path)
            os.utime(path, (1e9, 1e9))
    return folder


def labelled(data: Dataset) -> dict[int, str]:
    """Return the name of the class of every training image, by its colour."""
    colours = data.samples[: data.train_size, 0, 0, 0].tolist()
    return {c: data.classes[y] for c, y in zip(colours, data.train_labels.tolist(), strict=True)}


def test_an_image_that_is_moved_to_another_class_gets_its_label(tmp_path):
    """The first of the dogs becomes the last of the cats: the order of names stays as it was."""
    store, train = tmp_path / "store", image_folder(tmp_path / "set" / "train")
    image_folder(tmp_path / "set" / "test")
    for path in sorted((train / "dog").iterdir()):
        path.rename(path.with_name(f"1{path.name[1:]}"))
    assert labelled(load_images("mine", tmp_path / "set", store))[100] == "dog"
    (train / "dog" / "10.bmp").rename(train / "cat" / "10.bmp")
    assert labelled(load_images("mine", tmp_path / "set", store))[100] == "cat"


def test_a_class_that_is_renamed_is_called_so(tmp_path):
    folder, store = image_folder(tmp_path / "set"), tmp_path / "store"
    load_images("mine", folder, store)
    (folder / "cat").rename(folder / "bobcat")  # still the first
    assert load_images("mine", folder, store).classes == ("bobcat", "dog")


@pytest.mark.parametrize("what", ["folders", "files"])
def test_classes_and_images_that_change_places_change_their_labels(tmp_path, what):
    """All files have the same names, sizes and times."""
    folder, store = image_folder(tmp_path / "set"), tmp_path / "store"
    before = labelled(load_images("mine", folder, store, parts=("train",)))
    end = "" if what == "folders" else "03.bmp"
    for old, new in (("cat", "x"), ("dog", "cat"), ("x", "dog")):
        (folder / "x").mkdir(exist_ok=True) if end else None
        (folder / old / end).rename(folder / new / end)
    after = labelled(load_images("mine", folder, store, parts=("train",)))
    changed = {colour for colour in before if before[colour] != after[colour]}
    assert changed == (set(before) if what == "folders" else {3, 103})


def test_an_image_that_is_moved_to_the_test_set_is_tested_on(tmp_path):
    store = tmp_path / "store"
    for part in ("train", "test"):
        image_folder(tmp_path / "set" / part, each=6)
    shutil.rmtree(tmp_path / "set" / "test" / "dog")
    assert load_images("mine", tmp_path / "set", store).train_size == 12
    (tmp_path / "set" / "train" / "dog").rename(tmp_path / "set" / "test" / "dog")
    moved = load_images("mine", tmp_path / "set", store)
    assert (moved.train_size, moved.labels[6:].tolist()) == (6, [0] * 6 + [1] * 6)
    whole = image_folder(tmp_path / "whole")
    sizes = [
        (len(data.train_labels), len(data.labels))
        for parts in (("train", "test"), ("train",), ("test",))
        for data in [load_images("mine", whole, store, parts=parts)]
    ]
    assert sizes == [(16, 20), (20, 20), (0, 20)]


def test_a_data_set_says_where_its_test_images_come_from(tmp_path):
    store = tmp_path / "store"
    flat = image_folder(tmp_path / "flat")
    for part in ("train", "test"):
        shutil.copytree(flat, tmp_path / "parts" / part)
    write_set(tmp_path / "rows", noise(40), noise(4))
    for folder, origin in (
        (flat, "every fifth image of each class, set aside by fedeas"),
        (tmp_path / "parts", "from the folder test/"),
        (tmp_path / "rows", "from test-*.parquet"),
    ):
        for _ in ("decoded", "opened again"):
            shared = federate(load_images("mine", folder, store), IID(clients=2))
            assert shared.describe().endswith(f" test samples, {origin}")
    assert "official" not in shared.describe()


def test_images_load_on_systems_that_cannot_reserve_space(tmp_path, monkeypatch):
    """macOS and Windows have no posix_fallocate."""
    monkeypatch.delattr(os, "posix_fallocate")
    write_set(tmp_path / "set", noise(20), noise(4))
    data = load_images("mine", tmp_path / "set", tmp_path / "store")
    np.testing.assert_array_equal(data.samples[:20], np.stack(noise(20)))


def test_the_arrays_are_those_that_numpy_writes(tmp_path):
    """Their fingerprint names runs and caches: it may not change with how they are written."""
    data = shapes(tmp_path / "set")
    np.save(tmp_path / "samples.npy", np.asarray(data.samples))
    written = (tmp_path / "set" / "samples.npy").read_bytes()
    assert written == (tmp_path / "samples.npy").read_bytes()
    assert data.fingerprint.startswith("83d336ce07573ceb")


def test_a_full_disk_is_one_line_and_leaves_nothing(tmp_path):
    write_set(tmp_path / "set", noise(60, (32, 32, 3)), noise(4, (32, 32, 3)))
    said = attempt(
        "load_images('mine', *argument)",
        tmp_path / "set",
        tmp_path / "store",
        limit="write_at_most(100)",
    )
    assert said.startswith("FileAccessError cannot write")
    assert "File too large" in said
    assert len(said.splitlines()) == 1
    assert not list((tmp_path / "store" / "data").iterdir())


def test_a_set_that_does_not_fit_on_the_disk_is_refused_at_once(tmp_path):
    folder = tmp_path / "store" / "data" / "x"
    huge = np.zeros((1, 8000, 8000, 3), np.uint8)
    rows = shutil.disk_usage(tmp_path).free // huge.size + 2
    asked = []

    def batches():
        asked.append(1)
        yield huge, np.zeros(1, np.int64)

    with pytest.raises(InputError, match="FEDEAS_STORE"):
        Dataset.write(folder, "x", ("a", "b"), (rows, 0), batches())
    assert asked == [1]
    assert not list(folder.parent.iterdir())


def test_a_damaged_store_is_found_and_decoded_anew(tmp_path):
    write_set(tmp_path / "set", noise(20), noise(4))
    data = load_images("mine", tmp_path / "set", tmp_path / "store")
    folder = next((tmp_path / "store" / "data").glob("*"))
    good = {
        name: (folder / name).read_bytes() for name in ("samples.npy", "labels.npy", "meta.json")
    }
    hostile = io.BytesIO()
    np.save(hostile, np.array([{"a": 1}], dtype=object), allow_pickle=True)
    damages = {
        "samples.npy": [good["samples.npy"][:200], b"", hostile.getvalue()],
        "labels.npy": [good["labels.npy"][:100], hostile.getvalue()],
        "meta.json": [b"{}", b"", good["meta.json"].replace(b"20", b"19")],
    }
    for name, contents in damages.items():
        for content in contents:
            (folder / name).write_bytes(content)
            with pytest.raises(InputError):
                Dataset.open(folder)
            again = load_images("mine", tmp_path / "set", tmp_path / "store")
            assert again.fingerprint == data.fingerprint


def test_bad_sources_are_refused_and_nothing_is_left(tmp_path):
    bad = {
        "broken image": [*noise(3), b"not an image"],
        "other sizes": [*noise(3), *noise(1, (7, 7, 3))],
    }
    for name, train in bad.items():
        write_set(tmp_path / name, train, noise(2))
        with pytest.raises(InputError):
            load_images(name, tmp_path / name, tmp_path / "store")
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="no train set"):
        load_images("empty", tmp_path / "empty", tmp_path / "store")
    pq.write_table(pa.table({"a": [1]}), tmp_path / "empty" / "train-0.parquet")
    pq.write_table(pa.table({"a": [1]}), tmp_path / "empty" / "test-0.parquet")
    with pytest.raises(InputError, match="has no column 'label'"):
        load_images("empty", tmp_path / "empty", tmp_path / "store")
    assert not list((tmp_path / "store").rglob("*.npy"))


def test_a_data_set_of_the_hub(tmp_path):
    """The hub's own client finds a data set in its cache, without a network."""
    snapshot = tmp_path / "hub" / "datasets--org--mine" / "snapshots" / ("0" * 40)
    write_set(snapshot / "data", noise(20), noise(4))
    (snapshot.parents[1] / "refs").mkdir()
    (snapshot.parents[1] / "refs" / "main").write_text("0" * 40)
    code = (
        "import sys; from fedeas.data import load_images\n"
        "print(load_images('org/mine', store=sys.argv[1]))\n"
        "try: load_images('org/absent', store=sys.argv[1])\n"
        "except Exception as error: print(error)"
    )
    environment = {k: v for k, v in os.environ.items() if k != "FEDEAS_DATA"}
    environment |= {"HF_HUB_OFFLINE": "1", "HF_HUB_CACHE": str(tmp_path / "hub")}
    done = subprocess.run(
        [sys.executable, "-c", code, tmp_path / "store"],
        env=environment, capture_output=True, text=True, check=True,
    )  # fmt: skip
    first, second = done.stdout.splitlines()
    assert first == "Dataset(org/mine: 20 training and 4 test images of 6x5x3, 2 classes)"
    assert second.startswith("no dataset 'org/absent'")
    assert "FEDEAS_DATA is not set: set it to a folder that holds org/absent/" in second
    environment["FEDEAS_DATA"] = str(tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", code, tmp_path / "store"],
        env=environment, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert f"there is no folder {tmp_path / 'org' / 'absent'}" in done.stdout
    assert "FEDEAS_DATA" in done.stdout


def test_real_fashion_mnist(data, store):
    loaded = load_images("fashion_mnist", store=store)
    assert loaded.samples.shape == (70_000, 28, 28, 1)
    assert np.bincount(loaded.train_labels).tolist() == [6000] * 10
    assert loaded.classes[9] == "Ankle boot"
    row = (
        pq.ParquetFile(next((data / "fashion_mnist").glob("test-*"))).read_row_group(0).slice(7, 1)
    )
    pixels = np.asarray(Image.open(io.BytesIO(row.to_pylist()[0]["image"]["bytes"])))
    np.testing.assert_array_equal(loaded.samples[60_007, :, :, 0], pixels)


def test_the_two_protocols_on_real_cifar10(data, store, paper):
    loaded = load_images("cifar10", store=store)
    as_paper = federate(loaded, FLBench(clients=20, alpha=0.1), "merged")
    np.testing.assert_array_equal(as_paper.counts.n, paper.n)
    assert "N = 45,007" in as_paper.describe()
    assert "14,993 test samples, held out by the clients" in as_paper.describe()
    assert not set(as_paper.test) & set(as_paper.partition.train.indices)
    clean = federate(loaded, FLBench(clients=20, alpha=0.1), "official", pool_per_class=2000)
    assert "N = 30,000" in clean.describe()
    assert clean.describe().endswith("10,000 test samples, from test-*.parquet")
    parts = [clean.partition.train.indices, clean.test, clean.pool]
    np.testing.assert_array_equal(np.sort(np.concatenate(parts)), np.arange(60_000))
    assert np.bincount(loaded.labels[clean.pool]).tolist() == [2000] * 10
    assert clean.test.min() == 50_000


def test_many_clients_cost_no_more_memory_than_few(data, store):
    code = (
        "import re, sys; from pathlib import Path; from fedeas import Dirichlet\n"
        "from fedeas.data import load_images, federate\n"
        "shared = federate(load_images('cifar10', store=sys.argv[1]),\n"
        "                  Dirichlet(clients=int(sys.argv[2]), alpha=1.0))\n"
        "print(re.search(r'VmHWM:\\s+(\\d+)', Path('/proc/self/status').read_text())[1])"
    )
    load_images("cifar10", store=store)
    peaks = []
    for clients in ("10", "1000"):
        command = [sys.executable, "-c", code, store, clients]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        peaks.append(int(done.stdout))
    assert peaks[1] - peaks[0] < 20_000  # kB, of 150 MB of images


def test_protocols_refuse_what_makes_no_sense(tmp_path):
    write_set(tmp_path / "set", noise(40), noise(4))
    loaded = load_images("mine", tmp_path / "set", tmp_path / "store")
    with pytest.raises(InputError, match="unknown split"):
        federate(loaded, IID(clients=2), "mine")
    with pytest.raises(InputError, match="gives clients no test part"):
        federate(loaded, IID(clients=2), "merged")
    with pytest.raises(InputError, match="too many samples to hold out"):
        federate(loaded, IID(clients=2), pool_per_class=20)
    assert federate(loaded, IID(clients=2)).counts.class_names == ("cat", "dog")


def test_the_pool_draws_held_out_images_of_the_class(tmp_path):
    write_set(tmp_path / "set", noise(40), noise(4))
    loaded = load_images("mine", tmp_path / "set", tmp_path / "store")
    shared = federate(loaded, Dirichlet(clients=2, alpha=1.0), pool_per_class=5)
    pool = Pool(loaded, shared.pool)
    assert isinstance(pool, Generator)
    labels, seeds = np.array([0, 1, 1, 0] * 10), np.arange(40, dtype=np.uint64)
    images = pool.sample(labels, seeds)
    allowed = {loaded.samples[i].tobytes(): int(loaded.labels[i]) for i in shared.pool}
    assert [allowed[image.tobytes()] for image in images] == labels.tolist()
    order = np.random.default_rng(0).permutation(40)
    np.testing.assert_array_equal(pool.sample(labels[order], seeds[order]), images[order])
    with pytest.raises(InputError, match="the pool has no samples of class"):
        Pool(loaded, shared.pool[loaded.labels[shared.pool] == 0])
    for split in ("official", "merged"):
        recipe = FLBench(clients=2, alpha=1.0, min_samples=0)
        shared = federate(loaded, recipe, split, pool_per_class=5)
        spec = f"pool(data=mine, pool_per_class=5, split={split}, folder={tmp_path / 'set'})"
        assert make_generator(spec).fingerprint == Pool(loaded, shared.pool).fingerprint
        assert not set(shared.pool) & {*shared.partition.train.indices, *shared.test}


def test_an_own_generator_in_a_few_lines(fedeas, monkeypatch, tmp_path, paper):
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    plan = tmp_path / "plan.json"
    FedEAS(beta=2).plan(paper).save(plan)
    result = fedeas("fill", plan, "--generator", "own_generator:Stripes", "--cache", tmp_path / "c")
    assert result.code == 0
    assert f"{FedEAS(beta=2).plan(paper).total:,} samples" in result.out


def test_a_folder_of_images_by_class_is_a_data_set(tmp_path):
    for number in range(23):
        folder = tmp_path / "flat" / ("cat", "dog")[number % 2]
        folder.mkdir(parents=True, exist_ok=True)
        picture = np.full((8, 9, 3), 10 * number, np.uint8)
        (folder / f"{number:02}.png").write_bytes(encoded(picture))
    (tmp_path / "flat" / "cat" / "notes.txt").write_text("no image")
    flat = load_images("flat", tmp_path / "flat", tmp_path / "store")
    assert (flat.classes, flat.samples.shape, flat.train_size) == (
        ("cat", "dog"),
        (23, 8, 9, 3),
        19,
    )
    # Every fifth of a class is for testing: cats 08, 18, dogs 09, 19.
    assert sorted(flat.samples[19:, 0, 0, 0].tolist()) == [80, 90, 180, 190]
    assert ((flat.samples[:, 0, 0, 0] // 10) % 2 == flat.labels).all()
    shutil.copytree(tmp_path / "flat", tmp_path / "split" / "train")
    with pytest.raises(InputError, match="has no test set"):
        load_images("split", tmp_path / "split", tmp_path / "store")
    shutil.copytree(tmp_path / "flat" / "cat", tmp_path / "split" / "test" / "cat")
    split = load_images("split", tmp_path / "split", tmp_path / "store")
    assert (split.train_size, len(split.labels)) == (23, 35)
    (tmp_path / "split" / "test" / "cat" / "x.png").write_bytes(b"no picture")
    with pytest.raises(InputError, match="cannot be decoded"):
        load_images("split", tmp_path / "split", tmp_path / "store")
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="images in train/CLASS/"):
        load_images("empty", tmp_path / "empty", tmp_path / "store")
