"""A deployed client: images in a folder of its own, a generator, a cache, a place for its state.

The owner of the site names all of them in the node's configuration, and the classes of the
federation, and the most that a server may ask for. What the server sends is hostile until it is
checked: it may choose among policies that need the site's own counts alone. Whether a request is
refused does not depend on those counts, or a refusal would tell of them: everything is checked
before they are looked at, and what fails afterwards leaves a site with its real samples.
"""

import logging
import math
import os
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Context, Message
from flwr.clientapp import ClientApp
from numpy.typing import NDArray

from fedeas.cache import Cache, ClientSamples
from fedeas.cache.verify import caches, remove
from fedeas.counts import names
from fedeas.data import Dataset, TableOptions, load_images
from fedeas.data.kinds import Array
from fedeas.data.tables import load_table_files
from fedeas.errors import InputError
from fedeas.flower.limits import RefusalLog, refuse_alike
from fedeas.flower.log import log_errors_in_one_line
from fedeas.flower.own_generator import OWN, take_generator, taken_generator, taken_quality
from fedeas.flower.queries import Holding, answer_queries
from fedeas.flower.site import Site, with_synthetic
from fedeas.generators.generator import heavy
from fedeas.policies import FedEAS, FillToMean, FullBalance, LocalPolicy, NoGeneration, WaterFill
from fedeas.policy_settings import with_quality
from fedeas.privacy.ledger import Ledger
from fedeas.privacy.queries.class_totals import least_share
from fedeas.privacy.secure_sum.identity import Identity, Members, load_identity
from fedeas.privacy.secure_sum.memory import own_folder
from fedeas.settings.deployment import SiteConfig, check_same_classes
from fedeas.settings.reading import read_settings
from fedeas.specs import parse
from fedeas.targets import Target, aim_at_classes, inline_target
from fedeas.training.samples import Samples

OWN_FINGERPRINT = f"{OWN}-"  # how the fingerprint of such a generator begins
SITES = "FEDEAS_SITES"  # names the folder of simulated sites' configurations
_POLICIES = {p.name: p for p in (FedEAS, WaterFill, FillToMean, FullBalance, NoGeneration)}
_LONGEST = 20_000  # characters of a policy, which may have a share per class
# Of a number in one that is not 0. Beyond, a plan may be impossible to compute, by the counts.
_RANGES = {"size_exponent": (1e-6, 1.0), "quality": (1e-2, 1.0)}
_OTHER_RANGE = (1e-6, 1e4)
_LOG = logging.getLogger("fedeas")


def make_deployed_app() -> ClientApp:
    """Return the ClientApp of a site: it negotiates and trains with what its node names."""
    if not logging.getLogger().handlers and logging.lastResort is not None:
        # A site's owner reads on standard error why requests were refused.
        logging.getLogger("fedeas").addHandler(logging.lastResort)
    log_errors_in_one_line()
    app = ClientApp(mods=[refuse_alike(_refusals)])
    app.query("hello")(partial(_learn, "hello"))
    app.train()(partial(_learn, "train"))
    app.query("own_generator")(_take_generator)
    answer_queries(app, hold_counts)
    return app


def _take_generator(message: Message, context: Context) -> Message:
    """Keep the federation's own generator."""
    config = _agreed(context)
    if config.generator != OWN:
        raise InputError("this site has a generator of its own", got=config.generator or "none")
    return take_generator(message, open_site(config).real.data, _own_folder(config))


def _learn(what: str, message: Message, context: Context) -> Message:
    """Answer what has to do with training: only that takes torch, which takes seconds to load."""
    client = heavy("fedeas.flower.client", "training", "train")
    reply: Message = getattr(client, what)(message, open_deployed(context))
    return reply


def open_deployed(context: Context) -> Site:
    """Open the site of a node for training."""
    return open_site(_agreed(context))


def hold_counts(context: Context) -> Holding:
    """Return what a site answers queries with: its own counts, its key and its ledger."""
    config = _agreed(context)
    identity = site_identity(config)
    if identity is None:
        raise InputError(
            "this site takes part in no secure sums", fix="set identity-key and members"
        )
    ledger = Ledger.open(config.ledger_folder, epsilon=config.epsilon, delta=config.delta)

    def histogram() -> NDArray[np.int64]:
        return open_site(config).real.counts()

    def samples() -> tuple[Array, NDArray[np.int64]]:
        real = open_site(config).real
        return real.data.samples, real.labels

    return Holding(
        histogram,
        _sums_folder(config),
        identity,
        ledger,
        tuple(config.allow.split()),
        samples,
        len(read_classes(config.classes, "the site")),
        lambda: open_site(config).real.data.samples.shape[1:],
    )


