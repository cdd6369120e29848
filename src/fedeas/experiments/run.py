"""One config, one folder: config, partition, plan, checkpoint, log, result."""

import json
import statistics
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedeas.data import Federation, federate, load_images
from fedeas.errors import InputError
from fedeas.experiments.config import Config
from fedeas.experiments.tracking import Follow, followers
from fedeas.files import atomic_write, read_text
from fedeas.flower.client import make_client_app
from fedeas.flower.grids import on_grid
from fedeas.flower.rounds import Line, Trained, run_rounds
from fedeas.flower.site import Simulation
from fedeas.partition import make_recipe
from fedeas.plan import Plan
from fedeas.policies.registry import make_policy
from fedeas.tensors import Tensors, choose_device
from fedeas.training.loop import accuracy, keep_memory
from fedeas.training.models import Task, make_model
from fedeas.training.samples import Samples, channel_statistics


@dataclass(frozen=True)
class Prepared:
    """A run that can begin: who has what, and who generates what."""

    federation: Federation
    plan: Plan


def prepare(config: Config) -> Prepared:
    """Share out the data and plan, without training."""
    data = load_images(config.data.name, config.data.folder)
    cut = {k: v for k, v in asdict(config.partition).items() if k != "recipe"}
    recipe = make_recipe(config.partition.recipe, **cut, seed=config.seed)
    federation = federate(
        data, recipe, config.data.protocol, config.data.hold_out, seed=config.seed
    )
    plan = make_policy(config.augment.policy).plan(federation.counts)
    if plan.total and not config.augment.generator:
        raise InputError(
            f"policy {config.augment.policy!r} generates {plan.total:,} samples",
            fix="name a generator in [augment]",
        )
    return Prepared(federation, plan)


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
    folder.mkdir(parents=True, exist_ok=True)
    _claim(folder / "config.json", config)
    ready = prepare(config)
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
        # What makes `pool` draw exactly the images that were held out here.
        offered=(
            ("data", config.data.name),
            ("folder", config.data.folder),
            ("hold_out", config.data.hold_out),
            ("protocol", config.data.protocol),
            ("seed", config.seed),
        ),
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
        model = make_model(config.federated.model, task, 0).to(choose_device(config.device))
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
            config.fingerprint,
            evaluate,
            log.add,
        )

    clients, threads = len(ready.federation.partition.train), config.federated.threads
    with ExitStack() as stack:
        log.listeners += followers(track, folder, _about(config, ready), stack)
        trained = on_grid(config.grid, app, clients, threads, main)
    log.rewrite(trained.history)
    result = summary(config, ready, trained.history)
    _write_json(folder / "result.json", result)
    return result


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
        "experiment": config.fingerprint,
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

    def rewrite(self, history: Any) -> None:
        """Leave exactly one line a round: a killed run may have written one twice."""
        with atomic_write(self._path) as temporary:
            text = "".join(json.dumps(line, default=float) + "\n" for line in history)
            temporary.write_text(text, encoding="utf-8")


def _claim(path: Path, config: Config) -> None:
    """Write the config down, or see that the folder is of the same experiment."""
    if not path.exists():
        _write_json(path, {"experiment": config.fingerprint, "config": asdict(config)})
        return
    try:
        found = json.loads(read_text(path))["experiment"]
    except (ValueError, KeyError, TypeError):
        raise InputError(f"{path} is damaged", fix="remove it, or choose another folder") from None
    if found != config.fingerprint:
        raise InputError(f"{path.parent} holds another run", fix="choose another folder")


def _write_json(path: Path, body: object) -> None:
    with atomic_write(path) as temporary:
        temporary.write_text(json.dumps(body, indent=1, default=_plain) + "\n", encoding="utf-8")


def _plain(value: object) -> object:
    return value.item() if isinstance(value, np.generic) else str(value)
