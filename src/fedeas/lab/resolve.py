"""A config resolved: its strings, names and paths become checked objects here, and only here.

`resolve` opens data, partition, counts, method, policy, plan, generator and model, in this order.
What comes after it takes the `Run`, and opens nothing again.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedeas._internal.files import content_hash, file_hash, locked, store_folder
from fedeas._internal.optional import import_extra
from fedeas._internal.progress import progress
from fedeas._internal.specs import parse, quoted
from fedeas.cache import Cache
from fedeas.cache.storage import samples_place
from fedeas.counts.label_counts import LabelCounts
from fedeas.data import Dataset, Federation, TableOptions, federate, open_dataset
from fedeas.errors import InputError
from fedeas.generators import (
    Generator,
    Resampler,
    check_fits,
    check_stated_classes,
    find_resampler,
    open_generator,
    stated_quality,
)
from fedeas.generators.card import CARD, describe_training
from fedeas.lab.config import Config, PartitionConfig
from fedeas.lab.versions import versions
from fedeas.partition import Recipe, make_partition, site_column
from fedeas.planning.plan import Plan
from fedeas.planning.policies import Policy, make_plan, make_policy, settled_spec
from fedeas.planning.resolve import resolve as resolve_policy
from fedeas.planning.resolve import with_quality
from fedeas.train.loop import find_optimizer, steps_of
from fedeas.train.methods import make_method
from fedeas.train.methods.method import Method
from fedeas.train.models import Classifier, make_model
from fedeas.train.samples import Task
from fedeas.train.tensors import choose_device

if TYPE_CHECKING:
    from fedeas.private.generator.start import PrivateStart

_WITHOUT_ALPHA = ("iid", "shards")
_PRIVATE_SETTINGS = ("epsilon", "delta", "seeded_noise")


@dataclass(frozen=True, eq=False)
class Run:
    """A config, and the objects that its names stand for."""

    config: Config  # its device is a real one, not 'auto'
    table: TableOptions
    federation: Federation  # data, partition and test set
    plan: Plan
    generator: Generator | None  # None where nothing is generated
    method: Method
    task: Task
    model: Classifier  # holds the weights that are evaluated
    generator_spec: str = ""  # by which another process can open the generator
    generator_settings: tuple[tuple[str, object], ...] = ()  # that it is then offered
    trained_on: str = ""  # the data that the generator was trained on, in words
    note: str = ""  # why fewer samples are made than the policy asks for
    steps: tuple[int, ...] = ()  # that each client takes in a round; empty: its samples decide
    start: "PrivateStart | None" = None  # what the first weights are made of, if of anything
    weights: str = ""  # file with the first weights, which a start writes before the first round
    weights_hash: str = ""  # of what the first weights are, if the config names any
    versions: str = ""  # that began it, and those that went on with it

    @cached_property
    def experiment(self) -> str:
        """The name of all that the outcome depends on, but for versions."""
        policy = settled_spec(self.config.augment.policy, self.plan)
        config = self.config.replace(augment=self.config.augment.replace(policy=policy))
        data = self.federation.data.fingerprint
        return config.experiment(data, self.generator_hash, self.weights_hash)

    @cached_property
    def generator_hash(self) -> str:
        """The generator's fingerprint, empty where nothing is generated."""
        return "" if self.generator is None else self.generator.fingerprint

    @property
    def cache_seed(self) -> int:
        """The seed of generated samples: runs of other seeds are repetitions, and share none."""
        return self.config.seed + self.config.augment.seed

    @cached_property
    def cache(self) -> Cache | None:
        """The cache of the run's samples; None where none are generated before training."""
        if self.generator is None or isinstance(self.generator, Resampler):
            return None
        classes = self.federation.data.classes
        return Cache(
            samples_place(self.config.augment.cache or None),
            self.generator,
            classes,
            self.cache_seed,
        )


