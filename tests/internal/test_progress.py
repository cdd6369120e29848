"""Long work says how far it is and how long the rest will take, on a terminal and elsewhere."""

import io
import os
import pty
import re
import subprocess
import sys
import time

import numpy as np
import pytest

from fedeas import augment
from fedeas._internal import progress


class Slow:
    """Draws grey images, and takes its time."""

    fingerprint, classes = "slow-1", ("cat", "dog", "bird")

    def sample(self, labels, seeds):
        time.sleep(0.02)
        return np.full((len(labels), 8, 8, 1), 128, np.uint8)


def augmented(folder, **more):
    labels = np.repeat([0, 1], [90, 10])
    images = np.zeros((100, 8, 8), np.uint8)
    return augment(
        images, labels=labels, generator=Slow(), beta=12, client="north", cache=folder,
        batch_size=8, **more,
    )  # fmt: skip


@pytest.fixture
def impatient(monkeypatch):
    """A tenth of a second counts as ten."""
    monkeypatch.setattr(progress, "_FIRST", 0.03)
    monkeypatch.setattr(progress, "_EVERY", 0.05)


def test_augment_says_off_a_terminal_how_far_it_is(tmp_path, impatient, capsys):
    augmented(tmp_path)
    lines = capsys.readouterr().err.splitlines()
    shape = r"client north: generating samples: \d+ of 86(, about [\d.]+s left)?"
    assert len(lines) >= 2
    assert all(re.fullmatch(shape, line) for line in lines), lines
    augmented(tmp_path)  # read from disk: nothing to say
    assert capsys.readouterr().err == ""


def test_augment_can_be_silent(tmp_path, impatient, capsys):
    augmented(tmp_path, progress=False)
    assert capsys.readouterr().err == ""


def test_short_work_is_silent(tmp_path, capsys):
    augmented(tmp_path)
    assert capsys.readouterr().err == ""


def test_the_rest_is_estimated_from_the_present_stage(impatient, capsys, monkeypatch):
    """Not from what came before it, be that other work or an earlier start of the same."""
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(progress, "_EVERY", 0.0)
    with progress.progress("own") as update:
        now[0] = 480.0  # eight minutes of something else
        update(200, 400, "samples generated")
        now[0] = 490.0
        update(300, 400, "samples generated")
        for number in (7, 8, 9):
            now[0] += 25.0
            update(number, 10, "rounds, accuracy 18.8 %")
        for number in (1, 2):
            now[0] += 5.0
            update(number, 10, "sites")
    assert capsys.readouterr().err.splitlines() == [
        "own: 200 of 400 samples generated",
        "own: 300 of 400 samples generated, about 10.0s left",
        "own: 7 of 10 rounds, accuracy 18.8 %",
        "own: 8 of 10 rounds, accuracy 18.8 %, about 50.0s left",
        "own: 9 of 10 rounds, accuracy 18.8 %, about 25.0s left",
        "own: 1 of 10 sites",
        "own: 2 of 10 sites, about 40.0s left",
    ]


SHOWN = """
import sys, time
from fedeas._internal import progress
progress._FIRST = 0.05
with progress.progress("generating samples") as update:
    for done in range(1, 31):
        time.sleep(0.02)
        update(done, 30)
"""


def test_a_terminal_shows_a_bar(tmp_path):
    """A real one, from the system."""
    control, terminal = pty.openpty()
    environment = os.environ | {"TERM": "xterm", "COLUMNS": "100"}
    done = subprocess.Popen([sys.executable, "-c", SHOWN], stderr=terminal, env=environment)
    os.close(terminal)
    said = io.BytesIO()
    try:
        while part := os.read(control, 4096):
            said.write(part)
    except OSError:  # Linux: the other end is closed
        pass
    assert done.wait() == 0
    text = said.getvalue().decode()
    assert "generating samples" in text
    assert "/30" in text
    assert "━" in text
