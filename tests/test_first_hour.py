"""The benchmark of the first hour types what the pages show."""

import importlib

import pytest
import typer.main

from fedeas.cli import add_installed_commands, app
from test_deployment import ROOT


@pytest.fixture
def first_hour(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    return importlib.import_module("first_hour")


def test_every_command_is_on_its_page(first_hour):
    add_installed_commands()
    commands = typer.main.get_command(app).commands
    for name, step in first_hour.STEPS.items():
        if name == "profile" and name not in commands:
            continue  # not a command of this version
        page = (ROOT / step.page).read_text(encoding="utf-8")
        for command in (step.install, *step.commands):
            assert command in page, f"{step.page} does not show {command!r}"


def test_a_step_beyond_its_goal_or_with_an_error_fails(first_hour, monkeypatch, capsys):
    slow = first_hour.Step(0, "README.md", "", ("sleep 0.2",))
    wrong = first_hour.Step(60, "README.md", "", ("cat counts.csv", "cat no-such-file"))
    good = first_hour.Step(60, "README.md", "", ("grep fracture counts.csv",))
    monkeypatch.setattr(first_hour, "STEPS", {"slow": slow, "wrong": wrong, "good": good})
    monkeypatch.setattr("sys.argv", ["first_hour.py", "--skip-install"])
    assert first_hour.main() == 1
    assert '"late_or_failed": ["slow", "wrong"]' in capsys.readouterr().out
    monkeypatch.setattr("sys.argv", ["first_hour.py", "--skip-install", "--only", "good"])
    assert first_hour.main() == 0
