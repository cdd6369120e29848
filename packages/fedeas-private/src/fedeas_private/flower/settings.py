"""A deployed federation with secure sums: what its run and its sites are told beside the rest.

Both are configurations of Flower's: flat, with '-' for '_'.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, ClassVar

from msgspec import Meta

from fedeas._util.files import content_hash
from fedeas._util.settings import (
    NOT_IDENTITY,
    Count,
    Place,
    Settings,
)
from fedeas._util.specs import parse
from fedeas.errors import InputError
from fedeas.flower import settings as plain
from fedeas_private.accounting import GROUP, SAMPLE, Unit
from fedeas_private.groups import MOST_PER_GROUP, PER_GROUP
from fedeas_private.ledger import Ledger

LEDGER_FOLDER = "ledger"  # in a site's state
# Far above what any site should promise: at 1 / N, giving away one sample of N is allowed.
Delta = Annotated[float, Meta(gt=0, le=1e-2)]
# What a site may answer beside noisy sums: exact ones, and what training makes of the model.
EXACT, UPDATES = "exact", "updates"
# All that are noisy sums, by name: an owner's own list does not grow when a version adds a query.
NOISY_SUMS = (
    "class-totals beta price image-moments image-products feature-means feature-products "
    "column-counts row-moments train"
)


class RunConfig(plain.RunConfig, frozen=True, kw_only=True, rename="kebab"):
    """The configuration of a run with secure sums. Its policy may be `negotiate`."""

    secure: Annotated[bool, NOT_IDENTITY] = False  # whether the server sees only sums of updates
    # Whose privacy every epsilon is: one sample of a site, or one group such as a person. Sites
    # whose owner chose another unit refuse the run's sums.
    unit: Unit = SAMPLE
    # With secure and clip-norm: noise that makes the whole run cost one unit of a site this
    # epsilon, at delta; 0: none.
    epsilon: Annotated[float, Meta(ge=0, lt=1e6)] = 0.0
    delta: Delta = 1e-6
    members: Place = ""  # members.toml of the federation, on the server; needed for secure sums
    # What a policy's `target=federation` may cost one unit of a site.
    prior_epsilon: Annotated[float, Meta(gt=0), NOT_IDENTITY] = 1.0
    # The federation's own generator, made before the first round from a noisy sum that costs one
    # unit of a site this epsilon; 0: none. Its fingerprint is part of the experiment.
    generator_epsilon: Annotated[float, Meta(ge=0), NOT_IDENTITY] = 0.0
    # Whether a classifier is made of the same epsilon; it stays with the server.
    generator_classifier: Annotated[bool, NOT_IDENTITY] = False
    # Whether the model learns from the generator's samples before the first round.
    generator_start: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.epsilon and not self.secure:
            raise InputError(
                "epsilon without secure sums adds no noise",
                got=self.epsilon,
                fix="set secure = true",
            )
        if self.generator_start and not self.generator_epsilon:
            raise InputError("a private start needs a generator", fix="set generator-epsilon")
        if self.generator_start and self.federated().model.is_generator:
            raise InputError("a private start is for a classifier", got=self.model)
        if self.unit == GROUP:
            _refuse_fedgen([parse(self.method, "method")[0]])

    def experiment(self, policy: str, normalised_by: Sequence[Sequence[object]]) -> str:
        """Name all that the model of a round depends on: how long to wait is no part of it."""
        if not self.epsilon:
            return super().experiment(policy, normalised_by)
        # More rounds, or some without noise, would cost a site more than epsilon in all.
        return content_hash([self.identity(), policy, normalised_by, self.rounds, self.secure])


class SiteConfig(plain.SiteConfig, frozen=True, kw_only=True, rename="kebab"):
    """What the owner of a site says in the node's configuration.

    `generator = "private"` is the generator that the federation makes.
    """

    other_keys: ClassVar[Mapping[str, str]] = {
        "secure": "not needed: with `members`, updates leave only in secure sums unless `allow` "
        "has `updates`"
    }
    # The privacy of one sample of this site, or of one group, added or removed, in all noisy sums
    # together: across queries, runs and servers.
    epsilon: Annotated[float, Meta(gt=0, lt=1e6)] = 3.0
    delta: Delta = 1e-6
    # What leaves it: sums with noise by their names, with `exact` also without, and with `updates`
    # plain training, which tells its label counts; nothing if it is empty. Without this key: noisy
    # sums alone where it has members, and plain training where it has none.
    allow: str | None = None
    identity_key: str = ""  # file of its private key, for secure sums: fedeas keys new-key
    members: str = ""  # members.toml of the federation, compared with the other sites
    # The unit of privacy is a sample, or a group, all samples with the same value: a column of its
    # data, such as patient_id, or a file of ids, a line for every sample in their order.
    group: str = ""
    # Samples of a group that are in a sum at most; together they count as one.
    per_group: Annotated[int, Meta(ge=1, le=MOST_PER_GROUP)] = PER_GROUP

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.group:
            _refuse_fedgen(self.methods.split())

    @property
    def allowed(self) -> tuple[str, ...]:
        """What leaves the site, by name, whatever a run asks for."""
        if self.allow is not None:
            return tuple(self.allow.split())
        return tuple(NOISY_SUMS.split()) if self.members else (UPDATES,)

    @property
    def unit(self) -> Unit:
        """Whose privacy epsilon is: 'sample' or 'group'."""
        return GROUP if self.group else SAMPLE

    @property
    def ledger_folder(self) -> Path:
        """Where every noisy answer is entered before it is sent."""
        return Path(self.state) / LEDGER_FOLDER

    def open_ledger(self) -> Ledger:
        """Open the ledger of the owner's budget and unit; a file of ids may be moved elsewhere."""
        # With a separator in its name a file is not taken for a column.
        group = f"{os.sep}{Path(self.group).name}" if os.sep in self.group else self.group
        return Ledger.open(self.ledger_folder, self.epsilon, self.delta, group)


def _refuse_fedgen(methods: Sequence[str]) -> None:
    """Refuse FedGen by group: its server compares counts of samples with the number of groups."""
    if "fedgen" in methods:
        raise InputError(
            "FedGen tells how many samples a site has of each label, where the unit is a group",
            got="fedgen",
            fix="choose another method, or the unit of a sample",
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
    unit: Unit = SAMPLE  # whose privacy it is

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.rho and not self.clip:
            raise InputError("noise needs a norm to clip updates to", fix="set clip-norm")

    def weight(self, samples: int) -> int:
        """Return a client's weight: its samples, up to the cap; with noise all weigh the same."""
        if self.rho:
            return 1
        return min(samples, self.cap or samples, self.most)
