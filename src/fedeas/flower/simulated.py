"""A simulated client: its part of a shared data set, and its images from a shared cache."""

import hashlib
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path

from flwr.app import Context

from fedeas.cache import ClientSamples, Planned
from fedeas.data import ALL_FOUND, Dataset, TableOptions, load_data
from fedeas.flower.site import OpenSite, Site, with_synthetic
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

    def opener(self) -> OpenSite:
        """Return the function that opens the site of a Flower context."""
        return partial(open_simulated, self)


def open_simulated(simulation: Simulation, context: Context) -> Site:
    """Open the site whose partition the node's configuration names."""
    number = int(context.node_config["partition-id"])
    data = _data(simulation.data, simulation.data_folder, simulation.table)
    parts = _partition(simulation.partition).train
    real, clients = Samples.of(data, parts[number]), len(parts)
    return Site(
        number,
        real,
        partial(_augmented, simulation, real, number),
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


def _augmented(simulation: Simulation, real: Samples, number: int, _policy: str) -> Samples:
    """Return the client's real samples and its synthetic ones, generated on first use.

    The plan is there already: no policy is asked for.
    """
    if simulation.plan is None:
        return real
    plan = _plan(simulation.plan)
    synthetic = ClientSamples(
        plan.client_names[number],
        Planned(plan.samples[number]),
        simulation.generator,
        Path(simulation.cache),
        simulation.cache_seed,
        simulation.batch,
        offered=simulation.offered,
    )
    return with_synthetic(real, synthetic)


# Opened once a process, however many clients take their turns in it.
@lru_cache(maxsize=2)
def _data(name: str, folder: str | None, table: TableOptions) -> Dataset:
    return load_data(name, folder, table)


@lru_cache(maxsize=2)
def _partition(path: str) -> Partition:
    return Partition.load(path)


@lru_cache(maxsize=2)
def _plan(path: str) -> Plan:
    return Plan.load(path)
