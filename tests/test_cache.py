import errno
import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from counting import Counting, drawn
from fedeas import FedEAS, InputError, LabelCounts, Plan, Uniform
from fedeas.cache import Cache, client_samples, fill, spent, verify
from fedeas.cache import shard as shard_module
from fedeas.cache.shard import SUFFIX, Segment, Shard
from fedeas.cache.store import missing_segments
from fedeas.files import read_json, write_json
from fedeas.locks import locked

TESTS = Path(__file__).parent
SOURCE = Path(shard_module.__file__).parents[2]  # of the fedeas that is tested
COUNTS = LabelCounts(
    [[30, 0, 2], [0, 9, 0], [5, 5, 5], [0, 0, 40]], clients=["a/b", "..", "c", "d e"]
)


def contents(folder: Path) -> dict[str, bytes]:
    """Every file of a cache, but the lock and what its images took to make."""
    apart = ("lock", spent.FILE)
    files = (path for path in folder.rglob("*") if path.is_file() and path.name not in apart)
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def filled(base: Path, plan: Plan, batch: int = 7, log: Path | None = None) -> tuple[Cache, int]:
    generator = Counting(log=str(log or ""))
    cache = Cache(base, generator.fingerprint, plan.counts_hash)
    return cache, fill(plan, generator, cache, batch).generated


def test_a_filled_cache_gives_the_plan(tmp_path):
    plan = FedEAS(beta=9).plan(COUNTS)
    cache, generated = filled(tmp_path, plan)
    assert generated == plan.total > 0
    for name, wanted in zip(plan.client_names, plan.samples, strict=True):
        images, labels = cache.client(name).samples(wanted.tolist())
        np.testing.assert_array_equal(np.bincount(labels, minlength=3), wanted)
        assert len(images) == wanted.sum()
    assert list(verify(cache.folder)) == []
    assert filled(tmp_path, plan)[1] == 0


def test_a_sample_is_the_same_whatever_the_policy_the_batch_and_the_order(tmp_path):
    small, large = FedEAS(beta=8).plan(COUNTS), FedEAS(beta=12).plan(COUNTS)
    one, _ = filled(tmp_path / "one", large, batch=5)
    two, _ = filled(tmp_path / "two", small, batch=11)
    for name, wanted in zip(small.client_names, small.samples.tolist(), strict=True):
        a, _ = one.client(name).samples(wanted)
        b, _ = two.client(name).samples(wanted)
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


def test_another_generator_seed_or_data_is_another_cache(tmp_path):
    plan = FedEAS(beta=8).plan(COUNTS)
    folders = {
        Cache(tmp_path, generator, data, seed).folder
        for generator in ("one", "two")
        for data in ("x", "y")
        for seed in (0, 1)
    }
    assert len(folders) == 8
    with pytest.raises(InputError, match="another generator"):
        fill(plan, Counting(), Cache(tmp_path, "other", "x"))


def test_a_clients_images_are_generated_mended_and_never_anothers(tmp_path):
    cache = Cache(tmp_path, Counting().fingerprint, "data")
    first, labels = client_samples("a", [3, 0, 4], Counting(), cache)
    assert labels.tolist() == [0] * 3 + [2] * 4
    (shard,) = cache.client("a").folder.glob(f"*{SUFFIX}")
    shard.unlink()
    again, _ = client_samples("a", [3, 0, 4], Counting(), cache)
    np.testing.assert_array_equal(first, again)
    other = Cache(tmp_path, Counting().fingerprint, "other")
    cache.folder.rename(other.folder)  # whole, so nothing is missing
    with pytest.raises(InputError, match="holds samples of another data"):
        client_samples("a", [3, 0, 4], Counting(), other)


