"""Fills, compactions and hostile files that meet: what was found by attack, each kept."""

import json

import numpy as np
import pytest

from fedeas import InputError, LabelCounts, Uniform
from fedeas._internal.files import sealed, unsealed
from fedeas.cache import Cache, verify
from fedeas.cache import compact as compact_module
from fedeas.cache import store as store_module
from fedeas.cache.compact import compact
from fedeas.cache.fill import FillJob, fill
from fedeas.cache.markers import COMPACT, marked
from fedeas.cache.request import FOLDER as REQUESTS
from fedeas.cache.request import Request
from fedeas.cache.segments import Segments
from fedeas.cache.shards import ENTRIES, DamagedError
from fedeas.cache.storage import LocalStorage
from fedeas.cache.stored import stored_samples
from helpers.cache_contents import rows_of, shards
from helpers.noted_generators import Counting

COUNTS = LabelCounts([[30, 0, 2], [5, 5, 5], [0, 0, 40]], clients=["a", "b", "c"])
PLAN = Uniform(total=60).plan(COUNTS)


def fill_of(base, wanted, size=4, generator=None) -> int:
    generator = generator or Counting()
    return FillJob(Cache(base, generator, 3), generator, size, wanted).run().generated


def test_the_temporary_file_of_another_fill_is_left_alone(tmp_path, monkeypatch):
    """It lies beside the entries, under a name that begins with a dot, until it is renamed."""
    fill_of(tmp_path, {"b": [2, 0, 0]})
    folder = Cache(tmp_path, Counting(), 3).folder
    own = folder / ENTRIES / f".12345678.{'0' * 64}.json"
    own.write_text("half of an entry")
    with marked(LocalStorage(str(folder)), "fill"):
        fill_of(tmp_path, {"a": [3, 0, 0]})
        assert own.exists()
    fill_of(tmp_path, {"a": [4, 0, 0]})
    assert not own.exists()  # its writer is gone


def test_nothing_is_compacted_beside_a_fill(tmp_path):
    fill(PLAN, Counting(), Cache(tmp_path, Counting(), 3), 7)
    cache = Cache(tmp_path, Counting(), 3)
    with marked(cache.storage, "fill"), pytest.raises(InputError, match="is being filled"):
        compact(cache)


def test_a_fill_that_ends_waits_for_a_compaction(tmp_path, monkeypatch):
    """Otherwise each drops what the other has kept: samples were lost without a word."""
    for name in "abc":
        fill_of(tmp_path, {name: [4, 0, 0]})
    good = rows_of(Cache(tmp_path, Counting(), 3))
    written, waits = [], []
    write = compact_module.write_shard

    def write_and_fill(*arguments):
        entry = write(*arguments)
        written.append(entry)
        with pytest.raises(RuntimeError, match="waits"):  # old and new shards are both there
            fill_of(tmp_path, {"a": [4, 0, 0], "b": [4, 0, 0]})
        return entry

    def sleep(_):
        waits.append(1)
        raise RuntimeError("waits")

    monkeypatch.setattr(compact_module, "write_shard", write_and_fill)
    monkeypatch.setattr("fedeas.cache.markers.time.sleep", sleep)
    compact(Cache(tmp_path, Counting(), 3))
    assert len(written) == len(waits) == 1
    assert rows_of(Cache(tmp_path, Counting(), 3)) == good


def test_a_reader_beside_a_compaction_finds_the_samples(tmp_path, monkeypatch):
    for name in "ab":
        fill_of(tmp_path, {name: [4, 0, 0]})
    cache = Cache(tmp_path, Counting(), 3)
    expected, _ = cache.samples("a", [4, 0, 0])
    read = store_module.read_shard

    def compact_first(*arguments):
        monkeypatch.setattr(store_module, "read_shard", read)
        compact(Cache(tmp_path, Counting(), 3))
        return read(*arguments)

    monkeypatch.setattr(store_module, "read_shard", compact_first)
    np.testing.assert_array_equal(
        Cache(tmp_path, Counting(), 3).samples("a", [4, 0, 0])[0], expected
    )


class Small(Counting):
    """Has no memory for more than so many samples at once."""

    def sample(self, labels, seeds):
        if len(labels) > 8:
            raise MemoryError("out of memory")
        return super().sample(labels, seeds)


def test_a_batch_that_did_not_fit_into_memory_binds_nobody(tmp_path):
    with pytest.raises(MemoryError):
        fill_of(tmp_path, {"a": [30, 0, 0]}, 16, Small())
    assert fill_of(tmp_path, {"a": [30, 0, 0]}, 4, Small()) == 30


def test_a_copied_cache_with_other_samples_decides_nothing_for_the_honest_one(tmp_path):
    """Shards of the same names, entries that fit them: each is decoded for itself."""
    fill_of(tmp_path / "one", {"a": [4, 0, 0]})
    fill_of(tmp_path / "two", {"a": [4, 0, 0]}, 3)  # in other batches: other bytes
    one, two = (Cache(tmp_path / name, Counting(), 3) for name in ("one", "two"))
    (entry,), (other,) = one.entries(), two.entries()
    evil = one.folder / other.file
    evil.write_bytes((two.folder / other.file).read_bytes())
    evil.replace(one.folder / entry.file)  # what the attacker sends: `one`, with its shard's name
    path = one.folder / ENTRIES / f"{entry.shard}.json"
    body = unsealed(path.read_text(), "") | {"blocks": [list(block) for block in other.blocks]}
    path.write_text(sealed(body))
    forged, _ = stored_samples(one.folder, "a", [4, 0, 0], 3)
    fill_of(tmp_path / "honest", {"a": [4, 0, 0]})
    honest = Cache(tmp_path / "honest", Counting(), 3)
    (held,) = honest.entries()
    assert held.shard == entry.shard
    samples, _ = stored_samples(honest.folder, "a", [4, 0, 0], 3)
    assert not (samples == forged).all()
    np.testing.assert_array_equal(samples, honest.samples("a", [4, 0, 0])[0])


