"""Whether a site is ready for a run: what its owner wrote, tried as the site will use it.

Nothing is sent, and no folder is made: the owner may not be the user that the site runs as.
"""

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

from fedeas.cores import usable_cores
from fedeas.data import Dataset
from fedeas.errors import FedeasError, InputError
from fedeas.flower.deployed import open_part, read_classes, row_policy, site_identity
from fedeas.flower.limits import RefusalLog, check_method, check_training
from fedeas.flower.own_generator import OWN, taken_generator
from fedeas.flower.queries import EXACT, TRAIN, asked_rho, not_allowed
from fedeas.flower.secure_round import check_secure
from fedeas.flower.server import NEGOTIATE
from fedeas.generators.generator import check_classes, open_generator
from fedeas.generators.own.make import queries_for
from fedeas.methods.registry import METHODS
from fedeas.policies import NoGeneration
from fedeas.privacy.accounting import epsilon_of
from fedeas.privacy.ledger import Ledger
from fedeas.privacy.queries.registry import QUERIES
from fedeas.privacy.secure_sum.identity import Members
from fedeas.privacy.secure_sum.memory import own_folder
from fedeas.settings.deployment import RoundSum, RunConfig, SiteConfig, check_same_classes
from fedeas.specs import did_you_mean, parse
from fedeas.targets import FEDERATION
from fedeas.tensors import choose_device

_PATHS = ("data", "state", "cache", "identity-key", "members", "schema")
_MOST_DELTA = 0.1  # of 1 / N


class Finding(NamedTuple):
    """What was looked at, what it is or what is wrong with it, or what its owner may not mean."""

    what: str
    said: str
    wrong: bool = False
    doubtful: bool = False


def check_site(site: SiteConfig, run: RunConfig | None = None) -> Iterator[Finding]:
    """Look at everything that a site's configuration names, and yield what is found.

    Parameters
    ----------
    site
        What the owner of the site wrote.
    run
        The configuration of a run that it is to take part in.
    """
    for what, look in (
        ("classes", _classes),
        ("data", _data),
        ("members", _members),
        ("generator", _generator),
        ("state", _state),
        ("budget", _budget),
        ("allow", _allow),
        ("methods", _methods),
        ("device", lambda own: str(choose_device(own.device))),
    ):
        yield _tried(what, look, site)
    if relative := [name for name in _PATHS if not _absolute(site.to_dict()[name])]:
        said = (
            f"{', '.join(relative)}: relative to the folder in which the SuperNode is started, "
            f"here {Path.cwd()}; write full paths"
        )
        yield Finding("paths", said, doubtful=True)
    if run is not None:
        for compare in (
            _run_classes, _run_number, _run_members, _run_training, _run_policy, _run_sums,
        ):  # fmt: skip
            yield _tried("run", partial(compare, run=run), site)


def _absolute(path: str) -> bool:
    return not path or Path(path).is_absolute()


def _tried(what: str, look: Callable[[SiteConfig], str | Finding], site: SiteConfig) -> Finding:
    try:
        found = look(site)
        return found if isinstance(found, Finding) else Finding(what, found)
    except FedeasError as error:
        return Finding(what, str(error), wrong=True)
    except Exception as error:  # a generator may be anybody's code
        return Finding(what, f"{type(error).__name__}: {error}", wrong=True)


def _classes(site: SiteConfig) -> str:
    return ", ".join(read_classes(site.classes, "the site"))


def _data(site: SiteConfig) -> str | Finding:
    with _opened(site) as data:
        shape = " x ".join(map(str, data.samples.shape[1:]))
        held = len(set(data.labels[: data.train_size].tolist()))
        size = data.train_size
        said = f"{size:,} samples of {shape}, of {held} of {len(data.classes)} classes"
        if not site.members or site.delta * size <= _MOST_DELTA:
            return said
        said += (
            f"; delta = {site.delta:g} is not far below 1 / {size}, so noise that gives whole "
            f"samples away keeps the promise: set it to at most {_MOST_DELTA / size:.1g}"
        )
        return Finding("data", said, doubtful=True)