def test_a_shard_is_hashed_once_a_process_and_again_when_it_changes(tmp_path, monkeypatch):
    cache = Cache(tmp_path, Counting().fingerprint, "data")
    for client in ("a", "b"):
        client_samples(client, [3, 0, 4], Counting(), cache, 2)
    shards = sorted(cache.clients_folder.glob(f"*/*{SUFFIX}"))
    for path in shards:
        os.utime(path, ns=(0, 0))  # not written just now: such files are hashed every time
    hashed = []
    digest = shard_module._digest
    monkeypatch.setattr(shard_module, "_digest", lambda data: hashed.append(data) or digest(data))
    for _ in range(3):  # rounds
        for client in ("a", "b"):
            cache.client(client).samples([3, 0, 4])
    assert len(hashed) == len(shards) == 8
    os.utime(shards[0], ns=(1, 1))
    cache.client("a").samples([3, 0, 4])
    assert hashed[8:] == [shards[0].read_bytes()]
    # What is not wanted is not read.
    for path in shards:
        path.chmod(0o600)
    cache.client("a").samples([1, 0, 0])
    assert len(hashed) == 10


def test_images_of_several_sizes_are_refused_with_a_way_out(tmp_path):
    cache = Cache(tmp_path, Counting().fingerprint, "data")
    own = cache.client("a")
    shards = [
        own.store([Segment(label, 0, 2)], np.zeros((2, side, side, 1), np.uint8))
        for label, side in ((0, 4), (1, 5))
    ]
    own.list_shards(shards)
    with pytest.raises(InputError, match=r"several shapes.*delete that folder"):
        own.samples([2, 2])


DAMAGED = """
import os, sys
from pathlib import Path
from counting import Counting
from fedeas import InputError
from fedeas.cache import Cache, client_samples

def use(base):
    cache = Cache(base, Counting().fingerprint, "data")
    return cache, len(client_samples("a", [3, 0, 4], Counting(), cache)[0])

use(Path(sys.argv[1], "first"))  # imports all that it takes, while it may still read them
base = Path(sys.argv[2])
if os.geteuid() == 0:  # root is refused nothing
    os.chown(base, 65534, 65534)
    os.setuid(65534)
cache, _ = use(base)
folder = cache.client("a").folder
for path in (cache.folder, cache.clients_folder, folder):
    (path / "lock").unlink(missing_ok=True)
    path.chmod(0o500)
print(use(base)[1])
(shard,) = folder.glob("*.shard")
content = shard.read_bytes()
shard.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
try:
    use(base)
except InputError as error:
    print(str(error).replace(str(shard), "SHARD").replace(str(cache.folder), "CACHE"))
"""


def test_a_damaged_cache_that_cannot_be_mended_says_what_to_do(tmp_path):
    with tempfile.TemporaryDirectory() as base:  # pytest's own folders are root's alone
        done = subprocess.run(
            [sys.executable, "-c", DAMAGED, tmp_path, base],
            capture_output=True,
            text=True,
            env=os.environ | {"PYTHONPATH": f"{SOURCE}{os.pathsep}{TESTS}"},
        )
    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        "7",  # as long as it is whole, it is read
        "SHARD is damaged, and CACHE cannot be written to: Permission denied; "
        "make it writable, or choose another folder of caches",
    ]


def test_what_the_system_refuses_the_generator_is_not_blamed_on_the_cache(tmp_path):
    class Unreadable(Counting):
        def sample(self, labels, seeds):
            raise PermissionError(errno.EACCES, "Permission denied", "/models/x")

    cache = Cache(tmp_path, Counting().fingerprint, "data")
    with pytest.raises(PermissionError, match="/models/x"):
        client_samples("a", [1], Unreadable(), cache)


def test_the_cache_of_a_client_is_known_by_its_classes(tmp_path):
    """Always by the same hash: images of deployed sites outlive a new version."""
    names = Cache.of_client(tmp_path, "g", ("cat", "dog"), 3)
    digest = hashlib.sha256(b'["cat", "dog"]').hexdigest()
    assert names.about == {"format": "cache/1", "generator": "g", "data": digest, "seed": 3}
    assert Cache.of_client(tmp_path, "g", ["cat", "dog"], 3).folder == names.folder
    others = [("dog", "cat"), 2, ("cat", "dog", "bird")]
    assert len({Cache.of_client(tmp_path, "g", c, 3).folder for c in others} | {names.folder}) == 4


