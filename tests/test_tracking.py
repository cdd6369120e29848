"""MLflow where the environment says, or in the run's folder."""

import os
import shutil
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from fedeas import InputError
from fedeas.experiments.tracking import followers

SETTINGS = {"experiment": "abc", "method": "fedavg", "policy": "none", "data": "shapes"}
LINES = [{"round": 1, "accuracy": 0.25}, {"round": 2, "accuracy": 0.5}]


def follow(folder):
    with ExitStack() as stack:
        (hear,) = followers(["mlflow"], folder, SETTINGS, stack)
        for line in LINES:
            hear(line)


def noted(uri, experiment):
    import mlflow

    client = mlflow.MlflowClient(tracking_uri=uri)
    found = client.get_experiment_by_name(experiment)
    (run,) = client.search_runs([found.experiment_id])
    return [m.value for m in client.get_metric_history(run.info.run_id, "accuracy")]


@pytest.fixture(scope="module")
def followed(tmp_path_factory):
    """The folder of a run that was followed, and what was said.

    In a process of its own: libraries warn once. Making a database takes most of the time.
    """
    folder = tmp_path_factory.mktemp("followed")
    code = (
        "import sys; from pathlib import Path; sys.path.insert(0, sys.argv[2]);"
        "import test_tracking; test_tracking.follow(Path(sys.argv[1]))"
    )
    named = ("MLFLOW_TRACKING_URI", "MLFLOW_EXPERIMENT_NAME")
    done = subprocess.run(
        [sys.executable, "-W", "default", "-c", code, folder, Path(__file__).parent],
        env={key: value for key, value in os.environ.items() if key not in named},
        capture_output=True,
        text=True,
        check=True,
    )
    return folder, done.stderr


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # when the test itself reads
def test_the_environment_says_where(followed, tmp_path, monkeypatch):
    folder, _ = followed
    assert noted(f"sqlite:///{folder / 'mlflow.db'}", "fedeas") == [0.25, 0.5]
    shutil.copy(folder / "mlflow.db", tmp_path / "shared.db")
    uri = f"sqlite:///{tmp_path / 'shared.db'}"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "mine")
    (tmp_path / "other").mkdir()
    follow(tmp_path / "other")
    assert noted(uri, "mine") == [0.25, 0.5]
    assert not list((tmp_path / "other").iterdir())


def test_nothing_is_said_that_nobody_can_act_on(followed):
    _, said = followed
    assert "DeprecationWarning" not in said


def test_a_place_that_cannot_be_used_is_one_line_without_the_password(tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "nonsense://me:secret@nowhere")
    with pytest.raises(InputError, match="check MLFLOW_TRACKING_URI") as refused:
        follow(tmp_path)
    assert "secret" not in str(refused.value)
