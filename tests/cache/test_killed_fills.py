"""Whoever dies in a fill, the next one ends with the same bytes, and no row stands twice."""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from fedeas import LabelCounts, Plan, Uniform
from fedeas.cache import Cache, verify
from fedeas.cache.fill import fill
from fedeas.cache.shards import SHARD
from helpers.cache_contents import rows_of, samples_of, shards
from helpers.noted_generators import KINDS, Counting, drawn

HELPERS = Path(__file__).parents[1] / "helpers"
PATH = os.pathsep.join([str(HELPERS.parent), os.environ.get("PYTHONPATH", "")])
COUNTS = LabelCounts(
    [[30, 0, 2], [0, 9, 0], [5, 5, 5], [0, 0, 40]], clients=["a/b", "..", "c", "d e"]
)
FILL = """
import sys
import numpy as np
from fedeas.cache import Cache, writer
from fedeas.cache.fill import fill
from fedeas.planning.plan import Plan
from helpers.noted_generators import KINDS
plan, folder, log, kind, delay = sys.argv[1:]
generator = KINDS[kind](log, float(delay))
writer.SHARD_BYTES = 3 * generator.draw(np.zeros(7, int), np.zeros(7, np.uint64)).nbytes
fill(Plan.load(plan), generator, Cache(folder, generator, 3), 7)
"""


def straight(folder: Path, plan: Plan, kind: str = "images") -> Cache:
    """A cache that was filled by one process without an interruption."""
    generator = KINDS[kind]()
    cache = Cache(folder, generator, 3)
    fill(plan, generator, cache, 7)
    return cache


def start_fill(folder: Path, plan: Path, kind: str, delay: float) -> subprocess.Popen:
    arguments = [plan, folder / "cache", folder / "log", kind, str(delay)]
    return subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", FILL, *arguments],
        cwd=HELPERS.parent, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip


