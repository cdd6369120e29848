"""A simulated client: its part of a shared data set, and its images from a shared cache."""

import hashlib
import secrets
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial
from pathlib import Path

from flwr.app import Context

from fedeas.cache import ClientSamples, Planned
from fedeas.data import ALL_FOUND, Dataset, TableOptions, load_data
from fedeas.errors import InputError
from fedeas.flower.site import OpenSite, Site, with_synthetic
from fedeas.generators import Generator, open_generator
from fedeas.partition import Partition
from fedeas.plan import Plan
from fedeas.privacy.secure_sum.graph import FEWEST
from fedeas.privacy.secure_sum.identity import Identity, Members
from fedeas.privacy.secure_sum.keys import identity_of
from fedeas.training.samples import Samples


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
    table: TableOptions = ALL_FOUND
    # Fingerprints of the data and of the generator that the run was planned with.
    data_hash: str = ""
    generator_hash: str = ""
    token: str = ""  # of one run in one process: what it opens is kept for it alone

    def opener(self) -> OpenSite:
        """Return the function that opens the site of a Flower context."""
        return partial(open_simulated, replace(self, token=secrets.token_hex(8)))


@dataclass(frozen=True)
class _Files:
    """What simulated clients share, each opened when it is first needed."""

    simulation: Simulation

    @cached_property
    def data(self) -> Dataset:
        """The samples of all clients."""
        simulation = self.simulation
        data = load_data(simulation.data, simulation.data_folder, simulation.table)
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


def _files(simulation: Simulation) -> _Files:
    """Return what a run has opened in this process; without a token everything is opened anew."""
    return _kept_files(simulation) if simulation.token else _Files(simulation)


# By the token of a run: the same paths may hold something else in the next one.
_kept_files = lru_cache(maxsize=2)(_Files)


def open_simulated(simulation: Simulation, context: Context) -> Site:
    """Open the site whose partition the node's configuration names."""
    number = int(context.node_config["partition-id"])
    files = _files(simulation)
    parts = files.partition.train
    real, clients = Samples.of(files.data, parts[number]), len(parts)
    return Site(
        number,
        real,
        partial(_augmented, files, real, number),
        Path(simulation.folder) / str(number),
        simulation.device,
        # Only secure runs need identities, and large simulations have more clients than a sum.
        identity=lambda: simulated_identities(clients)[number],
        sums=Path(simulation.folder) / str(number) / "sums",
    )


def simulated_members(clients: int) -> Members | None:
    """Return the list of simulated clients."""
    identity = simulated_identities(clients)[0]
    return None if identity is None else identity.members


@lru_cache(maxsize=2)
def simulated_identities(clients: int) -> dict[int, Identity | None]:
    """Return the identities of simulated clients, which everybody can compute: one process has all.

    A federation of fewer than three has none.
    """
    if clients < FEWEST:
        return dict.fromkeys(range(clients))
    private = {k: hashlib.sha256(f"simulated client {k}".encode()).digest() for k in range(clients)}
    members = Members.of({f"client-{k}": identity_of(key) for k, key in private.items()})
    return {k: Identity.of(key, members) for k, key in private.items()}


def _augmented(files: _Files, real: Samples, number: int, _policy: str) -> Samples:
    """Return the client's real samples and its synthetic ones, generated on first use.

    The plan is there already: no policy is asked for.
    """
    simulation, plan = files.simulation, files.plan
    if plan is None:
        return real
    synthetic = ClientSamples(
        plan.client_names[number],
        Planned(plan.samples[number]),
        files.generator if plan.samples[number].any() else simulation.generator,
        Path(simulation.cache),
        simulation.cache_seed,
        simulation.batch,
    )
    return with_synthetic(real, synthetic)
