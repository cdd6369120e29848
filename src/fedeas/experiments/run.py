"""One config, one folder: config, partition, plan, generation, checkpoint, log, result.

A result holds all that tables and figures need, and its own checksum. It follows from the
checkpoint, which has one too; the other files are for readers, and are written anew on every start.
"""

import hashlib
import platform
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from fedeas.cache import Cache, fill
from fedeas.cache.verify import work
from fedeas.cores import usable_cores
from fedeas.data import Federation, described
from fedeas.errors import InputError
from fedeas.experiments.code import code_hash, library_version
from fedeas.experiments.folder import alone, claim
from fedeas.experiments.own import made_spec
from fedeas.experiments.planning import cache_seed, describe_cut, plan_run, uses_own_samples
from fedeas.experiments.results import curves, read_result, summarise
from fedeas.experiments.sharing import share_out, table_options
from fedeas.experiments.tracking import check_trackers, followers
from fedeas.files import file_hash, read_json, write_json
from fedeas.flower.client import make_client_app
from fedeas.flower.grids import check_grid, on_grid
from fedeas.flower.log import Line, RoundLog
from fedeas.flower.rounds import Trained, run_rounds
from fedeas.flower.simulated import Simulation, simulated_members
from fedeas.generators import (
    Generator,
    check_classes,
    check_stated_classes,
    open_generator,
    stated_quality,
)
from fedeas.generators.training_data import describe_training
from fedeas.methods.registry import make_method
from fedeas.plan import Plan
from fedeas.policies import settled_spec
from fedeas.progress import Progress
from fedeas.settings.config import Config, read_config
from fedeas.tensors import Tensors, choose_device
from fedeas.training.loop import keep_memory, scores, use_threads
from fedeas.training.models import make_model
from fedeas.training.optimizers import find_optimizer
from fedeas.training.samples import Samples
from fedeas.training.task import Task

_CLIENTS_PER_GPU = 4  # on Ray, at a time


@dataclass(frozen=True)
class Prepared:
    """A run that can begin: who has what, who generates what, and the name of all that."""

    federation: Federation
    plan: Plan
    named: Callable[[str], str]  # the experiment as code of some hash names it
    generator: Generator | None  # None where nothing is generated
    codes: tuple[str, ...]  # hashes of the code that began it, and of that which went on with it
    spec: str = ""  # by which every process can open the generator
    note: str = ""  # why fewer samples are made than the policy asks for
    trained_on: str = ""  # the data that the generator was trained on, in words

    @property
    def experiment(self) -> str:
        """The name of all that the outcome depends on, as the code that began it says."""
        return self.named(self.codes[0])

    @property
    def drawn_by(self) -> str:
        """The generator's fingerprint, empty where nothing is generated."""
        return "" if self.generator is None else self.generator.fingerprint

    def open_cache(self, config: Config) -> Cache | None:
        """Return the cache of the run's samples, where any are generated and kept."""
        if self.generator is None or uses_own_samples(config):
            return None
        classes = self.federation.data.classes
        return Cache(config.augment.cache, self.generator, classes, cache_seed(config))


def prepare(config: Config) -> Prepared:
    """Share out the data, plan, and open the generator, without training."""
    find_optimizer(config.federated.local)
    federation = share_out(config)
    if empty := federation.counts.empty:
        raise InputError(
            "a client without samples cannot train",
            got=list(empty),
            fix="set min_samples = 1 in [partition]",
        )
    make_method(config.federated.method).check_data(federation.data.schema)
    plan = plan_run(config, federation.counts)
    generator, spec, note, trained_on = None, config.augment.generator, "", ""
    if plan.total:
        if not config.augment.generator:
            raise InputError(
                f"policy {config.augment.policy!r} generates {plan.total:,} samples",
                fix="name a generator in [augment]",
            )
        check_stated_classes(federation.data.classes, spec)
        spec = made_spec(spec, federation, config.seed)
        generator = open_generator(spec, _offered(config))
        check_classes(federation.data.classes, generator)
        if (quality := stated_quality(generator)) is not None:
            asked, plan = plan, plan_run(config, federation.counts, quality)
            note = describe_cut(asked, plan)
            generator = generator if plan.total else None
        if generator is not None:
            trained_on = describe_training(generator, federation)
            if spec != config.augment.generator:  # made for this run
                trained_on += ", the run's own clients"
    drawn_by = "" if generator is None else generator.fingerprint
    weights = config.federated.model.weights
    known = file_hash(Path(weights)) if weights else ""
    policy = settled_spec(config.augment.policy, plan)
    known_by = config.replace(augment=config.augment.replace(policy=policy))
    named = partial(known_by.experiment, federation.data.fingerprint, drawn_by, known)
    codes = (code_hash(),)
    return Prepared(federation, plan, named, generator, codes, spec, note, trained_on)


