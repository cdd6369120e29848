"""One config, one folder: config, partition, plan, checkpoint, log, result."""

import hashlib
import json
import os
import statistics
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fedeas.cache import check_classes
from fedeas.data import Federation, federate, load_images
from fedeas.errors import InputError
from fedeas.experiments.config import Config
from fedeas.experiments.tracking import Follow, followers
from fedeas.files import atomic_write, read_text, unreadable
from fedeas.flower.client import make_client_app
from fedeas.flower.grids import on_grid
from fedeas.flower.rounds import Line, Trained, run_rounds
from fedeas.flower.site import Simulation, open_generator
from fedeas.partition import make_recipe
from fedeas.plan import Plan
from fedeas.policies.registry import make_policy
from fedeas.tensors import Tensors, choose_device
from fedeas.training.loop import accuracy, keep_memory
from fedeas.training.models import Task, make_model
from fedeas.training.samples import Samples, channel_statistics


@dataclass(frozen=True)
class Prepared:
    """A run that can begin: who has what, who generates what, and the name of all that."""

    federation: Federation
    plan: Plan
    experiment: str


def prepare(config: Config) -> Prepared:
    """Share out the data, plan, and open the generator, without training."""
    data = load_images(config.data.name, config.data.folder)
    cut = {k: v for k, v in asdict(config.partition).items() if k != "recipe"}
    recipe = make_recipe(config.partition.recipe, **cut, seed=config.seed)
    federation = federate(
        data, recipe, config.data.protocol, config.data.hold_out, seed=config.seed
    )
    plan = make_policy(config.augment.policy).plan(federation.counts)
    drawn_by = ""
    if plan.total:
        if not config.augment.generator:
            raise InputError(
                f"policy {config.augment.policy!r} generates {plan.total:,} samples",
                fix="name a generator in [augment]",
            )
        generator = open_generator(config.augment.generator, _offered(config))
        check_classes(plan, generator)
        drawn_by = generator.fingerprint
    weights = config.federated.model.weights
    known = hashlib.sha256(_content(Path(weights))).hexdigest() if weights else ""
    identity = config.identity(data.fingerprint, drawn_by, known)
    return Prepared(federation, plan, identity)


def run(
    config: Config,
    folder: Path,
    say: Callable[[str], None] | None = None,
    report: Callable[[Line], None] | None = None,
    track: Sequence[str] = (),
) -> dict[str, Any]:
    """Train a federation and return the result; called again, it goes on where it was.

    `report` hears a line a round; `track` names others that do: 'tensorboard', 'mlflow'.
    """
    config = replace(config, device=str(choose_device(config.device)))
    ready = prepare(config)
    folder.mkdir(parents=True, exist_ok=True)
    _claim(folder / "config.json", config, ready.experiment)
    if say is not None:
        say(ready.federation.describe())
        say(repr(ready.plan))
    ready.federation.partition.save(folder / "partition.npz")
    ready.plan.save(folder / "plan.json")
    data = ready.federation.data
    task = Task(len(data.classes), data.images.shape[1:], *channel_statistics(data))
    simulation = Simulation(
        data=config.data.name,
        data_folder=config.data.folder,
        partition=str(folder / "partition.npz"),
        plan=str(folder / "plan.json") if ready.plan.total else None,
        generator=config.augment.generator,
        offered=_offered(config),
        cache=config.augment.cache,
        cache_seed=config.augment.seed,
        batch=config.augment.batch,
        folder=str(folder / "clients"),
        device=config.device,
    )
    app = make_client_app(simulation.opener())
    log = _Log(folder / "log.jsonl", [report] if report is not None else [])
    test = Samples.of(data, ready.federation.test)
    keep_memory()

    def evaluate(weights: Tensors) -> Line:
        model = make_model(config.federated.model, task, 0).to(config.device)
        model.load_state_dict(weights)
        overall, per_class = accuracy(model, test)
        return {"accuracy": overall, "per_class": [round(float(a), 5) for a in per_class]}

    def main(grid: Any) -> Trained:
        return run_rounds(
            grid,
            config.federated,
            task,
            config.seed,
            folder / "checkpoint.safetensors",
            ready.experiment,
            evaluate,
            log.add,
            log.go_on,
        )

    clients, threads = len(ready.federation.partition.train), config.federated.threads
    with ExitStack() as stack:
        log.listeners += followers(track, folder, _about(config, ready), stack)
        trained = on_grid(config.grid, app, clients, threads, main, _gpus(config))
    result = summary(config, ready, trained.history)
    _write_json(folder / "result.json", result)
    return result


