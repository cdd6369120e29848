"""A cache of generated samples: each generated once, the same for everybody, never another's."""

import errno
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from fedeas import EqualReduction, FedEAS, InputError, LabelCounts, Plan, Uniform, augment
from fedeas._internal.files import read_json, write_json
from fedeas.cache import Cache, fill_by_client, verify
from fedeas.cache.fill import client_samples, fill
from fedeas.cache.store import work
from fedeas.generators import check_classes
from helpers.cache_contents import flip, flip_samples, rows_of, samples_of, shards
from helpers.limited_process import attempt
from helpers.noted_generators import KINDS, Counting, drawn

COUNTING = "helpers.noted_generators:Counting"
COUNTS = LabelCounts(
    [[30, 0, 2], [0, 9, 0], [5, 5, 5], [0, 0, 40]], clients=["a/b", "..", "c", "d e"]
)
every_kind = pytest.mark.parametrize("kind", KINDS)


def filled(
    base: Path | str, plan: Plan, batch: int = 7, log: Path | None = None, kind: str = "images"
) -> tuple[Cache, int]:
    generator = KINDS[kind](log=str(log or ""))
    cache = Cache(base, generator, 3)
    return cache, fill(plan, generator, cache, batch).generated


@every_kind
def test_a_filled_cache_gives_the_plan(tmp_path, kind):
    plan = FedEAS(beta=9).plan(COUNTS)
    cache, generated = filled(tmp_path, plan, kind=kind)
    assert generated == plan.total > 0
    for name, wanted in zip(plan.client_names, plan.samples, strict=True):
        samples, labels = cache.samples(name, wanted.tolist())
        np.testing.assert_array_equal(np.bincount(labels, minlength=3), wanted)
        assert len(samples) == wanted.sum()
    assert list(verify(cache.storage)) == []
    assert filled(tmp_path, plan, kind=kind)[1] == 0
    assert not list(cache.folder.glob(".fedeas/filling/*"))  # no fill is under way


def test_every_row_says_what_it_is(tmp_path):
    plan = FedEAS(beta=9).plan(COUNTS)
    cache, _ = filled(tmp_path, plan)
    expected = {
        (name, label, index)
        for name, row in zip(plan.client_names, plan.samples.tolist(), strict=True)
        for label, number in enumerate(row)
        for index in range(number)
    }
    rows = rows_of(cache)
    assert [row[:3] for row in rows] == sorted(expected)
    assert len({row[3] for row in rows}) == len(rows)  # a seed each


def test_a_sample_is_the_same_whatever_the_policy_the_batch_and_the_order(tmp_path):
    small, large = FedEAS(beta=8).plan(COUNTS), FedEAS(beta=12).plan(COUNTS)
    one, _ = filled(tmp_path / "one", large, batch=5)
    two, _ = filled(tmp_path / "two", small, batch=11)
    for name, wanted in zip(small.client_names, small.samples.tolist(), strict=True):
        a, _ = one.samples(name, wanted)
        b, _ = two.samples(name, wanted)
        assert len(a) == len(b) == sum(wanted)
        np.testing.assert_array_equal(a[:, 1:], b[:, 1:])  # the first row tells the batch


def test_a_larger_plan_generates_exactly_the_difference(tmp_path):
    log = tmp_path / "log"
    small, large = FedEAS(beta=8).plan(COUNTS), FedEAS(beta=12).plan(COUNTS)
    assert filled(tmp_path, small, log=log)[1] == small.total
    assert filled(tmp_path, large, log=log)[1] == large.total - small.total
    other = Uniform(total=large.total).plan(COUNTS)
    overlap = np.minimum(large.samples, other.samples).sum()
    assert filled(tmp_path, other, log=log)[1] == other.total - overlap
    assert max(Counter(drawn(log)).values()) == 1


class Other(Counting):
    fingerprint = "other"


def test_another_generator_seed_or_number_of_classes_is_another_cache(tmp_path):
    plan = FedEAS(beta=8).plan(COUNTS)
    folders = {
        Cache(tmp_path, generator(), classes, seed).folder
        for generator in (Counting, Other)
        for classes in (2, 3)
        for seed in (0, 1)
    }
    assert len(folders) == 8
    with pytest.raises(InputError, match="another generator"):
        fill(plan, Counting(), Cache(tmp_path, Other(), 3))