@contextmanager
def _opened(site: SiteConfig) -> Iterator[Dataset]:
    """Open the site's data as a turn does; a site that never ran gets no store by this."""
    if not Path(site.data).exists():
        raise InputError(f"there is no {site.data}", fix="set `data` to the site's own samples")
    classes = read_classes(site.classes, "the site")
    store = Path(site.state) / "store"
    with tempfile.TemporaryDirectory() as other:
        place = str(store if _writable(store) and store.exists() else other)
        yield open_part("train", site.data, place, classes, site.schema, site.label)


def _members(site: SiteConfig) -> str:
    found = site_identity(site)
    if found is None:
        if site.secure:
            raise InputError("secure needs a key and the members", fix="set identity-key, members")
        return "none: this site takes part in no secure sums"
    members = found.members
    return f"{members.names[found.place]} of {len(members)}, fingerprint {members.fingerprint}"


def _generator(site: SiteConfig) -> str:
    if not site.generator:
        return "none: this site takes part only in runs with the policy `none`"
    spec = site.generator
    if spec == OWN:
        try:
            spec = taken_generator(Path(site.state) / "generator")
        except InputError:
            return "own: the federation's, which a run gives to this site"
    opened = open_generator(spec, (("device", site.device),))
    check_classes(read_classes(site.classes, "the site"), opened)
    return site.generator


def _state(site: SiteConfig) -> str:
    for folder in (Path(site.state), site.cache_folder):
        if folder.exists() and folder == Path(site.state):
            own_folder(folder)
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


def _budget(site: SiteConfig) -> str:
    if not site.members:
        return "not needed without secure sums"
    if not site.ledger_folder.exists():
        return f"epsilon {site.epsilon:g} at delta {site.delta:g}, nothing spent"
    ledger = Ledger.open(site.ledger_folder, site.epsilon, site.delta)
    if ledger.left <= 0:
        raise InputError(
            "nothing is left of the privacy budget",
            got=f"epsilon {ledger.epsilon_spent:.3g} of {site.epsilon:g}",
            fix="look at `fedeas privacy`; with a larger epsilon the site gives more away",
        )
    return f"epsilon {ledger.epsilon_spent:.3g} of {site.epsilon:g} spent at delta {site.delta:g}"


def _allow(site: SiteConfig) -> str | Finding:
    _check_names(site.allow, "query", (*QUERIES, TRAIN, EXACT))
    if EXACT in site.allow.split():
        said = f"{site.allow}; with `{EXACT}` these sums leave without noise if a server asks so"
        return Finding("allow", said, doubtful=True)
    return site.allow


def _methods(site: SiteConfig) -> str:
    _check_names(site.methods, "method", tuple(METHODS.names()))
    return site.methods


def _check_names(listed: str, what: str, known: tuple[str, ...]) -> None:
    for name in listed.split():
        if name not in known:
            fix = did_you_mean(name, known)
            raise InputError(f"no such {what}", got=name, allowed=" ".join(known), fix=fix)


def _run_classes(site: SiteConfig, run: RunConfig) -> str:
    own, other = read_classes(site.classes, "the site"), read_classes(run.classes, "the run")
    check_same_classes(own, other)
    return "is about the same classes"


def _run_number(site: SiteConfig, run: RunConfig) -> str:
    if site.partition_id >= run.sites:
        raise InputError(
            "the run has no site of this number",
            got=site.partition_id,
            allowed=f"partition-id from 0 to {run.sites - 1}",
            fix="ask the server's operator for the site's number",
        )
    return f"has {run.sites} sites; this is number {site.partition_id}, from 0"


def _run_members(site: SiteConfig, run: RunConfig) -> str:
    found = site_identity(site)
    if asked := [one.name for one in _sums(site, run)]:
        if found is None:
            raise InputError(
                "the run asks for secure sums, this site has no key",
                got=" ".join(asked),
                fix="set identity-key, members",
            )
        if not run.members:
            raise InputError(
                "the run asks for secure sums without a list of members",
                got=" ".join(asked),
                fix="set members in the run's configuration",
            )
    if site.secure and not run.secure:
        raise InputError(
            "updates leave this site only in secure sums, the run is not secure",
            fix="set secure = true in the run's configuration",
        )
    if run.secure and found is not None:
        check_secure(run.federated(), run, found.members)
    if found is None or not run.members or not Path(run.members).exists():
        return "compare the fingerprint of its members with the server's by telephone"
    theirs = Members.load(run.members)
    if theirs.digest != found.members.digest:
        raise InputError(
            "the run has another list of members",
            got=theirs.fingerprint,
            allowed=found.members.fingerprint,
            fix="give the server and all sites the same members.toml",
        )
    return "has the same members"