def _offered(config: Config) -> tuple[tuple[str, object], ...]:
    """Return what a generator takes if it has it; `pool` then draws exactly what is held out."""
    return (
        ("data", config.data.name),
        ("folder", config.data.folder),
        ("hold_out", config.data.hold_out),
        ("protocol", config.data.protocol),
        ("seed", config.seed),
        ("device", config.device),
    )


def _gpus(config: Config) -> float:
    """Return the part of a GPU that a client on Ray gets: all cores' clients share them all."""
    if not config.device.startswith("cuda"):
        return 0.0
    at_a_time = max(1, (os.cpu_count() or 1) // config.federated.threads)
    return float(torch.cuda.device_count() / at_a_time)


def summary(config: Config, ready: Prepared, history: Any) -> dict[str, Any]:
    """Return the figures of a run."""
    measured = [line["accuracy"] for line in history if "accuracy" in line]
    last = measured[-max(1, min(20, len(measured) // 4)) :]
    return {
        **_about(config, ready),
        "rounds": len(history),
        "accuracy": measured[-1],
        "accuracy_last": statistics.mean(last),
        "accuracy_last_rounds": len(last),
        "accuracy_peak": max(measured),
        "drift_median": statistics.median(line["drift"] for line in history),
        "seconds": round(sum(line["seconds"] for line in history), 1),
    }


def _about(config: Config, ready: Prepared) -> dict[str, Any]:
    """Return what a run is."""
    return {
        "experiment": ready.experiment,
        "method": config.federated.method,
        "policy": config.augment.policy,
        "generator": config.augment.generator,
        "protocol": config.data.protocol,
        "data": ready.federation.describe(),
        "counts_hash": ready.plan.counts_hash,
        "generated": ready.plan.total,
    }


class _Log:
    """One line of JSON a round, for whoever reads along."""

    def __init__(self, path: Path, listeners: list[Follow]) -> None:
        self._path, self.listeners = path, listeners

    def add(self, line: Line) -> None:
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line, default=float) + "\n")
        for listener in self.listeners:
            listener(line)

    def go_on(self, history: Sequence[Line]) -> None:
        """Leave exactly the lines of the checkpoint: a killed run may lack its last one."""
        with atomic_write(self._path) as temporary:
            text = "".join(json.dumps(line, default=float) + "\n" for line in history)
            temporary.write_text(text, encoding="utf-8")
        for listener in self.listeners:
            listener(history[-1])


def _claim(path: Path, config: Config, experiment: str) -> None:
    """Write the config down, or see that the folder is of the same experiment."""
    if not path.exists():
        _write_json(path, {"experiment": experiment, "config": asdict(config)})
        return
    try:
        found = json.loads(read_text(path))["experiment"]
    except (ValueError, KeyError, TypeError):
        raise InputError(f"{path} is damaged", fix="remove it, or choose another folder") from None
    if found != experiment:
        raise InputError(f"{path.parent} holds another run", fix="choose another folder")


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise unreadable(path, error) from None


def _write_json(path: Path, body: object) -> None:
    with atomic_write(path) as temporary:
        temporary.write_text(json.dumps(body, indent=1, default=_plain) + "\n", encoding="utf-8")


def _plain(value: object) -> object:
    return value.item() if isinstance(value, np.generic) else str(value)