def resolve(config: Config) -> Run:
    """Open and check all that a config names, and plan; nothing is trained or written."""
    find_optimizer(config.federated.local)
    config = config.replace(device=str(choose_device(config.device)))
    table = table_options(config)
    data = open_data(config, table)
    if data.label_sets is not None:
        raise InputError(
            "runs are compared by accuracy, and these samples have several labels",
            got=data.name,
            fix="use fedeas.train.simulate, or Flower: docs/howto/several_labels.md",
        )
    federation = partition_data(config, data)
    counts = federation.counts
    _check_every_client_trains(counts)
    method = make_method(config.federated.method)  # wrong ones before a generator is made
    method.check_data(data)
    policy = make_policy(config.augment.policy)
    plan = make_plan(policy, counts)
    steps = local_steps(config, counts)
    weights = config.federated.model.weights
    start = _open_start(config, data) if weights and Path(weights).is_dir() else None
    generator, spec, trained_on, note = None, config.augment.generator, "", ""
    if plan.total:
        if makes_private(spec):  # before it is paid for
            _check_budget(start, weights, "private-to-be-made")
        generator, spec = _open_generator(config, federation, table)
        _check_budget(start, weights, generator.fingerprint)
        trained_on = describe_training(generator, federation)
        if spec != config.augment.generator:  # made for this run
            trained_on += ", the run's own clients"
        wanted, plan = plan, feasible(plan, policy, counts, generator)
        if stated_quality(generator) is not None:
            note = describe_cut(wanted, plan)
        if not plan.total:
            generator, trained_on = None, ""
    task = Task.of(data)
    if start is not None:
        weights = ""
    model = make_model(config.federated.model.replace(weights=weights), task, 0)
    return Run(
        config, table, federation, plan, generator, method, task,
        model.to(config.device), spec, generator_settings(config, table), trained_on, note, steps,
        start, weights, _weights_hash(start, weights), versions(),
    )  # fmt: skip


def _open_start(config: Config, data: Dataset) -> "PrivateStart":
    """Open the private generator that the first weights are made of, and see that it fits."""
    module = import_extra("fedeas.private.generator.start", "a private start", "private")
    start: PrivateStart = module.PrivateStart.load(config.federated.model.weights)
    start.check(data, config.federated)
    return start


def _check_budget(start: "PrivateStart | None", weights: str, fingerprint: str) -> None:
    """Refuse a private generator beside another that the first weights were learnt from."""
    if not weights or find_spec("fedeas.private") is None:
        return
    module = import_extra("fedeas.private.generator.start", "a private start", "private")
    first = module.learnt_from(Path(weights)) if start is None else start.generator.fingerprint
    if first:
        module.check_budget(first, fingerprint)


def _weights_hash(start: "PrivateStart | None", weights: str) -> str:
    if start is not None:
        return start.fingerprint
    return file_hash(Path(weights)) if weights else ""


# Data and partition


def table_options(config: Config) -> TableOptions:
    """Return what a config says about the columns of a table."""
    column, site = site_column(config.partition.recipe), config.data.site
    if column and site and column != site:
        raise InputError(
            "the recipe and [data] name different columns of sites",
            got=(column, site),
            fix="leave `site` out: the recipe is enough",
        )
    data = config.data
    return TableOptions(
        label=data.label,
        site=column or site,
        numbers=data.numbers,
        categories=data.categories,
        drop_columns=data.drop_columns,
        test_share=data.test_share,
        test_seed=data.test_seed,
        schema=data.schema,
    )


def open_data(config: Config, table: TableOptions | None = None) -> Dataset:
    """Open the data of a config."""
    return open_dataset(config.data.name, config.data.folder, table or table_options(config))


def partition_data(config: Config, data: Dataset | None = None) -> Federation:
    """Partition the data of a config as it says; they are opened if they are not given."""
    if data is None:
        data = open_data(config)
    recipe = _recipe(config.partition, config.seed)
    return federate(
        data, recipe, config.data.split, config.data.pool_per_class, pool_seed(config),
        config.data.test == "validation",
    )  # fmt: skip


def pool_seed(config: Config) -> int:
    """Return the seed of the samples that no client gets."""
    return config.seed if config.data.pool_seed is None else config.data.pool_seed


def _recipe(partition: PartitionConfig, seed: int) -> Recipe:
    settings = {k: v for k, v in partition.to_dict().items() if k != "recipe"}
    if not site_column(partition.recipe):
        # TOML has no None: the default is not somebody's wish.
        if partition.recipe in _WITHOUT_ALPHA and partition.alpha == PartitionConfig().alpha:
            del settings["alpha"]
        return make_partition(partition.recipe, **settings, seed=seed)
    # The sites decide: only what was set is refused.
    defaults = PartitionConfig().to_dict()
    settings = {key: value for key, value in settings.items() if value != defaults[key]}
    return make_partition(partition.recipe, **settings)


def _check_every_client_trains(counts: LabelCounts) -> None:
    if empty := counts.empty:
        raise InputError(
            "a client without samples cannot train",
            got=list(empty),
            fix="set min_samples = 1 in [partition]",
        )


# Policy, plan and generator


def local_steps(config: Config, counts: LabelCounts) -> tuple[int, ...]:
    """Return the steps that each client takes in a round by `steps_as`; empty without it."""
    if not config.augment.steps_as:
        return ()
    plan = make_plan(make_policy(config.augment.steps_as), counts)
    samples = counts.sizes + plan.per_client
    return tuple(steps_of(int(n), config.federated.local) for n in samples)


def plan_config(config: Config, counts: LabelCounts) -> Plan:
    """Return the plan of a config without opening its generator, whose quality is not known."""
    policy = make_policy(config.augment.policy)
    plan = make_plan(policy, counts)
    generator = find_resampler(config.augment.generator, by_owner=True) if plan.total else None
    return feasible(plan, policy, counts, generator)


