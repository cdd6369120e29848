"""What tests share: the paper's counts, the real data, and a way to call the command line.

Neither torch nor Flower is imported here: `tests/core.txt` runs without them.
"""

import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import settings

from fedeas import LabelCounts
from fedeas.cli.main import main

# Tests run side by side: a thread each, here and in the programs that they start.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Programs that tests start find `helpers` too.
TESTS, PATHS = str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")
if TESTS not in PATHS.split(os.pathsep):
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [TESTS, PATHS]))

# Tests write thousands of small files, and what they test syncs each: in memory, if there is room.
MEMORY = Path("/dev/shm")
if "TMPDIR" not in os.environ and MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > 4 << 30:
    os.environ.setdefault("RAY_TMPDIR", tempfile.gettempdir())  # its logs stay on the disk
    os.environ["TMPDIR"], tempfile.tempdir = str(MEMORY), None

# In CI the same examples every time: a red build means that the change broke something.
settings.register_profile("default", deadline=None, derandomize="CI" in os.environ, max_examples=20)
# Every night each property is tried on many more, others each time.
settings.register_profile("nightly", deadline=None, max_examples=300)
settings.load_profile("default")


collect_ignore = ["helpers/run_quickstart.py"]  # a program: it loads all of flwr_datasets

PAPER_CSV = Path(__file__).parent / "data" / "cifar10-k20-a0.1-counts.csv"


class Result(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture
def paper_csv() -> Path:
    return PAPER_CSV


@pytest.fixture(scope="session")
def paper() -> LabelCounts:
    """The paper's main partition: CIFAR-10, K = 20, alpha = 0.1."""
    return LabelCounts.load(PAPER_CSV)


@pytest.fixture(scope="session")
def data() -> Path:
    """The folder of real data sets; CI always has it."""
    folder = os.environ.get("FEDEAS_DATA")
    if folder is None:
        if os.environ.get("CI"):
            pytest.fail("FEDEAS_DATA is not set in CI")
        pytest.skip("set FEDEAS_DATA to a folder with cifar10/ and fashion_mnist/ in Parquet")
    return Path(folder)


@pytest.fixture(scope="session", autouse=True)
def store(tmp_path_factory):
    """Decoded data sets, shared by the processes that run the tests and those that they start."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "store"
    os.environ["FEDEAS_STORE"] = str(folder)
    return folder


@pytest.fixture
def fedeas(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Result]:
    """Call the command line in this process."""
    return partial(_call, main, monkeypatch, capsys)


@pytest.fixture
def reproduction(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Result]:
    """Call `python -m reproduction` in this process."""
    from reproduction.__main__ import main as reproduce

    return partial(_call, reproduce, monkeypatch, capsys)


def _call(
    command: Callable[[], None],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    *arguments: object,
) -> Result:
    monkeypatch.setattr(sys, "argv", ["fedeas", *map(str, arguments)])
    capsys.readouterr()
    with pytest.raises(SystemExit) as stop:
        command()
    captured = capsys.readouterr()
    return Result(int(stop.value.code or 0), captured.out, captured.err)
