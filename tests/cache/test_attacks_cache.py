"""Attacks on caches of generated samples: each fails here, and works against a careless reader."""

import hashlib
import io
import json
import os
import stat
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fedeas import InputError, LabelCounts, augment
from fedeas._internal.files import sealed, unsealed
from fedeas.cache import Cache, verify
from fedeas.cache import shards as shards_module
from fedeas.cache.fill import client_samples
from fedeas.cache.shards import DamagedError, parse_entry, read_shard
from fedeas.cache.storage import LocalStorage
from fedeas.cache.store import read_about
from helpers.cache_contents import flip, rows_of, shards
from helpers.noted_generators import Counting

HELPERS = Path(__file__).parents[1] / "helpers"
WANTED = [3, 0, 4]


class Grey(Counting):
    """Knows its classes, and draws noise."""

    classes = ("cat", "dog", "bird")


@pytest.fixture(autouse=True)
def store(tmp_path, monkeypatch):
    """Decoded samples of each test apart: those of another one would hide what is damaged."""
    monkeypatch.setenv("FEDEAS_STORE", str(tmp_path / "store"))


def filled(base: Path) -> tuple[Cache, np.ndarray]:
    """A cache of one client, and its images."""
    cache = Cache(base, Grey(), 3)
    return cache, np.array(client_samples("a", WANTED, Grey(), cache)[0])


def forget_decoded(tmp_path: Path) -> None:
    for path in (tmp_path / "store").rglob("*.npy"):
        path.unlink()


def careless_images(cache: Cache) -> np.ndarray:
    """Read what the files say, as they are: nothing is checked."""
    table = pa.concat_tables([pq.read_table(path) for path in shards(cache.folder)])
    return np.stack([np.frombuffer(v, np.uint8).reshape(4, 4, 1) for v in
                     table["sample"].to_pylist()])  # fmt: skip


# Many processes at once