def run(
    config: Config | Path | str,
    out: Path | str,
    say: Callable[[str], None] | None = None,
    report: Callable[[Line], None] | None = None,
    track: Sequence[str] = (),
    generated: Progress | None = None,
    allow_other_code: bool = False,
) -> dict[str, Any]:
    """Train a federation and return the result; run again, it resumes.

    Parameters
    ----------
    config : Config, path or str
        The run's settings, or the TOML file that holds them.
    out : path or str
        The run's folder: config, partition, plan, checkpoint, log and result.
    say : callable, optional
        Is given a line about the data and one about the plan.
    report : callable, optional
        Is given a dict after every round, as in `log.jsonl`.
    track : sequence of str
        Where else rounds are logged: 'tensorboard', 'mlflow'.
    generated : callable, optional
        Is given the number of samples made and to be made, before the first round.
    allow_other_code : bool
        Go on with a run that another version of the code or its libraries began, which is refused
        otherwise. Its result names all of them.

    Returns
    -------
    dict
        What `result.json` holds: `accuracy`, `accuracy_last`, `generated`, `curves` and more.

    """
    if not isinstance(config, Config):
        config = read_config(config)
    if config.federated.model.is_generator:
        fix = "fedeas generator train --federated CONFIG"
        raise InputError("the config trains a generator, not a classifier", fix=fix)
    folder = Path(out)
    config = config.replace(device=str(choose_device(config.device)))
    check_grid(config.grid)
    check_trackers(track)
    ready = prepare(config)
    with alone(folder):
        codes = claim(folder / "config.json", config, ready, allow_other_code)
        ready = replace(ready, codes=codes)
        if (done := _finished(folder / "result.json", ready.experiment)) is not None:
            return done
        if say is not None:
            say(ready.federation.describe())
            for line in described(ready.federation.data):
                say(line)
            say(repr(ready.plan))
            if ready.note:
                say(ready.note)
        ready.federation.partition.save(folder / "partition.npz")
        ready.federation.counts.save(folder / "counts.csv")
        if ready.federation.data.schema is not None:
            ready.federation.data.schema.save(folder / "schema.json")
        ready.plan.save(folder / "plan.json")
        use_threads(config.federated.threads)
        made = _generate(config, ready, folder / "generation.json", generated)
        found = curves(train_rounds(config, ready, folder, report, track).history)
        about = _about(config, ready)
        result = {**about, **summarise(found), "generation": made, "curves": found}
        write_json(folder / "result.json", result)
    return result


