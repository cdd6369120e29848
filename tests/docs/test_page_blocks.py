"""What the pages say to type works in a fresh checkout and an empty environment."""

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def pages(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "tools")
    return importlib.import_module("page_blocks")


def test_the_first_block_of_the_readme_installs_and_plans(tmp_path):
    """Packages come from an index: an install line that names one that is on none fails here."""
    program = [sys.executable, ROOT / "tools" / "page_blocks.py", "README.md", "--first"]
    done = subprocess.run(program, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("ok ")


@pytest.mark.slow
@pytest.mark.parametrize("page", ["README.md", "docs/index.md", "docs/tutorial.md"])
def test_every_block_of_a_page_works(data, page):
    program = [sys.executable, ROOT / "tools" / "page_blocks.py", page]
    done = subprocess.run(program, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("text", "good"),
    [
        ("```bash\ntrue\n```\n", True),
        ("```bash\npip install ./no-such-package\n```\n", False),
        ("```bash\ncat no-such-file.csv\n```\n", False),
        ("```bash\nfalse\ntrue\n```\n", False),  # not only the last line counts
        ("```console\n$ cat README.md > copy\n$ cat copy\nanything\n```\n", True),
        ("```console\n$ true\n$ false\n```\n", False),
        ("```python\n>>> x = 1\n\n```\ntext\n```python\n>>> x\n1\n\n```\n", True),
        ("```python\n>>> 1 + 1\n3\n\n```\n", False),
        ("```python\nimport numpy\n```\n", False),  # no line above has installed it
        ("<!-- not run: takes an hour -->\n```bash\nfalse\n```\n", True),
        ("```toml\nnot = 'run'\n```\n", True),
        ("```bash\necho 'Received 2 results and 8 failures'\n```\n", False),
        ("```bash\necho 'Received 10 results and 0 failures'\n```\n", True),
    ],
)
def test_a_block_that_does_not_work_is_found(pages, tmp_path, monkeypatch, text, good):
    checkout = tmp_path / "source"
    checkout.mkdir()
    for name in ("README.md", "constraints.txt"):
        (checkout / name).write_text(text if name == "README.md" else "")
    for command in (["init", "-q"], ["add", "."]):
        subprocess.run(["git", *command], cwd=checkout, check=True)
    monkeypatch.setattr(pages, "ROOT", checkout)
    monkeypatch.setattr(pages.venv, "create", bare_environment)
    assert pages.run_page("README.md", tmp_path / "work", first=False) is good


def bare_environment(folder: Path, with_pip: bool) -> None:
    """Make an environment without pip, which takes most of the time."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    (folder / "bin" / "pip").write_text("#!/bin/sh\nexit 1\n")
    (folder / "bin" / "pip").chmod(0o755)


@pytest.mark.deployment
def test_the_benchmark_of_a_superlink_runs(data):
    program = [sys.executable, ROOT / "benchmarks" / "superlink.py"]
    done = subprocess.run(
        [*program, "--clients", "3", "--turns", "1"], capture_output=True, text=True, check=False
    )
    assert '"clients": 3' in done.stdout, done.stderr[-3000:]
