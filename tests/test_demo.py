"""The demo, as a process of its own, on what everybody has: scikit-learn's digits."""

import csv
import re
import subprocess
import sys

import pytest


def test_the_demo_tells_its_story_and_can_be_told_again(tmp_path, monkeypatch, fedeas):
    monkeypatch.delenv("FEDEAS_DATA", raising=False)
    command = ["demo", "--out", tmp_path / "demo"]
    done = subprocess.run(
        [sys.executable, "-m", "fedeas", *command], capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr
    assert "Warning" not in done.stderr
    for chapter in ("1. The skew", "2. The plan", "3. The samples", "4. Training", "5. The gain"):
        assert chapter in done.stderr
    assert "scikit-learn's digits" in done.stderr
    with (tmp_path / "demo" / "report" / "tables.csv").open() as file:
        plain, ours = csv.DictReader(file)
    assert (plain["policy"], plain["generated"]) == ("none", "0")
    assert int(ours["generated"]) > 100
    assert float(ours["accuracy"]) - float(plain["accuracy"]) > 0.05
    page = (tmp_path / "demo" / "report" / "index.html").read_text()
    assert page.count("<img") >= 5
    assert "The first 8 of each class, not cherry-picked" in page
    # The images were made before the runs; what they took is in every place that shows cost.
    made, seconds = re.search(r"generated ([\d,]+) images in (\d+) s", done.stdout).groups()
    assert ours["generated"] == made.replace(",", "")
    assert float(ours["generation_seconds"]) == pytest.approx(float(seconds), abs=1)
    assert float(plain["generation_seconds"]) == 0
    assert f"{made}, generated beforehand in" in page
    assert "The paper's" not in page
    results = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("result.json")}
    assert len(results) == 2
    again = fedeas(*command)
    assert again.code == 0, again.err
    assert {path: path.stat().st_mtime_ns for path in results} == results  # nothing ran again
    assert re.search(r"generated 0 images in 0 s, \d+ already cached", again.out)
