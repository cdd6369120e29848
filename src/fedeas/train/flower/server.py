"""The server of a deployment: from a run's configuration to a model, a log and a checkpoint.

The same run is submitted again after a crash of anything, and goes on after its last round.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np
from flwr.serverapp import Grid

from fedeas._internal.files import locked
from fedeas._internal.optional import import_extra
from fedeas._internal.settings import read_settings
from fedeas.data import Dataset
from fedeas.generators.card import TrainingRecord
from fedeas.train.flower.aggregation import Line
from fedeas.train.flower.deployed import open_part, read_classes, row_policy
from fedeas.train.flower.deployment import RunConfig
from fedeas.train.flower.exchange import WAITS, log_errors_in_one_line
from fedeas.train.flower.rounds import RoundLog, Trained, run_rounds
from fedeas.train.loop import scores
from fedeas.train.models import make_model
from fedeas.train.samples import Samples, Task
from fedeas.train.tensors import Tensors, choose_device, save_tensors

Config = TypeVar("Config", bound=RunConfig)
_LOG = logging.getLogger("flwr")  # Flower streams it to `flwr run --stream`


class StageResult(NamedTuple):
    """What a stage before the first round settles."""

    policy: str | None = None  # None: as the run's configuration says
    name: str = ""  # what else names the run
    weights: str = ""  # file of the first weights; empty: random ones


Stage = Callable[[Grid, Config, Dataset, Path], StageResult]


def run_server(grid: Grid, config: Mapping[str, object]) -> Trained:
    """Train a deployed federation as its run's configuration says.

    Parameters
    ----------
    grid
        The Flower grid of the ServerApp.
    config
        The run's configuration, as in `context.run_config`.
    """
    log_errors_in_one_line()
    return train_sites(grid, read_settings(RunConfig, config, "the run's configuration"))


def train_sites(
    grid: Grid,
    settings: Config,
    stages: Sequence[Stage[Config]] = (),
) -> Trained:
    """Train a deployed federation.

    Parameters
    ----------
    grid
        The Flower grid of the ServerApp.
    settings
        The run's configuration.
    stages
        What is settled with the sites before the first round.
    """
    WAITS.setLevel(logging.INFO)
    data = _test_data(settings)
    task = Task.of(data)
    folder = Path(settings.out)
    with locked(folder, lambda: _LOG.warning("waiting for another run in %s to finish", folder)):
        policy, names, federated = settings.policy, list[str](), settings.federated()
        for stage in stages:
            result = stage(grid, settings, data, folder)
            policy = result.policy or policy
            names += [result.name] if result.name else []
            if result.weights:
                first = federated.model.replace(weights=result.weights)
                federated = federated.replace(model=first)
        check_policy(policy, data.classes)
        if not settings.rounds:
            return Trained({}, [])
        columns = () if task.schema is None else (task.schema.to_list(),)
        normalised_by = (task.mean, task.std, *columns)
        experiment = settings.experiment(" ".join([policy, *names]), normalised_by)
        log = RoundLog(folder / "log.jsonl", [_say])
        trained = run_rounds(
            grid,
            federated,
            task,
            settings.seed,
            folder / "checkpoint.safetensors",
            experiment,
            lambda weights: _measure(weights, settings, task, data),
            log.add,
            log.go_on,
            settings.replace(policy=policy),
        )
        save_tensors(folder / "model.safetensors", trained.weights, {"experiment": experiment})
        if settings.federated().model.is_generator:
            _save_generator(folder / "generator", trained, settings, task, data.classes)
    return trained


def check_policy(policy: str, classes: Sequence[str]) -> None:
    """Refuse a policy that sites would refuse, or one that asks for more than their own counts."""
    row_policy(policy).local([1] * len(classes))


def _save_generator(
    folder: Path,
    trained: Trained,
    settings: RunConfig,
    task: Task,
    classes: Sequence[str],
) -> None:
    """Write the generator that the sites trained, with a card of how they did."""
    federated = settings.federated()
    record = TrainingRecord(
        data="sites",
        steps=sum(int(line["steps"]) for line in trained.history),
        sites=settings.sites,
        rounds=federated.rounds,
    )
    writer = import_extra("fedeas.train.diffusion.sample", "a generator's folder", "generate")
    writer.save_federated_model(folder, trained.weights, federated, task, classes, record)
    _LOG.info("generator: diffusion(model=%s)", folder)


def _test_data(settings: RunConfig) -> Dataset:
    """Open the server's test images; it has no others, so normalisation follows from them."""
    store = str(Path(settings.out) / "store")
    classes = read_classes(settings.classes, "the run")
    data = open_part("test", settings.test_data, store, classes, settings.schema, settings.label)
    return replace(data, train_size=len(data.labels))


def _measure(weights: Tensors, settings: RunConfig, task: Task, data: Dataset) -> Line:
    model = make_model(settings.federated().model, task, 0).to(choose_device(settings.device))
    model.load_state_dict(weights)
    return scores(model, Samples.of(data, np.arange(len(data.labels))))


def _say(line: Line) -> None:
    """Log the result of a round."""
    measured = next((name for name in ("loss", "auroc") if name in line), "accuracy")
    _LOG.info(
        "round %s: %s %.4f, %s sites, %.1f s",
        line["round"], measured, line.get(measured, float("nan")), line["clients"],
        line["seconds"],
    )  # fmt: skip
    for wrong in line["refused"]:
        _LOG.warning("round %s without %s", line["round"], wrong)
    if line.get("capped"):
        _LOG.warning(
            "round %s: clients %s claim a size above %s and weigh no more than that",
            line["round"], line["capped"], line["weight_cap"],
        )  # fmt: skip
    if line.get("clipped"):
        _LOG.warning(
            "round %s: the updates of clients %s were far longer than the median, and were scaled "
            "down to the norm %.3g", line["round"], line["clipped"], line["norm_cap"],
        )  # fmt: skip
    named = {wrong.partition(":")[0] for wrong in line["refused"]}
    if silent := [p for p in line["missing"] if f"client {p}" not in named]:
        _LOG.warning("round %s without clients %s: too late", line["round"], silent)