def killed(folder: Path, kind: str, steps: str, kills: int) -> list[str]:
    """Run killed_fill.py: what each process was killed before, or that it ended."""
    places = [folder / name for name in ("plan.json", "cache", "log")]
    done = subprocess.run(
        [sys.executable, "-W", "ignore", HELPERS / "killed_fill.py", *places, kind, steps,
         str(kills)],
        capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": PATH},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    struck = done.stdout.split()
    assert len(struck) == kills + 1
    return struck


def check(folder: Path, plan: Plan, expected: Cache, kind: str) -> None:
    """The same rows as without a kill, each once, also for readers that know no rule."""
    cache = Cache(folder, KINDS[kind](), 3)
    assert list(verify(cache.storage)) == []
    assert rows_of(cache) == rows_of(expected)
    assert samples_of(cache, plan) == samples_of(expected, plan)
    table = pq.read_table(cache.folder, columns=["client", "class", "index"])
    assert table.num_rows == plan.total == len({tuple(row.values()) for row in table.to_pylist()})
    assert not list(cache.folder.glob(".fedeas/filling/*"))
    left = [path for path in cache.folder.rglob("*") if path.is_file() and path.name[0] == "."]
    assert left == []  # nothing half written


@pytest.mark.parametrize(
    ("kind", "kills"),
    [("images", 20), ("rows", 4), pytest.param("images", 400, marks=pytest.mark.slow)],
)
def test_killed_at_any_step_it_ends_with_the_same_bytes(tmp_path, kind, kills):
    plan = Uniform(total=60 * kills).plan(COUNTS)
    plan.save(tmp_path / "plan.json")
    expected = straight(tmp_path / "straight", plan, kind)
    struck = killed(tmp_path, kind, "sample,write,replace", kills)
    assert Counter(struck).keys() == {"sample", "write", "replace", "end"}
    assert struck.count("end") == 1
    check(tmp_path / "cache", plan, expected, kind)
    # A kill costs what was not written yet: at most the batches of a shard.
    assert len(drawn(tmp_path / "log")) - plan.total <= kills * 3 * 7


@pytest.mark.parametrize("kills", [12, pytest.param(100, marks=pytest.mark.slow)])
def test_killed_while_it_removes_what_stands_twice(tmp_path, kills):
    """Everything is there in one large shard and in many small ones."""
    plan = Uniform(total=600).plan(COUNTS)
    plan.save(tmp_path / "plan.json")
    expected = straight(tmp_path / "straight", plan)
    assert killed(tmp_path, "images", "sample", 0) == ["end"]
    cache = Cache(tmp_path / "cache", Counting(), 3)
    assert len(shards(cache.folder)) > 20
    for name in (f"*{SHARD}", ".fedeas/entries/*"):
        for path in expected.folder.glob(name):
            shutil.copy(path, cache.folder / path.relative_to(expected.folder))
    struck = Counter(killed(tmp_path, "images", "write,replace,remove", kills))
    assert struck.keys() >= {"remove", "end"}
    check(tmp_path / "cache", plan, expected, "images")


@pytest.mark.parametrize(("kind", "kills"), [("images", 3), ("rows", 2)])
def test_killed_from_outside_it_ends_with_the_same_bytes(tmp_path, kind, kills):
    plan = Uniform(total=70 * kills).plan(COUNTS)
    plan.save(tmp_path / "plan.json")
    expected = straight(tmp_path / "straight", plan, kind)
    chance = random.Random(0)
    for _ in range(kills):
        before = len(drawn(tmp_path / "log"))
        process = start_fill(tmp_path, tmp_path / "plan.json", kind, 0.02)
        while len(drawn(tmp_path / "log")) < before + 7 * chance.randint(1, 3):
            assert process.poll() is None, process.communicate()[0]
            time.sleep(0.001)
        time.sleep(chance.uniform(0, 0.02))
        process.send_signal(signal.SIGKILL)
        process.communicate()
        assert process.returncode == -signal.SIGKILL
        assert list((tmp_path / "cache").glob("*/.fedeas/filling/*"))  # so a fill was under way
    process = start_fill(tmp_path, tmp_path / "plan.json", kind, 0)
    said = process.communicate()[0]
    assert process.returncode == 0, said
    check(tmp_path / "cache", plan, expected, kind)


@pytest.mark.parametrize("fills", [2, pytest.param(6, marks=pytest.mark.slow)])
def test_fills_at_once_end_with_the_same_bytes(tmp_path, fills):
    """All of the same plan, each with its own shards; what they both made stands once."""
    plan = Uniform(total=400).plan(COUNTS)
    plan.save(tmp_path / "plan.json")
    expected = straight(tmp_path / "straight", plan)
    processes = [
        start_fill(tmp_path, tmp_path / "plan.json", "images", 0.005) for _ in range(fills)
    ]
    for process in processes:
        said = process.communicate()[0]
        assert process.returncode == 0, said
    assert len(drawn(tmp_path / "log")) > plan.total  # so that something was made twice
    check(tmp_path / "cache", plan, expected, "images")


def test_a_shard_whose_writer_died_is_removed_and_another_fills_shard_is_not(tmp_path, monkeypatch):
    """The shard is there, its entry is not: readers that look at Parquet alone would see it."""
    plan = Uniform(total=30).plan(COUNTS)
    cache = straight(tmp_path, plan)
    (shard,) = shards(cache.folder)
    orphan = shard.with_name("0" * 64 + SHARD)
    orphan.write_bytes(shard.read_bytes())
    marker = cache.folder / ".fedeas" / "filling" / "other"
    marker.write_text('{"host": "another machine", "process": 1, "since": 9e9}')
    fill(plan, Counting(), cache)
    assert orphan.exists()  # its entry may be on its way
    marker.unlink()
    fill(plan, Counting(), cache)
    assert shards(cache.folder) == [shard]


def test_samples_that_stand_twice_count_once_until_a_fill_ends(tmp_path, monkeypatch):
    """Two fills that did not see each other: readers take the shard with the smallest name."""
    plan, more = (Uniform(total=total).plan(COUNTS) for total in (30, 60))
    one, two = straight(tmp_path / "one", plan), Cache(tmp_path / "two", Counting(), 3)
    fill(more, Counting(), two, 5)  # in other batches, and so with other bytes
    for path in [*two.folder.glob(f"*{SHARD}"), *two.folder.glob(".fedeas/entries/*")]:
        path.replace(one.folder / path.relative_to(two.folder))
    assert len(shards(one.folder)) == 2
    names = sorted(path.name for path in shards(one.folder))
    samples, _ = one.samples("c", plan.samples[2].tolist())
    first = pq.read_table(one.folder / names[0]).filter(
        pq.read_table(one.folder / names[0])["client"].to_numpy() == "c"
    )
    np.testing.assert_array_equal(samples[0].reshape(-1), list(first["sample"][0].as_py()))
    fill(more, Counting(), one, 5)
    table = pq.read_table(one.folder, columns=["client", "class", "index"])
    assert table.num_rows == more.total == len({tuple(row.values()) for row in table.to_pylist()})
    assert (one.samples("c", plan.samples[2].tolist())[0] == samples).all()
