"""Workers of Ray fill a cache with the bytes of one process, whoever of them dies."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import psutil
import pytest
import ray

from fedeas import InputError, LabelCounts, Plan, Uniform
from fedeas.cache import Cache, verify
from fedeas.cache import workers as workers_module
from fedeas.cache.fill import fill
from fedeas.errors import FedeasError
from helpers.cache_contents import rows_of
from helpers.noted_generators import Counting

# Ray leaves files open, and what it warns of is its own.
pytestmark = [
    pytest.mark.filterwarnings(f"ignore::{name}")
    for name in ("ResourceWarning", "FutureWarning", "pytest.PytestUnraisableExceptionWarning")
]
COUNTS = LabelCounts(
    [[30, 0, 2], [0, 9, 0], [5, 5, 5], [0, 0, 40]], clients=["a/b", "..", "c", "d e"]
)


@pytest.fixture(scope="module", autouse=True)
def cluster():
    """Ray on this machine, started once: every fill joins it."""
    ray.init(
        "local", num_cpus=4, include_dashboard=False, log_to_driver=False, ignore_reinit_error=True
    )
    yield
    ray.shutdown()


class Slow(Counting):
    """Leaves its worker's process id, and a moment in which it can be killed."""

    def __init__(self, pids: Path, log: str = "", delay: float = 0.03) -> None:
        super().__init__(log, delay)
        self.pids = pids

    def sample(self, labels, seeds):
        (self.pids / str(os.getpid())).touch()
        return super().sample(labels, seeds)


class Poisoned(Counting):
    """Kills its process, or fails, at the batch that holds a seed."""

    def __init__(self, seed: int, how: str) -> None:
        super().__init__()
        self.seed, self.how = seed, how

    def sample(self, labels, seeds):
        if self.seed in seeds.tolist():
            if self.how == "dies":
                os.kill(os.getpid(), signal.SIGKILL)
            raise RuntimeError("out of memory")
        return super().sample(labels, seeds)


class Unwilling(Counting):
    """Cannot be opened in a worker."""

    def __setstate__(self, state):
        raise RuntimeError("no GPU is left")


def straight(folder: Path, plan: Plan, batch: int = 7) -> Cache:
    cache = Cache(folder, Counting(), 3)
    fill(plan, Counting(), cache, batch)
    return cache


def check(cache: Cache, expected: Cache) -> None:
    assert list(verify(cache.storage)) == []
    assert rows_of(cache) == rows_of(expected)


def test_workers_write_the_same_bytes(tmp_path):
    plan = Uniform(total=500).plan(COUNTS)
    cache = Cache(tmp_path / "cache", Counting(), 3)
    moments = []
    done = fill(plan, Counting(), cache, 7, workers=2, threads=1, status=moments.append)
    assert (done.generated, done.failed) == (plan.total, ())
    assert moments[-1].done == moments[-1].total == plan.total
    assert sum(moments[-1].by_worker.values()) == plan.total
    check(cache, straight(tmp_path / "straight", plan))
    assert fill(plan, Counting(), cache, 7, workers=2, threads=1).reused == plan.total


@pytest.mark.parametrize("kills", [1, pytest.param(10, marks=pytest.mark.slow)])
def test_killed_workers_are_replaced_and_nothing_is_lost(tmp_path, kills):
    """kill -9 of a worker within a batch."""
    plan = Uniform(total=350 * kills).plan(COUNTS)
    pids = tmp_path / "pids"
    pids.mkdir()
    cache = Cache(tmp_path / "cache", Counting(), 3)
    struck = []

    def strike(moment) -> None:
        alive = {int(path.name) for path in pids.iterdir()} - set(struck)
        if len(struck) < kills and alive and moment.done > (len(struck) + 0.5) * 250:
            struck.append(alive.pop())
            os.kill(struck[-1], signal.SIGKILL)

    done = fill(plan, Slow(pids), cache, 7, workers=2, threads=1, status=strike)
    assert len(struck) == kills
    assert done.failed == ()
    check(cache, straight(tmp_path / "straight", plan))