def open_site(config: SiteConfig) -> Site:
    """Open the site that a configuration describes, with labels numbered as in its `classes`."""
    own_folder(Path(config.state))
    classes = read_classes(config.classes, "the site")
    store = str(Path(config.state) / "store")
    data = open_part("train", config.data, store, classes, config.schema, config.label)
    identity = site_identity(config)
    real = Samples.of(data, np.arange(data.train_size))
    return Site(
        config.partition_id,
        real,
        partial(_augmented, config, real),
        Path(config.state) / "kept",
        config.device,
        tuple(config.methods.split()),
        hide_sample_counts=True,
        limits=config,
        identity=lambda: identity,
        sums=_sums_folder(config),
    )


def read_classes(listed: str, whose: str) -> tuple[str, ...]:
    """Read the names of all classes of the federation, which no site may hold all of.

    >>> read_classes("cat, dog, bird", "the site")
    ('cat', 'dog', 'bird')
    """
    found = tuple(name.strip() for name in listed.split(","))
    if len(found) < 2:
        raise InputError(
            f"{whose} does not name the federation's classes",
            got=listed,
            allowed="two or more names, with commas between",
        )
    names(found, len(found), "class")
    return found


def row_policy(spec: str) -> LocalPolicy:
    """Make the policy that a server asks for, if it is one of ours that needs one row alone.

    A target is shares of the classes: anything else might name a file of the site.

    >>> row_policy("fedeas(beta=12)").local([90, 10, 0])
    array([ 0, 38, 48])
    >>> row_policy("fedeas(beta=12, target=0.6:0.3:0.1)").local([90, 10, 0])
    array([0, 0, 2])
    """
    if len(spec) > _LONGEST:
        raise InputError("a policy of that length", got=len(spec), allowed=f"up to {_LONGEST}")
    name, settings = parse(spec, "policy")
    if name not in _POLICIES:  # a dotted path would let the server run any code here
        raise InputError("not a policy for a site alone", got=name, allowed=", ".join(_POLICIES))
    given: dict[str, Any] = {}
    if "target" in settings:
        given["target"] = _shares(settings.pop("target"))
    for key, value in settings.items():
        least, most = _RANGES.get(key, _OTHER_RANGE)
        if not isinstance(value, int | float) or not (value == 0 or least <= abs(value) <= most):
            raise InputError(
                f"{key!r} of a policy is out of range",
                got=value,
                allowed=f"0, or {least:g} to {most:g}",
            )
    try:
        policy: LocalPolicy = _POLICIES[name](**settings, **given)
    except TypeError:
        got = sorted({*settings, *given})
        raise InputError(f"policy {name!r} has other settings", got=got) from None
    return policy


def _shares(given: object) -> Target:
    """Read the target that a server names."""
    if isinstance(given, str) and (found := inline_target(given)) is not None:
        least = least_share(found.array.size)
        if smaller := [share for share in found.array.tolist() if 0 < share < least]:
            raise InputError(
                "a share of a policy's 'target' is too small",
                got=smaller[0],
                allowed=f"0, or {least:g} to 1",
            )
        return found
    raise InputError(
        "'target' of a policy is out of range", got=given, allowed="shares, as in 0.6:0.3:0.1"
    )


def _configured(context: Context) -> SiteConfig:
    """Read the node's configuration; a simulated node's is in a file of its own.

    Only this machine's environment names that file: a run's configuration comes from the server.
    """
    config = context.node_config
    if "data" in config or SITES not in os.environ:
        return read_settings(SiteConfig, config, "a site's configuration")
    number = int(config["partition-id"])
    return read_settings(SiteConfig, Path(os.environ[SITES]) / f"{number}.toml")


def _agreed(context: Context) -> SiteConfig:
    """Return the site's configuration, if the run is about the same classes.

    The owner's list decides, not which of them the site has images of: otherwise a server could
    find those out by leaving one out after the other.
    """
    config = _configured(context)
    of_run = read_classes(str(context.run_config.get("classes", "")), "the run")
    check_same_classes(read_classes(config.classes, "the site"), of_run)
    return config