def test_a_clients_samples_are_generated_and_never_anothers(tmp_path):
    cache = Cache(tmp_path, Counting(), 3)
    _, labels = client_samples("a", [3, 0, 4], Counting(), cache)
    assert labels.tolist() == [0] * 3 + [2] * 4
    other = Cache(tmp_path, Counting(), 3, seed=1)
    client_samples("b", [1, 0, 0], Counting(), other)
    other.folder.rename(tmp_path / "away")
    cache.folder.rename(other.folder)  # whole, so nothing is missing
    with pytest.raises(InputError, match="holds samples of another seed"):
        client_samples("a", [3, 0, 4], Counting(), other)


def test_a_client_fills_a_part_of_its_own_whose_cost_does_not_grow_with_others(tmp_path):
    cache = Cache(tmp_path, Counting(), 3)
    for number in range(5):
        client_samples(f"client {number}", [2, 0, 1], Counting(), cache)
    assert cache.entries() == []
    assert len(list((cache.folder / "clients").iterdir())) == 5
    part = cache.of_client("client 3")
    assert [entry.segments.names for entry in part.entries()] == [("client 3",)]
    # What was filled for everybody is not generated again.
    plan = Plan.of(LabelCounts([[1, 1, 1]], ["client 9"]), [[4, 0, 4]], "x")
    fill(plan, Counting(), cache)
    log = tmp_path / "log"
    client_samples("client 9", [4, 0, 5], Counting(str(log)), cache)
    assert len(drawn(log)) == 1