@pytest.mark.parametrize("how", [pytest.param("dies", marks=pytest.mark.slow), "fails"])
def test_nine_of_ten_batches_are_generated_beside_one_that_kills(tmp_path, how):
    """One is run alone before it is blamed, and the others are never blamed for it."""
    plan = Uniform(total=70).plan(COUNTS)
    expected = straight(tmp_path / "straight", plan)
    _, label, _, seed, _ = rows_of(expected)[35]
    cache = Cache(tmp_path / "cache", Counting(), 3)
    done = fill(plan, Poisoned(seed, how), cache, 7, workers=2, threads=1)
    (failed,) = done.failed
    assert failed.segments.total == 7
    assert label in failed.segments.labels
    assert ("out of memory" if how == "fails" else "died") in failed.reason
    assert done.generated >= plan.total - 7  # with what died with it
    rows = rows_of(cache)
    assert len(rows) == plan.total - 7
    assert set(rows) < set(rows_of(expected))
    # A generator that is well again makes what is missing, with the same bytes.
    assert fill(plan, Counting(), cache, 7).generated == 7
    check(cache, expected)


def test_a_generator_that_does_not_open_ends_the_fill(tmp_path):
    plan = Uniform(total=70).plan(COUNTS)
    with pytest.raises(FedeasError, match="no GPU is left"):
        fill(plan, Unwilling(), Cache(tmp_path, Counting(), 3), 7, workers=2, threads=1)


def test_samples_that_do_not_look_like_the_data_end_the_fill(tmp_path):
    like = np.zeros((1, 9, 9, 1), np.uint8)
    with pytest.raises(InputError, match="do not look like"):
        fill(
            Uniform(total=70).plan(COUNTS), Counting(), Cache(tmp_path, Counting(), 3), 7,
            like=like, workers=2, threads=1,
        )  # fmt: skip
    assert not list(tmp_path.rglob("*.parquet"))


DRIVER = """
import sys
import ray
from pathlib import Path
from fedeas.cache import Cache
from fedeas.cache import workers as workers_module
from fedeas.cache.fill import fill
from fedeas.planning.plan import Plan
from test_workers import Slow
plan, folder, pids, log = map(Path, sys.argv[1:])
generator = Slow(pids, str(log))
fill(Plan.load(plan), generator, Cache(folder, generator, 3), 7, workers=2, threads=1)
"""


@pytest.mark.slow
def test_killed_drivers_and_clusters_lose_nothing(tmp_path):
    """Three times the driver, then the processes of Ray themselves, then to the end."""
    plan = Uniform(total=3000).plan(COUNTS)
    plan.save(tmp_path / "plan.json")
    pids, log = tmp_path / "pids", tmp_path / "log"
    pids.mkdir()
    command = [sys.executable, "-W", "ignore", "-c", DRIVER, tmp_path / "plan.json",
               tmp_path / "cache", pids, log]  # fmt: skip
    here = str(Path(__file__).parent)
    paths = os.pathsep.join([here, str(Path(here).parent), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": paths}

    def drawn() -> int:
        return len(log.read_text().split()) if log.exists() else 0

    for kind in ("driver", "driver", "driver", "cluster"):
        before = drawn()
        process = subprocess.Popen(command, env=environment)
        while drawn() < before + 200:
            assert process.poll() is None
            time.sleep(0.01)
        if kind == "cluster":
            for one in psutil.Process(process.pid).children(recursive=True):
                one.kill()
        process.kill()
        process.wait()
    assert subprocess.run(command, env=environment, check=False).returncode == 0
    cache = Cache(tmp_path / "cache", Counting(), 3)
    check(cache, straight(tmp_path / "straight", plan))


def test_more_gpus_than_there_are_and_an_address_where_nobody_answers(tmp_path):
    """Both once waited for minutes without a word."""
    plan, cache = Uniform(total=70).plan(COUNTS), Cache(tmp_path, Counting(), 3)
    with pytest.raises(InputError, match="a worker needs 1 GPUs, and Ray has 0"):
        fill(plan, Counting(), cache, 7, workers=2, threads=1, gpus_per_worker=1)
    assert not list(tmp_path.rglob("*.parquet"))
    with pytest.raises(InputError, match="no Ray cluster answers at"):
        workers_module._check_answers("127.0.0.1:9")