def at_once(folder: Path, processes: int) -> list[list[str]]:
    """Run concurrent_fills.py: what each process says."""
    command = [sys.executable, HELPERS / "concurrent_fills.py", folder, str(processes), "10"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize("attempts", [1, pytest.param(3, marks=pytest.mark.slow)])
def test_the_first_fill_by_twenty_processes_at_once_succeeds(tmp_path, attempts):
    """Two of each of ten clients: each has its samples once, and the same in both."""
    alone = Cache(tmp_path / "alone", Counting(), 3)
    for client in range(10):
        client_samples(str(client), [5, 7, 3], Counting(), alone, 4)
    for attempt in range(attempts):
        said = at_once(tmp_path / str(attempt), 20)
        assert Counter(how for _, how, _ in said) == {"done": 20}, said
        assert len({(client, digest) for client, _, digest in said}) == 10
        cache = Cache(tmp_path / str(attempt), Counting(), 3)
        assert rows_of(cache) == rows_of(alone)  # and none stands twice


# Files that somebody changed


def rewritten(path: Path, change, dictionary=("client",)) -> Path:
    """Replace a shard by one of somebody's own, under the right name, with an entry that fits."""
    table = change(pq.read_table(path))
    sink = io.BytesIO()
    more = {"use_dictionary": list(dictionary), "store_schema": False}
    pq.write_table(table, sink, compression="none", **more)
    name = hashlib.sha256(sink.getvalue()).hexdigest()
    entry = path.parent / ".fedeas" / "entries" / f"{path.stem}.json"
    blocks = shards_module._blocks(sink.getbuffer())
    body = unsealed(entry.read_text(), "") | {"shard": name, "blocks": blocks}
    entry.with_name(f"{name}.json").write_text(sealed(body))
    path.with_name(f"{name}.parquet").write_bytes(sink.getvalue())
    entry.unlink()
    path.unlink()
    return path.with_name(f"{name}.parquet")


def column(table: pa.Table, name: str, values: pa.Array) -> pa.Table:
    return table.set_column(table.schema.get_field_index(name), name, values)


CHANGES = {
    "short samples": lambda t: column(t, "sample", pa.array([b"x"] * len(t))),
    "long samples": lambda t: column(t, "sample", pa.array([bytes(10**6)] * len(t))),
    "no samples": lambda t: column(t, "sample", pa.array([None] * len(t), pa.binary())),
    "text samples": lambda t: column(t, "sample", pa.array(["x" * 16] * len(t))),
    "other columns": lambda t: t.drop_columns(["seed"]),
    "more columns": lambda t: t.append_column("more", pa.array([1] * len(t))),
    "fewer rows": lambda t: t.slice(0, 2),
    "more rows": lambda t: pa.concat_tables([t, t]),
    "another client": lambda t: column(t, "client", pa.array(["b"] * len(t))),
    "another class": lambda t: column(t, "class", pa.array([1] * len(t), pa.int32())),
    "a negative class": lambda t: column(t, "class", pa.array([-1] * len(t), pa.int32())),
    "a negative index": lambda t: column(t, "index", pa.array([-1] * len(t), pa.int64())),
    "a huge index": lambda t: column(t, "index", pa.array([2**60] * len(t), pa.int64())),
    "an index twice": lambda t: column(t, "index", pa.array([0] * len(t), pa.int64())),
    "a list": lambda t: column(t, "sample", pa.array([[1]] * len(t))),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_hostile_shard_is_refused_by_its_name(name, tmp_path):
    cache, images = filled(tmp_path)
    path = rewritten(shards(cache.folder)[0], CHANGES[name])
    forget_decoded(tmp_path)
    assert pq.read_table(path).num_rows  # a careless reader takes it
    with pytest.raises(InputError) as refused:
        Cache(tmp_path, Grey(), 3).samples("a", WANTED)
    assert path.name in str(refused.value) or "other samples than their entries" in str(
        refused.value
    )
    assert any(path.name in problem for problem in verify(cache.storage))
    np.testing.assert_array_equal(
        client_samples("a", WANTED, Grey(), Cache(tmp_path, Grey(), 3))[0], images
    )


def test_a_billion_rows_are_not_waited_for(tmp_path):
    """A small file can say that it has them: a run-length encoding of one value."""
    cache, _ = filled(tmp_path)
    (path,) = shards(cache.folder)
    rows = 30_000_000
    ones = pa.array(np.zeros(rows, np.int32))
    zeros = pa.DictionaryArray.from_arrays(ones, pa.array(["a"]))
    table = pa.table({
        "client": zeros, "class": ones, "index": pa.array(np.zeros(rows, np.int64)),
        "seed": pa.array(np.zeros(rows, np.uint64)),
        "sample": pa.DictionaryArray.from_arrays(ones, pa.array([bytes(16)])),
    })  # fmt: skip
    big = rewritten(path, lambda _: table, ("client", "class", "index", "seed", "sample"))
    assert big.stat().st_size < rows  # so it claims more than it is
    forget_decoded(tmp_path)
    begun = time.monotonic()
    with pytest.raises(InputError, match=r"rows|claims|other things"):
        Cache(tmp_path, Grey(), 3).samples("a", WANTED)
    assert time.monotonic() - begun < 1


ENTRIES = {
    "another shard": {"shard": "0" * 64},
    "a path": {"shard": "../../etc/passwd"},
    "more samples": {"stops": [3, 900]},
    "fewer samples": {"names": ["a"], "clients": [0], "labels": [0], "starts": [0], "stops": [1]},
    "an unknown client": {"clients": [0, 7]},
    "columns of other lengths": {"labels": [0]},
    "numbers below zero": {"starts": [-1, 0]},
    "an empty segment": {"stops": [0, 4]},
    "huge numbers": {"stops": [3, 2**70]},
    "text": {"stops": "3"},
    "more": {"more": 1},
}


@pytest.mark.parametrize("name", ENTRIES)
def test_a_forged_entry_is_not_believed(name, tmp_path):
    """With the right hash of what it says: that anybody can make."""
    cache, images = filled(tmp_path)
    (path,) = cache.folder.rglob("entries/*.json")
    body = unsealed(path.read_text(), "") | ENTRIES[name]
    path.write_text(sealed(body))
    forget_decoded(tmp_path)
    with pytest.raises(InputError):
        Cache(tmp_path, Grey(), 3).samples("a", WANTED)
    assert list(verify(cache.storage))
    again, _ = client_samples("a", WANTED, Grey(), Cache(tmp_path, Grey(), 3))
    np.testing.assert_array_equal(again, images)


def test_a_name_that_leads_elsewhere_is_refused(tmp_path):
    storage = LocalStorage(str(tmp_path))
    for name in ("../x", "a/../../x", "/etc/passwd", "a b", "", "a\0b"):
        with pytest.raises(InputError, match="not the name of a file"):
            storage.read(name)
        with pytest.raises(InputError):
            storage.write(name, b"")


@pytest.mark.parametrize("pattern", ["*.parquet", ".fedeas/entries/*", ".fedeas/about.json"])
def test_a_pipe_in_the_place_of_a_file_makes_nobody_wait(pattern, tmp_path):
    cache, _ = filled(tmp_path)
    (path,) = (cache.folder / "clients").rglob(pattern)
    path.unlink()
    os.mkfifo(path)
    reader = [sys.executable, "-c", f"open({str(path)!r}).read()"]
    with pytest.raises(subprocess.TimeoutExpired):
        subprocess.run(reader, timeout=0.5)
    forget_decoded(tmp_path)
    with pytest.raises(InputError):
        Cache(tmp_path, Grey(), 3).samples("a", WANTED)


def test_a_link_in_the_place_of_a_folder_is_not_written_through(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    cache = Cache(tmp_path / "base", Grey(), 3)
    cache.folder.parent.mkdir(parents=True)
    cache.folder.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InputError, match="is a link"):
        client_samples("a", WANTED, Grey(), cache)
    assert not list((tmp_path / "elsewhere").iterdir())


def test_any_flipped_bit_of_a_shard_is_found(tmp_path):
    """By whoever reads it, or it changes nothing that is read; `verify` finds each."""
    cache, images = filled(tmp_path)
    (path,) = shards(cache.folder)
    (name,) = (p.name for p in cache.folder.rglob("entries/*.json"))
    part = LocalStorage(str(path.parent))
    entry = parse_entry(part, name, part.read(f".fedeas/entries/{name}"))
    form = read_about(part).form
    good = path.read_bytes()
    seen = Counter()
    for at in np.random.default_rng(0).integers(0, len(good), 150).tolist():
        flip(path, at, 1 << at % 8)
        assert list(verify(cache.storage))
        try:
            ((_, rows),) = read_shard(entry, form, "a")
            order = np.lexsort((rows.indices, rows.labels))
            assert (rows.samples[order] == images).all()
            assert rows.labels[order].tolist() == [0] * 3 + [2] * 4
            seen["harmless"] += 1
        except (DamagedError, ValueError):
            seen["refused"] += 1
        path.write_bytes(good)
    assert seen["refused"] > 20


# Who may look


def shown_to_others(base: Path) -> list[Path]:
    """Files below a folder that other users of the machine can reach and read."""
    found = []
    for path in base.rglob("*"):
        above = [folder for folder in path.parents if folder.is_relative_to(base)]
        open_way = all(folder.stat().st_mode & stat.S_IXOTH for folder in above)
        if path.is_file() and open_way and path.stat().st_mode & stat.S_IROTH:
            found.append(path)
    return found


@pytest.fixture
def lenient(tmp_path):
    """The usual umask, and a folder that everybody may look into."""
    before = os.umask(0o022)
    (tmp_path / "base").mkdir()
    yield tmp_path / "base"
    os.umask(before)


def augmented(folder: Path, counts=(90, 10, 0), **more):
    labels = np.repeat([0, 1, 2], counts)
    images = np.zeros((len(labels), 4, 4, 1), np.uint8)
    return augment(
        images, labels=labels, generator=Grey(), beta=12, client="north", cache=folder, **more
    )


def test_other_users_cannot_read_a_cache(lenient):
    (lenient / "plain").mkdir()
    (lenient / "plain" / "cache.json").write_text("{}")
    assert shown_to_others(lenient) == [lenient / "plain" / "cache.json"]
    augmented(lenient / "cache")
    assert shown_to_others(lenient / "cache") == []
    folders = [path for path in (lenient / "cache").rglob("*") if path.is_dir()]
    assert {stat.S_IMODE(path.stat().st_mode) for path in folders} == {0o700}


def recovered(hashed: str, generated: list[int]) -> list[list[int]]:
    """Label counts of three classes that fit a hash of them and what was generated."""
    found = []
    for level in range(60):  # what each class that is generated is filled up to
        rest = [level - made for made in generated[1:]]
        for first in range(300 if min(rest) >= 0 else 0):
            if LabelCounts(np.array([[first, *rest]])).fingerprint == hashed:
                found.append([first, *rest])
    return found


def test_label_counts_cannot_be_recovered_from_what_a_cache_says_of_itself(tmp_path):
    counts = [90, 10, 0]
    made = np.bincount(augmented(tmp_path)[1], minlength=3) - counts
    assert recovered(LabelCounts([counts]).fingerprint, made.tolist()) == [counts]
    (path,) = tmp_path.glob("*/clients/*/.fedeas/about.json")
    about = read_about(LocalStorage(str(path.parents[1])))
    for hashed in (about.generator, about.classes, path.parents[3].name):
        assert recovered(hashed, made.tolist()) == []
    # It does not depend on them: other counts, the same cache.
    augmented(tmp_path, (7, 50, 20))
    assert list(tmp_path.glob("*/clients/*/.fedeas/about.json")) == [path]
    assert read_about(LocalStorage(str(path.parents[1]))) == about