def test_a_clients_samples_are_decoded_once(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDEAS_STORE", str(tmp_path / "store"))
    cache = Cache(tmp_path / "cache", Counting(), 3)
    first, _ = client_samples("a", [3, 0, 4], Counting(), cache)
    monkeypatch.setattr(Cache, "_read", lambda *_: pytest.fail("read again"))
    again, _ = client_samples("a", [3, 0, 4], Counting(), cache)
    np.testing.assert_array_equal(first, again)
    (path,) = (tmp_path / "store" / "decoded").iterdir()
    assert path.parent.stat().st_mode & 0o077 == 0
    again[:] = 0  # a copy of one's own
    np.testing.assert_array_equal(client_samples("a", [3, 0, 4], Counting(), cache)[0], first)


def test_each_client_under_a_place_of_its_own(tmp_path):
    plan = FedEAS(beta=9).plan(COUNTS)
    together, _ = filled(tmp_path / "together", plan)
    cache = Cache(tmp_path / "apart", Counting(), 3)
    done = fill_by_client(plan, Counting(), cache)
    assert done.generated == plan.total
    for name, row in zip(plan.client_names, plan.samples.tolist(), strict=True):
        entries = cache.of_client(name).entries()
        assert {each for entry in entries for each in entry.segments.names} <= {name}
        a, b = (c.samples(name, row)[0] for c in (cache, together))
        np.testing.assert_array_equal(a[:, 1:], b[:, 1:])
    assert fill_by_client(plan, Counting(), cache).generated == 0


DAMAGED = """
import os, sys
from pathlib import Path
from helpers.cache_contents import flip_samples
from helpers.noted_generators import Counting
from fedeas import InputError
from fedeas.cache import Cache
from fedeas.cache.fill import client_samples

def use(base):
    cache = Cache(base, Counting(), 3)
    return cache, len(client_samples("a", [3, 0, 4], Counting(), cache)[0])

use(Path(sys.argv[1], "first"))  # imports all that it takes, while it may still read them
base = Path(sys.argv[2])
if os.geteuid() == 0:  # root is refused nothing
    os.chown(base, 65534, 65534)
    os.setuid(65534)
os.environ["FEDEAS_STORE"] = str(base / "store")
cache, _ = use(base)
for path in [cache.folder, *cache.folder.rglob("*")]:
    if path.is_dir():
        path.chmod(0o500)
os.environ["FEDEAS_STORE"] = str(base / "other")
print(use(base)[1])
flip_samples(cache.folder)
os.environ["FEDEAS_STORE"] = str(base / "third")
try:
    use(base)
except (InputError, OSError) as error:
    print(type(error).__name__, str(error).replace(str(cache.folder), "CACHE"))
"""


def test_a_damaged_cache_that_cannot_be_written_to_says_so(tmp_path):
    with tempfile.TemporaryDirectory() as base:  # pytest's own folders are root's alone
        done = subprocess.run(
            [sys.executable, "-c", DAMAGED, tmp_path, base],
            capture_output=True,
            text=True,
        )
    read, refused = done.stdout.splitlines()
    assert read == "7"  # as long as it is whole, it is read
    assert "Permission denied" in refused


def test_what_the_system_refuses_the_generator_is_not_blamed_on_the_cache(tmp_path):
    class Unreadable(Counting):
        def sample(self, labels, seeds):
            raise PermissionError(errno.EACCES, "Permission denied", "/models/x")

    cache = Cache(tmp_path, Counting(), 3)
    with pytest.raises(PermissionError, match="/models/x"):
        client_samples("a", [1], Unreadable(), cache)


def test_a_cache_is_known_by_the_generators_classes_or_by_how_many_there_are(tmp_path):
    """Always by the same hash: samples of deployed sites outlive a new version."""

    class Named(Counting):
        classes = ("cat", "T-shirt/top")

    named = Cache(tmp_path, Named(), 2, seed=3)
    digest = hashlib.sha256(b'["cat", "T-shirt/top"]').hexdigest()
    assert named.origin["classes"] == digest
    assert Cache(tmp_path, Named(), ["Cat", "T - shirt / top"], 3).folder == named.folder
    # Labels are numbers to a generator that names no classes.
    assert Cache(tmp_path, Counting(), ["cat", "dog"], 3).folder == (
        Cache(tmp_path, Counting(), 2, 3).folder
    )


def test_prune_does_not_follow_a_link(tmp_path, fedeas):
    plan = FedEAS(beta=8).plan(COUNTS)
    cache, _ = filled(tmp_path / "elsewhere", plan)
    kept, _ = filled(tmp_path / "base", plan)
    link = tmp_path / "base" / ("0" * 16)
    link.symlink_to(cache.folder)
    pruned = fedeas("cache", "prune", tmp_path / "base", "--keep", kept.folder.name, "--yes")
    assert pruned.code == 2
    assert "is a link" in pruned.err
    assert list(verify(cache.storage)) == []


def test_prune_leaves_what_is_not_ours(tmp_path, fedeas):
    plan = FedEAS(beta=8).plan(COUNTS)
    cache, _ = filled(tmp_path, plan)
    other = Cache(tmp_path, Counting(), 3, seed=1)
    fill(plan, Counting(), other)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "cache.json").write_text("{}")
    assert fedeas("cache", "prune", tmp_path, "--keep", cache.folder.name, "--yes").code == 0
    assert not other.folder.exists()
    assert (tmp_path / "mine" / "cache.json").exists()
    assert cache.folder.exists()


# What is damaged


@every_kind
def test_a_flipped_bit_is_found_named_and_generated_again(tmp_path, kind, fedeas):
    plan = FedEAS(beta=12).plan(COUNTS)
    cache, _ = filled(tmp_path, plan, kind=kind)
    good = rows_of(cache)
    shard = flip_samples(cache.folder)
    (problem,) = verify(cache.storage)
    assert str(shard) in problem
    assert fedeas("cache", "list", tmp_path, "--check").code == 1
    assert fedeas("cache", "list", tmp_path, "--repair").code == 1
    assert not shard.exists()
    assert filled(tmp_path, plan, kind=kind)[1] > 0
    assert rows_of(cache) == good  # with the batches that each was generated in before
    assert fedeas("cache", "list", tmp_path, "--check").code == 0


def test_a_client_is_never_given_changed_samples(tmp_path, monkeypatch):
    plan = FedEAS(beta=12).plan(COUNTS)
    cache, _ = filled(tmp_path / "cache", plan)
    wanted = plan.samples[2].tolist()
    good, _ = cache.samples("c", wanted)
    flip_samples(cache.folder)
    monkeypatch.setenv("FEDEAS_STORE", str(tmp_path / "store"))
    again, _ = client_samples("c", wanted, Counting(), cache)
    np.testing.assert_array_equal(again, good)


