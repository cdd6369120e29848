"""A deployed federation: what its server is told of a run, and what a site's owner says.

Both are configurations of Flower's: flat, with '-' for '_'.
"""

import statistics
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Annotated, Any, ClassVar

from msgspec import Meta

from fedeas._internal.files import content_hash
from fedeas._internal.settings import NOT_IDENTITY, Count, Natural, Place, Settings
from fedeas.errors import InputError
from fedeas.train import settings as training
from fedeas.train.settings import Federated, Local, ModelSettings

INSTALL_PRIVATE = 'pip install "fedeas[private]"'
_PRIVATE = (
    f"a setting of federations with secure sums: {INSTALL_PRIVATE}, and use the apps of "
    "fedeas.private.flower"
)
# Settings of a site and of a run that only the private wing has.
PRIVATE_KEYS = dict.fromkeys((
    "allow", "delta", "epsilon", "generator-classifier", "generator-epsilon", "generator-start",
    "group", "identity-key", "members", "per-group", "prior-epsilon", "unit",
), _PRIVATE)  # fmt: skip
MOST_SAMPLES = 2**40 - 1  # of one client
Samples = Annotated[int, Meta(ge=1, le=MOST_SAMPLES)]
_FEDERATED = Federated()
# Methods that send nothing but weights.
_SAFE = "fedavg fedprox scaffold moon class-weights fedlc"


class Deployment(Settings, frozen=True, rename="kebab"):
    """What the server of real sites knows beforehand; a simulation's grid has all of it."""

    sites: Count  # of the federation, numbered from 0, whether they are there or not
    policy: Annotated[str, NOT_IDENTITY]  # what sites generate, each from its own counts
    largest: Samples = MOST_SAMPLES  # real samples that a site may claim
    # A site's weight is at most this many times the median; 0: no bound.
    max_weight_ratio: Annotated[float, Meta(ge=0, lt=1e9)] = 3.0
    max_weight: Natural = 0  # or at most this many samples; 0: by the ratio
    # Norm of a site's update, at most; 0: by the ratio.
    clip_norm: Annotated[float, Meta(ge=0, lt=1e9)] = 0.0
    # An update is scaled down to this many times the median norm of its round; 0: no bound.
    max_norm_ratio: Annotated[float, Meta(ge=0, lt=1e9)] = 3.0

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("max_weight_ratio", "max_norm_ratio"):
            if 0 < (got := getattr(self, name)) < 1:
                what = f"{name.replace('_', '-')} is out of range"
                raise InputError(what, got=got, allowed="from 1, or 0 for no bound")

    def weight_cap(self, sizes: Sequence[int]) -> int:
        """Return the samples that a site is weighted by at most, given those of all sites.

        A site says itself how many samples it has: without a bound one of them can own the model.

        >>> Deployment(5, "none").weight_cap([100, 120, 90, 110, 10**6])
        330
        """
        if self.max_weight or not self.max_weight_ratio:
            return self.max_weight or MOST_SAMPLES
        return max(1, int(self.max_weight_ratio * statistics.median_low(sizes)))


