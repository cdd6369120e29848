"""A deployed client: images in a folder of its own, a generator, a cache, a place for its state.

The owner of the site names all of them in the node's configuration. What the server sends is
hostile until it is checked: it may choose among policies that need the site's own counts alone, and
never sees those counts; how much is generated at most is the owner's to say.
"""

import math
import os
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import TypeVar

import numpy as np
from flwr.app import Context
from flwr.clientapp import ClientApp

from fedeas.cache import Cache, check_classes, client_images
from fedeas.counts import LabelCounts, names
from fedeas.data import ImageData, load_images
from fedeas.errors import InputError
from fedeas.files import read_toml
from fedeas.flower.client import Site, make_client_app
from fedeas.flower.negotiate import Holding, answer_negotiation
from fedeas.generators import open_generator
from fedeas.plan import Plan
from fedeas.policies import FedEAS, FillToMean, FullBalance, LocalPolicy, NoGeneration, WaterFill
from fedeas.specs import parse
from fedeas.training.samples import Samples

Read = TypeVar("Read")
SITES = "FEDEAS_SITES"  # names the folder of simulated sites' configurations
_POLICIES = {p.name: p for p in (FedEAS, WaterFill, FillToMean, FullBalance, NoGeneration)}
_LONGEST = 200  # characters of a policy
_LARGEST = 1e9  # number in one
_PRIVATE = "fedavg fedprox scaffold moon"  # methods that tell nothing of labels or images


@dataclass(frozen=True)
class SiteConfig:
    """What the owner of a site says in the node's configuration, with '-' for '_'."""

    partition_id: int  # the site's number in the federation, from 0
    data: str  # folder of its images: CLASS/, train/CLASS/ or train-*.parquet
    state: str  # folder for what it keeps between turns
    generator: str = ""  # e.g. diffusion(model=/models/x); without one it generates nothing
    cache: str = ""  # folder of generated images; by default inside `state`
    most_samples: int = 50_000  # that it generates, whatever the server asks for
    methods: str = _PRIVATE  # that it takes part in; fedgen tells label counts, fedmix averages
    batch: int = 64  # images generated at a time
    device: str = "auto"

    @classmethod
    def of(cls, config: Mapping[str, object]) -> "SiteConfig":
        """Read a node's configuration; a wrong key is an error.

        >>> SiteConfig.of({"partition-id": 3, "data": "images", "state": "state"}).most_samples
        50000
        """
        given = {key: value for key, value in config.items() if key != "num-partitions"}
        made = read_flat(cls, given, "a site's configuration")
        if made.partition_id < 0 or made.most_samples < 0 or made.batch < 1:
            raise InputError("a number of a site is too small", got=given)
        return made

    @property
    def cache_folder(self) -> Path:
        """Where generated images are."""
        return Path(self.cache) if self.cache else Path(self.state) / "cache"


def read_flat(cls: type[Read], config: Mapping[str, object], what: str) -> Read:
    """Read a flat configuration of Flower's, keys with '-', into a dataclass; strict in keys."""
    known = {f.name.replace("_", "-"): f for f in fields(cls)}  # type: ignore[arg-type]
    given: dict[str, object] = {}
    for key, value in config.items():
        if key not in known:
            raise InputError(f"{what} has an unknown key", got=key, allowed=", ".join(known))
        kind = known[key].type
        whole = kind is float and type(value) is int
        if type(value) is not kind and not whole:
            raise InputError(f"{key!r} of {what} is of a wrong kind", got=value)
        given[known[key].name] = float(str(value)) if whole else value
    for key, own in known.items():
        if own.default is MISSING and own.name not in given:
            raise InputError(f"{what} lacks {key!r}")
    return cls(**given)


def open_deployed(context: Context) -> Site:
    """Open the site of a node; its classes are those of the run's configuration."""
    return open_site(SiteConfig.of(_configured(context)), read_classes(context.run_config))


def make_deployed_app() -> ClientApp:
    """Return the ClientApp of a site: it negotiates and trains with what its node names."""
    app = make_client_app(open_deployed)
    answer_negotiation(app, hold_counts)
    return app


def hold_counts(context: Context) -> Holding:
    """Return what a site negotiates with: its own counts, which do not leave it."""
    site, config = open_deployed(context), SiteConfig.of(_configured(context))
    histogram = np.bincount(site.real.labels, minlength=len(site.real.data.classes))
    return Holding(histogram, Path(config.state) / "sums")


