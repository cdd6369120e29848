"""Whether a site is ready for a run with secure sums: its key, its budget, what it allows.

The rest is looked at as at any site: see `fedeas.train.flower.site_check`.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fedeas.errors import InputError
from fedeas.private.accounting import epsilon_of, rho_for
from fedeas.private.flower.deployed import (
    generator_folder,
    group_column,
    site_groups,
    site_identity,
)
from fedeas.private.flower.handover import taken_generator
from fedeas.private.flower.site_config import UPDATES, RunConfig, SiteConfig
from fedeas.private.generator.card import PRIVATE
from fedeas.private.generator.make import queries_for
from fedeas.private.queries import QUERIES
from fedeas.private.secure_sum.identity import Members
from fedeas.train.flower import site_check as plain
from fedeas.train.flower.site_check import Finding

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
        plain.same_classes, plain.known_number, _run_members, _run_training, _run_policy,
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
    plain.check_names(allowed, "query", (*QUERIES, UPDATES))
    if UPDATES not in site.allowed or not site.members:
        return allowed
    said = f"{allowed}; with `{UPDATES}` any server that this site answers can learn its exact "
    return Finding("allow", said + "label counts", doubtful=True)


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


def _run_training(site: SiteConfig, run: RunConfig) -> str:
    """Compare how the run trains, if it does, with what the owner allows."""
    if not run.rounds:
        return "does not train"
    if UPDATES not in site.allowed:
        raise InputError(
            "the run trains, and this site's updates do not leave it",
            got=f"rounds = {run.rounds}",
            fix=f"set rounds = 0 in the run; or here allow = {_allowing(site, UPDATES)}: then a "
            "server can learn the site's exact label counts",
        )
    return plain.allowed_training(site, run)


def _allowing(site: SiteConfig, *more: str) -> str:
    """Return the value of `allow` in site.toml that also has these words, to be pasted."""
    return '"' + " ".join(dict.fromkeys([*site.allowed, *more])) + '"'


def _run_policy(site: SiteConfig, run: RunConfig) -> str:
    if not run.rounds or not (run.aims_at_federation or plain.generates(run)):
        return "generates nothing"
    plain.check_has_generator(site, run)
    if site.generator == PRIVATE and not run.generator_epsilon:
        taken_generator(generator_folder(site))
    if run.generator_epsilon and site.generator != PRIVATE:
        return f"makes a generator of its own; this site uses {site.generator}"
    return f"generates by {run.policy}"


class _Sum(NamedTuple):
    """A sum that a run asks for: its query, and what an answer costs in rho."""

    name: str
    rho: float


def _sums(site: SiteConfig, run: RunConfig) -> list[_Sum]:
    """Return the sums that a run asks its sites for, if it begins now."""
    sums = []
    if run.aims_at_federation:
        sums.append(_Sum("class-totals", rho_for(run.prior_epsilon)))
    if run.generator_epsilon:
        kind = "table" if Path(site.data).is_file() else "image"
        queries = queries_for(kind, run.generator_classifier)
        rho = rho_for(run.generator_epsilon)
        # They share the cost unevenly; what counts is the whole.
        sums += [_Sum(query, rho / len(queries)) for query in queries]
    return sums


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
    if lacking := [one.name for one in sums if one.name not in allow]:
        raise InputError(
            "the run needs what `allow` lacks",
            got=" ".join(lacking),
            fix=f"if the site is to answer, set allow = {_allowing(site, *lacking)}",
        )
    names = ", ".join(one.name for one in sums)
    ledger = site.open_ledger()
    cost = sum(ledger.amount(one.rho) for one in sums)
    ledger.check(f"the whole run ({names})", cost)
    return f"asks for {names}: epsilon {epsilon_of([cost], site.delta):.3g} of {site.epsilon:g}"
