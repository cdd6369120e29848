"""A simulated client: its part of a shared data set, and its images from a shared cache."""

import secrets
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import Any

from flwr.app import Context

from fedeas.cache import ClientSamples
from fedeas.data import INFER_ALL, Dataset, TableOptions, open_dataset
from fedeas.errors import InputError
from fedeas.generators import Generator, open_generator
from fedeas.partition import Partition
from fedeas.planning.plan import ClientPlan, Plan
from fedeas.train.flower.site import OpenSite, Site, with_synthetic
from fedeas.train.samples import Samples


@dataclass(frozen=True)
class Simulation:
    """Where simulated clients find what they have; paths, so that it travels to any process."""

    data: str
    data_folder: str | None
    partition: str  # file of the partition
    plan: str | None  # file of the plan; None where nothing is generated
    generator: str
    offered: tuple[tuple[str, object], ...]  # settings that a generator takes if it has them
    cache: str
    cache_seed: int
    batch: int  # images generated at a time
    folder: str  # what clients keep
    device: str = "auto"
    table: TableOptions = INFER_ALL
    # Fingerprints of the data and of the generator that the run was planned with.
    data_hash: str = ""
    generator_hash: str = ""
    steps: tuple[int, ...] = ()  # of each client's turn; empty: as the server says
    token: str = ""  # of one run in one process: what it opens is kept for it alone

    def opener(self) -> OpenSite:
        """Return the function that opens the site of a Flower context."""
        return partial(open_simulated, replace(self, token=secrets.token_hex(8)))

    def opener_of(
        self,
        data: Dataset,
        partition: Partition,
        plan: Plan | None,
        generator: Generator | None,
    ) -> OpenSite:
        """Return the same for clients in this process: they share what the run has opened."""
        files = _Files(self)
        opened = {"data": data, "partition": partition, "plan": plan, "generator": generator}
        vars(files).update(opened)
        return partial(_open_site, files)


@dataclass(frozen=True)
class _Files:
    """What simulated clients share, each opened when it is first needed."""

    simulation: Simulation
    models: dict[object, Any] = field(default_factory=dict)  # that clients train, one at a time

    @cached_property
    def data(self) -> Dataset:
        """The samples of all clients."""
        simulation = self.simulation
        data = open_dataset(simulation.data, simulation.data_folder, simulation.table)
        _check("the data", data.fingerprint, simulation.data_hash)
        return data

    @cached_property
    def partition(self) -> Partition:
        """Whose samples are where."""
        return Partition.load(self.simulation.partition)

    @cached_property
    def plan(self) -> Plan | None:
        """What every client generates; None where nothing is generated."""
        return None if self.simulation.plan is None else Plan.load(self.simulation.plan)

    @cached_property
    def generator(self) -> Generator:
        """What draws the synthetic samples."""
        generator = open_generator(self.simulation.generator, self.simulation.offered)
        _check("the generator", generator.fingerprint, self.simulation.generator_hash)
        return generator


def _check(what: str, fingerprint: str, planned: str) -> None:
    """Refuse a file that is another one than when the run was planned."""
    if planned and fingerprint != planned:
        raise InputError(
            f"{what} has changed since the run began",
            got=fingerprint,
            allowed=planned,
            fix="run it again, in another folder",
        )


# By the token of a run: the same paths may hold something else in the next one.
_kept_files = lru_cache(maxsize=2)(_Files)


def open_simulated(simulation: Simulation, context: Context) -> Site:
    """Open the site whose partition the node's configuration names.

    What a run has opened in this process is kept for it; without a token all is opened anew.
    """
    return _open_site((_kept_files if simulation.token else _Files)(simulation), context)


def _open_site(files: _Files, context: Context) -> Site:
    simulation, number = files.simulation, int(context.node_config["partition-id"])
    real = Samples.of(files.data, files.partition.train[number])
    return Site(
        number,
        real,
        partial(_augmented, files, real, number),
        Path(simulation.folder) / str(number),
        simulation.device,
        models=files.models,
        steps=simulation.steps[number] if simulation.steps else None,
    )


def _augmented(files: _Files, real: Samples, number: int, _policy: str) -> Samples:
    """Return the client's real samples and its synthetic ones, generated on first use.

    The plan is there already: no policy is asked for.
    """
    simulation, plan = files.simulation, files.plan
    if plan is None:
        return real
    synthetic = ClientSamples(
        plan.client_names[number],
        ClientPlan(plan.samples[number]),
        files.generator if plan.samples[number].any() else simulation.generator,
        Path(simulation.cache),
        simulation.cache_seed,
        simulation.batch,
    )
    return with_synthetic(real, synthetic)
