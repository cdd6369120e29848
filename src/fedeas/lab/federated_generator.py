"""A diffusion model trained by a simulated federation: one config, one folder with a generator."""

from collections.abc import Callable
from pathlib import Path

from fedeas.errors import InputError
from fedeas.generators.card import TrainingRecord
from fedeas.lab.config import Config, read_config
from fedeas.lab.experiment import OnRound, claim_folder, run_lock, train
from fedeas.lab.resolve import resolve
from fedeas.train.diffusion.sample import save_federated_model
from fedeas.train.flower.backends import check_backend


def train_generator(
    config: Config | Path | str,
    out: Path | str,
    log: Callable[[str], None] | None = None,
    on_round: OnRound | None = None,
) -> Path:
    """Train a diffusion model in rounds and return the generator's folder; run again, it resumes.

    Parameters
    ----------
    config : Config, path or str
        The settings of a run with `unet` as its model, or the TOML file that holds them.
    out : path or str
        Folder of the run: config, partition, checkpoint, log, and the generator in `model`.
    log : callable, optional
        Is given a line about the data.
    on_round : callable, optional
        Is given a dict after every round, as in `log.jsonl`.
    """
    if not isinstance(config, Config):
        config = read_config(config)
    if not config.federated.model.is_generator:
        raise InputError(
            "the config's model draws nothing",
            got=config.federated.model.name,
            fix='set name = "unet(preset=tiny)" in [federated.model]',
        )
    check_backend(config.backend)
    run, folder = resolve(config), Path(out)
    if run.plan.total:
        raise InputError(
            "a generator is trained on real samples",
            got=config.augment.policy,
            fix='set policy = "none" in [augment]',
        )
    with run_lock(folder):
        run = claim_folder(folder, run)
        if log is not None:
            log(run.federation.describe())
        run.federation.partition.save(folder / "partition.npz")
        trained = train(run, folder, on_round)
        data, federated = run.federation.data, config.federated
        clients = run.federation.partition.train
        steps = sum(int(line["steps"]) for line in trained.history)
        record = TrainingRecord(
            data.fingerprint, len(clients.indices), steps, len(clients), federated.rounds
        )
        return save_federated_model(
            folder / "model", trained.weights, federated, run.task, data.classes, record
        )