def feasible(plan: Plan, policy: Policy, counts: LabelCounts, generator: object) -> Plan:
    """Return the plan of a policy, less what a generator cannot make or makes too badly."""
    if (quality := stated_quality(generator)) is not None:
        policy, asked = with_quality(policy, quality), plan.total
        plan = make_plan(policy, counts)
        if plan.total < asked:
            plan = replace(plan, asked=asked)
    if not plan.total or not isinstance(generator, Resampler):
        return plan
    return Plan.of(
        counts, generator.feasible(plan.samples, counts.n), resolve_policy(policy, counts)
    )


def describe_cut(wanted: Plan, plan: Plan) -> str:
    """Say how much of what the policy asks for the generator's quality leaves; '' if all of it."""
    if plan.total == wanted.total:
        return ""
    lost = [
        name
        for name, before, after in zip(
            plan.class_names, wanted.samples.sum(axis=0), plan.samples.sum(axis=0), strict=True
        )
        if before and not after
    ]
    never = f"; never made: {', '.join(lost)}" if lost else ""
    return (
        f"quality cut: the generator's quality leaves {plan.total:,} of the {wanted.total:,} "
        f"samples that the policy asks for{never}"
    )


def generator_settings(config: Config, table: TableOptions) -> tuple[tuple[str, object], ...]:
    """Return what a generator takes if it has it; `pool` then draws exactly what is held out."""
    return (
        ("data", config.data.name),
        ("folder", config.data.folder),
        ("pool_per_class", config.data.pool_per_class),
        ("split", config.data.split),
        ("seed", pool_seed(config)),
        ("validation", config.data.test == "validation"),
        ("device", config.device),
        ("table", table),
    )


def _open_generator(
    config: Config, federation: Federation, table: TableOptions
) -> tuple[Generator, str]:
    """Return the generator of a config, and the spec by which any process can open it."""
    spec, classes = config.augment.generator, federation.data.classes
    if not spec:
        raise InputError(
            f"policy {config.augment.policy!r} generates samples",
            fix="name a generator in [augment]",
        )
    check_stated_classes(classes, spec)
    spec = make_private_generator(spec, federation, config.seed)
    generator = open_generator(spec, generator_settings(config, table))
    check_fits(federation.data, generator)
    return generator, spec


def makes_private(spec: str) -> bool:
    """Return whether a private generator is made for a run; one of a folder is there already."""
    if not spec:
        return False
    name, settings = parse(spec, "generator")
    return name == "private" and "model" not in settings


def make_private_generator(spec: str, federation: Federation, seed: int) -> str:
    """Return a spec that every process can open; `private` without a model is made first.

    `private(epsilon=1)` is made from the run's own clients, once per data, partition, settings and
    seed; runs that differ in anything else share it. Its noise comes from the operating system, so
    another machine makes another generator; `private(epsilon=1, seeded_noise=true)` makes the same
    one everywhere, without any guarantee.
    """
    if not makes_private(spec):
        return spec
    _, settings = parse(spec, "generator")
    if unknown := [key for key in settings if key not in _PRIVATE_SETTINGS]:
        raise InputError(
            f"generator 'private' has no setting {unknown[0]!r}",
            allowed=", ".join((*_PRIVATE_SETTINGS, "or model alone")),
        )
    make = import_extra("fedeas.private.generator.make", "the generator 'private'", "private")
    options = _private_options(settings)
    sites = [np.asarray(site) for site in federation.partition.train]
    request = make.simulated_request(federation.data, sites, seed=seed, **options)
    folder = store_folder() / "private" / content_hash(request)[:16]
    if not (folder / CARD).exists():
        with locked(folder):
            if not (folder / CARD).exists():  # another run may have made it meanwhile
                with progress("making the generator") as update:
                    make.make_private(
                        federation.data, sites, seed=seed, out=folder, progress=update, **options
                    )
    return f"private(model={quoted(str(folder))})"


def _private_options(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return all settings of `private`: one that is left out is the same as its default."""
    from fedeas.private.accounting import DELTA

    seeded = settings.get("seeded_noise", False)
    if not isinstance(seeded, bool):
        raise InputError("seeded_noise is true or false", got=seeded)
    numbers = {"epsilon": 1.0, "delta": DELTA}
    for name, default in numbers.items():
        try:
            numbers[name] = float(str(settings.get(name, default)))
        except ValueError:
            allowed = {"epsilon": "above 0, or inf for no noise", "delta": "above 0 and below 1"}
            raise InputError(
                f"{name} of 'private' is not a number", got=settings[name], allowed=allowed[name]
            ) from None
    return {**numbers, "seeded_noise": seeded}
