"""One config, one folder: config, partition, plan, generation, checkpoint, log, result.

A result holds all that tables and figures need, and its own checksum. It follows from the
checkpoint, which has one too; the other files are for readers, and are written anew on every start.
"""

import logging
import platform
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, replace
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

from fedeas._internal.blocks import usable_cores
from fedeas._internal.files import locked, read_json, write_json
from fedeas._internal.progress import Progress
from fedeas.cache.fill import fill
from fedeas.cache.storage import samples_place
from fedeas.cache.store import work
from fedeas.data import describe_columns
from fedeas.errors import FedeasError, InputError, MissingExtraError
from fedeas.lab.config import Config, read_config
from fedeas.lab.resolve import Run, resolve
from fedeas.lab.results import Result, curves, read_result, summarise
from fedeas.lab.versions import library_version
from fedeas.train.flower.aggregation import Line
from fedeas.train.flower.backends import check_backend, run_on_backend
from fedeas.train.flower.client import make_client_app
from fedeas.train.flower.rounds import RoundLog, Trained, run_rounds
from fedeas.train.flower.simulated import Simulation
from fedeas.train.flower.site import OpenSite
from fedeas.train.loop import keep_memory, scores, use_threads
from fedeas.train.samples import Samples
from fedeas.train.tensors import Tensors

_CLIENTS_PER_GPU = 4  # on Ray, at a time
_LOG = logging.getLogger("fedeas")
_SCALARS = ("accuracy", "drift", "seconds", "trained_on", "clients")  # that TensorBoard shows

OnRound = Callable[[Line], None]


def run(
    config: Config | Path | str,
    out: Path | str,
    log: Callable[[str], None] | None = None,
    on_round: OnRound | None = None,
    progress: Progress | None = None,
    tensorboard: bool = False,
) -> Result:
    """Train a federation and return the result; run again, it resumes.

    Parameters
    ----------
    config : Config, path or str
        The run's settings, or the TOML file that holds them.
    out : path or str
        The run's folder: config, partition, plan, checkpoint, log and result.
    log : callable, optional
        Is given a line about the data and one about the plan.
    on_round : callable, optional
        Is given a dict after every round, as in `log.jsonl`.
    progress : callable, optional
        Is given the number of samples made and to be made, before the first round.
    tensorboard : bool
        Also log rounds for TensorBoard, in the run's folder.

    Returns
    -------
    dict
        What `result.json` holds: `accuracy`, `accuracy_last`, `generated`, `curves` and more.

    """
    if not isinstance(config, Config):
        config = read_config(config)
    if config.federated.model.is_generator:
        fix = "fedeas generator federated CONFIG --out FOLDER"
        raise InputError("the config trains a generator, not a classifier", fix=fix)
    check_backend(config.backend)
    if tensorboard:
        _check_tensorboard()
    resolved, folder = resolve(config), Path(out)
    with run_lock(folder):
        if (result := _finished(folder, resolved)) is not None:
            return result
        resolved = claim_folder(folder, resolved)
        if log is not None:
            _describe(resolved, log)
        _write_inputs(folder, resolved)
        use_threads(resolved.config.federated.threads)
        generation = _generate(resolved, folder / "generation.json", progress)
        resolved = _write_start(resolved, folder)
        trained = train(resolved, folder, on_round, tensorboard)
        result = _result(resolved, generation, trained.history)
        write_json(folder / "result.json", result)
    return result


