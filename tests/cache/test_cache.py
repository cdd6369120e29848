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

from fedeas import FedEAS, InputError, LabelCounts, Plan, Uniform, augment
from fedeas._internal.files import locked, read_json, write_json
from fedeas.cache import Cache, verify
from fedeas.cache import database as database_module
from fedeas.cache.database import Segment, missing_segments
from fedeas.cache.fill import client_samples, fill
from fedeas.cache.store import work
from fedeas.generators import check_classes
from helpers.cache_contents import changing, contents, flip, flip_samples
from helpers.limited_process import attempt
from helpers.noted_generators import KINDS, Counting, drawn

HELPERS = Path(__file__).parents[1] / "helpers"
COUNTING = "helpers.noted_generators:Counting"
COUNTS = LabelCounts(
    [[30, 0, 2], [0, 9, 0], [5, 5, 5], [0, 0, 40]], clients=["a/b", "..", "c", "d e"]
)


# What is promised of a cache holds for samples of any kind.
every_kind = pytest.mark.parametrize("kind", KINDS)
rows_at_night = pytest.mark.parametrize(
    "kind", ["images", pytest.param("rows", marks=pytest.mark.slow)]
)


def filled(
    base: Path, plan: Plan, batch: int = 7, log: Path | None = None, kind: str = "images"
) -> tuple[Cache, int]:
    generator = KINDS[kind](log=str(log or ""))
    cache = Cache(base, generator, 3)
    return cache, fill(plan, generator, cache, batch).generated


def test_a_filled_cache_gives_the_plan(tmp_path):
    plan = FedEAS(beta=9).plan(COUNTS)
    cache, generated = filled(tmp_path, plan)
    assert generated == plan.total > 0
    for name, wanted in zip(plan.client_names, plan.samples, strict=True):
        images, labels = cache.samples(name, wanted.tolist())
        np.testing.assert_array_equal(np.bincount(labels, minlength=3), wanted)
        assert len(images) == wanted.sum()
    assert list(verify(cache.folder)) == []
    assert filled(tmp_path, plan)[1] == 0


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


def test_a_clients_images_are_generated_mended_and_never_anothers(tmp_path):
    cache = Cache(tmp_path, Counting(), 3)
    first, labels = client_samples("a", [3, 0, 4], Counting(), cache)
    assert labels.tolist() == [0] * 3 + [2] * 4
    cache.file.unlink()
    again, _ = client_samples("a", [3, 0, 4], Counting(), cache)
    np.testing.assert_array_equal(first, again)
    other = Cache(tmp_path, Counting(), 3, seed=1)
    cache.folder.rename(other.folder)  # whole, so nothing is missing
    with pytest.raises(InputError, match="holds samples of another seed"):
        client_samples("a", [3, 0, 4], Counting(), other)


def test_a_block_is_hashed_once_a_process_and_again_when_it_changes(tmp_path, monkeypatch):
    cache = Cache(tmp_path, Counting(), 3)
    for client in ("a", "b"):
        client_samples(client, [3, 0, 4], Counting(), cache, 2)
    os.utime(cache.file, ns=(0, 0))  # not written just now: such files are hashed every time
    hashed = []
    digest = database_module._digest
    monkeypatch.setattr(
        database_module, "_digest", lambda data: hashed.append(data) or digest(data)
    )
    for _ in range(3):  # rounds
        for client in ("a", "b"):
            cache.samples(client, [3, 0, 4])
    assert len(hashed) == 8  # 4 of each
    os.utime(cache.file, ns=(1, 1))
    cache.samples("a", [3, 0, 4])
    assert hashed[8:] == hashed[:4]
    # What is not wanted is not read.
    os.utime(cache.file, ns=(2, 2))
    cache.samples("a", [1, 0, 0])
    assert len(hashed) == 13


def test_images_of_several_sizes_are_refused_with_a_way_out(tmp_path):
    cache = Cache(tmp_path, Counting(), 3)
    cache.prepare()
    parts = [
        ("a", [Segment(label, 0, 2)], np.zeros((2, side, side, 1), np.uint8))
        for label, side in ((0, 4), (1, 5))
    ]
    with cache.open() as database:
        database.add(parts, 0.0)
    with pytest.raises(InputError, match=r"several shapes.*delete that folder"):
        cache.samples("a", [2, 2])


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
cache, _ = use(base)
own = cache.client_folder("a")
for path in (cache.folder, own.parent, own):
    (path / "lock").unlink(missing_ok=True)
    path.chmod(0o500)
