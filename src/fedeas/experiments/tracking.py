"""Trackers of a run in addition to its own log: TensorBoard and MLflow."""

import os
import re
import warnings
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from importlib import import_module
from pathlib import Path
from typing import Any

from fedeas.errors import InputError, MissingExtraError, first_line
from fedeas.flower.log import Line

Follow = Callable[[Line], None]
_SHOWN = ("accuracy", "drift", "seconds", "trained_on", "clients")
_NEEDED = {"tensorboard": "torch.utils.tensorboard", "mlflow": "mlflow"}


def check_trackers(names: Sequence[str]) -> None:
    """Refuse a tracker that is unknown, or not installed, before anything is run."""
    for name in names:
        if name not in _NEEDED:
            raise InputError("unknown tracker", got=name, allowed=", ".join(_NEEDED))
        try:
            import_module(_NEEDED[name])
        except ModuleNotFoundError:
            raise MissingExtraError(f"tracking with {name}", name) from None


def followers(
    names: Sequence[str], folder: Path, settings: dict[str, Any], stack: ExitStack
) -> list[Follow]:
    """Return functions to call with every line of a run; `stack` closes them when it ends.

    TensorBoard's files are below the run's folder: `tensorboard --logdir FOLDER`. MLflow gets the
    experiment MLFLOW_EXPERIMENT_NAME of MLFLOW_TRACKING_URI; without these, 'fedeas' of a
    `mlflow.db` in the folder.
    """
    check_trackers(names)
    known = {"tensorboard": _tensorboard, "mlflow": _mlflow}
    return [known[name](folder, settings, stack) for name in names]


def _tensorboard(folder: Path, settings: dict[str, Any], stack: ExitStack) -> Follow:
    from torch.utils.tensorboard import SummaryWriter

    writer = stack.enter_context(SummaryWriter(str(folder / "tensorboard")))

    def follow(line: Line) -> None:
        for name in _SHOWN:
            if name in line:
                writer.add_scalar(name, line[name], line["round"])
        writer.flush()

    return follow


def _mlflow(folder: Path, settings: dict[str, Any], stack: ExitStack) -> Follow:
    from mlflow.exceptions import MlflowException

    try:
        with warnings.catch_warnings():
            # From the database library that MLflow uses; the user cannot act on it.
            warnings.simplefilter("ignore", DeprecationWarning)
            client, run = _mlflow_run(folder, settings)
    except MlflowException as error:
        said = re.sub(r"//[^/@\s]+@", "//", first_line(error))  # a URI may hold a password
        raise InputError(
            f"cannot track with MLflow: {said}", fix="check MLFLOW_TRACKING_URI"
        ) from None

    def end(kind: object, *_: object) -> None:
        client.set_terminated(run, "FINISHED" if kind is None else "FAILED")

    stack.push(end)

    def follow(line: Line) -> None:
        for key in _SHOWN:
            if key in line:
                client.log_metric(run, key, float(line[key]), step=line["round"])

    return follow


def _mlflow_run(folder: Path, settings: dict[str, Any]) -> tuple[Any, str]:
    """Return MLflow's client and run: as the environment says, or in the run's folder."""
    import mlflow

    own = f"sqlite:///{folder.resolve() / 'mlflow.db'}"
    client = mlflow.MlflowClient(tracking_uri=os.environ.get("MLFLOW_TRACKING_URI") or own)
    title = os.environ.get("MLFLOW_EXPERIMENT_NAME") or "fedeas"
    found = client.get_experiment_by_name(title)
    experiment = found.experiment_id if found else client.create_experiment(title)
    # A resumed run is the same run.
    name = settings["experiment"]
    earlier = client.search_runs([experiment], f"tags.experiment = '{name}'", max_results=1)
    run = earlier[0] if earlier else client.create_run(experiment, tags={"experiment": name})
    if not earlier:
        for key in ("method", "policy", "data"):
            client.log_param(run.info.run_id, key, settings[key])
    return client, str(run.info.run_id)
