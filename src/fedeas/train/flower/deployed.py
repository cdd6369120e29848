"""A deployed client: images in a folder of its own, a generator, a cache, a place for its state.

The owner of the site names all of them in the node's configuration, and the classes of the
federation, and the most that a server may ask for. What the server sends is hostile until it is
checked: it may choose among policies that need the site's own counts alone. Whether a request is
refused does not depend on those counts, or a refusal would tell of them: everything is checked
before they are looked at, and what fails afterwards leaves a site with its real samples. A refusal
that gives its reason is an answer too: the server always gets the same one, and the reason stays
in the site's own log.
"""

import logging
import math
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np
from flwr.app import Context, Message
from flwr.clientapp import ClientApp
from numpy.typing import NDArray

from fedeas._internal.files import owner_only_folder
from fedeas._internal.optional import import_extra
from fedeas._internal.settings import read_settings
from fedeas._internal.specs import parse
from fedeas.cache import Cache, ClientSamples
from fedeas.counts.label_counts import names
from fedeas.data import Dataset, TableOptions, load_images, open_dataset
from fedeas.errors import FedeasError, InputError
from fedeas.generators import check_fits
from fedeas.planning.policies import (
    FedEAS,
    FullBalance,
    LocalPolicy,
    NoGeneration,
)
from fedeas.planning.resolve import with_quality
from fedeas.planning.targets import Target, aim_at_classes, inline_target, least_share
from fedeas.train.flower.deployment import SiteConfig, check_same_classes
from fedeas.train.flower.exchange import log_errors_in_one_line
from fedeas.train.flower.site import Site, with_synthetic
from fedeas.train.samples import Samples

Config = TypeVar("Config", bound=SiteConfig)
REFUSAL = "this site refuses the request; its own log says why"
SITES = "FEDEAS_SITES"  # names the folder of simulated sites' configurations
_POLICIES = {p.name: p for p in (FedEAS, FullBalance, NoGeneration)}
_LONGEST = 20_000  # characters of a policy, which may have a share per class
# Of a number in one that is not 0. Beyond, a plan may be impossible to compute, by the counts.
_RANGES = {"size_exponent": (1e-6, 1.0), "quality": (1e-2, 1.0)}
_OTHER_RANGE = (1e-6, 1e4)
_LOG = logging.getLogger("fedeas")
_DAY = 24 * 3600.0
_SKEW = 60.0  # seconds that a clock may be put back


@dataclass(frozen=True)
class SiteGenerator:
    """What draws a site's synthetic samples.

    `quality` is what a sample of each class is worth, where the generator says so; `opened` is
    called with the cache of its samples before any is drawn.
    """

    spec: str
    quality: Sequence[float] | None = None
    opened: Callable[[Cache], None] = lambda cache: None


def client_app() -> ClientApp:
    """Return the ClientApp of a site: it trains with what its node's configuration names."""
    return site_app(SiteConfig, open_site)


def site_app(kind: type[Config], open_site: Callable[[Config], Site]) -> ClientApp:
    """Return the ClientApp of a site that is configured and opened like this.

    Parameters
    ----------
    kind
        What the node's configuration holds.
    open_site
        Opens the site that a configuration describes.
    """
    log_errors_in_one_line()

    def answer(what: str, message: Message, context: Context) -> Message:
        # Only what has to do with training takes torch, which takes seconds to load.
        client = import_extra("fedeas.train.flower.client", "training", "train")
        reply: Message = getattr(client, what)(message, open_site(agreed_config(kind, context)))
        return reply

    app = _SiteApp(lambda context: Path(_configured(kind, context).state) / "refusals")
    app.query("hello")(partial(answer, "hello"))
    app.train()(partial(answer, "train"))
    return app


