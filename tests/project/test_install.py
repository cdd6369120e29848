"""A fresh environment without extras: small, complete, quick."""

import json
import os
import re
import resource
import subprocess
import sys
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# What the core needs, and what that needs, on any platform and any release that our ranges admit.
NEEDED = {
    "fedeas", "filelock", "msgspec", "numpy", "typer", "click", "rich", "shellingham",
    "typing-extensions", "annotated-doc", "markdown-it-py", "mdurl", "pygments", "colorama", "pip",
    "setuptools",
}  # fmt: skip


@pytest.fixture(scope="module")
def fresh(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fresh") / "env"
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    install = [python, "-m", "pip", "install", "-q", ROOT]
    subprocess.run(install, check=True, capture_output=True)
    return folder / "bin"


def test_only_what_the_core_needs_is_installed(fresh):
    listing = [fresh / "python", "-m", "pip", "list", "--format", "json"]
    loud = {name: value for name, value in os.environ.items() if name != "PIP_QUIET"}
    done = subprocess.run(listing, capture_output=True, text=True, check=True, env=loud)
    installed = {package["name"].lower().replace("_", "-") for package in json.loads(done.stdout)}
    assert {"fedeas", "filelock", "msgspec", "numpy", "typer"} <= installed <= NEEDED


def test_the_core_plans(fresh, paper_csv):
    done = subprocess.run([fresh / "fedeas", "plan", paper_csv], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "% removed" in done.stdout


def test_the_core_is_small(fresh):
    """Files of all packages but NumPy, and but for the bytecode that Python writes itself."""
    packages = next(fresh.parent.glob("lib/python*/site-packages"))
    others = re.compile(r"numpy|pip|setuptools|pkg_resources|_distutils|distutils")
    files = (
        path
        for part in packages.iterdir()
        if not others.match(part.name)
        for path in [part, *part.rglob("*")]
        if path.is_file() and path.suffix != ".pyc"
    )
    assert sum(path.stat().st_size for path in files) < 20_000_000


def processor_seconds(*command) -> float:
    """Return the least processor time of a command in some runs: other work does not count."""
    times = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, check=True, capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(times)


@pytest.mark.slow
def test_help_and_plans_cost_little_beside_the_libraries(fresh, paper_csv):
    """Against an empty program with the same imports: what is ours must not be noticed."""
    typer = processor_seconds(fresh / "python", "-c", "import typer, rich.table, rich.markdown")
    assert processor_seconds(fresh / "fedeas", "--help") < 2.5 * typer
    numpy = processor_seconds(fresh / "python", "-c", "import numpy, typer, rich.table")
    assert processor_seconds(fresh / "fedeas", "plan", paper_csv) < 2.5 * numpy


def test_help_imports_nothing_heavy():
    program = (
        "import sys; sys.argv = ['fedeas', '--help']\n"
        "from fedeas.cli.main import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "print(sorted({name.split('.')[0] for name in sys.modules}), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    loaded = done.stderr.splitlines()[-1]
    assert "'fedeas'" in loaded
    for name in ("numpy", "torch", "flwr", "diffusers", "matplotlib", "pyarrow", "PIL"):
        assert f"'{name}'" not in loaded


def test_parquet_and_pictures_name_their_extra(fresh, paper_csv, tmp_path):
    for arguments in (
        [tmp_path / "counts.parquet"],
        [paper_csv, "--plot", tmp_path / "plan.png"],
    ):
        done = subprocess.run(
            [fresh / "fedeas", "plan", *arguments], capture_output=True, text=True
        )
        assert done.returncode == 2
        assert f'pip install "{ROOT}[counts]"' in done.stderr.splitlines()[-1]


def test_the_tests_run_on_the_version_that_is_installed(fresh):
    done = subprocess.run(
        [fresh / "fedeas", "--version"], capture_output=True, text=True, check=True
    )
    ours = subprocess.run(
        [sys.executable, "-m", "fedeas", "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout == ours.stdout


def test_the_quick_start_comes_with_the_package(fresh, tmp_path):
    """From an installation, not a checkout: the app, and a patch that fits it."""
    made = [fresh / "fedeas", "init", "quickstart"]
    done = subprocess.run(made, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "flwr run" in done.stderr
    app = tmp_path / "quickstart"
    assert (app / "quickstart" / "client_app.py").is_file()
    with (app / "fedeas.patch").open() as patch:
        subprocess.run(["patch", "-p1"], stdin=patch, cwd=app, check=True, capture_output=True)
    assert "fedeas.augment(" in (app / "quickstart" / "task.py").read_text()
    again = subprocess.run(made, cwd=tmp_path, capture_output=True, text=True)
    assert again.returncode == 2
    assert "exists already" in again.stderr
