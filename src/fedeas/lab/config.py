"""The config of a run: its data, its partition, what is generated, how it trains."""

from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta

from fedeas._internal.files import content_hash
from fedeas._internal.settings import (
    NOT_IDENTITY,
    Count,
    Natural,
    Place,
    Settings,
    read_settings,
)
from fedeas.train.settings import Federated

Positive = Annotated[float, Meta(gt=0)]
Columns = tuple[str, ...]


class Data(Settings, frozen=True):
    """Which images or table, and who is tested on what."""

    name: str  # below FEDEAS_DATA, in `folder`, of the Hugging Face hub, or a table's file
    folder: Annotated[str | None, NOT_IDENTITY] = None  # of the data's Parquet files
    split: Literal["official", "merged"] = (
        "official"  # 'merged': with the test set; tested on a part of every client's
    )
    pool_per_class: Natural = 0  # samples of every class that no client gets, for the pool
    pool_seed: int | None = None  # which those are; None: the run's
    # 'validation': a fifth of the training samples stands in for the test set, to choose settings.
    test: Literal["test", "validation"] = "test"
    # The columns of a table. What is not named here is found.
    label: str = "label"
    site: str = ""  # which site a row is from; recipe = "column(...)"
    numbers: Columns = ()
    categories: Columns = ()
    drop_columns: Columns = ()  # columns that are not learnt from
    test_share: Annotated[float, Meta(ge=0, lt=1)] = 0.2  # of each class
    test_seed: int = 0  # which rows those are
    schema: Place = ""  # JSON file that says what the columns are, instead of finding it


class PartitionConfig(Settings, frozen=True):
    """How clients share the data."""

    recipe: str = "flbench"  # or dirichlet, iid, shards, column(NAME)
    clients: Count = 20
    alpha: Positive | None = 0.1  # of the Dirichlet distribution: small is skewed
    min_samples: Natural | None = None  # that every client gets at least
    shards_per_client: Count | None = None  # of the recipe shards


class Augment(Settings, frozen=True):
    """What is generated, and by what."""

    policy: str = "none"  # or fedeas(beta=...), uniform(total=...), waterfill(total=...), ...
    generator: str = ""  # pool, private(epsilon=1), diffusion(model=...), package.module:Name
    cache: Place = ""  # folder or address of generated samples; empty: the one of all commands
    seed: int = 0  # added to the run's: another one gives other samples
    batch: Count = 64  # images generated at a time
    # Processes of Ray that generate, each with so many GPUs, and their cluster; 0: the run's own.
    workers: Annotated[Natural, NOT_IDENTITY] = 0
    gpus_per_worker: Annotated[float, Meta(ge=0), NOT_IDENTITY] = 0.0
    address: Place = ""  # auto, or HOST:PORT; empty: RAY_ADDRESS, or this machine
    # The policy whose plan says how many steps each client takes in a round, whatever it is given.
    steps_as: str = ""


class Config(Settings, frozen=True):
    """All that a run depends on; `backend` and `device` only say where it happens."""

    data: Data
    partition: PartitionConfig = PartitionConfig()
    augment: Augment = Augment()
    federated: Federated = Federated()
    seed: int = 42  # of partition, held-out images, weights, cohorts and shuffling
    backend: Place = "inline"  # or ray
    device: Place = "auto"  # cpu, cuda, ...

    def experiment(self, data: str, generator: str, weights: str) -> str:
        """Name what the outcome depends on: settings, and the contents behind names and paths."""
        held: dict[str, Any] = self.identity()
        held["data"]["name"] = data
        held["augment"]["generator"] = generator
        held["federated"]["model"]["weights"] = weights
        return content_hash(held)


def read_config(path: Path | str) -> Config:
    """Read a TOML file; a wrong key is an error that names the nearest right one.

    Parameters
    ----------
    path : Path or str
        The TOML file.
    """
    return read_settings(Config, Path(path))