@pytest.mark.parametrize("where", ["shard", "entry", "about", "request"])
def test_what_is_cut_off_is_named_and_made_again(where, tmp_path):
    plan = FedEAS(beta=12).plan(COUNTS)
    cache, _ = filled(tmp_path, plan)
    good = rows_of(cache)
    patterns = {
        "shard": "*.parquet", "entry": ".fedeas/entries/*", "about": ".fedeas/about.json",
        "request": ".fedeas/requests/*",
    }  # fmt: skip
    (path,) = cache.folder.glob(patterns[where])
    path.write_bytes(path.read_bytes()[:-9])
    problems = list(verify(cache.storage))
    if where == "request":  # what is there is whole; only the batches of what goes missing are lost
        assert problems == []
        assert filled(tmp_path, plan)[1] == 0
        return
    assert any(path.name in problem for problem in problems)
    if where == "about":
        with pytest.raises(InputError, match=r"about\.json is damaged"):
            filled(tmp_path, plan)
        path.unlink()
        assert filled(tmp_path, plan)[1] == 0
        return
    cache2 = Cache(tmp_path, Counting(), 3)
    list(verify(cache2.storage, repair=True))
    assert filled(tmp_path, plan)[1] == plan.total
    assert rows_of(Cache(tmp_path, Counting(), 3)) == good


def test_a_lost_shard_is_noticed_and_made_again(tmp_path):
    plan = FedEAS(beta=12).plan(COUNTS)
    cache, _ = filled(tmp_path, plan)
    before = rows_of(cache)
    (shard,) = shards(cache.folder)
    shard.unlink()
    (problem,) = verify(cache.storage)
    assert "it is gone" in problem
    done = fill(plan, Counting(), Cache(tmp_path, Counting(), 3), 7)
    assert done.generated == plan.total
    assert "it is gone" in done.mended[0]
    assert rows_of(Cache(tmp_path, Counting(), 3)) == before


def test_a_part_that_is_missing_is_generated_with_its_whole_batch(tmp_path):
    """As its batch was: the first pixel of this generator's images tells the batch."""
    plan = Uniform(total=60).plan(COUNTS)
    cache, _ = filled(tmp_path, plan, batch=16)
    good = samples_of(cache, plan)
    half = cache.entries()[0]
    log = tmp_path / "log"
    smaller = Plan.of(COUNTS, plan.samples * [[1], [0], [1], [1]], "x")
    half.drop()
    fill(smaller, Counting(), Cache(tmp_path, Counting(), 3), 5)  # another batch size
    fill(plan, Counting(str(log)), Cache(tmp_path, Counting(), 3), 64)
    assert samples_of(Cache(tmp_path, Counting(), 3), plan) == good