class Paused(Counting):
    """Waits in its first batch until it is told to go on."""

    def __init__(self) -> None:
        super().__init__()
        self.reached, self.go_on = threading.Event(), threading.Event()

    def sample(self, labels, seeds):
        self.reached.set()
        assert self.go_on.wait(60)
        return super().sample(labels, seeds)


def test_clients_fill_side_by_side_and_the_whole_cache_waits_for_them(tmp_path, fedeas):
    plan = Uniform(total=24).plan(COUNTS)
    cache = Cache(tmp_path, Counting().fingerprint, plan.counts_hash)
    other = Cache(tmp_path, Counting().fingerprint, "other")
    client_samples("c", [1, 0, 0], Counting(), other)
    paused = Paused()
    with ThreadPoolExecutor(3) as threads:
        first = threads.submit(client_samples, "c", [2, 0, 0], paused, cache)
        assert paused.reached.wait(60)
        same = threads.submit(client_samples, "c", [2, 0, 0], Counting(), cache)
        # Another client is not kept by those two.
        assert len(client_samples("d e", [0, 3, 0], Counting(), cache)[0]) == 3
        busy = fedeas("cache", "prune", tmp_path, "--keep", other.folder.name, "--yes")
        assert busy.code == 2
        assert "is being filled" in busy.err
        waits = threading.Event()
        whole = threads.submit(fill, plan, Counting(), cache, 7, None, waits.set)
        assert waits.wait(60)
        assert not first.done()
        assert not same.done()
        assert not whole.done()
        paused.go_on.set()
        np.testing.assert_array_equal(first.result(60)[0], same.result(60)[0])
        assert whole.result(60).generated > 0
    assert list(verify(cache.folder)) == []


def test_prune_does_not_follow_a_link(tmp_path, fedeas):
    plan = FedEAS(beta=8).plan(COUNTS)
    cache, _ = filled(tmp_path / "elsewhere", plan)
    kept, _ = filled(tmp_path / "base", plan)
    link = tmp_path / "base" / ("0" * 16)
    link.symlink_to(cache.folder)
    pruned = fedeas("cache", "prune", tmp_path / "base", "--keep", kept.folder.name, "--yes")
    assert pruned.code == 2
    assert "is a link" in pruned.err
    assert list(verify(cache.folder)) == []