@pytest.mark.parametrize("shape", [(4, 4), (6,), (4, 4, 2), (4, 4, 4)])
def test_png_is_refused_for_what_it_does_not_hold(tmp_path, shape):
    class Odd(Counting):
        def draw(self, labels, seeds):
            return np.zeros((len(labels), *shape), np.uint8)

    cache = Cache(tmp_path, Odd(), 3)
    with pytest.raises(InputError, match="PNG is for images"):
        fill(PLAN, Odd(), cache, 7, encoding="png")
    assert fill(PLAN, Odd(), cache, 7).generated == PLAN.total


def test_numbers_that_cannot_be_kept_are_refused(tmp_path):
    class Long(Counting):
        def draw(self, labels, seeds):
            return np.zeros((len(labels), 3), np.longdouble)

    with pytest.raises(InputError, match="cannot be kept"):
        fill(PLAN, Long(), Cache(tmp_path, Long(), 3), 7)
    assert fill(PLAN, Counting(), Cache(tmp_path, Counting(), 3), 7).generated == PLAN.total


REQUESTED = {
    "a client without a name": Segments.of(("a",), [1], [0], [0], [3]),
    "a negative client": Segments.of(("a",), [-1], [0], [0], [3]),
    "a negative class": Segments.of(("a",), [0], [-1], [0], [3]),
    "an empty segment": Segments.of(("a",), [0], [0], [3], [3]),
    "a sample twice": Segments.of(("a",), [0, 0], [0, 0], [0, 1], [3, 3]),
    "a class beyond all": Segments.of(("a",), [0], [2**53], [0], [3]),
    "too many samples": Segments.of(("a",), [0], [0], [0], [2**50]),
}


@pytest.mark.parametrize("name", REQUESTED)
def test_hostile_requests_are_passed_over(tmp_path, name):
    storage = Cache(tmp_path, Counting(), 3).storage
    Request(REQUESTED[name], 2**18, 1).save(storage)
    assert len(storage.names(REQUESTS)) == 1
    assert fill_of(tmp_path, {"a": [6, 0, 0]}) == 6


def test_a_forged_class_hides_no_samples_of_others(tmp_path):
    """Keys of clients and classes once wrapped around 64 bits."""
    fill_of(tmp_path, {"a": [2, 0, 0]})
    folder = Cache(tmp_path, Counting(), 3).folder
    (path,) = (folder / ENTRIES).iterdir()
    path.write_text(sealed(unsealed(path.read_text(), "") | {"labels": [2**53 - 2]}))
    wanted = {f"c{k}": [3, 0, 0] for k in range(2100)}
    assert fill_of(tmp_path, wanted, 64) == 6300
    assert len(Cache(tmp_path, Counting(), 3).missing("c2099", [3, 0, 0])) == 0


@pytest.mark.parametrize("content", ['{"host": 1}', "[" * 100_000, "1e400", "\xff"])
def test_a_hostile_marker_stops_nobody(tmp_path, content):
    fill_of(tmp_path, {"a": [2, 0, 0]})
    folder = Cache(tmp_path, Counting(), 3).folder / ".fedeas" / "filling"
    (folder / "fill-0").write_text(content, encoding="latin-1")
    about = {"host": __import__("platform").node(), "process": float("1e23"), "since": 0}
    (folder / "fill-1").write_text(json.dumps(about))
    assert fill_of(tmp_path, {"a": [3, 0, 0]}) == 1


def test_files_of_others_beside_entries_are_passed_over(tmp_path):
    """As programs that synchronise folders leave them."""
    fill_of(tmp_path, {"a": [2, 0, 0]})
    folder = Cache(tmp_path, Counting(), 3).folder
    (path,) = (folder / ENTRIES).iterdir()
    (path.parent / f"{path.stem} (1).json").write_text("{}")
    (folder / REQUESTS / "notes (1)").write_text("{}")
    assert fill_of(tmp_path, {"a": [3, 0, 0]}) == 1
    assert list(verify(Cache(tmp_path, Counting(), 3).storage)) == []


def test_huge_sparse_files_are_not_read_whole(tmp_path):
    fill_of(tmp_path, {"a": [2, 0, 0]})
    cache = Cache(tmp_path, Counting(), 3)
    (shard,) = shards(cache.folder)
    (entry,) = (cache.folder / ENTRIES).iterdir()
    for path in (shard, entry):
        before = path.read_bytes()
        with path.open("r+b") as file:
            file.truncate(40 << 30)
        with pytest.raises(InputError):
            list(verify(cache.storage)) or Cache(tmp_path, Counting(), 3).entries()
            raise DamagedError(cache.storage, path.name)  # named by verify
        path.write_bytes(before)


def test_two_compactions_do_not_meet(tmp_path):
    fill_of(tmp_path, {"a": [2, 0, 0]})
    cache = Cache(tmp_path, Counting(), 3)
    with marked(cache.storage, COMPACT), pytest.raises(InputError, match="compacted"):
        compact(cache)
