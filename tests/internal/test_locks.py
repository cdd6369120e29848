"""Locks on folders: one holder at a time, whatever happens to it, and on every system."""

import ast
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from fedeas._internal.files import locked

SOURCE = Path(__file__).parents[2] / "src"
# Modules of the standard library that Windows lacks.
POSIX_ONLY = {"fcntl", "grp", "posix", "pty", "pwd", "resource", "syslog", "termios", "tty"}
HOLD = """
import sys
from pathlib import Path
from fedeas._internal.files import locked
say = lambda text: print(text, flush=True)
with locked(Path(sys.argv[1]), lambda: say("waiting")):
    say(f"held {(Path(sys.argv[1]) / 'lock').exists()}")
    sys.stdin.readline()
"""


class RefusedError(Exception):
    """Nobody waits here."""


def refuse():
    raise RefusedError


def is_held(folder: Path) -> bool:
    try:
        with locked(folder, refuse):
            return False
    except RefusedError:
        return True


@pytest.fixture
def holder():
    """Start processes that hold a folder, say so, and let go when told."""
    started = []

    def start(folder: Path) -> subprocess.Popen:
        started.append(
            subprocess.Popen(
                [sys.executable, "-W", "ignore", "-c", HOLD, folder],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        )
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()


def test_one_process_holds_a_folder_and_the_next_one_waits(tmp_path, holder):
    first = holder(tmp_path / "new" / "folder")
    assert first.stdout.readline() == "held True\n"
    assert is_held(tmp_path / "new" / "folder")
    second = holder(tmp_path / "new" / "folder")
    assert second.stdout.readline() == "waiting\n"
    first.communicate("\n", timeout=60)
    assert second.stdout.readline() == "held True\n"
    assert is_held(tmp_path / "new" / "folder")


def test_the_lock_of_a_killed_process_is_free(tmp_path, holder):
    first = holder(tmp_path)
    assert first.stdout.readline() == "held True\n"
    first.send_signal(signal.SIGKILL)
    first.wait()
    assert not is_held(tmp_path)


def test_threads_of_one_process_exclude_each_other(tmp_path):
    held, waits, order = threading.Event(), threading.Event(), []

    def second():
        held.wait()
        with locked(tmp_path, waits.set):
            order.append("second")

    thread = threading.Thread(target=second)
    thread.start()
    with locked(tmp_path):
        held.set()
        assert waits.wait(60)
        order.append("first")
    thread.join()
    assert order == ["first", "second"]


def test_whoever_waits_for_a_folder_that_is_removed_holds_the_new_one(tmp_path, holder):
    folder = tmp_path / "cache"
    with locked(folder):
        process = holder(folder)
        assert process.stdout.readline() == "waiting\n"
        shutil.rmtree(folder)
        # Whether it looks now or after the release: the lock that it holds is the one on disk.
    assert process.stdout.readline() == "held True\n"
    assert is_held(folder)


def test_a_folder_that_always_disappears_is_an_error_not_a_hang(tmp_path):
    from fedeas import InputError

    def vanishing(folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        if (folder / "lock").exists():
            shutil.rmtree(folder)

    with (
        pytest.raises(InputError, match="keeps being removed"),
        locked(tmp_path / "x", make=vanishing),
    ):
        raise AssertionError


def test_an_error_inside_or_while_waiting_leaves_the_folder_free(tmp_path):
    with pytest.raises(KeyError), locked(tmp_path):
        raise KeyError
    assert not is_held(tmp_path)
    with locked(tmp_path):
        assert is_held(tmp_path)
    assert not is_held(tmp_path)


def imported_at_the_top(path: Path) -> set[str]:
    found = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(str(node.module).split(".")[0])
    return found


def test_nothing_imports_what_windows_lacks():
    found = {path: imported_at_the_top(path) for path in SOURCE.rglob("*.py")}
    assert any("numpy" in names for names in found.values())
    assert {path for path, names in found.items() if names & POSIX_ONLY} == set()


def test_augment_runs_where_there_is_no_fcntl(tmp_path):
    """As on Windows; there filelock has a lock of the system's own."""
    code = (
        "import sys; sys.modules['fcntl'] = None\n"
        "import numpy as np, fedeas\n"
        "from helpers.noted_generators import Counting\n"
        "more = fedeas.augment(np.zeros((9, 4, 4, 1), np.uint8), labels=np.zeros(9, int),\n"
        "    generator=Counting(), beta=12, classes=3, client=0, cache=sys.argv[1])\n"
        "print(more.num_real, len(more[0]) > 9, fedeas.report_real_num_examples.__name__)"
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code, tmp_path],
        capture_output=True,
        text=True,
    )
    assert done.stderr == ""
    assert done.stdout.split() == ["9", "True", "report_real_num_examples"]
