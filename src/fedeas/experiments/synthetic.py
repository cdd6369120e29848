"""The synthetic samples of a finished run, and the real ones that they are compared with."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedeas.cache import Cache, ClientSamples, Planned
from fedeas.cache.block import Ints
from fedeas.cache.store import NAME
from fedeas.data import Federation
from fedeas.data.kinds import Array
from fedeas.errors import InputError
from fedeas.experiments.planning import cache_seed, uses_own_samples
from fedeas.experiments.results import read_result
from fedeas.experiments.sharing import share_out
from fedeas.files import read_json
from fedeas.generators.measure import Drawn, Real
from fedeas.plan import Plan
from fedeas.settings.config import Config
from fedeas.settings.reading import read_settings
from fedeas.training.samples import Samples


@dataclass(frozen=True, eq=False)
class RunSamples:
    """What a run generated, and its real samples."""

    drawn: Drawn
    real: Real
    generator: str


def run_samples(folder: Path) -> RunSamples:
    """Read what a finished run generated; copies and the like are made again, as the run did."""
    config = _config(folder)
    result, plan = read_result(folder / "result.json"), Plan.load(folder / "plan.json")
    federation = share_out(config)
    if plan.counts_hash != federation.counts.fingerprint:
        raise InputError(f"the data of {folder} have changed", fix="run it again in another folder")
    if not plan.total:
        raise InputError(f"{folder} generated no samples")
    parts = (
        _made_again(config, plan, federation)
        if uses_own_samples(config)
        else _cached(run_cache(config.augment.cache, result), plan)
    )
    samples, labels = zip(*parts, strict=True)
    training = np.sort(federation.partition.train.indices)
    return RunSamples(
        Drawn(np.concatenate(samples), np.concatenate(labels)),
        Real(federation.data, training, federation.test),
        str(result["generator"]),
    )


def run_cache(base: str, result: Mapping[str, Any]) -> Cache:
    """Open the cache below a folder that a run's result names."""
    name = str(result["generation"].get("cache"))
    if not NAME.fullmatch(name):
        raise InputError("the run has no cache", got=name)
    return Cache.at(Path(base) / name)


def _config(folder: Path) -> Config:
    try:
        return read_settings(Config, read_json(folder / "config.json")["config"])
    except (KeyError, TypeError):
        raise InputError(f"{folder}/config.json is damaged") from None


def _cached(cache: Cache, plan: Plan) -> Iterator[tuple[Array, Ints]]:
    for client, wanted in zip(plan.client_names, plan.samples, strict=True):
        if wanted.any():
            yield cache.samples(client, wanted.tolist())


def _made_again(config: Config, plan: Plan, federation: Federation) -> Iterator[tuple[Array, Ints]]:
    data, augment = federation.data, config.augment
    parts = zip(plan.client_names, plan.samples, federation.partition.train, strict=True)
    for client, wanted, places in parts:
        if wanted.any():
            own = Samples.of(data, np.asarray(places))
            made = ClientSamples(
                client, Planned(wanted), augment.generator, Path(augment.cache), cache_seed(config)
            )
            yield made.draw(own.counts(), data.classes, data.samples, own)