class _SiteApp(ClientApp):
    """A ClientApp that gives the server one constant refusal, whatever the reason.

    Around the whole app: a message of a kind that nobody handles is refused in the same words.
    """

    def __init__(self, refusals: Callable[[Context], Path]) -> None:
        super().__init__()
        self._refusals = refusals  # the file of a site's refusals

    def __call__(self, message: Message, context: Context) -> Message:
        """Handle a message, or refuse it."""
        run, log = int(context.run_id), None
        try:
            refusals = RefusalLog(self._refusals(context))
            if refusals.exhausted(run):
                raise InputError(
                    "too many refused requests",
                    fix="ask the server's operator why, then remove `refusals` in the state folder",
                )
            log = refusals
            return super().__call__(message, context)
        except Exception as error:
            # What another member sent is that one's fault: it must not use up this site's refusals.
            if log is not None and getattr(error, "member", None) is None:
                log.add(run)
            _LOG.warning(
                "refused %s of run %s: %s: %s",
                message.metadata.message_type, run, type(error).__name__, error,
            )  # fmt: skip
            raise FedeasError(REFUSAL) from None


class RefusalLog:
    """How often a site has refused recently: a server that is refused over and over is probing.

    A line a refusal, only ever appended. A line that cannot be read counts as one of today, of
    every run: damage must not open what the limit closes.
    """

    def __init__(self, path: Path, per_run: int = 20, per_day: int = 200) -> None:
        self._path, self._per_run, self._per_day = path, per_run, per_day

    def exhausted(self, run: int) -> bool:
        """Whether no further request of a run, or none today, is read at all."""
        recent = self._recent()
        own = sum(each in (run, None) for each in recent)
        return len(recent) >= self._per_day or own >= self._per_run

    def add(self, run: int) -> None:
        """Count one more refusal."""
        self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        # In one write to the end of the file, so that processes do not get in each other's way;
        # on a line of its own, whatever a killed one has left.
        handle = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            os.write(handle, f"\n{time.time():.0f} {run}\n".encode())
            os.fsync(handle)
        finally:
            os.close(handle)

    def _recent(self) -> list[int | None]:
        """Return the runs of refusals within a day, None for one that cannot be read."""
        try:
            lines = self._path.read_bytes().split(b"\n")
        except FileNotFoundError:
            return []
        now, found = time.time(), list[int | None]()
        for line in filter(None, lines):
            try:
                at, run = (int(part) for part in line.split(b" "))
            except ValueError:
                found.append(None)
                continue
            # A time that is yet to come is of a clock that was wrong.
            if now - _DAY < at <= now + _SKEW:
                found.append(run)
        return found


def open_site(config: SiteConfig) -> Site:
    """Open the site that a configuration describes, with labels numbered as in its `classes`."""
    return open_site_with(config, lambda: SiteGenerator(config.generator))


