"""The core fits macOS and Windows: what only POSIX has is not needed, or is refused in one line."""

import ast
import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fedeas import FedEAS, InputError, LabelCounts, Partition, Plan, make_partition
from fedeas._internal.files import owner_only_folder, read_json, write_json

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src"
# Stands for a Python on Windows: none of this is there.
POSIX_MODULES = ("fcntl", "grp", "posix_ipc", "pwd", "resource", "termios", "tty")
POSIX_FUNCTIONS = (
    "fork", "geteuid", "getuid", "mkfifo", "posix_fallocate", "posix_fadvise", "register_at_fork",
    "sched_getaffinity", "sysconf", "uname", "wait4", "O_NONBLOCK", "O_NOFOLLOW", "O_CLOEXEC",
)  # fmt: skip
WITHOUT_POSIX = f"""
import os, sys
import numpy  # asks Linux for its version
sys.modules.update(dict.fromkeys({POSIX_MODULES}))
for name in {POSIX_FUNCTIONS}:
    vars(os).pop(name, None)
sys.argv[0] = "fedeas"
from fedeas.cli.main import main
main()
"""


# Whose `open` does not open a text file.
OTHERS = {
    "SampleSource",
    "os",
    "tarfile",
    "library",
    "archive",
    "cls",
    "Dataset",
    "Ledger",
    "cache",
    "self",
    "self.cache",
    "Cache.at(folder)",
}


def lacks_encoding(call: ast.Call) -> bool:
    """Tell whether a call opens a text file in the encoding of the machine.

    `errors="replace"` is for text from elsewhere; a bare `read_text` is ours, of `files.py`.
    """
    called = call.func
    given = {word.arg for word in call.keywords}
    if given & {"encoding", "errors"}:
        return False
    if isinstance(called, ast.Attribute) and called.attr in {"read_text", "write_text"}:
        return len(call.args) == (called.attr == "write_text")
    if isinstance(called, ast.Attribute):
        opens = called.attr == "open" and ast.unparse(called.value) not in OTHERS
        modes = call.args
    else:
        opens = isinstance(called, ast.Name) and called.id == "open"
        modes = call.args[1:]
    return opens and not any("b" in str(getattr(mode, "value", "")) for mode in modes)


def test_text_files_have_an_encoding():
    """On Windows the default is not UTF-8."""
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call):
                assert not lacks_encoding(node), f"{path.name}:{node.lineno} {ast.unparse(node)}"


@pytest.mark.parametrize(
    ("code", "lacks"),
    [
        ("path.read_text()", True),
        ("path.write_text(text)", True),
        ("path.open('a')", True),
        ("open(name)", True),
        ("open('bin.txt', 'w')", True),
        ("path.read_text('utf-8')", False),
        ("path.open('rb')", False),
        ("os.open(path, 0)", False),
    ],
)
def test_the_check_of_encodings_sees_what_it_looks_for(code, lacks):
    assert lacks_encoding(ast.parse(code, mode="eval").body) is lacks


@pytest.fixture
def windows_newlines(monkeypatch):
    """Write line ends as Python does on Windows, where nothing else is asked for."""
    genuine = io.open

    def translate(file, mode="r", buffering=-1, encoding=None, errors=None, newline=None, *rest):
        if newline is None and "b" not in mode and set(mode) & set("wax+"):
            newline = "\r\n"
        return genuine(file, mode, buffering, encoding, errors, newline, *rest)

    monkeypatch.setattr(io, "open", translate)


@pytest.mark.parametrize("name", ["plan.json", "plan.parquet"])
def test_plans_are_the_same_where_lines_end_in_two_characters(
    windows_newlines, tmp_path, paper, name
):
    (tmp_path / "control.txt").write_text("a\n", encoding="utf-8")
    assert (tmp_path / "control.txt").read_bytes() == b"a\r\n"
    plan = FedEAS(beta=12).plan(paper)
    plan.save(tmp_path / name)
    assert Plan.load(tmp_path / name) == plan
    paper.save(tmp_path / name)
    assert LabelCounts.load(tmp_path / name) == paper


def test_files_with_a_checksum_survive_other_line_ends(windows_newlines, tmp_path):
    write_json(tmp_path / "a.json", {"text": "one\r\ntwo\n"})
    content = (tmp_path / "a.json").read_bytes()
    assert b"\r\n" not in content
    (tmp_path / "a.json").write_bytes(content.replace(b"\n", b"\r\n"))  # as git may check it out
    assert read_json(tmp_path / "a.json") == {"text": "one\r\ntwo\n"}
    (tmp_path / "a.json").write_bytes(content.replace(b"one", b"One"))
    with pytest.raises(InputError, match="damaged"):
        read_json(tmp_path / "a.json")


def test_partitions_are_the_same_where_lines_end_in_two_characters(windows_newlines, tmp_path):
    recipe = make_partition("dirichlet", clients=3, alpha=1.0, seed=0)
    partition = recipe.partition([0, 1, 2] * 40)
    partition.save(tmp_path / "split.npz")
    assert Partition.load(tmp_path / "split.npz") == partition


@pytest.mark.parametrize(
    "arguments",
    [
        ["plan", "counts.csv", "--out", "plan.json", "--cost", "0.8s"],
        ["plan", "counts.csv", "--json"],
        ["compare", "counts.csv"],
        ["partition", "balanced:10x600", "--recipe", "iid", "--clients", "4", "--out", "p.npz"],
    ],
    ids=lambda a: " ".join(a[:1]),
)
def test_core_commands_need_nothing_of_posix(tmp_path, paper_csv, arguments):
    """On the console of an older Windows too, which cannot show every character."""
    (tmp_path / "counts.csv").write_bytes(paper_csv.read_bytes())
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_POSIX, *arguments],
        cwd=tmp_path,
        env={**os.environ, "PYTHONUTF8": "0", "PYTHONIOENCODING": "cp1252"},
        capture_output=True,
    )
    assert done.returncode == 0, done.stderr.decode("cp1252")
    assert done.stdout.decode("cp1252").strip()
    assert b"\\u" not in done.stdout  # nothing had to be escaped


def test_without_posix_is_really_without_it():
    program = WITHOUT_POSIX.replace("from fedeas", "import fcntl\nfrom fedeas")
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert "import of fcntl halted" in done.stderr


def test_secure_sums_say_that_they_need_posix(monkeypatch, tmp_path):
    with monkeypatch.context() as patch:
        patch.setattr(os, "name", "nt")
        with pytest.raises(InputError) as refused:
            owner_only_folder(tmp_path / "state")
    assert "POSIX" in str(refused.value)
    assert "\n" not in str(refused.value)
    assert not (tmp_path / "state").exists()
    if os.name == "posix":
        owner_only_folder(tmp_path / "state")
        assert (tmp_path / "state").is_dir()


def test_training_goes_on_without_the_switches_of_glibc(monkeypatch):
    loop = pytest.importorskip("fedeas.train.loop", exc_type=ImportError)

    def no_main_program(name):
        raise TypeError("argument of type 'NoneType' is not iterable")  # as on Windows

    monkeypatch.setattr(loop.ctypes, "CDLL", no_main_program)
    assert loop.keep_memory() is False
