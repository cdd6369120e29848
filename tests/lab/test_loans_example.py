"""Five commands of the documents, from a table of loans to a report."""

import resource
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fedeas.lab.experiment import run
from fedeas.lab.sweep import make_cells, read_sweep, run_specs
from helpers.checkout import ROOT


@pytest.fixture
def commands() -> list[str]:
    """The commands as they are shown."""
    text = (ROOT / "docs" / "training.md").read_text(encoding="utf-8")
    return text.split("## Tables")[1].split("```\n")[1].splitlines()


@pytest.fixture
def desk(data, tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    return Path(shutil.copy(data / "tables" / "loans.parquet", tmp_path)).parent


def test_a_run_finds_the_rows_that_were_filled(desk, commands, fedeas):
    *before, sweep, _ = commands
    for command in before:
        done = fedeas(*shlex.split(command)[1:])
        assert done.code == 0, done.err
    _, ours = make_cells(list(run_specs(read_sweep(desk / shlex.split(sweep)[2]))))
    short = ours.config.federated.replace(rounds=1, fraction=0.02)
    result = run(ours.config.replace(federated=short), desk / "run")
    assert 0 < result["generation"]["made"] < result["generated"] / 10


@pytest.mark.slow
def test_all_five_take_less_than_a_minute_of_one_core(desk, commands, monkeypatch):
    monkeypatch.setenv("FEDEAS_STORE", str(desk / "store"))
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=":")
    assert len(commands) == 5
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    for command in commands:
        subprocess.run(command, shell=True, check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 60
    page = (desk / "report" / "index.html").read_text()
    assert "gain" in page
    assert "drawn by gaussian" in page
