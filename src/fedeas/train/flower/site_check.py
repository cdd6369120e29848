"""Whether a site is ready for a run: what its owner wrote, tried as the site will use it.

Nothing is sent, and no folder is made: the owner may not be the user that the site runs as.
"""

import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeVar

from fedeas._internal.blocks import usable_cores
from fedeas._internal.files import owner_only_folder
from fedeas._internal.names import did_you_mean
from fedeas.data import Dataset
from fedeas.errors import FedeasError, InputError
from fedeas.generators.protocol import check_classes, open_generator
from fedeas.planning.policies import NoGeneration
from fedeas.train.flower.deployed import RefusalLog, open_part, read_classes, row_policy
from fedeas.train.flower.deployment import RunConfig, SiteConfig, check_same_classes
from fedeas.train.flower.site import check_method, check_training
from fedeas.train.methods import METHODS
from fedeas.train.tensors import choose_device

_PATHS = ("data", "state", "cache", "identity-key", "members", "schema")
Site = TypeVar("Site", bound=SiteConfig)
Run = TypeVar("Run", bound=RunConfig)


class Finding(NamedTuple):
    """What was looked at, what it is or what is wrong with it, or what its owner may not mean."""

    what: str
    said: str
    wrong: bool = False
    doubtful: bool = False


SiteCheck = tuple[str, Callable[[Site], str | Finding]]
RunCheck = Callable[[Site, Run], str]


def check_with(
    checks: Sequence[SiteCheck[Site]],
    run_checks: Sequence[RunCheck[Site, Run]],
    site: Site,
    run: Run | None,
) -> Iterator[Finding]:
    """Look at what a site's configuration names, compare it with a run, and yield what is found.

    Parameters
    ----------
    checks
        What to look at, each with a name.
    run_checks
        Compare a site with a run.
    site
        What the owner of the site wrote.
    run
        The configuration of a run that it is to take part in.
    """
    for what, look in checks:
        yield _tried(what, partial(look, site))
    settings = site.to_dict()
    paths = [name for name in _PATHS if not Path(settings.get(name) or "/").is_absolute()]
    if paths:
        said = (
            f"{', '.join(paths)}: relative to the folder in which the SuperNode is started, "
            f"here {Path.cwd()}; write full paths"
        )
        yield Finding("paths", said, doubtful=True)
    if run is not None:
        for compare in run_checks:
            yield _tried("run", partial(compare, site, run))


def _tried(what: str, look: Callable[[], str | Finding]) -> Finding:
    try:
        found = look()
        return found if isinstance(found, Finding) else Finding(what, found)
    except FedeasError as error:
        return Finding(what, str(error), wrong=True)
    except Exception as error:  # a generator may be anybody's code
        return Finding(what, f"{type(error).__name__}: {error}", wrong=True)


def check_class_names(site: SiteConfig) -> str:
    """Read the names of the federation's classes."""
    return ", ".join(read_classes(site.classes, "the site"))


def describe_data(data: Dataset) -> str:
    """Say how many samples a site has, of how many classes."""
    shape = " x ".join(map(str, data.samples.shape[1:]))
    held = len(set(data.labels[: data.train_size].tolist()))
    return f"{data.train_size:,} samples of {shape}, of {held} of {len(data.classes)} classes"


@contextmanager
def opened_data(site: SiteConfig, column: str = "") -> Iterator[Dataset]:
    """Open the site's data as a turn does; a site that never ran gets no store by this."""
    if not Path(site.data).exists():
        raise InputError(f"there is no {site.data}", fix="set `data` to the site's own samples")
    classes = read_classes(site.classes, "the site")
    store = Path(site.state) / "store"
    with tempfile.TemporaryDirectory() as other:
        place = str(store if _writable(store) and store.exists() else other)
        yield open_part("train", site.data, place, classes, site.schema, site.label, column)


def check_generator(site: SiteConfig) -> str:
    """Open the site's generator, and compare its classes with the site's."""
    if not site.generator:
        return "none: this site takes part only in runs with the policy `none`"
    try_generator(site, site.generator)
    return site.generator


def try_generator(site: SiteConfig, spec: str) -> None:
    """Refuse a generator that cannot be opened, or is of other classes than the site's."""
    check_classes(
        read_classes(site.classes, "the site"), open_generator(spec, (("device", site.device),))
    )


def check_state(site: SiteConfig) -> str:
    """Look whether the site can write to its folders, and whether it still answers."""
    for folder in (Path(site.state), site.cache_folder):
        if folder.exists() and folder == Path(site.state):
            owner_only_folder(folder)
        if not _writable(folder):
            raise InputError(
                f"this user cannot write to {folder}", fix="run this as the user of the SuperNode"
            )
    if RefusalLog(Path(site.state) / "refusals").exhausted(0):
        raise InputError(
            "the site has refused so many requests today that it reads no more",
            fix="ask the server's operator why, then remove `refusals` in the state folder",
        )
    return site.state


def _writable(folder: Path) -> bool:
    there = next(place for place in (folder, *folder.absolute().parents) if place.exists())
    return there.is_dir() and os.access(there, os.W_OK | os.X_OK)


def check_methods(site: SiteConfig) -> str:
    """Look up the names of methods."""
    check_names(site.methods, "method", tuple(METHODS.names()))
    return site.methods


def check_names(listed: str, what: str, known: tuple[str, ...]) -> None:
    """Refuse a name that nothing has."""
    for name in listed.split():
        if name not in known:
            fix = did_you_mean(name, known)
            raise InputError(f"no such {what}", got=name, allowed=" ".join(known), fix=fix)


def check_device(site: SiteConfig) -> str:
    """Look for the device."""
    return str(choose_device(site.device))


def same_classes(site: SiteConfig, run: RunConfig) -> str:
    """Compare the classes, and their order."""
    names, run_names = read_classes(site.classes, "the site"), read_classes(run.classes, "the run")
    check_same_classes(names, run_names)
    return "is about the same classes"


def known_number(site: SiteConfig, run: RunConfig) -> str:
    """Look whether the run has a site of this number."""
    if site.partition_id >= run.sites:
        raise InputError(
            "the run has no site of this number",
            got=site.partition_id,
            allowed=f"partition-id from 0 to {run.sites - 1}",
            fix="ask the server's operator for the site's number",
        )
    return f"has {run.sites} sites; this is number {site.partition_id}, from 0"


def allowed_training(site: SiteConfig, run: RunConfig) -> str:
    """Compare how the run trains with what the owner allows."""
    federated = run.federated()
    check_method(run.method, site.methods.split())
    check_training(site, federated.local, federated.model, federated.threads)
    return f"trains by {run.method}, on {usable_cores()} cores here"


def generates(run: RunConfig) -> bool:
    """Tell whether a run generates anything; a policy that no site would take is refused."""
    policy = row_policy(run.policy)
    policy.local([1] * len(read_classes(run.classes, "the run")))
    return not isinstance(policy, NoGeneration)


def check_has_generator(site: SiteConfig, run: RunConfig) -> None:
    """Refuse a run that generates at a site that cannot."""
    if not site.generator:
        raise InputError(
            "the run generates, this site has no generator", got=run.policy, fix="set generator"
        )
