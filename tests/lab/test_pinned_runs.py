"""What must not change by accident: weights of small runs, a plan's file, generated samples.

The hashes are those that `helpers/pinned_runs.py` leaves. A change of the mathematics changes them,
and says so; a change of shape does not.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

HELPERS = Path(__file__).parents[1] / "helpers"
RECORDED = HELPERS.parent / "data" / "pins.json"
# The kernels that every processor has.
PLAIN = {"ATEN_CPU_CAPABILITY": "default", "MKL_CBWR": "COMPATIBLE", "OMP_NUM_THREADS": "1"}


@pytest.mark.parametrize("runs", [3, pytest.param(7, marks=pytest.mark.slow)])
def test_runs_plans_and_samples_are_what_they_were(tmp_path, runs):
    environment = os.environ | PLAIN
    command = [sys.executable, "-W", "ignore", HELPERS / "pinned_runs.py", tmp_path, str(runs)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    made, recorded = (json.loads(p.read_text()) for p in (tmp_path / "pins.json", RECORDED))
    assert len(made) == runs + 3  # a run with the seeds of now, a plan, samples
    assert made == {name: recorded[name] for name in made}