def open_site_with(
    config: SiteConfig,
    generator: Callable[[], SiteGenerator],
    column: str = "",
    count: Callable[[Samples], NDArray[np.int64]] = Samples.counts,
) -> Site:
    """Open a site whose generator is asked for when synthetic samples are.

    `column` says whose the samples are: it is not learnt from, and becomes the data's `sites`.
    `count` returns the label counts that policies plan with.
    """
    owner_only_folder(Path(config.state))
    classes = read_classes(config.classes, "the site")
    store = str(Path(config.state) / "store")
    data = open_part("train", config.data, store, classes, config.schema, config.label, column)
    real = Samples.of(data, np.arange(data.train_size))
    return Site(
        config.partition_id,
        real,
        partial(_augmented, config, generator, real, count),
        Path(config.state) / "kept",
        config.device,
        tuple(config.methods.split()),
        hide_sample_counts=True,
        limits=config,
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
    target = {"target": _shares(settings.pop("target"))} if "target" in settings else {}
    for key, value in settings.items():
        least, most = _RANGES.get(key, _OTHER_RANGE)
        if not isinstance(value, int | float) or not (value == 0 or least <= abs(value) <= most):
            raise InputError(
                f"{key!r} of a policy is out of range",
                got=value,
                allowed=f"0, or {least:g} to {most:g}",
            )
    settings |= target
    try:
        policy: LocalPolicy = _POLICIES[name](**settings)
    except TypeError:
        raise InputError(f"policy {name!r} has other settings", got=sorted(settings)) from None
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


def _configured(kind: type[Config], context: Context) -> Config:
    """Read the node's configuration; a simulated node's is in a file of its own.

    Only this machine's environment names that file: a run's configuration comes from the server.
    """
    source: object = context.node_config
    if "data" not in context.node_config and SITES in os.environ:
        number = int(context.node_config["partition-id"])
        source = Path(os.environ[SITES]) / f"{number}.toml"
    return read_settings(kind, source, "a site's configuration")


def agreed_config(kind: type[Config], context: Context) -> Config:
    """Return the site's configuration, if the run is about the same classes.

    The owner's list decides, not which of them the site has images of: otherwise a server could
    find those out by leaving one out after the other.
    """
    config = _configured(kind, context)
    of_run = read_classes(str(context.run_config.get("classes", "")), "the run")
    check_same_classes(read_classes(config.classes, "the site"), of_run)
    return config


def _augmented(
    config: SiteConfig,
    find_generator: Callable[[], SiteGenerator],
    real: Samples,
    count: Callable[[Samples], NDArray[np.int64]],
    spec: str,
) -> Samples:
    """Return the site's real samples and its synthetic ones, generated on first use."""
    classes = real.data.classes
    policy = aim_at_classes(row_policy(spec), classes)
    if isinstance(policy, NoGeneration):
        return real
    # Whether anything is wanted follows from the labels: refusing later would reveal them.
    if not config.generator:
        raise InputError("this site has no generator", fix="name one in the node's configuration")
    generator = find_generator()
    if generator.quality is not None:
        policy = with_quality(policy, generator.quality)
    policy.local(np.arange(1, len(classes) + 1))  # one that plans for no counts is refused here
    largest, samples = config.max_cache_mb * 1_000_000, real.data.samples
    sample_bytes = math.prod(samples.shape[1:]) * samples.dtype.itemsize
    synthetic = ClientSamples(
        str(config.partition_id),
        policy,
        generator.spec,
        config.cache_folder,
        batch_size=config.batch,
        max_samples=min(config.max_samples, largest // sample_bytes),
        offered=(("device", config.device),),
        show_progress=True,
        max_bytes=largest,
    )
    check_fits(real.data, synthetic.open_generator())  # of other classes or columns: a lack too
    cache = synthetic.open_cache(classes)
    generator.opened(cache)
    try:
        with np.errstate(all="ignore"):
            return with_synthetic(real, synthetic, count(real))
    except Exception:
        # What goes wrong from here on may follow from the labels: the server must not hear of it.
        _LOG.exception("no synthetic samples: this site trains on its real ones alone")
        return real


def open_part(
    part: str,
    place: str,
    store: str,
    classes: tuple[str, ...],
    schema: str,
    label: str,
    column: str = "",
) -> Dataset:
    """Open a site's or the server's own data, all of it for 'train' or for 'test'.

    Labels are numbered as in the federation. What the columns of a table are is agreed on by all
    sites: if a site found that out by itself, it would tell which categories it has.
    """
    name = {"train": "site", "test": "server"}[part]
    if not Path(place).is_file():
        return _numbered(load_images(name, place, store, parts=(part,), site=column), classes)
    if not schema:
        raise InputError(
            "a table in a federation needs the columns that all sites agreed on",
            got=place,
            fix="set `schema` to the JSON file that every site has",
        )
    options = TableOptions(label, column, schema=schema)
    table = open_dataset(name, place, options, kind="table", parts=(part,), store=store)
    return _numbered(table, classes)


def _numbered(data: Dataset, classes: tuple[str, ...]) -> Dataset:
    """Return images with labels as the federation numbers them."""
    if strange := set(data.classes) - set(classes):
        raise InputError(
            "there are images of classes that the federation does not name",
            got=sorted(strange)[:5],
            allowed=", ".join(classes),
        )
    places = np.array([classes.index(name) for name in data.classes], np.int64)
    return replace(data, labels=places[np.asarray(data.labels)], classes=classes)