print(use(base)[1])
flip_samples(cache.folder)
try:
    use(base)
except InputError as error:
    print(str(error).replace(str(cache.folder), "CACHE"))
"""


def test_a_damaged_cache_that_cannot_be_mended_says_what_to_do(tmp_path):
    with tempfile.TemporaryDirectory() as base:  # pytest's own folders are root's alone
        done = subprocess.run(
            [sys.executable, "-c", DAMAGED, tmp_path, base],
            capture_output=True,
            text=True,
        )
    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        "7",  # as long as it is whole, it is read
        "CACHE/samples.sqlite is damaged: samples of client 'a', and CACHE cannot be written to: "
        "Permission denied; "
        "make it writable, or choose another folder of caches",
    ]


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
    assert named.about["classes"] == digest
    assert Cache(tmp_path, Named(), ["Cat", "T - shirt / top"], 3).folder == named.folder
    # Labels are numbers to a generator that names no classes.
    assert Cache(tmp_path, Counting(), ["cat", "dog"], 3).folder == (
        Cache(tmp_path, Counting(), 2, 3).folder
    )


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
    cache = Cache(tmp_path, Counting(), 3)
    other = Cache(tmp_path, Counting(), 3, seed=1)
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


def start_fill(folder: Path, plan: Path, delay: float, kind: str = "images") -> subprocess.Popen:
    """Start `fedeas fill` as a process of its own."""
    spec = f"helpers.noted_generators:{KINDS[kind].__name__}(log={folder / 'log'}, delay={delay})"
    command = ["fill", plan, "--generator", spec, "--cache", folder / "cache"]
    command += ["--batch", "7"]
    return subprocess.Popen(
        [sys.executable, "-W", "ignore", "-m", "fedeas", *command],
        env={"PYTHONPATH": os.environ["PYTHONPATH"], "PATH": "/usr/bin:/bin"},
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


@pytest.mark.parametrize(
    ("kind", "kills"),
    [
        ("images", 16),
        pytest.param("rows", 16, marks=pytest.mark.slow),
        pytest.param("images", 50, marks=pytest.mark.slow),
    ],
)
def test_killed_before_any_of_its_steps_it_ends_with_the_same_bytes(tmp_path, kind, kills):
    plan = Uniform(total=6300).plan(COUNTS)
    plan.save(tmp_path / "plan.json")
    straight, _ = filled(tmp_path / "straight", plan, kind=kind)
    places = [tmp_path / name for name in ("plan.json", "cache", "log")]
    done = subprocess.run(
        [sys.executable, "-W", "ignore", HELPERS / "killed_fill.py", *places, kind, str(kills)],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    *struck, end = done.stdout.split()
    assert end == "end"
    assert len(struck) == kills
    # Before drawing and before any statement, many times each.
    steps = Counter(struck)
    assert steps.keys() == {"sample", "statement", "moment"}
    assert min(steps.values()) >= kills // 8
    check_killed(tmp_path, kills, plan, straight)


@pytest.mark.parametrize(
    ("kind", "kills"),
    [("images", 2), ("rows", 2), pytest.param("images", 50, marks=pytest.mark.slow)],
)
def test_killed_from_outside_it_ends_with_the_same_bytes(tmp_path, kind, kills):
    """The command itself, killed at a random moment of its second or a later batch."""
    plan = Uniform(total=35 * kills).plan(COUNTS)
    plan.save(tmp_path / "plan.json")
    straight, _ = filled(tmp_path / "straight", plan, kind=kind)
    chance = random.Random(0)
    for _ in range(kills):
        before = len(drawn(tmp_path / "log"))
        process = start_fill(tmp_path, tmp_path / "plan.json", delay=0.02, kind=kind)
        goal = before + 7 * chance.randint(1, 2)
        while len(drawn(tmp_path / "log")) < goal:  # it is past importing, and generates
            assert process.poll() is None, process.communicate()[0]
            time.sleep(0.001)
        time.sleep(chance.uniform(0, 0.02))
        process.send_signal(signal.SIGKILL)
        process.communicate()
        assert process.returncode == -signal.SIGKILL
        (folder,) = (tmp_path / "cache").glob("*")
        assert contents(folder)["fill"]  # so the fill was under way
    process = start_fill(tmp_path, tmp_path / "plan.json", delay=0, kind=kind)
    said = process.communicate()[0]
    assert process.returncode == 0, said
    check_killed(tmp_path, kills, plan, straight)


@pytest.mark.parametrize("tries", [60, pytest.param(240, marks=pytest.mark.slow)])
@rows_at_night
def test_one_flipped_byte_anywhere_is_found_and_mended(tmp_path, kind, tries):
    """Or changes nothing: SQLite has places that no reader looks at."""
    plan = FedEAS(beta=12).plan(COUNTS)
    cache, _ = filled(tmp_path / "good", plan, kind=kind)
    good = contents(cache.folder)
    content = cache.file.read_bytes()
    used = [at for at, byte in enumerate(content) if byte]  # pages of SQLite are mostly empty
    chance = random.Random(1)
    found = Counter()
    for at in {used[0], used[-1], *chance.choices(used, k=tries)}:
        base = tmp_path / "bad"
        shutil.copytree(tmp_path / "good", base)
        folder = base / cache.folder.name
        flip(folder / cache.file.name, at)
        problems = list(verify(folder))
        assert all(str(folder / cache.file.name) in problem for problem in problems)
        _, generated = filled(base, plan, kind=kind)
        found["found" if problems else "unused", "all" if generated > 7 else "a batch"] += 1
        assert list(verify(folder)) == []
        mended = Cache.at(folder)
        for client, wanted in zip(plan.client_names, plan.samples.tolist(), strict=True):
            ours, theirs = (c.samples(client, wanted)[0] for c in (mended, cache))
            np.testing.assert_array_equal(ours[:, 1:], theirs[:, 1:])
        if not problems:
            assert generated == 0
            assert contents(folder) == good
        shutil.rmtree(base)
    assert found["found", "a batch"] > tries / 2
    assert found["unused", "all"] == 0


@every_kind
def test_a_flipped_byte_of_samples_costs_their_batch_and_no_more(tmp_path, kind):
    plan = FedEAS(beta=12).plan(COUNTS)
    cache, _ = filled(tmp_path, plan, kind=kind)
    good = contents(cache.folder)
    flip_samples(cache.folder)
    (problem,) = verify(cache.folder)
    assert "samples of client" in problem
    _, generated = filled(tmp_path, plan, kind=kind)
    assert 0 < generated <= 7
    assert contents(cache.folder)["block"][0] == good["block"][0]


def test_what_can_be_read_of_a_damaged_file_is_kept(tmp_path):
    plan = Uniform(total=2100).plan(COUNTS)
    cache, _ = filled(tmp_path, plan)
    content = bytearray(cache.file.read_bytes())
    page = int.from_bytes(content[16:18], "big")
    leaves = [at for at in range(page, len(content), page) if content[at] == 13]  # of a table
    middle = leaves[len(leaves) // 2]
    content[middle : middle + 8] = bytes(8)
    cache.file.write_bytes(content)
    assert len(list(verify(cache.folder))) == 1
    _, generated = filled(tmp_path, plan)
    assert 0 < generated < plan.total / 3
    assert list(verify(cache.folder)) == []
    straight, _ = filled(tmp_path / "straight", plan)
    for name, wanted in zip(plan.client_names, plan.samples.tolist(), strict=True):
        ours, theirs = (c.samples(name, wanted)[0] for c in (cache, straight))
        np.testing.assert_array_equal(ours[:, 1:], theirs[:, 1:])


def test_a_damaged_note_of_a_fill_is_replaced(tmp_path):
    small, large = FedEAS(beta=4).plan(COUNTS), FedEAS(beta=12).plan(COUNTS)
    wrongs = ("{", "5", "null", "[[1]]", '[["c", [0, 0, 9999]]]', "[" * 100_000)
    for number, wrong in enumerate(wrongs):
        cache, _ = filled(tmp_path / str(number), small)
        with pytest.raises(KeyboardInterrupt):
            fill(large, Dies(after=1), cache, 7)
        with changing(cache.folder) as index:
            assert index.execute("UPDATE fill SET requests = ?", (wrong,)).rowcount == 1
        fill(large, Counting(), cache, 7)
        assert contents(cache.folder)["fill"] == []
        assert cache.missing("c", large.samples[2].tolist()) == []


def test_a_lost_file_is_noticed_and_made_again(tmp_path):
    plan = FedEAS(beta=12).plan(COUNTS)
    cache, _ = filled(tmp_path, plan)
    before = contents(cache.folder)
    cache.file.unlink()
    (problem,) = verify(cache.folder)
    assert problem == f"{cache.file} is damaged: it is gone"
    assert filled(tmp_path, plan)[1] == plan.total
    assert contents(cache.folder) == before


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
        "from fedeas import LabelCounts, Plan, fill; from fedeas.cache import Cache\n"
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
    for each in (2, 60):  # 5 MB and 147 MB of images
        command = [sys.executable, "-c", code, tmp_path / str(each), str(each)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        peaks.append(int(done.stdout))
    assert peaks[1] - peaks[0] < 20_000  # kB, of 142 MB more images


def test_images_of_another_size_are_refused(tmp_path):
    plan = FedEAS(beta=9).plan(COUNTS)
    filled(tmp_path, FedEAS(beta=3).plan(COUNTS))

    class Larger(Counting):
        def sample(self, labels, seeds):
            return np.zeros((len(labels), 5, 5, 1), np.uint8)

    cache = Cache(tmp_path, Larger(), 3)
    with pytest.raises(InputError, match="changed the shape"):
        fill(plan, Larger(), cache)


def test_a_cache_without_its_index_is_still_listed(tmp_path, fedeas):
    cache, _ = filled(tmp_path, FedEAS(beta=9).plan(COUNTS))
    other = Cache(tmp_path, Other(), 3)
    fill(FedEAS(beta=9).plan(COUNTS), Other(), other)
    cache.file.write_text("{}")
    listed = fedeas("cache", "list", tmp_path)
    assert listed.code == 0
    assert cache.folder.name in listed.out
    assert "other" in listed.out
    assert "damaged" in listed.err
    cache.file.unlink()
    assert cache.folder.name in fedeas("cache", "list", tmp_path).out
    assert fedeas("cache", "list", tmp_path, "--check").code == 1
    removed = fedeas("cache", "prune", tmp_path, "--keep", other.folder.name, "--yes")
    assert removed.code == 0
    assert not cache.folder.exists()


def test_what_goes_missing_during_a_fill_is_made_too(tmp_path):
    small, large = FedEAS(beta=8).plan(COUNTS), FedEAS(beta=14).plan(COUNTS)
    cache, _ = filled(tmp_path, small)
    with pytest.raises(KeyboardInterrupt):
        fill(large, Dies(after=1), cache, 7)
    flip_samples(cache.folder)
    fill(large, Counting(), cache, 7)
    for name, wanted in zip(large.client_names, large.samples.tolist(), strict=True):
        assert cache.missing(name, wanted) == []


def test_another_batch_size_takes_effect_after_a_stop(tmp_path):
    plan = Uniform(total=40).plan(COUNTS)
    cache = Cache(tmp_path, Counting(), 3)
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


def test_prune_leaves_what_is_not_ours_or_in_use(tmp_path, fedeas):
    plan = FedEAS(beta=8).plan(COUNTS)
    cache, _ = filled(tmp_path, plan)
    other = Cache(tmp_path, Counting(), 3, seed=1)
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


@rows_at_night
def test_two_processes_at_once_end_with_one_correct_cache(tmp_path, kind):
    plan = Uniform(total=200).plan(COUNTS)
    plan.save(tmp_path / "plan.json")
    straight, _ = filled(tmp_path / "straight", plan, kind=kind)
    processes = [
        start_fill(tmp_path, tmp_path / "plan.json", delay=0.03, kind=kind) for _ in range(2)
    ]
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
    missing = missing_segments(held, wanted)
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
    cache = Cache(tmp_path, Wrong(images), 3)
    with pytest.raises(InputError, match="something else than samples"):
        fill(plan, Wrong(images), cache, 7)
    assert contents(cache.folder)["block"] == []


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
    assert list(verify(cache.folder)) == []


def test_a_generator_that_draws_something_else_than_the_data_is_refused_at_once(tmp_path):
    cache = Cache(tmp_path, Rows(), 3)
    real = np.zeros((3, 8, 8, 1), np.uint8)
    with pytest.raises(InputError, match=r"do not look like the data's; got '\(4,\) of float32'"):
        client_samples("a", [1, 0, 0], Rows(), cache, like=real)
    assert contents(cache.folder)["block"] == []


def test_a_folder_in_the_place_of_the_samples_is_refused_with_what_to_do(tmp_path, fedeas):
    cache = Cache(tmp_path, Counting(), 3)
    cache.file.mkdir(parents=True)
    for use in (
        lambda: client_samples("a", [1, 0, 0], Counting(), cache),
        lambda: fill(FedEAS(beta=8).plan(COUNTS), Counting(), cache),
        lambda: Cache.at(cache.folder),
    ):
        with pytest.raises(InputError, match=r"samples\.sqlite is a folder.*; move it away"):
            use()
    assert "is a folder" in fedeas("cache", "list", tmp_path).err
    assert fedeas("cache", "list", tmp_path, "--check").code == 1
    cache.file.rmdir()
    assert len(client_samples("a", [1, 0, 0], Counting(), cache)[0]) == 1


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


def test_commands(tmp_path, fedeas):
    plan, cache = tmp_path / "plan.json", tmp_path / "cache"
    FedEAS(beta=12).plan(COUNTS).save(plan)
    first = fedeas("fill", plan, "--generator", COUNTING, "--cache", cache)
    assert first.code == 0
    assert "0 already cached" in first.out
    again = fedeas("fill", plan, "--generator", COUNTING, "--cache", cache, "--json")
    assert '"generated": 0' in again.out
    assert fedeas("cache", "list", cache, "--check").code == 0
    assert "counting-1" in fedeas("cache", "list", cache).out
    flip_samples(next(cache.iterdir()))
    assert fedeas("cache", "list", cache, "--check").code == 1
    assert "repaired" in fedeas("fill", plan, "--generator", COUNTING, "--cache", cache).err
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
        ["cache", "list", tmp_path / "nothing"],
        ["cache", "prune", cache, "--keep", "other"],
    ):
        result = fedeas(*bad)
        assert result.code == 2
        assert len(result.err.splitlines()) == 1


def test_what_samples_took_is_noted_once(tmp_path):
    small, large = FedEAS(beta=8).plan(COUNTS), FedEAS(beta=12).plan(COUNTS)
    cache, _ = filled(tmp_path, small)
    first = work(cache.folder)
    assert first.made == small.total
    assert first.seconds > 0
    filled(tmp_path, small)  # nothing is made, so nothing is noted
    assert work(cache.folder) == first
    filled(tmp_path, large)
    client_samples("e", [2, 0, 0], Counting(), cache)
    assert work(cache.folder).made == large.total + 2
    cache.file.write_text("damaged")
    assert work(cache.folder).made == 0
    assert work(tmp_path / "nowhere").made == 0


def test_a_full_disk_is_one_line_and_the_next_fill_goes_on(tmp_path):
    plan = Uniform(total=700).plan(COUNTS)
    straight, _ = filled(tmp_path / "straight", plan)
    COUNTS.save(tmp_path / "counts.json")
    code = (
        "from fedeas import LabelCounts, Uniform, fill; from fedeas.cache import Cache\n"
        "from helpers.noted_generators import Counting\n"
        "cache = Cache(argument[0], Counting(), 3)\n"
        "counts = LabelCounts.load(argument[1])\n"
        "fill(Uniform(total=700).plan(counts), Counting(), cache, 7)"
    )
    for kilobytes in (4, 20, 60, 70):  # full when the file is made, in a batch, or later
        said = attempt(
            code, tmp_path / "cache", tmp_path / "counts.json", limit=f"write_at_most({kilobytes})"
        )
        assert said.startswith("FileAccessError cannot write"), said
        assert len(said.splitlines()) == 1
    _, generated = filled(tmp_path / "cache", plan)
    assert 0 < generated < plan.total
    assert contents(tmp_path / "cache" / straight.folder.name) == contents(straight.folder)


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
    assert "for seed 0" in again.err and "for seed 42" in again.err
    (leaf, *_) = (tmp_path / "store" / "samples").iterdir()
    with pytest.raises(InputError, match="folder above"):  # the folder that `fill` prints
        augmented(cache=leaf)
    assert fedeas("cache", "list").out.count("counting") == 3
