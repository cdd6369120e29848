"""A deployed federation with secure sums: what its run and its sites are told beside the rest.

Both are configurations of Flower's: flat, with '-' for '_'.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, ClassVar

from msgspec import Meta

from fedeas._internal.settings import NOT_IDENTITY, Natural, Place
from fedeas._internal.specs import parse
from fedeas.errors import InputError
from fedeas.planning.targets import FEDERATION
from fedeas.private.accounting import GROUP, SAMPLE, Unit
from fedeas.private.groups import MOST_PER_GROUP, PER_GROUP
from fedeas.private.ledger import Ledger
from fedeas.train.flower import deployment as plain
from fedeas.train.settings import Federated

LEDGER_FOLDER = "ledger"  # in a site's state
# Far above what any site should promise: at 1 / N, giving away one sample of N is allowed.
Delta = Annotated[float, Meta(gt=0, le=1e-2)]
UPDATES = "updates"  # what training makes of the model, which a site may send beside noisy sums
# All that are noisy sums, by name: an owner's own list does not grow when a version adds a query.
NOISY_SUMS = (
    "class-totals image-moments image-products feature-means feature-products "
    "column-counts row-moments"
)


class RunConfig(plain.RunConfig, frozen=True, kw_only=True, rename="kebab"):
    """The configuration of a run with secure sums."""

    other_keys: ClassVar[Mapping[str, str]] = {}
    # With none, the run ends when the generator is made.
    rounds: Annotated[Natural, NOT_IDENTITY] = Federated().rounds
    # Whose privacy every epsilon is: one sample of a site, or one group such as a person. Sites
    # whose owner chose another unit refuse the run's sums.
    unit: Unit = SAMPLE
    members: Place = ""  # members.toml of the federation, on the server; needed for secure sums
    # What a policy's `target=federation` may cost one unit of a site.
    prior_epsilon: Annotated[float, Meta(gt=0, lt=1e6), NOT_IDENTITY] = 1.0
    # The federation's own generator, made before the first round from a noisy sum that costs one
    # unit of a site this epsilon; 0: none. Its fingerprint is part of the experiment.
    generator_epsilon: Annotated[float, Meta(ge=0, lt=1e6), NOT_IDENTITY] = 0.0
    # Whether a classifier is made of the same epsilon; it stays with the server.
    generator_classifier: Annotated[bool, NOT_IDENTITY] = False
    # Whether the model learns from the generator's samples before the first round.
    generator_start: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.rounds and not self.generator_epsilon:
            raise InputError(
                "a run without rounds makes a generator, or nothing", fix="set generator-epsilon"
            )
        if not self.rounds and (self.generator_start or self.aims_at_federation):
            raise InputError(
                "a run without rounds has no use for a start, or for the federation's shares",
                fix="leave out generator-start and target=federation, or set rounds",
            )
        if self.generator_start and not self.generator_epsilon:
            raise InputError("a private start needs a generator", fix="set generator-epsilon")
        if self.generator_start and self.federated().model.is_generator:
            raise InputError("a private start is for a classifier", got=self.model)
        if self.unit == GROUP:
            _refuse_fedgen([parse(self.method, "method")[0]])

    @property
    def aims_at_federation(self) -> bool:
        """Whether it asks for the federation's class distribution."""
        return bool(parse(self.policy, "policy")[1].get("target") == FEDERATION)


class SiteConfig(plain.SiteConfig, frozen=True, kw_only=True, rename="kebab"):
    """What the owner of a site says in the node's configuration.

    `generator = "private"` is the generator that the federation makes.
    """

    other_keys: ClassVar[Mapping[str, str]] = {}
    # The privacy of one sample of this site, or of one group, added or removed, in all noisy sums
    # together: across queries, runs and servers.
    epsilon: Annotated[float, Meta(gt=0, lt=1e6)] = 3.0
    delta: Delta = 1e-6
    # What leaves it: noisy sums by their names, and with `updates` plain training, which tells its
    # label counts; nothing if it is empty. Without this key: noisy sums alone where it has members,
    # and plain training where it has none.
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