def start_fill(folder: Path, plan: Path, delay: float) -> subprocess.Popen:
    """Start `fedeas fill` as a process of its own."""
    spec = f"counting:Counting(log={folder / 'log'}, delay={delay})"
    command = ["fill", plan, "--generator", spec, "--cache", folder / "cache", "--batch", "7"]
    return subprocess.Popen(
        [sys.executable, "-W", "ignore", "-m", "fedeas", *command],
        env={"PYTHONPATH": f"{SOURCE}{os.pathsep}{TESTS}", "PATH": "/usr/bin:/bin"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def check_killed(folder: Path, kills: int, plan: Plan, straight: Cache) -> None:
    """The cache is that of a fill that nobody stopped, and little was drawn twice."""
    (found,) = (folder / "cache").glob("*")
    assert contents(found) == contents(straight.folder)
    assert list(verify(found)) == []
    seeds = Counter(drawn(folder / "log"))
    assert len(seeds) == plan.total
    assert sum(seeds.values()) <= plan.total + 7 * kills


def test_killed_before_any_of_its_steps_it_ends_with_the_same_bytes(tmp_path):
    plan = Uniform(total=350).plan(COUNTS)
    plan.save(tmp_path / "plan.json")
    straight, _ = filled(tmp_path / "straight", plan)
    places = [tmp_path / name for name in ("plan.json", "cache", "log")]
    done = subprocess.run(
        [sys.executable, "-W", "ignore", TESTS / "killed_fill.py", *places, "50"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    *struck, end = done.stdout.split()
    assert end == "end"
    assert len(struck) == 50
    # Before drawing, writing a file, putting it in its place and tidying up, many times each.
    steps = Counter(struck)
    assert steps.keys() == {"sample", "open", "os.rename", "os.remove"}
    assert min(steps.values()) >= 8
    check_killed(tmp_path, 50, plan, straight)


@pytest.mark.parametrize("kills", [10, pytest.param(50, marks=pytest.mark.slow)])
def test_killed_from_outside_it_ends_with_the_same_bytes(tmp_path, kills):
    """The command itself, killed at a random moment of its second or a later batch."""
    plan = Uniform(total=35 * kills).plan(COUNTS)
    plan.save(tmp_path / "plan.json")
    straight, _ = filled(tmp_path / "straight", plan)
    chance = random.Random(0)
    for _ in range(kills):
        before = len(drawn(tmp_path / "log"))
        process = start_fill(tmp_path, tmp_path / "plan.json", delay=0.02)
        goal = before + 7 * chance.randint(1, 2)
        while len(drawn(tmp_path / "log")) < goal:  # it is past importing, and generates
            assert process.poll() is None, process.communicate()[0]
            time.sleep(0.001)
        time.sleep(chance.uniform(0, 0.02))
        process.send_signal(signal.SIGKILL)
        process.communicate()
        assert process.returncode == -signal.SIGKILL
        assert list((tmp_path / "cache").glob("*/journal.json"))  # so the fill was under way
    process = start_fill(tmp_path, tmp_path / "plan.json", delay=0)
    said = process.communicate()[0]
    assert process.returncode == 0, said
    check_killed(tmp_path, kills, plan, straight)


def flip(path: Path, at: int) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 0x10
    path.write_bytes(content)


def test_one_flipped_byte_in_any_file_is_found_and_mended(tmp_path):
    plan = FedEAS(beta=12).plan(COUNTS)
    cache, _ = filled(tmp_path / "good", plan)
    good = contents(cache.folder)
    chance = random.Random(1)
    for name, content in good.items():
        places = {0, len(content) - 1, *(chance.randrange(len(content)) for _ in range(6))}
        for at in places:
            base = tmp_path / "bad"
            shutil.copytree(tmp_path / "good", base)
            folder = base / cache.folder.name
            flip(folder / name, at)
            problems = list(verify(folder))
            assert problems, (name, at)
            assert any(problem.path == folder / name for problem in problems)
            _, generated = filled(base, plan)
            assert generated <= (14 if name.endswith(".shard") else 0)
            assert list(verify(folder)) == []
            mended = Cache.at(folder)
            for client, wanted in zip(plan.client_names, plan.samples.tolist(), strict=True):
                ours, theirs = (c.client(client).samples(wanted)[0] for c in (mended, cache))
                assert ours.shape == theirs.shape
                if ours.size:
                    np.testing.assert_array_equal(ours[:, 1:], theirs[:, 1:])
            shutil.rmtree(base)


def test_a_damaged_journal_is_found_and_replaced(tmp_path):
    plan = FedEAS(beta=12).plan(COUNTS)
    cache, _ = filled(tmp_path, FedEAS(beta=4).plan(COUNTS))
    write_json(cache.journal, {"key": ["x", 7], "requests": []})
    for at in range(0, cache.journal.stat().st_size, 9):
        flip(cache.journal, at)
        assert [problem.path for problem in verify(cache.folder)] == [cache.journal]
        flip(cache.journal, at)
    flip(cache.journal, 30)
    filled(tmp_path, plan)
    assert not cache.journal.exists()
    assert cache.client("c").missing(plan.samples[2].tolist()) == []


def test_lost_files_are_noticed_and_made_again(tmp_path):
    plan = FedEAS(beta=12).plan(COUNTS)
    cache, _ = filled(tmp_path, plan)
    before = contents(cache.folder)
    shard = next(cache.clients_folder.rglob("*.shard"))
    shard.unlink()
    assert [problem.what for problem in verify(cache.folder)] == ["is gone"]
    assert 0 < filled(tmp_path, plan)[1] <= 7
    next(cache.clients_folder.rglob("manifest.json")).unlink()
    assert filled(tmp_path, plan)[1] == 0  # rebuilt from the shards
    assert list(verify(cache.folder)) == []
    assert len(contents(cache.folder)) == len(before)


class Dies(Counting):
    """Stops in the middle, as if it were killed."""

    def __init__(self, after: int) -> None:
        super().__init__()
        self.left = after

    def sample(self, labels, seeds):
        self.left -= 1
        if self.left < 0:
            raise KeyboardInterrupt
        return super().sample(labels, seeds)


def test_peak_memory_does_not_grow_with_the_plan(tmp_path):
    code = (
        "import re, sys; from pathlib import Path; import numpy as np\n"
        "from fedeas import LabelCounts, Plan; from fedeas.cache import Cache, fill\n"
        "class Large:\n"
        "    fingerprint = 'large-1'\n"
        "    def sample(self, labels, seeds):\n"
        "        return np.zeros((len(labels), 64, 64, 3), np.uint8)\n"
        "each = int(sys.argv[2])\n"
        "counts = LabelCounts(np.full((20, 10), 5))\n"
        "plan = Plan.of(counts, np.full((20, 10), each), 'all')\n"
        "cache = Cache(sys.argv[1], Large.fingerprint, plan.counts_hash)\n"
        "assert fill(plan, Large(), cache, 64).generated == 200 * each\n"
        "print(re.search(r'VmHWM:\\s+(\\d+)', Path('/proc/self/status').read_text())[1])"
    )
    peaks = []
    for each in (2, 60):  # 5 MB and 147 MB of images
        command = [sys.executable, "-c", code, tmp_path / str(each), str(each)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        peaks.append(int(done.stdout))
    assert peaks[1] - peaks[0] < 20_000  # kB, of 142 MB more images


def test_many_shards_of_one_client_are_not_listed_again_and_again(tmp_path, monkeypatch):
    plan = Plan.of(LabelCounts([[1, 1], [1, 1]]), [[600, 0], [0, 10]], "all")
    written = []
    from fedeas.cache import store

    real = store.write_json
    monkeypatch.setattr(store, "write_json", lambda path, body: written.append(real(path, body)))
    filled(tmp_path, plan, batch=2)
    assert len(written) <= 4


def test_images_of_another_size_are_refused(tmp_path):
    plan = FedEAS(beta=9).plan(COUNTS)
    filled(tmp_path, FedEAS(beta=3).plan(COUNTS))

    class Larger(Counting):
        def sample(self, labels, seeds):
            return np.zeros((len(labels), 5, 5, 1), np.uint8)

    cache = Cache(tmp_path, Larger.fingerprint, plan.counts_hash)
    with pytest.raises(InputError, match="changed the shape"):
        fill(plan, Larger(), cache)


def test_a_cache_without_its_head_is_still_listed(tmp_path, fedeas):
    cache, _ = filled(tmp_path, FedEAS(beta=9).plan(COUNTS))
    other = Cache(tmp_path, "other", "data")
    fill(FedEAS(beta=9).plan(COUNTS), type("Other", (Counting,), {"fingerprint": "other"})(), other)
    (cache.folder / "cache.json").write_text("{}")
    listed = fedeas("cache", "list", tmp_path)
    assert listed.code == 0
    assert cache.folder.name in listed.out
    assert "other" in listed.out
    assert "damaged" in listed.err
    (cache.folder / "cache.json").unlink()
    assert cache.folder.name in fedeas("cache", "list", tmp_path).out
    assert fedeas("cache", "verify", tmp_path).code == 1
    removed = fedeas("cache", "prune", tmp_path, "--keep", other.folder.name, "--yes")
    assert removed.code == 0
    assert not cache.folder.exists()


def test_what_goes_missing_during_a_fill_is_made_too(tmp_path):
    small, large = FedEAS(beta=8).plan(COUNTS), FedEAS(beta=14).plan(COUNTS)
    cache, _ = filled(tmp_path, small)
    with pytest.raises(KeyboardInterrupt):
        fill(large, Dies(after=1), cache, 7)
    next(cache.clients_folder.rglob("*.shard")).unlink()
    fill(large, Counting(), cache, 7)
    for name, wanted in zip(large.client_names, large.samples.tolist(), strict=True):
        assert cache.client(name).missing(wanted) == []


def test_another_batch_size_takes_effect_after_a_stop(tmp_path):
    plan = Uniform(total=40).plan(COUNTS)
    cache = Cache(tmp_path, "counting-1", plan.counts_hash)
    with pytest.raises(KeyboardInterrupt):
        fill(plan, Dies(after=1), cache, 16)
    sizes = []

    class Sizes(Counting):
        def sample(self, labels, seeds):
            sizes.append(len(labels))
            return super().sample(labels, seeds)

    fill(plan, Sizes(), cache, 4)
    assert max(sizes) == 4
    assert sum(sizes) == 24


def test_a_generator_of_other_classes_is_refused(tmp_path):
    plan = FedEAS(beta=8).plan(LabelCounts(COUNTS.n, classes=["a", "b", "c"]))
    for classes in (("a", "b"), ("b", "a", "c")):
        generator = Counting()
        generator.classes = classes
        with pytest.raises(InputError, match="different classes"):
            fill(plan, generator, Cache(tmp_path, "counting-1", "data"))


def test_prune_leaves_what_is_not_ours_or_in_use(tmp_path, fedeas):
    plan = FedEAS(beta=8).plan(COUNTS)
    cache, _ = filled(tmp_path, plan)
    other = Cache(tmp_path, "counting-1", "other")
    fill(plan, Counting(), other)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "cache.json").write_text("{}")
    with locked(other.folder):
        busy = fedeas("cache", "prune", tmp_path, "--keep", cache.folder.name, "--yes")
    assert busy.code == 2
    assert "being filled" in busy.err
    assert fedeas("cache", "prune", tmp_path, "--keep", cache.folder.name, "--yes").code == 0
    assert not other.folder.exists()
    assert (tmp_path / "mine" / "cache.json").exists()
    assert cache.folder.exists()


def test_two_processes_at_once_end_with_one_correct_cache(tmp_path):
    plan = Uniform(total=200).plan(COUNTS)
    plan.save(tmp_path / "plan.json")
    straight, _ = filled(tmp_path / "straight", plan)
    processes = [start_fill(tmp_path, tmp_path / "plan.json", delay=0.03) for _ in range(2)]
    outputs = [process.communicate(timeout=60)[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    assert sum("waiting for it" in text for text in outputs) == 1
    assert sorted(drawn(tmp_path / "log")) == sorted(set(drawn(tmp_path / "log")))
    assert contents(next((tmp_path / "cache").glob("*"))) == contents(straight.folder)


segments = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 20), st.integers(0, 9)).map(
        lambda s: Segment(s[0], s[1], s[1] + s[2])
    ),
    max_size=6,
)


@given(segments, st.lists(st.integers(0, 25), min_size=3, max_size=3))
def test_what_is_missing_is_exactly_what_is_not_there(held, wanted):
    missing = missing_segments([Shard("x", tuple(held))], wanted)
    there = {(s.label, i) for s in held for i in range(s.start, s.stop)}
    found = [(s.label, i) for s in missing for i in range(s.start, s.stop)]
    assert sorted(found) == [
        (c, i) for c in range(3) for i in range(wanted[c]) if (c, i) not in there
    ]


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
    cache = Cache(tmp_path, "wrong", "data")
    with pytest.raises(InputError, match="something else than samples"):
        fill(plan, Wrong(images), cache, 7)
    assert not cache.clients_folder.exists()


class Rows:
    """Draws rows of a table: a label, and noise from the seed."""

    fingerprint = "rows-1"

    def sample(self, labels, seeds):
        noise = [np.random.default_rng(int(seed)).normal(size=3) for seed in seeds]
        return np.column_stack([labels, noise]).astype(np.float32)


def test_samples_of_any_shape_and_number_format_are_kept(tmp_path):
    cache = Cache(tmp_path, Rows.fingerprint, "data")
    first, labels = client_samples("a", [2, 0, 3], Rows(), cache, 2)
    assert (first.shape, first.dtype) == ((5, 4), np.float32)
    np.testing.assert_array_equal(first[:, 0], labels)
    again, _ = client_samples("a", [2, 0, 3], None, cache)  # nothing is generated
    np.testing.assert_array_equal(first, again)
    assert list(verify(cache.folder)) == []


def test_a_generator_that_draws_something_else_than_the_data_is_refused_at_once(tmp_path):
    cache = Cache(tmp_path, Rows.fingerprint, "data")
    real = np.zeros((3, 8, 8, 1), np.uint8)
    with pytest.raises(InputError, match=r"do not look like the data's; got '\(4,\) of float32'"):
        client_samples("a", [1, 0, 0], Rows(), cache, like=real)
    assert not list(cache.clients_folder.glob("*/*.shard"))


def test_a_shard_of_the_first_version_is_read(tmp_path):
    """It says no number format: images of bytes were all there was."""
    values = np.arange(2 * 4 * 4, dtype=np.uint8).reshape(2, 4, 4, 1)
    head = {"client": "a", "segments": [[0, 0, 2]], "shape": list(values.shape)}
    content = json.dumps(head).encode() + b"\n" + values.tobytes()
    path = tmp_path / f"{hashlib.sha256(content).hexdigest()}.shard"
    path.write_bytes(content)
    shard, found = shard_module.read_shard(path, "a")
    assert shard.segments == (Segment(0, 0, 2),)
    np.testing.assert_array_equal(found, values)


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


def test_commands(tmp_path, fedeas, monkeypatch):
    monkeypatch.syspath_prepend(str(TESTS))
    plan, cache = tmp_path / "plan.csv", tmp_path / "cache"
    FedEAS(beta=12).plan(COUNTS).save(plan)
    first = fedeas("fill", plan, "--generator", "counting:Counting", "--cache", cache)
    assert first.code == 0
    assert "0 already cached" in first.out
    again = fedeas("fill", plan, "--generator", "counting:Counting", "--cache", cache, "--json")
    assert '"generated": 0' in again.out
    assert fedeas("cache", "verify", cache).code == 0
    assert "counting-1" in fedeas("cache", "list", cache).out
    flip(next(cache.rglob("*.shard")), 3)
    assert fedeas("cache", "verify", cache).code == 1
    assert (
        "repaired" in fedeas("fill", plan, "--generator", "counting:Counting", "--cache", cache).err
    )
    assert "would remove" in fedeas("cache", "prune", cache).out
    assert next(cache.rglob("quarantine")).exists()
    assert fedeas("cache", "prune", cache, "--yes").code == 0
    assert not list(cache.rglob("quarantine"))
    assert fedeas("cache", "verify", cache).code == 0
    for bad in (
        ["fill", plan, "--generator", "no-such", "--cache", cache],
        ["fill", plan, "--generator", "fractions:Fraction", "--cache", cache],
        ["fill", tmp_path / "absent.csv", "--generator", "counting:Counting"],
        ["cache", "list", tmp_path / "nothing"],
        ["cache", "prune", cache, "--keep", "other"],
    ):
        result = fedeas(*bad)
        assert result.code == 2
        assert len(result.err.splitlines()) == 1


def test_what_images_took_is_noted_once_and_survives_damage(tmp_path):
    small, large = FedEAS(beta=8).plan(COUNTS), FedEAS(beta=12).plan(COUNTS)
    cache, _ = filled(tmp_path, small)
    first = spent.spent(cache.folder)
    assert first.made == small.total
    assert first.seconds > 0
    filled(tmp_path, small)  # nothing is made, so nothing is noted
    assert spent.spent(cache.folder) == first
    filled(tmp_path, large)
    client_samples("e", [2, 0, 0], Counting(), cache)
    assert spent.spent(cache.folder).made == large.total + 2
    with (cache.folder / spent.FILE).open("a") as file:
        file.write('{"sha256": "0", "body": {"made": 9}}\n{"cut off')
    assert spent.spent(cache.folder).made == large.total + 2
    assert list(verify(cache.folder)) == []
    assert spent.spent(tmp_path / "nowhere").made == 0