def _refusals(context: Context) -> RefusalLog:
    return RefusalLog(Path(_configured(context).state) / "refusals")


def site_identity(config: SiteConfig) -> Identity | None:
    """Return the site's key and the members, if its owner named both."""
    if not config.identity_key and not config.members:
        return None
    if not config.identity_key or not config.members:
        raise InputError("a site needs identity-key and members, or neither")
    return Identity.of(load_identity(config.identity_key), Members.load(config.members))


def _sums_folder(config: SiteConfig) -> Path:
    return Path(config.state) / "sums"


def _own_folder(config: SiteConfig) -> Path:
    return Path(config.state) / "generator"


def _augmented(config: SiteConfig, real: Samples, spec: str) -> Samples:
    """Return the site's real samples and its synthetic ones, generated on first use."""
    classes = real.data.classes
    policy = aim_at_classes(row_policy(spec), classes)
    if isinstance(policy, NoGeneration):
        return real
    # Whether anything is wanted follows from the labels, so a lack is told before that is known.
    if not config.generator:
        raise InputError("this site has no generator", fix="name one in the node's configuration")
    generator = config.generator
    if generator == OWN:
        generator = taken_generator(_own_folder(config))
        policy = with_quality(policy, taken_quality(_own_folder(config)))
    policy.local(np.arange(1, len(classes) + 1))  # one that plans for no counts is refused here
    largest = config.max_cache_mb * 1_000_000
    synthetic = ClientSamples(
        str(config.partition_id),
        policy,
        generator,
        config.cache_folder,
        batch_size=config.batch,
        max_samples=min(config.max_samples, largest // _bytes_of_one(real)),
        offered=(("device", config.device),),
        show_progress=True,
        max_bytes=largest,
    )
    cache = synthetic.open_cache(classes)  # a generator of other classes is a lack too
    if config.generator == OWN:
        _remove_earlier(cache)
    try:
        with np.errstate(all="ignore"):
            return with_synthetic(real, synthetic)
    except Exception:
        # What goes wrong from here on may follow from the labels: the server must not hear of it.
        _LOG.exception("no synthetic samples: this site trains on its real ones alone")
        return real


def _bytes_of_one(real: Samples) -> int:
    samples = real.data.samples
    return math.prod(samples.shape[1:]) * samples.dtype.itemsize


def _remove_earlier(cache: Cache) -> None:
    """Remove samples of the generators that the server gave before: each new one needs room."""
    for folder in caches(cache.folder.parent):
        with suppress(InputError, OSError):  # damaged, or another process uses it
            made_by = Cache.at(folder).about["generator"]
            if folder != cache.folder and made_by.startswith(OWN_FINGERPRINT):
                remove(folder, _give_up)


def _give_up() -> None:
    raise InputError("another process fills this cache")


# Opened once a process, however many turns it takes.
@lru_cache(maxsize=8)
def open_part(
    part: str, place: str, store: str, classes: tuple[str, ...], schema: str, label: str
) -> Dataset:
    """Open a site's or the server's own data, all of it for 'train' or for 'test'.

    Labels are numbered as in the federation. What the columns of a table are is agreed on by all
    sites: if a site found that out by itself, it would tell which categories it has.
    """
    name = {"train": "site", "test": "server"}[part]
    if not Path(place).is_file():
        return numbered(load_images(name, place, store, parts=(part,)), classes)
    if not schema:
        raise InputError(
            "a table in a federation needs the columns that all sites agreed on",
            got=place,
            fix="set `schema` to the JSON file that every site has",
        )
    options = TableOptions(label, schema=schema)
    return numbered(load_table_files({part: [Path(place)]}, options, name, store), classes)


def numbered(data: Dataset, classes: tuple[str, ...]) -> Dataset:
    """Return images with labels as the federation numbers them."""
    if strange := set(data.classes) - set(classes):
        raise InputError(
            "there are images of classes that the federation does not name",
            got=sorted(strange)[:5],
            allowed=", ".join(classes),
        )
    places = np.array([classes.index(name) for name in data.classes], np.int64)
    return replace(data, labels=places[np.asarray(data.labels)], classes=classes)