def open_site(config: SiteConfig, classes: tuple[str, ...]) -> Site:
    """Open the site that a configuration describes, with labels numbered as in `classes`."""
    data = _data(config.data, str(Path(config.state) / "store"), classes)
    real = Samples.of(data, np.arange(data.train_size))
    return Site(
        config.partition_id,
        real,
        partial(_augmented, config, real),
        Path(config.state) / "kept",
        config.device,
        tuple(config.methods.split()),
        discreet=True,
    )


def read_classes(run_config: Mapping[str, object]) -> tuple[str, ...]:
    """Read the names of all classes of the federation, which no site may hold all of.

    >>> read_classes({"classes": "cat, dog, bird"})
    ('cat', 'dog', 'bird')
    """
    found = [name.strip() for name in str(run_config.get("classes", "")).split(",")]
    checked = names(found, len(found), "class")
    if checked is None or len(checked) < 2:
        raise InputError("the run names no classes", allowed="two and more, with commas between")
    return checked


def row_policy(spec: str) -> LocalPolicy:
    """Make the policy that a server asks for, if it is one of ours that needs one row alone.

    >>> row_policy("fedeas(beta=12)").local([90, 10, 0])
    array([ 0, 38, 48])
    """
    if len(spec) > _LONGEST:
        raise InputError("a policy of that length", got=len(spec), allowed=f"up to {_LONGEST}")
    name, settings = parse(spec, "policy")
    if name not in _POLICIES:  # a dotted path would let the server run any code here
        raise InputError("not a policy for a site alone", got=name, allowed=", ".join(_POLICIES))
    for key, value in settings.items():
        if not isinstance(value, int | float) or not math.isfinite(value) or abs(value) > _LARGEST:
            raise InputError(f"{key!r} of a policy is out of range", got=value)
    try:
        policy: LocalPolicy = _POLICIES[name](**settings)
    except TypeError:
        raise InputError(f"policy {name!r} has other settings", got=sorted(settings)) from None
    return policy


def _configured(context: Context) -> Mapping[str, object]:
    """Return the node's configuration; a simulated node's is in a file of its own.

    Only this machine's environment names that file: a run's configuration comes from the server.
    """
    config: Mapping[str, object] = context.node_config
    if "data" in config or SITES not in os.environ:
        return config
    number = int(context.node_config["partition-id"])
    return read_toml(Path(os.environ[SITES]) / f"{number}.toml")


def _augmented(config: SiteConfig, real: Samples, spec: str) -> Samples:
    """Return the site's real samples and its synthetic ones, generated on first use."""
    policy, classes = row_policy(spec), real.data.classes
    counts = LabelCounts([np.bincount(real.labels, minlength=len(classes))], classes=classes)
    wanted = policy.local(counts.n[0])
    if not wanted.any():
        return real
    if wanted.sum() > config.most_samples:
        raise InputError(
            "the server asks for more samples than this site generates",
            allowed=f"{config.most_samples}",
        )
    if not config.generator:
        raise InputError("this site has no generator", fix="name one in the node's configuration")
    generator = open_generator(config.generator, (("device", config.device),))
    check_classes(Plan.of(counts, wanted[np.newaxis], policy), generator)
    # Known by classes, not by counts: a site that gets more images keeps what it generated.
    cache = Cache.of_client(config.cache_folder, generator.fingerprint, classes)
    name = str(config.partition_id)
    images = client_images(name, wanted.tolist(), generator, cache, config.batch)
    return Samples.of(real.data, real.indices, *images)


# Opened once a process, however many turns it takes.
@lru_cache(maxsize=8)
def _data(folder: str, store: str, classes: tuple[str, ...]) -> ImageData:
    """Open a site's images with labels as the federation numbers them."""
    return numbered(load_images("site", folder, store, parts=("train",)), classes)


def numbered(data: ImageData, classes: tuple[str, ...]) -> ImageData:
    """Return images with labels as the federation numbers them."""
    if strange := set(data.classes) - set(classes):
        raise InputError(
            "there are classes that the run does not name", got=len(strange), fix="name all of them"
        )
    places = np.array([classes.index(name) for name in data.classes], np.int64)
    return replace(data, labels=places[np.asarray(data.labels)], classes=classes)
