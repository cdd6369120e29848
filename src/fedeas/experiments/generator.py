"""A diffusion model trained by a simulated federation: one config, one folder with a generator."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from fedeas.errors import InputError
from fedeas.experiments.folder import alone, claim
from fedeas.experiments.run import prepare, train_rounds
from fedeas.flower.grids import check_grid
from fedeas.flower.log import Line
from fedeas.generators.card import Card
from fedeas.generators.federated import save_generator
from fedeas.settings.config import Config, read_config
from fedeas.tensors import choose_device
from fedeas.training.task import Task


def train_generator(
    config: Config | Path | str,
    out: Path | str,
    say: Callable[[str], None] | None = None,
    report: Callable[[Line], None] | None = None,
    allow_other_code: bool = False,
) -> Path:
    """Train a diffusion model in rounds and return the generator's folder; run again, it resumes.

    Parameters
    ----------
    config : Config, path or str
        The settings of a run with `unet` as its model, or the TOML file that holds them.
    out : path or str
        Folder of the run: config, partition, checkpoint, log, and the generator in `model`.
    say : callable, optional
        Is given a line about the data.
    report : callable, optional
        Is given a dict after every round, as in `log.jsonl`.
    allow_other_code : bool
        Go on with a training that another version of the code began, which is refused otherwise.
    """
    if not isinstance(config, Config):
        config = read_config(config)
    if not config.federated.model.is_generator:
        raise InputError(
            "the config's model draws nothing",
            got=config.federated.model.name,
            fix='set name = "unet(preset=tiny)" in [federated.model]',
        )
    folder = Path(out)
    config = config.replace(device=str(choose_device(config.device)))
    check_grid(config.grid)
    ready = prepare(config)
    data, federated = ready.federation.data, config.federated
    task = Task.of(data)
    if ready.plan.total:
        raise InputError(
            "a generator is trained on real samples",
            got=config.augment.policy,
            fix='set policy = "none" in [augment]',
        )
    with alone(folder):
        codes = claim(folder / "config.json", config, ready, allow_other_code)
        ready = replace(ready, codes=codes)
        if say is not None:
            say(ready.federation.describe())
        ready.federation.partition.save(folder / "partition.npz")
        trained = train_rounds(config, ready, folder, report, ())
        clients = ready.federation.partition.train
        card = Card(len(clients), federated.rounds, federated.secure, samples=len(clients.indices))
        return save_generator(
            folder / "model",
            trained.weights,
            federated,
            task,
            data.classes,
            data.fingerprint,
            trained.history,
            card,
        )
