"""What the project says about itself holds: its gates, the Pythons it names, its public names."""

import re
import tomllib
from pathlib import Path

import fedeas

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
WORKFLOW = (ROOT / ".github" / "workflows" / "ci.yml").read_text()


def test_the_public_workflow_runs_the_same_gate():
    steps = re.findall(r"^ +run: (.+)$", WORKFLOW, re.MULTILINE)
    assert ".ci/run" in steps
    assert "make check" in (ROOT / ".ci" / "run").read_text()
    assert not any("make" in step for step in steps)  # what the gate does is written down once


def test_every_python_that_is_tested_is_named_and_no_other():
    tested = re.findall(r'"(3\.\d+)"', re.search(r"python: \[(.*)\]", WORKFLOW)[1])
    named = re.findall(r"Python :: (3\.\d+)", " ".join(PROJECT["classifiers"]))
    assert tested == named
    assert PROJECT["requires-python"] == f">={tested[0]}"


def test_every_flower_that_is_allowed_is_tested():
    pinned = re.search(r"^flwr==(1\.\d+)", (ROOT / "constraints.txt").read_text(), re.MULTILINE)[1]
    tested = {pinned, *re.findall(r'flwr: "(1\.\d+)', WORKFLOW)}
    (allowed,) = [
        re.search(r"flwr>=1\.(\d+),<1\.(\d+)", line).groups()
        for line in PROJECT["optional-dependencies"]["train"]
        if line.startswith("flwr")
    ]
    assert tested == {f"1.{minor}" for minor in range(*map(int, allowed))}


def test_names_are_listed_once():
    listed = dir(fedeas)
    assert len(listed) == len(set(listed))
    assert set(fedeas.__all__) <= set(listed)