def train(
    run: Run, folder: Path, on_round: OnRound | None = None, tensorboard: bool = False
) -> Trained:
    """Train the model of a run on its backend, from the checkpoint in its folder."""
    config, data = run.config, run.federation.data
    federated = config.federated.replace(model=config.federated.model.replace(weights=run.weights))
    test = Samples.of(data, run.federation.test)
    keep_memory()

    def evaluate(weights: Tensors) -> Line:
        run.model.load_state_dict(weights)
        return scores(run.model, test, config.federated.local.precision, data.sites)

    def main(grid: Any) -> Trained:
        return run_rounds(
            grid, federated, run.task, config.seed, folder / "checkpoint.safetensors",
            run.experiment, evaluate, log.add, log.go_on,
        )  # fmt: skip

    log = RoundLog(folder / "log.jsonl", [on_round] if on_round is not None else [])
    clients, threads = len(run.federation.partition.train), config.federated.threads
    app = make_client_app(_site_opener(run, folder))
    with ExitStack() as stack:
        if tensorboard:
            log.listeners.append(_tensorboard(folder, stack))
        return run_on_backend(config.backend, app, clients, threads, main, _gpus(config))


def _site_opener(run: Run, folder: Path) -> OpenSite:
    """Return what opens a client: in this process it shares the run's objects, on Ray it cannot."""
    config, plan = run.config, run.plan if run.plan.total else None
    simulation = Simulation(
        data=config.data.name,
        data_folder=config.data.folder,
        partition=str(folder / "partition.npz"),
        plan=None if plan is None else str(folder / "plan.json"),
        generator=run.generator_spec,
        offered=run.generator_settings,
        cache=str(samples_place(config.augment.cache or None)),
        cache_seed=run.cache_seed,
        batch=config.augment.batch,
        folder=str(folder / "clients"),
        device=config.device,
        table=run.table,
        data_hash=run.federation.data.fingerprint,
        generator_hash=run.generator_hash,
        steps=run.steps,
    )
    if config.backend == "inline":
        federation = run.federation
        return simulation.opener_of(federation.data, federation.partition, plan, run.generator)
    return simulation.opener()


