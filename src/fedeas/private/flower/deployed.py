"""A deployed site that takes part in secure sums: its key, its ledger, the federation's generator.

What the server sends is hostile until it is checked, and whether a request is refused does not
depend on the site's samples: see `fedeas.train.flower.deployed`, which this is built from.
"""

import os
from contextlib import suppress
from dataclasses import replace
from functools import cache, partial
from pathlib import Path

import numpy as np
from flwr.app import Context, Message
from flwr.clientapp import ClientApp
from numpy.typing import NDArray

from fedeas.cache import Cache
from fedeas.cache.store import about_of, caches, remove
from fedeas.data import Dataset
from fedeas.data.kinds import Array
from fedeas.errors import InputError
from fedeas.private.flower.handover import take_generator, taken_generator, taken_quality
from fedeas.private.flower.queries import QueryContext, answer_queries
from fedeas.private.flower.site_config import UPDATES, SiteConfig
from fedeas.private.generator.card import FINGERPRINT, PRIVATE
from fedeas.private.groups import Groups, owner_key, read_ids
from fedeas.private.secure_sum.identity import Identity, Members, load_identity
from fedeas.train.flower.deployed import (
    SiteGenerator,
    agreed_config,
    open_site_with,
    read_classes,
    site_app,
)
from fedeas.train.flower.site import Site
from fedeas.train.samples import Samples


def client_app() -> ClientApp:
    """Return the ClientApp of a site: it answers queries and trains with what its node names."""
    app = site_app(SiteConfig, open_site)
    app.query("private_generator")(_take_generator)
    answer_queries(app, hold_counts)
    return app


def open_site(config: SiteConfig) -> Site:
    """Open the site that a configuration describes, with labels numbered as in its `classes`."""
    # A site with one of key and members must not pass for one without members, which trains.
    site_identity(config)

    def count(real: Samples) -> NDArray[np.int64]:
        # As in the sums that a target comes from: a group counts once.
        if not config.group:
            return real.counts()
        return site_groups(config, real.data).label_counts(real.labels, len(real.data.classes))

    site = open_site_with(config, partial(_generator, config), group_column(config), count)
    # The server is told how many units there are: of a person, the number of samples would tell.
    units = len(site_groups(config, site.real.data)) if config.group else None
    return replace(site, updates=UPDATES in config.allowed, units=units)


def hold_counts(context: Context) -> QueryContext:
    """Return what a site answers queries with: its own counts, its key and its ledger."""
    config = agreed_config(SiteConfig, context)
    identity = site_identity(config)
    if identity is None:
        raise InputError(
            "this site takes part in no secure sums", fix="set identity-key and members"
        )

    @cache
    def real() -> Samples:  # at most once for a message
        return open_site(config).real

    def samples() -> tuple[Array, NDArray[np.int64]]:
        return real().data.samples, real().labels

    return QueryContext(
        lambda: real().counts(),
        _sums_folder(config),
        identity,
        config.open_ledger(),
        config.allowed,
        samples,
        len(read_classes(config.classes, "the site")),
        lambda: real().data.samples.shape[1:],
        (lambda: site_groups(config, real().data)) if config.group else None,
    )


def group_column(config: SiteConfig) -> str:
    """Return the column of the site's groups; none if it has no groups, or a file of ids."""
    return "" if os.sep in config.group else config.group


def site_groups(
    config: SiteConfig, data: Dataset, key: bytes = b"", *, strict: bool = False
) -> Groups:
    """Return the group of every sample of a site, as its owner names them.

    Parameters
    ----------
    config, data
        What the owner says, and the site's samples.
    key
        Decides which samples of a group are taken; by default the one in the site's folder.
    strict
        As for `Groups.of`: for the owner's own eyes.
    """
    key = key or owner_key(Path(config.state))
    if data.schema is not None and config.group in data.schema.names:
        raise InputError(
            f"{config.group!r} names the groups, and is learnt from", fix="take it out of `schema`"
        )
    if data.sites is not None:
        groups = Groups.of(data.sites.names, key, config.per_group, strict=strict)
        return groups.at(np.asarray(data.sites.codes))
    ids = read_ids(Path(config.group))
    if len(ids) != data.train_size:
        raise InputError(
            f"{config.group} has another number of ids than there are samples",
            got=len(ids),
            allowed=f"{data.train_size} lines, in the order of the samples",
        )
    return Groups.of(ids, key, config.per_group, strict=strict)


def site_identity(config: SiteConfig) -> Identity | None:
    """Return the site's key and the members, if its owner named both."""
    if not config.identity_key and not config.members:
        return None
    if not config.identity_key or not config.members:
        raise InputError("a site needs identity-key and members, or neither")
    return Identity.of(load_identity(config.identity_key), Members.load(config.members))


def generator_folder(config: SiteConfig) -> Path:
    """Return where a site keeps the federation's generator."""
    return Path(config.state) / "generator"


def _sums_folder(config: SiteConfig) -> Path:
    return Path(config.state) / "sums"


def _take_generator(message: Message, context: Context) -> Message:
    """Keep the federation's own generator."""
    config = agreed_config(SiteConfig, context)
    if config.generator != PRIVATE:
        raise InputError("this site has a generator of its own", got=config.generator or "none")
    return take_generator(message, open_site(config).real.data, generator_folder(config))


def _generator(config: SiteConfig) -> SiteGenerator:
    """Return the generator that the owner names, or the one that the federation gave the site."""
    if config.generator != PRIVATE:
        return SiteGenerator(config.generator)
    folder = generator_folder(config)
    return SiteGenerator(taken_generator(folder), taken_quality(folder), _remove_earlier)


def _remove_earlier(cache: Cache) -> None:
    """Remove samples of the generators that the server gave before: each new one needs room."""
    for storage in caches(cache.base):
        with suppress(InputError, OSError):  # damaged
            fingerprint = about_of(storage).generator
            if storage.name != cache.storage.name and fingerprint.startswith(FINGERPRINT):
                remove(storage)