class RunConfig(Deployment, frozen=True, kw_only=True, rename="kebab"):
    """The configuration of a run. What `Federated` and `Local` have too is as it is there."""

    other_keys: ClassVar[Mapping[str, str]] = PRIVATE_KEYS
    out: Place  # folder on the server: checkpoint, log, model
    test_data: Place  # folder of the server's own test images, or the file of its test rows
    classes: str  # names of all classes, with commas between
    policy: Annotated[str, NOT_IDENTITY] = "none"  # what sites generate
    largest: Samples = 1_000_000
    method: str = _FEDERATED.method
    model: str = _FEDERATED.model.name
    rounds: Annotated[Count, NOT_IDENTITY] = _FEDERATED.rounds  # more of them go on with a run
    fraction: training.Fraction = 1.0
    min_reply_fraction: Annotated[training.ReplyFraction, NOT_IDENTITY] = 0.5
    timeout: training.Seconds = _FEDERATED.timeout
    max_in_flight: training.MaxInFlight = _FEDERATED.max_in_flight
    epochs: Count = _FEDERATED.local.epochs
    batch: training.BatchSize = _FEDERATED.local.batch
    learning_rate: training.Rate = _FEDERATED.local.learning_rate
    steps: training.Steps = _FEDERATED.local.steps
    optimizer: str = _FEDERATED.local.optimizer
    ema_decay: training.EmaDecay = _FEDERATED.ema_decay
    threads: Count = _FEDERATED.threads
    seed: int = 42
    device: Place = "auto"  # of the server's tests
    schema: Place = ""  # of a table: the JSON file of its columns that all sites agreed on
    label: Place = "label"  # of a table: the column of the label

    def federated(self) -> Federated:
        """Return how the federation trains, if it does."""
        model, local = ModelSettings(self.model), Local(**self._shared(Local))
        rounds = max(1, self.rounds)
        given = self._shared(Federated)
        return Federated(**{**given, "rounds": rounds, "model": model, "local": local})

    def _shared(self, kind: type[Settings]) -> dict[str, Any]:
        """Return the settings that another kind has too."""
        names = set(kind.__struct_fields__) & set(self.__struct_fields__)
        return {name: getattr(self, name) for name in names}

    def experiment(self, policy: str, normalised_by: Sequence[Sequence[object]]) -> str:
        """Name all that the model of a round depends on: how long to wait is no part of it.

        `normalised_by` are the means and the spreads of samples, and the columns of a table.
        """
        return content_hash([self.identity(), policy, normalised_by])


def check_same_classes(site: Sequence[str], run: Sequence[str]) -> None:
    """Refuse a run about other classes than a site's, or in another order; names the first."""
    for at, (own, other) in enumerate(zip_longest(site, run)):
        if own != other:
            raise InputError(
                f"the run is about other classes than the site: class {at} differs",
                got=other,
                allowed=str(own),
                fix="give the site and the run the same classes, in the same order",
            )


class SiteConfig(Settings, frozen=True, rename="kebab"):
    """What the owner of a site says in the node's configuration."""

    other_keys: ClassVar[Mapping[str, str]] = PRIVATE_KEYS
    partition_id: Natural  # the site's number in the federation, from 0
    classes: str  # of the federation, all of them, in their order, with commas between
    # Folder of its images, CLASS/, train/CLASS/ or train-*.parquet; or a table's file.
    data: str
    state: str  # folder for what it keeps between turns
    # Such as diffusion(model=/models/x); without one it makes nothing.
    generator: str = ""
    cache: str = ""  # folder of generated images; by default inside `state`
    methods: str = _SAFE  # that it takes part in; fedgen tells label counts, fedmix averages
    batch: Count = 64  # images generated at a time
    device: str = "auto"
    # Whether it takes part in training a generator, whose samples can resemble its own.
    train_generator: bool = False
    # The most that it does, whatever the server asks for.
    max_samples: Natural = 50_000  # generated
    max_batch: training.BatchSize = 1024  # images of a training step
    max_epochs: Count = 50  # in a round
    max_steps: Count = 10_000  # in a round, where a server sets their number
    max_learning_rate: float = 1.0
    max_threads: Natural = 0  # 0: as many as the process has cores
    max_model_mb: Natural = 2_000  # of a model's weights
    max_state_mb: Natural = 2_000  # of what methods keep between rounds
    max_cache_mb: Natural = 10_000  # of generated samples
    num_partitions: int = 0  # Flower's simulation names it; nothing here depends on it
    schema: str = ""  # of a table: the JSON file of its columns that all sites agreed on
    label: str = "label"  # of a table: the column of the label

    @property
    def cache_folder(self) -> Path:
        """Where generated images are."""
        return Path(self.cache) if self.cache else Path(self.state) / "cache"