def _gpus(config: Config) -> float:
    """Return the part of a GPU that a client on Ray gets: all cores' clients share them all.

    Every client is a process with a CUDA context of its own, some half a gigabyte: a machine of
    many cores would fill a GPU with contexts. Ray takes no part above one that is not whole.
    """
    if not config.device.startswith("cuda"):
        return 0.0
    at_a_time = max(1, usable_cores() // config.federated.threads)
    share = torch.cuda.device_count() / at_a_time
    return min(1.0, max(share, 1 / _CLIENTS_PER_GPU))


# The folder of a run


@contextmanager
def run_lock(folder: Path) -> Iterator[None]:
    """Hold a run's folder; a second process is told, instead of training the same run twice."""

    def busy() -> None:
        raise InputError(f"{folder} is being run by another process", fix="wait for it")

    with locked(folder, busy):
        yield


def claim_folder(folder: Path, run: Run) -> Run:
    """Write the config down, or see that the folder is of the same run, and with which versions.

    A damaged config is written anew: result and checkpoint name their experiment themselves.
    """
    path = folder / "config.json"
    begun = (folder / "checkpoint.safetensors").exists()
    try:
        record = read_json(path)
        used = [str(each) for each in record["versions"]]
    except (InputError, KeyError, TypeError):
        record, used = {"experiment": run.experiment}, ["unknown versions"] if begun else []
    if record.get("experiment") != run.experiment:
        raise InputError(f"{folder} holds another run", fix="choose another folder")
    if used[-1:] != [run.versions]:
        if used:
            _LOG.warning("%s was begun with %s; it goes on with %s", folder, used[-1], run.versions)
        used.append(run.versions)
        config = run.config.to_dict()
        write_json(path, {"experiment": run.experiment, "versions": used, "config": config})
    return replace(run, versions="; then ".join(used))


def _describe(run: Run, log: Callable[[str], None]) -> None:
    log(run.federation.describe())
    for line in describe_columns(run.federation.data):
        log(line)
    log(repr(run.plan))
    if run.note:
        log(run.note)


def _write_inputs(folder: Path, run: Run) -> None:
    """Write who has what, and who generates what."""
    run.federation.partition.save(folder / "partition.npz")
    run.federation.counts.save(folder / "counts.json")
    if run.federation.data.schema is not None:
        run.federation.data.schema.save(folder / "schema.json")
    run.plan.save(folder / "plan.json")


def _generate(run: Run, path: Path, progress: Progress | None) -> dict[str, Any]:
    """Fill the cache, in batches that mix all clients, and note what that took in all starts."""
    cache = run.cache
    if run.generator is None or cache is None:
        return {"made": run.plan.total, "seconds": 0.0}  # made while clients train
    real, augment = run.federation.data.samples, run.config.augment
    filled = fill(
        run.plan, run.generator, cache, augment.batch, progress, like=real,
        workers=augment.workers, gpus_per_worker=augment.gpus_per_worker,
        address=augment.address or None,
    )  # fmt: skip
    if filled.failed:
        raise FedeasError(str(filled.failed[0]), fix="run it again to try once more")
    count, seconds = 0, 0.0
    try:
        before = read_json(path)
        count, seconds = int(before["made"]), float(before["seconds"])
    except (InputError, KeyError, TypeError, ValueError):
        pass  # the first start, or a damaged note: what was made then is not counted
    seconds = round(seconds + filled.seconds, 3)
    generation: dict[str, Any] = {"made": count + filled.generated, "seconds": seconds}
    write_json(path, generation)
    # Samples that others made took their time as well.
    return generation | {"cache": cache.storage.name, "in_cache": asdict(work(cache))}


def _write_start(run: Run, folder: Path) -> Run:
    """Write the first weights that a private start gives the model; a run that goes on has them."""
    if run.start is None:
        return run
    config, path = run.config, folder / "start.safetensors"
    run.start.write(path, run.federation.data, config.federated, config.seed, config.device)
    return replace(run, weights=str(path))


# Its result


def _finished(folder: Path, run: Run) -> Result | None:
    """Return the result of this experiment where there is a whole one."""
    try:
        result = read_result(folder / "result.json")
    except InputError:
        return None
    return result if result["experiment"] == run.experiment else None


def _result(run: Run, generation: dict[str, Any], history: Sequence[Line]) -> Result:
    measured = curves(history)
    return {**about(run), **summarise(measured), "generation": generation, "curves": measured}


def about(run: Run) -> dict[str, Any]:
    """Return what a run is."""
    config, plan = run.config, run.plan
    return {
        "experiment": run.experiment,
        "settings": config.identity(),
        "method": config.federated.method,
        "policy": config.augment.policy,
        "generator": config.augment.generator,
        "split": config.data.split,
        "data": run.federation.describe(),
        "classes": list(run.federation.data.classes),
        **({"sites": list(sites.names)} if (sites := run.federation.data.sites) else {}),
        "seed": config.seed,
        "counts_hash": plan.counts_hash,
        "generator_hash": run.generator_hash,
        "generator_trained_on": run.trained_on,
        **({} if run.start is None else {"start_made_of": str(run.start)}),
        "versions": run.versions,
        "generated": plan.total,
        **({} if plan.asked is None else {"asked": plan.asked}),
        "reduction": plan.reduction,
        "synthetic_share": plan.synthetic_share,
        "on": {
            "device": config.device,
            "machine": platform.machine(),
            "threads": config.federated.threads,
            "torch": library_version("torch"),
        },
    }


# TensorBoard


def _check_tensorboard() -> None:
    """Refuse before anything is run, if TensorBoard is not installed."""
    try:
        import_module("torch.utils.tensorboard")
    except ModuleNotFoundError:
        raise MissingExtraError("logging for TensorBoard", "lab") from None


def _tensorboard(folder: Path, stack: ExitStack) -> OnRound:
    """Return what writes rounds for `tensorboard --logdir FOLDER`, until `stack` is closed."""
    from torch.utils.tensorboard import SummaryWriter

    writer = stack.enter_context(SummaryWriter(str(folder / "tensorboard")))

    def write(line: Line) -> None:
        for name in _SCALARS:
            if name in line:
                writer.add_scalar(name, line[name], line["round"])
        writer.flush()

    return write
