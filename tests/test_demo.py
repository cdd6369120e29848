"""The demo, on what everybody has: scikit-learn's digits."""

import csv
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from conftest import Result
from fedeas_lab import demo


@pytest.fixture(autouse=True)
def without_data(monkeypatch):
    monkeypatch.delenv("FEDEAS_DATA", raising=False)


@pytest.mark.slow
def test_the_demo_tells_its_story_and_can_be_told_again(tmp_path, monkeypatch, fedeas):
    """On fewer digits and in fewer rounds than users see."""
    find = demo.find_scene
    monkeypatch.setattr(
        demo,
        "find_scene",
        lambda folder: replace(find(folder), pool_per_class=120, clients=4, rounds=2),
    )
    command = ["demo", "--out", tmp_path / "demo"]
    check_story(fedeas(*command), tmp_path / "demo")
    results = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("result.json")}
    assert len(results) == 2
    again = fedeas(*command)
    assert again.code == 0, again.err
    assert {path: path.stat().st_mtime_ns for path in results} == results  # nothing ran again
    assert re.search(r"generated 0 images in 0 s, \d+ already cached", again.out)
    assert "minutes this time)" in again.out  # the runs of before took longer: see the report


@pytest.mark.slow
def test_the_demo_shows_a_gain(tmp_path):
    """As a process of its own."""
    command = [sys.executable, "-m", "fedeas", "demo", "--out", tmp_path / "demo"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    said = Result(done.returncode, done.stdout, done.stderr)
    plain, ours = check_story(said, tmp_path / "demo")
    assert int(ours["generated"]) > 100
    assert float(ours["accuracy"]) - float(plain["accuracy"]) > 0.05


def check_story(said: Result, folder: Path) -> tuple[dict[str, str], dict[str, str]]:
    """Check what the demo says and leaves; return the rows of its table."""
    assert said.code == 0, said.err
    assert "Warning" not in said.err
    for chapter in ("1. The skew", "2. The plan", "3. The samples", "4. Training", "5. The gain"):
        assert chapter in said.err
    assert "scikit-learn's digits" in said.err
    assert (
        "trained in one place on all 1,437 training images, of which the clients hold" in said.err
    )
    with (folder / "report" / "tables.csv").open() as file:
        plain, ours = csv.DictReader(file)
    assert (plain["policy"], plain["generated"]) == ("none", "0")
    page = (folder / "report" / "index.html").read_text()
    assert page.count("<img") >= 5
    assert "The first 8 of each class, not cherry-picked" in page
    assert re.search(r"1,437 training images, of which the clients hold \d+", page)
    # The images were made before the runs; what they took is in every place that shows cost.
    made, seconds = re.search(r"generated ([\d,]+) images in (\d+) s", said.out).groups()
    assert ours["generated"] == made.replace(",", "")
    assert int(ours["generated"]) > 0
    assert float(ours["generation_seconds"]) == pytest.approx(float(seconds), abs=1)
    assert float(plain["generation_seconds"]) == 0
    assert f"{made}, generated beforehand in" in page
    assert "The paper's" not in page
    return plain, ours
