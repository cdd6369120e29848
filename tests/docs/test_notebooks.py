"""The notebooks run from top to bottom, each in a folder of its own."""

import os
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
NAMES = [path.stem for path in sorted(NOTEBOOKS.glob("*.ipynb"))]


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """Decoded data, for all notebooks."""
    return tmp_path_factory.mktemp("store")


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_runs(name, tmp_path, store):
    place = tmp_path / f"{name}.ipynb"
    nbformat.write(nbformat.read(NOTEBOOKS / place.name, as_version=4), place)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", "--nbmake"]
    done = subprocess.run(
        [*command, "--nbmake-timeout=900", "--overwrite", place, "--rootdir", tmp_path],
        env=os.environ | {"FEDEAS_STORE": str(store)},
        cwd=tmp_path, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:]
    made = nbformat.read(place, as_version=4)
    pictures = sum(
        "image/png" in out.get("data", {}) for c in made.cells for out in c.get("outputs", [])
    )
    assert pictures >= 1


def test_notebooks_are_small_and_say_what_to_install():
    paths = sorted(NOTEBOOKS.glob("*.ipynb"))
    assert len(paths) == 5
    for path in paths:
        assert path.stat().st_size < 200_000
        code = [c.source for c in nbformat.read(path, as_version=4).cells if c.cell_type == "code"]
        assert code[0].startswith("# %pip install")
