"""A deployed federation: what its server is told of a run, and what a site's owner says.

Both are configurations of Flower's: flat, with '-' for '_'.
"""

import statistics
from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta

from fedeas.errors import InputError
from fedeas.files import content_hash
from fedeas.settings.base import (
    NOT_IDENTITY,
    UNLESS_DEFAULT,
    Count,
    Natural,
    Place,
    Settings,
    Share,
)
from fedeas.settings.training import (
    Average,
    BatchSize,
    Federated,
    Fraction,
    Local,
    ModelSettings,
    Rate,
    Seconds,
    Steps,
    Window,
)

LEDGER_FOLDER = "ledger"  # in a site's state
MOST_SAMPLES = 2**40 - 1  # of one client
Samples = Annotated[int, Meta(ge=1, le=MOST_SAMPLES)]
# Far above what any site should promise: at 1 / N, giving away one sample of N is allowed.
Delta = Annotated[float, Meta(gt=0, le=1e-2)]
_FEDERATED = Federated()
# All that are noisy sums.
_QUERIES = (
    "class-totals beta price embedding image-moments image-products feature-means "
    "feature-products column-counts row-moments train"
)
# Methods that send nothing but weights.
_PRIVATE = "fedavg fedprox scaffold moon class-weights fedlc fedrs fedvls"


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
    aggregation: str = "mean"  # or trimmed-mean(share=0.2), which does not weigh sites by samples
    # With secure and clip-norm: noise that makes the whole run cost one sample of a site this
    # epsilon, at delta; 0: none.
    epsilon: Annotated[float, Meta(ge=0, lt=1e6), UNLESS_DEFAULT] = 0.0
    delta: Annotated[Delta, UNLESS_DEFAULT] = 1e-6
    members: Place = ""  # members.toml of the federation, on the server; needed for secure sums
    # What a policy's `target=federation` may cost one sample of a site.
    prior_epsilon: Annotated[float, Meta(gt=0), NOT_IDENTITY] = 1.0
    # The federation's own generator, made before the first round from a noisy sum that costs one
    # sample of a site this epsilon; 0: none. Its fingerprint is part of the experiment.
    generator_epsilon: Annotated[float, Meta(ge=0), NOT_IDENTITY] = 0.0
    generator_way: Annotated[str, NOT_IDENTITY] = ""  # moments, features or embedding
    generator_steps: Annotated[Natural, NOT_IDENTITY] = 0  # of its training; 0: the default

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

    out: Place  # folder on the server: checkpoint, log, model
    test_data: Place  # folder of the server's own test images, or the file of its test rows
    classes: str  # names of all classes, with commas between
    policy: Annotated[str, NOT_IDENTITY] = "fedeas(beta=12)"  # or negotiate
    largest: Samples = 1_000_000
    method: str = _FEDERATED.method
    model: str = _FEDERATED.model.name
    rounds: Annotated[Count, NOT_IDENTITY] = _FEDERATED.rounds  # more of them go on with a run
    fraction: Fraction = 1.0
    minimum: Annotated[Share, NOT_IDENTITY] = 0.5
    secure: Annotated[bool, NOT_IDENTITY] = _FEDERATED.secure
    timeout: Seconds = _FEDERATED.timeout
    window: Window = _FEDERATED.window
    epochs: Count = _FEDERATED.local.epochs
    batch: BatchSize = _FEDERATED.local.batch
    learning_rate: Rate = _FEDERATED.local.learning_rate
    steps: Steps = _FEDERATED.local.steps
    optimizer: Annotated[str, UNLESS_DEFAULT] = _FEDERATED.local.optimizer
    average: Average = _FEDERATED.average
    threads: Count = _FEDERATED.threads
    seed: int = 42
    device: Place = "auto"  # of the server's tests
    schema: Place = ""  # of a table: the JSON file of its columns that all sites agreed on
    label: Place = "label"  # of a table: the column of the label

    def federated(self) -> Federated:
        """Return how the federation trains."""
        model, local = ModelSettings(self.model), Local(**self._shared(Local))
        return Federated(**{**self._shared(Federated), "model": model, "local": local})

    def _shared(self, kind: type[Settings]) -> dict[str, Any]:
        """Return the settings that another kind has too."""
        names = set(kind.__struct_fields__) & set(self.__struct_fields__)
        return {name: getattr(self, name) for name in names}

    def experiment(self, policy: str, normalised_by: Sequence[Sequence[object]]) -> str:
        """Name all that the model of a round depends on: how long to wait is no part of it.

        `normalised_by` are the means and the spreads of samples, and the columns of a table.
        """
        named: list[object] = [self.identity(), policy, normalised_by]
        if self.epsilon:
            # More rounds, or some without noise, would cost a site more than epsilon in all.
            named += [self.rounds, self.secure]
        return content_hash(named)


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


class RoundSum(Settings, frozen=True):
    """What a round's sum is of. All clients see the same: it is part of the name of the sum.

    `content` is a hash of the weights: a server that sends one client another model than the rest
    could tell its update from theirs.
    """

    experiment: str
    round: Count
    content: str
    most: Annotated[int, Meta(ge=1, lt=2**53)]  # the weights of all clients together, at most
    cap: Annotated[int, Meta(ge=0, lt=2**53)] = 0  # of one client's weight; 0: none
    drift: bool = False  # whether the directions of updates are added up too
    clip: Annotated[float, Meta(ge=0, lt=1e9)] = 0.0  # norm of an update; 0: as it is
    rho: Annotated[float, Meta(ge=0, lt=1e6)] = 0.0  # cost of the noise; 0: none

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.rho and not self.clip:
            raise InputError("noise needs a norm to clip updates to", fix="set clip-norm")

    def weight(self, samples: int) -> int:
        """Return a client's weight: its samples, up to the cap; with noise all weigh the same."""
        if self.rho:
            return 1
        return min(samples, self.cap or samples, self.most)


class SiteConfig(Settings, frozen=True, rename="kebab"):
    """What the owner of a site says in the node's configuration."""

    partition_id: Natural  # the site's number in the federation, from 0
    classes: str  # of the federation, all of them, in their order, with commas between
    # Folder of its images, CLASS/, train/CLASS/ or train-*.parquet; or a table's file.
    data: str
    state: str  # folder for what it keeps between turns
    # diffusion(model=/models/x), ..., or own for the federation's; without one it makes nothing.
    generator: str = ""
    cache: str = ""  # folder of generated images; by default inside `state`
    methods: str = _PRIVATE  # that it takes part in; fedgen tells label counts, fedmix averages
    batch: Count = 64  # images generated at a time
    device: str = "auto"
    # The privacy of one sample of this site, added or removed, in all noisy sums together: across
    # queries, runs and servers.
    epsilon: Annotated[float, Meta(gt=0, lt=1e6)] = 3.0
    delta: Delta = 1e-6
    allow: str = _QUERIES  # sums that it answers, with noise; with `exact`, also without
    identity_key: str = ""  # file of its private key, for secure sums: fedeas members new-key
    members: str = ""  # members.toml of the federation, compared with the other sites
    secure: bool = False  # whether updates leave it only in secure sums
    # Whether it takes part in training a generator, whose samples can resemble its own.
    train_generator: bool = False
    # The most that it does, whatever the server asks for.
    max_samples: Natural = 50_000  # generated
    max_batch: BatchSize = 1024  # images of a training step
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

    @property
    def ledger_folder(self) -> Path:
        """Where every noisy answer is entered before it is sent."""
        return Path(self.state) / LEDGER_FOLDER