def test_peak_memory_does_not_grow_with_the_plan(tmp_path):
    code = (
        "import re, sys; from pathlib import Path; import numpy as np\n"
        "from fedeas import LabelCounts, Plan, fill; from fedeas.cache import Cache, writer\n"
        "writer.SHARD_BYTES = 4 << 20\n"
        "class Large:\n"
        "    fingerprint = 'large-1'\n"
        "    def sample(self, labels, seeds):\n"
        "        return np.zeros((len(labels), 64, 64, 3), np.uint8)\n"
        "each = int(sys.argv[2])\n"
        "counts = LabelCounts(np.full((20, 10), 5))\n"
        "plan = Plan.of(counts, np.full((20, 10), each), 'all')\n"
        "cache = Cache(sys.argv[1], Large(), 10)\n"
        "assert fill(plan, Large(), cache, 64).generated == 200 * each\n"
        "print(re.search(r'VmHWM:\\s+(\\d+)', Path('/proc/self/status').read_text())[1])"
    )
    peaks = []
    for each in (5, 60):  # 12 MB and 147 MB of images
        command = [sys.executable, "-c", code, tmp_path / str(each), str(each)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        peaks.append(int(done.stdout))
    assert peaks[1] - peaks[0] < 30_000  # kB, of 135 MB more images


def test_images_of_another_size_are_refused(tmp_path):
    filled(tmp_path, FedEAS(beta=3).plan(COUNTS))

    class Larger(Counting):
        def sample(self, labels, seeds):
            return np.zeros((len(labels), 5, 5, 1), np.uint8)

    cache = Cache(tmp_path, Larger(), 3)
    with pytest.raises(InputError, match="changed the shape"):
        fill(FedEAS(beta=9).plan(COUNTS), Larger(), cache)


def test_a_generator_of_other_classes_is_refused(tmp_path):
    plan = FedEAS(beta=8).plan(LabelCounts(COUNTS.n, classes=["a", "b", "c"]))
    for classes in (("a", "b"), ("b", "a", "c")):
        generator = Counting()
        generator.classes = classes
        with pytest.raises(InputError, match="different classes"):
            fill(plan, generator, Cache(tmp_path, Counting(), 3))
        with pytest.raises(InputError, match="different classes"):
            Cache(tmp_path, generator, ["a", "b", "c"])


@pytest.mark.parametrize(("classes", "data", "known"), [
    (3, "3 in the data", "10 (a, b, c, d, e, ...) in the generator"),
    (["x", "y"], "2 (x, y) in the data", "10 (a, b, c, d, e, ...) in"),
    ([*"abcdefg", "H.", "x", "j"], "10 (..., x, j) in the data", "10 (..., i, j) in"),
])  # fmt: skip
def test_of_both_lists_of_classes_those_that_differ_are_shown(classes, data, known):
    generator = Counting()
    generator.classes = tuple("abcdefghij")
    with pytest.raises(InputError) as refused:
        check_classes(classes, generator)
    assert data in str(refused.value) and known in str(refused.value)


class Wrong:
    fingerprint = "wrong"

    def __init__(self, images) -> None:
        self.images = images

    def sample(self, labels, seeds):
        return self.images


@pytest.mark.parametrize(
    "images",
    [
        None,
        np.zeros((1, 4, 4, 1), np.uint8),
        np.zeros(7, np.uint8),
        np.zeros((7, 4), object),
        np.zeros((7, 4), "U3"),
        np.zeros((7, 0), np.float32),
        [[0]],
    ],
)
def test_a_generator_that_returns_nonsense_is_refused_and_nothing_is_stored(images, tmp_path):
    plan = Uniform(total=7).plan(COUNTS)
    cache = Cache(tmp_path, Wrong(images), 3)
    with pytest.raises(InputError, match="something else than samples"):
        fill(plan, Wrong(images), cache, 7)
    assert shards(cache.folder) == []


class Rows:
    """Draws rows of a table: a label, and noise from the seed."""

    fingerprint = "rows-1"

    def sample(self, labels, seeds):
        noise = [np.random.default_rng(int(seed)).normal(size=3) for seed in seeds]
        return np.column_stack([labels, noise]).astype(np.float32)


def test_samples_of_any_shape_and_number_format_are_kept(tmp_path):
    cache = Cache(tmp_path, Rows(), 3)
    first, labels = client_samples("a", [2, 0, 3], Rows(), cache, 2)
    assert (first.shape, first.dtype) == ((5, 4), np.float32)
    np.testing.assert_array_equal(first[:, 0], labels)
    again, _ = client_samples("a", [2, 0, 3], None, cache)  # nothing is generated
    np.testing.assert_array_equal(first, again)
    assert list(verify(cache.storage)) == []


def test_a_generator_that_draws_something_else_than_the_data_is_refused_at_once(tmp_path):
    cache = Cache(tmp_path, Rows(), 3)
    real = np.zeros((3, 8, 8, 1), np.uint8)
    with pytest.raises(InputError, match=r"do not look like the data's; got '\(4,\) of float32"):
        client_samples("a", [1, 0, 0], Rows(), cache, like=real)
    assert shards(cache.folder) == []


def test_images_may_be_stored_as_png(tmp_path):
    plan = Uniform(total=40).plan(COUNTS)
    raw, _ = filled(tmp_path / "raw", plan)
    cache = Cache(tmp_path / "png", Counting(), 3)
    fill(plan, Counting(), cache, 7, encoding="png")
    assert samples_of(cache, plan) == samples_of(raw, plan)
    more = Uniform(total=50).plan(COUNTS)
    fill(more, Counting(), cache, 7)  # as it began
    assert cache.about().form.encoding == "png"
    samples_of(cache, more)


def test_json_with_a_hash_refuses_every_change(tmp_path):
    path = tmp_path / "x.json"
    write_json(path, {"a": [1, 2], "b": "text"})
    assert read_json(path) == {"a": [1, 2], "b": "text"}
    size = path.stat().st_size
    for at in range(size):
        flip(path, at)
        with pytest.raises(InputError, match="damaged"):
            read_json(path)
        flip(path, at)


# Commands


def test_commands(tmp_path, fedeas):
    plan, cache = tmp_path / "plan.json", tmp_path / "cache"
    FedEAS(beta=12).plan(COUNTS).save(plan)
    first = fedeas("fill", plan, "--generator", COUNTING, "--cache", cache)
    assert first.code == 0
    assert "0 already cached" in first.out
    again = fedeas("fill", plan, "--generator", COUNTING, "--cache", cache, "--json")
    assert json.loads(again.out)["generated"] == 0
    assert fedeas("cache", "list", cache, "--check").code == 0
    assert "counting-1" in fedeas("cache", "list", cache).out
    flip_samples(next(cache.iterdir()))
    assert fedeas("cache", "list", cache, "--repair").code == 1
    assert fedeas("fill", plan, "--generator", COUNTING, "--cache", cache).code == 0
    assert fedeas("cache", "list", cache, "--check").code == 0
    fedeas("fill", plan, "--generator", COUNTING, "--cache", cache, "--seed", "1")
    old, new = sorted(cache.iterdir())
    assert "would remove" in fedeas("cache", "prune", cache, "--keep", new.name).out
    assert fedeas("cache", "prune", cache, "--keep", new.name, "--yes").code == 0
    assert not old.exists()
    assert fedeas("cache", "list", cache, "--check").code == 0
    for bad in (
        ["fill", plan, "--generator", "no-such", "--cache", cache],
        ["fill", plan, "--generator", "fractions:Fraction", "--cache", cache],
        ["fill", tmp_path / "absent.csv", "--generator", COUNTING],
        ["fill", "--generator", COUNTING],
        ["cache", "list", tmp_path / "nothing"],
        ["cache", "prune", cache, "--keep", "other"],
    ):
        result = fedeas(*bad)
        assert result.code == 2, bad
        assert len(result.err.splitlines()) == 1


def test_a_client_fills_from_its_own_counts(tmp_path, fedeas):
    own = LabelCounts([[40, 3, 0]], ["north"], ["a", "b", "c"])
    own.save(tmp_path / "own.csv")
    typed = ["--counts", tmp_path / "own.csv", "--client", "north", "--reduction", 0.5]
    done = fedeas("fill", *typed, "--generator", COUNTING, "--cache", tmp_path / "c", "--json")
    assert done.code == 0, done.err
    wanted = EqualReduction().local([40, 3, 0], client="north")
    assert json.loads(done.out)["generated"] == wanted.sum() > 0
    more = augment(
        np.zeros((43, 4, 4, 1), np.uint8), labels=np.repeat([0, 1], [40, 3]),
        samples=json.loads(done.out)["cache"], reduction=0.5, client="north", classes=list("abc"),
    )  # fmt: skip
    assert (np.bincount(more[1], minlength=3) == np.array([40, 3, 0]) + wanted).all()


def test_compacting_leaves_the_same_samples_in_fewer_shards(tmp_path, fedeas):
    cache = None
    for total in (20, 40, 60, 80):
        plan = Uniform(total=total).plan(COUNTS)
        cache, _ = filled(tmp_path, plan)
    assert len(shards(cache.folder)) == 4
    before = rows_of(cache)
    assert "4 shards, now 1" in fedeas("cache", "compact", tmp_path).out
    assert len(shards(cache.folder)) == 1
    assert rows_of(Cache(tmp_path, Counting(), 3)) == before
    assert list(verify(cache.storage)) == []
    assert filled(tmp_path, plan)[1] == 0


def test_the_estimate_writes_what_it_generates(tmp_path, fedeas, monkeypatch):
    monkeypatch.setenv("FEDEAS_STORE", str(tmp_path / "store"))
    FedEAS(beta=12).plan(COUNTS).save(tmp_path / "plan.json")
    done = fedeas("fill", tmp_path / "plan.json", "--generator", COUNTING, "--dry-run", "--json")
    facts = json.loads(done.out)
    assert facts["seconds_per_sample"] > 0
    assert not (tmp_path / "store" / "samples").exists()


def test_what_samples_took_is_known(tmp_path):
    small, large = FedEAS(beta=8).plan(COUNTS), FedEAS(beta=12).plan(COUNTS)
    cache, _ = filled(tmp_path, small)
    first = work(cache)
    assert first.made == small.total
    assert first.seconds > 0
    filled(tmp_path, small)  # nothing is made
    assert work(cache) == first
    filled(tmp_path, large)
    client_samples("e", [2, 0, 0], Counting(), cache)
    assert work(cache).made == large.total + 2


def test_a_full_disk_is_one_line_and_the_next_fill_goes_on(tmp_path):
    plan = Uniform(total=700).plan(COUNTS)
    straight, _ = filled(tmp_path / "straight", plan)
    COUNTS.save(tmp_path / "counts.json")
    code = (
        "from fedeas import LabelCounts, Uniform, fill; from fedeas.cache import Cache, writer\n"
        "from helpers.noted_generators import Counting\n"
        "writer.SHARD_BYTES = 1_000\n"
        "cache = Cache(argument[0], Counting(), 3)\n"
        "counts = LabelCounts.load(argument[1])\n"
        "fill(Uniform(total=700).plan(counts), Counting(), cache, 7)"
    )
    for kilobytes in (1, 3):  # full at the request, or in a shard
        said = attempt(
            code, tmp_path / "cache", tmp_path / "counts.json", limit=f"write_at_most({kilobytes})"
        )
        assert said.startswith("FileAccessError cannot write"), said
        assert len(said.splitlines()) == 1
    cache, _ = filled(tmp_path / "cache", plan)
    assert samples_of(cache, plan) == samples_of(straight, plan)


def test_augment_finds_what_the_command_has_filled(tmp_path, monkeypatch, fedeas, caplog):
    """Both by their defaults alone; a cache that differs in its seed alone is named."""
    monkeypatch.setenv("FEDEAS_STORE", str(tmp_path / "store"))
    monkeypatch.chdir(tmp_path)
    labels = np.repeat([0, 1, 2], [30, 4, 0])
    counts = LabelCounts([np.bincount(labels, minlength=3)], ["north"], ["a", "b", "c"])
    plan = FedEAS(beta=8).plan(counts)
    plan.save(tmp_path / "plan.json")
    done = fedeas("fill", "plan.json", "--generator", COUNTING, "--json")
    assert json.loads(done.out)["generated"] == plan.total > 0
    assert Path(json.loads(done.out)["cache"]).parent == tmp_path / "store" / "samples"
    log = tmp_path / "drawn.txt"
    generator, images = Counting(str(log)), np.zeros((34, 4, 4, 1), np.uint8)

    def augmented(client: str | int = "north", **given: object):
        return augment(
            images, labels=labels, generator=generator, client=client, classes=["a", "b", "c"],
            beta=8,
            **given,
        )  # fmt: skip

    assert len(augmented()[0]) == 34 + plan.total
    assert not drawn(log)
    assert not caplog.records
    augmented(seed=0)
    assert len(drawn(log)) == plan.total
    assert "samples for seed 42" in caplog.text
    caplog.clear()
    augmented(client=0)  # whom the plan calls north
    assert "clients by name (north)" in caplog.text
    again = fedeas("fill", "plan.json", "--generator", COUNTING, "--seed", 7)
    assert "for seed 42" in again.err
    (leaf, *_) = (path for path in (tmp_path / "store" / "samples").iterdir()
                  if (path / ".fedeas" / "about.json").exists())  # fmt: skip
    with pytest.raises(InputError, match="folder above"):  # the folder that `fill` prints
        augmented(cache=leaf)


def test_nobody_else_can_look_into_a_cache(tmp_path):
    old = os.umask(0o000)
    try:
        cache, _ = filled(tmp_path / "base", FedEAS(beta=9).plan(COUNTS))
    finally:
        os.umask(old)
    for path in [cache.folder, *cache.folder.rglob("*")]:
        assert path.stat().st_mode & 0o077 == 0, path


def test_the_format_is_read_by_name_alone(tmp_path):
    """Names of files are hashes: no client's name is one."""
    cache, _ = filled(tmp_path, FedEAS(beta=9).plan(COUNTS))
    names = [path.name for path in cache.folder.rglob("*") if path.is_file()]
    assert all(re.fullmatch(r"[0-9a-f]{64}(\.parquet|\.json)?|about\.json", n) for n in names)
