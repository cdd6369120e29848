"""Whether a site is ready for a run with secure sums: its key, its budget, what it allows.

The rest is looked at as at any site: see `fedeas.flower.site_check`.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fedeas._util.specs import parse
from fedeas.errors import InputError
from fedeas.flower import site_check as plain
from fedeas.flower.site_check import Finding
from fedeas.planning.targets import FEDERATION
from fedeas_private.accounting import epsilon_of
from fedeas_private.flower.deployed import (
    generator_folder,
    group_column,
    site_groups,
    site_identity,
)
from fedeas_private.flower.generator import taken_generator
from fedeas_private.flower.queries import TRAIN, asked_rho, not_allowed
from fedeas_private.flower.secure_round import check_secure
from fedeas_private.flower.server import NEGOTIATE
from fedeas_private.flower.settings import EXACT, UPDATES, RoundSum, RunConfig, SiteConfig
from fedeas_private.generator.card import PRIVATE
from fedeas_private.generator.make import queries_for
from fedeas_private.queries import query_names
from fedeas_private.secure_sum.identity import Members

_MOST_DELTA = 0.1  # of 1 / N


def check_site(site: SiteConfig, run: RunConfig | None = None) -> Iterator[Finding]:
    """Look at everything that a site's configuration names, and yield what is found.

    Parameters
    ----------
    site
        What the owner of the site wrote.
    run
        The configuration of a run that it is to take part in.
    """
    checks = (
        ("classes", plain.check_class_names),
        ("data", _data),
        ("members", _members),
        ("generator", _generator),
        ("state", plain.check_state),
        ("budget", _budget),
        ("allow", _allow),
        ("methods", plain.check_methods),
        ("device", plain.check_device),
    )
    run_checks = (
        plain.same_classes, plain.known_number, _run_members, plain.allowed_training, _run_policy,
        _run_sums,
    )  # fmt: skip
    return plain.check_with(checks, run_checks, site, run)


def _data(site: SiteConfig) -> str | Finding:
    with plain.opened_data(site, group_column(site)) as data:
        said, size = plain.describe_data(data), data.train_size
        if site.group:
            groups = site_groups(site, data, bytes(32), strict=True)  # no key is made by looking
            most, size = int(np.bincount(groups.codes).max()), len(groups)
            said += f"; the unit is a group: {size:,} by {site.group}, of up to {most:,} samples"
    if not site.members or site.delta * size <= _MOST_DELTA:
        return said
    said += (
        f"; delta = {site.delta:g} is not far below 1 / {size}, so noise that gives whole "
        f"{site.unit}s away keeps the promise: set it to at most {_MOST_DELTA / size:.1g}"
    )
    return Finding("data", said, doubtful=True)


def _generator(site: SiteConfig) -> str:
    if site.generator != PRIVATE:
        return plain.check_generator(site)
    try:
        spec = taken_generator(generator_folder(site))
    except InputError:
        return "private: the federation's, which a run gives to this site"
    plain.try_generator(site, spec)
    return site.generator


def _members(site: SiteConfig) -> str:
    found = site_identity(site)
    if found is None:
        return "none: this site takes part in no secure sums"
    members = found.members
    return f"{members.names[found.place]} of {len(members)}, fingerprint {members.fingerprint}"


def _budget(site: SiteConfig) -> str:
    if not site.members:
        return "not needed without secure sums"
    if not site.ledger_folder.exists():
        return f"epsilon {site.epsilon:g} at delta {site.delta:g}, nothing spent"
    ledger = site.open_ledger()
    if ledger.left <= 0:
        raise InputError(
            "nothing is left of the privacy budget",
            got=f"epsilon {ledger.epsilon_spent:.3g} of {site.epsilon:g}",
            fix="look at `fedeas ledger`; with a larger epsilon the site gives more away",
        )
    return f"epsilon {ledger.epsilon_spent:.3g} of {site.epsilon:g} spent at delta {site.delta:g}"


def _allow(site: SiteConfig) -> str | Finding:
    allowed = " ".join(site.allowed)
    plain.check_names(allowed, "query", (*query_names(), TRAIN, EXACT, UPDATES))
    doubts = []
    if EXACT in site.allowed:
        doubts.append(f"with `{EXACT}` these sums leave without noise if a server asks so")
    if UPDATES in site.allowed and site.members:
        doubts.append(
            f"with `{UPDATES}` any server that this site answers can learn its exact label counts"
        )
    return Finding("allow", "; ".join((allowed, *doubts)), doubtful=bool(doubts))


def _run_members(site: SiteConfig, run: RunConfig) -> str:
    found = site_identity(site)
    asked = [one.name for one in _sums(site, run)]
    if asked and (found is None or not run.members):
        lacking = "this site has no key" if found is None else "it has no list of members"
        raise InputError(
            f"the run asks for secure sums, and {lacking}",
            got=" ".join(asked),
            fix="set identity-key and members here, and members in the run's configuration",
        )
    if not run.secure and UPDATES not in site.allowed:
        raise InputError(
            "the run trains with updates as they are, which this site does not allow",
            got="secure = false",
            fix=f"set secure = true in the run, or add `{UPDATES}` to `allow` here: then a server "
            "can learn the site's label counts",
        )
    if run.secure and found is not None:
        check_secure(run.federated(), run, found.members)
    if found is None or not run.members or not Path(run.members).exists():
        return "compare the fingerprint of its members with the server's out of band"
    theirs = Members.load(run.members)
    if theirs.digest != found.members.digest:
        raise InputError(
            "the run has another list of members",
            got=theirs.fingerprint,
            allowed=found.members.fingerprint,
            fix="give the server and all sites the same members.toml",
        )
    return "has the same members"


def _run_policy(site: SiteConfig, run: RunConfig) -> str:
    name, settings = parse(run.policy, "policy")
    settled = name == NEGOTIATE or settings.get("target") == FEDERATION
    if not settled and not plain.generates(run):
        return "generates nothing"
    plain.check_has_generator(site, run)
    if site.generator == PRIVATE and not run.generator_epsilon:
        taken_generator(generator_folder(site))
    if run.generator_epsilon and site.generator != PRIVATE:
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
        queries = queries_for(kind, run.generator_classifier)
        rho = asked_rho(run.generator_epsilon)
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
    sums, allow = _sums(site, run), site.allowed
    if not sums:
        return "asks for no sums"
    if run.unit != site.unit:
        raise InputError(
            "the run's sums are for another unit of privacy",
            got=run.unit,
            allowed=site.unit,
            fix="agree on `unit` in the run's configuration; `group` in site.toml is the owner's",
        )
    lacking = [each for one in sums for each in not_allowed(one.name, one.rho, allow)]
    if lacking := list(dict.fromkeys(lacking)):
        fix = "add that to `allow` if the site is to answer"
        if EXACT in lacking:
            fix += (
                f"; `{EXACT}` is for sums without noise; clip-norm and epsilon in the run add noise"
            )
        raise InputError("the run needs what `allow` lacks", got=" ".join(lacking), fix=fix)
    names = ", ".join(one.name for one in sums)
    ledger = site.open_ledger()
    if not (cost := sum(ledger.amount(one.rho) * one.times for one in sums if one.rho)):
        return f"asks for {names}, without noise"
    ledger.check(f"the whole run ({names})", cost)
    return f"asks for {names}: epsilon {epsilon_of([cost], site.delta):.3g} of {site.epsilon:g}"