def _run_training(site: SiteConfig, run: RunConfig) -> str:
    federated = run.federated()
    if (name := parse(run.method, "method")[0]) not in site.methods.split():
        raise InputError(
            "the site does not take part in this method", got=name, allowed=site.methods
        )
    check_method(run.method)
    check_training(site, federated.local, federated.model, federated.threads)
    return f"trains by {run.method}, on {usable_cores()} cores here"


def _run_policy(site: SiteConfig, run: RunConfig) -> str:
    name, settings = parse(run.policy, "policy")
    if name != NEGOTIATE and settings.get("target") != FEDERATION:
        policy = row_policy(run.policy)
        policy.local([1] * len(read_classes(run.classes, "the run")))
        if isinstance(policy, NoGeneration):
            return "generates nothing"
    if not site.generator:
        raise InputError(
            "the run generates, this site has no generator", got=run.policy, fix="set generator"
        )
    if site.generator == OWN and not run.generator_epsilon:
        taken_generator(Path(site.state) / "generator")
    if run.generator_epsilon and site.generator != OWN:
        return f"makes a generator of its own; this site uses {site.generator}"
    return f"generates by {run.policy}"


class _Sum(NamedTuple):
    """A sum that a run asks for: its query, what an answer costs in rho, how often it is asked."""

    name: str
    rho: float
    times: int = 1


def _sums(site: SiteConfig, run: RunConfig) -> list[_Sum]:
    """Return the sums that a run asks its sites for, if it begins now."""
    sums = []
    name, settings = parse(run.policy, "policy")
    if name == NEGOTIATE:
        query = "price" if "total" in settings else "beta"
        sums.append(_Sum(query, asked_rho(_number(settings.get("epsilon", 1.0)))))
    elif settings.get("target") == FEDERATION:
        sums.append(_Sum("class-totals", asked_rho(run.prior_epsilon)))
    if run.generator_epsilon:
        kind = "table" if Path(site.data).is_file() else "image"
        queries, rho = queries_for(run.generator_way, kind), asked_rho(run.generator_epsilon)
        # They share the cost unevenly; what counts is the whole.
        sums += [_Sum(query, rho / len(queries)) for query in queries]
    if run.secure:
        rho = asked_rho(run.epsilon, run.delta) / run.rounds if run.epsilon else 0.0
        asked = RoundSum("", 1, "", 1, clip=run.clip_norm, rho=rho)  # refuses noise without clip
        sums.append(_Sum(TRAIN, asked.rho, run.rounds))
    return sums


def _number(value: object) -> float:
    if not isinstance(value, int | float):
        raise InputError(f"{NEGOTIATE}'s epsilon is not a number", got=value)
    return value


def _run_sums(site: SiteConfig, run: RunConfig) -> str:
    """Compare the sums with what the owner allows, and their cost with what is left to spend."""
    sums, allow = _sums(site, run), site.allow.split()
    if not sums:
        return "asks for no sums"
    lacking = [each for one in sums for each in not_allowed(one.name, one.rho, allow)]
    if lacking := list(dict.fromkeys(lacking)):
        fix = "add that to `allow` if the site is to answer"
        if EXACT in lacking:
            fix += (
                f"; `{EXACT}` is for sums without noise; clip-norm and epsilon in the run add noise"
            )
        raise InputError("the run needs what `allow` lacks", got=" ".join(lacking), fix=fix)
    names = ", ".join(one.name for one in sums)
    ledger = Ledger.open(site.ledger_folder, site.epsilon, site.delta)
    if not (cost := sum(ledger.amount(one.rho) * one.times for one in sums if one.rho)):
        return f"asks for {names}, without noise"
    ledger.check(f"the whole run ({names})", cost)
    return f"asks for {names}: epsilon {epsilon_of([cost], site.delta):.3g} of {site.epsilon:g}"
