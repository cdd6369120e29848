"""Followers of a run beside its own log: TensorBoard and MLflow."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from importlib import import_module
from pathlib import Path
from typing import Any

from fedeas.errors import InputError, MissingExtraError
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
        except ImportError:
            raise MissingExtraError(f"tracking with {name}", name) from None


def followers(
    names: Sequence[str], folder: Path, settings: dict[str, Any], stack: ExitStack
) -> list[Follow]:
    """Return what hears every line of a run; `stack` closes them when it ends.

    They write below the run's folder: `tensorboard --logdir FOLDER`, or an MLflow `mlflow.db`.
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
    import mlflow

    client = mlflow.MlflowClient(tracking_uri=f"sqlite:///{folder.resolve() / 'mlflow.db'}")
    name = settings["experiment"]
    found = client.get_experiment_by_name("fedeas")
    experiment = found.experiment_id if found else client.create_experiment("fedeas")
    # A run that goes on is the same run.
    earlier = client.search_runs([experiment], f"tags.experiment = '{name}'", max_results=1)
    run = earlier[0] if earlier else client.create_run(experiment, tags={"experiment": name})
    if not earlier:
        for key in ("method", "policy", "data"):
            client.log_param(run.info.run_id, key, settings[key])

    def end(kind: object, *_: object) -> None:
        client.set_terminated(run.info.run_id, "FINISHED" if kind is None else "FAILED")

    stack.push(end)

    def follow(line: Line) -> None:
        for key in _SHOWN:
            if key in line:
                client.log_metric(run.info.run_id, key, float(line[key]), step=line["round"])

    return follow