def train_rounds(
    config: Config,
    ready: Prepared,
    folder: Path,
    report: Callable[[Line], None] | None,
    track: Sequence[str],
) -> Trained:
    """Train the model of a prepared run on its grid, from the checkpoint in its folder."""
    data = ready.federation.data
    task = Task.of(data)
    simulation = Simulation(
        data=config.data.name,
        data_folder=config.data.folder,
        partition=str(folder / "partition.npz"),
        plan=str(folder / "plan.json") if ready.plan.total else None,
        generator=ready.spec,
        offered=_offered(config),
        cache=config.augment.cache,
        cache_seed=cache_seed(config),
        batch=config.augment.batch,
        folder=str(folder / "clients"),
        device=config.device,
        table=table_options(config),
        data_hash=data.fingerprint,
        generator_hash=ready.drawn_by,
    )
    app = make_client_app(simulation.opener())
    log = RoundLog(folder / "log.jsonl", [report] if report is not None else [])
    test = Samples.of(data, ready.federation.test)
    keep_memory()

    def evaluate(weights: Tensors) -> Line:
        model = make_model(config.federated.model, task, 0).to(config.device)
        model.load_state_dict(weights)
        return scores(model, test, config.federated.local.precision)

    def main(grid: Any) -> Trained:
        return run_rounds(
            grid, config.federated, task, config.seed, folder / "checkpoint.safetensors",
            ready.experiment, evaluate, log.add, log.go_on, members=members,
        )  # fmt: skip

    clients, threads = len(ready.federation.partition.train), config.federated.threads
    members = simulated_members(clients) if config.federated.secure else None
    with ExitStack() as stack:
        log.listeners += followers(track, folder, _about(config, ready), stack)
        return on_grid(config.grid, app, clients, threads, main, _gpus(config))


def _generate(
    config: Config, ready: Prepared, note: Path, progress: Progress | None
) -> dict[str, Any]:
    """Fill the cache, in batches that mix all clients, and note what that took in all starts."""
    made: dict[str, Any] = {"made": 0, "seconds": 0.0}
    augment = config.augment
    cache = ready.open_cache(config)
    if ready.generator is None or cache is None:
        return made | {"made": ready.plan.total}  # made while clients train
    real = ready.federation.data.samples
    filled = fill(ready.plan, ready.generator, cache, augment.batch, progress, like=real)
    try:
        before = read_json(note)
        made = {"made": int(before["made"]), "seconds": float(before["seconds"])}
    except (InputError, KeyError, TypeError, ValueError):
        pass  # the first start, or a damaged note: what was made then is not counted
    made = {
        "made": made["made"] + filled.generated,
        "seconds": round(made["seconds"] + filled.seconds, 3),
    }
    write_json(note, made)
    # Samples that others made took their time as well.
    return made | {"cache": cache.folder.name, "in_cache": asdict(work(cache.folder))}


def _offered(config: Config) -> tuple[tuple[str, object], ...]:
    """Return what a generator takes if it has it; `pool` then draws exactly what is held out."""
    return (
        ("data", config.data.name),
        ("folder", config.data.folder),
        ("hold_out", config.data.hold_out),
        ("protocol", config.data.protocol),
        ("seed", config.seed),
        ("device", config.device),
        ("table", table_options(config)),
    )


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


def _about(config: Config, ready: Prepared) -> dict[str, Any]:
    """Return what a run is."""
    return {
        "experiment": ready.experiment,
        "settings": config.identity(),
        "method": config.federated.method,
        "policy": config.augment.policy,
        "generator": config.augment.generator,
        "protocol": config.data.protocol,
        "data": ready.federation.describe(),
        "classes": list(ready.federation.data.classes),
        "seed": config.seed,
        "counts_hash": ready.plan.counts_hash,
        "generator_hash": ready.drawn_by,
        "generator_trained_on": ready.trained_on,
        "code_hash": _code_name(ready.codes),
        "codes": list(ready.codes),
        "generated": ready.plan.total,
        "reduction": ready.plan.reduction,
        "synthetic_share": ready.plan.synthetic_share,
        "on": {
            "device": config.device,
            "machine": platform.machine(),
            "threads": config.federated.threads,
            "torch": library_version("torch"),
        },
    }


def _code_name(codes: tuple[str, ...]) -> str:
    """Name the code of a run; one that several versions made is comparable with no other."""
    return codes[0] if len(codes) == 1 else hashlib.sha256(" ".join(codes).encode()).hexdigest()


def _finished(path: Path, experiment: str) -> dict[str, Any] | None:
    """Return the result of this experiment where there is a whole one."""
    try:
        found = read_result(path)
    except InputError:
        return None
    return found if found["experiment"] == experiment else None
